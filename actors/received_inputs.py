"""Inputs that are in the journal before the code sees them, and the turns that they get."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from .actor_coding import PausedError
from .appending import encoded, write
from .loading import ReplayingError
from .mailbox import MESSAGES, Reply
from .restarts import crash_over
from .run_end import WorkflowCrashedError
from .running import is_valid, run_turn
from .workflow_instance import Delivery

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


def receive_first(actor: WorkflowActor, event: Any, reply: Reply) -> None:
    """Journal an input of a run whose code has perhaps killed the process (R12); it is delivered once durable."""
    if type(event) is ev.UpdateReceived:
        try:
            if not is_valid(actor, actor.instance or actor.load(), event, reply):
                return
        except WorkflowCrashedError as crash:
            crash_over(actor, crash, event, reply)
            return
    write(actor, ev.Received((event,)), actor.shard.now(), reply)


def wait_for_disk(actor: WorkflowActor) -> None:
    """Go on with the run once its newest record is durable."""
    if not actor.is_waiting_for_disk:
        actor.is_waiting_for_disk = True
        actor.batch.after(_go_on, actor)


def _go_on(actor: WorkflowActor) -> None:
    actor.is_waiting_for_disk = False
    if not actor.queued:
        actor.shard.enqueue(actor)


def deliver_unread(actor: WorkflowActor) -> None:
    """Deliver the oldest received input; messages with the start (R1 a) or before the end (R1 b) together."""
    unread = actor.state.unread
    backlog = actor.unread_numbers
    if backlog is None:
        backlog = actor.unread_numbers = deque()
    while not backlog or backlog[0] not in unread:  # those that went with others
        if backlog:
            backlog.popleft()
        else:
            backlog.extend(unread)
    first = backlog[0]
    at = actor.shard.now()
    try:
        numbers = _delivered_with(actor, first, is_last=actor.last_turn == first)
        outputs, ended = _turn_of(actor, numbers, at)
        if ended and len(numbers) < len(together := _delivered_with(actor, first, is_last=True)):
            actor.drop_instance()
            actor.last_turn = first  # to do it again may take several tries, and more come in between
            numbers = together
            outputs, ended = _turn_of(actor, numbers, at)
        assert actor.instance is not None
        if actor.instance.undelivered:
            numbers = [number for number in numbers if number not in actor.instance.undelivered]
        turn = ev.Turn((), tuple(outputs), tuple(numbers))
        body = encoded(actor, turn) if actor.coding is None else b""
    except WorkflowCrashedError as crash:
        crash_over(actor, crash, None, None)
    except (PausedError, ReplayingError):
        raise
    except BaseException:  # KeyboardInterrupt: the turn never was
        actor.drop_instance()
        raise
    else:
        actor.is_wary = False
        actor.last_turn = 0
        write(actor, turn, at, None, body)


def _delivered_with(actor: WorkflowActor, first: int, *, is_last: bool) -> list[int]:
    """Numbers of what one turn delivers: the oldest input, and with the first or the last one all messages."""
    unread = actor.state.unread
    kind = type(unread[first])
    if kind is not ev.WorkflowStarted and not is_last:
        return [first]
    messages = [number for number, event in unread.items() if type(event) in MESSAGES]
    if kind in MESSAGES:  # it keeps its place among them (R2)
        return messages
    return [first, *messages] if kind is ev.WorkflowStarted else [*messages, first]


def _turn_of(actor: WorkflowActor, numbers: list[int], at: int) -> tuple[list[Any], bool]:
    instance = actor.instance or actor.load()
    unread = actor.state.unread if actor.coding is None else actor.coding.unread()
    instance.history_length = actor.state.last_event
    outputs = run_turn(actor, instance, at, [Delivery(n, unread[n], was_received=True) for n in numbers])
    outcome = instance.outcome
    # What a run leaves that continues as new goes to the next one.
    return outputs, outcome is not None and type(outcome) is not ev.WorkflowContinuedAsNew
