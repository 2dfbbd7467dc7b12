"""Ends and cancels between parents and children, in whatever way they come."""

import asyncio

import pytest
from support.child_workflows import Double, Waits, status
from support.clock import ManualClock
from support.hosting import hosted, settled, tick, until

from everact import workflow
from everact.exceptions import (
    ApplicationError,
    WorkflowCancelledError,
    WorkflowQuarantinedError,
)
from everact.journal.memory_store import MemoryJournal

# --- the parent's end (A11: apart from the parent's cancel)


@workflow.defn
class Family:
    """Three children, one of each policy; ends in the way it is told."""

    def __init__(self) -> None:
        self.way = ""

    @workflow.run
    async def run(self) -> None:
        for policy in ("terminate", "request_cancel", "abandon"):
            await workflow.start_child_workflow(
                Waits, id=policy, parent_close_policy=policy, cancellation_type="abandon"
            )
        await workflow.wait_condition(lambda: self.way)
        if self.way == "fail":
            raise ApplicationError("as told")

    @workflow.signal
    def end(self, way: str) -> None:
        self.way = way


@pytest.mark.parametrize("way", ["complete", "fail", "cancel", "terminate", "replace"])
async def test_every_end_of_a_parent_does_to_its_children_what_their_policy_says(way):
    async with hosted(MemoryJournal(), Family, Waits, Double) as runtime:
        parent = await runtime.spawn(Family, id="p")
        await until(lambda: runtime._shard.index.find("abandon"))
        await settled(runtime)
        if way == "cancel":
            await parent.cancel()
        elif way == "terminate":
            await parent.terminate()
        elif way == "replace":
            await runtime.ref("terminate").signal("stop")  # the new one may use its id
            await settled(runtime)
            await runtime.spawn(Double, 1, id="p", if_running="replace")
        else:
            await parent.signal(Family.end, way)
        await settled(runtime)
        ended = "completed" if way == "replace" else "terminated"
        assert await status(runtime, "terminate") == ended
        assert await status(runtime, "request_cancel") == "cancelled"
        assert await status(runtime, "abandon") == "running"
        (request,) = [
            e.event
            for e in await runtime.ref("request_cancel").fetch_history()
            if e.kind == "CancelRequested"
        ]
        assert request.reason.startswith("its parent, workflow 'p', has ended (")


async def test_a_policy_does_not_touch_a_run_that_somebody_else_has_started_under_the_id():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> None:
            await workflow.start_child_workflow(Waits, id="kid")
            await workflow.wait_condition(lambda: False)

    async with hosted(MemoryJournal(), Parent, Waits) as runtime:
        parent = await runtime.spawn(Parent)
        await settled(runtime)
        runtime._shard.courier._is_blocked = True  # the news of the child's end does not come
        other = await runtime.spawn(Waits, id="kid", if_running="replace")
        await parent.terminate()
        await settled(runtime)
        runtime._shard.courier._is_blocked = False
        runtime._shard.go_on()
        await settled(runtime)
        assert (await other.describe()).status == "running"


async def test_children_started_in_the_very_turn_that_ends_the_parent():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> str:
            asyncio.gather(
                workflow.execute_child_workflow(Waits, id="lost"),
                workflow.execute_child_workflow(Double, 4, id="kept", parent_close_policy="abandon"),
            )
            return "done"

    async with hosted(MemoryJournal(), Parent, Waits, Double) as runtime:
        assert await runtime.execute(Parent) == "done"
        await settled(runtime)
        assert await status(runtime, "lost") == "terminated"
        assert await runtime.ref("kept").result() == 8


# --- the parent's cancel


@workflow.defn
class Cancels:
    """Waits for one slow child, and notes how that ends."""

    def __init__(self) -> None:
        self.seen = "nothing"

    @workflow.run
    async def run(self, cancellation_type: str) -> str:
        try:
            await workflow.execute_child_workflow(
                Waits, True, id="kid", cancellation_type=cancellation_type, parent_close_policy="abandon"
            )
        except asyncio.CancelledError:
            self.seen = "cancelled"
        await workflow.wait_condition(lambda: self.seen == "end")
        return "ended"

    @workflow.query
    def look(self) -> str:
        return self.seen

    @workflow.signal
    def end(self) -> None:
        self.seen = "end"


@pytest.mark.parametrize(
    ("kind", "at_once", "asked"),
    [("try_cancel", True, True), ("wait_cancellation_completed", False, True), ("abandon", True, False)],
)
async def test_the_parents_cancel_does_to_the_child_what_its_cancellation_type_says(kind, at_once, asked):
    async with hosted(MemoryJournal(), Cancels, Waits) as runtime:
        parent = await runtime.spawn(Cancels, kind)
        await settled(runtime)
        await parent.cancel("enough")
        await settled(runtime)
        assert await parent.query(Cancels.look) == ("cancelled" if at_once else "nothing")
        child = runtime.ref("kid", Waits)
        assert (await child.describe()).cancel_requested == asked
        assert (await child.describe()).status == "running"
        if asked:
            await child.signal(Waits.cleaned)
            with pytest.raises(WorkflowCancelledError):
                await child.result()
        else:
            await child.signal(Waits.stop)
            await child.result()
        await settled(runtime)
        assert await parent.query(Cancels.look) == "cancelled"
        await parent.signal(Cancels.end)
        assert await parent.result() == "ended"


