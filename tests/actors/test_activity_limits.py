"""The limits of an activity beyond that of one attempt: waiting for a slot, all attempts together, heartbeats."""

import asyncio
import threading
from datetime import timedelta

import pytest
from support.clock import SECOND, ManualClock
from support.hosting import gate, hosted, kinds, settled, tick, until

from everact import ActivityError, RetryPolicy, activity, workflow
from everact.exceptions import ActivityTimeoutError, WorkflowFailedError
from everact.journal.memory_store import MemoryJournal

QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=1), jitter=0)
ONCE = RetryPolicy(maximum_attempts=1)


def caller(fn, *args, **options):
    @workflow.defn(name="Caller")
    class Caller:
        @workflow.run
        async def run(self) -> object:
            return await workflow.execute_activity(fn, *args, **options)

    return Caller


async def failure_of(handle):
    with pytest.raises(WorkflowFailedError) as caught:
        await handle.result()
    error = caught.value.__cause__
    assert isinstance(error, ActivityError)
    return error


def check_timeout(error, option, *said):
    cause = error.__cause__
    assert isinstance(cause, ActivityTimeoutError) and isinstance(cause, TimeoutError)
    assert cause.option == option
    for text in (option, *said):
        assert text in str(cause)


# --- waiting for a slot -------------------------------------------------------------------------------------------


async def test_who_waits_too_long_for_a_slot_fails_and_is_not_repeated():
    clock = ManualClock()
    first, second = gate("first"), gate("second")

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            self.task = asyncio.create_task(first.fn("a"))
            await workflow.execute_activity(second.fn, "b", schedule_to_start_timeout=5)

    options = {"clock": clock, "max_concurrent_activities": 1}
    async with hosted(MemoryJournal(), W, activities=[first.fn, second.fn], **options) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: first.calls)
        await tick(runtime, clock, 4.9)
        assert (await handle.describe()).status == "running"
        await tick(runtime, clock, 0.2)
        error = await failure_of(handle)
    check_timeout(error, "schedule_to_start_timeout", "=5 s", "'second'", "max_concurrent_activities")
    assert (error.attempt, error.retry_state) == (1, "schedule_to_start_timeout reached")
    assert second.calls == []


async def test_the_wait_for_a_slot_is_not_the_time_of_the_attempt_and_the_other_way_round():
    """F08: start-to-close begins with the slot; the limit of the wait ends with it."""
    clock = ManualClock()
    gated = gate(start_to_close_timeout=10, schedule_to_start_timeout=20, retry_policy=ONCE)

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> list[str]:
            return await asyncio.gather(gated.fn("a"), gated.fn("b"))

    options = {"clock": clock, "max_concurrent_activities": 1}
    async with hosted(MemoryJournal(), W, activities=[gated.fn], **options) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: gated.calls == ["a"])
        await tick(runtime, clock, 9)
        gated.open.set()
        await until(lambda: gated.calls == ["a", "b"])
        assert await handle.result() == ["through", "through"]
        gated.open.clear()
        handle = await runtime.spawn(W.run)
        await until(lambda: len(gated.calls) == 3)
        clock.advance(9)
        runtime._shard.dispatcher.pool.deadlines.check()
        await tick(runtime, clock, 0)
        assert (await handle.describe()).status == "running"
        await handle.terminate()


async def test_the_limit_of_the_wait_goes_on_while_no_runtime_is_there():
    """G03"""
    clock = ManualClock()
    gated = gate()
    W = caller(gated.fn, "a", schedule_to_start_timeout=60)
    journal = MemoryJournal()

    other = gate("other")

    @workflow.defn
    class Blocks:
        @workflow.run
        async def run(self) -> None:
            await other.fn("x")

    options = {"clock": clock, "max_concurrent_activities": 1}
    for _start in range(3):
        async with hosted(journal, W, Blocks, activities=[gated.fn, other.fn], **options) as runtime:
            if _start == 0:
                await runtime.spawn(Blocks.run)
                await until(lambda: other.calls)
                await runtime.spawn(W.run, id="a")
            await settled(runtime)
            await tick(runtime, clock, 20.1)
            if _start == 2:
                error = await failure_of(runtime.ref("a", W))
    check_timeout(error, "schedule_to_start_timeout", "=60 s")
    assert gated.calls == []


