"""The events of a run, and the records that carry them in the journal.

Tags and field order never change; a new field goes to the end, with a default. Times are microseconds of wall
clock since the epoch, durations are microseconds. Events of a run are numbered from 1 in the order in which
they stand in its records; a message is known by its event number, a command by its command number.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .chain_events import WorkflowContinuedAsNew as WorkflowContinuedAsNew  # noqa: PLC0414
from .chain_events import WorkflowTimedOut as WorkflowTimedOut  # noqa: PLC0414
from .child_events import ChildEvent
from .event_base import Event as Event  # noqa: PLC0414  (all events are found here)
from .event_base import Header as Header  # noqa: PLC0414
from .event_base import WorkflowStarted as WorkflowStarted  # noqa: PLC0414
from .event_base import event_fields as event_fields  # noqa: PLC0414
from .failures import Failure
from .payloads import Payload
from .publish_events import ValuePublished as ValuePublished  # noqa: PLC0414
from .run_chain import NextRun
from .run_chain import RetryRecord as RetryRecord  # noqa: PLC0414
from .saga_events import (
    Compensating,
    CompensationCompleted,
    CompensationFailed,
    CompensationStarted,
)
from .step_events import StepEvent


class LimitsRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Limits of an activity beyond that of one attempt, as they were at the call; 0 is none."""

    schedule_to_start: int = 0
    schedule_to_close: int = 0
    heartbeat: int = 0


# --- inputs: what a run receives ------------------------------------------------------------------------------


class SignalReceived(Event, tag="sr", frozen=True):
    """A signal (``tell``) was accepted; ``redrives`` is the event number of the dead letter that it delivers again."""

    name: str
    args: tuple[Payload, ...] = ()
    request_id: str = ""
    digest: bytes = b""
    redrives: int = 0
    headers: tuple[Header, ...] = ()


class UpdateReceived(Event, tag="ur", frozen=True):
    """An update (``ask``) was accepted."""

    name: str
    args: tuple[Payload, ...] = ()
    request_id: str = ""
    digest: bytes = b""
    headers: tuple[Header, ...] = ()


class CancelRequested(Event, tag="cr", frozen=True):
    """Somebody asked the run to cancel itself; a flag that stays."""

    reason: str = ""
    request_id: str = ""


class ActivityCompleted(Event, tag="ac", frozen=True):
    """The activity's result is in."""

    command: int
    attempt: int
    result: Payload


class ActivityFailed(Event, tag="af", frozen=True):
    """The activity failed for good; ``retry_state`` says why there is no further attempt."""

    command: int
    attempt: int
    failure: Failure
    retry_state: str = ""


class AttemptFailed(Event, tag="at", frozen=True):
    """One attempt failed and another will follow at ``next_at``; user code does not see it.

    ``details`` is what its heartbeats said last, for the next attempt.
    """

    command: int
    attempt: int
    failure: Failure
    next_at: int
    details: tuple[Payload, ...] = ()


class ActivityCancelled(Event, tag="an", frozen=True):
    """The activity that the run asked to stop, and waited for, is over without a result."""

    command: int
    attempt: int


class AttemptNoted(Event, tag="ah", frozen=True):
    """An attempt runs, and its heartbeats have said ``details``; user code does not see it.

    ``deadline`` is not 0 once its code has returned and somebody else completes it, until then at the latest.
    """

    command: int
    attempt: int
    details: tuple[Payload, ...] = ()
    deadline: int = 0


class AttemptLost(Event, tag="al", frozen=True):
    """The process died while an attempt was in hand; another follows. User code does not see it.

    Attributes:
        command: Of the activity.
        attempt: Its number.
        reason: Why, for people.
        counted: It counts for the retry policy; not when the machine died, or the process was to be ended.
        suspected: Its code ran when the process died.
        blamed: Nothing else ran then.
    """

    command: int
    attempt: int
    reason: str
    counted: bool = True
    suspected: bool = False
    blamed: bool = False


class TimerFired(Event, tag="tf", frozen=True):
    """A timer's deadline has passed."""

    command: int


class RunStalled(Event, tag="rs", frozen=True):
    """The run cannot go on as its code is: ``kind`` is ``quarantined`` or ``held``. Inputs are kept."""

    kind: str
    failure: Failure


class RunReleased(Event, tag="rr", frozen=True):
    """A stalled run is tried again."""

    reason: str = ""
    request_id: str = ""
    digest: bytes = b""


