"""Replay: run a run's code again over its records, and check that it decides the same."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from ..journal import events as ev
from ..journal.clock import Clock, SystemClock
from ..journal.fold import EMPTY
from ..journal.saga_events import CompensationEscalated
from ..journal.step_events import StepAttemptFailed, StepCancelled, StepCompleted, StepFailed, StepStarted
from .child_replay import COMMANDS, describe, identity
from .errors import NondeterminismError
from .jumps import STEP_EVENTS, Ahead, End, Skipped, place_of, start_of, tell
from .places import suspended_at
from .randomness import DrawComparison
from .run_end import WorkflowCrashedError
from .workflow_instance import Delivery, WorkflowInstance

#: A replay lets the host's loop have its turn after so many seconds, and looks at the clock after so many records.
SLICE = 0.005
LOOK = 16
_ANNOTATIONS = frozenset(ev.ANNOTATIONS)
#: Outputs that the code gets from the journal.
_TOLD = frozenset([ev.SideEffectRecorded, *STEP_EVENTS])


class Replay:
    """A replay on its way, so that a long one lets others have a turn (R19).

    The body of a step that was a checkpoint is not run: the code waits where the step began, the records up to its end
    are passed over, and it goes on there. So a replay costs the number of such steps, not of their events.

    Attributes:
        instance: Fresh at first; at the end where the records end.
        number: Of the newest event replayed.
    """

    def __init__(
        self,
        instance: WorkflowInstance,
        records: Iterable[tuple[int, ev.Record]],
        unfinished: Container[int] = (),
    ) -> None:
        """Begin.

        Args:
            instance: Just made.
            records: ``(time in microseconds, record)`` from the run's first on.
            unfinished: Steps that are known to have no end in them.
        """
        self.instance = instance
        self.number = 0
        self._records = Ahead(records, unfinished)
        self._received: dict[int, ev.Event] = {}
        self._common = "the start of the run"
        self._draws = DrawComparison()
        self._at_hand: _AtHand | None = None  # it waits until it is known which of its steps to skip
        self._jump: tuple[End, Skipped] | None = None  # to the end of this step
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
        count = 0
        while self._go_on():
            count += 1
            if not count % LOOK and clock.steady() > end:
                return False
        self.instance.replaying = False
        self.instance.recorded = EMPTY
        self.instance.steps = None
        self.instance.places.clear()
        return True

    def _go_on(self) -> bool:
        """Replay a record, pass over one, or look ahead; returns whether there was anything to do."""
        at_hand = self._at_hand
        if at_hand is not None:
            if not self._records.look():
                jumpable = self._records.jumpable(at_hand.outputs, at_hand.position)
                if jumpable is not None:
                    self._at_hand = None
                    self._turn(at_hand, jumpable)
            return True
        found = self._records.take()
        if found is None:
            return False
        self._take(*found)
        return True

    def _take(self, at: int, record: ev.Record) -> None:
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
        if self._jump is not None:
            self._pass_over(_AtHand(at, record.outputs, first, deliveries), len(record.inputs))
            return
        if not deliveries:
            return
        instance.history_length = first - 1 + len(record.inputs)
        told = [event for event in record.outputs if type(event) in _TOLD] if record.outputs else ()
        if told or instance.recorded or instance.steps is not None:
            instance.recorded = {
                event.command: event for event in told if type(event) is ev.SideEffectRecorded
            }
            if len(told) > len(instance.recorded):
                self._at_hand = _AtHand(at, record.outputs, first, deliveries)
                return
            if instance.steps is not None:
                tell(instance, (), frozenset())
        self._run(at, deliveries, record.outputs, first)

    def _run(self, at: int, deliveries: Sequence[Delivery], outputs: Sequence[ev.Event], first: int) -> None:
        """Run a turn to its end, and compare it."""
        instance = self.instance
        try:
            actual = instance.turn(at, deliveries)
        except WorkflowCrashedError:
            if instance.has_diverged:
                self._compare(outputs, instance._outputs, first)
            raise
        if actual != list(outputs):
            self._compare(outputs, actual, first)
        elif actual:
            self._note_common(actual)
            if instance.draws is not None:
                self._draws.turn(instance.draws.event(), instance.draws)

    def _note_common(self, actual: Sequence[ev.Event]) -> None:
        decision = next((event for event in reversed(actual) if type(event) not in _ANNOTATIONS), None)
        if decision is not None:
            self._common = _describe(decision)

    # --- turns with steps

    def _turn(self, it: _AtHand, jumpable: frozenset[int]) -> None:
        """Run a turn in which steps begin or end, up to the next one that is skipped."""
        instance = self.instance
        outputs = it.outputs[it.position :]
        tell(instance, outputs, jumpable)
        if not jumpable and not it.position:
            self._run(it.at, it.deliveries, outputs, it.first)
            self._records.pass_by(it.outputs)
            return
        steps = instance.steps
        assert steps is not None
        try:
            actual = instance.turn(it.at, it.deliveries)
        except WorkflowCrashedError:
            if instance.has_diverged:
                self._compare(outputs, instance._outputs, it.first, it)
            raise
        start = start_of(outputs, steps.jumping, 0) if steps.jumping else None
        if start is not None:
            outputs = outputs[: start + 1]
        if actual != list(outputs):
            self._compare(outputs, actual, it.first, it)
        else:
            self._note_common(actual)
        if not steps.jumping:
            self._leave(it.outputs)
            return
        end = self._records.end(steps.jumping)
        assert end is not None
        self._jump = end, Skipped(instance)
        self._pass_over(it._replace(deliveries=(), position=it.position + len(outputs)))

    def _pass_over(self, it: _AtHand, inputs: int | None = None) -> None:
        """What is up to the end of the step that is skipped changes the code in memory in few ways.

        Args:
            it: A turn that is skipped, or what is left of it.
            inputs: How many events came in with it; None when the code had them.
        """
        assert self._jump is not None
        end, skipped = self._jump
        skipped.deliveries(it.deliveries)
        place = place_of(it.outputs, end, it.position)
        skipped.outputs(it.outputs[it.position : place])
        if place is None:
            self._leave(it.outputs)
            return
        self._jump = None
        instance = self.instance
        if inputs is not None:
            instance.history_length = it.first - 1 + inputs
        instance.recorded = {
            event.command: event for event in it.outputs if type(event) is ev.SideEffectRecorded
        }
        self._at_hand = it._replace(deliveries=(Delivery(it.first, end),), position=place)

    def _leave(self, outputs: Sequence[ev.Event]) -> None:
        """A record is done with, of which only parts were run."""
        self._records.pass_by(outputs)
        self._draws.pass_by(_drawn(outputs))

    def _compare(
        self,
        recorded: Sequence[ev.Event],
        actual: Sequence[ev.Event],
        first: int,
        part_of: _AtHand | None = None,
    ) -> None:
        """Compare what a turn decided by what identifies each decision; what a part of it has drawn is not known."""
        instance = self.instance
        expected = [event for event in recorded if not isinstance(event, ev.ANNOTATIONS)]
        done = [event for event in actual if not isinstance(event, ev.ANNOTATIONS)]
        drawn = _drawn(recorded)
        for position in range(max(len(expected), len(done))):
            wanted = expected[position] if position < len(expected) else None
            got = done[position] if position < len(done) else None
            if _identity(wanted) != _identity(got):
                if part_of is None:
                    self._draws.turn(drawn, instance.draws, until=_first_command(wanted, got))
                error = NondeterminismError(
                    _describe(wanted),
                    _describe(got),
                    _place_of(instance, got),
                    self._common,
                    first,
                    self._draws.moved,
                    0 if wanted is None else self._number_of(wanted, recorded, part_of),
                )
                raise WorkflowCrashedError("held", error)
            self._common = _describe(got)
        if part_of is None:
            self._draws.turn(drawn, instance.draws)

    def _number_of(self, wanted: ev.Event, recorded: Sequence[ev.Event], part_of: _AtHand | None) -> int:
        """The number of an output of the newest record, of which ``recorded`` are all, or those from a position on."""
        position = next(index for index, event in enumerate(recorded) if event is wanted)
        if part_of is None:
            return self.number - len(recorded) + 1 + position
        return self.number - len(part_of.outputs) + 1 + part_of.position + position


class _AtHand(NamedTuple):
    """A turn that is about to be replayed, or the rest of it behind a step that is skipped."""

    at: int
    outputs: Sequence[ev.Event]
    first: int
    deliveries: Sequence[Delivery]
    position: int = 0


def _drawn(outputs: Sequence[ev.Event]) -> ev.RandomDrawn | None:
    return next((event for event in outputs if type(event) is ev.RandomDrawn), None)


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
            return (type(event), event.command, event.mode in ev.WAITING or event.mode)
        case ev.TimerCancelled():
            return (type(event), event.command)
        case (
            ev.SideEffectRecorded()
            | CompensationEscalated()
            | StepCompleted()
            | StepFailed()
            | StepCancelled()
        ):
            return (type(event), event.command)
        case StepStarted():
            return ("step", event.command, event.name)
        case StepAttemptFailed():
            return (type(event), event.command, event.attempt)
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
            how = ("", ", waiting until it is over", ", letting it go on", ", waiting for its end")[
                event.mode
            ]
            return f"the cancel of activity command {event.command}{how}"
        case ev.TimerCancelled():
            return f"the cancel of timer command {event.command}"
        case ev.SideEffectRecorded():
            return f"command {event.command}: a side effect"
        case CompensationEscalated():
            return f"command {event.command}: the quarantine for the compensation of step {event.name!r}"
        case StepStarted():
            return f"command {event.command}: step {event.name!r}"
        case StepAttemptFailed():
            return f"attempt {event.attempt} of the step of command {event.command} failing"
        case StepCompleted():
            return f"the end of the step of command {event.command}"
        case StepFailed():
            return f"the step of command {event.command} failing ({event.failure.type})"
        case StepCancelled():
            return f"the step of command {event.command} being cancelled"
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
    if isinstance(
        got, (ev.ActivityScheduled, ev.TimerStarted, ev.SideEffectRecorded, StepStarted, *COMMANDS)
    ):
        return instance.places[got.command]
    return suspended_at(instance.main)
