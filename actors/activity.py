"""What authors of activities write: the side effects of a workflow.

An activity runs **at least once**: after a crash it may run again. ``info().idempotency_key`` is the same for
every attempt of one call, so the world outside can tell a repeat from a second wish.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack, cast, overload

from ..journal.payloads import PayloadConverter
from .context import CompleteAsyncError, activity_context, current_activity, running_instance
from .definitions import DEFINITION, ActivityDefinition, check_name, name_advice
from .errors import RegistrationError
from .options import DEFAULT_ACTIVITY_OPTIONS, ActivityOptions, microseconds
from .typing import F

if TYPE_CHECKING:
    from .runtime import Runtime

T = TypeVar("T")


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
        started_at: When this attempt got its slot, UTC.
        deadline: When its ``start_to_close_timeout`` ends, UTC.
        schedule_to_close_deadline: When all attempts together must be over, UTC; None without that limit.
        start_to_close_timeout: Limit of this attempt.
        heartbeat_timeout: Longest time between two heartbeats; None without that limit.
        heartbeat_details: What the heartbeats of earlier attempts said last.
        last_failure: Why the attempt before failed, as ``Type: message``; None for the first one.
        task_token: By which somebody outside can complete this attempt, see ``raise_complete_async``.
    """

    activity_type: str
    workflow_id: str
    run_id: str
    workflow_type: str
    command: int
    attempt: int
    idempotency_key: str
    scheduled_at: datetime
    started_at: datetime
    deadline: datetime
    schedule_to_close_deadline: datetime | None
    start_to_close_timeout: timedelta
    heartbeat_timeout: timedelta | None
    heartbeat_details: tuple[Any, ...]
    last_failure: str | None
    task_token: str


@overload
def defn(fn: F, /) -> F: ...
@overload
def defn(
    *, name: str | None = None, dynamic: bool = False, **options: Unpack[ActivityOptions]
) -> Callable[[F], F]: ...
def defn(fn: Any = None, /, *, name: str | None = None, dynamic: bool = False, **options: Any) -> Any:
    """Declare a function as an activity.

    An ``async def`` runs on the event loop and may be called like a function inside a workflow. A plain ``def``
    runs in a thread; workflows call it with ``workflow.execute_activity``. Outside workflows both stay the
    functions they are.

    Args:
        fn: The function, when used without parentheses.
        name: Its name in the journal; default the function's name.
        dynamic: It takes every activity that the runtime has no function for: workflows call these by name, and it
            gets the name and the list of the arguments, each a ``RawValue``.
        **options: Defaults for each call, see ``ActivityOptions``.

    Raises:
        RegistrationError: It is no function, or a generator.
        TypeError: An option is unknown or of the wrong type.
        ValueError: A timeout is zero or negative.
    """
    if fn is not None:
        return _declare(fn, name, options, dynamic=dynamic)

    def declare(wrapped: Any) -> Any:
        return _declare(wrapped, name, options, dynamic=dynamic)

    return declare


def _declare(fn: Any, name: str | None, options: dict[str, Any], *, dynamic: bool) -> Any:
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
    if dynamic and name is not None:
        raise RegistrationError(
            f"@activity.defn: {fn.__qualname__} has both name={name!r} and dynamic=True; a dynamic activity takes "
            f"every name that has no function of its own"
        )
    definition = ActivityDefinition(fn, "" if dynamic else name or fn.__name__, resolved)
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
    context = activity_context("info()")
    return context.info if context.outbound is None else context.outbound.info()


def in_activity() -> bool:
    """Whether the caller is inside a running activity."""
    return current_activity.get(None) is not None


def payload_converter() -> PayloadConverter:
    """How values are stored in the journal; ``decode(raw.payload, T)`` reads what a dynamic activity gets.

    Raises:
        NotInActivityError: No activity is running here.
    """
    return activity_context("payload_converter()").pool.converter


def heartbeat(*details: Any) -> None:
    """Say that the attempt is alive, and how far it has come; for both kinds of activities.

    Args:
        *details: Kept for the next attempt, which finds the last ones in ``info().heartbeat_details``. They are in the
            journal with the attempt's failure, when the runtime is left, and in between at most every 10 seconds.

    Raises:
        NotInActivityError: No activity is running here.
        PayloadEncodeError: A detail has no stored form.
        PayloadTooLargeError: The details are over the limit.
    """
    context = activity_context("heartbeat()")
    if context.outbound is None:
        context.pool.beat(context.attempt, details)
    else:
        context.outbound.heartbeat(*details)


