"""Replay: run a run's code again over its records, and check that it decides the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..journal import events as ev
from ..journal.clock import Clock, SystemClock
from ..journal.saga_events import CompensationEscalated
from .child_replay import COMMANDS, describe, identity
from .errors import NondeterminismError
from .places import suspended_at
from .randomness import DrawComparison
from .run_end import WorkflowCrashedError
from .workflow_instance import Delivery, WorkflowInstance

#: A replay lets the host's loop have its turn after so many seconds, and looks at the clock after so many records.
SLICE = 0.005
LOOK = 16
_ANNOTATIONS = frozenset(ev.ANNOTATIONS)


class Replay:
    """A replay on its way, so that a long one lets others have a turn (R19).

    Attributes:
        instance: Fresh at first; at the end where the records end.
        number: Of the newest event replayed.
    """

    def __init__(self, instance: WorkflowInstance, records: Iterable[tuple[int, ev.Record]]) -> None:
        """Begin.

        Args:
            instance: Just made.
            records: ``(time in microseconds, record)`` from the run's first on.
        """
        self.instance = instance
        self.number = 0
        self._records = iter(records)
        self._received: dict[int, ev.Event] = {}
        self._common = "the start of the run"
        self._draws = DrawComparison()
        instance.replaying = True

    def go_on(self, clock: Clock) -> bool:
        """Replay for some milliseconds.

        Args:
            clock: To see how long it takes.

        Returns:
            Whether it is done.

        Raises:
            WorkflowCrashedError: Of kind ``held`` with a NondeterminismError, when the code decides otherwise;
                or whatever the code raises now.
        """
        end = clock.steady() + SLICE
        for count, (at, record) in enumerate(self._records, 1):
            self._turn(at, record)
            if not count % LOOK and clock.steady() > end:
                return False
        self.instance.replaying = False
        self.instance.recorded = {}
        self.instance.places.clear()
        return True

    def _turn(self, at: int, record: ev.Record) -> None:
        instance = self.instance
        instance.started_at = instance.started_at or at
        first = self.number + 1
        self.number += len(record.inputs)
        if type(record) is ev.Received:
            self._received.update(enumerate(record.inputs, first))
            return
        assert isinstance(record, ev.Turn)
        self.number += len(record.outputs)
        deliveries = deliveries_of(record, first, self._received)
        if not deliveries:
            return
        instance.history_length = first - 1 + len(record.inputs)
        if record.outputs:
            instance.recorded = {
                event.command: event for event in record.outputs if type(event) is ev.SideEffectRecorded
            }
        try:
            actual = instance.turn(at, deliveries)
        except WorkflowCrashedError:
            if instance.has_diverged:
                self._compare(record.outputs, instance._outputs, first)
            raise
        if actual != list(record.outputs):
            self._compare(record.outputs, actual, first)
        elif actual:
            decision = next((event for event in reversed(actual) if type(event) not in _ANNOTATIONS), None)
            if decision is not None:
                self._common = _describe(decision)
            if instance.draws is not None:
                self._draws.turn(instance.draws.event(), instance.draws)

    def _compare(self, recorded: Sequence[ev.Event], actual: Sequence[ev.Event], first: int) -> None:
        """Compare what a turn decided by what identifies each decision."""
        instance = self.instance
        expected = [event for event in recorded if not isinstance(event, ev.ANNOTATIONS)]
        done = [event for event in actual if not isinstance(event, ev.ANNOTATIONS)]
        drawn = next((event for event in recorded if type(event) is ev.RandomDrawn), None)
        for position in range(max(len(expected), len(done))):
            wanted = expected[position] if position < len(expected) else None
            got = done[position] if position < len(done) else None
            if _identity(wanted) != _identity(got):
                self._draws.turn(drawn, instance.draws, until=_first_command(wanted, got))
                place = _place_of(instance, got)
                error = NondeterminismError(
                    _describe(wanted), _describe(got), place, self._common, first, self._draws.moved
                )
                raise WorkflowCrashedError("held", error)
            self._common = _describe(got)
        self._draws.turn(drawn, instance.draws)


def replay(instance: WorkflowInstance, records: Iterable[tuple[int, ev.Record]]) -> None:
    """Bring a fresh instance to where the records end, in one go; arguments and errors as of ``Replay``."""
    whole = Replay(instance, records)
    clock = SystemClock()
    while not whole.go_on(clock):
        pass


def deliveries_of(record: ev.Turn, first: int, received: dict[int, ev.Event]) -> list[Delivery]:
    """What a turn delivered, in order; events that user code does not see are left out.

    Args:
        record: The turn.
        first: Number of its first input.
        received: Inputs of earlier ``Received`` records by number; what is delivered is taken out.
    """
    inputs = record.inputs
    if not record.delivers:
        return [
            Delivery(number, event)
            for number, event in enumerate(inputs, first)
            if not isinstance(event, ev.SILENT)
        ]
    deliveries = []
    for number in record.delivers:
        if number in received:
            deliveries.append(Delivery(number, received.pop(number), was_received=True))
        else:
            deliveries.append(Delivery(number, inputs[number - first]))
    return deliveries


def _first_command(*events: ev.Event | None) -> int | None:
    """The lower number of commands that two decisions are, or are about."""
    return min((number for event in events if (number := getattr(event, "command", None))), default=None)


def _identity(event: ev.Event | None) -> tuple[object, ...]:
    """What must be equal. Arguments and results may differ: code may change what it sends, not what it does."""
    match event:
        case ev.ActivityScheduled():
            return ("activity", event.command, event.activity_type)
        case ev.TimerStarted():
            return ("timer", event.command, event.duration)
        case ev.ActivityCancelRequested():
            return (type(event), event.command, event.mode)
        case ev.TimerCancelled():
            return (type(event), event.command)
        case ev.SideEffectRecorded() | CompensationEscalated():
            return (type(event), event.command)
        case ev.MemoUpserted():
            return (type(event), *sorted(event.names))
        case ev.ValuePublished():
            return (type(event), event.key, event.value is None)
        case ev.UpdateCompleted() | ev.UpdateFailed():
            return ("update", event.update)
        case ev.HandlerFailed():
            return ("handler failed", event.message)
        case _:
            return identity(event) or (type(event),)


def _describe(event: ev.Event | None) -> str:
    match event:
        case None:
            return "nothing more"
        case ev.ActivityScheduled():
            return f"command {event.command}: activity {event.activity_type!r}"
        case ev.TimerStarted():
            return f"command {event.command}: a timer of {event.duration / 1_000_000:g} s"
        case ev.ActivityCancelRequested():
            how = ("", ", waiting until it is over", ", letting it go on")[event.mode]
            return f"the cancel of activity command {event.command}{how}"
        case ev.TimerCancelled():
            return f"the cancel of timer command {event.command}"
        case ev.SideEffectRecorded():
            return f"command {event.command}: a side effect"
        case CompensationEscalated():
            return f"command {event.command}: the quarantine for the compensation of step {event.name!r}"
        case ev.MemoUpserted():
            return f"new values of the memo ({', '.join(event.names)})"
        case ev.ValuePublished():
            return f"{'a value' if event.value else 'nothing more'} published as {event.key!r}"
        case ev.UpdateCompleted() | ev.UpdateFailed():
            return f"the answer to the update of event {event.update}"
        case ev.HandlerFailed():
            return f"a failed handler for the message of event {event.message}"
        case ev.CancelRequested():
            return "the run's own cancel, by workflow.cancel()"
        case ev.WorkflowCompleted():
            return "the end of run (it returned, or workflow.complete() was called)"
        case ev.WorkflowFailed():
            return f"the end of run (it failed: {event.failure.type})"
        case ev.WorkflowCancelled():
            return "the end of run (cancelled)"
        case ev.WorkflowContinuedAsNew():
            return "the end of run (it continued as new)"
        case _:
            return describe(event) or type(event).__name__


def _place_of(instance: WorkflowInstance, got: ev.Event | None) -> str:
    """``file:line`` of the call that differs; where run waits when a call is missing."""
    if isinstance(got, (ev.ActivityScheduled, ev.TimerStarted, ev.SideEffectRecorded, *COMMANDS)):
        return instance.places[got.command]
    return suspended_at(instance.main)
