"""What a run that ends hands to the run that follows it, collected before anything of its end is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from ..journal import events as ev
from ..journal.errors import JournalError
from ..journal.payloads import Payload
from ..journal.run_chain import NextRun
from ..journal.run_ends import moves_messages
from .loading import NotReadableError
from .mailbox import MESSAGES

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


class Baggage(NamedTuple):
    """What goes with the next run; payloads stand as the journal has them.

    Attributes:
        following: The next run.
        args: Arguments of the run that ends; none when the next one has its own.
        inputs: Messages, and a request to cancel, that were received and not handled, in order; each with the number
            that it had.
        pause: The run is paused, and so will be the next one.
    """

    following: NextRun
    args: tuple[Payload, ...]
    inputs: list[tuple[int, ev.AnyEvent]]
    pause: ev.RunPaused | None


def collect(actor: WorkflowActor, record: ev.Turn, following: NextRun) -> Baggage:
    """Collect what a run that ends with this record hands on.

    Raises:
        NotReadableError: The journal could not be read just now; nothing has changed.
    """
    outcome = record.outputs[-1]
    assert isinstance(outcome, ev.OUTCOMES)
    state = actor.state
    inputs: dict[int, ev.AnyEvent] = {}
    try:
        if moves_messages(outcome):
            inputs = dict(_undelivered(actor, record))
            inputs.update(_kept(actor, record))
        is_new = type(outcome) is ev.WorkflowContinuedAsNew
        args = () if is_new else _first_event(actor, record).args
    except (JournalError, OSError) as error:
        actor.drop_instance()  # it has gone on to an end that was not kept
        raise NotReadableError from error
    if type(outcome) is ev.WorkflowContinuedAsNew and outcome.carries_cancel and state.cancel is not None:
        inputs.setdefault(0, state.cancel)
    return Baggage(following, args, sorted(inputs.items(), key=lambda item: item[0]), state.pause)


def _undelivered(actor: WorkflowActor, record: ev.Turn) -> Iterator[tuple[int, ev.AnyEvent]]:
    for number, event in actor.state.unread.items():
        if number not in record.delivers and (type(event) in MESSAGES or type(event) is ev.CancelRequested):
            if type(event) is ev.SignalReceived and event.redrives:
                event = structs.replace(event, redrives=0)  # noqa: PLW2901  (that number was one of this run)
            yield number, event


def _kept(actor: WorkflowActor, record: ev.Turn) -> Iterator[tuple[int, ev.AnyEvent]]:
    """The signals that wait for a handler, as they came."""
    kept = set(actor.state.kept)
    for event in record.outputs:
        if type(event) is ev.SignalKept:
            kept.add(event.message)
        elif type(event) is ev.SignalTaken:
            kept.discard(event.message)
    if not kept:
        return
    first = actor.state.last_event + 1
    for number, event in enumerate(_events(actor) if min(kept) < first else (), 1):
        if number in kept:
            assert isinstance(event, ev.SignalReceived)
            yield number, structs.replace(event, redrives=0)
    for number, event in enumerate(record.inputs, first):
        if number in kept:
            yield number, event


def _events(actor: WorkflowActor) -> Iterator[ev.AnyEvent]:
    for _at, record in actor.shard.records(actor):
        yield from ev.events_of(record)


def _first_event(actor: WorkflowActor, record: ev.Turn) -> ev.WorkflowStarted:
    """The start of the run, with its arguments; perhaps it is in this very record, or not delivered yet."""
    known = (*record.inputs[:1], actor.state.unread.get(1))
    for event in known:
        if isinstance(event, ev.WorkflowStarted):
            return event
    started = actor.shard.first_event(actor)
    assert isinstance(started, ev.WorkflowStarted)
    return started