async def test_a_child_that_completes_all_the_same_gives_its_result_to_the_cancelled_parent():
    @workflow.defn
    class Stubborn:
        def __init__(self) -> None:
            self.go = False

        @workflow.run
        async def run(self) -> str:
            try:
                await workflow.wait_condition(lambda: False)
            except asyncio.CancelledError:
                return "done all the same"
            return "never"

    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> str:
            got = await workflow.execute_child_workflow(Stubborn)
            try:
                await workflow.sleep(3600)
            except asyncio.CancelledError:
                return got
            return "never"

    async with hosted(MemoryJournal(), Parent, Stubborn) as runtime:
        parent = await runtime.spawn(Parent)
        await settled(runtime)
        await parent.cancel()
        assert await parent.result() == "done all the same"


async def test_what_is_scheduled_and_cancelled_in_one_turn_is_never_started():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> str:
            task = workflow.execute_child_workflow(Waits, id="kid")
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass
            starting = workflow.start_child_workflow(Waits, id="kid2")
            starting.cancel()
            assert starting.cancelled()
            abandoned = workflow.execute_child_workflow(Waits, id="kid3", cancellation_type="abandon")
            abandoned.cancel()
            assert abandoned.cancelled()
            await workflow.execute_child_workflow(Double, 1)
            return "done"

    async with hosted(MemoryJournal(), Parent, Waits, Double) as runtime:
        assert await runtime.execute(Parent) == "done"
        assert await runtime.count_workflows(workflow_type="Waits") == 0


async def test_cancel_before_the_start_has_arrived_finds_the_child_behind_its_start():
    """R15: the start goes first, so the child sees the request at its first await."""
    saw = []

    @workflow.defn
    class Child:
        @workflow.run
        async def run(self) -> None:
            saw.append("entered")
            await workflow.sleep(3600)

    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> None:
            await workflow.execute_child_workflow(Child, id="kid")

    async with hosted(MemoryJournal(), Parent, Child) as runtime:
        courier = runtime._shard.courier
        courier._is_blocked = True
        parent = await runtime.spawn(Parent)
        await settled(runtime)
        await parent.cancel()
        await settled(runtime)
        assert "kid" not in runtime._shard.newest
        courier._is_blocked = False
        runtime._shard.go_on()
        with pytest.raises(WorkflowCancelledError):
            await parent.result()
        assert await status(runtime, "kid") == "cancelled"
    assert saw[0] == "entered"


async def test_a_start_that_is_cancelled_while_it_is_awaited_cancels_the_child():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> None:
            await workflow.start_child_workflow(Waits, id="kid")

    async with hosted(MemoryJournal(), Parent, Waits) as runtime:
        courier = runtime._shard.courier
        courier._is_blocked = True
        parent = await runtime.spawn(Parent)
        await settled(runtime)
        await parent.cancel()
        await settled(runtime)
        courier._is_blocked = False
        runtime._shard.go_on()
        with pytest.raises(WorkflowCancelledError):
            await parent.result()
        assert await status(runtime, "kid") == "cancelled"


# --- stalls, pauses, restarts


async def test_a_parent_hears_nothing_of_a_child_that_stands_still():
    @workflow.defn
    class Crashes:
        @workflow.run
        async def run(self) -> None:
            raise KeyError("a bug")

    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> None:
            await workflow.execute_child_workflow(Crashes, id="kid")

    async with hosted(MemoryJournal(), Parent, Crashes) as runtime:
        parent = await runtime.spawn(Parent)
        with pytest.raises(WorkflowQuarantinedError):
            await runtime.ref("kid").result(timeout=10)
        await settled(runtime)
        seen = await parent.describe()
        assert seen.status == "running"
        (child,) = seen.children
        assert (child.workflow_id, child.status) == ("kid", "quarantined")
        await parent.terminate()
        await settled(runtime)
        assert await status(runtime, "kid") == "terminated"


async def test_a_paused_parent_keeps_the_news_of_its_children_for_later():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> int:
            return await workflow.execute_child_workflow(Double, 4, id="kid")

    async with hosted(MemoryJournal(), Parent, Double) as runtime:
        runtime._shard.courier._is_blocked = True
        parent = await runtime.spawn(Parent)
        await settled(runtime)
        await parent.pause()
        runtime._shard.courier._is_blocked = False
        runtime._shard.go_on()
        await until(lambda: runtime._shard.index.find("kid"))
        assert await runtime.ref("kid").result() == 8
        await settled(runtime)
        assert (await parent.describe()).backlog == 1
        await parent.resume()
        assert await parent.result() == 8


async def test_what_was_not_taken_in_is_taken_in_at_the_next_start():
    journal = MemoryJournal()

    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> list[str]:
            child = await workflow.start_child_workflow(Waits, id="kid")
            await child.signal(Waits.tell, "one")
            await child.signal(Waits.tell, "two")
            await child.signal(Waits.stop)
            return await child

    starts = 0
    async with hosted(journal, Parent, Waits) as runtime:
        runtime._shard.courier.stop()
        await runtime.spawn(Parent, id="p")
        await settled(runtime)
    while True:
        starts += 1
        async with hosted(journal, Parent, Waits) as runtime:
            courier = runtime._shard.courier
            # One round of messages in each life.
            await until(lambda: not courier.is_ready)
            courier.stop()
            await settled(runtime)
            if (await runtime.ref("p").describe()).closed_at:
                assert await runtime.ref("p").result() == ["one", "two"]
                break
        assert starts < 20
    assert starts > 3


async def test_a_timeout_around_a_child():
    clock = ManualClock()

    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> str:
            try:
                async with asyncio.timeout(60):
                    await workflow.execute_child_workflow(Waits, id="kid", cancellation_type="try_cancel")
            except TimeoutError:
                return "too late"
            return "never"

    async with hosted(MemoryJournal(), Parent, Waits, clock=clock) as runtime:
        parent = await runtime.spawn(Parent)
        await settled(runtime)
        await tick(runtime, clock, 61)
        assert await parent.result() == "too late"
        await settled(runtime)
        assert await status(runtime, "kid") in ("cancelled", "terminated")
