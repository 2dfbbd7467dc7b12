"""F10: no run stands between two steps after a crash; what owns a slot without pending work is named and loses it."""

import asyncio
import contextlib
from datetime import timedelta

import pytest
from support.clock import ManualClock
from support.hosting import gate, hosted, settled, until

from everact import RetryPolicy, activity, workflow
from everact.actors.unwanted_attempts import PATIENCE
from everact.journal.fault_points import armed
from everact.journal.memory_store import MemoryJournal

ONCE = RetryPolicy(maximum_attempts=1)
calls: list[str] = []


@activity.defn
async def step(name: str) -> str:
    calls.append(name)
    return name


@workflow.defn
class Steps:
    @workflow.run
    async def run(self, name: str) -> list[str]:
        return [await step(f"{name}{n}") for n in range(6)]


def as_it_is(journal):
    """What a kill at this moment would leave."""
    other = MemoryJournal()
    other.journal_id, other.epoch = journal.journal_id, journal.epoch
    other.state = journal.state.copy()
    other.state.records = dict(journal.state.records)
    return other


async def test_at_every_position_of_the_journal_a_restart_goes_on_and_a_queue_of_one_is_never_blocked():
    left = []
    journal = MemoryJournal()
    async with hosted(journal, Steps, activities=[step], max_concurrent_activities=1) as runtime:
        with armed("journal.commit.after", lambda: left.append(as_it_is(journal))):
            handles = [await runtime.spawn(Steps.run, name, id=name) for name in "ab"]
            await asyncio.gather(*(handle.result() for handle in handles))
    assert len(left) >= 8
    for at in left:
        async with hosted(at, Steps, activities=[step], max_concurrent_activities=1) as runtime:
            for run in await runtime.list_workflows():
                handle = runtime.ref(run.workflow_id, Steps)
                assert await handle.result(timeout=20) == [f"{run.workflow_id}{n}" for n in range(6)]
            assert await runtime.execute(Steps.run, "z") == ["z0", "z1", "z2", "z3", "z4", "z5"]
            assert runtime.activity_slots() == (0, 0, 0, 0, (), (), ())


def stubborn(begun, release, **options):
    @activity.defn(name="stubborn", **options)
    async def fn() -> None:
        begun.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass

    return fn


def user_of(fn, how):
    @workflow.defn(name="User")
    class User:
        @workflow.run
        async def run(self) -> str:
            handle = workflow.start_activity(fn)
            if how == "time limit":
                await asyncio.wait([handle])
                return "late"
            await asyncio.wait([handle], timeout=0.001)
            if how == "cancel":
                handle.cancel()
            await workflow.wait_condition(lambda: how == "end")
            return "over"

    return User


@pytest.mark.usefixtures("keeps_code")
@pytest.mark.parametrize("how", ["time limit", "cancel", "end", "terminate"])
async def test_a_task_that_nobody_waits_for_and_that_swallows_its_cancel_is_named_and_loses_its_slot(
    how, caplog
):
    clock = ManualClock()
    begun, release = asyncio.Event(), asyncio.Event()
    fn = stubborn(begun, release, start_to_close_timeout=timedelta(hours=1), retry_policy=ONCE)
    User = user_of(fn, how)
    quick = gate("quick")
    quick.open.set()

    @workflow.defn
    class Other:
        @workflow.run
        async def run(self) -> str:
            return await workflow.execute_activity(quick.fn, "x")

    options = {"activities": [fn, quick.fn], "clock": clock, "max_concurrent_activities": 1}
    async with (
        hosted(MemoryJournal(), User, Other, **options) as runtime,
        contextlib.AsyncExitStack() as stack,
    ):
        stack.callback(release.set)  # also when the test fails: nothing else ends it
        pool = runtime._shard.dispatcher.pool
        handle = await runtime.spawn(User.run, id="user")
        await begun.wait()
        assert runtime.activity_slots().unwanted == ()
        if how == "terminate":
            await handle.terminate("enough")
        elif how == "time limit":
            clock.advance(3601)
            pool.deadlines.check()
        else:
            clock.advance(1)
            runtime._shard.timers.check()
        await until(lambda: runtime.activity_slots().unwanted)
        name = "activity 'stubborn', attempt 1 of workflow 'user'"
        assert runtime.activity_slots().unwanted == (name,)
        other = await runtime.spawn(Other.run)
        await settled(runtime)
        clock.advance(PATIENCE - 1)
        pool.unwanted.check()
        assert runtime.activity_slots()[:2] == (1, 1), "the other one waits for the slot"
        clock.advance(2)
        pool.unwanted.check()
        assert await other.result() == "through"
        slots = runtime.activity_slots()
        assert slots.lost_tasks == (name,)
        assert slots.unwanted == ()
        text = f"{name} was cancelled 30 s ago and goes on ({__file__}:"
        assert sum(text in record.getMessage() for record in caplog.records) == 1
        release.set()
        await until(lambda: not runtime.activity_slots().lost_tasks)
        assert pool._free_async == 1, "the slot was given back twice"
        assert await runtime.execute(Other.run) == "through"
        if how == "cancel":
            await handle.terminate()


async def test_a_task_that_ends_when_it_is_cancelled_is_never_named(caplog):
    clock = ManualClock()
    begun = asyncio.Event()

    @activity.defn
    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    User = user_of(waits, "cancel")
    async with hosted(MemoryJournal(), User, activities=[waits], clock=clock) as runtime:
        handle = await runtime.spawn(User.run)
        await begun.wait()
        clock.advance(1)
        runtime._shard.timers.check()
        await until(lambda: runtime.activity_slots().running == 0)
        pool = runtime._shard.dispatcher.pool
        clock.advance(PATIENCE + 1)
        pool.unwanted.check()
        assert pool.unwanted._timer is None
        assert runtime.activity_slots() == (0, 0, 0, 0, (), (), ())
        await handle.terminate()
    assert "swallows" not in caplog.text
