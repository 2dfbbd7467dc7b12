"""Which turn of a history an event belongs to, for a replay that is to stop at it."""

from __future__ import annotations

from typing import NamedTuple

from ..actors.descriptions import History
from ..actors.replay import deliveries_of
from ..journal import events as ev


class EventNotReachedError(ValueError):
    """A replay cannot stop at this event."""


class Target(NamedTuple):
    """An event to stop at.

    Attributes:
        number: Its number.
        event: The event.
        turn: Number of the event that its turn delivers first.
        output: Its place among what the turn decides; None for an event that the turn delivers.
        is_undelivered: The history ends before it is delivered: it was received by a run that stands still.
    """

    number: int
    event: ev.Event
    turn: int
    output: int | None = None
    is_undelivered: bool = False

    @property
    def kind(self) -> str:
        """Name of the event."""
        return type(self.event).__name__


def find_target(history: History, number: int) -> Target:
    """The turn of an event.

    Raises:
        EventNotReachedError: There is no such event, or workflow code never sees it.
    """
    if not 1 <= number <= len(history):
        raise EventNotReachedError(
            f"there is no event {number}: the history of {history.workflow_id!r} (run {history.run_id}) has events 1 "
            f"to {len(history)}"
        )
    targets = _targets(history)
    if number in targets:
        return targets[number]
    kind = history.events[number - 1].kind
    later = min((each for each in targets if each > number), default=None)
    earlier = max((each for each in targets if each < number), default=None)
    near = [each for each in (earlier, later) if each is not None]
    advice = " or ".join(f"--to-event {each} ({targets[each].kind})" for each in near)
    raise EventNotReachedError(
        f"workflow code never sees event {number} ({kind}): it changes what the journal knows of the run only"
        + (f"; stop beside it with {advice}" if advice else "")
    )


def _targets(history: History) -> dict[int, Target]:
    """All events that code sees or causes."""
    found: dict[int, Target] = {}
    received: dict[int, ev.Event] = {}
    last = 0
    for _, record in history.records:
        first = last + 1
        last += len(ev.events_of(record))
        if isinstance(record, ev.Received):
            received.update(enumerate(record.inputs, first))
            continue
        deliveries = deliveries_of(record, first, received)
        if not deliveries:
            continue
        turn = deliveries[0].number
        for number, event, _ in deliveries:
            found[number] = Target(number, event, turn)
        for place, event in enumerate(record.outputs):
            number = first + len(record.inputs) + place
            found[number] = Target(number, event, turn, place)
    for number, event in received.items():
        if not isinstance(event, ev.SILENT):
            found[number] = Target(number, event, number, is_undelivered=True)
    return dict(sorted(found.items()))
