"""Where running code is: inside which workflow, inside which activity attempt."""

from __future__ import annotations

from asyncio import _get_running_loop
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ..journal.errors import EveractError
from .event_loop import WorkflowLoop

if TYPE_CHECKING:
    from .activity import ActivityInfo
    from .runtime import Runtime
    from .workflow_instance import WorkflowInstance


class NotInWorkflowError(EveractError, RuntimeError):
    """A function of ``everact.workflow`` was called outside workflow code."""


class NotInActivityError(EveractError, RuntimeError):
    """A function of ``everact.activity`` was called outside an activity."""


def running_instance() -> WorkflowInstance | None:
    """The workflow whose code is running, or None."""
    loop = _get_running_loop()
    return loop.host if isinstance(loop, WorkflowLoop) else None  # type: ignore[return-value]


def current_instance(call: str) -> WorkflowInstance:
    """The workflow whose code is running.

    Raises:
        NotInWorkflowError: The caller is not workflow code.
    """
    loop = _get_running_loop()
    if isinstance(loop, WorkflowLoop):
        return loop.host  # type: ignore[return-value]
    raise NotInWorkflowError(
        f"workflow.{call} works inside workflow code only (the run method, signal and update handlers, and what "
        f"they call); this code runs outside"
    )


class ActivityContext:
    """What an attempt knows of itself."""

    __slots__ = ("info", "runtime")

    def __init__(self, info: ActivityInfo, runtime: Runtime) -> None:
        self.info = info
        self.runtime = runtime


current_activity: ContextVar[ActivityContext] = ContextVar("everact_activity")
