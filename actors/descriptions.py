"""What outsiders see of a run: a summary in lists, a description, its history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec

from ..journal import events as ev
from ..journal.child_fold import PendingMessage
from ..journal.coded_fields import About
from ..journal.errors import PayloadCodecError
from ..journal.failures import Failure, full_text, one_line
from ..journal.fold import RunState
from ..journal.payloads import PayloadConverter
from ..journal.run_ends import next_run
from ..journal.run_row import RunRow
from ..journal.run_times import deadline, waits_to_begin
from .chains import attempt_of, failure_left, first_run_id
from .child_options import CLOSE_POLICY_NAMES
from .dead_letters import DeadLetter, dead_letter, left_at_the_end
from .errors import with_limit_told
from .event_coder import EventCoder
from .failure_conversion import decode_detail
from .memos import decode_memo
from .saga_info import SagaInfo, sagas_of
from .step_info import StepInfo, counts_of, steps_of

E = TypeVar("E", bound=ev.Event)

#: Open children that a description lists, and how many of them are named in one line.
CHILDREN_SHOWN = 100
NAMED = 3


def utc(at: int) -> datetime:
    """A time of the journal (microseconds since the epoch) as a datetime."""
    return datetime.fromtimestamp(at // 1_000_000, UTC).replace(microsecond=at % 1_000_000)


@dataclass(frozen=True)
class WorkflowSummary:
    """One line of a list.

    Attributes:
        workflow_id: Its id.
        run_id: The run.
        workflow_type: Its type.
        status: running, paused, quarantined, held; completed, failed, cancelled, terminated, timed_out or
            continued_as_new.
        started_at: UTC.
        closed_at: UTC; None while open.
        parent_id: Workflow id of the run whose child it is; None when it is nobody's.
        first_run_id: The first run of its chain; its own run id when it is that.
        continued_from: The run before; None for the first one.
        continued_to: The run that follows; None when there is none.
    """

    workflow_id: str
    run_id: str
    workflow_type: str
    status: str
    started_at: datetime
    closed_at: datetime | None
    parent_id: str | None
    first_run_id: str = field(default="", kw_only=True)
    continued_from: str | None = field(default=None, kw_only=True)
    continued_to: str | None = field(default=None, kw_only=True)


def summary(row: RunRow) -> WorkflowSummary:
    """A run's line in lists."""
    links = row.links
    return WorkflowSummary(
        row.workflow_id,
        row.run_id,
        row.workflow_type,
        row.status,
        utc(row.started_at),
        utc(row.closed_at) if row.closed_at else None,
        row.parent_id or None,
        first_run_id=row.run_id if links is None else links.first_run_id,
        continued_from=None if links is None else links.continued_from or None,
        continued_to=None if links is None else links.continued_to or None,
    )


@dataclass(frozen=True)
class PendingActivityInfo:
    """An activity that has no outcome yet.

    Attributes:
        activity_type: Its name.
        command: Number of the call in the run.
        attempt: The attempt that runs, or runs next.
        scheduled_at: UTC.
        next_attempt_at: When the next attempt may start; None when one runs or is about to.
        last_failure: Why the attempt before failed.
        cancel_requested: The run has asked it to stop, and waits until it has.
        completed_outside: Its code has ended, and whoever has its task token completes it.
    """

    activity_type: str
    command: int
    attempt: int
    scheduled_at: datetime
    next_attempt_at: datetime | None
    last_failure: str | None
    cancel_requested: bool = False
    completed_outside: bool = False


@dataclass(frozen=True)
class ParentInfo:
    """The run that has started this one as its child.

    Attributes:
        workflow_id: Its workflow id.
        run_id: The run.
    """

    workflow_id: str
    run_id: str


@dataclass(frozen=True)
class PendingChildInfo:
    """A child that is open, as far as its parent knows; of an ended run one that its end found open.

    Attributes:
        workflow_id: Its id.
        run_id: The run that was started.
        workflow_type: Its type.
        command: Number of the call in the parent.
        scheduled_at: UTC.
        close_policy: What the parent's end does to it: ``terminate``, ``request_cancel`` or ``abandon``.
        cancel_requested: The parent has asked it to cancel.
        status: Of its newest run, as of the moment that it is looked at; ``starting`` before that exists.
    """

    workflow_id: str
    run_id: str
    workflow_type: str
    command: int
    scheduled_at: datetime
    close_policy: str
    cancel_requested: bool
    status: str = ""


