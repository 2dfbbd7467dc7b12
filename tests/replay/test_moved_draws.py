"""B04: a draw that the code makes more, or no more, is named when it is why the code decides otherwise."""

import asyncio
import copy
import re
from datetime import timedelta

import pytest
from support.clock import ManualClock
from support.hosting import LIMIT, commands, hosted, kinds, settled

from everact import activity, workflow
from everact.exceptions import WorkflowFailedError, WorkflowHeldError
from everact.journal.memory_store import MemoryJournal


@activity.defn
async def work(what: str) -> str:
    return what


def a_second() -> timedelta:
    """Up to a second, by one draw: ``randint`` makes a varying number of them."""
    return timedelta(microseconds=1 + int(10**6 * workflow.random().random()))


def version(body):
    @workflow.defn(name="W")
    class W:
        def __init__(self) -> None:
            self.over = False

        @workflow.run
        async def run(self) -> None:
            await body()
            await workflow.wait_condition(lambda: self.over)

        @workflow.signal
        def end(self) -> None:
            self.over = True

    return W


async def base():
    await work(str(workflow.uuid4()))
    workflow.random("sizes").random()
    await workflow.sleep(a_second())


async def one_more_before():
    await work(str(workflow.uuid4()))
    jitter = workflow.random().uniform(0, 1)  # changed
    workflow.random("sizes").random()
    await workflow.sleep(a_second())
    return jitter


async def one_more_in_an_earlier_turn():
    jitter = workflow.random().uniform(0, 1)  # changed
    await work(str(workflow.uuid4()))
    workflow.random("sizes").random()
    await workflow.sleep(a_second())
    return jitter


async def a_stream_of_its_own():
    await work(str(workflow.uuid4()))
    workflow.random("jitter").uniform(0, 1)  # changed
    workflow.random("sizes").random()
    await workflow.sleep(a_second())


async def one_more_id():
    workflow.uuid4()  # changed
    await work(str(workflow.uuid4()))
    workflow.random("sizes").random()
    await workflow.sleep(a_second())


async def another_duration():
    await work(str(workflow.uuid4()))
    workflow.random("sizes").random()
    await workflow.sleep(10 * a_second())  # changed


async def outcome(old, new):
    """What a restart under new code makes of a run that sleeps under old code."""
    journal = MemoryJournal()
    clock = ManualClock()
    async with hosted(journal, version(old), activities=[work], clock=clock) as runtime:
        handle = await runtime.spawn("W", id="w")
        async with asyncio.timeout(LIMIT):
            # The activity is over at once, but not in a given number of rounds of the loop.
            while "TimerStarted" not in kinds(await handle.fetch_history()):
                await settled(runtime)
    clock.advance(10)
    async with hosted(journal, version(new), activities=[work], clock=clock) as runtime:
        handle = runtime.ref("w")
        try:
            await handle.signal("end")
            await handle.result()
        except WorkflowHeldError as error:
            return str(error)
    return "completed"


CHANGES = {
    one_more_before: (
        r"Random draws have moved: the journal has draw 1 of workflow.random\(\) before command 2, the code made "
        r"draws 1 to 2 of workflow.random\(\) before command 2 \(.*test_moved_draws.py:53, .*test_moved_draws.py:24\)"
    ),
    one_more_in_an_earlier_turn: (
        r"the journal has no further draw in this turn, the code made draw 1 of workflow.random\(\) before "
        r"command 1 \(.*test_moved_draws.py:60\)"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_the_message_says_which_draw_moved(change):
    text = await outcome(base, change)
    assert "a timer of" in text
    assert re.search(CHANGES[change], text), text


@pytest.mark.parametrize("change", [a_stream_of_its_own, one_more_id])
async def test_a_draw_that_shifts_no_command_is_no_mismatch(change):
    """Named streams are independent, and ids that only travel in arguments are not compared."""
    assert await outcome(base, change) == "completed"


@pytest.mark.parametrize("change", [another_duration])
async def test_a_change_that_no_draw_has_caused_speaks_of_none(change):
    text = await outcome(base, change)
    assert "replay differs" in text
    assert "Random draws" not in text


async def test_what_a_turn_has_drawn_is_in_its_history_before_the_outcome():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            workflow.uuid4()
            workflow.random("a").shuffle(list(range(4)))
            await workflow.sleep(0.001)
            workflow.random().random()

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        await handle.result()
        history = await handle.fetch_history()
    assert kinds(history) == [
        "WorkflowStarted",
        "TimerStarted",
        "RandomDrawn",
        "TimerFired",
        "RandomDrawn",
        "WorkflowCompleted",
    ]
    first, second = (e.event.draws for e in history if e.kind == "RandomDrawn")
    assert first[0] == ("uuid4", 1, 1)
    assert first[1][:2] == ("random/a", 1)
    assert first[1][2] >= 3
    assert second == (("random/", 2, 1),)


async def test_a_query_cannot_draw_from_a_stream_that_run_has_kept_and_a_copy_is_free():
    """Its draws would shift those of the run, and no replay would repeat them."""

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> list[float]:
            self.stream = workflow.random("kept")
            await workflow.sleep(3600)
            return []

        @workflow.query
        def draw(self) -> float:
            return self.stream.random()

        @workflow.query
        def draw_from_a_copy(self) -> float:
            return copy.deepcopy(self.stream).random()

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        with pytest.raises(Exception, match="a draw from a random stream of the run"):
            await handle.query(W.draw)
        assert await handle.query(W.draw_from_a_copy) == await handle.query(W.draw_from_a_copy)


async def test_a_commands_default_ids_come_from_its_number_and_no_stream():
    """Many draws before it change nothing about an activity's identity or idempotency key."""
    seen = []

    @activity.defn
    async def keyed() -> None:
        seen.append(activity.info().idempotency_key)

    def body(draws):
        @workflow.defn(name="W")
        class W:
            @workflow.run
            async def run(self) -> None:
                for _ in range(draws):
                    workflow.uuid4()
                await asyncio.gather(keyed(), keyed())

        return W

    for draws in (0, 5):
        async with hosted(MemoryJournal(), body(draws), activities=[keyed]) as runtime:
            handle = await runtime.spawn("W", id="same")
            await handle.result()
            numbers = [number for number, _ in commands(await handle.fetch_history())]
            run_id = (await handle.describe()).run_id
            assert numbers == [1, 2]
            assert len(seen) == 2
            assert all(run_id in key for key in seen)
            seen.clear()


async def test_a_draw_after_the_run_has_left_memory_is_refused_quietly():
    """A finally block that draws while its run is dropped: nothing of it reaches a history."""

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            stream = workflow.random()
            try:
                await workflow.sleep(0.05)
            finally:
                stream.random()

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        try:
            await handle.result()
        except WorkflowFailedError as error:  # pragma: no cover
            raise AssertionError from error
        drawn = [e.event.draws for e in await handle.fetch_history() if e.kind == "RandomDrawn"]
    assert drawn == [(("random/", 2, 1),)]
