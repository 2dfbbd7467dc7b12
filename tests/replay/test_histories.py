"""Committed histories replay for ever: what an older Everact wrote is read, folded and repeated by this one."""

import pytest
from support.histories import FOLDER, read, replayed
from support.history_workflows import ACTIVITIES, WORKFLOWS
from support.hosting import gate
from support.wait_workflows import Waits

from everact import workflow
from everact.actors.definitions import activity_definition, workflow_definition
from everact.actors.replay import replay
from everact.actors.run_end import WorkflowCrashedError
from everact.actors.workflow_instance import WorkflowInstance
from everact.exceptions import NondeterminismError, PayloadDecodeError
from everact.journal import events as ev
from everact.journal.fold import RunState
from everact.journal.payloads import PayloadConverter

PATHS = sorted(FOLDER.glob("*.json"))
NAMES = [path.stem for path in PATHS]


def recorded_outcome(records):
    outputs = getattr(records[-1][1], "outputs", ())
    return outputs[-1] if outputs and isinstance(outputs[-1], ev.OUTCOMES) else None


def test_there_is_a_corpus():
    assert len(PATHS) >= 19


@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_a_committed_history_replays_to_the_same_outcome(path):
    outcome = recorded_outcome(read(path)[1])
    instance = replayed(path, WORKFLOWS, ACTIVITIES)
    if isinstance(outcome, ev.WorkflowTerminated | ev.WorkflowTimedOut):  # its code never knew
        assert instance.outcome is None
    elif isinstance(outcome, ev.WorkflowFailed):
        assert instance.outcome.failure.message == outcome.failure.message
    else:
        assert instance.outcome == outcome
    instance.discard()


@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_a_committed_history_folds_to_a_state_that_its_code_agrees_with(path):
    _, records = read(path)
    state = RunState()
    for at, record in records:
        state.apply(record, at)
    assert state.last_event == sum(len(r.inputs) + len(getattr(r, "outputs", ())) for _, r in records)
    instance = replayed(path, WORKFLOWS, ACTIVITIES)
    if state.outcome is None:
        assert set(instance.timers) == set(state.timers)
        assert set(instance.pending) == set(state.activities)
        waited_for = {} if instance.relations is None else instance.relations.children
        assert set(waited_for) <= set(state.children)
    else:
        assert not state.activities and not state.timers
    instance.discard()


def test_together_they_hold_every_event():
    """But those of runs that stand still for good, which the code never sees."""
    seen = set()
    for path in PATHS:
        for _, record in read(path)[1]:
            seen |= {type(event).__name__ for event in (*record.inputs, *getattr(record, "outputs", ()))}
    missing = {cls.__name__ for cls in ev.AnyEvent.__args__} - seen
    assert missing == set()


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("waits-")])
def test_an_activity_under_another_name_is_found_out_in_every_history(name):
    """Bad histories: none of them may slip through."""
    other = gate("alpha2").fn

    @workflow.defn(name="Waits")
    class Renamed(Waits):
        async def round(self, kind: str, n: int) -> None:
            await workflow.execute_activity(other, "x")
            await super().round(kind, n)

        @workflow.run
        async def run(self, kind: str) -> list[str]:
            return await Waits.run(self, kind)

    with pytest.raises(WorkflowCrashedError) as caught:
        replayed(FOLDER / f"{name}.json", [Renamed], [*ACTIVITIES, other])
    assert caught.value.kind == "held"
    assert isinstance(caught.value.error, NondeterminismError)
    assert "alpha2" in str(caught.value.error)


@pytest.mark.parametrize(
    "path", [path for path in PATHS if not path.stem.startswith("steps-")], ids=lambda p: p.stem
)
def test_a_decision_that_is_missing_in_the_history_is_found_out(path):
    """Each command and each answer, one at a time; what is inside steps: test_changed_steps.py."""
    name, records = read(path)
    converter = PayloadConverter()
    known = {workflow_definition(cls).name: workflow_definition(cls) for cls in WORKFLOWS}
    activities = {activity_definition(fn).name: activity_definition(fn) for fn in ACTIVITIES}
    tried = 0
    for place, (at, record) in enumerate(records):
        for index, event in enumerate(getattr(record, "outputs", ())):
            if isinstance(event, (*ev.ANNOTATIONS, ev.WorkflowTerminated, ev.WorkflowTimedOut)):
                continue
            outputs = record.outputs[:index] + record.outputs[index + 1 :]
            wrong = [
                *records[:place],
                (at, ev.Turn(record.inputs, outputs, record.delivers)),
                *records[place + 1 :],
            ]
            instance = WorkflowInstance(known[name], activities, converter, workflows=known)
            with pytest.raises(WorkflowCrashedError) as caught:
                replay(instance, wrong)
            assert caught.value.kind == "held"
            instance.discard()
            tried += 1
    assert tried >= 2


def test_a_stored_argument_that_does_not_fit_any_more_holds_the_run():
    @workflow.defn(name="Everything")
    class Narrow:
        @workflow.run
        async def run(self, title: int, limit: int = 3) -> None:
            pass

    with pytest.raises(WorkflowCrashedError) as caught:
        replayed(FOLDER / "everything-open.json", [Narrow], ACTIVITIES)
    assert caught.value.kind == "held"
    assert isinstance(caught.value.error, PayloadDecodeError)
