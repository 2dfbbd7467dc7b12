"""Sagas in replay: what was undone is undone the same way again; code that would do otherwise is found out."""

import pytest
from support import saga_workflows
from support.histories import FOLDER, read
from support.saga_workflows import ACTIVITIES, KINDS, Trip

from everact import workflow
from everact.actors.definitions import activity_definition, workflow_definition
from everact.actors.replay import replay
from everact.actors.run_end import WorkflowCrashedError
from everact.actors.workflow_instance import WorkflowInstance
from everact.exceptions import NondeterminismError
from everact.journal import events as ev
from everact.journal.payloads import PayloadConverter
from everact.journal.saga_events import (
    CompensationCompleted,
    CompensationEscalated,
    CompensationFailed,
    CompensationStarted,
)


def instance_of(cls):
    activities = {activity_definition(fn).name: activity_definition(fn) for fn in ACTIVITIES}
    return WorkflowInstance(workflow_definition(cls), activities, PayloadConverter())


def records_of(kind):
    return read(FOLDER / f"saga-{kind}.json")[1]


def without(records, *kinds):
    """The same records without events of these kinds; only for histories that deliver nothing by number."""
    return [
        (
            at,
            ev.Turn(
                record.inputs, tuple(e for e in record.outputs if not isinstance(e, kinds)), record.delivers
            ),
        )
        for at, record in records
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_each_prefix_of_a_history_replays(kind):
    """A crash may come anywhere: also between two compensations, and while the run is quarantined."""
    records = records_of(kind)
    for length in range(1, len(records) + 1):
        instance = instance_of(Trip)
        replay(instance, records[:length])
        instance.discard()


@pytest.mark.parametrize("kind", ["failed", "parallel", "cancelled"])
def test_notes_about_compensations_are_not_compared(kind):
    records = without(records_of(kind), CompensationStarted, CompensationCompleted, CompensationFailed)
    instance = instance_of(Trip)
    replay(instance, records)
    assert instance.outcome is not None
    instance.discard()


def renamed(run):
    @workflow.defn(name="Trip")
    class Other(Trip):
        @workflow.run
        async def run(self, kind: str) -> list[str]:
            return await run(self, kind)

    return Other


def found_out(cls, kind):
    instance = instance_of(cls)
    with pytest.raises(WorkflowCrashedError) as caught:
        replay(instance, records_of(kind))
    instance.discard()
    assert caught.value.kind == "held"
    assert isinstance(caught.value.error, NondeterminismError)
    return str(caught.value.error)


def test_code_that_escalates_no_more_does_not_fit_a_run_that_has():
    async def run(self, kind):
        return await Trip.run(self, {"escalated": "collected"}[kind])

    text = found_out(renamed(run), "escalated")
    assert "the journal has command 12: the quarantine for the compensation of step 'undo'" in text


def test_code_that_undoes_in_another_order_does_not_fit():
    async def run(self, kind):
        return await Trip.run(self, {"ordered": "failed"}[kind])

    # The same activity with another argument: what a command is given may change, so only the function is found out.
    text = found_out(renamed(run), "ordered")
    assert "activity 'unbook'" in text
    assert "a timer" in text
    assert "support/saga_workflows.py:" in text, "the line of the block, not of what called the run"


def test_the_corpus_has_every_event_of_a_saga():
    seen = {
        type(event) for kind in KINDS for _at, record in records_of(kind) for event in ev.events_of(record)
    }
    assert {CompensationStarted, CompensationCompleted, CompensationFailed, CompensationEscalated} <= seen
    assert saga_workflows.WORKFLOWS == [Trip]
