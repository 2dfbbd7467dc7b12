"""How far sagas are, as the journal knows it: folded, kept in snapshots, and checked."""

import pytest

from everact.journal import events as ev
from everact.journal.blobs import Spiller
from everact.journal.failures import Failure
from everact.journal.fold import RunState
from everact.journal.run_check import RunCheck
from everact.journal.saga_events import (
    CompensationCompleted,
    CompensationEscalated,
    CompensationFailed,
    CompensationStarted,
)
from everact.journal.saga_progress import SAGAS_KEPT, SagaProgress
from everact.journal.snapshots import decode_open, decode_state, encode_open
from everact.journal.store import STARTS_RUN, Entry

STARTED = ev.WorkflowStarted("w", "r", "T")
WHY = Failure("Broken", message="no")


def started(step, name, saga=1, total=3):
    return CompensationStarted(saga, step, name, f"undo_{name}", "trip", total)


def folded(*outputs):
    state = RunState()
    state.apply(ev.Turn((STARTED,), tuple(outputs)), 100)
    return state


def again(state):
    return decode_state(encode_open(state, Spiller("j"))[0])


def test_a_run_without_compensations_has_none():
    assert folded().sagas is None
    assert again(folded()).sagas is None


def test_what_runs_is_done_and_has_failed_is_known():
    state = folded(
        started(1, "a"),
        CompensationCompleted(1, 1, "a"),
        started(2, "b"),
        CompensationFailed(1, 2, "b", WHY),
        started(3, "c"),
    )
    expected = {1: SagaProgress("trip", 3, 1, {3: "c"}, {2: "b"})}
    assert state.sagas == expected
    assert again(state).sagas == expected


def test_an_escalation_quarantines_until_it_is_released():
    state = folded(
        started(1, "a"), CompensationFailed(1, 1, "a", WHY), CompensationEscalated(4, 1, 1, "a", WHY)
    )
    for seen in (state, again(state)):
        assert seen.status == "quarantined"
        assert seen.stall == ev.RunStalled("quarantined", WHY)
        assert seen.is_escalated
    state.apply(ev.Received((ev.RunReleased("try"),)), 200)
    assert (state.status, state.is_escalated, list(state.unread)) == ("running", False, [5])
    state.apply(ev.Turn((), (started(1, "a"),), (5,)), 300)
    assert state.sagas == {1: SagaProgress("trip", 3, 0, {1: "a"}, {})}
    assert not again(state).is_escalated


def test_what_failed_before_a_release_waits_for_it_and_not_for_another():
    state = folded(
        started(1, "a"),
        started(2, "b"),
        CompensationFailed(1, 1, "a", WHY),
        CompensationEscalated(4, 1, 1, "a", WHY),
    )
    state.apply(ev.Received((ev.ActivityFailed(3, 1, WHY),)), 200)
    state.apply(ev.Received((ev.RunReleased("try"),)), 300)
    late = (CompensationFailed(1, 2, "b", WHY), CompensationEscalated(5, 1, 2, "b", WHY))
    first = next(iter(state.unread))
    state.apply(ev.Turn((), late, (first,)), 400)
    assert (state.status, state.is_escalated, list(state.unread)) == ("running", False, [first + 1])
    state.apply(ev.Turn((), (started(1, "a"), started(2, "b")), (first + 1,)), 500)
    state.apply(ev.Turn((), late), 600)  # after the release it is another failure
    assert (state.status, state.is_escalated) == ("quarantined", True)


def test_an_ended_run_keeps_what_its_sagas_have_done_and_is_escalated_no_more():
    state = folded(
        started(1, "a"),
        CompensationFailed(1, 1, "a", WHY),
        CompensationEscalated(4, 1, 1, "a", WHY),
        ev.WorkflowTerminated("by hand"),
    )
    assert (state.status, state.is_escalated) == ("terminated", False)
    assert state.sagas == {1: SagaProgress("trip", 3, 0, {}, {1: "a"})}


def test_the_newest_sagas_are_kept_and_those_that_are_at_it():
    outputs = [started(1, "slow", saga=1)]
    for saga in range(2, SAGAS_KEPT + 10):
        outputs += [started(1, "a", saga=saga), CompensationCompleted(saga, 1, "a")]
    state = folded(*outputs)
    assert len(state.sagas) == SAGAS_KEPT
    assert 1 in state.sagas
    assert SAGAS_KEPT + 9 in state.sagas
    assert 2 not in state.sagas
    state.apply(ev.Turn((), (CompensationCompleted(2, 1, "a"),), ()), 200)  # of one that is not kept


def test_an_older_snapshot_without_sagas_decodes():
    state = folded(started(1, "a"))
    state.sagas = None
    row, _wake = encode_open(state, Spiller("j"))
    assert decode_open(row).workflow_type == "T"
    assert decode_state(row).sagas is None


@pytest.mark.parametrize(
    "event",
    [
        CompensationCompleted(1, 2, "a"),
        CompensationFailed(1, 2, "a", WHY),
        CompensationEscalated(3, 1, 2, "a", WHY),
    ],
)
def test_the_end_of_a_compensation_that_was_never_started_is_found(event):
    check = RunCheck(1)
    record = ev.Turn((STARTED,), (started(1, "a"), event))
    wrong = check.take(Entry(1, 1, STARTS_RUN, 100, ev.encode_record(record)))
    assert (3, f"{type(event).__name__} is for compensation 2 of saga 1, which was never started") in wrong
