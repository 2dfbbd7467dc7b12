"""Names for the fields of a run's events, as its error messages have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..journal import child_events as ce
from ..journal import events as ev
from ..journal.coded_fields import what
from ..journal.fold import RunState
from ..journal.step_events import StepAttemptFailed, StepCompleted, StepFailed
from .definitions import ActivityDefinition, WorkflowDefinition


def about(
    event: ev.Event,
    state: RunState,
    definition: WorkflowDefinition | None,
    activities: Mapping[str, ActivityDefinition],
    inputs: Sequence[ev.Event] = (),
) -> tuple[str, Sequence[str]]:
    """What an event's fields belong to, such as ``"activity charge"``, and the names of its parameters.

    Args:
        event: Of the run, or about to be.
        state: The run's fold, just before the event.
        definition: The run's type; None when that is not registered.
        activities: Those that are registered.
        inputs: What came in with the event, in the same record.
    """
    match event:
        case ev.WorkflowStarted():
            return what(event), () if definition is None else definition.codec.names
        case ev.SignalReceived() | ev.UpdateReceived():
            kind = "signal" if isinstance(event, ev.SignalReceived) else "update"
            handler = None if definition is None else definition.handlers[kind].get(event.name)
            return (what(event), ()) if handler is None else (handler.codec.label, handler.codec.names)
        case ev.ActivityScheduled():
            activity = activities.get(event.activity_type)
            names = () if activity is None else activity.codec.names
            return what(event), (*names[: len(event.args) - len(event.keywords)], *event.keywords)
        case ev.ActivityCompleted() | ev.ActivityFailed() | ev.AttemptFailed() | ev.AttemptNoted():
            pending = state.activities.get(event.command)
            return (what(event) if pending is None else f"activity {pending.scheduled.activity_type}"), ()
        case ev.UpdateCompleted() | ev.UpdateFailed():
            update: ev.Event | None = state.updates.get(event.update) or state.unread.get(event.update)
            position = event.update - state.last_event - 1
            if 0 <= position < len(inputs):
                update = inputs[position]
            return (f"update {update.name}" if isinstance(update, ev.UpdateReceived) else what(event)), ()
        case ev.ValuePublished():
            return what(event), ()
        case ce.ChildScheduled() | ce.DetachedStart() | ce.SignalSent():
            return what(event), ()
        case ce.ChildCompleted() | ce.ChildFailed():
            child = state.children.get(event.command)
            return (what(event) if child is None else f"child workflow {child.workflow_type}"), ()
        case StepAttemptFailed() | StepCompleted() | StepFailed():
            step = None if state.steps is None else state.steps.running.get(event.command)
            owner = f"a step of workflow {state.started.workflow_type}" if state.started else what(event)
            return (owner if step is None else f"step {step.name}"), ()
        case _:
            return what(event) if state.started is None else f"workflow {state.started.workflow_type}", ()
