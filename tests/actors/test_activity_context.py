"""What an attempt knows: of itself, of the attempt before, and that the runtime is being left (F04)."""

import asyncio
import logging
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from support.clock import ManualClock
from support.codecs import InThreads
from support.hosting import hosted, until

from everact import RetryPolicy, activity, workflow
from everact.journal.memory_store import MemoryJournal

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
async def test_info_has_everything(colour, codecs):
    clock = ManualClock()
    seen = []

    def look():
        seen.append(activity.info())
        if len(seen) == 1:
            activity.heartbeat("a", 1)
            raise OSError("down")

    async def looks() -> None:
        look()

    def looks_in_thread() -> None:
        look()

    options = {"start_to_close_timeout": 20, "retry_policy": QUICK}
    fn = activity.defn(name="looks", **options)(looks if colour == "async" else looks_in_thread)
    W = caller(fn)
    async with hosted(MemoryJournal(), W, activities=[fn], clock=clock, codecs=codecs) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        await until(lambda: runtime._shard.timers._heap)
        clock.advance(5)
        runtime._shard.timers.check()
        await handle.result()
    first, second = seen
    now = datetime.fromtimestamp(clock.wall() / 1e6, UTC)
    assert (second.workflow_id, second.run_id, second.workflow_type) == ("a", handle.run_id, "Caller")
    assert (second.activity_type, second.command, first.attempt, second.attempt) == ("looks", 1, 1, 2)
    assert second.idempotency_key == first.idempotency_key == f"{handle.run_id}/1"
    assert first.task_token != second.task_token
    assert (first.scheduled_at, first.started_at) == (now - timedelta(seconds=5),) * 2
    assert (second.scheduled_at, second.started_at) == (first.scheduled_at, now)
    assert second.deadline == now + timedelta(seconds=20)
    assert (second.schedule_to_close_deadline, second.heartbeat_timeout) == (None, None)
    assert (first.heartbeat_details, second.heartbeat_details) == ((), ("a", 1))
    assert (first.last_failure, second.last_failure) == (None, "OSError: down")


async def test_log_records_carry_the_attempt(caplog):
    @activity.defn
    async def speaks() -> None:
        activity.logger.info("hello", extra={"mine": 1})

    W = caller(speaks)
    with caplog.at_level(logging.INFO, "everact.activity"):
        async with hosted(MemoryJournal(), W, activities=[speaks]) as runtime:
            await runtime.execute(W.run, id="a")
    (record,) = [r for r in caplog.records if r.name == "everact.activity"]
    assert (record.workflow_id, record.activity_type, record.attempt, record.mine) == ("a", "speaks", 1, 1)


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_an_activity_is_told_early_that_the_runtime_is_left_and_may_finish(colour):
    """F04"""
    begun = threading.Event()
    seen = []

    async def works() -> str:
        seen.append(activity.is_shutting_down())
        begun.set()
        await activity.wait_for_shutdown()
        seen.append((activity.is_shutting_down(), activity.is_cancelled()))
        return "finished early"

    def works_in_thread() -> str:
        seen.append(activity.is_shutting_down())
        begun.set()
        assert activity.wait_for_shutdown_sync(20)
        seen.append((activity.is_shutting_down(), activity.is_cancelled()))
        return "finished early"

    fn = activity.defn(name="works")(works if colour == "async" else works_in_thread)
    W = caller(fn)
    journal = MemoryJournal()
    async with hosted(journal, W, activities=[fn], grace=20) as runtime:
        await runtime.spawn(W.run, id="a")
        await until(begun.is_set)
    assert seen == [False, (True, False)]
    async with hosted(journal, W, activities=[fn]) as runtime:
        assert await runtime.ref("a", W).result() == "finished early"
    assert len(seen) == 2


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_a_cut_attempt_saves_what_it_has_and_does_not_use_up_an_attempt(colour):
    """F04: one attempt is allowed, and the work is not lost."""
    begun = threading.Event()

    async def works() -> object:
        if activity.info().heartbeat_details:
            return [activity.info().attempt, *activity.info().heartbeat_details]
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            activity.heartbeat("saved", activity.is_shutting_down())
            raise

    def works_in_thread() -> object:
        if activity.info().heartbeat_details:
            return [activity.info().attempt, *activity.info().heartbeat_details]
        begun.set()
        try:
            while True:
                time.sleep(0.001)
        except asyncio.CancelledError:
            activity.heartbeat("saved", activity.is_shutting_down())
            raise

    once = RetryPolicy(maximum_attempts=1)
    fn = activity.defn(name="works", retry_policy=once)(works if colour == "async" else works_in_thread)
    W = caller(fn)
    journal = MemoryJournal()
    async with hosted(journal, W, activities=[fn]) as runtime:
        await runtime.spawn(W.run, id="a")
        await until(begun.is_set)
    async with hosted(journal, W, activities=[fn]) as runtime:
        assert await runtime.ref("a", W).result() == [1, "saved", True]


async def test_waits_in_threads_have_limits():
    @activity.defn
    def waits() -> list[bool]:
        return [activity.wait_for_cancelled_sync(0), activity.wait_for_shutdown_sync(timedelta(0))]

    @activity.defn
    def wrong() -> str:
        try:
            activity.wait_for_cancelled_sync(-1)
        except ValueError as error:
            return str(error)
        return ""

    W, Wrong = caller(waits), caller(wrong)
    async with hosted(MemoryJournal(), W, activities=[waits, wrong]) as runtime:
        assert await runtime.execute(W.run) == [False, False]
    async with hosted(MemoryJournal(), Wrong, activities=[wrong]) as runtime:
        assert "timeout must be between 0 and 100 years" in await runtime.execute(Wrong.run)


async def test_slots_are_visible(caplog):
    """F08: so many run, so many wait, and threads that never ended have names."""
    clock = ManualClock()
    begun, release = [], threading.Event()

    @activity.defn(start_to_close_timeout=30, retry_policy=RetryPolicy(maximum_attempts=1))
    def stuck() -> None:
        begun.append(1)
        with activity.shield_thread_cancel_exception():
            release.wait(20)

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            calls = [workflow.execute_activity(stuck) for _ in range(3)]
            await asyncio.gather(*calls, return_exceptions=True)

    async with hosted(MemoryJournal(), W, activities=[stuck], clock=clock, max_activity_threads=2) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: len(begun) == 2)
        assert runtime.activity_slots() == (0, 0, 2, 1, (), (), ())
        await until(lambda: len(runtime._shard.dispatcher.pool.deadlines._queues.get(30_000_000, ())) == 2)
        clock.advance(31)
        runtime._shard.dispatcher.pool.deadlines.check()
        await until(lambda: len(begun) == 3)
        slots = runtime.activity_slots()
        assert slots[:4] == (0, 0, 1, 0)
        assert [name.startswith("everact-activity-") for name in slots.lost_threads] == [True, True]
        release.set()
        await handle.result()
        await until(lambda: runtime.activity_slots().lost_threads == ())
