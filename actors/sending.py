"""What a turn says to other runs: messages that go into the outbox with it (R15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ..journal import child_events as ce
from ..journal import events as ev
from ..journal.event_base import ParentRecord
from ..journal.outbox import Post
from ..journal.run_ends import next_run
from ..journal.run_messages import Answer, RunMessage, StartRun, ToRun, encode_message
from ..journal.writer import Batch
from .chains import failure_left

if TYPE_CHECKING:
    from .shard import Shard
    from .workflow_actor import WorkflowActor


def send(shard: Shard, batch: Batch, run_key: int, workflow_id: str, message: RunMessage) -> None:
    """Put a message into the outbox, in the transaction of the turn that decides it.

    Args:
        shard: Of the sender.
        batch: That the turn is in.
        run_key: Of the sender; 0 when it has none, as the refusal of a start.
        workflow_id: Where it goes.
        message: What it says.
    """
    post = post_of(shard, batch)
    post.sent.append(shard.outbox.new(shard.number_of(workflow_id), run_key, encode_message(message)))


def post_of(shard: Shard, batch: Batch) -> Post:
    """What a batch changes in the outbox."""
    if batch.post is None:
        batch.post = Post(shard.number)
    return batch.post


def _here(actor: WorkflowActor, command: int) -> ParentRecord:
    return ParentRecord(actor.workflow_id, actor.run_id, command)


def _child_scheduled(actor: WorkflowActor, batch: Batch, event: ce.ChildScheduled) -> None:
    if event.command not in actor.state.children:
        return  # withdrawn in the same turn (R10)
    start = structs.replace(event.start, parent=_here(actor, event.command))
    message = StartRun(start, None, event.if_running, event.if_closed, event.awaits_start)
    send(actor.shard, batch, actor.key, start.workflow_id, message)


def _child_cancelled(actor: WorkflowActor, batch: Batch, event: ce.ChildCancelRequested) -> None:
    if event.mode in (ev.TRY_CANCEL, ev.WAIT_CANCELLED) and event.command in actor.state.children:
        reason = event.reason or f"cancelled by its parent, workflow {actor.workflow_id!r}"
        _to_child(actor, batch, event.command, ev.CancelRequested(reason))


def _to_child(actor: WorkflowActor, batch: Batch, command: int, event: Any) -> None:
    child = actor.state.children[command]
    message = ToRun(child.workflow_id, "", event, child_of=_here(actor, command))
    send(actor.shard, batch, actor.key, child.workflow_id, message)


def _detached(actor: WorkflowActor, batch: Batch, event: ce.DetachedStart) -> None:
    message = StartRun(event.start, _here(actor, event.command), event.if_running, event.if_closed)
    send(actor.shard, batch, actor.key, event.start.workflow_id, message)


def _signal_sent(actor: WorkflowActor, batch: Batch, event: ce.SignalSent) -> None:
    signal = ev.SignalReceived(event.name, event.args, headers=event.headers)
    child_of = _here(actor, event.child) if event.child else None
    message = ToRun(event.workflow_id, event.run_id, signal, child_of, _here(actor, event.command))
    send(actor.shard, batch, actor.key, event.workflow_id, message)


def _cancel_sent(actor: WorkflowActor, batch: Batch, event: ce.CancelSent) -> None:
    reason = event.reason or f"cancelled by workflow {actor.workflow_id!r}"
    cancel = ev.CancelRequested(reason)
    message = ToRun(event.workflow_id, event.run_id, cancel, None, _here(actor, event.command))
    send(actor.shard, batch, actor.key, event.workflow_id, message)


#: What follows from each output, in the transaction of its turn.
SENDS: dict[type, Callable[[WorkflowActor, Batch, Any], None]] = {
    ce.ChildScheduled: _child_scheduled,
    ce.ChildCancelRequested: _child_cancelled,
    ce.DetachedStart: _detached,
    ce.SignalSent: _signal_sent,
    ce.CancelSent: _cancel_sent,
}


def _completed(command: int, run_id: str, outcome: ev.WorkflowCompleted) -> ev.Event:
    return ce.ChildCompleted(command, run_id, outcome.result)


def _failed(command: int, run_id: str, outcome: ev.WorkflowFailed) -> ev.Event:
    return ce.ChildFailed(command, run_id, outcome.failure)


def _cancelled(command: int, run_id: str, outcome: ev.WorkflowCancelled) -> ev.Event:
    return ce.ChildCancelled(command, run_id, outcome.reason)


def _terminated(command: int, run_id: str, outcome: ev.WorkflowTerminated) -> ev.Event:
    return ce.ChildTerminated(command, run_id, outcome.reason)


def _timed_out(command: int, run_id: str, outcome: ev.WorkflowTimedOut) -> ev.Event:
    failure = failure_left(outcome)
    assert failure is not None
    return ce.ChildFailed(command, run_id, failure)


#: How a parent hears of each outcome; while the chain of runs goes on it hears nothing.
_NEWS: dict[type, Callable[[int, str, Any], Any]] = {
    ev.WorkflowCompleted: _completed,
    ev.WorkflowFailed: _failed,
    ev.WorkflowCancelled: _cancelled,
    ev.WorkflowTerminated: _terminated,
    ev.WorkflowTimedOut: _timed_out,
}


def tell_of_end(actor: WorkflowActor, batch: Batch) -> None:
    """The run has ended, in whatever way: its open children get their close policy, its parent hears of it."""
    state = actor.state
    reason = f"its parent, workflow {actor.workflow_id!r}, has ended ({state.status})"
    for command, child in state.children.items():
        if child.close_policy == ce.TERMINATE:
            _to_child(actor, batch, command, ev.WorkflowTerminated(reason))
        elif child.close_policy == ce.REQUEST_CANCEL and not child.cancel_requested:
            _to_child(actor, batch, command, ev.CancelRequested(reason))
    parent = state.started.parent
    news = None if next_run(state.outcome) is not None else _NEWS.get(type(state.outcome))
    if parent is not None and news is not None:
        event = news(parent.command, actor.run_id, state.outcome)
        message = Answer(parent.workflow_id, parent.run_id, event)
        send(actor.shard, batch, actor.key, parent.workflow_id, message)
