"""R10: a cancel request is seen once, at an await, and leaves nothing behind."""

import asyncio
import random
from datetime import timedelta

import pytest
from support.clock import ManualClock
from support.hosting import commands, gate, hosted, kinds, loaded, settled, until

from everact import ApplicationError, RetryPolicy, activity, workflow
from everact.exceptions import (
    WorkflowCancelledError,
    WorkflowClosedError,
    WorkflowHeldError,
    WorkflowQuarantinedError,
    WorkflowTerminatedError,
)
from everact.journal.memory_store import MemoryJournal


async def cancelled(handle):
    with pytest.raises(WorkflowCancelledError) as caught:
        await handle.result(timeout=10)
    return caught.value


async def test_the_request_is_thrown_at_the_await_where_main_stands():
    seen = []

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            try:
                await workflow.wait_condition(lambda: False)
            except asyncio.CancelledError:
                seen.append(workflow.cancellation_requested())
                raise

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        await handle.cancel("enough")
        error = await cancelled(handle)
        assert "enough" in str(error)
        assert (await handle.describe()).status == "cancelled"
    assert seen == [True]


@pytest.mark.parametrize("reason", ["", "too late"])
async def test_reasons_are_visible_while_it_cleans_up_and_afterwards(reason):
    """Of the first request; of a terminate; over a restart, and where nobody has given one."""
    cleanup = gate("cleanup")

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            try:
                await workflow.sleep(3600)
            finally:
                await workflow.execute_activity(cleanup.fn, "tidy")

    journal = MemoryJournal()
    async with hosted(journal, W, activities=[cleanup.fn]) as runtime:
        for name in ("cancelled", "terminated"):
            handle = await runtime.spawn(W.run, id=name)
            seen = await handle.describe()
            assert (seen.cancel_requested, seen.cancel_reason, seen.terminate_reason) == (False, None, None)
            await handle.cancel(reason)
            await handle.cancel("another one")
    async with hosted(journal, W, activities=[cleanup.fn]) as runtime:
        handle = runtime.ref("cancelled", W)
        seen = await handle.describe()
        assert (seen.status, seen.cancel_requested, seen.cancel_reason) == ("running", True, reason)
        await runtime.ref("terminated").terminate(reason)
        seen = await runtime.ref("terminated").describe()
        assert (seen.status, seen.cancel_reason, seen.terminate_reason) == ("terminated", reason, reason)
        cleanup.open.set()
        error = await cancelled(handle)
        assert reason in str(error)
        seen = await handle.describe()
        assert (seen.status, seen.cancel_reason, seen.terminate_reason) == ("cancelled", reason, None)


