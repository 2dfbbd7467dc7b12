"""A run that cannot go on: it stands still, its input is kept, and whoever waits for it is told."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ..journal import events as ev
from ..journal.errors import PayloadCodecError
from ..journal.failures import Failure, class_names
from ..journal.run_status import status_flags
from ..journal.run_times import is_early
from ..journal.writer import Raise
from .appending import append
from .errors import WorkflowNotRegisteredError
from .failure_conversion import failure_of, plain_failure
from .mailbox import Mail, Reply
from .stall_waiters import stall_error, tell_stalled

log = logging.getLogger("everact.runtime")

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


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
    plain: ev.RunStalled,
    event: ev.RunStalled,
    mail: tuple[Mail, Reply] | None,
) -> None:
    """Record that the run stands still."""
    append_status(actor, event, None)
    if actor.coding is not None:
        actor.coding.stall = plain.failure
    tell_stalled(actor, plain)
    if mail is not None:
        refuse_stalled(actor, mail[1])


def append_status(
    actor: WorkflowActor, event: ev.StatusChange, reply: Reply, *, is_delivered: bool = False
) -> None:
    """Append an event that changes the run's status; lists show it at once."""
    record = ev.Received((event,)) if is_delivered else ev.Turn((event,))
    append(actor, record, record, actor.shard.now(), reply, body=ev.encode_record(record))
    entries = actor.shard.writer.open.entries
    entries[-1] = entries[-1]._replace(flags=entries[-1].flags | status_flags(actor.state.status))


def unregistered(actor: WorkflowActor) -> Failure:
    """Why a run is held whose type is not registered."""
    error = WorkflowNotRegisteredError(actor.state.started.workflow_type, list(actor.shard.workflows))
    message = f"{error} If the class was renamed, let it keep its stored name: @workflow.defn(name=...)."
    return Failure(
        type="WorkflowNotRegisteredError", bases=class_names(WorkflowNotRegisteredError), message=message
    )


def hold_unregistered(actor: WorkflowActor) -> None:
    """Hold a run whose type is not registered (R13)."""
    stall_run(actor, "held", unregistered(actor), is_ours=True)


def release_run(actor: WorkflowActor, reason: str) -> None:
    """Try a held run again in a new start, with all that it has received."""
    append_release(actor, ev.RunReleased(reason), None)


def append_release(actor: WorkflowActor, event: ev.RunReleased, reply: Reply) -> None:
    """Record that a stalled run is tried again; what it has received is delivered next.

    A saga that has escalated waits for the release itself: it is received, and delivered as any input.
    """
    append_status(actor, event, reply, is_delivered=actor.state.is_escalated)
    if not is_early(actor.state, actor.shard.now()):
        actor.restarts = None
    actor.batch.after(dispatch_again, actor, tuple(actor.state.activities))
    if actor.coding is not None:
        actor.coding.stall = None
        actor.coding.try_again()


def dispatch_again(actor: WorkflowActor, commands: tuple[int, ...]) -> None:
    """What the run waits for and nobody runs (its arguments could not be decoded) is started.

    Args:
        actor: The run.
        commands: What it waited for when it was released; later ones are perhaps not durable yet.
    """
    shard = actor.shard
    for command in commands:
        pending = actor.state.activities.get(command)
        if pending is not None and pending.next_at <= shard.now():
            shard.dispatcher.dispatch(actor, command)


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