def heartbeat_details(hint: type[T], /) -> T | None:
    """The first detail that the heartbeats of earlier attempts said last, as a value of this type; None without one.

    Raises:
        NotInActivityError: No activity is running here.
        PayloadDecodeError: It is no such value.
    """
    context = activity_context("heartbeat_details()")
    earlier = context.attempt.earlier
    value: T | None = context.pool.decode(earlier[0], hint) if earlier else None
    return value


def is_cancelled() -> bool:
    """Whether this attempt was asked to stop: by the workflow, a limit, or the end of the runtime.

    Raises:
        NotInActivityError: No activity is running here.
    """
    return activity_context("is_cancelled()").attempt.is_cancelled


async def wait_for_cancelled() -> None:
    """Wait until this attempt is asked to stop; for a task beside the one that does the work.

    Raises:
        NotInActivityError: No activity is running here.
    """
    context = activity_context("wait_for_cancelled()")
    await context.pool.cancel_notice(context.attempt).wait()


def wait_for_cancelled_sync(timeout: timedelta | float | None = None) -> bool:
    """Wait in a thread until this attempt is asked to stop.

    Where it is, ``CancelledError`` is raised here, as anywhere in the activity; under
    ``shield_thread_cancel_exception``, and where the cancellation type is ``wait_completed``, this returns.

    Args:
        timeout: A timedelta or seconds; None waits for ever.

    Returns:
        Whether it was.

    Raises:
        NotInActivityError: No activity is running here.
        ValueError: The timeout is negative.
    """
    context = activity_context("wait_for_cancelled_sync()")
    return context.pool.cancel_notice(context.attempt).wait_in_thread(_seconds(timeout))


def is_shutting_down() -> bool:
    """Whether the runtime is being left: the attempt has the grace time left, then it is cut and not counted.

    Raises:
        NotInActivityError: No activity is running here.
    """
    return activity_context("is_shutting_down()").pool.leaving.is_set


async def wait_for_shutdown() -> None:
    """Wait until the runtime is being left, as ``is_shutting_down`` says.

    Raises:
        NotInActivityError: No activity is running here.
    """
    await activity_context("wait_for_shutdown()").pool.leaving.wait()


def wait_for_shutdown_sync(timeout: timedelta | float | None = None) -> bool:
    """Wait in a thread until the runtime is being left.

    Args:
        timeout: A timedelta or seconds; None waits for ever.

    Returns:
        Whether it is.

    Raises:
        NotInActivityError: No activity is running here.
        ValueError: The timeout is negative.
    """
    return activity_context("wait_for_shutdown_sync()").pool.leaving.wait_in_thread(_seconds(timeout))


def _seconds(timeout: timedelta | float | None) -> float | None:
    return None if timeout is None else microseconds("timeout", timeout) / 1_000_000


@contextmanager
def shield_thread_cancel_exception() -> Generator[None]:
    """Let nothing interrupt the block in a thread; a cancel that comes meanwhile is raised at its end.

    An ``async def`` activity has ``asyncio.shield`` for that.

    Raises:
        NotInActivityError: No activity is running here.
        CancelledError: The attempt was asked to stop inside the block.
    """
    interrupt = activity_context("shield_thread_cancel_exception()").attempt.interrupt
    if interrupt is None:
        raise RuntimeError(
            "activity.shield_thread_cancel_exception() is for plain 'def' activities, which run in a thread; in an "
            "'async def' one await asyncio.shield(...)"
        )
    with interrupt.shielded():
        yield


def raise_complete_async() -> NoReturn:
    """End the activity's code without a result: somebody who has ``info().task_token`` completes the attempt.

    ``Runtime.activity_handle`` takes the token. The attempt's limits hold as if its code still ran.

    Raises:
        NotInActivityError: No activity is running here.
    """
    activity_context("raise_complete_async()")
    raise CompleteAsyncError


def client() -> Runtime:
    """The runtime that runs this activity, to signal or start workflows; for ``async def`` activities.

    Raises:
        NotInActivityError: No activity is running here.
        RuntimeError: The activity runs in a thread, where the runtime's methods cannot be awaited.
    """
    context = activity_context("client()")
    if asyncio._get_running_loop() is None:
        raise RuntimeError(
            "activity.client() needs the event loop: make the activity 'async def', or return the value and let "
            "the workflow send it"
        )
    return context.pool.runtime


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
