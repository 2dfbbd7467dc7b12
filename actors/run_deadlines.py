"""Limits of runs, and runs that begin later: armed once they are durable, and whenever their run comes into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from ..journal import events as ev
from ..journal.fault_points import fault_point
from ..journal.run_times import deadline, execution_deadline, waits_to_begin
from .chains import follow_up
from .mailbox import Reply

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


def arm_run(actor: WorkflowActor) -> None:
    """Wait for a run's time to begin, and for its limits."""
    state = actor.state
    if state.outcome is not None:
        return
    timers = actor.shard.timers
    if waits_to_begin(state):
        timers.add(state.started.begins_at, _begin, _is_waiting, actor, 0)
    limit = deadline(state)
    if limit:
        timers.add(limit, _expire, _is_open, actor, 0)


def _begin(actor: WorkflowActor, _command: int) -> None:
    fault_point("run.begin.before", actor)
    actor.restarts = None
    if not actor.queued:
        actor.shard.enqueue(actor)


def _expire(actor: WorkflowActor, _command: int) -> None:
    state = actor.state
    limit = deadline(state)
    if limit > actor.shard.now():  # it has begun since, later than it was to
        actor.shard.timers.add(limit, _expire, _is_open, actor, 0)
        return
    fault_point("run.timeout.before", actor)
    options = state.started.options
    of_all = execution_deadline(state)
    is_of_all = 0 < of_all <= actor.shard.now()
    length = 0
    if options is not None:
        length = options.execution_timeout if is_of_all else options.run_timeout
    actor.put_first(ev.WorkflowTimedOut("execution_timeout" if is_of_all else "run_timeout", length), None)


def time_out(actor: WorkflowActor, event: ev.WorkflowTimedOut, reply: Reply) -> None:
    """End a run whose limit has passed, at once (R1); another one follows if it is to be tried again."""
    state = actor.state
    if state.cancel is None:
        following = follow_up(state.started, event, actor.shard.now(), execution_deadline(state))
        event = structs.replace(event, next=following)
    actor.close_at_once(event, reply)


def _is_waiting(actor: WorkflowActor, _command: int) -> bool:
    return (
        actor.shard.actors.get(actor.key) is actor
        and actor.state.outcome is None
        and waits_to_begin(actor.state)
    )


def _is_open(actor: WorkflowActor, _command: int) -> bool:
    return actor.shard.actors.get(actor.key) is actor and actor.state.outcome is None
