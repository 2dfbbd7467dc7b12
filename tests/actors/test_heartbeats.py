"""What heartbeats say: kept for the next attempt, in the journal with what became of the one that said it."""

import asyncio
import threading
from datetime import timedelta

import pytest
from support.clock import ManualClock
from support.codecs import InThreads
from support.hosting import hosted, kinds, settled, tick, until

from everact import RetryPolicy, activity, workflow
from everact.actors.heartbeats import NOTE_INTERVAL
from everact.exceptions import NotInActivityError, PayloadEncodeError, PayloadTooLargeError
from everact.journal.memory_store import MemoryJournal
from everact.journal.payload_limits import PayloadLimits

QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=1), jitter=0)


def caller(fn, *args, **options):
    @workflow.defn(name="Caller")
    class Caller:
        @workflow.run
        async def run(self) -> object:
            return await workflow.execute_activity(fn, *args, **options)

    return Caller


@pytest.mark.parametrize("codecs", [(), (InThreads(),)], ids=["plain", "coded"])
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_the_next_attempt_finds_what_the_last_one_said(colour, codecs):
    def go_on():
        info = activity.info()
        place = activity.heartbeat_details(int) or 0
        if info.attempt < 4:
            activity.heartbeat(place + 10, {"attempt": info.attempt})
            activity.heartbeat()  # says nothing new
            raise OSError("down")
        return [place, *info.heartbeat_details, info.last_failure]

    @activity.defn(name="climb", retry_policy=QUICK)
    async def climb() -> list[object]:
        return go_on()

    @activity.defn(name="climb", retry_policy=QUICK)
    def climb_in_thread() -> list[object]:
        return go_on()

    fn = climb if colour == "async" else climb_in_thread
    W = caller(fn)
    async with hosted(MemoryJournal(), W, activities=[fn], codecs=codecs) as runtime:
        assert await runtime.execute(W.run) == [30, 30, {"attempt": 3}, "OSError: down"]


async def test_an_attempt_that_says_nothing_hands_on_what_it_found():
    @activity.defn(retry_policy=QUICK)
    async def climb() -> object:
        if activity.info().attempt == 1:
            activity.heartbeat("camp 1")
        if activity.info().attempt < 4:
            raise OSError("down")
        return activity.info().heartbeat_details

    W = caller(climb)
    async with hosted(MemoryJournal(), W, activities=[climb]) as runtime:
        handle = await runtime.spawn(W.run)
        assert await handle.result() == ("camp 1",)
        history = await handle.fetch_history()
    said = [len(e.event.details) for e in history if e.kind == "AttemptFailed"]
    assert said == [1, 0, 0], "it is written once"


@pytest.mark.parametrize("codecs", [(), (InThreads(),)], ids=["plain", "coded"])
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_what_a_cut_attempt_says_when_it_is_told_to_stop_is_kept(colour, codecs):
    """F04: a checkpoint that is saved on the way out."""
    begun = threading.Event()

    @activity.defn(name="climb")
    async def climb() -> object:
        if found := activity.info().heartbeat_details:
            return [*found, activity.info().attempt]
        activity.heartbeat("started")
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            activity.heartbeat("saved on the way out")

    @activity.defn(name="climb")
    def climb_in_thread() -> object:
        if found := activity.info().heartbeat_details:
            return [*found, activity.info().attempt]
        activity.heartbeat("started")
        begun.set()
        try:
            while True:
                threading.Event().wait(0.001)
        finally:
            activity.heartbeat("saved on the way out")

    fn = climb if colour == "async" else climb_in_thread
    W = caller(fn)
    journal = MemoryJournal()
    # The codecs, too, have the grace time only.
    async with hosted(journal, W, activities=[fn], codecs=codecs, grace=0.1) as runtime:
        await runtime.spawn(W.run, id="a")
        await until(begun.is_set)
    async with hosted(journal, W, activities=[fn], codecs=codecs) as runtime:
        assert await runtime.ref("a", W).result() == ["saved on the way out", 1]


