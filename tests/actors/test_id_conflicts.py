"""Starts against ids that a child workflow or a schedule has: each option does what it does with any other run."""

import asyncio
from datetime import timedelta

import pytest
from support.clock import ManualClock
from support.hosting import hosted, settled, tick, until

from everact import ApplicationError, workflow
from everact.exceptions import (
    ChildWorkflowError,
    ExternalWorkflowError,
    WorkflowAlreadyStartedError,
    WorkflowCancelledError,
    WorkflowFailedError,
    WorkflowTerminatedError,
    WorkflowTypeError,
)
from everact.journal.memory_store import MemoryJournal

IF_CLOSED = ["allow", "allow_if_failed", "refuse", "attach"]


@workflow.defn
class Kid:
    def __init__(self) -> None:
        self.end = ""

    @workflow.signal
    def finish(self, how: str) -> None:
        self.end = how

    @workflow.run
    async def run(self, what: str) -> str:
        await workflow.wait_condition(lambda: self.end)
        if self.end == "fail":
            raise ApplicationError("no")
        return f"{what} {self.end}"


@workflow.defn
class Other:
    @workflow.run
    async def run(self, what: str) -> str:
        return what


@workflow.defn
class Parent:
    """Has a child, and tells what has become of it."""

    @workflow.run
    async def run(self, if_running: str, if_closed: str, cron: str = "") -> str:
        options = {"cron_schedule": cron} if cron else {}
        try:
            child = await workflow.start_child_workflow(
                Kid.run, "child's", id="kid", if_running=if_running, if_closed=if_closed, **options
            )
            workflow.publish("started", True)  # noqa: FBT003
            return f"completed: {await child}"
        except ChildWorkflowError as error:
            return f"{error.status}: {error.__cause__}"


@workflow.defn
class Starter:
    """Starts a run of its own accord, and tells what has become of that."""

    @workflow.run
    async def run(self, if_running: str, if_closed: str) -> str:
        try:
            await workflow.start_detached(
                Kid.run, "detached", id="kid", if_running=if_running, if_closed=if_closed
            )
            return "started"
        except ExternalWorkflowError as error:
            return str(error.__cause__)


ALL = [Kid, Other, Parent, Starter]


async def child_of(runtime, **options):
    """A parent and its open child."""
    parent = await runtime.spawn(Parent.run, "fail", "allow", *options.values(), id="parent")
    while "started" not in (await parent.describe()).published:
        await asyncio.sleep(0)
    child = await runtime.ref("kid").describe()
    assert child.parent.workflow_id == "parent"
    return parent, child


# --- spawn, against a child that is open


async def test_an_open_child_refuses_a_start():
    async with hosted(MemoryJournal(), *ALL) as runtime:
        _, child = await child_of(runtime)
        for if_closed in IF_CLOSED:
            with pytest.raises(WorkflowAlreadyStartedError) as caught:
                await runtime.spawn(Kid.run, "mine", id="kid", if_running="fail", if_closed=if_closed)
            assert str(caught.value) == (
                f"workflow 'kid' already exists (run {child.run_id}, running) and if_running refuses it; nothing was "
                f"started. Other choices: if_running='attach', 'replace'."
            )
            assert caught.value.started_as == ""


async def test_a_start_attaches_to_an_open_child_and_changes_nothing_of_it():
    async with hosted(MemoryJournal(), *ALL) as runtime:
        parent, child = await child_of(runtime)
        for if_closed in IF_CLOSED:
            handle = await runtime.spawn(Kid.run, "mine", id="kid", if_running="attach", if_closed=if_closed)
            assert handle.run_id == child.run_id
        with pytest.raises(WorkflowTypeError):
            await runtime.spawn(Other.run, "mine", id="kid", if_running="attach")
        await handle.signal(Kid.finish, "done")
        assert await handle.result() == "child's done"
        assert await parent.result() == "completed: child's done"


