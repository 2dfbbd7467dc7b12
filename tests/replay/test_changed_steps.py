"""Code with steps that no longer does what the journal holds, and code that may change as its step is over."""

import asyncio

import pytest
from support.histories import FOLDER, read, replayed
from support.history_workflows import ACTIVITIES, WORKFLOWS
from support.hosting import hosted, settled
from support.step_workflows import Stepping, climb, numbered
from support.steps import Replayed

from everact import workflow
from everact.actors.run_end import WorkflowCrashedError
from everact.exceptions import JournalCorruptError, NondeterminismError, WorkflowHeldError
from everact.journal import events as ev
from everact.journal.memory_store import MemoryJournal
from everact.journal.step_events import StepCompleted, StepFailed, StepStarted

ACTS = [climb]


def version(change):
    """One workflow, changed in one way after it has begun."""

    @workflow.defn(name="W")
    class W:
        def __init__(self) -> None:
            self.over = False
            self.n = 0

        @workflow.run
        async def run(self) -> int:
            if change == "order":
                await self.second()
            await (self.renamed() if change == "name" else self.first())
            if change == "task":
                beside = asyncio.create_task(self.second())
                await workflow.sleep(1000)
                await beside
            if change != "missing":
                await self.second()
            await workflow.wait_condition(lambda: self.over)
            return self.n

        @workflow.step
        async def first(self) -> None:
            self.n += await climb(1)
            if change == "body of what is over":
                self.n += await climb(100)

        @workflow.step
        async def renamed(self) -> None:
            self.n += await climb(1)

        @workflow.step
        async def second(self) -> None:
            self.n += await climb(10)
            await workflow.wait_condition(lambda: self.over)
            if change == "body of what runs":
                await workflow.sleep(1)

        @workflow.signal
        def end(self) -> None:
            self.over = True

        @workflow.query
        def look(self) -> int:
            return self.n

    return W


CHANGES = {
    "order": ("command 1: step 'first'", "command 1: step 'second'", "the start of the run"),
    "name": ("command 1: step 'first'", "command 1: step 'renamed'", "the start of the run"),
    "missing": ("command 3: step 'second'", "nothing more", "the end of the step of command 1"),
    "task": ("command 3: step 'second'", "command 4: a timer of 1000 s", "the end of the step of command 1"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_is_found_where_it_is(change):
    journal = MemoryJournal()
    old, new = version(""), version(change)
    async with hosted(journal, old, activities=ACTS) as runtime:
        await runtime.spawn(old.run, id="w")
        await settled(runtime)
        assert await runtime.ref("w", old).query(old.look) == 13
    async with hosted(journal, new, activities=ACTS) as runtime:
        with pytest.raises(WorkflowHeldError) as caught:
            await runtime.ref("w", new).query(new.look)
        error = caught.value.__cause__
        assert isinstance(error, NondeterminismError)
        assert (error.expected, error.actual, error.last_common) == CHANGES[change]
        missed = (await runtime.ref("w", new).fetch_history()).events[error.number - 1]
        assert f"command {missed.event.command}: step {missed.event.name!r}" == error.expected
    async with hosted(journal, old, activities=ACTS) as runtime:
        handle = runtime.ref("w", old)
        await handle.signal(old.end)
        assert await handle.result() == 13


async def test_the_body_of_a_step_that_is_over_may_change():
    journal = MemoryJournal()
    old, new = version(""), version("body of what is over")
    async with hosted(journal, old, activities=ACTS) as runtime:
        await runtime.spawn(old.run, id="w")
        await settled(runtime)
    async with hosted(journal, new, activities=ACTS) as runtime:
        handle = runtime.ref("w", new)
        await handle.signal(new.end)
        assert await handle.result() == 13


@pytest.mark.parametrize("name", ["steps-completed", "steps-failed", "steps-open"])
def test_committed_histories_with_steps_replay_with_jumps_and_without(name):
    records = read(FOLDER / f"{name}.json")[1]
    activities = [climb, numbered]
    jumped = Replayed(Stepping, activities, records)
    whole = Replayed(Stepping, activities, records, jump=False)
    assert (jumped.fields, jumped.counters, jumped.outcome) == (whole.fields, whole.counters, whole.outcome)
    assert jumped.delivered < whole.delivered
    instance = replayed(FOLDER / f"{name}.json", WORKFLOWS, ACTIVITIES)
    assert instance.outcome == jumped.outcome
    instance.discard()


@pytest.mark.parametrize("name", ["steps-completed", "steps-failed", "steps-open"])
def test_a_decision_that_is_missing_is_found_unless_it_is_inside_a_step_that_is_over(name):
    _, records = read(FOLDER / f"{name}.json")
    depth = found = inside = 0
    for place, (at, record) in enumerate(records):
        for index, event in enumerate(getattr(record, "outputs", ())):
            if isinstance(event, ev.ANNOTATIONS):
                continue
            is_start, is_end = isinstance(event, StepStarted), isinstance(event, StepCompleted | StepFailed)
            depth -= is_end and event.checkpoint is not None
            outputs = record.outputs[:index] + record.outputs[index + 1 :]
            wrong = list(records)
            wrong[place] = at, ev.Turn(record.inputs, outputs, record.delivers)
            if depth:
                inside += 1
            else:
                with pytest.raises((WorkflowCrashedError, JournalCorruptError)):
                    Replayed(Stepping, [climb, numbered], wrong)
                found += 1
            depth += is_start and ends_at_a_checkpoint(records, event.command)
    assert found > 10
    assert inside > 10


def ends_at_a_checkpoint(records, command):
    return any(
        isinstance(event, StepCompleted | StepFailed)
        and event.command == command
        and event.checkpoint is not None
        for _, record in records
        for event in getattr(record, "outputs", ())
    )
