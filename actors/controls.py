"""Pause, resume and release; and what a run receives while it must not go on (R1, R13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from ..journal.fault_points import fault_point
from ..journal.run_times import is_early
from ..journal.writer import Raise
from .appending import write
from .call_errors import WorkflowBacklogFullError, WorkflowStatusError
from .errors import WorkflowNotRegisteredError
from .mailbox import MESSAGES, Reply
from .stalls import append_release, append_status, refuse_stalled

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor

#: Inputs that a run may have received and not handled; further messages to it are refused.
BACKLOG = 10_000


def handle_control(actor: WorkflowActor, event: Any, reply: Reply) -> None:
    """Pause, resume or release an open run; to ask for what is so already does nothing."""
    state = actor.state
    kind = type(event)
    error: Exception | None = None
    changes = False
    if kind is ev.RunPaused:
        changes = state.pause is None
    elif kind is ev.RunResumed:
        changes = state.pause is not None
        if not changes and state.stall is not None:
            error = WorkflowStatusError(actor.workflow_id, actor.run_id, state.status, "resume", "release")
    elif state.stall is not None:
        changes = actor.definition is not None
        if not changes:
            error = WorkflowNotRegisteredError(state.started.workflow_type, list(actor.shard.workflows))
    elif state.pause is not None:
        error = WorkflowStatusError(actor.workflow_id, actor.run_id, state.status, "release", "resume")
    fault_point("run.control.before", actor)
    if error is not None:
        actor.shard.reply_when_durable(actor, reply, Raise(error))
    elif not changes:
        actor.shard.reply_when_durable(actor, reply)
    elif kind is ev.RunReleased:
        append_release(actor, event, reply)
    else:
        append_status(actor, event, reply)


def receive(actor: WorkflowActor, event: Any, reply: Reply) -> None:
    """Keep an input of a run whose code must not run now; it is delivered when that may go on."""
    if actor.is_stalled and type(event) is ev.UpdateReceived:
        refuse_stalled(actor, reply)
    elif type(event) in MESSAGES and len(actor.state.unread) >= BACKLOG:
        refuse_backlog(actor, reply, BACKLOG)
    else:
        write(actor, ev.Received((event,)), actor.shard.now(), reply)
        if type(event) is ev.CancelRequested and is_early(actor.state, actor.shard.now()):
            # There is nothing to clean up, and its code must not run yet.
            actor.close_at_once(ev.WorkflowCancelled(event.reason), None)


def refuse_backlog(actor: WorkflowActor, reply: Reply, limit: int) -> None:
    """Too many messages wait already."""
    error = WorkflowBacklogFullError(actor.workflow_id, actor.run_id, actor.state.status, limit)
    actor.shard.reply_when_durable(actor, reply, Raise(error))
