"""The fold of an open run as bytes: what start-up reads instead of its history.

A snapshot leaves out what is found elsewhere: the start's arguments (event 1 in the history) and the request ids (their
own table). It holds payloads as the journal does, so what was encrypted there is encrypted here.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from . import events as ev
from .blobs import SPILL, Spiller, restore_state
from .child_fold import NOTHING, PendingChild, PendingMessage
from .errors import JournalCorruptError
from .failures import Failure
from .fold import EMPTY, LETTERS_KEPT, Blame, PendingActivity, RunState
from .payloads import Payload
from .row_checksum import sealed, unsealed
from .run_times import next_wake, waits_to_begin
from .saga_progress import Sagas
from .step_progress import Steps
from .store import Tables

#: What start-up must do with an open run at once, whether a message comes or not.
HAS_ACTIVITIES = 1
HAS_UNREAD = 2
IS_STALLED = 4
#: The snapshot refers to blobs.
HAS_BLOBS = 8


class _Attempt(msgspec.Struct, array_like=True, frozen=True, gc=False):
    details: tuple[Payload, ...]
    has_begun: bool
    deadline: int
    cancel: int


class _Snapshot(msgspec.Struct, array_like=True, frozen=True, gc=False):
    last_event: int
    now: int
    started: ev.WorkflowStarted
    started_at: int
    cancel: ev.CancelRequested | None
    stall: ev.RunStalled | None
    activities: list[tuple[ev.ActivityScheduled, int, int, int, Failure | None]]
    timers: list[ev.TimerStarted]
    unread: dict[int, ev.AnyEvent]
    updates: dict[int, ev.UpdateReceived]
    dead_letters: list[ev.HandlerFailed]
    waiting: dict[int, str]
    dead_letter_count: int = 0  # journals of before it was counted have all of them
    attempts: dict[int, _Attempt] = {}
    pause: ev.RunPaused | None = None
    kept: dict[int, str] = {}
    blame: dict[str, Blame] = {}
    #: Uncounted attempts, suspicions and deaths of those pending activities that have any.
    lost: dict[int, tuple[int, int, int]] = {}
    published: dict[str, Payload] = {}
    sagas: Sagas | None = None
    is_escalated: bool = False
    children: dict[int, PendingChild] = {}
    messages: dict[int, PendingMessage] = {}
    steps: Steps | None = None


class OpenRun(NamedTuple):
    """What the table of open runs says of one without its snapshot being decoded.

    Attributes:
        needs: ``HAS_ACTIVITIES``, ``HAS_UNREAD``, ``IS_STALLED`` or-ed.
        wake: When a timer or a retry falls due first, microseconds; 0 when there is none.
        workflow_type: Its type.
    """

    needs: int
    wake: int
    workflow_type: str


class _OpenRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    needs: int
    wake: int
    workflow_type: str
    snapshot: msgspec.Raw


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Snapshot).decode
_decode_row = msgspec.msgpack.Decoder(_OpenRow).decode


def encode_open(state: RunState, spiller: Spiller) -> tuple[bytes, int]:
    """Encode an open run's fold as a row of the table; large payloads stay where the events have left them.

    Returns:
        The row, and when the run must be awake again: microseconds, 0 for never.
    """
    draft, wake = draft_open(state)
    return finish_open(draft, spiller), wake


def finish_open(draft: bytes, spiller: Spiller) -> bytes:
    """Make the row of a draft: the share of the work that needs no fold, for another thread."""
    if len(draft) > SPILL:
        found = _decode_row(draft)
        draft, _wake = draft_open(spiller.spill_state(_state(found)), found.needs | HAS_BLOBS)
    return sealed(draft)


def draft_open(state: RunState, needs: int = 0) -> tuple[bytes, int]:
    """Encode an open run's fold as it is now, for ``finish_open``.

    Returns:
        The draft, and when the run must be awake again: microseconds, 0 for never.
    """
    wake = next_wake(state)
    activities: list[tuple[ev.ActivityScheduled, int, int, int, Failure | None]] = []
    attempts: dict[int, _Attempt] = {}
    lost: dict[int, tuple[int, int, int]] = {}
    for command, pending in state.activities.items():
        if pending.uncounted or pending.suspicions:
            lost[command] = (pending.uncounted, pending.suspicions, pending.deaths)
        if pending.details or pending.has_begun or pending.deadline or pending.cancel:
            attempts[command] = _Attempt(pending.details, pending.has_begun, pending.deadline, pending.cancel)
        close_deadline = pending.close_deadline
        if close_deadline:
            wake = min(wake, close_deadline) if wake else close_deadline
        if pending.next_at and pending.cancel not in ev.WAITING:  # that one is over at once
            wake = min(wake, pending.next_at) if wake else pending.next_at
        else:
            needs |= HAS_ACTIVITIES
        activities.append(
            (
                pending.scheduled,
                pending.scheduled_at,
                pending.attempt,
                pending.next_at,
                pending.last_failure,
            )
        )
    if state.unread and not waits_to_begin(state):
        needs |= HAS_UNREAD
    if state.stall is not None:
        needs |= IS_STALLED
    started = state.started
    snapshot = _Snapshot(
        state.last_event,
        state.now,
        started,
        state.started_at,
        state.cancel,
        state.stall,
        activities,
        list(state.timers.values()),
        state.unread,
        state.updates,
        state.dead_letters,
        state.waiting,
        state.dead_letter_count,
        attempts,
        state.pause,
        state.kept,
        state.blame,
        lost,
        state.published,
        state.sagas,
        state.is_escalated,
        state.children,
        state.messages,
        state.steps,
    )
    return _encode((needs, wake, started.workflow_type, snapshot)), wake


def decode_open(row: bytes) -> OpenRun:
    """What start-up must know of an open run.

    Raises:
        JournalCorruptError: The row is damaged.
    """
    found = _row(row)
    return OpenRun(found.needs & ~HAS_BLOBS, found.wake, found.workflow_type)


def decode_state(row: bytes, tables: Tables | None = None) -> RunState:
    """The fold of an open run.

    Args:
        row: Of the table.
        tables: Where its large payloads are; without them references stay in their places.

    Raises:
        JournalCorruptError: The row is damaged.
    """
    stored = _row(row)
    try:
        state = _state(stored)
    except msgspec.MsgspecError as error:
        raise JournalCorruptError(f"a snapshot does not decode: {error}") from error
    return restore_state(state, tables) if stored.needs & HAS_BLOBS and tables is not None else state


def _state(row: _OpenRow) -> RunState:
    found = _decode(row.snapshot)
    state = RunState()
    state.last_event = found.last_event
    state.now = found.now
    state.started = found.started
    state.started_at = found.started_at
    state.cancel = found.cancel
    state.stall = found.stall
    for scheduled, at, attempt, next_at, failure in found.activities:
        pending = state.activities[scheduled.command] = PendingActivity(scheduled, at)
        pending.attempt = attempt
        pending.next_at = next_at
        pending.last_failure = failure
        pending.uncounted, pending.suspicions, pending.deaths = found.lost.get(scheduled.command, (0, 0, 0))
        attempt_now = found.attempts.get(scheduled.command)
        if attempt_now is not None:
            pending.details = attempt_now.details
            pending.has_begun = attempt_now.has_begun
            pending.deadline = attempt_now.deadline
            pending.cancel = attempt_now.cancel
    state.timers = {timer.command: timer for timer in found.timers}
    state.unread = found.unread
    state.updates = found.updates
    state.dead_letters = found.dead_letters[-LETTERS_KEPT:]
    state.dead_letter_count = found.dead_letter_count or len(found.dead_letters)
    state.waiting = found.waiting
    state.pause = found.pause
    state.kept = found.kept or EMPTY
    state.blame = found.blame or EMPTY
    state.published = found.published or EMPTY
    state.sagas = found.sagas
    state.is_escalated = found.is_escalated
    state.children = found.children or NOTHING
    state.messages = found.messages or NOTHING
    state.steps = found.steps
    return state


def _row(row: bytes) -> _OpenRow:
    try:
        return _decode_row(unsealed(row))
    except msgspec.MsgspecError as error:
        raise JournalCorruptError(f"a row of an open run does not decode: {error}") from error