async def test_the_journal_hears_of_many_heartbeats_now_and_then_only():
    clock = ManualClock()
    go, beats = asyncio.Event(), []

    @activity.defn
    async def climb() -> None:
        while len(beats) < 100:
            await go.wait()
            beats.append(1)
            activity.heartbeat(len(beats))
            if len(beats) % 20 == 0:
                go.clear()

    W = caller(climb)
    journal = MemoryJournal()
    async with hosted(journal, W, activities=[climb], clock=clock) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        noted = []
        for rounds in range(4):
            go.set()
            await until(lambda rounds=rounds: len(beats) == 20 * (rounds + 1))
            await settled(runtime)
            history = await handle.fetch_history()
            noted.append([e.event.details[0].data for e in history if e.kind == "AttemptNoted"])
            clock.advance(NOTE_INTERVAL * 0.6)
        assert noted == [[b"20"], [b"20"], [b"20", b"60"], [b"20", b"60"]]
        (pending,) = runtime._shard.find("a").state.activities.values()
        assert pending.details[0].data == b"60"
        assert pending.has_begun


async def test_a_full_journal_hears_of_heartbeats_when_there_is_room():
    """R22: the headroom is for what ends something."""
    clock = ManualClock()
    go, said = asyncio.Event(), []

    @activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
    async def climb() -> None:
        while True:
            await go.wait()
            go.clear()
            said.append(len(said))
            activity.heartbeat(said[-1])

    W = caller(climb)
    async with hosted(MemoryJournal(), W, activities=[climb], clock=clock) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        for full in (True, False):
            runtime._shard.intake.full = object() if full else None
            count = len(said)
            go.set()
            await until(lambda count=count: len(said) == count + 1)
            await settled(runtime)
            clock.advance(NOTE_INTERVAL + 1)
        noted = [e.event.details[0].data for e in await handle.fetch_history() if e.kind == "AttemptNoted"]
        assert noted == [b"1"]


async def test_a_heartbeat_is_no_turn_of_the_code_and_replays():
    over = asyncio.Event()

    @activity.defn
    async def climb() -> str:
        activity.heartbeat("half")
        await over.wait()
        return "top"

    W = caller(climb)
    journal = MemoryJournal()
    async with hosted(journal, W, activities=[climb]) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        await until(lambda: runtime._shard.find("a").state.activities[1].details)
        await settled(runtime)
        over.set()
        assert await handle.result() == "top"
        assert kinds(await handle.fetch_history()) == [
            "WorkflowStarted",
            "ActivityScheduled",
            "AttemptNoted",
            "ActivityCompleted",
            "WorkflowCompleted",
        ]


async def test_details_that_cannot_be_stored_are_an_error_of_the_call():
    seen = []

    @activity.defn
    async def climb() -> None:
        for wrong in (object(), b"x" * 2000):
            try:
                activity.heartbeat(1, wrong)
            except Exception as error:
                seen.append(error)

    W = caller(climb)
    limits = PayloadLimits(payload=1000, record=5000, warning=500)
    async with hosted(MemoryJournal(), W, activities=[climb], payload_limits=limits) as runtime:
        await runtime.execute(W.run)
    assert [type(error) for error in seen] == [PayloadEncodeError, PayloadTooLargeError]
    assert "heartbeat detail 2" in str(seen[0])
    assert "heartbeat detail 2 of activity climb" in str(seen[1])


def test_heartbeats_belong_into_activities():
    for call in (
        activity.heartbeat,
        activity.is_cancelled,
        activity.is_shutting_down,
        activity.raise_complete_async,
    ):
        with pytest.raises(NotInActivityError, match=call.__name__):
            call()
    with pytest.raises(NotInActivityError, match="heartbeat_details"):
        activity.heartbeat_details(int)


async def test_snapshots_hold_what_heartbeats_have_said():
    """Behind the log's compaction, and a restart."""
    clock = ManualClock()
    calls = []

    @activity.defn(retry_policy=RetryPolicy(initial_interval=60, jitter=0))
    async def climb() -> object:
        calls.append(activity.info().heartbeat_details)
        if len(calls) == 1:
            activity.heartbeat("x" * 100)
            raise OSError("down")
        return len(calls[1][0])

    W = caller(climb)
    journal = MemoryJournal()

    @workflow.defn
    class Other:
        @workflow.run
        async def run(self) -> None:
            pass

    async with hosted(journal, W, Other, activities=[climb], clock=clock) as runtime:
        await runtime.spawn(W.run, id="a")
        await until(lambda: calls and runtime._shard.find("a").state.activities[1].attempt == 2)
        for _ in range(20):  # push it out of the log
            await runtime.execute(Other.run)
    async with hosted(journal, W, Other, activities=[climb], clock=clock) as runtime:
        await settled(runtime)
        await tick(runtime, clock, 61)
        assert await runtime.ref("a", W).result() == 100
