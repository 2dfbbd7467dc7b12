"""Chapter A: requests to cancel are seen, once, and leave nothing behind."""

import asyncio
import random
from datetime import timedelta

import pytest

from everact import RetryPolicy, activity, workflow
from everact.exceptions import ActivityError, ChildWorkflowError, WorkflowCancelledError
from everact.testing import CancelRequested, TestEnvironment, assert_history

HOUR = timedelta(hours=1)


@activity.defn
async def work(number: int) -> int:
    raise NotImplementedError


@activity.defn(start_to_close_timeout=HOUR)
async def long_wait() -> str:
    raise NotImplementedError


@workflow.defn
class Loops:
    def __init__(self) -> None:
        self.done = 0

    @workflow.run
    async def run(self, swallows: bool) -> None:
        while True:
            try:
                self.done = await work(self.done)
            except ActivityError:
                if not swallows:
                    raise

    @workflow.query
    def asked(self) -> bool:
        return workflow.cancellation_requested()


@pytest.mark.parametrize("swallows", [False, True])
async def test_a01_a_cancel_beside_a_short_activity_is_never_lost(swallows):
    """Hundreds of moments, most of them while a result is on its way."""
    draws = random.Random(1)
    async with TestEnvironment(workflows=[Loops]) as env:

        @env.mock_activity(work)
        async def _(number: int) -> int:
            await env.sleep(draws.uniform(0.05, 0.15))
            return number + 1

        handles = [await env.spawn(Loops, swallows) for _ in range(100)]
        for handle in handles:
            await env.sleep(draws.choice([0.0, 0.001, 0.05, 0.1]))
            await handle.cancel("enough")
        for handle in handles:
            with pytest.raises(WorkflowCancelledError, match="enough"):
                await handle.result()


async def test_a01_the_request_that_meets_no_await_is_raised_at_the_next_one_and_readable():
    seen = []

    @workflow.defn
    class Busy:
        @workflow.run
        async def run(self) -> str:
            try:
                await work(1)
                seen.append(workflow.cancellation_requested())
                await workflow.sleep(1)
            except asyncio.CancelledError:
                seen.append("raised")
                raise
            return "went on"

    async with TestEnvironment(workflows=[Busy], replay=False) as env:
        env.mock_activity(work, returns=2, delay=1)
        handle = await env.spawn(Busy)
        await env.sleep(0.5)
        await handle.cancel()
        with pytest.raises(WorkflowCancelledError):
            await handle.result()
    assert seen == ["raised"]


@workflow.defn
class Child:
    @workflow.run
    async def run(self) -> str:
        await workflow.sleep(3600)
        return "slept"


@workflow.defn
class ActivityThenChild:
    @workflow.run
    async def run(self) -> str:
        await work(1)
        return await workflow.execute_child_workflow(Child)


@pytest.mark.parametrize("paused", [False, True])
async def test_a03_a_cancel_between_two_awaits_cancels_the_child_at_once(paused):
    """A result and a cancel come together: by a host that was away, or by a run that was paused."""
    async with TestEnvironment(workflows=[ActivityThenChild, Child]) as env:
        env.mock_activity(work, returns=1, delay=10)
        handle = await env.spawn(ActivityThenChild)
        if paused:
            await handle.pause()
            await env.sleep(11)
            await handle.cancel()
            await handle.resume()
        else:
            await env.sleep(11)
            await handle.cancel()
        with pytest.raises(WorkflowCancelledError):
            await handle.result()
        history = await handle.fetch_history()
        children = [event for event in history if event.kind == "ChildScheduled"]
        cancels = [event for event in history if event.kind == "ChildCancelRequested"]
        assert (
            len(children) == len(cancels) == 1
        )  # the result came first: the child is asked for, and cancelled at once
        assert await env.runtime.count_workflows(status="running") == 0


@workflow.defn
class TwoBranches:
    @workflow.run
    async def run(self, join: str) -> None:
        first = asyncio.create_task(workflow.execute_activity(long_wait))
        second = asyncio.create_task(workflow.execute_child_workflow(Child))
        match join:
            case "gather":
                await asyncio.gather(first, second)
            case "gather exceptions":
                await asyncio.gather(first, second, return_exceptions=True)
                await workflow.sleep(0.001)
            case "wait":
                await asyncio.wait([first, second])
            case "group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(workflow.execute_activity(long_wait))
                    group.create_task(workflow.execute_child_workflow(Child))


