"""What authors of activities write: the side effects of a workflow.

An activity runs **at least once**: after a crash it may run again. ``info().idempotency_key`` is the same for
every attempt of one call, so the world outside can tell a repeat from a second wish.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

from .context import NotInActivityError, current_activity, running_instance
from .definitions import DEFINITION, ActivityDefinition, check_name, name_advice
from .errors import RegistrationError
from .options import DEFAULT_ACTIVITY_OPTIONS, ActivityOptions
from .typing import F

if TYPE_CHECKING:
    from .runtime import Runtime


@dataclass(frozen=True)
class ActivityInfo:
    """What an attempt knows of itself.

    Attributes:
        activity_type: Name of the activity.
        workflow_id: Id of the workflow that called it.
        run_id: The run that called it.
        workflow_type: Type of that workflow.
        command: Number of the call in the run.
        attempt: Number of this attempt, from 1.
        idempotency_key: The same for every attempt of this call, different for every other call.
        scheduled_at: When the workflow made the call, UTC.
    """

    activity_type: str
    workflow_id: str
    run_id: str
    workflow_type: str
    command: int
    attempt: int
    idempotency_key: str
    scheduled_at: datetime


@overload
def defn(fn: F, /) -> F: ...
@overload
def defn(*, name: str | None = None, **options: Unpack[ActivityOptions]) -> Callable[[F], F]: ...
def defn(fn: Any = None, /, *, name: str | None = None, **options: Any) -> Any:
    """Declare a function as an activity.

    An ``async def`` runs on the event loop and may be called like a function inside a workflow. A plain ``def``
    runs in a thread; workflows call it with ``workflow.execute_activity``. Outside workflows both stay the
    functions they are.

    Args:
        fn: The function, when used without parentheses.
        name: Its name in the journal; default the function's name.
        **options: Defaults for each call, see ``ActivityOptions``.

    Raises:
        RegistrationError: It is no function, or a generator.
        TypeError: An option is unknown or of the wrong type.
        ValueError: A timeout is zero or negative.
    """
    if fn is not None:
        return _declare(fn, name, options)

    def declare(wrapped: Any) -> Any:
        return _declare(wrapped, name, options)

    return declare


def _declare(fn: Any, name: str | None, options: dict[str, Any]) -> Any:
    if isinstance(fn, staticmethod | classmethod):
        raise RegistrationError(
            f"@activity.defn goes below @staticmethod or @classmethod, not above ({fn!r})"
        )
    if not inspect.isfunction(fn):
        raise RegistrationError(
            f"@activity.defn goes on a function or method, not on {fn!r}{name_advice(fn, 'activity.defn')}"
        )
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise RegistrationError(
            f"@activity.defn: {fn.__qualname__} is a generator; an activity returns one value"
        )
    check_name(name, "activity.defn")
    resolved = DEFAULT_ACTIVITY_OPTIONS.overridden(options)
    definition = ActivityDefinition(fn, name or fn.__name__, resolved)
    wrapper = _async_wrapper(definition) if definition.is_async else _sync_wrapper(definition)
    functools.update_wrapper(wrapper, fn)
    setattr(wrapper, DEFINITION, definition)
    return wrapper


def _async_wrapper(definition: ActivityDefinition) -> Callable[..., Any]:
    fn = definition.fn
    drop_self = definition.is_method

    def call(*args: Any, **kwargs: Any) -> Any:
        instance = running_instance()
        if instance is None:
            return fn(*args, **kwargs)
        return instance.schedule_activity(definition, args[1:] if drop_self else args, kwargs, {})

    # The way asyncio marks functions that return coroutines; inspect's mark came with Python 3.12.
    call._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    mark = getattr(inspect, "markcoroutinefunction", None)
    return cast("Callable[..., Any]", mark(call)) if mark else call


def _sync_wrapper(definition: ActivityDefinition) -> Callable[..., Any]:
    fn = definition.fn

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if running_instance() is not None:
            raise RegistrationError(
                f"activity {definition.name!r} is a plain 'def': inside a workflow call it with "
                f"'await workflow.execute_activity({fn.__name__}, ...)', it then runs in a thread"
            )
        return fn(*args, **kwargs)

    return call


def info() -> ActivityInfo:
    """What the running attempt knows of itself.

    Raises:
        NotInActivityError: No activity is running here.
    """
    context = current_activity.get(None)
    if context is None:
        raise NotInActivityError("activity.info() works inside a running activity only")
    return context.info


def in_activity() -> bool:
    """Whether the caller is inside a running activity."""
    return current_activity.get(None) is not None


def client() -> Runtime:
    """The runtime that runs this activity, to signal or start workflows; for ``async def`` activities.

    Raises:
        NotInActivityError: No activity is running here.
        RuntimeError: The activity runs in a thread, where the runtime's methods cannot be awaited.
    """
    context = current_activity.get(None)
    if context is None:
        raise NotInActivityError("activity.client() works inside a running activity only")
    if asyncio._get_running_loop() is None:
        raise RuntimeError(
            "activity.client() needs the event loop: make the activity 'async def', or return the value and let "
            "the workflow send it"
        )
    return context.runtime


class _ActivityLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the attempt to each record's message and fields."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        context = current_activity.get(None)
        if context is None:
            return msg, kwargs
        about = context.info
        fields = {
            "workflow_id": about.workflow_id,
            "run_id": about.run_id,
            "activity_type": about.activity_type,
            "attempt": about.attempt,
        }
        kwargs["extra"] = {**fields, **kwargs.get("extra", {})}
        return f"{msg} [{about.activity_type} attempt {about.attempt} of {about.workflow_id}]", kwargs


#: Logger for activities; its records carry workflow_id, run_id, activity_type and attempt.
logger = _ActivityLogger(logging.getLogger("everact.activity"))