class RunPaused(Event, tag="rp", frozen=True):
    """Somebody has paused the run: from here on inputs are received and not delivered."""

    reason: str = ""
    request_id: str = ""
    digest: bytes = b""


class RunResumed(Event, tag="ru", frozen=True):
    """The pause is over; what was received meanwhile is delivered."""

    reason: str = ""
    request_id: str = ""
    digest: bytes = b""


class RunBlamed(Event, tag="rb", frozen=True):
    """The process died while code of the run ran; user code does not see it.

    Attributes:
        life: Names the life of the process that died.
        what: ``turn``, ``query NAME`` or ``validator NAME``.
        alone: Nothing else ran then, so that it counts.
    """

    life: str
    what: str
    alone: bool = True


# --- outputs: what a run decides ------------------------------------------------------------------------------


class ActivityScheduled(Event, tag="as", frozen=True):
    """Command: run an activity.

    ``retry`` None is the default policy of this format; ``keywords`` names the last arguments, those that were
    given by keyword. ``repeats`` is the command whose idempotency key this one has too; 0 is its own.
    """

    command: int
    activity_type: str
    args: tuple[Payload, ...] = ()
    start_to_close: int = 300_000_000
    retry: RetryRecord | None = None
    keywords: tuple[str, ...] = ()
    limits: LimitsRecord | None = None
    repeats: int = 0
    headers: tuple[Header, ...] = ()


#: What a run does about an activity that it cancels: ask it to stop, also wait until it has, let it go on; or wait for
#: its end without breaking into it.
TRY_CANCEL, WAIT_CANCELLED, ABANDON, WAIT_COMPLETED = range(4)
#: With these the activity is still pending until it is over.
WAITING = frozenset([WAIT_CANCELLED, WAIT_COMPLETED])


class ActivityCancelRequested(Event, tag="ax", frozen=True):
    """Command: stop that activity; the run no longer waits for its result.

    ``mode`` 1: it waits until the activity is over. 2: the activity is not asked to stop. 3: the run waits, and the
    activity's code is not broken into: it hears of the cancel when it asks.
    """

    command: int
    mode: int = TRY_CANCEL


class TimerStarted(Event, tag="ts", frozen=True):
    """Command: wake the run at ``deadline``, ``duration`` after the turn."""

    command: int
    duration: int
    deadline: int


class TimerCancelled(Event, tag="tc", frozen=True):
    """Command: that timer is no longer wanted."""

    command: int


class ConditionAwaited(Event, tag="ca", frozen=True):
    """Annotation: the run waits for a condition without a time limit; replay does not compare it.

    ``wait`` counts the run's waits from 1.
    """

    place: str
    wait: int = 0


class ConditionMet(Event, tag="cm", frozen=True):
    """Annotation: that wait is over, one way or the other; replay does not compare it."""

    wait: int


class TaskFailed(Event, tag="bf", frozen=True):
    """Annotation: a background task raised, and no code has looked at it; replay does not compare it."""

    task: str
    failure: Failure


class SideEffectRecorded(Event, tag="se", frozen=True):
    """Command: what a function gave that is not to be called again; one of the two is there."""

    command: int
    result: Payload | None = None
    failure: Failure | None = None


class MemoUpserted(Event, tag="mu", frozen=True):
    """Command: these notes of the run have these values from now on; a name without a value is taken out.

    The first of ``names`` belong to ``memo``, in order.
    """

    names: tuple[str, ...]
    memo: tuple[Payload, ...] = ()


class SignalKept(Event, tag="sk", frozen=True):
    """Annotation: a signal has no handler yet, and is kept for one; replay does not compare it."""

    message: int
    name: str


class SignalTaken(Event, tag="sh", frozen=True):
    """Annotation: a handler has come for that kept signal; replay does not compare it."""

    message: int


class RandomDrawn(Event, tag="rd", frozen=True):
    """Annotation: the random numbers that the turn has drawn, in order; replay does not compare it.

    Each of ``draws`` is the name of a stream, the number of the command that came next, and how many were drawn.
    """

    draws: tuple[tuple[str, int, int], ...]


class UpdateCompleted(Event, tag="uc", frozen=True):
    """The handler of the update received as event ``update`` returned."""

    update: int
    result: Payload


class UpdateFailed(Event, tag="uf", frozen=True):
    """The handler of that update raised, or (``rejected``) its validator refused it."""

    update: int
    failure: Failure
    rejected: bool = False


class HandlerFailed(Event, tag="hf", frozen=True):
    """A signal could not be handled: its dead letter."""

    message: int
    failure: Failure
    name: str = ""


