"""What workflow code gets when another run fails it: a child that failed, a message that was refused.

``args`` of each error are its constructor's arguments, so all of them can be pickled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..journal import child_events as ce
from ..journal.failures import Failure, class_names, one_line, shorten
from ..journal.payloads import PayloadConverter
from .call_errors import (
    WorkflowAlreadyStartedError,
    WorkflowBacklogFullError,
    WorkflowClosedError,
    WorkflowNotFoundError,
    WorkflowTypeError,
)
from .errors import (
    FailureError,
    UnknownHandlerError,
    WorkflowCancelledError,
    WorkflowTerminatedError,
    with_limit_told,
)


class ChildWorkflowError(FailureError):
    """A child workflow has no result; ``__cause__`` says why.

    Attributes:
        message: For people.
        workflow_id: Id of the child.
        run_id: Its run; that it would have had when it was not started.
        workflow_type: Its type.
        status: ``failed``, ``cancelled``, ``terminated`` or ``not started``.
    """

    def __init__(self, message: str, workflow_id: str, run_id: str, workflow_type: str, status: str) -> None:
        super().__init__(message, workflow_id, run_id, workflow_type, status)
        self.message = message
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.workflow_type = workflow_type
        self.status = status

    def __str__(self) -> str:
        return self.message


class ExternalWorkflowError(FailureError):
    """A signal, a request to cancel or a detached start was refused where it came to; ``__cause__`` says why.

    Attributes:
        message: For people.
        workflow_id: Where it was sent.
        run_id: The run that it was for; empty for the newest.
    """

    def __init__(self, message: str, workflow_id: str, run_id: str = "") -> None:
        super().__init__(message, workflow_id, run_id)
        self.message = message
        self.workflow_id = workflow_id
        self.run_id = run_id

    def __str__(self) -> str:
        return self.message


def _unknown_handler(kind: str, name: str, workflow_type: str, *known: str) -> UnknownHandlerError:
    return UnknownHandlerError(kind, name, workflow_type, known)


def _backlog(workflow_id: str, run_id: str, status: str, limit: str) -> WorkflowBacklogFullError:
    return WorkflowBacklogFullError(workflow_id, run_id, status, int(limit))


def _not_found(workflow_id: str, run_id: str) -> WorkflowNotFoundError:
    return WorkflowNotFoundError(workflow_id, run_id or None)


#: Errors whose arguments are texts, which stand in events and failures as these: how each is made of them.
_OF_TEXTS: dict[str, Callable[..., Exception]] = {
    "WorkflowAlreadyStartedError": WorkflowAlreadyStartedError,
    "WorkflowBacklogFullError": _backlog,
    "WorkflowClosedError": WorkflowClosedError,
    "WorkflowNotFoundError": _not_found,
    "WorkflowTypeError": WorkflowTypeError,
    "UnknownHandlerError": _unknown_handler,
    "WorkflowCancelledError": WorkflowCancelledError,
    "WorkflowTerminatedError": WorkflowTerminatedError,
}


def texts_of(error: Exception) -> tuple[str, tuple[str, ...]]:
    """An error that a receiver refuses with, as the texts of an event."""
    args: list[str] = []
    for arg in error.args:
        args += map(str, arg) if isinstance(arg, list | tuple) else ["" if arg is None else str(arg)]
    return type(error).__name__, tuple(args)


def refusal(name: str, args: tuple[str, ...]) -> Exception:
    """The error that a receiver has refused with."""
    make = _OF_TEXTS.get(name)
    if make is not None:
        try:
            return make(*args)
        except (TypeError, ValueError):  # a newer Everact has written it
            pass
    return FailureError(f"{name}({', '.join(map(repr, args))})")


def refused_failure(error: Exception, converter: PayloadConverter) -> Failure:
    """The same as data, from which ``refused_error`` makes it again."""
    name, args = texts_of(error)
    return Failure(
        type=name,
        bases=class_names(type(error)),
        message=str(error),
        details=tuple(converter.encode(arg) for arg in args),
        kind="refused",
    )


def refused_error(failure: Failure, details: list[Any]) -> Exception:
    """The error that ``refused_failure`` has stored."""
    return refusal(failure.type, tuple(map(str, details)))


def run_error(failure: Failure) -> FailureError:
    """The error of a failure of kind ``child`` or ``external``."""
    assert failure.run is not None
    workflow_id, run_id, workflow_type, status = failure.run
    if failure.kind == "child":
        return ChildWorkflowError(failure.message, workflow_id, run_id, workflow_type, status)
    return ExternalWorkflowError(failure.message, workflow_id, run_id)


def child_failure(
    event: Any, workflow_id: str, run_id: str, workflow_type: str, converter: PayloadConverter
) -> Failure:
    """What the parent's code gets for a child without a result, as data.

    Args:
        event: One of ``CHILD_ENDS`` but ``ChildCompleted``; plain.
        workflow_id: Of the child.
        run_id: Its first run.
        workflow_type: Its type.
        converter: Of the parent.
    """
    match event:
        case ce.ChildFailed():
            status, cause, run_id = "failed", event.failure, event.run_id
            what = f"failed: {shorten(one_line(with_limit_told(cause)), 300)}"
        case ce.ChildCancelled():
            status, run_id = "cancelled", event.run_id
            cause = refused_failure(WorkflowCancelledError(workflow_id, run_id, event.reason), converter)
            what = "was cancelled" + (f": {event.reason}" if event.reason else "")
        case ce.ChildTerminated():
            status, run_id = "terminated", event.run_id
            cause = refused_failure(WorkflowTerminatedError(workflow_id, run_id, event.reason), converter)
            what = "was terminated" + (f": {event.reason}" if event.reason else "")
        case _:
            status = "not started"
            error = refusal(event.error, event.texts)
            cause = refused_failure(error, converter)
            what = f"was not started: {error}"
    return Failure(
        type="ChildWorkflowError",
        bases=class_names(ChildWorkflowError),
        message=f"child workflow {workflow_id!r} ({workflow_type}) {what}",
        cause=cause,
        kind="child",
        run=(workflow_id, run_id, workflow_type, status),
    )


def external_failure(
    event: ce.MessageFailed, what: str, workflow_id: str, run_id: str, converter: PayloadConverter
) -> Failure:
    """What the sender's code gets for a message that was refused, as data."""
    error = refusal(event.error, event.texts)
    return Failure(
        type="ExternalWorkflowError",
        bases=class_names(ExternalWorkflowError),
        message=f"{what} was refused: {error}",
        cause=refused_failure(error, converter),
        kind="external",
        run=(workflow_id, run_id, "", ""),
    )
