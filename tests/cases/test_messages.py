"""Chapter D: a message that was acknowledged is handled, in its order and once, or is there to be seen."""

import asyncio
import random

import pytest

from everact import workflow
from everact.exceptions import (
    PayloadEncodeError,
    UpdateFailedError,
    WorkflowClosedError,
)
from everact.journal.memory_store import MemoryJournal
from everact.testing import Replayer, TestEnvironment

# --- D01


@workflow.defn
class Multiplies:
    @workflow.init
    def __init__(self, factor: int) -> None:
        self.factor = factor * 10
        self.products: list[int] = []
        self.at_start = -1

    @workflow.run
    async def run(self, factor: int) -> list[int]:
        self.at_start = len(self.products)
        await workflow.wait_condition(lambda: len(self.products) >= 3)
        return self.products

    @workflow.signal
    def multiply(self, number: int) -> None:
        self.products.append(number * self.factor)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("count", [1, 3, 20])
async def test_d01_messages_sent_before_any_host_runs_it_find_the_set_up_done(count, asynchronous):
    """It waits for its begin; the host is gone by then, and another one has it."""

    @workflow.defn
    class Counts:
        @workflow.init
        def __init__(self, factor: int) -> None:
            self.factor = factor * 10
            self.products: list[int] = []

        @workflow.run
        async def run(self, factor: int) -> list[int]:
            return list(self.products)  # at once: it has seen them all

        @workflow.signal
        def multiply(self, number: int) -> None:
            self.products.append(number * self.factor)

    @workflow.defn(name="Counts")
    class CountsLater(Counts):
        @workflow.run
        async def run(self, factor: int) -> list[int]:
            return list(self.products)

        @workflow.signal(name="multiply")
        async def multiply_later(self, number: int) -> None:
            self.products.append(number * self.factor)

        multiply = None

    kind = CountsLater if asynchronous else Counts
    journal = MemoryJournal()
    async with TestEnvironment(workflows=[kind], journal=journal) as env:
        handle = await env.spawn("Counts", 2, id="counts", start_delay=60)
        for number in range(count):
            await handle.signal("multiply", number)
    async with TestEnvironment(workflows=[kind], journal=journal) as env:
        begun = env.now()
        result = await env.ref("counts").result()
        assert result == [20 * number for number in range(count)]
        assert (env.now() - begun).total_seconds() <= 60


async def test_d01_signal_with_start_and_early_senders_lose_nothing():
    async def signal_with_start(number):
        handle = await env.spawn(Multiplies, 2, id="x", if_running="attach")
        await handle.signal(Multiplies.multiply, number)
        return handle

    async with TestEnvironment(workflows=[Multiplies]) as env:
        begun = env.now()
        handles = await asyncio.gather(*map(signal_with_start, range(3)))
        assert sorted(await handles[0].result()) == [0, 20, 40]
        assert len({handle.run_id for handle in handles}) == 1
        assert env.now() == begun


# --- D02


@workflow.defn
class CountsForASecond:
    def __init__(self) -> None:
        self.count = 0

    @workflow.run
    async def run(self, ends_by: str) -> int:
        if ends_by == "timer":
            await workflow.sleep(1)
        else:
            await workflow.wait_condition(lambda: self.count >= 50)
        return self.count

    @workflow.signal
    def hit(self) -> None:
        self.count += 1

    @workflow.update
    def ask(self) -> int:
        self.count += 1
        return self.count


@pytest.mark.parametrize("verb", ["signal", "update"])
@pytest.mark.parametrize("senders", [1, 7])
@pytest.mark.parametrize("ends_by", ["timer", "message"])
async def test_d02_each_acknowledged_message_is_counted_whatever_the_last_turn_is(verb, senders, ends_by):
    async with TestEnvironment(workflows=[CountsForASecond]) as env:
        handle = await env.spawn(CountsForASecond, ends_by)

        async def sends(number):
            acknowledged = 0
            pauses = random.Random(number)
            try:
                while True:
                    if verb == "signal":
                        await handle.signal(CountsForASecond.hit)
                    else:
                        await handle.execute_update(CountsForASecond.ask)
                    acknowledged += 1
                    if ends_by == "timer" and acknowledged % 10 == 0:
                        await env.sleep(pauses.uniform(0, 0.1))
            except WorkflowClosedError:
                return acknowledged

        counts = await asyncio.gather(*map(sends, range(senders)))
        assert await handle.result() == sum(counts) > 0


# --- D03


