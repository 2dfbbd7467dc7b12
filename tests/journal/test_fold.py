"""What the journal knows of a run: a fold over its records, without user code."""

import copy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everact.journal import events as ev
from everact.journal.blobs import Spiller
from everact.journal.failures import Failure
from everact.journal.fold import LETTERS_KEPT, Blame, RunState
from everact.journal.payloads import NULL, Payload
from everact.journal.row_checksum import sealed, unsealed
from everact.journal.snapshots import decode_state, encode_open

STARTED = ev.WorkflowStarted("w", "r", "T", (), "start-1", b"s")
WHY = Failure(type="Broken", message="no")
ONE = Payload("json", b"1")


def snapshot(state):
    """Everything a state holds, comparable."""
    taken = {}
    for name in RunState.__slots__:
        value = getattr(state, name)
        if name == "activities":
            value = {
                key: (p.scheduled, p.scheduled_at, p.attempt, p.next_at, p.last_failure)
                for key, p in value.items()
            }
        taken[name] = copy.copy(value)
    return taken


def fold(*records, at=100):
    state = RunState()
    for position, record in enumerate(records):
        state.apply(record, at + position)
    return state


def started(*more):
    return fold(ev.Turn((STARTED,)), *more)


def test_the_first_event_says_who_the_run_is():
    state = started()
    assert (state.started, state.started_at, state.last_event, state.status) == (STARTED, 100, 1, "running")


def test_a_state_does_not_hold_the_arguments_of_the_start():
    with_arguments = msgspec.structs.replace(STARTED, args=(Payload("json", b"large"),))
    state = fold(ev.Received((with_arguments,)))
    assert state.unread[1] == with_arguments  # its first turn is still to come
    state.apply(ev.Turn((), (), (1,)), 101)
    assert (state.started, state.unread) == (STARTED, {})


def test_events_are_numbered_through_inputs_and_outputs():
    state = started(
        ev.Turn((ev.SignalReceived("a"),), (ev.TimerStarted(1, 5, 105), ev.ActivityScheduled(2, "x"))),
        ev.Received((ev.SignalReceived("b"), ev.SignalReceived("c"))),
    )
    assert state.last_event == 6
    assert list(state.unread) == [5, 6]


def test_the_time_of_a_run_never_goes_back():
    state = RunState()
    state.apply(ev.Turn((STARTED,)), 500)
    state.apply(ev.Turn((ev.SignalReceived("a"),)), 300)
    assert state.now == 500
    state.apply(ev.Turn((ev.SignalReceived("a"),)), 700)
    assert state.now == 700


@pytest.mark.parametrize("end", [ev.ActivityCompleted(1, 1, ONE), ev.ActivityFailed(1, 1, WHY)])
def test_an_activity_is_pending_until_its_outcome(end):
    state = started(ev.Turn((ev.SignalReceived("a"),), (ev.ActivityScheduled(1, "x"),)))
    assert (state.activities[1].attempt, state.activities[1].scheduled_at) == (1, 101)
    state.apply(ev.Turn((end,)), 200)
    assert state.activities == {}


def test_a_received_outcome_ends_the_wait_at_receipt():
    state = started(
        ev.Turn((ev.SignalReceived("a"),), (ev.ActivityScheduled(1, "x"), ev.TimerStarted(2, 5, 105)))
    )
    state.apply(ev.Received((ev.ActivityCompleted(1, 1, ONE), ev.TimerFired(2))), 200)
    assert (state.activities, state.timers) == ({}, {})
    assert len(state.unread) == 2


def test_a_failed_attempt_moves_the_fence_and_the_next_start():
    state = started(ev.Turn((ev.SignalReceived("a"),), (ev.ActivityScheduled(1, "x"),)))
    state.apply(ev.Turn((ev.AttemptFailed(1, 1, WHY, 900),)), 200)
    pending = state.activities[1]
    assert (pending.attempt, pending.next_at, pending.last_failure) == (2, 900, WHY)


