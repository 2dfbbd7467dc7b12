"""Matchers of the events that tests ask for most; ``EventMatcher`` itself matches all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from types import EllipsisType
from typing import Any

from ..actors.options import microseconds
from .history_matchers import EventMatcher

__all__ = [
    "ActivityCancelRequested",
    "ActivityCancelled",
    "ActivityCompleted",
    "ActivityFailed",
    "ActivityScheduled",
    "AttemptFailed",
    "CancelRequested",
    "ChildCompleted",
    "ChildFailed",
    "ChildScheduled",
    "CompensationCompleted",
    "CompensationFailed",
    "CompensationStarted",
    "HandlerFailed",
    "SideEffectRecorded",
    "SignalReceived",
    "SignalSent",
    "StepCompleted",
    "StepFailed",
    "StepStarted",
    "TimerCancelled",
    "TimerFired",
    "TimerStarted",
    "UpdateCompleted",
    "UpdateFailed",
    "UpdateReceived",
    "ValuePublished",
    "WorkflowCancelled",
    "WorkflowCompleted",
    "WorkflowContinuedAsNew",
    "WorkflowFailed",
    "WorkflowStarted",
    "WorkflowTerminated",
    "WorkflowTimedOut",
]

#: A value, a function that says whether a value is right, or ``...`` for any.
_Text = str | Callable[[str], bool] | EllipsisType
#: Likewise; or the activity, workflow class, handler or step that has the name.
_Name = str | Callable[..., Any] | EllipsisType
_Args = Sequence[object] | Callable[[list[object]], bool] | EllipsisType
#: A class, its name, or a function that is called with ``"Type: message"``.
_Error = type[BaseException] | str | Callable[[str], bool] | EllipsisType
_Duration = timedelta | float | EllipsisType


class WorkflowStarted(EventMatcher):
    """The run began."""

    def __init__(self, workflow_type: _Name = ..., args: _Args = ...) -> None:
        super().__init__("WorkflowStarted", name=workflow_type, args=args)


class WorkflowCompleted(EventMatcher):
    """The run returned."""

    def __init__(self, result: object = ...) -> None:
        super().__init__("WorkflowCompleted", result=result)


class WorkflowFailed(EventMatcher):
    """The run failed."""

    def __init__(self, error: _Error = ...) -> None:
        super().__init__("WorkflowFailed", failure=error)


class WorkflowCancelled(EventMatcher):
    """The run observed a cancel, and ended."""

    def __init__(self, reason: _Text = ...) -> None:
        super().__init__("WorkflowCancelled", reason=reason)


class WorkflowTerminated(EventMatcher):
    """The run was terminated."""

    def __init__(self, reason: _Text = ...) -> None:
        super().__init__("WorkflowTerminated", reason=reason)


class WorkflowTimedOut(EventMatcher):
    """The run took too long; ``option`` is the limit's name."""

    def __init__(self, option: _Text = ...) -> None:
        super().__init__("WorkflowTimedOut", option=option)


class WorkflowContinuedAsNew(EventMatcher):
    """The run went on as a new one, with these arguments."""

    def __init__(self, args: _Args = ...) -> None:
        super().__init__("WorkflowContinuedAsNew", args=args)


class CancelRequested(EventMatcher):
    """Somebody asked the run to cancel itself."""

    def __init__(self, reason: _Text = ...) -> None:
        super().__init__("CancelRequested", reason=reason)


class ActivityScheduled(EventMatcher):
    """The run called an activity."""

    def __init__(self, name: _Name = ..., args: _Args = ..., *, command: int | EllipsisType = ...) -> None:
        super().__init__("ActivityScheduled", name=name, args=args, command=command)


class ActivityCompleted(EventMatcher):
    """An activity gave a result."""

    def __init__(
        self,
        name: _Name = ...,
        result: object = ...,
        *,
        command: int | EllipsisType = ...,
        attempt: int | EllipsisType = ...,
    ) -> None:
        super().__init__("ActivityCompleted", name=name, result=result, command=command, attempt=attempt)


class ActivityFailed(EventMatcher):
    """An activity failed for good."""

    def __init__(
        self,
        name: _Name = ...,
        error: _Error = ...,
        *,
        command: int | EllipsisType = ...,
        attempt: int | EllipsisType = ...,
    ) -> None:
        super().__init__("ActivityFailed", name=name, failure=error, command=command, attempt=attempt)


class AttemptFailed(EventMatcher):
    """An attempt of an activity failed, and another followed."""

    def __init__(
        self,
        name: _Name = ...,
        error: _Error = ...,
        *,
        command: int | EllipsisType = ...,
        attempt: int | EllipsisType = ...,
    ) -> None:
        super().__init__("AttemptFailed", name=name, failure=error, command=command, attempt=attempt)


class ActivityCancelRequested(EventMatcher):
    """The run cancelled an activity."""

    def __init__(self, name: _Name = ..., *, command: int | EllipsisType = ...) -> None:
        super().__init__("ActivityCancelRequested", name=name, command=command)


