"""Bringing runs back from the journal: at start, and after a failed commit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..journal.errors import CommitUnknownError
from ..journal.failures import Failure, class_names
from ..journal.fault_points import fault_point
from ..journal.fold import RunState
from ..journal.run_index import load
from ..journal.writer import Raise, settle
from .errors import WorkflowNotRegisteredError
from .workflow_actor import WorkflowActor

log = logging.getLogger("everact.runtime")

if TYPE_CHECKING:
    from .shard import Shard


def recover(shard: Shard) -> None:
    """Read the journal and carry on with every open run.

    A run that stalled is tried once again; one whose type is not registered is held.
    """
    shard.index, states, shard.next_key = load(shard.store)
    fault_point("recovery.loaded")
    for key, state in states.items():
        definition = shard.workflows.get(state.started.workflow_type)
        actor = WorkflowActor(shard, key, state.started.workflow_id, definition)
        _adopt(shard, actor, state)
        _retry_stalled(shard, actor)
    fault_point("recovery.after")
    log.info(
        "journal %s: %d runs, %d of them open", shard.store.journal_id, len(shard.index.rows), len(states)
    )


def rebuild(shard: Shard) -> None:
    """After a failed commit: begin a new incarnation from what the journal holds.

    Attempts in hand go on; their results are matched by their fence.
    """
    shard.store.reopen()
    index, states, next_key = load(shard.store)  # all that can fail comes before anything is thrown away
    unknown = shard.writer.unknown()
    old = shard.actors
    shard.actors = {}
    shard.newest = {}
    shard.timers.close()
    shard.forget_closed()
    shard.index, shard.next_key = index, next_key
    shard.open_writer()
    for actor in old.values():
        actor.drop_instance()
        actor.batch = 0
    for key, state in states.items():
        actor = old.get(key)  # type: ignore[assignment]  # the check follows
        if actor is None or actor.run_id != state.started.run_id:
            definition = shard.workflows.get(state.started.workflow_type)
            actor = WorkflowActor(shard, key, state.started.workflow_id, definition)
        _refuse_lost_updates(actor, state, unknown)
        _adopt(shard, actor, state)
    for actor in old.values():
        if shard.actors.get(actor.key) is not actor:
            _let_go(shard, actor, unknown)


def _refuse_lost_updates(actor: WorkflowActor, state: RunState, unknown: Exception) -> None:
    """Updates that were accepted in lost turns: their event numbers will be those of other events."""
    for number in [n for n in actor.update_waiters if n not in state.updates and n not in state.unread]:
        for waiter in actor.update_waiters.pop(number):
            settle(waiter, Raise(CommitUnknownError(*unknown.args)))


def _let_go(shard: Shard, actor: WorkflowActor, unknown: Exception) -> None:
    """A run that the journal does not hold as open: it never was, or its end is durable."""
    waiting = [waiter for waiter, _ in actor.result_waiters]
    waiting += [waiter for waiters in actor.update_waiters.values() for waiter in waiters]
    waiting += [reply for _event, reply in actor.mailbox if reply is not None]
    actor.mailbox.clear()
    for future in waiting:
        settle(future, Raise(CommitUnknownError(*unknown.args)))
    for attempt in actor.attempts.values():
        shard.pool.withdraw(attempt)
    actor.attempts.clear()


def _adopt(shard: Shard, actor: WorkflowActor, state: RunState) -> None:
    """Put an open run into the shard: arm its timers, dispatch what it waits for."""
    actor.state = state
    shard.actors[actor.key] = actor
    shard.newest[actor.workflow_id] = actor
    for command in state.timers:
        shard.arm_timer(actor, command)
    for command, pending in state.activities.items():
        if pending.next_at > shard.now():
            shard.arm_retry(actor, command)
        else:
            shard.dispatch(actor, command)
    if (actor.mailbox or (state.unread and state.stall is None)) and not actor.queued:
        shard.enqueue(actor)


def _retry_stalled(shard: Shard, actor: WorkflowActor) -> None:
    stall = actor.state.stall
    if actor.definition is None:
        error = WorkflowNotRegisteredError(actor.state.started.workflow_type, list(shard.workflows))
        message = f"{error} If the class was renamed, let it keep its stored name: @workflow.defn(name=...)."
        if stall is None or stall.failure.message != message:
            failure = Failure(
                type="WorkflowNotRegisteredError", bases=class_names(type(error)), message=message
            )
            actor.stall("held", failure)
            shard.enqueue(actor)  # its pump sends the record to the disk
    elif stall is not None:
        # At once: whoever asks for the result from here on waits for what comes of it.
        actor.release("the runtime started")
        shard.enqueue(actor)