async def test_finally_may_await_activities_and_a_second_request_does_not_disturb_it():
    cleanup = gate("cleanup")
    thrown = []

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            try:
                await workflow.sleep(3600)
            finally:
                try:
                    await workflow.execute_activity(cleanup.fn, "tidy")
                except asyncio.CancelledError:
                    thrown.append("again")

    async with hosted(MemoryJournal(), W, activities=[cleanup.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await handle.cancel("one")
        await until(lambda: cleanup.calls)
        await handle.cancel("two")
        await settled(runtime)
        cleanup.open.set()
        error = await cancelled(handle)
        assert "one" in str(error)
        history = await handle.fetch_history()
    assert kinds(history).count("CancelRequested") == 1
    assert kinds(history).count("TimerCancelled") == 1
    assert kinds(history)[-1] == "WorkflowCancelled"
    assert (cleanup.calls, thrown) == (["tidy"], [])


async def test_main_may_refuse_and_finish():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            try:
                await workflow.sleep(3600)
            except asyncio.CancelledError:
                await asyncio.sleep(0)
            return f"done, asked={workflow.cancellation_requested()}"

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        await handle.cancel()
        assert await handle.result() == "done, asked=True"
        with pytest.raises(WorkflowClosedError):
            await handle.cancel()


@pytest.mark.parametrize("spelling", ["asyncio", "workflow"])
async def test_a_cancelled_sleep_leaves_no_timer(spelling):
    """A06: both spellings; the hour passes and nothing fires."""
    clock = ManualClock()

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.go = False

        @workflow.signal
        def proceed(self) -> None:
            self.go = True

        @workflow.run
        async def run(self) -> str:
            nap = asyncio.sleep(3600) if spelling == "asyncio" else workflow.sleep(timedelta(hours=1))
            task = asyncio.create_task(nap)
            await asyncio.sleep(0)
            task.cancel()
            await workflow.wait_condition(lambda: self.go)
            return str(task.cancelled())

    async with hosted(MemoryJournal(), W, clock=clock) as runtime:
        handle = await runtime.spawn(W.run)
        await settled(runtime)
        assert (await handle.describe()).timers == ()
        clock.advance(7200)
        runtime._shard.timers.check()
        await handle.signal(W.proceed)
        assert await handle.result() == "True"
        seen = kinds(await handle.fetch_history())
    assert "TimerFired" not in seen
    assert seen.count("TimerStarted") == seen.count("TimerCancelled") == 1


async def test_a_cancel_during_the_backoff_wakes_at_once_and_nothing_is_retried():
    """A10: an activity that always fails, with an hour between its attempts."""
    clock = ManualClock()
    calls = []

    @activity.defn(
        retry_policy=RetryPolicy(initial_interval=timedelta(hours=1), maximum_interval=timedelta(hours=1))
    )
    async def fails() -> None:
        calls.append(1)
        raise ApplicationError("no")

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await fails()

    async with hosted(MemoryJournal(), W, activities=[fails], clock=clock) as runtime:
        for end in ("cancel", "terminate"):
            handle = await runtime.spawn(W.run)
            await until(lambda: runtime._shard.timers._heap)
            before = len(calls)
            await getattr(handle, end)()
            kind = WorkflowCancelledError if end == "cancel" else WorkflowTerminatedError
            with pytest.raises(kind):
                await handle.result(timeout=10)
            assert (await handle.describe()).pending_activities == ()
            clock.advance(7200)
            runtime._shard.timers.check()
            await settled(runtime)
            assert len(calls) == before
            assert runtime._shard.timers._heap == []
            assert not runtime._shard.actors


@pytest.mark.parametrize("seed", range(30))
async def test_a_loop_over_short_activities_always_ends_cancelled(seed):
    """A01: the request never vanishes in a result that comes at the same moment."""
    rng = random.Random(seed)

    @activity.defn
    async def short(n: int) -> int:
        for _ in range(n):
            await asyncio.sleep(0)
        return n

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            while True:
                await short(workflow.random().randrange(4))

    async with hosted(MemoryJournal(), W, activities=[short]) as runtime:
        handle = await runtime.spawn(W.run)
        for _ in range(rng.randrange(60)):
            await asyncio.sleep(0)
        await handle.cancel()
        await cancelled(handle)


async def test_a_cancel_between_two_awaits_is_thrown_at_the_next_one():
    """A03: result and request are there together; the second activity is never started."""
    first, second = gate("first"), gate("second")

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await workflow.execute_activity(first.fn, "a")
            await workflow.execute_activity(second.fn, "b")

    async with hosted(MemoryJournal(), W, activities=[first.fn, second.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: first.calls)
        actor = runtime._shard.find(handle.workflow_id)
        attempt = actor.attempts[1]
        first.open.set()
        # Both stand in the mailbox before the run gets its turn.
        runtime._shard.dispatcher.pool._report(attempt, runtime._converter.encode("x", str))
        await handle.cancel()
        await cancelled(handle)
        history = await handle.fetch_history()
    assert second.calls == []
    seen = kinds(history)
    assert seen.index("ActivityCompleted") < seen.index("CancelRequested")
    assert seen.count("ActivityScheduled") == seen.count("ActivityCancelRequested") + 1


@pytest.mark.parametrize("begun", [True, False])
async def test_an_activity_scheduled_and_cancelled_in_one_turn_is_never_dispatched(begun):
    never = gate("never")

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            task = asyncio.create_task(workflow.execute_activity(never.fn, "a"))
            handle = workflow.start_activity(never.fn, "b")
            if begun:
                await asyncio.sleep(0)
            task.cancel()
            assert handle.cancel()
            assert not handle.cancel()
            await workflow.sleep(0.001)
            return "done"

    async with hosted(MemoryJournal(), W, activities=[never.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        assert await handle.result() == "done"
        seen = kinds(await handle.fetch_history())
    assert never.calls == []
    assert seen.count("ActivityScheduled") == seen.count("ActivityCancelRequested") == 2


async def test_cancelling_a_running_activity_reaches_it_without_a_heartbeat():
    """A07"""
    reached = asyncio.Event()

    @activity.defn
    async def long() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            reached.set()
            raise

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            handle = workflow.start_activity(long)
            await workflow.sleep(0.01)
            handle.cancel()
            try:
                await handle
            except asyncio.CancelledError:
                return "cancelled"
            return "?"

    async with hosted(MemoryJournal(), W, activities=[long]) as runtime:
        assert await runtime.execute(W.run) == "cancelled"
        await asyncio.wait_for(reached.wait(), 5)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_request_to_a_stalled_run_is_kept_and_thrown_once_after_release(times):
    journal = MemoryJournal()
    cleanup = gate("cleanup")

    @workflow.defn(name="W")
    class Broken:
        @workflow.run
        async def run(self) -> None:
            raise ValueError("bug")

    @workflow.defn(name="W")
    class Fixed:
        @workflow.run
        async def run(self) -> None:
            try:
                await workflow.sleep(3600)
            finally:
                await workflow.execute_activity(cleanup.fn, "tidy")

    async with hosted(journal, Broken) as runtime:
        handle = await runtime.spawn(Broken.run, id="a")
        with pytest.raises(WorkflowQuarantinedError):
            await handle.result()
        for n in range(times):
            await handle.cancel(f"reason {n}")
        assert (await handle.describe()).cancel_requested
    async with hosted(journal, Fixed, activities=[cleanup.fn]) as runtime:
        handle = runtime.ref("a", Fixed)
        cleanup.open.set()
        await handle.release()
        assert "reason 0" in str(await cancelled(handle))
        seen = kinds(await handle.fetch_history())
    assert seen.count("CancelRequested") == 1
    assert cleanup.calls == ["tidy"]


async def test_a_request_survives_a_restart_while_main_cleans_up():
    journal = MemoryJournal()
    cleanup = gate("cleanup")

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            try:
                await workflow.sleep(3600)
            finally:
                await workflow.execute_activity(cleanup.fn, "tidy")

    async with hosted(journal, W, activities=[cleanup.fn]) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        await handle.cancel("why")
        await until(lambda: cleanup.calls)
    cleanup.open.set()
    async with hosted(journal, W, activities=[cleanup.fn]) as runtime:
        assert "why" in str(await cancelled(runtime.ref("a", W)))


class TestARequestStaysPendingUntilItReachesMain:
    """What main waits for may swallow the cancel: then it is thrown at main's next await."""

    async def run_and_cancel(self, cls, *activities):
        journal = MemoryJournal()
        async with hosted(journal, cls, activities=activities) as runtime:
            handle = await runtime.spawn(cls.run, id="a")
            await settled(runtime)
            await handle.cancel("stop")
            await cancelled(handle)
            history = await handle.fetch_history()
            # The end is the same when the history is replayed.
            actor = runtime._shard.find("a")
            actor.drop_instance()
            assert loaded(actor).outcome is not None
        return history

    async def test_a_task_that_swallows_it_and_returns(self):
        @workflow.defn
        class W:
            async def stubborn(self) -> None:
                try:
                    await workflow.sleep(3600)
                except asyncio.CancelledError:
                    pass

            @workflow.run
            async def run(self) -> None:
                await asyncio.create_task(self.stubborn())
                await workflow.sleep(7200)
                raise AssertionError("the request was lost")

        history = await self.run_and_cancel(W)
        assert kinds(history)[-3:] == ["TimerStarted", "TimerCancelled", "WorkflowCancelled"]

    async def test_a_task_that_ends_long_after(self):
        @activity.defn
        async def slow() -> None:
            await asyncio.sleep(0.01)

        @workflow.defn
        class W:
            async def stubborn(self) -> None:
                try:
                    await workflow.sleep(3600)
                except asyncio.CancelledError:
                    await slow()

            @workflow.run
            async def run(self) -> None:
                await asyncio.create_task(self.stubborn())
                await workflow.sleep(7200)

        await self.run_and_cancel(W, slow)

    async def test_a_task_in_a_task(self):
        @workflow.defn
        class W:
            async def inner(self) -> None:
                try:
                    await workflow.sleep(3600)
                except asyncio.CancelledError:
                    pass

            async def outer(self) -> None:
                await asyncio.create_task(self.inner())

            @workflow.run
            async def run(self) -> None:
                await asyncio.create_task(self.outer())
                await asyncio.create_task(self.inner())
                await asyncio.gather(self.inner(), self.inner())
                await workflow.wait_condition(lambda: False)

        await self.run_and_cancel(W)

    async def test_a_task_that_turns_it_into_another_error(self):
        @workflow.defn
        class W:
            async def stubborn(self) -> None:
                try:
                    await workflow.sleep(3600)
                except asyncio.CancelledError:
                    raise ApplicationError("something else") from None

            @workflow.run
            async def run(self) -> None:
                try:
                    await asyncio.create_task(self.stubborn())
                except ApplicationError:
                    await workflow.sleep(3600)

        await self.run_and_cancel(W)

    async def test_a_shielded_task_goes_on_and_main_gets_it_at_once(self):
        @workflow.defn
        class W:
            @workflow.run
            async def run(self) -> None:
                await asyncio.shield(asyncio.create_task(workflow.sleep(3600)))

        await self.run_and_cancel(W)

    @pytest.mark.usefixtures("keeps_code")
    async def test_once_seen_it_does_not_come_again(self):
        thrown = []

        @workflow.defn
        class W:
            async def stubborn(self) -> None:
                try:
                    await workflow.sleep(3600)
                except asyncio.CancelledError:
                    pass

            @workflow.run
            async def run(self) -> str:
                await asyncio.create_task(self.stubborn())
                task = asyncio.current_task()
                assert task is not None
                for _ in range(3):
                    try:
                        await workflow.sleep(0.001)
                    except asyncio.CancelledError:
                        thrown.append(task.cancelling())
                return "done"

        async with hosted(MemoryJournal(), W) as runtime:
            handle = await runtime.spawn(W.run)
            await settled(runtime)
            await handle.cancel()
            assert await handle.result() == "done"
        assert thrown == [1]

    async def test_a_timeout_around_the_stubborn_task_still_tells_the_two_apart(self):
        @workflow.defn
        class W:
            async def stubborn(self) -> None:
                try:
                    await workflow.sleep(3600)
                except asyncio.CancelledError:
                    pass

            @workflow.run
            async def run(self) -> str:
                async with asyncio.timeout(1800):
                    await asyncio.create_task(self.stubborn())
                    await workflow.sleep(3600)
                return "?"

        await self.run_and_cancel(W)


@pytest.mark.parametrize("shape", ["gather", "group", "wait", "as_completed", "wait_for", "timeout", "task"])
async def test_a_cancel_reaches_whatever_main_waits_in(shape):
    held = gate("held")

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            one, two = (workflow.execute_activity(held.fn, x) for x in "ab")
            match shape:
                case "gather":
                    await asyncio.gather(one, two)
                case "group":
                    async with asyncio.TaskGroup() as group:
                        group.create_task(one)
                        group.create_task(two)
                case "wait":
                    # wait() cancels nothing by itself, as in asyncio
                    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(two)]
                    try:
                        await asyncio.wait(tasks)
                    finally:
                        for task in tasks:
                            task.cancel()
                case "as_completed":
                    for done in asyncio.as_completed([one, two]):
                        await done
                case "wait_for":
                    await asyncio.gather(asyncio.wait_for(one, 60), asyncio.wait_for(two, 60))
                case "timeout":
                    async with asyncio.timeout(60):
                        await one
                        await two
                case "task":
                    await asyncio.create_task(asyncio.wait_for(asyncio.gather(one, two), 60))

    async with hosted(MemoryJournal(), W, activities=[held.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: len(held.calls) == 2)
        await handle.cancel()
        await cancelled(handle)
        description = await handle.describe()
        history = await handle.fetch_history()
        await until(lambda: not runtime._shard.dispatcher.pool._running)
    assert (description.pending_activities, description.timers) == ((), ())
    cancels = [e.event.command for e in history if e.kind == "ActivityCancelRequested"]
    assert cancels == sorted(cancels)
    assert commands(history) == [(1, "held"), (2, "held")]


async def test_a_cancelled_error_that_nobody_asked_for_is_a_crash():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            task = asyncio.create_task(workflow.sleep(3600))
            await asyncio.sleep(0)
            task.cancel()
            await task

    async with hosted(MemoryJournal(), W) as runtime:
        with pytest.raises(WorkflowQuarantinedError, match="nobody has asked the run to cancel"):
            await runtime.execute(W.run)


class TestTerminateInAnyStateLeavesNothing:
    @pytest.mark.parametrize("state", ["sleeping", "activity", "quarantined", "held", "stubborn", "backlog"])
    async def test_it(self, state):
        held = gate("held")
        journal = MemoryJournal()

        @workflow.defn(name="W")
        class W:
            @workflow.signal
            def note(self) -> None:
                pass

            @workflow.run
            async def run(self) -> None:
                if state == "quarantined":
                    raise ValueError("bug")
                if state == "stubborn":
                    while True:
                        try:
                            await workflow.sleep(3600)
                        except asyncio.CancelledError:
                            pass
                if state in ("activity", "held"):
                    await workflow.execute_activity(held.fn, "a")
                await workflow.sleep(3600)

        @workflow.defn(name="W")
        class Other:
            @workflow.signal
            def note(self) -> None:
                pass

            @workflow.run
            async def run(self) -> None:
                await workflow.sleep(1800)

        async with hosted(journal, W, activities=[held.fn]) as runtime:
            handle = await runtime.spawn(W.run, id="a")
            await settled(runtime)
            if state == "activity":
                await until(lambda: held.calls)
        async with hosted(journal, Other if state == "held" else W, activities=[held.fn]) as runtime:
            handle = runtime.ref("a", W)
            if state in ("held", "backlog", "quarantined"):
                await handle.signal(W.note)
            if state == "stubborn":
                await handle.cancel()
            if state in ("held", "quarantined"):
                with pytest.raises(WorkflowHeldError if state == "held" else WorkflowQuarantinedError):
                    await handle.result()
            waiter = asyncio.create_task(handle.result(on_stall="wait"))
            await settled(runtime)
            await handle.terminate("away with it")
            with pytest.raises(WorkflowTerminatedError, match="away with it"):
                await waiter
            description = await handle.describe()
            assert description.status == "terminated"
            assert (description.pending_activities, description.timers, description.backlog) == ((), (), 0)
            await until(lambda: not runtime._shard.dispatcher.pool._running)
            assert not runtime._shard.actors
            with pytest.raises(WorkflowClosedError):
                await handle.terminate()
            runtime._shard.timers.sweep()
            assert runtime._shard.timers._heap == []
        async with hosted(journal, W) as runtime:
            assert not runtime._shard.actors
            assert (await runtime.ref("a").describe()).status == "terminated"