async def test_a_wait_that_ended_with_a_slot_does_not_end_again_after_the_runtime_was_left():
    """F04: a cut attempt had begun, so its wait is over."""
    clock = ManualClock()
    gated = gate()
    W = caller(gated.fn, "a", schedule_to_start_timeout=60)
    journal = MemoryJournal()
    async with hosted(journal, W, activities=[gated.fn], clock=clock) as runtime:
        await runtime.spawn(W.run, id="a")
        await until(lambda: gated.calls)
    clock.advance(3600)
    gated.open.set()
    async with hosted(journal, W, activities=[gated.fn], clock=clock) as runtime:
        assert await runtime.ref("a", W).result() == "through"
    assert gated.calls == ["a", "a"]


async def test_an_activity_that_nobody_has_registered_runs_into_its_limits():
    clock = ManualClock()
    gated = gate()
    W = caller(gated.fn, "a", schedule_to_start_timeout=60)
    journal = MemoryJournal()
    async with hosted(journal, W, activities=[gated.fn], clock=clock) as runtime:
        runtime._shard.dispatcher.pool.accept_no_more()
        await runtime.spawn(W.run, id="a")
    async with hosted(journal, W, clock=clock) as runtime:
        await settled(runtime)
        await tick(runtime, clock, 61)
        # The run, too, cannot go on without it: it keeps what has come of it.
        history = await runtime.ref("a", W).fetch_history()
    (failed,) = [e.event for e in history if e.kind == "ActivityFailed"]
    assert "schedule_to_start_timeout=60 s" in failed.failure.message
    assert "no runtime with this activity" in failed.failure.message


# --- all attempts together ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_the_whole_may_not_take_longer_than_its_limit(colour):
    clock = ManualClock()
    begun = threading.Event()
    release = threading.Event()

    @activity.defn(name="slow")
    async def slow() -> None:
        begun.set()
        await asyncio.Event().wait()

    @activity.defn(name="slow")
    def slow_thread() -> None:
        begun.set()
        release.wait(20)

    fn = slow if colour == "async" else slow_thread
    W = caller(fn, schedule_to_close_timeout=30)
    async with hosted(MemoryJournal(), W, activities=[fn], clock=clock) as runtime:
        handle = await runtime.spawn(W.run)
        await until(begun.is_set)
        await tick(runtime, clock, 29)
        assert (await handle.describe()).status == "running"
        await tick(runtime, clock, 2)
        error = await failure_of(handle)
        release.set()
    check_timeout(error, "schedule_to_close_timeout", "=30 s", "attempt 1 of activity 'slow'")
    assert error.retry_state == "schedule_to_close_timeout reached"


async def test_no_attempt_is_waited_for_that_would_begin_behind_the_limit_of_the_whole():
    clock = ManualClock()
    calls = []

    @activity.defn(retry_policy=RetryPolicy(initial_interval=10, jitter=0))
    async def fails() -> None:
        calls.append(activity.info().attempt)
        raise OSError("down")

    W = caller(fails, schedule_to_close_timeout=25)
    async with hosted(MemoryJournal(), W, activities=[fails], clock=clock) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: runtime._shard.timers._heap and calls)
        await settled(runtime)
        await tick(runtime, clock, 10)
        await until(lambda: calls == [1, 2])
        error = await failure_of(handle)
    assert error.retry_state == "schedule_to_close_timeout=25 s leaves no time for another attempt"
    assert isinstance(error.__cause__, Exception) and "down" in str(error.__cause__)


