"""Children that continue as new, are tried again or take too long; parents that continue as new; signals on the way."""

import asyncio

import pytest
from support.clock import ManualClock
from support.codecs import encrypted
from support.hosting import hosted, kinds, settled, tick

from everact import ApplicationError, RetryPolicy, workflow
from everact.exceptions import ChildWorkflowError, WorkflowTimeoutError
from everact.journal.memory_store import MemoryJournal
from everact.testing import TestEnvironment


@workflow.defn
class Kid:
    """Continues as new ``left`` times, then does what it was told to."""

    def __init__(self) -> None:
        self.said: list[str] = []

    @workflow.run
    async def run(self, left: int, end: str, said: list[str]) -> list[str]:
        self.said = said + self.said
        if left:
            await workflow.sleep(1)
            workflow.continue_as_new(left - 1, end, self.said)
        if end == "fail" and workflow.info().attempt < 3:
            raise ApplicationError("not yet")
        if end == "wait":
            await workflow.wait_condition(lambda: "go" in self.said)
        parent = workflow.info().parent
        assert parent is not None
        return [*self.said, parent.workflow_id]

    @workflow.signal
    def say(self, text: str) -> None:
        self.said.append(text)


@workflow.defn
class Parent:
    @workflow.run
    async def run(self, left: int, end: str, options: str) -> list[str]:
        given = {
            "": {},
            "retry": {"retry_policy": RetryPolicy(initial_interval=1, jitter=0)},
            "slow": {"run_timeout": 5},
            "later": {"start_delay": 100},
        }[options]
        child = await workflow.start_child_workflow(Kid, left, end, [], id="kid", **given)
        if end == "wait":
            await child.signal(Kid.say, "one")
            await workflow.sleep(3)
            await workflow.get_external_workflow_handle("kid", run_id=child.run_id).signal("say", "go")
        return await child


async def all_of(runtime, workflow_id):
    return [one.status for one in reversed(await runtime.list_workflows()) if one.workflow_id == workflow_id]


@pytest.mark.parametrize("codecs", [[], [encrypted]])
async def test_a_parent_hears_of_the_last_run_and_its_signals_find_it(codecs):
    clock = ManualClock()
    async with hosted(MemoryJournal(), Parent, Kid, clock=clock, codecs=[c() for c in codecs]) as runtime:
        handle = await runtime.spawn(Parent, 2, "wait", "", id="p")
        for _ in range(8):
            await tick(runtime, clock, 1)
        assert await handle.result() == ["one", "go", "p"]
        assert await all_of(runtime, "kid") == ["continued_as_new"] * 2 + ["completed"]
        assert kinds(await handle.fetch_history()).count("ChildCompleted") == 1


async def test_a_child_is_tried_again_by_its_own_policy():
    clock = ManualClock()
    async with hosted(MemoryJournal(), Parent, Kid, clock=clock) as runtime:
        handle = await runtime.spawn(Parent, 0, "fail", "retry", id="p")
        for _ in range(6):
            await tick(runtime, clock, 1)
        assert await handle.result() == ["p"]
        assert await all_of(runtime, "kid") == ["failed", "failed", "completed"]
        assert "ChildFailed" not in kinds(await handle.fetch_history())


@pytest.mark.parametrize("codecs", [[], [encrypted]])
async def test_the_cause_of_a_child_that_took_too_long_is_its_limit(codecs):
    clock = ManualClock()

    @workflow.defn
    class Patient:
        @workflow.run
        async def run(self) -> str:
            try:
                await workflow.execute_child_workflow(Kid, 0, "wait", [], run_timeout=5)
            except ChildWorkflowError as error:
                assert isinstance(error.__cause__, WorkflowTimeoutError)
                return str(error.__cause__)
            return "?"

    async with hosted(MemoryJournal(), Patient, Kid, clock=clock, codecs=[c() for c in codecs]) as runtime:
        handle = await runtime.spawn(Patient)
        await settled(runtime)
        await tick(runtime, clock, 6)
        assert await handle.result() == "the run took longer than run_timeout=5 s"


async def test_a_delayed_child_begins_at_its_time_and_goes_with_its_parent():
    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Parent, Kid, clock=clock) as runtime:
        await runtime.spawn(Parent, 0, "", "later", id="p")
        await settled(runtime)
        assert (await runtime.ref("kid").describe()).begins_at is not None
    async with hosted(journal, Parent, Kid, clock=clock) as runtime:
        await tick(runtime, clock, 99)
        assert (await runtime.ref("p").describe()).status == "running"
        await tick(runtime, clock, 2)
        assert await runtime.ref("p").result() == ["p"]
        await runtime.spawn(Parent, 0, "", "later", id="q")
        await settled(runtime)
        await runtime.ref("q").terminate()
        await settled(runtime)
        assert await all_of(runtime, "kid") == ["completed", "terminated"]


@workflow.defn
class Goes:
    """A parent that continues as new with open children of each close policy."""

    @workflow.run
    async def run(self, first: bool) -> str:
        if not first:
            return "second"
        for policy in ("terminate", "request_cancel", "abandon"):
            await workflow.start_child_workflow(Kid, 0, "wait", [], id=policy, parent_close_policy=policy)
        workflow.continue_as_new(False)


async def test_children_follow_their_close_policy_when_the_parent_continues_as_new():
    async with hosted(MemoryJournal(), Goes, Kid) as runtime:
        assert await runtime.execute(Goes, True, id="p") == "second"
        await settled(runtime)
        await asyncio.sleep(0)
        await settled(runtime)
        statuses = {
            name: (await runtime.ref(name).describe()).status
            for name in ("terminate", "request_cancel", "abandon")
        }
        assert statuses == {"terminate": "terminated", "request_cancel": "cancelled", "abandon": "running"}
        await runtime.ref("abandon", Kid).signal(Kid.say, "go")
        assert await runtime.ref("abandon").result() == ["go", "p"]


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("run_timeout", "the run took longer than run_timeout=5 s"),
        ("execution_timeout", "the workflow, all its runs together, took longer than execution_timeout=5 s"),
    ],
)
async def test_the_error_of_a_child_that_took_too_long_names_the_limit(option, text):
    @workflow.defn
    class Slow:
        @workflow.run
        async def run(self) -> None:
            await workflow.sleep(60)

    @workflow.defn
    class Waits:
        @workflow.run
        async def run(self) -> str:
            try:
                await workflow.execute_child_workflow(Slow, id="slow", **{option: 5})
            except ChildWorkflowError as error:
                return str(error)
            return "in time"

    async with TestEnvironment(workflows=[Slow, Waits]) as env:
        assert (
            await env.execute(Waits) == f"child workflow 'slow' (Slow) failed: WorkflowTimeoutError: {text}"
        )
