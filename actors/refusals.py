"""What callers get whose message is not taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..journal import events as ev
from ..journal.errors import EveractError, PayloadError
from ..journal.failures import safe_message
from ..journal.writer import Raise
from .call_errors import ActivityNotPendingError, WorkflowClosedError
from .errors import UnknownHandlerError, UpdateRejectedError
from .mailbox import Reply

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


def refuse_closed(actor: WorkflowActor, reply: Reply) -> None:
    """The run has ended."""
    error = WorkflowClosedError(actor.workflow_id, actor.run_id, actor.state.status)
    actor.shard.reply_when_durable(actor, reply, Raise(error))


def refuse_stale(actor: WorkflowActor, event: ev.Event, reply: Reply) -> None:
    """Nobody waits for this outcome or heartbeat of an attempt any more."""
    if reply is not None and not isinstance(event, ev.TimerFired):
        command, attempt = getattr(event, "command", 0), getattr(event, "attempt", 0)
        error = ActivityNotPendingError(actor.workflow_id, actor.run_id, command, attempt)
        actor.shard.reply_when_durable(actor, reply, Raise(error))


def reject_update(actor: WorkflowActor, refusal: BaseException, reply: Reply) -> None:
    """An update's validator refused it."""
    error: EveractError
    if isinstance(refusal, UnknownHandlerError | UpdateRejectedError | PayloadError):
        error = refusal
    else:
        error = UpdateRejectedError(
            f"the update was rejected: {type(refusal).__name__}: {safe_message(refusal)}"
        )
        error.__cause__ = refusal
    actor.shard.reply_when_durable(actor, reply, Raise(error))
    if actor.instance is not None and actor.instance.logs:  # what the validator has logged
        actor.batch.after(actor.shard.emit_logs, actor.instance.logs)
        actor.instance.logs = []
