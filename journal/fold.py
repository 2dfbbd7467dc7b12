"""The state of a run as a fold over its records: no user code, changed in place.

Recovery, ``describe``, listing and the re-arming of timers need only this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import structs

from . import child_fold
from . import events as ev
from .child_fold import NOTHING, PendingChild, PendingMessage
from .failures import Failure
from .payloads import Payload
from .pending_activity import PendingActivity as PendingActivity  # noqa: PLC0414  (a part of the fold)
from .run_ends import STATUS_OF, moves_messages
from .saga_events import (
    CompensationCompleted,
    CompensationEscalated,
    CompensationFailed,
    CompensationStarted,
)
from .saga_progress import Sagas, compensation_ended, compensation_started
from .step_events import StepAttemptFailed, StepCancelled, StepCompleted, StepFailed, StepStarted
from .step_progress import Steps

RUNNING = "running"
PAUSED = "paused"

#: Answers of updates that are kept in memory; a repeat that asks for an older one reads it from the history.
ANSWERS_KEPT = 100
#: Messages that could not be handled, with their reasons, that are kept in memory; the history has all of them.
LETTERS_KEPT = 100


#: What most runs have nothing of: one for all, never changed. An empty dict takes 64 bytes.
EMPTY: dict[Any, Any] = {}
#: Of ``RunState.blame``: a turn of the run.
TURN = "turn"
#: Type of the failure that a lost attempt leaves.
LOST = "AttemptLostError"


class Blame(NamedTuple):
    """Deaths of the process while some code of a run ran, since the run has last progressed.

    Attributes:
        deaths: While nothing else ran.
        suspicions: All of them.
        life: The newest life that ended so.
    """

    deaths: int
    suspicions: int
    life: str


class RunState:
    """What the journal knows of one run.

    Attributes:
        last_event: Number of the newest event; 0 before the first.
        started: The start, without its arguments; its memo as it is now.
        now: Time of the newest turn, never going back.
        activities: Pending activities by command number.
        timers: Pending timers by command number.
        unread: Received messages and other inputs that no turn has delivered, by event number.
        updates: Delivered updates without an outcome, by event number.
        answers: Outcomes of the newest updates that came with a request id, by event number.
        dead_letters: The newest messages that could not be handled.
        dead_letter_count: How many there have been.
        waiting: Places of the conditions waited for without a time limit, by number of the wait.
        pause: Who does not want it to go on, and why; None while nobody does.
        kept: Names of delivered signals that no handler has taken yet, by event number.
        blame: Deaths of the process while its code ran, by what ran (``RunBlamed.what``); empty once it progresses.
        published: What its code lets outsiders read, by key.
        sagas: How far its sagas are with their compensations, by number; None before the first compensation.
        is_escalated: A compensation of a saga has quarantined it.
        children: Open children by command number; of an ended run those that its end found open.
        messages: Messages to other runs that are not answered, by command number.
        steps: How far it is with its steps; None before the first one.
    """

    __slots__ = (
        "activities",
        "answers",
        "blame",
        "cancel",
        "children",
        "closed_at",
        "dead_letter_count",
        "dead_letters",
        "is_escalated",
        "kept",
        "last_event",
        "messages",
        "now",
        "outcome",
        "pause",
        "published",
        "sagas",
        "stall",
        "started",
        "started_at",
        "steps",
        "timers",
        "unread",
        "updates",
        "waiting",
    )

    def __init__(self) -> None:
        self.last_event = 0
        self.now = 0
        self.started: ev.WorkflowStarted = None  # type: ignore[assignment]  # event 1 always sets it
        self.started_at = 0
        self.closed_at = 0
        self.outcome: ev.Outcome | None = None
        self.cancel: ev.CancelRequested | None = None
        self.stall: ev.RunStalled | None = None
        self.activities: dict[int, PendingActivity] = {}
        self.timers: dict[int, ev.TimerStarted] = {}
        self.unread: dict[int, ev.AnyEvent] = {}
        self.updates: dict[int, ev.UpdateReceived] = {}
        self.answers: dict[int, Payload | ev.UpdateFailed] = {}
        self.dead_letters: list[ev.HandlerFailed] = []  # a deque takes 600 bytes, and hardly any run has one
        self.dead_letter_count = 0
        self.waiting: dict[int, str] = {}
        self.pause: ev.RunPaused | None = None
        self.kept: dict[int, str] = EMPTY
        self.blame: dict[str, Blame] = EMPTY
        self.published: dict[str, Payload] = EMPTY
        self.sagas: Sagas | None = None
        self.is_escalated = False
        self.children: dict[int, PendingChild] = NOTHING
        self.messages: dict[int, PendingMessage] = NOTHING
        self.steps: Steps | None = None

    @property
    def status(self) -> str:
        """One word, of ``run_status.STATUSES``."""
        if self.outcome is not None:
            return STATUS_OF[type(self.outcome)]
        if self.stall is not None:
            return self.stall.kind
        return RUNNING if self.pause is None else PAUSED

    @property
    def answer_bytes(self) -> int:
        """Size of what an ended run is kept in memory for: its result, what it published, its answers to updates."""
        size = len(self.outcome.result.data) if type(self.outcome) is ev.WorkflowCompleted else 0
        if self.published:
            size += sum(len(value.data) for value in self.published.values())
        if self.answers:
            size += sum(len(answer.data) for answer in self.answers.values() if isinstance(answer, Payload))
        return size

    def apply(self, record: ev.Record, at: int) -> None:
        """Fold one record in.

        Args:
            record: The run's next record.
            at: Wall clock of the record, microseconds.
        """
        self.now = max(self.now, at)
        number = self.last_event
        if type(record) is ev.Turn:
            if self.blame and (
                record.delivers or (record.inputs and type(record.inputs[0]) not in ev.SILENT)
            ):
                self.blame.clear()
            for event in record.inputs:
                number += 1
                apply = _APPLY.get(type(event))
                if apply is not None:
                    apply(self, number, at, event)
            unread = self.unread
            if unread:
                for delivered in record.delivers:
                    message = unread.pop(delivered, None)
                    if type(message) is ev.UpdateReceived:
                        self.updates[delivered] = message
                    elif (
                        type(message) is ev.WorkflowStarted and message.begins_at
                    ):  # that is when it has begun
                        self.started = structs.replace(self.started, begins_at=at)
            for event in record.outputs:
                number += 1
                apply = _APPLY.get(type(event))
                if apply is not None:
                    apply(self, number, at, event)
        else:
            for event in record.inputs:
                number += 1
                self.unread[number] = event
                apply = _APPLY.get(type(event))
                if apply is not None:
                    apply(self, number, at, event)
                self.updates.pop(number, None)
        self.last_event = number


_Apply = Callable[[RunState, int, int, Any], None]


def _started(state: RunState, _number: int, at: int, event: ev.WorkflowStarted) -> None:
    # Only the first turn wants the arguments, and finds them in the event.
    state.started = structs.replace(event, args=()) if event.args else event
    state.started_at = at


def _signal(state: RunState, _number: int, _at: int, event: ev.SignalReceived) -> None:
    if event.redrives:
        state.dead_letters = [letter for letter in state.dead_letters if letter.message != event.redrives]
        state.dead_letter_count -= 1


def _update(state: RunState, number: int, _at: int, event: ev.UpdateReceived) -> None:
    state.updates[number] = event


def _cancel(state: RunState, _number: int, _at: int, event: ev.CancelRequested) -> None:
    if state.cancel is None:
        state.cancel = event


def _activity_done(
    state: RunState,
    _number: int,
    _at: int,
    event: ev.ActivityCompleted | ev.ActivityFailed | ev.ActivityCancelled,
) -> None:
    state.activities.pop(event.command, None)


def _attempt_failed(state: RunState, _number: int, _at: int, event: ev.AttemptFailed) -> None:
    pending = state.activities.get(event.command)
    if pending is not None:
        pending.attempt = event.attempt + 1
        pending.next_at = event.next_at
        pending.last_failure = event.failure
        pending.details = event.details or pending.details
        pending.has_begun = False
        pending.deadline = 0


def _attempt_noted(state: RunState, _number: int, _at: int, event: ev.AttemptNoted) -> None:
    pending = state.activities.get(event.command)
    if pending is not None:
        pending.details = event.details or pending.details
        pending.has_begun = True
        pending.deadline = event.deadline or pending.deadline


def _attempt_lost(state: RunState, _number: int, at: int, event: ev.AttemptLost) -> None:
    pending = state.activities.get(event.command)
    if pending is not None:
        pending.attempt = event.attempt + 1
        pending.next_at = at
        pending.has_begun = False
        pending.deadline = 0
        pending.last_failure = Failure(LOST, message=event.reason)
        pending.uncounted += not event.counted
        pending.suspicions += event.suspected
        pending.deaths += event.blamed


def _blamed(state: RunState, _number: int, _at: int, event: ev.RunBlamed) -> None:
    before = state.blame.get(event.what, Blame(0, 0, ""))
    if state.blame is EMPTY:
        state.blame = {}
    state.blame[event.what] = Blame(before.deaths + event.alone, before.suspicions + 1, event.life)


def _timer_done(state: RunState, _number: int, _at: int, event: ev.TimerFired | ev.TimerCancelled) -> None:
    state.timers.pop(event.command, None)


def _stalled(state: RunState, _number: int, _at: int, event: ev.RunStalled) -> None:
    state.stall = event


def _released(state: RunState, _number: int, _at: int, _event: ev.RunReleased) -> None:
    state.stall = None
    state.is_escalated = False
    if TURN in state.blame:  # as often again; and its inputs are kept first, as before
        state.blame[TURN] = state.blame[TURN]._replace(deaths=0)


def _paused(state: RunState, _number: int, _at: int, event: ev.RunPaused) -> None:
    state.pause = event


def _resumed(state: RunState, _number: int, _at: int, _event: ev.RunResumed) -> None:
    state.pause = None


def _scheduled(state: RunState, _number: int, at: int, event: ev.ActivityScheduled) -> None:
    state.activities[event.command] = PendingActivity(event, at)


def _activity_cancelled(state: RunState, _number: int, _at: int, event: ev.ActivityCancelRequested) -> None:
    if event.mode == ev.TRY_CANCEL:
        state.activities.pop(event.command, None)
    elif event.command in state.activities:
        state.activities[event.command].cancel = event.mode


def _memo(state: RunState, _number: int, _at: int, event: ev.MemoUpserted) -> None:
    memo = dict(zip(state.started.memo_names, state.started.memo, strict=True))
    memo.update(zip(event.names, event.memo, strict=False))
    for name in event.names[len(event.memo) :]:
        memo.pop(name, None)
    state.started = structs.replace(state.started, memo_names=tuple(memo), memo=tuple(memo.values()))


def _timer_started(state: RunState, _number: int, _at: int, event: ev.TimerStarted) -> None:
    state.timers[event.command] = event


def _waits(state: RunState, _number: int, _at: int, event: ev.ConditionAwaited) -> None:
    state.waiting[event.wait] = event.place


def _waited(state: RunState, _number: int, _at: int, event: ev.ConditionMet) -> None:
    state.waiting.pop(event.wait, None)


def _published(state: RunState, _number: int, _at: int, event: ev.ValuePublished) -> None:
    if event.value is None:
        state.published.pop(event.key, None)
    else:
        if state.published is EMPTY:
            state.published = {}
        state.published[event.key] = event.value


def _kept(state: RunState, _number: int, _at: int, event: ev.SignalKept) -> None:
    if state.kept is EMPTY:
        state.kept = {}
    state.kept[event.message] = event.name


def _taken(state: RunState, _number: int, _at: int, event: ev.SignalTaken) -> None:
    state.kept.pop(event.message, None)


def _update_done(state: RunState, _number: int, _at: int, event: ev.UpdateCompleted) -> None:
    received = state.updates.pop(event.update, None)
    if received is not None and received.request_id:
        _answer(state, event.update, event.result)


def _answer(state: RunState, update: int, answer: Payload | ev.UpdateFailed) -> None:
    answers = state.answers
    answers[update] = answer
    if len(answers) > ANSWERS_KEPT:
        del answers[next(iter(answers))]


def _update_failed(state: RunState, _number: int, _at: int, event: ev.UpdateFailed) -> None:
    received = state.updates.pop(event.update, None)
    if received is not None and received.request_id:
        _answer(state, event.update, event)


def _dead_letter(state: RunState, _number: int, _at: int, event: ev.HandlerFailed) -> None:
    letters = state.dead_letters
    letters.append(event)
    del letters[:-LETTERS_KEPT]
    state.dead_letter_count += 1


def _compensation_started(state: RunState, _number: int, _at: int, event: CompensationStarted) -> None:
    state.sagas = compensation_started(state.sagas, event)


def _compensation_ended(
    state: RunState, _number: int, _at: int, event: CompensationCompleted | CompensationFailed
) -> None:
    compensation_ended(state.sagas, event)


def _escalated(state: RunState, _number: int, _at: int, event: CompensationEscalated) -> None:
    if any(type(unread) is ev.RunReleased for unread in state.unread.values()):
        return  # it failed while the run stood still; the release that comes next lets it begin again with the others
    state.stall = ev.RunStalled("quarantined", event.failure)
    state.is_escalated = True


def _step_started(state: RunState, _number: int, at: int, event: StepStarted) -> None:
    if state.steps is None:
        state.steps = Steps()
    state.steps.start(at, event)


def _step_retried(state: RunState, _number: int, _at: int, event: StepAttemptFailed) -> None:
    if state.steps is not None:
        state.steps.retry(event)


def _step_ended(
    state: RunState, _number: int, at: int, event: StepCompleted | StepFailed | StepCancelled
) -> None:
    if state.steps is not None:
        state.steps.end(at, event)


def _closed(state: RunState, _number: int, at: int, event: ev.Outcome) -> None:
    state.outcome = event
    state.closed_at = at
    if moves_messages(event):
        state.unread = {}
        state.kept = EMPTY
    state.stall = None
    state.pause = None
    state.is_escalated = False
    state.activities.clear()
    state.timers.clear()
    state.messages.clear()
    state.waiting.clear()
    state.blame.clear()
    if state.steps is not None:
        state.steps.close(at)


_APPLY: dict[type, _Apply] = {
    ev.WorkflowStarted: _started,
    ev.SignalReceived: _signal,
    ev.UpdateReceived: _update,
    ev.CancelRequested: _cancel,
    ev.ActivityCompleted: _activity_done,
    ev.ActivityFailed: _activity_done,
    ev.AttemptFailed: _attempt_failed,
    ev.AttemptLost: _attempt_lost,
    ev.ActivityCancelled: _activity_done,
    ev.AttemptNoted: _attempt_noted,
    ev.TimerFired: _timer_done,
    ev.RunStalled: _stalled,
    ev.RunReleased: _released,
    ev.RunPaused: _paused,
    ev.RunResumed: _resumed,
    ev.RunBlamed: _blamed,
    ev.ActivityScheduled: _scheduled,
    ev.ActivityCancelRequested: _activity_cancelled,
    ev.TimerStarted: _timer_started,
    ev.TimerCancelled: _timer_done,
    ev.MemoUpserted: _memo,
    ev.ConditionAwaited: _waits,
    ev.ConditionMet: _waited,
    ev.ValuePublished: _published,
    ev.SignalKept: _kept,
    ev.SignalTaken: _taken,
    ev.UpdateCompleted: _update_done,
    ev.UpdateFailed: _update_failed,
    ev.HandlerFailed: _dead_letter,
    CompensationStarted: _compensation_started,
    CompensationCompleted: _compensation_ended,
    CompensationFailed: _compensation_ended,
    CompensationEscalated: _escalated,
    ev.WorkflowCompleted: _closed,
    ev.WorkflowFailed: _closed,
    ev.WorkflowCancelled: _closed,
    ev.WorkflowTerminated: _closed,
    ev.WorkflowContinuedAsNew: _closed,
    ev.WorkflowTimedOut: _closed,
    **child_fold.APPLY,
    StepStarted: _step_started,
    StepAttemptFailed: _step_retried,
    StepCompleted: _step_ended,
    StepFailed: _step_ended,
    StepCancelled: _step_ended,
}