@dataclass(frozen=True)
class WorkflowDescription(WorkflowSummary):
    """Everything known of a run without running its code.

    Attributes:
        pending_activities: What it waits for.
        timers: Deadlines of its timers, soonest first.
        conditions: Places of the conditions that it waits for without a time limit.
        cancel_requested: Somebody has asked it to cancel.
        backlog: Received inputs that no turn has delivered, and signals that wait for a handler.
        dead_letters: The newest messages that could not be handled, at most 100 and those left at its end.
        dead_letter_count: How many there are; ``HandlerFailed`` in the history has all of them.
        failure: Why it failed, or why it stands still.
        pause_reason: What was given for its pause; None when it is not paused.
        history_length: Number of its events.
        deaths: How often the process died while its code ran, and nothing else, since it has last progressed.
        attempt: Of its retry policy, from 1.
        cron_schedule: Its schedule, or None.
        begins_at: When it is to begin; None once it has.
        deadline: When it must be over by its limits; None without any, and once it has ended.
        memo: Notes that belong to it, by name; a value that does not decode comes as its ``Payload``.
        published: What its code has published, by key; values as in ``memo``.
        sagas: Those that undo, or have undone, what they did; the newest, at most 100.
        parent: Whose child it is; None when it is nobody's.
        children: Its open children in the order in which they were started, at most 100.
        child_count: How many of them there are.
        messages: What it has sent to other runs that is not answered, a line each.
        cancel_reason: What was given with the request to cancel it; None when nobody has asked.
        terminate_reason: What was given when it was terminated; None when it was not.
        steps: The newest 50 steps that have ended, in the order of their ends, then those that run.
        step_counts: How many steps have ended, by status.
    """

    pending_activities: tuple[PendingActivityInfo, ...]
    timers: tuple[datetime, ...]
    conditions: tuple[str, ...]
    cancel_requested: bool
    backlog: int
    dead_letters: tuple[DeadLetter, ...]
    dead_letter_count: int
    failure: str | None
    pause_reason: str | None
    history_length: int
    memo: dict[str, Any]
    deaths: int = 0
    published: dict[str, Any] = field(default_factory=dict)
    sagas: tuple[SagaInfo, ...] = ()
    parent: ParentInfo | None = None
    children: tuple[PendingChildInfo, ...] = ()
    child_count: int = 0
    messages: tuple[str, ...] = ()
    attempt: int = 1
    cron_schedule: str | None = None
    begins_at: datetime | None = None
    deadline: datetime | None = None
    cancel_reason: str | None = None
    terminate_reason: str | None = None
    steps: tuple[StepInfo, ...] = ()
    step_counts: dict[str, int] = field(default_factory=dict)

    @property
    def current_step(self) -> str | None:
        """Name of the step that began last and still runs."""
        running = [step.name for step in self.steps if step.ended_at is None]
        return running[-1] if running else None

    @property
    def waiting_on(self) -> str:
        """One line: what the run waits for."""
        waits = [] if self.begins_at is None else [f"its time to begin, {self.begins_at:%Y-%m-%d %H:%M:%S}"]
        waits += [f"activity {a.activity_type} (attempt {a.attempt})" for a in self.pending_activities]
        waits += [f"timer until {t:%Y-%m-%d %H:%M:%S}" for t in self.timers]
        waits += [
            place if place.startswith("signal ") else f"condition at {place}" for place in self.conditions
        ]
        waits += [f"child {child.workflow_id}" + _aside(child.status) for child in self.children[:NAMED]]
        if self.child_count > NAMED:
            waits.append(f"{self.child_count - NAMED:,} more children")
        waits += self.messages[:NAMED]
        if self.status == "paused":
            waits.insert(0, "resume")
        elif self.status in {"quarantined", "held"}:
            waits.insert(0, "release")
        return "; ".join(waits) or ("nothing" if self.closed_at or self.failure else "a message")


