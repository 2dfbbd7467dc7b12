"""Whether the entries of one run make sense together: numbers, start, end, flags, answers."""

from __future__ import annotations

import msgspec

from . import child_events as ce
from . import events as ev
from .fold import RUNNING, RunState
from .run_status import flagged_status
from .saga_events import (
    CompensationCompleted,
    CompensationEscalated,
    CompensationFailed,
    CompensationStarted,
)
from .step_events import StepAttemptFailed, StepCancelled, StepCompleted, StepFailed, StepStarted
from .store import CLOSES_RUN, HAS_REQUEST, STARTS_RUN, Entry


def has_request(record: ev.Record) -> bool:
    """Whether a message in the record carries a request id."""
    return any(isinstance(event, ev.WITH_DIGEST) and event.request_id for event in record.inputs)


class RunCheck:
    """Follows a run entry by entry and says what does not fit.

    After something is missing, only what still can be known is checked, so that one loss is one complaint.

    Attributes:
        key: The run's key.
        started: Its first event without the arguments, once it was seen.
        events: Events seen.
        is_whole: Nothing was wrong so far.
        is_closed: Its closing record was seen.
        state: The fold of its records, as long as it is whole.
        record: The newest record, if it decodes.
    """

    __slots__ = (
        "_activities",
        "_children",
        "_compensations",
        "_following",
        "_messages",
        "_sent",
        "_status",
        "_steps",
        "_timers",
        "_updates",
        "_waits",
        "events",
        "is_closed",
        "is_whole",
        "key",
        "record",
        "started",
        "state",
    )

    def __init__(self, key: int) -> None:
        self.key = key
        self.started: ev.WorkflowStarted | None = None
        self.events = 0
        self.is_whole = True
        self.is_closed = False
        self.record: ev.Record | None = None
        self._following: int | None = 1
        self.state = RunState()
        self._status = RUNNING
        self._activities: set[int] = set()
        self._timers: set[int] = set()
        self._updates: set[int] = set()
        self._messages: set[int] = set()
        self._waits: set[int] = set()
        self._compensations: set[tuple[int, int]] = set()
        self._children: set[int] = set()
        self._sent: set[int] = set()
        self._steps: set[int] = set()

    def pass_over(self, entry: Entry | None) -> None:
        """What was between the last entry and this one, or the end, is known to be lost: it is no news."""
        if entry is None or entry.first_event != self._following:
            self.is_whole = False
            self._following = None

    def take(self, entry: Entry) -> list[tuple[int, str]]:
        """Check the run's next entry.

        Returns:
            What is wrong: number of the event, and words.
        """
        wrong = self._check(entry)
        if wrong:
            self.is_whole = False
        if entry.flags & CLOSES_RUN:
            self.is_closed = True
        return wrong

    def _check(self, entry: Entry) -> list[tuple[int, str]]:
        first = entry.first_event
        self.record = None
        try:
            record = ev.decode_record(entry.body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._following = None
            return [(first, f"the record does not decode: {error}")]
        self.record = record
        events = ev.events_of(record)
        expected, self._following = self._following, first + len(events)
        self.events += len(events)
        if first == 1 and events and isinstance(events[0], ev.WorkflowStarted):
            # Its arguments may be large, and only its names are asked for.
            self.started = self.started or msgspec.structs.replace(events[0], args=())
        if self.is_closed:
            return [(first, "the record stands behind the run's closing record")]
        wrong = self._check_numbers(entry, events, expected)
        if self.is_whole and not wrong:
            wrong = self._check_events(record, first, events)
            self.state.apply(record, entry.at)
            wrong += self._check_flags(entry, record)
        return wrong

    def _check_numbers(
        self, entry: Entry, events: tuple[ev.Event, ...], expected: int | None
    ) -> list[tuple[int, str]]:
        first = entry.first_event
        wrong: list[tuple[int, str]] = []
        if expected is not None and first != expected:
            if expected == 1:
                wrong.append((first, f"the run begins with event {first}: its start is missing"))
            else:
                wrong.append((first, f"event {expected} should follow, the record begins with event {first}"))
        elif first == 1 and not (events and isinstance(events[0], ev.WorkflowStarted)):
            kind = type(events[0]).__name__ if events else "nothing"
            wrong.append((1, f"event 1 is {kind}, not WorkflowStarted"))
        wrong.extend(
            (number, "WorkflowStarted is not event 1")
            for number, event in enumerate(events, first)
            if number != 1 and isinstance(event, ev.WorkflowStarted)
        )
        if bool(entry.flags & STARTS_RUN) != (first == 1):
            wrong.append((first, "the flag of a start is " + ("missing" if first == 1 else "set")))
        return wrong

    def _check_flags(self, entry: Entry, record: ev.Record) -> list[tuple[int, str]]:
        self._status = flagged_status(entry.flags) or self._status
        status = self.state.status
        wrong: list[tuple[int, str]] = []
        if self._status != status:
            wrong.append((entry.first_event, f"the flags say {self._status!r}, the events {status!r}"))
        if bool(entry.flags & CLOSES_RUN) != (self.state.outcome is not None):
            now = "set" if entry.flags & CLOSES_RUN else "missing"
            wrong.append((entry.first_event, f"the flag of a close is {now}, the events say {status!r}"))
        if entry.flags & HAS_REQUEST and not has_request(record):
            wrong.append((entry.first_event, "the flag of a request id is set, and no event has one"))
        return wrong

    def _check_events(
        self, record: ev.Record, first: int, events: tuple[ev.Event, ...]
    ) -> list[tuple[int, str]]:
        wrong: list[tuple[int, str]] = []
        if isinstance(record, ev.Turn):
            inputs = range(first, first + len(record.inputs))
            wrong += [
                (first, f"the turn delivers event {number}, which is not there or was delivered before")
                for number in record.delivers
                if number not in inputs and number not in self.state.unread
            ]
        for number, event in enumerate(events, first):
            what = self._answers_nothing(number, event)
            if what:
                wrong.append((number, f"{type(event).__name__} is for {what}, which was never started"))
        return wrong

    def _answers_nothing(self, number: int, event: ev.Event) -> str:
        """Note what an event starts; name what it answers if that was never started."""
        match event:
            case ev.ActivityScheduled():
                self._activities.add(event.command)
            case ev.TimerStarted():
                self._timers.add(event.command)
            case ev.UpdateReceived():
                self._updates.add(number)
            case ev.SignalReceived():
                if event.redrives and event.redrives not in self._messages:
                    return f"message {event.redrives}"
                self._messages.add(number)
            case ev.ConditionAwaited():
                self._waits.add(event.wait)
            case ce.ChildScheduled():
                self._children.add(event.command)
            case ce.DetachedStart() | ce.SignalSent() | ce.CancelSent():
                self._sent.add(event.command)
            case (
                ev.ActivityCompleted()
                | ev.ActivityFailed()
                | ev.AttemptFailed()
                | ev.AttemptLost()
                | ev.AttemptNoted()
                | ev.ActivityCancelled()
                | ev.ActivityCancelRequested()
            ) if event.command not in self._activities:
                return f"activity {event.command}"
            case ev.TimerFired() | ev.TimerCancelled() if event.command not in self._timers:
                return f"timer {event.command}"
            case (
                ce.ChildStarted()
                | ce.ChildStartFailed()
                | ce.ChildCompleted()
                | ce.ChildFailed()
                | ce.ChildCancelled()
                | ce.ChildTerminated()
                | ce.ChildCancelRequested()
            ) if event.command not in self._children:
                return f"child {event.command}"
            case ce.MessageDelivered() | ce.MessageFailed() if event.command not in self._sent:
                return f"message {event.command}"
            case ev.UpdateCompleted() | ev.UpdateFailed() if event.update not in self._updates:
                return f"update {event.update}"
            case ev.HandlerFailed() if event.message not in self._messages | self._updates:
                return f"message {event.message}"
            case ev.SignalKept() | ev.SignalTaken() if event.message not in self._messages:
                return f"message {event.message}"
            case ev.ConditionMet() if event.wait not in self._waits:
                return f"wait {event.wait}"
            case CompensationStarted():
                self._compensations.add((event.saga, event.step))
            case CompensationCompleted() | CompensationFailed() | CompensationEscalated() if (
                event.saga,
                event.step,
            ) not in self._compensations:
                return f"compensation {event.step} of saga {event.saga}"
            case StepStarted():
                self._steps.add(event.command)
            case StepAttemptFailed() | StepCompleted() | StepFailed() | StepCancelled() if (
                event.command not in self._steps
            ):
                return f"step {event.command}"
            case _:
                pass
        return ""