@pytest.mark.parametrize("state", ["scheduled", "started", "heartbeating"])
@pytest.mark.parametrize("child", ["requested", "running"])
@pytest.mark.parametrize("join", ["gather", "gather exceptions", "wait", "group"])
async def test_a05_two_branches_end_whatever_they_are_at(state, child, join):
    options = {"max_concurrent_activities": 1} if state == "scheduled" else {}
    async with TestEnvironment(workflows=[TwoBranches, Child, Blocks], activities=[], **options) as env:
        beats = ["half"] if state == "heartbeating" else []
        env.mock_activity(long_wait, returns="done", delay=600, heartbeats=beats)
        if state == "scheduled":  # the only slot is taken
            env.mock_activity(work, returns=1, delay=10_000)
            await env.spawn(Blocks, id="blocks")
        handle = await env.spawn(TwoBranches, join)
        if child == "running":
            await env.sleep(400)
        await handle.cancel()
        with pytest.raises(WorkflowCancelledError):
            await handle.result()
        await env.sleep(1)
        assert await env.runtime.count_workflows(workflow_type="Child", status="running") == 0


@workflow.defn
class Blocks:
    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_activity(work, 1, start_to_close_timeout=timedelta(days=1))


@workflow.defn
class SleepsInTask:
    def __init__(self) -> None:
        self.go = False

    @workflow.run
    async def run(self, spelling: str) -> str:
        sleeping = asyncio.create_task(
            workflow.sleep(3600) if spelling == "workflow" else asyncio.sleep(3600)
        )
        await asyncio.sleep(0)
        sleeping.cancel()
        await workflow.wait_condition(lambda: self.go)
        assert sleeping.cancelled()
        return "went on"

    @workflow.signal
    def proceed(self) -> None:
        self.go = True


@pytest.mark.parametrize("spelling", ["workflow", "asyncio"])
async def test_a06_a_cancelled_sleep_leaves_no_timer(spelling):
    async with TestEnvironment(workflows=[SleepsInTask]) as env:
        handle = await env.spawn(SleepsInTask, spelling)
        await env.sleep(2 * 3600)
        await handle.signal(SleepsInTask.proceed)
        assert await handle.result() == "went on"
        kinds = [event.kind for event in await handle.fetch_history()]
        assert kinds.count("TimerStarted") == kinds.count("TimerCancelled") == 1
        assert "TimerFired" not in kinds


@pytest.mark.parametrize("waits", [True, False])
async def test_a07_one_activity_is_cancelled_without_heartbeats(waits):
    cleaned = []

    @activity.defn(start_to_close_timeout=HOUR)
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            cleaned.append(True)
            raise

    @workflow.defn
    class Cancels:
        @workflow.run
        async def run(self) -> list[bool]:
            kind = "wait_cancellation_completed" if waits else "try_cancel"
            task = workflow.start_activity(stubborn, cancellation_type=kind)
            await workflow.sleep(1)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return [workflow.cancellation_requested()]
            raise AssertionError("it has not stopped")

    async with TestEnvironment(workflows=[Cancels], activities=[stubborn]) as env:
        handle = await env.spawn(Cancels)
        await env.advance(1, past_running=True)
        assert await handle.result() == [False]
        if waits:
            assert cleaned == [True]
        kinds = [event.kind for event in await handle.fetch_history()]
        assert kinds.count("ActivityCancelled") == waits


@workflow.defn
class Retries:
    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_activity(
            work,
            1,
            retry_policy=RetryPolicy(initial_interval=HOUR, maximum_interval=HOUR, maximum_attempts=100),
        )


@pytest.mark.parametrize("how", ["cancel", "terminate", "purge"])
async def test_a10_a_run_between_retries_ends_at_once_and_nothing_is_retried(how):
    async with TestEnvironment(workflows=[Retries]) as env:
        fails = env.mock_activity(work, raises=ConnectionError("busy"))
        handle = await env.spawn(Retries, id="retries")
        await env.sleep(10)
        begun = env.now()
        if how == "cancel":
            await handle.cancel()
        else:
            await handle.terminate()
        with pytest.raises(Exception, match=how if how == "terminate" else "cancel|terminate"):
            await handle.result()
        assert env.now() == begun
        if how == "purge":
            await env.runtime.purge(workflow_id="retries")
        await env.sleep(10 * 3600)
        assert fails.call_count == 1


@workflow.defn
class Parent:
    @workflow.run
    async def run(self, ends: str) -> None:
        apart = await workflow.start_child_workflow(
            Child, id="apart", cancellation_type="abandon", parent_close_policy="abandon"
        )
        along = await workflow.start_child_workflow(Child, id="along", parent_close_policy="request_cancel")
        if ends == "closed":
            return
        await asyncio.gather(apart, along)


@pytest.mark.parametrize("ends", ["cancelled", "closed"])
async def test_a11_only_the_child_that_goes_along_is_asked_to_cancel(ends):
    async with TestEnvironment(workflows=[Parent, Child]) as env:
        parent = await env.spawn(Parent, ends)
        if ends == "cancelled":
            await env.sleep(1)
            await parent.cancel()
            with pytest.raises((WorkflowCancelledError, ChildWorkflowError)):
                await parent.result()
        else:
            await parent.result()
        with pytest.raises(WorkflowCancelledError):
            await env.ref("along").result()
        assert await env.ref("apart").result() == "slept"
        assert_history(await env.ref("apart").fetch_history()).never(CancelRequested())