def _aside(status: str) -> str:
    return f" ({status})" if status in {"paused", "quarantined", "held"} else ""


class Observation(NamedTuple):
    """What was seen of a run's fold at one moment, its failures as they are stored.

    Attributes:
        about: The description without its texts of failures.
        last_failures: Of the pending activities, in their order.
        letters: Failures of the newest dead letters, in their order.
        failure: Why it failed, or why it stands still.
        started: The start; its memo as it is now.
        published: What its code has published, each as the event that did so.
    """

    about: WorkflowDescription
    last_failures: tuple[Failure | None, ...]
    letters: tuple[ev.HandlerFailed, ...]
    failure: ev.RunStalled | ev.WorkflowFailed | None
    started: ev.WorkflowStarted
    published: tuple[ev.ValuePublished, ...]


def observe(state: RunState) -> Observation:
    """Look at a run's fold."""
    started = state.started
    failure: ev.RunStalled | ev.WorkflowFailed | None = state.stall
    if failure is None and isinstance(state.outcome, ev.WorkflowFailed):
        failure = state.outcome
    elif (timeout := failure_left(state.outcome)) is not None:
        failure = ev.WorkflowFailed(timeout)
    left = left_at_the_end(state)
    following, limit, is_open = next_run(state.outcome), deadline(state), state.outcome is None
    about = WorkflowDescription(
        workflow_id=started.workflow_id,
        run_id=started.run_id,
        workflow_type=started.workflow_type,
        status=state.status,
        started_at=utc(state.started_at),
        closed_at=utc(state.closed_at) if state.closed_at else None,
        parent_id=started.parent_id or None,
        pending_activities=tuple(
            PendingActivityInfo(
                pending.scheduled.activity_type,
                command,
                pending.attempt,
                utc(pending.scheduled_at),
                utc(pending.next_at) if pending.next_at else None,
                None,
                pending.cancel in ev.WAITING,
                pending.deadline > 0,
            )
            for command, pending in state.activities.items()
        ),
        timers=tuple(sorted(utc(timer.deadline) for timer in state.timers.values())),
        conditions=tuple(state.waiting.values()),
        cancel_requested=state.cancel is not None,
        backlog=0 if state.outcome else len(state.unread) + len(state.kept),
        dead_letters=left,
        dead_letter_count=state.dead_letter_count + len(left),
        failure=None,
        pause_reason=None if state.pause is None else state.pause.reason,
        history_length=state.last_event,
        deaths=sum(blame.deaths for blame in state.blame.values()),
        memo={},
        sagas=sagas_of(state.sagas),
        parent=None
        if started.parent is None
        else ParentInfo(started.parent.workflow_id, started.parent.run_id),
        children=tuple(
            PendingChildInfo(
                child.workflow_id,
                child.run_id,
                child.workflow_type,
                command,
                utc(child.scheduled_at),
                CLOSE_POLICY_NAMES[child.close_policy],
                child.cancel_requested,
            )
            for command, child in islice(state.children.items(), CHILDREN_SHOWN)
        ),
        child_count=len(state.children),
        messages=tuple(_message_text(message) for message in state.messages.values()),
        first_run_id=first_run_id(started),
        continued_from=None if started.chain is None else started.chain.continued_run_id,
        continued_to=None if following is None else following.run_id,
        attempt=attempt_of(started),
        cron_schedule=None if started.options is None else started.options.cron or None,
        begins_at=utc(started.begins_at) if is_open and waits_to_begin(state) else None,
        deadline=utc(limit) if is_open and limit else None,
        cancel_reason=None if state.cancel is None else state.cancel.reason,
        terminate_reason=state.outcome.reason if type(state.outcome) is ev.WorkflowTerminated else None,
        steps=steps_of(state.steps),
        step_counts=counts_of(state.steps),
    )
    return Observation(
        about,
        tuple(pending.last_failure for pending in state.activities.values()),
        tuple(state.dead_letters),
        failure,
        started,
        published_events(state),
    )


def published_events(state: RunState) -> tuple[ev.ValuePublished, ...]:
    """What a run has published, as events: only those are known to the payload codecs."""
    return tuple([ev.ValuePublished(key, value) for key, value in state.published.items()])


