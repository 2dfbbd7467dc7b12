"""The timers of runs: armed once their start is durable, fired as an event of their run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..journal import events as ev
from ..journal.fault_points import fault_point

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


def arm_timer(actor: WorkflowActor, command: int) -> None:
    """Wait for a timer's deadline."""
    timer = actor.state.timers.get(command)
    if timer is not None:
        actor.shard.timers.add(timer.deadline, _due, _is_alive, actor, command)


def _due(actor: WorkflowActor, command: int) -> None:
    fault_point("timer.fire.before", actor)
    actor.put(ev.TimerFired(command))


def _is_alive(actor: WorkflowActor, command: int) -> bool:
    # It may have left memory and come back as another object, with entries of its own.
    return command in actor.state.timers and actor.shard.actors.get(actor.key) is actor