@pytest.mark.parametrize("cron", ["", "@hourly"])
async def test_a_start_replaces_an_open_child_and_its_parent_hears_that_it_was_terminated(cron):
    async with hosted(MemoryJournal(), *ALL) as runtime:
        parent, child = await child_of(runtime, cron=cron)
        handle = await runtime.spawn(Kid.run, "mine", id="kid", if_running="replace")
        assert handle.run_id != child.run_id
        told = await parent.result()
        assert told.startswith("terminated: workflow 'kid'")
        assert "replaced by a new start" in told
        seen = await handle.describe()
        assert (seen.status, seen.parent, seen.cron_schedule) == ("running", None, None)
        await handle.signal(Kid.finish, "done")
        assert await handle.result() == "mine done", "the end of the parent has not touched it"


# --- spawn, against a child that has ended


@pytest.mark.parametrize("end", ["done", "fail", "cancel", "terminate"])
@pytest.mark.parametrize("if_closed", IF_CLOSED)
@pytest.mark.parametrize("restart", [False, True])
async def test_a_child_that_has_ended_is_as_any_other_run(end, if_closed, restart):
    journal = MemoryJournal()
    async with hosted(journal, *ALL) as runtime:
        parent, child = await child_of(runtime)
        kid = runtime.ref("kid", Kid)
        await (kid.signal(Kid.finish, end) if end in ("done", "fail") else getattr(kid, end)())
        await parent.result()
        if not restart:
            await _start_again(runtime, child, end, if_closed)
            return
    async with hosted(journal, *ALL) as runtime:
        await _start_again(runtime, child, end, if_closed)


async def _start_again(runtime, child, end, if_closed):
    start = runtime.spawn(Kid.run, "mine", id="kid", if_closed=if_closed)
    if if_closed == "refuse" or (if_closed == "allow_if_failed" and end == "done"):
        with pytest.raises(WorkflowAlreadyStartedError, match="if_closed refuses it"):
            await start
        return
    handle = await start
    if if_closed == "attach":
        assert handle.run_id == child.run_id
        if end == "done":
            assert await handle.result() == "child's done"
        else:
            kind = {"cancel": WorkflowCancelledError, "terminate": WorkflowTerminatedError}
            with pytest.raises(kind.get(end, WorkflowFailedError)):
                await handle.result()
        return
    assert handle.run_id != child.run_id
    assert (await handle.describe()).parent is None
    await handle.signal(Kid.finish, "done")
    assert await handle.result() == "mine done"


# --- a child, and a detached start, against ids that are taken


@pytest.mark.parametrize("holder", ["run", "child", "schedule"])
async def test_a_child_is_refused_with_what_a_child_may_choose(holder):
    async with hosted(MemoryJournal(), *ALL) as runtime:
        if holder == "child":
            await child_of(runtime)
        else:
            await runtime.spawn(
                Kid.run, "first", id="kid", **({} if holder == "run" else {"cron_schedule": "@hourly"})
            )
        held = (await runtime.ref("kid").describe()).run_id
        assert await runtime.execute(Parent.run, "fail", "allow") == (
            f"not started: workflow 'kid' already exists (run {held}, running) and if_running refuses it; nothing was "
            f"started. Other choices: if_running='replace'."
        )
        await runtime.ref("kid").terminate()
        assert await runtime.execute(Parent.run, "fail", "refuse") == (
            f"not started: workflow 'kid' already exists (run {held}, terminated) and if_closed refuses it; nothing "
            f"was started. Other choices: if_closed='allow', 'allow_if_failed'."
        )


@pytest.mark.parametrize("name", ["if_running", "if_closed"])
async def test_a_child_attaches_to_nothing(name):
    options = {"if_running": "fail", "if_closed": "allow", name: "attach"}
    async with hosted(MemoryJournal(), *ALL) as runtime:
        await runtime.spawn(Kid.run, "first", id="kid")
        parent = await runtime.spawn(Parent.run, *options.values())
        with pytest.raises(
            Exception, match=f"{name}='attach' is not for children: a child is a run of its own"
        ):
            await parent.result()