def _message_text(message: PendingMessage) -> str:
    what = {"signal": f"signal {message.name} to", "start": "start of", "cancel": "cancel of"}[message.kind]
    return f"{what} workflow {message.workflow_id}"


def with_statuses(seen: WorkflowDescription, status_of: Callable[[str], str]) -> WorkflowDescription:
    """The same description with what is known of its children."""
    if not seen.children:
        return seen
    children = tuple(replace(child, status=status_of(child.workflow_id)) for child in seen.children)
    return replace(seen, children=children)


def describe(seen: Observation, converter: PayloadConverter) -> WorkflowDescription:
    """Describe a run from what was seen of its fold; the failures in it are plain."""
    return replace(
        seen.about,
        memo=decode_memo(converter, seen.started.memo_names, seen.started.memo),
        published={
            event.key: decode_detail(event.value, converter) for event in seen.published if event.value
        },
        pending_activities=tuple(
            activity if failure is None else replace(activity, last_failure=one_line(failure))
            for activity, failure in zip(seen.about.pending_activities, seen.last_failures, strict=True)
        ),
        dead_letters=(*map(dead_letter, seen.letters), *seen.about.dead_letters),
        failure=None if seen.failure is None else _failure_text(seen.failure),
    )


def _failure_text(event: ev.RunStalled | ev.WorkflowFailed) -> str:
    text = full_text(with_limit_told(event.failure))
    if isinstance(event, ev.WorkflowFailed) and event.suppressed:
        numbers = ", ".join(map(str, event.suppressed))
        text += f"\nIn the same turn the handlers of these messages failed too: {numbers} (see the history)."
    return text


async def readable(seen: Observation, coder: EventCoder, about: About) -> Observation:
    """The same observation with its failures decoded; one that cannot be decoded says why in place of its message."""
    # As events: only those are known to the codecs. That of an attempt may be our own words, as that of a stall.
    return seen._replace(
        last_failures=tuple(
            [
                failure and (await _readable(ev.RunStalled("", failure), coder, about)).failure
                for failure in seen.last_failures
            ]
        ),
        letters=tuple([await _readable(letter, coder, about) for letter in seen.letters]),
        failure=seen.failure and await _readable(seen.failure, coder, about),
        started=await _if_readable(seen.started, coder, about),
        published=tuple([await _if_readable(event, coder, about) for event in seen.published]),
    )


async def _if_readable(event: E, coder: EventCoder, about: About) -> E:
    """The event decoded; as it is when it cannot be decoded."""
    try:
        decoded: E = (await coder.decode([event], about))[0]
    except PayloadCodecError:
        return event
    return decoded


async def _readable(event: Any, coder: EventCoder, about: About) -> Any:
    try:
        return (await coder.decode([event], about))[0]
    except PayloadCodecError as error:
        failure = msgspec.structs.replace(
            event.failure, message=f"(not readable: {error})", coded=None, cause=None
        )
        return msgspec.structs.replace(event, failure=failure)


@dataclass(frozen=True)
class HistoryEvent:
    """One event of a run.

    Attributes:
        number: From 1.
        at: When its turn ran, UTC.
        kind: Name of the event, such as ``ActivityScheduled``.
        event: The event itself.
    """

    number: int
    at: datetime
    kind: str
    event: ev.Event

    @property
    def fields(self) -> dict[str, Any]:
        """The event's fields by name."""
        return ev.event_fields(self.event)


class History:
    """All events of a run, in order.

    Attributes:
        workflow_id: Its id.
        run_id: The run.
        records: Its records, each with its time in microseconds; plain, whatever payload codecs the journal has.
        events: Every event, numbered.
    """

    def __init__(self, workflow_id: str, run_id: str, records: list[tuple[int, ev.Record]]) -> None:
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.records = records
        self.events: list[HistoryEvent] = []
        for at, record in records:
            for event in ev.events_of(record):
                self.events.append(HistoryEvent(len(self.events) + 1, utc(at), type(event).__name__, event))

    def __repr__(self) -> str:
        return f"<History of {self.workflow_id!r}, run {self.run_id}: {len(self.events)} events>"

    def __iter__(self) -> Iterator[HistoryEvent]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)