async def test_the_limit_of_the_whole_survives_restarts_and_ends_a_wait_between_attempts():
    """G03"""
    clock = ManualClock()

    @activity.defn(retry_policy=RetryPolicy(initial_interval=58, jitter=0))
    async def fails() -> None:
        raise OSError("down")

    W = caller(fails, schedule_to_close_timeout=60)
    journal = MemoryJournal()
    async with hosted(journal, W, activities=[fails], clock=clock) as runtime:
        await runtime.spawn(W.run, id="a")
        await until(lambda: runtime._shard.find("a").state.activities[1].attempt == 2)
        await settled(runtime)
    for _start in range(2):
        async with hosted(journal, W, activities=[fails], clock=clock) as runtime:
            await settled(runtime)
            await tick(runtime, clock, 25)
            handle = runtime.ref("a", W)
            assert (await handle.describe()).status == "running"
    async with hosted(journal, W, activities=[fails], clock=clock) as runtime:
        await settled(runtime)
        await tick(runtime, clock, 11)
        error = await failure_of(runtime.ref("a", W))
    check_timeout(error, "schedule_to_close_timeout", "attempt 2")
    assert "OSError" in str(error.__cause__.__cause__), "the last attempt's error is its cause"


async def test_a_time_out_of_an_attempt_is_repeated_and_one_of_the_whole_is_not():
    calls = []

    @activity.defn(start_to_close_timeout=0.02, retry_policy=QUICK, schedule_to_close_timeout=30)
    async def slow() -> str:
        calls.append(activity.info().last_failure)
        if len(calls) < 3:
            await asyncio.Event().wait()
        return "ok"

    W = caller(slow)
    async with hosted(MemoryJournal(), W, activities=[slow]) as runtime:
        assert await runtime.execute(W.run) == "ok"
    assert calls[0] is None
    assert "start_to_close_timeout=0.02 s: raise that option" in calls[1]


async def test_limits_that_are_over_leave_no_timers_behind(keeps_code):
    clock = ManualClock()

    @activity.defn(schedule_to_start_timeout=60, schedule_to_close_timeout=86_400, heartbeat_timeout=3600)
    async def quick() -> None:
        pass

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            for _ in range(1500):
                await quick()

    async with hosted(MemoryJournal(), W, activities=[quick], clock=clock) as runtime:
        await runtime.execute(W.run)
        assert len(runtime._shard.timers._heap) < 2500
        assert len(runtime._shard.dispatcher.pool.heartbeats._heap) < 1100


@pytest.mark.parametrize(
    "option", ["schedule_to_start_timeout", "schedule_to_close_timeout", "heartbeat_timeout"]
)
def test_limits_are_checked_where_they_are_given(option):
    for wrong, error in ((0, ValueError), (-1, ValueError), ("5", TypeError), (True, TypeError)):
        with pytest.raises(error, match=option):
            activity.defn(**{option: wrong})(lambda_of())
    activity.defn(**{option: None})(lambda_of())


def lambda_of():
    async def fn() -> None:
        pass

    return fn


async def test_a_call_may_take_a_declared_limit_back():
    clock = ManualClock()
    gated = gate(schedule_to_close_timeout=5, heartbeat_timeout=5)
    W = caller(gated.fn, "a", schedule_to_close_timeout=None, heartbeat_timeout=None)
    async with hosted(MemoryJournal(), W, activities=[gated.fn], clock=clock) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: gated.calls)
        scheduled = next(e.event for e in await handle.fetch_history() if e.kind == "ActivityScheduled")
        assert scheduled.limits is None
        gated.open.set()
        await handle.result()