class ActivityCancelled(EventMatcher):
    """An activity that was asked to stop has ended."""

    def __init__(self, name: _Name = ..., *, command: int | EllipsisType = ...) -> None:
        super().__init__("ActivityCancelled", name=name, command=command)


class TimerStarted(EventMatcher):
    """The run began to wait for a time: ``sleep``, a time limit."""

    def __init__(self, duration: _Duration = ..., *, command: int | EllipsisType = ...) -> None:
        super().__init__("TimerStarted", duration=_microseconds(duration), command=command)


class TimerFired(EventMatcher):
    """That time has passed."""

    def __init__(self, *, command: int | EllipsisType = ...) -> None:
        super().__init__("TimerFired", command=command)


class TimerCancelled(EventMatcher):
    """The run no longer waits for that time."""

    def __init__(self, *, command: int | EllipsisType = ...) -> None:
        super().__init__("TimerCancelled", command=command)


class SignalReceived(EventMatcher):
    """A signal was received."""

    def __init__(self, name: _Name = ..., args: _Args = ...) -> None:
        super().__init__("SignalReceived", name=name, args=args)


class UpdateReceived(EventMatcher):
    """An update was received."""

    def __init__(self, name: _Name = ..., args: _Args = ...) -> None:
        super().__init__("UpdateReceived", name=name, args=args)


class UpdateCompleted(EventMatcher):
    """An update was answered."""

    def __init__(self, name: _Name = ..., result: object = ...) -> None:
        super().__init__("UpdateCompleted", name=name, result=result)


class UpdateFailed(EventMatcher):
    """An update failed or, with ``rejected``, was refused by its validator."""

    def __init__(
        self, name: _Name = ..., error: _Error = ..., *, rejected: bool | EllipsisType = ...
    ) -> None:
        super().__init__("UpdateFailed", name=name, failure=error, rejected=rejected)


class HandlerFailed(EventMatcher):
    """A signal could not be handled."""

    def __init__(self, name: _Name = ..., error: _Error = ...) -> None:
        super().__init__("HandlerFailed", name=name, failure=error)


class ChildScheduled(EventMatcher):
    """The run started a child; ``name`` is its type."""

    def __init__(self, name: _Name = ..., *, command: int | EllipsisType = ...) -> None:
        super().__init__("ChildScheduled", name=name, command=command)


class ChildCompleted(EventMatcher):
    """A child returned; ``name`` is its type."""

    def __init__(self, name: _Name = ..., result: object = ..., *, command: int | EllipsisType = ...) -> None:
        super().__init__("ChildCompleted", name=name, result=result, command=command)


class ChildFailed(EventMatcher):
    """A child failed; ``name`` is its type."""

    def __init__(self, name: _Name = ..., error: _Error = ..., *, command: int | EllipsisType = ...) -> None:
        super().__init__("ChildFailed", name=name, failure=error, command=command)


class SignalSent(EventMatcher):
    """The run sent a signal to another one."""

    def __init__(self, name: _Name = ..., args: _Args = ..., *, workflow_id: _Text = ...) -> None:
        super().__init__("SignalSent", name=name, args=args, workflow_id=workflow_id)


class StepStarted(EventMatcher):
    """A step began."""

    def __init__(self, name: _Name = ...) -> None:
        super().__init__("StepStarted", name=name)


class StepCompleted(EventMatcher):
    """A step gave a result."""

    def __init__(self, name: _Name = ...) -> None:
        super().__init__("StepCompleted", name=name)


class StepFailed(EventMatcher):
    """A step failed."""

    def __init__(self, name: _Name = ..., error: _Error = ...) -> None:
        super().__init__("StepFailed", name=name, failure=error)


class CompensationStarted(EventMatcher):
    """A saga began to undo a step; ``name`` is the step."""

    def __init__(self, name: _Name = ..., *, compensation: _Name = ...) -> None:
        super().__init__("CompensationStarted", name=name, compensation=compensation)


class CompensationCompleted(EventMatcher):
    """A saga has undone a step."""

    def __init__(self, name: _Name = ...) -> None:
        super().__init__("CompensationCompleted", name=name)


class CompensationFailed(EventMatcher):
    """A saga could not undo a step."""

    def __init__(self, name: _Name = ..., error: _Error = ...) -> None:
        super().__init__("CompensationFailed", name=name, failure=error)


class SideEffectRecorded(EventMatcher):
    """A side effect gave a result."""

    def __init__(self, result: object = ...) -> None:
        super().__init__("SideEffectRecorded", result=result)


class ValuePublished(EventMatcher):
    """The run published a value."""

    def __init__(self, key: _Text = ..., value: object = ...) -> None:
        super().__init__("ValuePublished", key=key, value=value)


def _microseconds(duration: _Duration) -> int | EllipsisType:
    return duration if isinstance(duration, EllipsisType) else microseconds("duration", duration)