def test_events_about_what_is_over_change_nothing():
    state = started()
    before = snapshot(state)
    for event in (
        ev.AttemptFailed(7, 1, WHY, 9),
        ev.ActivityCompleted(7, 1, ONE),
        ev.TimerFired(7),
        ev.TimerCancelled(7),
        ev.ActivityCancelRequested(7),
        ev.UpdateCompleted(7, ONE),
        ev.UpdateFailed(7, WHY),
    ):
        state.apply(ev.Turn((), (event,)), 100)
    after = snapshot(state)
    assert before | {"last_event": 8} == after


@pytest.mark.parametrize("record", [ev.Turn((ev.TimerFired(1),)), ev.Turn((), (ev.TimerCancelled(1),))])
def test_a_timer_is_pending_until_it_fires_or_is_cancelled(record):
    state = started(ev.Turn((ev.SignalReceived("a"),), (ev.TimerStarted(1, 5, 105),)))
    assert state.timers == {1: ev.TimerStarted(1, 5, 105)}
    state.apply(record, 105)
    assert state.timers == {}


def test_only_the_first_cancel_request_is_kept():
    state = started(ev.Turn((ev.CancelRequested("one"),)), ev.Turn((ev.CancelRequested("two"),)))
    assert state.cancel == ev.CancelRequested("one")


def test_a_received_cancel_request_is_known_before_it_is_delivered():
    state = started(ev.Received((ev.CancelRequested("one"),)))
    assert state.cancel == ev.CancelRequested("one")
    assert list(state.unread) == [2]


def test_stall_and_release():
    state = started(ev.Turn((ev.RunStalled("quarantined", WHY),)))
    assert state.status == "quarantined"
    state.apply(ev.Turn((ev.RunStalled("held", WHY),)), 200)
    assert state.status == "held"
    state.apply(ev.Turn((ev.RunReleased("again"),)), 300)
    assert (state.status, state.stall) == ("running", None)


def test_received_messages_stay_unread_until_a_turn_delivers_them():
    state = started(
        ev.Received((ev.SignalReceived("a"),)),
        ev.Received((ev.UpdateReceived("b"), ev.SignalReceived("c"))),
    )
    assert list(state.unread) == [2, 3, 4]
    assert state.updates == {}
    state.apply(ev.Turn((), (), (2,)), 200)
    assert list(state.unread) == [3, 4]
    state.apply(ev.Turn((), (), (4, 3)), 200)
    assert state.unread == {}
    assert state.updates == {3: ev.UpdateReceived("b")}


def test_an_update_is_open_from_delivery_to_its_answer():
    state = started(ev.Turn((ev.UpdateReceived("b", (), "q", b"d"),)))
    assert list(state.updates) == [2]
    state.apply(ev.Turn((ev.SignalReceived("a"),), (ev.UpdateCompleted(2, ONE),)), 200)
    assert (list(state.updates), state.answers) == ([], {2: ONE})


def test_answers_are_kept_for_updates_with_a_request_id_only():
    failed = ev.UpdateFailed(3, WHY)
    state = started(
        ev.Turn((ev.UpdateReceived("b"),), (ev.UpdateCompleted(2, ONE),)),
    )
    assert state.answers == {}
    state = started(
        ev.Turn((ev.SignalReceived("a", (), "s", b"x"),)),
        ev.Turn((ev.UpdateReceived("b", (), "u", b"y"),), (failed,)),
    )
    assert state.answers == {3: failed}


def test_a_failed_handler_leaves_a_dead_letter():
    state = started(ev.Turn((ev.SignalReceived("a"),), (ev.HandlerFailed(2, WHY),)))
    assert list(state.dead_letters) == [ev.HandlerFailed(2, WHY)]


def test_a_dead_letter_that_is_delivered_again_is_none_any_more():
    letters = [ev.Turn((ev.SignalReceived("a"),), (ev.HandlerFailed(2 * n, WHY),)) for n in (1, 2)]
    state = started(*letters, ev.Turn((ev.SignalReceived("a", redrives=2),)))
    assert [letter.message for letter in state.dead_letters] == [4]
    assert state.dead_letter_count == 1
    state.apply(ev.Received((ev.SignalReceived("a", redrives=4),)), 200)
    assert (list(state.dead_letters), state.dead_letter_count) == ([], 0)
    for number in range(LETTERS_KEPT + 1):  # the limit is as it was
        state.apply(ev.Turn((ev.SignalReceived("a"),), (ev.HandlerFailed(number, WHY),)), 200)
    assert (len(state.dead_letters), state.dead_letter_count) == (LETTERS_KEPT, LETTERS_KEPT + 1)


