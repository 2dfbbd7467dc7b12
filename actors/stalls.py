"""A run that cannot go on: it stands still, its input is kept, and whoever waits for it is told."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..journal import events as ev
from ..journal.errors import PayloadCodecError
from ..journal.failures import Failure, full_text
from ..journal.run_status import status_flags
from ..journal.writer import Raise
from .appending import append, write
from .errors import WorkflowFailedError, WorkflowHeldError, WorkflowQuarantinedError
from .failure_conversion import error_of, failure_of, plain_failure
from .mailbox import Mail, Reply
from .workflow_instance import WorkflowCrashedError

log = logging.getLogger("everact.runtime")

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


def stall_over(actor: WorkflowActor, crash: WorkflowCrashedError, event: Any, reply: Reply) -> None:
    """Keep the input, stop the run, tell its waiters."""
    was_loaded = actor.instance is not None
    actor.drop_instance()
    failure = stall_failure(crash.error, actor)
    if (
        type(event) is ev.UpdateReceived and not was_loaded
    ):  # it was not accepted: the code could not be loaded
        stall_run(actor, crash.kind, failure, (event, reply))
        return
    if event is not None:
        write(actor, ev.Received((event,)), actor.shard.now(), reply)
    stall_run(actor, crash.kind, failure)


def stall_failure(error: BaseException, actor: WorkflowActor) -> Failure:
    """Why a run stands still, as data; of a payload codec only what it said, not where."""
    if not isinstance(error, PayloadCodecError):
        return failure_of(error, actor.shard.converter, kind="crash")
    log.debug("workflow %r: a payload codec has failed", actor.workflow_id, exc_info=error)
    failure = plain_failure(error, "crash")
    message = f"{failure.message}. The run is tried again when the Runtime starts next."
    return msgspec.structs.replace(failure, message=message)


def stall_run(
    actor: WorkflowActor,
    kind: str,
    failure: Failure,
    mail: tuple[Mail, Reply] | None = None,
    *,
    is_ours: bool = False,
) -> None:
    """Stop the run until it is tried again.

    Args:
        actor: The run.
        kind: ``held`` or ``quarantined``.
        failure: Why.
        mail: What is refused because of it.
        is_ours: The failure has no word of a user in it, and is written without the payload codecs.
    """
    event = ev.RunStalled(kind, failure)
    if actor.coding is None or is_ours:
        append_stall(actor, event, event, mail)
    else:
        actor.coding.write_stall(event, mail)


def append_stall(
    actor: WorkflowActor,
    plain: ev.RunStalled | ev.RunReleased,
    event: ev.RunStalled | ev.RunReleased,
    mail: tuple[Mail, Reply] | None,
) -> None:
    """Record that the run stands still, or is tried again; lists show it at once."""
    record = ev.Turn((event,))
    append(actor, record, record, actor.shard.now(), None, body=ev.encode_record(record))
    entries = actor.shard.writer.open.entries
    entries[-1] = entries[-1]._replace(flags=entries[-1].flags | status_flags(actor.state.status))
    stalled = plain if isinstance(plain, ev.RunStalled) else None
    if actor.coding is not None:
        actor.coding.stall = None if stalled is None else stalled.failure
    if stalled is not None:
        _stalled(actor, stalled)
    if mail is not None:
        refuse_stalled(actor, mail[1])


def release_run(actor: WorkflowActor, reason: str) -> None:
    """Try a stalled run again, with all that it has received."""
    event = ev.RunReleased(reason)
    append_stall(actor, event, event, None)


def _stalled(actor: WorkflowActor, stall: ev.RunStalled) -> None:
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


def refuse_stalled(actor: WorkflowActor, reply: Reply) -> None:
    """The run's code must not run."""
    stall = actor.state.stall
    assert stall is not None
    if actor.coding is None:
        actor.shard.reply_when_durable(actor, reply, Raise(stall_error(actor, stall)))
    else:
        actor.coding.plain_stall(partial(_refuse_stalled, actor, reply))


def _refuse_stalled(actor: WorkflowActor, reply: Reply, stall: ev.RunStalled) -> None:
    actor.shard.reply_when_durable(actor, reply, Raise(stall_error(actor, stall)))


def stall_error(actor: WorkflowActor, stall: ev.RunStalled) -> WorkflowFailedError:
    """What waiters of a stalled run get."""
    kind = WorkflowHeldError if stall.kind == "held" else WorkflowQuarantinedError
    failure = stall.failure
    error = kind(actor.workflow_id, actor.run_id, f"{failure.type}: {failure.message}")
    error.__cause__ = error_of(failure, actor.shard.converter)
    return error