async def test_a_child_replaces_the_child_of_another():
    async with hosted(MemoryJournal(), *ALL) as runtime:
        parent, child = await child_of(runtime)
        second = await runtime.spawn(Parent.run, "replace", "allow", id="second")
        assert "replaced" in await parent.result()
        await until(lambda: runtime._shard.find("kid").run_id != child.run_id)
        kid = runtime.ref("kid", Kid)
        assert (await kid.describe()).parent.workflow_id == "second"
        await kid.signal(Kid.finish, "done")
        assert await second.result() == "completed: child's done"


async def test_a_detached_start_may_attach_to_a_child():
    async with hosted(MemoryJournal(), *ALL) as runtime:
        _, child = await child_of(runtime)
        refused = await runtime.execute(Starter.run, "fail", "allow")
        assert refused.endswith("Other choices: if_running='attach', 'replace'.")
        assert await runtime.execute(Starter.run, "attach", "allow") == "started"
        assert (await runtime.ref("kid").describe()).run_id == child.run_id
        await runtime.execute(Starter.run, "replace", "allow")
        seen = await runtime.ref("kid").describe()
        assert (seen.run_id != child.run_id, seen.parent) == (True, None)


# --- spawn, against a schedule


async def scheduled(runtime, clock, runs=0):
    """A schedule, so many runs of which are over; its present run waits for its time."""
    handle = await runtime.spawn(Kid.run, "nightly", id="kid", cron_schedule="@hourly")
    for _ in range(runs):
        await tick(runtime, clock, 3600)
        await runtime.ref("kid").signal("finish", "done")
        await settled(runtime)
    return handle


@pytest.mark.parametrize("runs", [0, 1, 2])
@pytest.mark.parametrize("begun", [False, True])
async def test_the_present_run_of_a_schedule_has_its_id(runs, begun):
    clock = ManualClock()
    async with hosted(MemoryJournal(), *ALL, clock=clock) as runtime:
        first = await scheduled(runtime, clock, runs)
        if begun:
            await tick(runtime, clock, 3600)
        present = await runtime.ref("kid").describe()
        assert (present.status, present.begins_at is None) == ("running", begun)
        assert (present.run_id == first.run_id) == (not runs)
        for if_closed in IF_CLOSED:  # nothing of it has ended for good
            with pytest.raises(WorkflowAlreadyStartedError, match=f"run {present.run_id}, running"):
                await runtime.spawn(Kid.run, "mine", id="kid", if_closed=if_closed)
            handle = await runtime.spawn(Kid.run, "mine", id="kid", if_running="attach", if_closed=if_closed)
            assert handle.run_id == present.run_id
        handle = await runtime.spawn(Kid.run, "mine", id="kid", if_running="replace")
        with pytest.raises(WorkflowTerminatedError):
            await first.result()
        seen = await handle.describe()
        assert (seen.cron_schedule, seen.begins_at, seen.first_run_id) == (None, None, handle.run_id)
        await handle.signal(Kid.finish, "done")
        assert await handle.result() == "mine done"
        await tick(runtime, clock, 2 * 3600)
        assert (await runtime.ref("kid").describe()).run_id == handle.run_id, "the schedule went with its run"


async def test_a_schedule_replaces_a_schedule():
    clock = ManualClock()
    async with hosted(MemoryJournal(), *ALL, clock=clock) as runtime:
        await scheduled(runtime, clock, 1)
        handle = await runtime.spawn(Kid.run, "new", id="kid", if_running="replace", cron_schedule="@weekly")
        await tick(runtime, clock, 3 * 3600)
        seen = await runtime.ref("kid").describe()
        assert (seen.run_id, seen.cron_schedule) == (handle.run_id, "@weekly")
        assert seen.begins_at - seen.started_at > timedelta(hours=1)


@pytest.mark.parametrize("if_closed", IF_CLOSED)
async def test_a_schedule_that_was_cancelled_has_ended(if_closed):
    clock = ManualClock()
    async with hosted(MemoryJournal(), *ALL, clock=clock) as runtime:
        await scheduled(runtime, clock, 1)
        await runtime.ref("kid").cancel()
        await settled(runtime)
        ended = await runtime.ref("kid").describe()
        assert ended.status == "cancelled"
        await _start_again(runtime, ended, "cancel", if_closed)