def test_a_pause_shows_unless_the_run_stands_still_and_ends_with_the_run():
    state = started(ev.Turn((ev.RunPaused("why"),)))
    assert (state.status, state.pause) == ("paused", ev.RunPaused("why"))
    state.apply(ev.Turn((ev.RunStalled("held", WHY),)), 200)
    assert state.status == "held"
    again = decode_state(encode_open(state, Spiller("0"))[0])
    for each in (state, again):
        each.apply(ev.Turn((ev.RunReleased(),)), 200)
        assert each.status == "paused"
        each.apply(ev.Turn((), (ev.WorkflowTerminated(),)), 200)
        assert (each.status, each.pause) == ("terminated", None)
    state = started(ev.Turn((ev.RunPaused("why"),)), ev.Turn((ev.RunResumed(),)))
    assert (state.status, state.pause) == ("running", None)


def test_kept_signals_are_known_until_they_are_taken():
    state = started(
        ev.Turn((ev.SignalReceived("a"),), (ev.SignalKept(2, "a"),)),
        ev.Turn((ev.SignalReceived("b"),), (ev.SignalKept(4, "b"), ev.SignalTaken(2))),
    )
    assert state.kept == {4: "b"}
    assert decode_state(encode_open(state, Spiller("0"))[0]).kept == {4: "b"}
    state.apply(ev.Turn((), (ev.WorkflowTerminated(),)), 200)
    assert state.kept == {4: "b"}  # a dead letter


def test_of_very_many_dead_letters_the_newest_are_kept_and_all_are_counted():
    number = LETTERS_KEPT + 20
    bad = [ev.Turn((ev.SignalReceived("a"),), (ev.HandlerFailed(2 * n, WHY),)) for n in range(1, number + 1)]
    state = started(*bad)
    kept = [ev.HandlerFailed(2 * n, WHY) for n in range(21, number + 1)]
    again = decode_state(encode_open(state, Spiller("0"))[0])
    for each in (state, again, Spiller("0").spill_state(state)):
        assert list(each.dead_letters) == kept
        assert each.dead_letter_count == number
        each.apply(ev.Turn((ev.SignalReceived("a"),), (ev.HandlerFailed(7, WHY),)), 200)
        assert (len(each.dead_letters), each.dead_letters[-1].message) == (LETTERS_KEPT, 7)


def test_a_snapshot_of_before_dead_letters_were_counted_has_all_of_them():
    state = started(*[ev.Turn((ev.SignalReceived("a"),), (ev.HandlerFailed(2, WHY),))] * 3)
    needs, wake, kind, snapshot = msgspec.msgpack.decode(unsealed(encode_open(state, Spiller("0"))[0]))
    old = snapshot[:12]  # so many fields it had
    old[old.index([old[10][0]] * 3)] = [old[10][0]] * (LETTERS_KEPT + 5)
    found = decode_state(sealed(msgspec.msgpack.encode([needs, wake, kind, old])))
    assert (len(found.dead_letters), found.dead_letter_count) == (LETTERS_KEPT, LETTERS_KEPT + 5)


def test_a_lost_attempt_is_followed_by_another_and_says_why():
    state = started(
        ev.Turn((ev.SignalReceived("a"),), (ev.ActivityScheduled(1, "pay"), ev.ActivityScheduled(2, "ship"))),
        ev.Turn((ev.AttemptLost(1, 1, "the process died", True, True, True),)),
        ev.Turn((ev.AttemptLost(1, 2, "the machine died", False),)),
        ev.Turn((ev.AttemptLost(1, 3, "the process died", True, True, False),)),
    )
    again = decode_state(encode_open(state, Spiller("0"))[0])
    for each in (state, again, Spiller("0").spill_state(state)):
        pending = each.activities[1]
        assert pending.attempt == 4
        assert (pending.uncounted, pending.suspicions, pending.deaths) == (1, 2, 1)
        assert pending.last_failure == Failure("AttemptLostError", message="the process died")
        assert each.activities[2].attempt == 1


