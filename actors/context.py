"""Where running code is: inside which workflow, inside which activity attempt."""

from __future__ import annotations

from asyncio import _get_running_loop
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ..journal.errors import EveractError
from .event_loop import WorkflowLoop

if TYPE_CHECKING:
    from .activity import ActivityInfo
    from .activity_pool import ActivityPool
    from .attempts import Attempt
    from .interceptors import ActivityOutboundInterceptor
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


class CompleteAsyncError(BaseException):
    """Raised by ``activity.raise_complete_async()``: the attempt goes on without its code, until it is completed."""


#: An attempt's code has returned, and somebody else completes it.
DETACHED = CompleteAsyncError()


class ActivityContext:
    """What an attempt knows of itself; its info is built when it is asked for.

    Attributes:
        attempt: The attempt.
        pool: What runs it.
        outbound: The outermost interceptor of what it calls; None where there are none.
    """

    __slots__ = ("_info", "attempt", "outbound", "pool")

    def __init__(self, attempt: Attempt, pool: ActivityPool) -> None:
        self._info: ActivityInfo | None = None
        self.outbound: ActivityOutboundInterceptor | None = None
        self.attempt = attempt
        self.pool = pool

    @property
    def info(self) -> ActivityInfo:
        """The attempt, its workflow and its idempotency key."""
        if self._info is None:
            self._info = self.pool.info(self.attempt)
        return self._info


#: Whether the running code of a workflow belongs to its ``run``, and not to a handler.
in_main: ContextVar[bool] = ContextVar("everact_in_main", default=False)

current_activity: ContextVar[ActivityContext] = ContextVar("everact_activity")


def activity_context(call: str) -> ActivityContext:
    """The context of the running activity.

    Raises:
        NotInActivityError: No activity is running here.
    """
    context = current_activity.get(None)
    if context is None:
        raise NotInActivityError(f"activity.{call} works inside a running activity only")
    return context
