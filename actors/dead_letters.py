"""Dead letters: messages that could not be handled, and how they are delivered again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..journal import events as ev
from ..journal.failures import one_line
from ..journal.fold import RunState
from .call_errors import NoDeadLetterError


@dataclass(frozen=True)
class DeadLetter:
    """A message that could not be handled.

    Attributes:
        number: Of its event in the history; ``handle.redrive(number)`` delivers a signal again while the run is open.
        name: Of the handler it was for; empty for one that an older Everact has noted.
        reason: Why it could not be handled.
    """

    number: int
    name: str
    reason: str

    def __str__(self) -> str:
        name = f" ({self.name})" if self.name else ""
        return f"event {self.number}{name}: {self.reason}"


def dead_letter(event: ev.HandlerFailed) -> DeadLetter:
    """A signal whose handler has failed; the failure is plain."""
    return DeadLetter(event.message, event.name, one_line(event.failure))


def left_at_the_end(state: RunState) -> tuple[DeadLetter, ...]:
    """What a run that has ended had received and not handled."""
    if state.outcome is None:
        return ()
    left = [
        DeadLetter(number, event.name, "it was not delivered before the run ended")
        for number, event in state.unread.items()
        if isinstance(event, ev.Message)
    ]
    for number, name in state.kept.items():
        left.append(DeadLetter(number, name, "no handler was set for it before the run ended"))
    return tuple(sorted(left, key=lambda letter: letter.number))


def find_letter(
    workflow_id: str, number: int, events: Iterable[tuple[int, ev.Event]]
) -> ev.SignalReceived | None:
    """Find a dead letter in a run's history, to deliver it again.

    Args:
        workflow_id: Of the run.
        number: Of the message's event.
        events: The run's events with their numbers.

    Returns:
        The signal; None when it was delivered again already.

    Raises:
        NoDeadLetterError: There is no dead letter of this number.
    """
    signal: ev.SignalReceived | None = None
    has_failed = False
    for at, event in events:
        match event:
            case ev.SignalReceived() if at == number:
                signal = event
            case ev.SignalReceived() if event.redrives == number:
                return None
            case ev.HandlerFailed() if event.message == number:
                has_failed = True
            case _:
                pass
    if signal is None or not has_failed:
        raise NoDeadLetterError(workflow_id, number)
    return signal
