"""What comes back to a run for its commands: results and failures of activities, timers that fire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from .failure_conversion import error_of

if TYPE_CHECKING:
    from .workflow_instance import Delivery, WorkflowInstance


def deliver_result(run: WorkflowInstance, delivery: Delivery) -> None:
    """An activity is over, with a result or because it was cancelled."""
    event: Any = delivery.event
    future = run.pending.pop(event.command, None)
    if future is None:  # it was cancelled while the result was on its way
        return
    if type(event) is ev.ActivityCompleted:
        if future.step is not None:
            future.tell_step(future.step, is_done=True)
        future.set_result(future.decode(event.result))
    else:
        future.end_cancelled(event.attempt)


def deliver_failure(run: WorkflowInstance, delivery: Delivery) -> None:
    """An activity has failed for good."""
    event = delivery.event
    assert isinstance(event, ev.ActivityFailed)
    future = run.pending.pop(event.command, None)
    if future is not None:
        if future.step is not None:
            future.tell_step(future.step, is_done=False)
        future.set_exception(error_of(event.failure, run._converter))
        future._log_traceback = False  # the failure is in the history


def fire_timer(run: WorkflowInstance, delivery: Delivery) -> None:
    """A timer's deadline has passed."""
    event = delivery.event
    assert isinstance(event, ev.TimerFired)
    timer = run.timers.pop(event.command, None)
    if timer is not None:
        timer.fire()
