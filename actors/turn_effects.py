"""What follows from the outputs of a turn, once it is durable."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from ..journal.failures import full_text
from ..journal.run_status import status_flags
from ..journal.saga_events import CompensationEscalated
from ..journal.writer import Batch
from .run_timers import arm_timer
from .sending import SENDS
from .stall_waiters import tell_stalled

log = logging.getLogger("everact.runtime")

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


def _activity_scheduled(actor: WorkflowActor, batch: Batch, event: ev.ActivityScheduled) -> None:
    batch.effects.append((actor.shard.dispatcher.begin, (actor, event.command)))


def _activity_cancelled(actor: WorkflowActor, batch: Batch, event: ev.ActivityCancelRequested) -> None:
    batch.effects.append((actor.shard.dispatcher.cancel, (actor, event)))


def _timer_started(actor: WorkflowActor, batch: Batch, event: ev.TimerStarted) -> None:
    batch.effects.append((arm_timer, (actor, event.command)))


def _timer_cancelled(actor: WorkflowActor, batch: Batch, _event: ev.TimerCancelled) -> None:
    batch.effects.append((actor.shard.timers.note_dead, (1,)))


def _dead_letter(actor: WorkflowActor, batch: Batch, event: ev.HandlerFailed) -> None:
    batch.effects.append((_log_dead_letter, (actor, event)))


def _failed(actor: WorkflowActor, batch: Batch, event: ev.WorkflowFailed) -> None:
    batch.effects.append((_log_failed, (actor, event)))


def _log_dead_letter(actor: WorkflowActor, event: ev.HandlerFailed) -> None:
    """A signal could not be handled; its sender has gone on."""
    text = full_text(event.failure)
    log.error("workflow %r: the signal of event %d failed: %s", actor.workflow_id, event.message, text)


def _log_failed(actor: WorkflowActor, event: ev.WorkflowFailed) -> None:
    """A run failed; perhaps nobody waits for it."""
    text = full_text(event.failure)
    following = "" if event.next is None else f", run {event.next.run_id} follows ({event.next.reason})"
    log.warning("workflow %r (run %s) failed%s: %s", actor.workflow_id, actor.run_id, following, text)


def _timed_out(actor: WorkflowActor, batch: Batch, event: ev.WorkflowTimedOut) -> None:
    message = "workflow %r (run %s) was closed: it took longer than %s=%g s"
    seconds = event.limit / 1_000_000
    batch.effects.append((log.warning, (message, actor.workflow_id, actor.run_id, event.option, seconds)))


def _update_done(actor: WorkflowActor, batch: Batch, event: ev.UpdateCompleted | ev.UpdateFailed) -> None:
    for waiter in actor.update_waiters.pop(event.update, ()):
        batch.waiters.append((waiter, event))


def _escalated(actor: WorkflowActor, batch: Batch, event: CompensationEscalated) -> None:
    """The turn itself has quarantined the run: lists show it at once, waiters hear of it."""
    status = status_flags(actor.state.status)
    batch.entries[-1] = batch.entries[-1]._replace(flags=batch.entries[-1].flags | status)
    stall = actor.state.stall
    if stall is not None:  # neither has the run ended in the same turn, nor is its release on its way
        if actor.coding is not None:
            actor.coding.stall = event.failure
        tell_stalled(actor, ev.RunStalled(stall.kind, event.failure))


#: Events whose effect shows them to people: it gets the plain one, the others what is stored.
SHOWN = frozenset([ev.HandlerFailed, ev.WorkflowFailed, CompensationEscalated])

EFFECTS: dict[type, Callable[[WorkflowActor, Batch, Any], None]] = {
    ev.ActivityScheduled: _activity_scheduled,
    ev.ActivityCancelRequested: _activity_cancelled,
    ev.TimerStarted: _timer_started,
    ev.TimerCancelled: _timer_cancelled,
    ev.HandlerFailed: _dead_letter,
    ev.WorkflowFailed: _failed,
    ev.WorkflowTimedOut: _timed_out,
    ev.UpdateCompleted: _update_done,
    ev.UpdateFailed: _update_done,
    CompensationEscalated: _escalated,
    **SENDS,
}