# --- heartbeats ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_an_attempt_whose_heartbeats_stay_away_is_given_up_and_repeated(colour):
    """F05, F06"""
    clock = ManualClock()
    begun = threading.Event()
    ended = []
    release = threading.Event()

    @activity.defn(name="slow", heartbeat_timeout=3, retry_policy=QUICK)
    async def slow() -> str:
        if activity.info().attempt > 1:
            return activity.info().last_failure or ""
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "LATE"

    @activity.defn(name="slow", heartbeat_timeout=3, retry_policy=QUICK)
    def slow_thread() -> str:
        if activity.info().attempt > 1:
            return activity.info().last_failure or ""
        begun.set()
        try:
            while not release.wait(0.001):
                pass
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "LATE"

    fn = slow if colour == "async" else slow_thread
    W = caller(fn)
    async with hosted(MemoryJournal(), W, activities=[fn], clock=clock) as runtime:
        handle = await runtime.spawn(W.run)
        await until(begun.is_set)
        pool = runtime._shard.dispatcher.pool
        await until(lambda: pool.heartbeats._heap)
        clock.advance(2.9)
        pool.heartbeats.check()
        assert not ended
        clock.advance(0.2)
        pool.heartbeats.check()
        await until(lambda: runtime._shard.timers._heap)
        await tick(runtime, clock, 1)
        result = await handle.result()
        await until(lambda: ended)
        history = await handle.fetch_history()
    assert "sent no heartbeat within heartbeat_timeout=3 s: call activity.heartbeat() more often" in result
    assert kinds(history).count("AttemptFailed") == 1


async def test_heartbeats_keep_an_attempt_alive():
    clock = ManualClock()
    beat = asyncio.Event()
    beats = []

    @activity.defn(heartbeat_timeout=3, retry_policy=ONCE)
    async def works() -> str:
        for n in range(4):
            await beat.wait()
            beat.clear()
            activity.heartbeat()
            beats.append(n)
        return "done"

    W = caller(works)
    async with hosted(MemoryJournal(), W, activities=[works], clock=clock) as runtime:
        handle = await runtime.spawn(W.run)
        watch = runtime._shard.dispatcher.pool.heartbeats
        await until(lambda: watch._heap)
        for n in range(4):
            clock.advance(2)
            watch.check()
            beat.set()
            await until(lambda n=n: len(beats) == n + 1)
        assert await handle.result() == "done"
        history = await handle.fetch_history()
    assert "AttemptNoted" not in kinds(history), "a heartbeat without details costs the journal nothing"


@pytest.mark.parametrize("late", [3.5, 0.1])
async def test_a_loop_that_stood_still_is_no_silence_of_those_that_run_on_it(late):
    """F08, R19: nobody could send a heartbeat; a thread could. How long it stood, a timer near the end cannot tell."""
    clock = ManualClock()
    gated = gate(heartbeat_timeout=3, retry_policy=ONCE)
    W = caller(gated.fn, "a")
    async with hosted(MemoryJournal(), W, activities=[gated.fn], clock=clock) as runtime:
        handle = await runtime.spawn(W.run)
        watch = runtime._shard.dispatcher.pool.heartbeats
        await until(lambda: watch._heap)
        stalled = watch._timer
        real = runtime._shard.loop.time
        watch._loop = Stalled(runtime._shard.loop, lambda: max(real(), stalled.when()) + late)
        clock.advance(4)
        watch.check()
        watch._loop = runtime._shard.loop
        assert not runtime._shard.find(handle.workflow_id).outcomes
        clock.advance(4)
        watch.check()
        error = await failure_of(handle)
    check_timeout(error, "heartbeat_timeout")


class Stalled:
    def __init__(self, loop, time):
        self._loop = loop
        self.time = time

    def __getattr__(self, name):
        return getattr(self._loop, name)


async def test_deadlines_of_the_history_are_those_of_the_call():
    clock = ManualClock()
    gated = gate(schedule_to_start_timeout=7, schedule_to_close_timeout=90, heartbeat_timeout=3)
    seen = []

    @activity.defn(schedule_to_close_timeout=90, heartbeat_timeout=3, start_to_close_timeout=20)
    async def looks() -> None:
        seen.append(activity.info())

    W = caller(looks)
    async with hosted(MemoryJournal(), W, activities=[looks, gated.fn], clock=clock) as runtime:
        await runtime.execute(W.run)
    (info,) = seen
    assert info.schedule_to_close_deadline - info.scheduled_at == timedelta(seconds=90)
    assert info.deadline - info.started_at == timedelta(seconds=20) == info.start_to_close_timeout
    assert info.heartbeat_timeout == timedelta(seconds=3)
    assert info.started_at >= info.scheduled_at
    assert clock.wall() % SECOND == 0
