"""A run's history as spans of time: what it did, from when to when, and how that ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..actors.descriptions import History, HistoryEvent
from ..actors.errors import with_limit_told
from ..journal import child_events as ch
from ..journal import events as ev
from ..journal import saga_events as sg
from ..journal import step_events as st
from ..journal.failures import one_line

#: How spans end. ``open``: not yet; ``left``: the run ended before.
DONE, FAILED, CANCELLED, OPEN, LEFT = "done", "failed", "cancelled", "open", "left"
#: Characters of a value or a failure in a line.
SHORT = 100


@dataclass
class Part:
    """A piece of a span: one attempt, or one wait before the next.

    Attributes:
        label: What it is.
        start: Microseconds since the epoch.
        end: Likewise; None while it goes on.
        outcome: How it ended.
    """

    label: str
    start: int
    end: int | None = None
    outcome: str = OPEN


@dataclass
class Span:
    """One thing that a run did or received.

    Attributes:
        kind: ``run``, ``activity``, ``timer``, ``child``, ``step``, ``signal`` ...
        label: Which one.
        start: Microseconds since the epoch.
        end: Likewise; None while it goes on. That of a moment is its start.
        outcome: How it ended.
        events: Numbers of its events.
        detail: More about it, such as an error.
        parts: Attempts, when there was more than one.
        depth: How many spans are around it.
    """

    kind: str
    label: str
    start: int
    end: int | None = None
    outcome: str = OPEN
    events: list[int] = field(default_factory=list)
    detail: str = ""
    parts: list[Part] = field(default_factory=list)
    depth: int = 1

    @property
    def is_moment(self) -> bool:
        """Whether it has no duration by its nature."""
        return self.kind in MOMENTS


#: Kinds that happen at one moment.
MOMENTS = frozenset(
    [
        "signal",
        "cancel request",
        "side effect",
        "memo",
        "published",
        "blame",
        "dead letter",
        "task failed",
        "escalation",
    ]
)


@dataclass(frozen=True)
class Timeline:
    """A run in time.

    Attributes:
        workflow_id: Of the run.
        run_id: Of the run.
        workflow_type: Of the run.
        status: ``completed``, ``failed`` ..., or ``open``.
        start: Of the run, microseconds.
        end: Of its last event.
        spans: The run itself, then everything in it, in order of time.
        history: All events.
    """

    workflow_id: str
    run_id: str
    workflow_type: str
    status: str
    start: int
    end: int
    spans: list[Span]
    history: History


def timeline_of(history: History) -> Timeline:
    """Read a history."""
    started = history.events[0].event
    assert isinstance(started, ev.WorkflowStarted)
    reading = _Reading(started, _microseconds(history.events[0]))
    for event in history:
        reading.take(event)
    return reading.timeline(history)


def short(text: str) -> str:
    """The first line of a text, if need be shortened."""
    line = text.partition("\n")[0]
    return line if len(line) <= SHORT else f"{line[: SHORT - 3]}..."


def _microseconds(event: HistoryEvent) -> int:
    moment = event.at
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


_ENDS: dict[type, tuple[str, str]] = {
    ev.WorkflowCompleted: ("completed", DONE),
    ev.WorkflowFailed: ("failed", FAILED),
    ev.WorkflowCancelled: ("cancelled", CANCELLED),
    ev.WorkflowTerminated: ("terminated", FAILED),
    ev.WorkflowTimedOut: ("timed_out", FAILED),
    ev.WorkflowContinuedAsNew: ("continued_as_new", DONE),
}


class _Reading:
    def __init__(self, started: ev.WorkflowStarted, at: int) -> None:
        self.started = started
        self.run = Span("run", started.workflow_type, at, depth=0)
        self.spans = [self.run]
        self.status = "open"
        self.now = at
        self.number = 0
        self._commands: dict[int, Span] = {}
        self._updates: dict[int, Span] = {}
        self._waits: dict[int, Span] = {}
        self._sagas: dict[tuple[int, int], Span] = {}
        self._pause: Span | None = None
        self._stall: Span | None = None

    def take(self, event: HistoryEvent) -> None:
        """Read one event."""
        self.now = max(self.now, _microseconds(event))
        self.number = event.number
        kind = type(event.event)
        if kind in _ENDS:
            self._end_run(event.event)
        elif kind in _READ:
            _READ[kind](self, event.event)

    def timeline(self, history: History) -> Timeline:
        """All that was read."""
        closed = self.run.end is not None
        for span in self.spans:
            if span.end is None and closed:
                span.outcome = LEFT
                for part in span.parts:
                    part.outcome = LEFT if part.end is None else part.outcome
        started = self.started
        return Timeline(
            started.workflow_id,
            started.run_id,
            started.workflow_type,
            self.status,
            self.run.start,
            self.now,
            self.spans,
            history,
        )

    # --- spans

    def _begin(self, kind: str, label: str, detail: str = "", depth: int = 1) -> Span:
        span = Span(kind, label, self.now, None, OPEN, [self.number], detail, [], depth)
        self.spans.append(span)
        return span

    def _moment(self, kind: str, label: str, detail: str = "", outcome: str = DONE) -> None:
        span = self._begin(kind, label, detail)
        span.end, span.outcome = self.now, outcome

    def _end(self, span: Span | None, outcome: str, detail: str = "") -> None:
        if span is None:
            return
        span.events.append(self.number)
        span.end, span.outcome = self.now, outcome
        span.detail = short(detail) or span.detail
        if span.parts and span.parts[-1].end is None:
            span.parts[-1].end, span.parts[-1].outcome = self.now, outcome

    def _end_run(self, event: Any) -> None:
        self.status, outcome = _ENDS[type(event)]
        detail = ""
        if isinstance(event, ev.WorkflowFailed):
            detail = one_line(event.failure)
        elif isinstance(event, ev.WorkflowCancelled | ev.WorkflowTerminated):
            detail = event.reason
        elif isinstance(event, ev.WorkflowTimedOut):
            detail = f"{event.option} of {event.limit / 1_000_000:g} s"
        following = getattr(event, "next", None)
        if following is not None:
            detail = f"{detail}; goes on as run {following.run_id}".removeprefix("; ")
        self._end(self.run, outcome, detail)

    # --- activities and timers

    def _scheduled(self, event: ev.ActivityScheduled) -> None:
        span = self._commands[event.command] = self._begin("activity", event.activity_type)
        span.parts.append(Part("attempt 1", self.now))

    def _attempt_over(self, command: int, attempt: int, outcome: str, detail: str, next_at: int) -> None:
        span = self._commands.get(command)
        if span is None:
            return
        span.events.append(self.number)
        span.detail = short(detail)
        if span.parts and span.parts[-1].end is None:
            last = span.parts[-1]
            last.end, last.outcome = max(last.start, self.now), outcome
        span.parts.append(Part(f"attempt {attempt + 1}", max(self.now, next_at)))

    def _attempt_failed(self, event: ev.AttemptFailed) -> None:
        self._attempt_over(event.command, event.attempt, FAILED, one_line(event.failure), event.next_at)

    def _attempt_lost(self, event: ev.AttemptLost) -> None:
        self._attempt_over(event.command, event.attempt, FAILED, f"lost: {event.reason}", 0)

    def _attempt_noted(self, event: ev.AttemptNoted) -> None:
        if (span := self._commands.get(event.command)) is not None:
            span.events.append(self.number)

    def _cancel_asked(self, event: ev.ActivityCancelRequested) -> None:
        span = self._commands.get(event.command)
        if event.mode in ev.WAITING:
            if span is not None:
                span.events.append(self.number)
                span.detail = "asked to stop"
        else:
            self._end(span, CANCELLED, "no longer wanted" if event.mode == ev.ABANDON else "asked to stop")

    def _timer(self, event: ev.TimerStarted) -> None:
        self._commands[event.command] = self._begin("timer", seconds(event.duration))

    # --- messages

    def _update(self, event: ev.UpdateReceived) -> None:
        self._updates[self.number] = self._begin("update", event.name)

    def _update_failed(self, event: ev.UpdateFailed) -> None:
        how = "refused: " if event.rejected else ""
        self._end(self._updates.get(event.update), FAILED, how + one_line(event.failure))

    # --- others

    def _child(self, event: ch.ChildScheduled) -> None:
        start = event.start
        label = f"{start.workflow_type} {start.workflow_id}"
        self._commands[event.command] = self._begin("child", label)

    def _child_started(self, event: ch.ChildStarted) -> None:
        if (span := self._commands.get(event.command)) is not None:
            span.events.append(self.number)
            span.detail = f"run {event.run_id}"

    def _child_cancel(self, event: ch.ChildCancelRequested) -> None:
        span = self._commands.get(event.command)
        if event.mode == ev.WAIT_CANCELLED:
            if span is not None:
                span.events.append(self.number)
        else:
            self._end(span, CANCELLED, event.reason)

    def _sent(self, kind: str, label: str, command: int) -> None:
        self._commands[command] = self._begin(kind, label)

    # --- steps and sagas

    def _step(self, event: st.StepStarted) -> None:
        outer = self._commands.get(event.outer)
        depth = 1 if outer is None else outer.depth + 1
        span = self._commands[event.command] = self._begin("step", event.name, depth=depth)
        span.parts.append(Part("attempt 1", self.now))

    def _compensation(self, event: sg.CompensationStarted) -> None:
        saga = f"saga {event.saga_name}" if event.saga_name else f"saga {event.saga}"
        label = f"{saga}: undo {event.name} by {event.compensation}"
        self._sagas[event.saga, event.step] = self._begin("compensation", label)

    def _escalated(self, event: sg.CompensationEscalated) -> None:
        self._moment("escalation", event.name, short(one_line(event.failure)), FAILED)

    # --- the run as a whole

    def _stalled(self, event: ev.RunStalled) -> None:
        self._stall = self._begin(event.kind, "stands still", short(one_line(event.failure)))

    def _released(self, event: ev.RunReleased) -> None:
        self._end(self._stall, DONE, event.reason)

    def _paused(self, event: ev.RunPaused) -> None:
        self._pause = self._begin("paused", event.reason or "no reason given")

    def _resumed(self, event: ev.RunResumed) -> None:
        self._end(self._pause, DONE, event.reason)


def seconds(microseconds: int) -> str:
    """A duration for people."""
    value = microseconds / 1_000_000
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < 120:
        return f"{value:.3g} s"
    if value < 7200:
        return f"{value / 60:.3g} min"
    return f"{value / 3600:.3g} h" if value < 172_800 else f"{value / 86_400:.3g} d"


def _ends(outcome: str, detail: Callable[[Any], str] = lambda _event: "") -> Callable[[_Reading, Any], None]:
    """Of events that end what a command began."""
    return lambda reading, event: reading._end(reading._commands.get(event.command), outcome, detail(event))


def _failure(event: Any) -> str:
    return one_line(with_limit_told(event.failure))


def _refusal(event: Any) -> str:
    return f"{event.error}: {' '.join(event.texts)}".removesuffix(": ")


_READ: dict[type, Callable[[_Reading, Any], None]] = {
    ev.WorkflowStarted: lambda reading, _event: reading.run.events.append(reading.number),
    ev.ActivityScheduled: _Reading._scheduled,
    ev.ActivityCompleted: _ends(DONE),
    ev.ActivityFailed: _ends(FAILED, _failure),
    ev.ActivityCancelled: _ends(CANCELLED),
    ev.ActivityCancelRequested: _Reading._cancel_asked,
    ev.AttemptFailed: _Reading._attempt_failed,
    ev.AttemptLost: _Reading._attempt_lost,
    ev.AttemptNoted: _Reading._attempt_noted,
    ev.TimerStarted: _Reading._timer,
    ev.TimerFired: _ends(DONE),
    ev.TimerCancelled: _ends(CANCELLED),
    ev.SignalReceived: lambda reading, event: reading._moment("signal", event.name),
    ev.UpdateReceived: _Reading._update,
    ev.UpdateCompleted: lambda reading, event: reading._end(reading._updates.get(event.update), DONE),
    ev.UpdateFailed: _Reading._update_failed,
    ev.HandlerFailed: lambda reading, event: reading._moment(
        "dead letter", event.name or f"event {event.message}", short(one_line(event.failure)), FAILED
    ),
    ev.TaskFailed: lambda reading, event: reading._moment(
        "task failed", event.task, short(one_line(event.failure)), FAILED
    ),
    ev.CancelRequested: lambda reading, event: reading._moment("cancel request", event.reason or "no reason given"),
    ev.SideEffectRecorded: lambda reading, event: reading._moment(
        "side effect", f"command {event.command}", outcome=FAILED if event.failure else DONE
    ),
    ev.MemoUpserted: lambda reading, event: reading._moment("memo", ", ".join(event.names)),
    ev.ValuePublished: lambda reading, event: reading._moment("published", event.key),
    ev.ConditionAwaited: lambda reading, event: reading._waits.__setitem__(
        event.wait, reading._begin("condition", event.place)
    ),
    ev.ConditionMet: lambda reading, event: reading._end(reading._waits.get(event.wait), DONE),
    ev.RunStalled: _Reading._stalled,
    ev.RunReleased: _Reading._released,
    ev.RunPaused: _Reading._paused,
    ev.RunResumed: _Reading._resumed,
    ev.RunBlamed: lambda reading, event: reading._moment("blame", event.what, "the process died", FAILED),
    ch.ChildScheduled: _Reading._child,
    ch.ChildStarted: _Reading._child_started,
    ch.ChildStartFailed: _ends(FAILED, _refusal),
    ch.ChildCompleted: _ends(DONE),
    ch.ChildFailed: _ends(FAILED, _failure),
    ch.ChildCancelled: _ends(CANCELLED, lambda event: event.reason),
    ch.ChildTerminated: _ends(FAILED, lambda event: f"terminated: {event.reason}".removesuffix(": ")),
    ch.ChildCancelRequested: _Reading._child_cancel,
    ch.DetachedStart: lambda reading, event: reading._sent(
        "detached start", f"{event.start.workflow_type} {event.start.workflow_id}", event.command
    ),
    ch.SignalSent: lambda reading, event: reading._sent(
        "signal sent", f"{event.name} to {event.workflow_id}", event.command
    ),
    ch.CancelSent: lambda reading, event: reading._sent("cancel sent", f"to {event.workflow_id}", event.command),
    ch.MessageDelivered: _ends(DONE),
    ch.MessageFailed: _ends(FAILED, _refusal),
    st.StepStarted: _Reading._step,
    st.StepAttemptFailed: lambda reading, event: reading._attempt_over(
        event.command, event.attempt, FAILED, one_line(event.failure), event.next_at
    ),
    st.StepCompleted: _ends(DONE, lambda event: f"by {event.handled}" if event.handled else ""),
    st.StepFailed: _ends(FAILED, _failure),
    st.StepCancelled: _ends(CANCELLED),
    sg.CompensationStarted: _Reading._compensation,
    sg.CompensationCompleted: lambda reading, event: reading._end(
        reading._sagas.get((event.saga, event.step)), DONE
    ),
    sg.CompensationFailed: lambda reading, event: reading._end(
        reading._sagas.get((event.saga, event.step)), FAILED, one_line(event.failure)
    ),
    sg.CompensationEscalated: _Reading._escalated,
}  # fmt: skip
