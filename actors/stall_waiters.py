"""Whoever waits for a run that cannot go on is told at once (R13)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..journal import events as ev
from ..journal.failures import full_text
from ..journal.writer import Raise
from .errors import WorkflowFailedError, WorkflowHeldError, WorkflowQuarantinedError
from .failure_conversion import error_of

log = logging.getLogger("everact.runtime")

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


def tell_stalled(actor: WorkflowActor, stall: ev.RunStalled) -> None:
    """A run has stopped, for this plain reason: nobody is left hanging."""
    about = (stall.kind, full_text(stall.failure))
    message = "workflow %r (run %s) is %s: %s"
    actor.batch.after(log.error, message, actor.workflow_id, actor.run_id, *about)
    for waiter, wakes in actor.result_waiters:
        if wakes:
            actor.shard.reply_when_durable(actor, waiter, Raise(stall_error(actor, stall)))
    actor.result_waiters[:] = [entry for entry in actor.result_waiters if not entry[1]]
    for waiters in actor.update_waiters.values():
        for waiter in waiters:
            actor.shard.reply_when_durable(actor, waiter, Raise(stall_error(actor, stall)))
    actor.update_waiters = {}


def stall_error(actor: WorkflowActor, stall: ev.RunStalled) -> WorkflowFailedError:
    """What waiters of a stalled run get."""
    kind = WorkflowHeldError if stall.kind == "held" else WorkflowQuarantinedError
    failure = stall.failure
    error = kind(actor.workflow_id, actor.run_id, f"{failure.type}: {failure.message}")
    error.__cause__ = error_of(failure, actor.shard.converter)
    return error
