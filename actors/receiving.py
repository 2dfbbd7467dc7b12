"""What a message of another run does to the run that it is for: what that receives, and what is answered.

Nothing here runs code of users. What is refused is answered as a direct call would be.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from functools import partial
from typing import TYPE_CHECKING, Any

from ..journal import child_events as ce
from ..journal import events as ev
from ..journal.errors import EveractError, JournalCorruptError
from ..journal.event_base import ParentRecord
from ..journal.outbox import Message
from ..journal.run_messages import Answer, RunMessage, StartRun, ToRun
from ..journal.run_times import is_early
from .appending import append
from .call_errors import (
    WorkflowAlreadyStartedError,
    WorkflowBacklogFullError,
    WorkflowClosedError,
    WorkflowNotFoundError,
    WorkflowTypeError,
)
from .child_errors import texts_of
from .controls import BACKLOG
from .errors import UnknownHandlerError
from .options import IfClosed, IfRunning
from .restarts import hold_until_begin
from .sending import send
from .stalls import hold_unregistered
from .start_policies import decide
from .succession import current_run
from .workflow_actor import WorkflowActor

if TYPE_CHECKING:
    from .shard import Shard

log = logging.getLogger("everact.runtime")

#: Bytes of what one record of a run holds that gets many messages at once.
RECORD_BYTES = 1 << 20


class NotNowError(Exception):
    """The run that a message is for can take nothing in just now."""


class Receiving:
    """Lets runs of a shard receive; what one run gets in a row goes into one record."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._receiver: WorkflowActor | None = None
        self._events: list[Any] = []
        self._size = 0

    def forget(self) -> None:
        """After a failed commit: nothing was received."""
        self._receiver = None
        self._events = []

    def take(self, message: Message, body: RunMessage, kept: Container[str]) -> None:
        """Apply a message.

        Args:
            message: As it was sent.
            body: What it says.
            kept: Ids of the workflows that have earlier messages kept back; this one goes behind them, also when
                another run of the id is there by now.

        Raises:
            NotNowError: Its run can take nothing in just now.
            JournalError: The journal could not be read just now.
        """
        match body:
            case StartRun():
                self._start(body, kept)
            case ToRun():
                self._to_run(message, body, kept)
            case Answer():
                self._answer(message, body, kept)

    def flush(self) -> None:
        """Write what the last run has received."""
        actor, events = self._receiver, self._events
        if actor is None:
            return
        self._receiver, self._events, self._size = None, [], 0
        record = ev.Received(tuple(events))
        append(actor, record, record, self._shard.now(), None, body=ev.encode_record(record))
        if actor.delivers and not actor.queued:
            self._shard.enqueue(actor)

    def _receive(self, actor: WorkflowActor, event: Any, size: int) -> None:
        if self._receiver is not actor or self._size > RECORD_BYTES:
            self.flush()
            self._receiver = actor
        self._events.append(event)
        self._size += size

    def _find(
        self, workflow_id: str, run_id: str, kept: Container[str], *, of_chain: bool = False
    ) -> WorkflowActor | None:
        """The run that a message is for, or what its chain has come to, once it can take it; None if there is none."""
        find = partial(current_run, self._shard) if of_chain else self._shard.find
        try:
            actor = find(workflow_id, run_id or None)
        except WorkflowNotFoundError:
            return None
        self._check(actor, kept)
        return actor

    @staticmethod
    def _check(actor: WorkflowActor, kept: Container[str]) -> None:
        is_writing = actor.coding is not None and actor.coding.is_writing
        if actor.workflow_id in kept or is_writing or not actor.state.last_event:
            raise NotNowError

    # --- starts

    def _start(self, body: StartRun, kept: Container[str]) -> None:
        shard = self._shard
        started = body.started
        workflow_id = started.workflow_id
        if workflow_id in kept:
            raise NotNowError
        current = shard.newest.get(workflow_id)
        row = shard.index.find(workflow_id) if current is None else None
        status = row.status if row is not None else None if current is None else current.state.status
        if_running: IfRunning = body.if_running  # type: ignore[assignment]  # checked at the call
        if_closed: IfClosed = body.if_closed  # type: ignore[assignment]
        decision = decide(status, if_running, if_closed)
        if row is not None and decision != "start":  # what has ended before is not read for another start
            current = shard.actor_of(row)
        if current is not None:
            self._check(current, kept)
        if current is not None and decision in ("attach", "refuse"):
            self._not_started(body, current, is_refused=decision == "refuse")
            return
        self.flush()
        actor = WorkflowActor(shard, shard.next_key, workflow_id, shard.workflows.get(started.workflow_type))
        actor.replaces = current if decision == "replace" else None
        shard.next_key += 1
        actor.state.started = started
        if started.begins_at > shard.now():
            hold_until_begin(actor)
        shard.actors[actor.key] = actor
        shard.newest[workflow_id] = actor
        record = ev.Received((started,))
        append(actor, record, record, shard.now(), None, body=ev.encode_record(record))
        parent = started.parent
        if parent is not None and body.awaits_start:
            self._reply(actor.key, parent, ce.ChildStarted(parent.command, started.run_id))
        if body.sender is not None:
            self._reply(actor.key, body.sender, ce.MessageDelivered(body.sender.command, started.run_id))
        if actor.definition is None:
            hold_unregistered(actor)
        shard.enqueue(actor)

    def _not_started(self, body: StartRun, current: WorkflowActor, *, is_refused: bool) -> None:
        """The id is taken."""
        started = body.started
        kind = current.state.started.workflow_type
        error: EveractError | None = None
        if is_refused:
            started_as = "" if started.parent is None else "child"
            error = WorkflowAlreadyStartedError(
                started.workflow_id, current.run_id, current.state.status, started_as
            )
        elif kind != started.workflow_type:
            error = WorkflowTypeError(started.workflow_id, kind, started.workflow_type)
        if started.parent is not None and error is not None:
            news = ce.ChildStartFailed(started.parent.command, *texts_of(error))
            self._reply(0, started.parent, news)
        elif body.sender is not None:
            self._tell(0, body.sender, current.run_id, error)

    # --- messages

    def _to_run(self, message: Message, body: ToRun, kept: Container[str]) -> None:
        actor = self._find(body.workflow_id, body.run_id, kept, of_chain=True)
        if actor is not None and body.child_of is not None and actor.state.started.parent != body.child_of:
            actor = None  # the child has ended, and somebody has used its id again
        if actor is self._receiver:
            self.flush()  # what follows looks at what it has received
        event = body.event
        error: EveractError | None = None
        if actor is None:
            error = WorkflowNotFoundError(body.workflow_id, body.run_id or None)
        elif actor.is_closed:
            error = WorkflowClosedError(body.workflow_id, actor.run_id, actor.state.status)
        elif isinstance(event, ev.WorkflowTerminated):
            actor.close_at_once(event, None)
        elif isinstance(event, ev.CancelRequested):
            if actor.state.cancel is None:
                self._receive(actor, event, 0)
                if is_early(actor.state, self._shard.now()):  # as with a direct cancel, it ends at once
                    self.flush()
                    actor.close_at_once(ev.WorkflowCancelled(event.reason), None)
        elif isinstance(event, ev.SignalReceived):
            error = _signal_refusal(actor, event)
            if error is None:
                self._receive(actor, event, len(message.body))
        else:
            raise ValueError(f"no run is sent a {type(event).__name__}")
        if body.sender is not None:
            key = message.run_key if actor is None else actor.key
            self._tell(key, body.sender, "" if actor is None else actor.run_id, error)

    def _answer(self, message: Message, body: Answer, kept: Container[str]) -> None:
        event: Any = body.event
        if not isinstance(event, ce.HEARD):
            raise ValueError(f"no run hears of a {type(event).__name__}")  # noqa: TRY004  (the message's fault)
        try:
            actor = self._find(body.workflow_id, body.run_id, kept)
        except JournalCorruptError:
            row = self._shard.index.find(body.workflow_id, body.run_id)
            if row is None or not row.is_closed:
                raise
            return  # what is damaged of it is not needed: it has ended
        if actor is None or actor.is_closed:
            return
        state = actor.state
        waits = state.messages if isinstance(event, ce.MESSAGE_ENDS) else state.children
        if event.command in waits:  # else it no longer wants to know
            self._receive(actor, event, len(message.body))

    # --- answers

    def _tell(self, key: int, sender: ParentRecord, run_id: str, error: EveractError | None) -> None:
        """Answer a message: it was delivered, or why not."""
        if error is None:
            self._reply(key, sender, ce.MessageDelivered(sender.command, run_id))
        else:
            self._reply(key, sender, ce.MessageFailed(sender.command, *texts_of(error)))

    def _reply(self, key: int, receiver: ParentRecord, event: Any) -> None:
        shard = self._shard
        message = Answer(receiver.workflow_id, receiver.run_id, event)
        send(shard, shard.writer.open, key, receiver.workflow_id, message)


def _signal_refusal(actor: WorkflowActor, event: ev.SignalReceived) -> EveractError | None:
    """Why a signal is not taken (R25, R1), or None."""
    definition = actor.definition
    state = actor.state
    if (
        definition is not None
        and event.name not in definition.handlers["signal"]
        and "signal" not in definition.dynamic
        and not definition.sets_handlers
    ):
        known = list(definition.handlers["signal"])
        return UnknownHandlerError("signal", event.name, definition.name, known)
    if len(state.unread) >= BACKLOG:
        return WorkflowBacklogFullError(actor.workflow_id, actor.run_id, state.status, BACKLOG)
    return None
