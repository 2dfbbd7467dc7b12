"""Bringing runs back from the journal: at start, and after a failed commit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..journal.errors import EveractError
from ..journal.failures import Failure, class_names
from ..journal.fault_points import fault_point
from ..journal.fold import RunState
from ..journal.run_index import load
from ..journal.writer import Raise, settle
from .errors import WorkflowNotRegisteredError
from .mailbox import OUTCOMES
from .workflow_actor import WorkflowActor

log = logging.getLogger("everact.runtime")

if TYPE_CHECKING:
    from .shard import Shard


def recover(shard: Shard) -> None:
    """Read the journal, open a writer, and carry on with every open run.

    A run that stalled is tried once again; one whose type is not registered is held.
    """
    shard.index, states, shard.next_key = load(shard.store)
    fault_point("recovery.loaded")
    shard.writer = shard.new_writer()
    try:
        shard.intake.check()
        for key, state in states.items():
            actor = _actor(shard, key, state)
            actor.tried = False
            _adopt(shard, actor)
            _retry_stalled(shard, actor)
        fault_point("recovery.after")
    except BaseException:
        shard.close()
        raise
    runs = len(shard.index.rows)
    log.info("journal %s: %d runs, %d of them open", shard.store.journal_id, runs, len(states))


def rebuild(shard: Shard) -> None:
    """After a failed commit: begin a new incarnation from what the journal holds.

    Every run is made anew. What is carried over is what did not come from turns that may be lost: mail that no turn has
    handled, callers who wait for what the journal still holds, attempts in hand and their results.
    """
    shard.store.reopen()
    index, states, next_key = load(shard.store)  # all that can fail comes before anything is thrown away
    writer = shard.new_writer()
    unknown = shard.writer.unknown()
    shard.writer = writer
    shard.index, shard.next_key = index, next_key
    old = shard.replace_actors()
    try:
        for key, state in states.items():
            actor = _actor(shard, key, state)
            before = old.get(key)
            if before is not None and before.run_id == actor.run_id:
                del old[key]
                _carry_over(before, actor, unknown)
            _adopt(shard, actor)
            if not actor.tried:
                _retry_stalled(shard, actor)
    finally:  # the journal does not hold these as open: they never were, or their end is durable
        for gone in old.values():
            gone.let_go(unknown)
    shard.go_on()


def _carry_over(before: WorkflowActor, actor: WorkflowActor, unknown: EveractError) -> None:
    """Take from an earlier object of a run what no lost turn has touched."""
    state = actor.state
    actor.tried = before.tried
    actor.result_waiters = before.result_waiters
    for number, waiters in before.update_waiters.items():
        if number in state.updates or number in state.unread:
            actor.update_waiters[number] = waiters
        else:  # accepted in a lost turn: its number will be another event's
            for waiter in waiters:
                settle(waiter, Raise(unknown))
    for command, attempt in before.attempts.items():
        pending = state.activities.get(command)
        if pending is not None and pending.attempt == attempt.number:
            attempt.actor = actor
            actor.attempts[command] = attempt
        else:  # its cancel was written after all
            actor.shard.dispatcher.pool.withdraw(attempt)
    before.attempts = {}
    actor.mailbox.extend(mail for mail in before.mailbox if type(mail[0]) not in OUTCOMES)
    for command, event in before.outcomes.items():  # paid for: they are not asked for again
        if not actor.is_stale(event):
            actor.outcomes[command] = event
            actor.mailbox.append((event, None))
    before.mailbox.clear()
    before.outcomes = {}


def _actor(shard: Shard, key: int, state: RunState) -> WorkflowActor:
    definition = shard.workflows.get(state.started.workflow_type)
    actor = WorkflowActor(shard, key, state.started.workflow_id, definition)
    actor.state = state
    return actor


def _adopt(shard: Shard, actor: WorkflowActor) -> None:
    """Put an open run into the shard: arm its timers, dispatch what it waits for."""
    state = actor.state
    shard.actors[actor.key] = actor
    shard.newest[actor.workflow_id] = actor
    for command in state.timers:
        shard.arm_timer(actor, command)
    for command, pending in state.activities.items():
        if pending.next_at > shard.now():
            shard.dispatcher.arm_retry(actor, command)
        else:
            shard.dispatcher.dispatch(actor, command)
    if (actor.mailbox or (state.unread and state.stall is None)) and not actor.queued:
        shard.enqueue(actor)


def _retry_stalled(shard: Shard, actor: WorkflowActor) -> None:
    """Try a stalled run once in each start; hold one whose type is not registered."""
    stall = actor.state.stall
    if actor.definition is None:
        error = WorkflowNotRegisteredError(actor.state.started.workflow_type, list(shard.workflows))
        message = f"{error} If the class was renamed, let it keep its stored name: @workflow.defn(name=...)."
        if stall is None or stall.failure.message != message:
            kind = "WorkflowNotRegisteredError"
            actor.stall("held", Failure(type=kind, bases=class_names(type(error)), message=message))
            shard.enqueue(actor)  # its pump sends the record to the disk
    elif stall is not None:
        # At once: whoever asks for the result from here on waits for what comes of it.
        actor.release("the runtime started")
        shard.enqueue(actor)
    actor.batch.after(actor.mark_tried)