def test_deaths_count_until_the_run_progresses():
    deaths = [
        ev.Turn((ev.RunBlamed("00", "turn", True),)),
        ev.Turn((ev.RunBlamed("01", "turn", False),)),
        ev.Turn((ev.RunBlamed("02", "query look", True),)),
    ]
    state = started(ev.Turn((ev.SignalReceived("a"),)), *deaths)
    expected = {"turn": Blame(1, 2, "01"), "query look": Blame(1, 1, "02")}
    again = decode_state(encode_open(state, Spiller("0"))[0])
    for each in (state, again):
        assert each.blame == expected
        each.apply(ev.Received((ev.SignalReceived("b"),)), 200)
        assert each.blame == expected
        each.apply(ev.Turn((ev.RunReleased("by hand"),)), 200)
        assert each.blame == {**expected, "turn": Blame(0, 2, "01")}
        each.apply(ev.Turn((), (), tuple(each.unread)), 200)
        assert each.blame == {}


def test_the_end_forgets_deaths():
    state = started(ev.Turn((ev.RunBlamed("00", "turn"),)))
    state.apply(ev.Turn((), (ev.WorkflowTerminated(),)), 200)
    assert state.blame == {}


def test_a_snapshot_has_what_is_known_of_attempts_and_one_of_before_has_none():
    said = (Payload("json", b"1"), Payload("json", b"2"))
    limits = ev.LimitsRecord(schedule_to_start=5, schedule_to_close=70)
    state = started(
        ev.Turn(
            (ev.SignalReceived("a"),),
            tuple(ev.ActivityScheduled(n, "pay", limits=limits) for n in (1, 2, 3, 4)),
        ),
        ev.Turn((ev.AttemptNoted(1, 1, said),)),
        ev.Turn((ev.AttemptNoted(2, 1, (), 900),)),
        ev.Turn((ev.AttemptFailed(3, 1, WHY, 500, said),)),
        ev.Turn(
            (ev.SignalReceived("a"),),
            (ev.ActivityCancelRequested(2, ev.WAIT_CANCELLED), ev.ActivityCancelRequested(4)),
        ),
    )
    row, wake = encode_open(state, Spiller("0"))
    at = state.activities[1].scheduled_at
    assert wake == min(500, at + 70)
    again = decode_state(row)
    for each in (state, again, Spiller("0").spill_state(state)):
        assert sorted(each.activities) == [1, 2, 3]
        first, second, third = each.activities.values()
        assert (first.details, first.has_begun, first.start_deadline, first.close_deadline) == (
            said,
            True,
            0,
            at + 70,
        )
        assert (second.deadline, second.cancel, second.has_begun) == (900, ev.WAIT_CANCELLED, True)
        assert (third.details, third.attempt, third.has_begun, third.start_deadline) == (said, 2, False, 505)
    needs, wake, kind, snapshot = msgspec.msgpack.decode(unsealed(row))
    old = decode_state(sealed(msgspec.msgpack.encode([needs, wake, kind, snapshot[:12]])))
    assert [pending.details for pending in old.activities.values()] == [(), (), ()]
    assert old.activities[2].cancel == 0


