"""Messages and starts that come again with the request id of an earlier one: they are answered as that one was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from ..journal.errors import JournalError
from ..journal.payloads import Payload
from ..journal.request_ids import Request
from ..journal.writer import Raise
from .call_errors import RequestIdReusedError, WorkflowNotFoundError, WorkflowPurgedError
from .mailbox import Reply, UpdateReply
from .request_digests import request_digest
from .stalls import refuse_stalled

if TYPE_CHECKING:
    from .shard import Shard
    from .workflow_actor import WorkflowActor


#: What people do to a run, by its event.
VERBS = {ev.RunPaused: "pause", ev.RunResumed: "resume", ev.RunReleased: "release"}


def answered_before(actor: WorkflowActor, event: Any, reply: Reply) -> bool:
    """Whether a message was seen before by its request id; then it is answered as it was then.

    When the journal does not say, its sender gets the reason: to take it in might do twice what was asked for once.
    """
    if not event.request_id:
        return False
    shard = actor.shard
    try:
        seen = shard.index.requests.find(actor.workflow_id, event.request_id)
        if seen is not None:
            _answer_again(shard, actor, event, reply, seen)
    except (JournalError, OSError) as error:
        shard.reply_when_durable(actor, reply, Raise(error))
        return True
    return seen is not None


def _answer_again(shard: Shard, actor: WorkflowActor, event: Any, reply: Reply, seen: Request) -> None:
    receiver = shard.actor_by_key(seen.run_key)
    kind, name, args = said(event)
    if receiver is None:
        gone = WorkflowPurgedError(actor.workflow_id, event.request_id)
        shard.reply_when_durable(actor, reply, Raise(gone) if type(event) is ev.UpdateReceived else None)
    elif not is_same(shard, seen.digest, event.digest, kind=kind, name=name, args=args):
        error = RequestIdReusedError(event.request_id, actor.workflow_id)
        shard.reply_when_durable(receiver, reply, Raise(error))
    elif type(event) is ev.UpdateReceived and reply is not None:
        answer: Any
        try:
            answer = _answer_of(receiver, seen.event)
        except WorkflowNotFoundError:
            answer = Raise(WorkflowPurgedError(actor.workflow_id, event.request_id))
        if answer is not None:
            shard.reply_when_durable(receiver, reply, answer)
        elif receiver.is_stalled:
            refuse_stalled(receiver, reply)
        else:
            if isinstance(reply, UpdateReply) and seen.event in receiver.state.updates:
                shard.reply_when_durable(receiver, reply.accepted)
            receiver.wait_for_update(seen.event, reply)
    else:
        shard.reply_when_durable(receiver, reply)


def said(event: Any) -> tuple[str, str, Sequence[Payload]]:
    """What must be equal in a repeat: kind, name and arguments."""
    match event:
        case ev.UpdateReceived():
            return "update", event.name, event.args
        case ev.SignalReceived():
            return "signal", event.name, event.args
        case _:
            return VERBS[type(event)], event.reason, ()


def _answer_of(actor: WorkflowActor, update: int) -> Payload | ev.UpdateFailed | ev.Outcome | None:
    """What an update of a run was answered with; None while it is not."""
    state = actor.state
    answer = state.answers.get(update)
    if answer is None and update not in state.updates and update not in state.unread:
        for _at, record in reversed(actor.shard.records(actor)):
            for event in record.outputs if type(record) is ev.Turn else ():
                if type(event) is ev.UpdateCompleted and event.update == update:
                    return event.result
                if type(event) is ev.UpdateFailed and event.update == update:
                    return event
    return answer or state.outcome


def is_same(
    shard: Shard, stored: bytes, digest: bytes, *, kind: str, name: str, args: Sequence[Payload]
) -> bool:
    """Whether a request is the one seen before, perhaps when another key was the active one."""
    if stored == digest:
        return True
    keys = () if shard.coder is None else (*shard.coder.digest_keys(), b"")
    return any(stored == request_digest(kind, name, args, key) for key in keys)
