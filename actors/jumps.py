"""Which steps a replay skips: their ends are looked for in the records ahead of the one at hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence

from ..journal import events as ev
from ..journal.errors import JournalCorruptError
from ..journal.step_events import StepAttemptFailed, StepCompleted, StepFailed, StepStarted
from .checkpoints import StepReplay
from .publishing import published_before
from .side_effects import remember
from .workflow_instance import Delivery, WorkflowInstance

#: Outputs that a replay gives to the code, by command number.
STEP_EVENTS = (StepStarted, StepAttemptFailed, StepCompleted, StepFailed)

End = StepCompleted | StepFailed


class Ahead:
    """The records of a run, some of them read before their turn.

    Attributes:
        is_over: No record is left to be read.
    """

    def __init__(self, records: Iterable[tuple[int, ev.Record]], unfinished: Container[int]) -> None:
        """Nothing is read yet.

        Args:
            records: ``(time in microseconds, record)`` from the run's first on.
            unfinished: Steps that are known to have no end.
        """
        self._records = iter(records)
        self._read: deque[tuple[int, ev.Record]] = deque()
        self._unfinished = unfinished
        self._ends: dict[int, End] = {}
        self._sought = 0
        self.is_over = False

    def take(self) -> tuple[int, ev.Record] | None:
        """The next record; None when there is none."""
        return self._read.popleft() if self._read else self._next()

    def look(self) -> bool:
        """Read one record more if the end of a step is sought; returns whether it was."""
        if not self._sought or self._sought in self._ends or self.is_over:
            self._sought = 0
            return False
        found = self._next()
        if found is not None:
            self._read.append(found)
        return True

    def _next(self) -> tuple[int, ev.Record] | None:
        found = next(self._records, None)
        if found is None:
            self.is_over = True
        elif type(found[1]) is ev.Turn:
            for event in found[1].outputs:
                if type(event) is StepCompleted or type(event) is StepFailed:
                    self._ends[event.command] = event
        return found

    def end(self, command: int) -> End | None:
        """Where a step ends, as far as that is known."""
        return self._ends.get(command)

    def pass_by(self, outputs: Sequence[ev.Event]) -> None:
        """A record is done with."""
        for event in outputs:
            if type(event) is StepCompleted or type(event) is StepFailed:
                self._ends.pop(event.command, None)

    def jumpable(self, outputs: Sequence[ev.Event], position: int) -> frozenset[int] | None:
        """Which of the steps that begin in a record, from a position on, are to be skipped.

        Returns:
            Their command numbers; None when more has to be read to know, by ``look``.
        """
        found = set()
        for place in range(position, len(outputs)):
            event = outputs[place]
            if type(event) is not StepStarted or not event.is_alone or event.command in self._unfinished:
                continue
            end = self._ends.get(event.command)
            if end is None:
                if not self.is_over:
                    self._sought = event.command
                    return None
            elif end.checkpoint is not None:
                found.add(event.command)
                if place_of(outputs, end, place) is None:
                    break  # what follows is inside it
        return frozenset(found)


def place_of(outputs: Sequence[ev.Event], wanted: ev.Event, start: int) -> int | None:
    """Where an event is among others, from a place on."""
    for place in range(start, len(outputs)):
        if outputs[place] is wanted:
            return place
    return None


def start_of(outputs: Sequence[ev.Event], command: int, start: int) -> int | None:
    """Where a step begins among the outputs of a turn, from a place on."""
    for place in range(start, len(outputs)):
        event = outputs[place]
        if type(event) is StepStarted and event.command == command:
            return place
    return None


def tell(instance: WorkflowInstance, outputs: Sequence[ev.Event], jumpable: frozenset[int]) -> None:
    """Let the code know what the journal says of the steps of a turn."""
    steps = instance.steps
    if steps is None:
        steps = instance.steps = StepReplay()
    steps.jumpable = jumpable
    steps.starts = {event.command: event for event in outputs if type(event) is StepStarted}
    steps.ends = {event.command: event for event in outputs if isinstance(event, End)}
    steps.attempts = {
        (event.command, event.attempt): event for event in outputs if type(event) is StepAttemptFailed
    }


class Skipped:
    """What has happened while a step ran whose body is not run again, besides what its checkpoint holds.

    Args:
        instance: The run's code.
    """

    def __init__(self, instance: WorkflowInstance) -> None:
        self._instance = instance
        self._signals: dict[int, Delivery] = {}

    def deliveries(self, deliveries: Iterable[Delivery]) -> None:
        """Events that were delivered."""
        handlers = self._instance.handlers
        self._signals.clear()
        for delivery in deliveries:
            if type(delivery.event) is ev.SignalReceived:
                self._signals[delivery.number] = delivery
            if isinstance(delivery.event, ev.Message):
                handlers.skip(delivery)

    def outputs(self, outputs: Iterable[ev.Event]) -> None:
        """Events that were decided."""
        instance = self._instance
        for event in outputs:
            if type(event) is ev.MemoUpserted:
                remember(instance, event)
            elif type(event) is ev.ValuePublished:
                published_before(instance, event)
            elif type(event) is ev.SignalKept:
                if event.message not in self._signals:
                    raise JournalCorruptError(
                        f"the signal of event {event.message} was kept and is not there"
                    )
                instance.handlers.skip_kept(self._signals[event.message])
            elif type(event) is ev.SignalTaken or type(event) is ev.HandlerFailed:
                instance.handlers.skip_gone(event.message)
