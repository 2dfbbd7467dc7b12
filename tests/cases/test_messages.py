"""Chapter D: what was acknowledged is handled, once, in order, or shown to people with its reason."""

import asyncio

import pytest

from everact import activity, workflow
from everact.exceptions import (
    UpdateCutError,
    UpdateFailedError,
    WorkflowCancelledError,
    WorkflowClosedError,
    WorkflowFailedError,
)
from everact.testing import TestEnvironment


@activity.defn
async def work(number: int) -> int:
    raise NotImplementedError


@workflow.defn
class Counter:
    @workflow.init
    def __init__(self, base: int, awaited: int) -> None:
        self.base = base
        self.seen: list[int] = []

    @workflow.run
    async def run(self, base: int, awaited: int) -> list[int]:
        await workflow.wait_condition(lambda: len(self.seen) >= awaited)
        return self.seen

    @workflow.signal
    def add(self, number: int) -> None:
        self.seen.append(self.base + number)


async def test_d01_messages_that_come_before_run_find_an_object_that_is_set_up():
    async with TestEnvironment(workflows=[Counter]) as env:
        with env.time_held():
            handle = env.ref("early", Counter)
            started = asyncio.create_task(env.spawn(Counter, 100, 3, id="early"))
            await asyncio.sleep(0)
            sends = [asyncio.create_task(handle.signal(Counter.add, n)) for n in range(3)]
            await asyncio.gather(started, *sends)
        assert await handle.result() == [100, 101, 102]


@workflow.defn
class LastTurn:
    def __init__(self) -> None:
        self.count = 0

    @workflow.run
    async def run(self) -> int:
        await workflow.sleep(1)
        return self.count

    @workflow.signal
    def add(self) -> None:
        self.count += 1


async def test_d02_what_was_acknowledged_before_the_end_is_counted():
    async with TestEnvironment(workflows=[LastTurn]) as env:
        handle = await env.spawn(LastTurn)
        sent = 0

        async def send() -> None:
            nonlocal sent
            while True:
                try:
                    await handle.signal(LastTurn.add)
                except WorkflowClosedError:
                    return
                sent += 1
                await env.sleep(0.01)

        await asyncio.gather(*(send() for _ in range(5)))
        assert await handle.result() == sent > 100


@workflow.defn
class Chained:
    @workflow.init
    def __init__(self, seen: list[int], total: int, naps: bool) -> None:
        self.queue: list[int] = []

    @workflow.run
    async def run(self, seen: list[int], total: int, naps: bool) -> list[int]:
        await workflow.wait_condition(lambda: bool(self.queue))
        if naps:
            await asyncio.sleep(0)
            await workflow.sleep(0.001)
        seen = [*seen, *self.queue]
        self.queue.clear()
        if len(seen) >= total:
            return seen
        workflow.continue_as_new(seen, total, naps)

    @workflow.signal
    def add(self, number: int) -> None:
        self.queue.append(number)


@pytest.mark.parametrize("naps", [False, True])
async def test_d03_nothing_is_lost_where_a_run_continues_as_new(naps):
    async with TestEnvironment(workflows=[Chained]) as env:
        handle = await env.spawn(Chained, [], 200, naps, id="chain")
        for number in range(200):
            await handle.signal(Chained.add, number)
        assert await handle.result() == list(range(200))


@pytest.mark.crash_everywhere(limit=60)
async def test_d03_nor_where_it_is_killed():
    async with TestEnvironment(workflows=[Chained]) as env:
        handle = await env.spawn(Chained, [], 8, True, id="chain")
        for number in range(8):
            await handle.signal(Chained.add, number)
        assert await handle.result() == list(range(8))


@workflow.defn
class Listens:
    def __init__(self) -> None:
        self.seen: list[int] = []

    @workflow.run
    async def run(self) -> list[int]:
        await workflow.wait_condition(lambda: len(self.seen) == 1)
        return self.seen

    @workflow.signal
    def take(self, number: int) -> None:
        if number < 0:
            raise ValueError("below zero")
        self.seen.append(number)

    @workflow.update
    def ask(self, number: int) -> int:
        raise ValueError("not today")


@pytest.mark.parametrize("bad", ["no number", -1])
async def test_d05_a_bad_message_is_a_dead_letter_and_the_good_one_is_handled(bad):
    async with TestEnvironment(workflows=[Listens]) as env:
        handle = await env.spawn(Listens, id="listens")
        if bad == -1:
            await handle.signal("take", bad)
        else:
            with pytest.raises(Exception, match=r"number|int"):  # refused at the call: the type is known here
                await handle.signal("take", bad)
            return
        (letter,) = (await handle.describe()).dead_letters
        assert "below zero" in str(letter)
        with pytest.raises(UpdateFailedError, match="not today"):
            await handle.execute_update(Listens.ask, 1)
        await handle.signal(Listens.take, 5)
        assert await handle.result() == [5]


@workflow.defn
class SetsLater:
    def __init__(self) -> None:
        self.seen: list[int] = []

    @workflow.run
    async def run(self) -> list[int]:
        await workflow.sleep(1)
        workflow.set_signal_handler("add", self._add)
        await workflow.wait_condition(lambda: len(self.seen) == 4)
        return self.seen

    def _add(self, number: int) -> None:
        self.seen.append(number)


async def test_d07_messages_for_a_handler_that_comes_later_are_kept_in_order():
    async with TestEnvironment(workflows=[SetsLater]) as env:
        handle = await env.spawn(SetsLater)
        for number in range(3):
            await handle.signal("add", number)
        await env.sleep(2)
        await handle.signal("add", 3)
        assert await handle.result() == [0, 1, 2, 3]


@workflow.defn
class EndsEarly:
    @workflow.run
    async def run(self, how: str) -> str:
        await workflow.sleep(1)
        match how:
            case "waits":
                await workflow.wait_condition(workflow.all_handlers_finished)
            case "continues":
                workflow.continue_as_new("returns")
            case "fails":
                raise TimeoutError("enough")
            case "cancelled":
                await workflow.sleep(100)
        return how

    @workflow.update
    async def slow(self) -> int:
        return await work(1)


@pytest.mark.parametrize("how", ["waits", "returns", "continues", "fails", "cancelled"])
async def test_d08_who_waits_for_a_handler_that_is_cut_is_told_so(how, caplog):
    async with TestEnvironment(workflows=[EndsEarly]) as env:
        env.mock_activity(work, returns=7, delay=10)
        handle = await env.spawn(EndsEarly, how)
        update = await handle.start_update(EndsEarly.slow)
        if how == "cancelled":
            await env.sleep(2)
            await handle.cancel()
        if how == "waits":
            assert await update.result() == 7
        else:
            with pytest.raises((UpdateCutError, WorkflowClosedError)):
                await update.result()
            assert "handlers were running" in caplog.text
        if how == "fails":
            with pytest.raises(WorkflowFailedError):
                await handle.result()
        elif how == "cancelled":
            with pytest.raises(WorkflowCancelledError):
                await handle.result()
        else:
            assert await handle.result() in ("waits", "returns")


async def test_d10_one_request_counts_once_and_two_count_twice_also_over_a_restart():
    async with TestEnvironment(workflows=[Counter]) as env:
        handle = await env.spawn(Counter, 0, 3, id="dedupe")
        await handle.signal(Counter.add, 1, request_id="a")
        await handle.signal(Counter.add, 1, request_id="a")
        await env.restart()
        await handle.signal(Counter.add, 1, request_id="a")
        await handle.signal(Counter.add, 1, request_id="b")
        await handle.signal(Counter.add, 1)
        assert await handle.result() == [1, 1, 1]
