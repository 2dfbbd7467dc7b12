"""What the journal knows of a run's steps, without user code."""

import msgspec
import pytest

from everact.journal import events as ev
from everact.journal.blobs import Spiller
from everact.journal.failures import Failure
from everact.journal.fold import RunState
from everact.journal.run_document import plain, structured
from everact.journal.snapshots import decode_state, encode_open
from everact.journal.step_events import (
    Checkpoint,
    StepAttemptFailed,
    StepCancelled,
    StepCompleted,
    StepFailed,
    StepStarted,
)
from everact.journal.step_progress import STEPS_KEPT

STARTED = ev.WorkflowStarted("w", "r", "T")
BROKEN = Failure("Broken")
POINT = Checkpoint(9, 2, 3, 100, ("gone",), (("uuid4", 4, None), ("random/", 6, 0.5)))


def fold(*outputs):
    state = RunState()
    state.apply(ev.Turn((STARTED,)), 100)
    for position, events in enumerate(outputs, 1):
        state.apply(ev.Turn((), tuple(events)), 100 + position)
    return state


def shown(step):
    return step.command, step.name, step.status, step.attempt, step.started_at, step.ended_at


def test_a_run_without_steps_has_no_place_for_them():
    assert fold().steps is None


@pytest.mark.parametrize(
    ("end", "status", "is_checkpoint"),
    [
        (StepCompleted(1), "completed", False),
        (StepCompleted(1, checkpoint=POINT), "completed", True),
        (StepCompleted(1, "on_error", BROKEN), "completed", False),
        (StepCompleted(1, "optional", BROKEN), "skipped", False),
        (StepFailed(1, BROKEN), "failed", False),
        (StepFailed(1, BROKEN, POINT), "failed", True),
        (StepCancelled(1), "cancelled", False),
    ],
)
def test_a_step_runs_from_its_start_to_its_end(end, status, is_checkpoint):
    state = fold([StepStarted(1, "charge")])
    assert list(map(shown, state.steps.running.values())) == [(1, "charge", "running", 1, 101, 0)]
    state = fold([StepStarted(1, "charge")], [StepAttemptFailed(1, 1, BROKEN, 150)], [end])
    assert state.steps.running == {}
    assert list(map(shown, state.steps.ended)) == [(1, "charge", status, 2, 101, 103)]
    assert state.steps.ended[0].is_checkpoint is is_checkpoint
    assert state.steps.counts == {status: 1}


def test_a_failed_attempt_says_when_the_next_one_begins():
    state = fold([StepStarted(1, "charge")], [StepAttemptFailed(1, 1, BROKEN, 150)])
    (step,) = state.steps.running.values()
    assert (step.attempt, step.next_at) == (2, 150)


def test_what_runs_when_the_run_ends_is_unfinished():
    state = fold([StepStarted(1, "outer"), StepStarted(2, "inner", 1)], [ev.WorkflowTerminated()])
    assert [(step.name, step.status, step.ended_at) for step in state.steps.ended] == [
        ("outer", "unfinished", 102),
        ("inner", "unfinished", 102),
    ]
    assert state.steps.counts == {"unfinished": 2}


def test_ten_thousand_steps_keep_the_fold_small():
    turns = [[StepStarted(n, f"s{n}"), StepCompleted(n)] for n in range(1, 10_001)]
    state = fold(*turns)
    assert [step.command for step in state.steps.ended] == list(range(10_001 - STEPS_KEPT, 10_001))
    assert state.steps.counts == {"completed": 10_000}
    row, _wake = encode_open(state, Spiller("j"))
    assert len(row) < 3_000


def test_a_snapshot_holds_the_steps():
    state = fold(
        [StepStarted(1, "one"), StepCompleted(1, checkpoint=POINT), StepStarted(3, "two")],
        [StepAttemptFailed(3, 1, BROKEN, 150)],
    )
    row, _wake = encode_open(state, Spiller("j"))
    assert decode_state(row).steps == state.steps
    assert decode_state(encode_open(fold(), Spiller("j"))[0]).steps is None


def test_events_of_steps_survive_an_export():
    event = StepCompleted(4, "on_error", BROKEN, POINT, None, ("a",), ())
    document = msgspec.json.decode(msgspec.json.encode(plain(event)))
    assert structured(StepCompleted, document) == event