@workflow.defn
class CountsOn:
    def __init__(self) -> None:
        self.unused: list[int] = []

    @workflow.run
    async def run(self, seen: list[int], pause: float | None) -> list[int]:
        await workflow.wait_condition(lambda: self.unused)
        if pause is not None:
            await workflow.sleep(pause)
        seen = [*seen, *self.unused]
        if len(seen) >= 200:
            return seen
        workflow.continue_as_new(seen, pause)

    @workflow.signal
    def add(self, number: int) -> None:
        self.unused.append(number)


@pytest.mark.parametrize("pause", [None, 0.0, 0.5])
async def test_d03_two_hundred_messages_at_a_time_cross_the_runs_of_a_chain_in_order(pause):
    async with TestEnvironment(workflows=[CountsOn]) as env:
        handle = await env.spawn(CountsOn, [], pause)
        await asyncio.gather(*(handle.signal(CountsOn.add, number) for number in range(200)))
        assert await handle.result() == list(range(200))


@pytest.mark.parametrize("pause", [None, 0.0, 0.5])
@pytest.mark.chaos(seeds=1, count=20)
async def test_d03_messages_one_after_the_other_cross_the_runs_of_a_chain_whatever_goes_wrong(pause):
    """Crashes, failed commits, messages that come twice: twenty of them."""
    async with TestEnvironment(workflows=[CountsOn]) as env:
        handle = await env.spawn(CountsOn, [], pause)
        for number in range(200):
            await handle.signal(CountsOn.add, number)
            if number % 5 == 4:
                await env.sleep(0.3)
        assert await handle.result() == list(range(200))
        assert await env.runtime.count_workflows(status="continued_as_new") > 5


# --- D05


@workflow.defn
class Adds:
    def __init__(self) -> None:
        self.total = 0

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: self.total >= 10)
        return self.total

    @workflow.signal
    def add(self, number: int) -> None:
        if number < 0:
            raise ValueError(f"no negative number: {number}")
        self.total += number

    @workflow.signal
    async def add_later(self, number: int) -> None:
        await workflow.sleep(1)
        self.add(number)

    @workflow.update
    async def change(self, number: int) -> int:
        await workflow.sleep(1)
        self.add(number)
        return self.total


@pytest.mark.parametrize("bad", ["text", [1], {"number": 1}, None, 1.5])
async def test_d05_a_message_of_the_wrong_shape_is_refused_at_the_call_and_the_good_one_handled(bad):
    async with TestEnvironment(workflows=[Adds]) as env:
        handle = await env.spawn(Adds)
        for send in (handle.signal, handle.execute_update):
            name = "add" if send == handle.signal else "change"
            with pytest.raises((PayloadEncodeError, TypeError), match="number"):
                await send(name, bad)
        await handle.signal(Adds.add, 10)
        assert await handle.result() == 10
        assert [event.kind for event in await handle.fetch_history()].count("SignalReceived") == 1


async def test_d05_a_message_that_no_longer_fits_is_a_dead_letter_and_the_good_one_handled():
    """It was sent to an older version, and waits."""

    @workflow.defn(name="Adds")
    class Older:
        @workflow.run
        async def run(self) -> int:
            return 0

        @workflow.signal
        def add(self, words: str) -> None:
            raise AssertionError

    journal = MemoryJournal()
    async with TestEnvironment(workflows=[Older], journal=journal) as env:
        handle = await env.spawn(Older, id="adds", start_delay=60)
        await handle.signal("add", "seven")
    async with TestEnvironment(workflows=[Adds], journal=journal) as env:
        handle = env.ref("adds", Adds)
        await handle.signal(Adds.add, 10)
        assert await handle.result() == 10
        (letter,) = (await handle.describe()).dead_letters
        assert letter.name == "add" and "PayloadDecodeError" in letter.reason


@pytest.mark.parametrize("handler", ["add", "add_later"])
async def test_d05_a_handler_that_raises_leaves_a_dead_letter_and_an_asker_gets_the_error(handler):
    async with TestEnvironment(workflows=[Adds]) as env:
        handle = await env.spawn(Adds)
        await handle.signal(handler, -1)
        await env.sleep(2)
        about = await handle.describe()
        (letter,) = about.dead_letters
        assert about.dead_letter_count == 1 and about.status == "running"
        assert letter.name == handler
        assert "ValueError" in letter.reason and "no negative number: -1" in letter.reason
        with pytest.raises(UpdateFailedError, match="no negative number: -2"):
            await handle.execute_update(Adds.change, -2)
        await env.restart()
        assert (await handle.describe()).dead_letter_count == 1
        await handle.signal(Adds.add, 10)
        assert await handle.result() == 10
        assert Replayer(workflows=[Adds]).replay(await handle.fetch_history()).passed