class WorkflowCompleted(Event, tag="wc", frozen=True):
    """The run returned; ``next`` follows when it has a schedule. Terminal."""

    result: Payload
    next: NextRun | None = None


class WorkflowFailed(Event, tag="wf", frozen=True):
    """The run failed. Terminal.

    ``suppressed`` are the messages whose handlers failed in the same turn; ``next`` follows when it is tried again, or
    has a schedule.
    """

    failure: Failure
    suppressed: tuple[int, ...] = ()
    next: NextRun | None = None


class WorkflowCancelled(Event, tag="wx", frozen=True):
    """The run observed its cancel request and ended. Terminal."""

    reason: str = ""


class WorkflowTerminated(Event, tag="wt", frozen=True):
    """The run was closed from outside, without running its code. Terminal."""

    reason: str = ""


AnyEvent = (
    WorkflowStarted
    | SignalReceived
    | UpdateReceived
    | CancelRequested
    | ActivityCompleted
    | ActivityFailed
    | AttemptFailed
    | AttemptLost
    | ActivityCancelled
    | AttemptNoted
    | TimerFired
    | RunStalled
    | RunReleased
    | RunBlamed
    | RunPaused
    | RunResumed
    | ActivityScheduled
    | ActivityCancelRequested
    | TimerStarted
    | TimerCancelled
    | ConditionAwaited
    | ConditionMet
    | TaskFailed
    | SideEffectRecorded
    | MemoUpserted
    | SignalKept
    | SignalTaken
    | UpdateCompleted
    | UpdateFailed
    | HandlerFailed
    | WorkflowCompleted
    | WorkflowFailed
    | WorkflowCancelled
    | WorkflowTerminated
    | ValuePublished
    | RandomDrawn
    | Compensating
    | ChildEvent
    | WorkflowContinuedAsNew
    | WorkflowTimedOut
    | StepEvent
)

Message = SignalReceived | UpdateReceived
StatusChange = RunStalled | RunReleased | RunPaused | RunResumed
Outcome = (
    WorkflowCompleted
    | WorkflowFailed
    | WorkflowCancelled
    | WorkflowTerminated
    | WorkflowContinuedAsNew
    | WorkflowTimedOut
)

#: Inputs that a request id may come with, and a digest of what they say.
WITH_DIGEST = (WorkflowStarted, SignalReceived, UpdateReceived, RunPaused, RunResumed, RunReleased)
#: Inputs that change the fold only; user code never sees them.
SILENT = (
    AttemptFailed,
    AttemptLost,
    AttemptNoted,
    RunStalled,
    RunReleased,
    RunBlamed,
    RunPaused,
    RunResumed,
)
#: Outputs that only tell outsiders what goes on in the run.
ANNOTATIONS = (
    ConditionAwaited,
    ConditionMet,
    TaskFailed,
    SignalKept,
    SignalTaken,
    RandomDrawn,
    CompensationStarted,
    CompensationCompleted,
    CompensationFailed,
)
OUTCOMES = (
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowCancelled,
    WorkflowTerminated,
    WorkflowContinuedAsNew,
    WorkflowTimedOut,
)


class Turn(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="T"):
    """One delivery: what went in, what came out.

    Attributes:
        inputs: Events that enter the history with this turn.
        outputs: What the code decided, in program order.
        delivers: Numbers of the events delivered, in order; empty means the inputs, in order.
    """

    inputs: tuple[AnyEvent, ...]
    outputs: tuple[AnyEvent, ...] = ()
    delivers: tuple[int, ...] = ()


class Received(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="R"):
    """Inputs that are durable and not delivered yet."""

    inputs: tuple[AnyEvent, ...]


Record = Turn | Received

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Turn | Received)

encode_record = _encoder.encode


def decode_record(body: bytes) -> Record:
    """Decode an entry's body.

    Raises:
        msgspec.DecodeError: The bytes are no record of this format.
    """
    return _decoder.decode(body)


def events_of(record: Record) -> tuple[AnyEvent, ...]:
    """The events of a record in the order of their numbers."""
    return (*record.inputs, *record.outputs) if isinstance(record, Turn) else record.inputs


def with_events(record: Record, inputs: Iterable[AnyEvent], outputs: Iterable[AnyEvent] = ()) -> Record:
    """A record like this one with other events."""
    if isinstance(record, Turn):
        return Turn(tuple(inputs), tuple(outputs), record.delivers)
    return Received(tuple(inputs))