def test_conditions_wait_until_they_are_met():
    state = started(
        ev.Turn((ev.SignalReceived("a"),), (ev.ConditionAwaited("f:1", 1), ev.ConditionAwaited("f:2", 2)))
    )
    assert list(state.waiting.values()) == ["f:1", "f:2"]
    state.apply(ev.Turn((ev.SignalReceived("a"),), (ev.HandlerFailed(3, WHY),)), 200)
    assert list(state.waiting.values()) == ["f:1", "f:2"]
    state.apply(ev.Turn((ev.SignalReceived("a"),), (ev.ConditionMet(1), ev.ConditionAwaited("f:3", 3))), 200)
    assert list(state.waiting.values()) == ["f:2", "f:3"]


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (ev.WorkflowCompleted(NULL), "completed"),
        (ev.WorkflowFailed(WHY), "failed"),
        (ev.WorkflowCancelled(), "cancelled"),
        (ev.WorkflowTerminated(), "terminated"),
    ],
)
def test_the_end_of_a_run_leaves_nothing_pending(outcome, status):
    state = started(
        ev.Turn((ev.SignalReceived("a"),), (ev.ActivityScheduled(1, "x"), ev.TimerStarted(2, 5, 105))),
        ev.Turn((ev.RunStalled("held", WHY),)),
        ev.Received((ev.SignalReceived("late"),)),
    )
    state.apply(ev.Turn((), (outcome,)), 900)
    assert (state.status, state.closed_at, state.outcome) == (status, 900, outcome)
    assert (state.activities, state.timers, state.stall) == ({}, {}, None)
    assert list(state.unread.values()) == [ev.SignalReceived("late")]


# --- the same for any run ----------------------------------------------------------------------------------------

small = st.integers(1, 6)
names = st.sampled_from(["a", "b"])
requests = st.sampled_from(["", "q1", "q2"])
inputs = st.one_of(
    st.builds(ev.SignalReceived, names, st.just(()), requests, st.sampled_from([b"1", b"2"])),
    st.builds(ev.UpdateReceived, names, st.just(()), requests, st.sampled_from([b"1", b"2"])),
    st.builds(ev.CancelRequested, names),
    st.builds(ev.ActivityCompleted, small, small, st.just(ONE)),
    st.builds(ev.ActivityFailed, small, small, st.just(WHY)),
    st.builds(ev.AttemptFailed, small, small, st.just(WHY), small),
    st.builds(ev.TimerFired, small),
    st.builds(ev.RunStalled, st.sampled_from(["held", "quarantined"]), st.just(WHY)),
    st.builds(ev.RunReleased),
)
outputs = st.one_of(
    st.builds(ev.ActivityScheduled, small, names),
    st.builds(ev.ActivityCancelRequested, small),
    st.builds(ev.TimerStarted, small, small, small),
    st.builds(ev.TimerCancelled, small),
    st.builds(ev.ConditionAwaited, names),
    st.builds(ev.UpdateCompleted, small, st.just(ONE)),
    st.builds(ev.UpdateFailed, small, st.just(WHY), st.booleans()),
    st.builds(ev.HandlerFailed, small, st.just(WHY)),
    st.builds(ev.WorkflowCompleted, st.just(NULL)),
    st.builds(ev.WorkflowTerminated),
)
records = st.one_of(
    st.builds(
        ev.Turn,
        st.lists(inputs, max_size=2).map(tuple),
        st.lists(outputs, max_size=3).map(tuple),
        st.lists(small, max_size=2, unique=True).map(tuple),
    ),
    st.builds(ev.Received, st.lists(inputs, min_size=1, max_size=2).map(tuple)),
)
histories = st.lists(st.tuples(records, st.integers(0, 1000)), max_size=12)


@given(histories)
def test_folding_decoded_copies_gives_the_same_state(history):
    live, recovered = RunState(), RunState()
    for record, at in [(ev.Turn((STARTED,)), 1), *history]:
        live.apply(record, at)
        recovered.apply(ev.decode_record(ev.encode_record(record)), at)
        assert snapshot(live) == snapshot(recovered)


@given(histories)
def test_the_fold_reads_its_records_only(history):
    """No clock, no chance, no shared state: folding twice gives the same, and changes no record."""
    copies = [ev.encode_record(record) for record, _ in history]
    states = []
    for _ in range(2):
        state = RunState()
        state.apply(ev.Turn((STARTED,)), 1)
        for record, at in history:
            state.apply(record, at)
        states.append(snapshot(state))
    assert states[0] == states[1]
    assert copies == [ev.encode_record(record) for record, _ in history]


@given(histories)
def test_event_numbers_have_no_holes(history):
    state = RunState()
    count = 0
    for record, at in history:
        state.apply(record, at)
        count += len(record.inputs) + len(getattr(record, "outputs", ()))
        assert state.last_event == count
