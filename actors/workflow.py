"""What authors of workflows write: decorators, and the calls that workflow code makes.

Import it as ``from everact import workflow``. All times and ids come from the journal, so that code which runs
again after a crash sees the same ones.
"""

# The implementations below their overloads take `*args: *Ts`, or mypy refuses the overloads.
# pyright: reportInvalidTypeVarUse=false

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import random as random_module
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, Concatenate, Literal, Unpack, overload

from ..journal.failures import clean
from .commands import Decode, result_decoder
from .conditions import add_condition, remove_condition
from .context import current_instance, running_instance
from .definitions import (
    DEFINITION,
    Mark,
    WorkflowDefinition,
    activity_definition,
    check_name,
    name_advice,
    put_mark,
)
from .errors import RegistrationError
from .options import ActivityOptions, in_seconds, microseconds, positive_microseconds, time_until
from .typing import ActivityHandle, C, F, P, R, Ts, UpdateMethod, W
from .workflow_info import utc
from .workflow_logger import workflow_logger

OnCrash = Literal["quarantine", "fail"]

#: Logger for workflow code: records leave once the turn is durable, and never again on replay.
logger: logging.Logger = workflow_logger


# --- declarations -----------------------------------------------------------------------------------------------


@overload
def defn(cls: C, /) -> C: ...
@overload
def defn(
    *,
    name: str | None = None,
    on_crash: OnCrash = "quarantine",
    retention: timedelta | float | None = None,
    dynamic: bool = False,
) -> Callable[[C], C]: ...
def defn(
    cls: Any = None,
    /,
    *,
    name: str | None = None,
    on_crash: OnCrash = "quarantine",
    retention: timedelta | float | None = None,
    dynamic: bool = False,
) -> Any:
    """Declare a class as a workflow.

    Args:
        cls: The class, when used without parentheses.
        name: Its type name in the journal; default the class's name.
        on_crash: What an exception means that is no failure (a bug): ``quarantine`` keeps the run for fixed
            code, ``fail`` ends it.
        retention: How long a run is kept after its end, a timedelta or seconds, more than zero; then it is purged.
            None is for ever. What is declared when a runtime starts holds for runs of any age.
        dynamic: It runs every type that the runtime has no class for; ``run`` gets the type's name and the list of
            the arguments, each a ``RawValue``. It has neither a name nor a retention.

    Raises:
        RegistrationError: Not a class, no ``@workflow.run`` method, or handlers that clash.
    """
    if on_crash not in ("quarantine", "fail"):
        raise RegistrationError(f"on_crash must be 'quarantine' or 'fail', not {on_crash!r}")
    check_name(name, "workflow.defn")
    if dynamic and not (name is None and retention is None):
        raise RegistrationError("@workflow.defn(dynamic=True) takes neither name= nor retention=")
    try:
        kept = None if retention is None else positive_microseconds("retention", retention)
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"@workflow.defn: {error}") from error

    def declare(target: Any) -> Any:
        if not isinstance(target, type):
            raise RegistrationError(
                f"@workflow.defn goes on a class, not on {target!r}{name_advice(target, 'workflow.defn')}"
            )
        type_name = "" if dynamic else name or target.__name__
        setattr(target, DEFINITION, WorkflowDefinition(target, type_name, on_crash, kept))
        return target

    return declare(cls) if cls is not None else declare


@overload
def run(fn: F, /) -> F: ...
@overload
def run() -> Callable[[F], F]: ...
def run(fn: Any = None, /) -> Any:
    """Declare the ``async def`` method that is the workflow's main; with parentheses or without.

    Raises:
        RegistrationError: It is no ``async def`` method.
    """
    return _mark_run if fn is None else _mark_run(fn)


def _mark_run(fn: Any) -> Any:
    put_mark(fn, "run", None, "workflow.run")
    return fn


def init(fn: F) -> F:
    """Let ``__init__`` get the arguments of ``run``.

    Raises:
        RegistrationError: It is on another method.
    """
    if getattr(fn, "__name__", None) != "__init__":
        raise RegistrationError(f"@workflow.init goes on __init__, not on {fn!r}")
    put_mark(fn, "init", None, "workflow.init")
    return fn


@overload
def signal(fn: F, /) -> F: ...
@overload
def signal(*, name: str | None = None, dynamic: bool = False) -> Callable[[F], F]: ...
def signal(fn: Any = None, /, *, name: str | None = None, dynamic: bool = False) -> Any:
    """Declare a signal handler: a message that is acknowledged once durable, and returns nothing.

    Args:
        fn: The method, plain or async, when used without parentheses.
        name: Its name; default the method's.
        dynamic: It takes every signal without a handler of its own, and gets the name and the list of arguments.
    """

    def declare(method: Any) -> Any:
        put_mark(method, "signal", name, "workflow.signal", is_dynamic=dynamic)
        return method

    return declare(fn) if fn is not None else declare


@overload
def query(fn: F, /) -> F: ...
@overload
def query(*, name: str | None = None, dynamic: bool = False) -> Callable[[F], F]: ...
def query(fn: Any = None, /, *, name: str | None = None, dynamic: bool = False) -> Any:
    """Declare a query handler: reads the run's state, changes nothing, works on closed runs too.

    Args:
        fn: The plain method, when used without parentheses.
        name: Its name; default the method's.
        dynamic: It answers every query without a handler of its own; called as for ``signal``.
    """

    def declare(method: Any) -> Any:
        put_mark(method, "query", name, "workflow.query", is_dynamic=dynamic)
        return method

    return declare(fn) if fn is not None else declare


@overload
def update(fn: Callable[Concatenate[W, P], R], /) -> UpdateMethod[W, P, R]: ...
@overload
def update(
    *, name: str | None = None, dynamic: bool = False
) -> Callable[[Callable[Concatenate[W, P], R]], UpdateMethod[W, P, R]]: ...
def update(fn: Any = None, /, *, name: str | None = None, dynamic: bool = False) -> Any:
    """Declare an update handler: a message that may change the run, and returns a value to its sender.

    ``@<method>.validator`` on a further method lets that refuse an update, by raising, before it is accepted.

    Args:
        fn: The method, plain or async, when used without parentheses.
        name: Its name; default the method's.
        dynamic: It takes every update without a handler of its own; called as for ``signal``.
    """

    def declare(method: Any) -> Any:
        mark = put_mark(method, "update", name, "workflow.update", is_dynamic=dynamic)
        method.validator = functools.partial(_add_validator, mark)
        return method

    return declare(fn) if fn is not None else declare


def _add_validator(mark: Mark, fn: Any) -> Any:
    if inspect.iscoroutinefunction(fn):
        raise RegistrationError(f"validator {fn.__qualname__} must be a plain 'def': it decides at once")
    if mark.validator is not None:
        raise RegistrationError(
            f"update {mark.name!r} has two validators: {mark.validator.__name__} and {fn.__name__}; it takes one"
        )
    mark.validator = fn
    return fn


# --- activities -------------------------------------------------------------------------------------------------


@overload
async def execute_activity(
    activity: Callable[[*Ts], Awaitable[R]], /, *args: *Ts, **options: Unpack[ActivityOptions]
) -> R: ...
@overload
async def execute_activity(
    activity: Callable[[*Ts], R], /, *args: *Ts, **options: Unpack[ActivityOptions]
) -> R: ...
@overload
async def execute_activity(
    activity: str, /, *args: Any, result_type: type[R], **options: Unpack[ActivityOptions]
) -> R: ...
@overload
async def execute_activity(activity: str, /, *args: Any, **options: Unpack[ActivityOptions]) -> Any: ...
def execute_activity(activity: Any, /, *args: *Ts, **options: Any) -> Any:
    """Schedule an activity; awaiting what it returns gives the activity's result.

    The command is numbered at this call, so the order of calls is the order in the journal, however they are
    awaited.

    Args:
        activity: The activity function, or its name.
        *args: Its arguments; they are converted here, later changes to them have no effect.
        **options: See ``ActivityOptions``; with a name also ``result_type``.

    Raises:
        TypeError: Wrong number of arguments, or an unknown option.
        PayloadEncodeError: An argument does not fit its hint, or has no stored form.
        ValueError: A timeout is zero or negative.
        ActivityNotRegisteredError: The runtime was not given this activity.
        ActivityError: (when awaited) The activity failed for good.
    """
    return _schedule("execute_activity()", activity, args, options)


def _schedule(call: str, activity: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    instance = current_instance(call)
    if isinstance(activity, str):
        definition = instance.activity_named(activity)
        decode: Decode | None = None
        if "result_type" in options:
            decode = result_decoder(instance._converter, options.pop("result_type"), f"activity {activity}")
        return instance.schedule_activity(definition, args, None, options, decode, depth=3)
    return instance.schedule_activity(activity_definition(activity), args, None, options, depth=3)


@overload
async def execute_activity_method(
    activity: Callable[[Any, *Ts], Awaitable[R]], /, *args: *Ts, **options: Unpack[ActivityOptions]
) -> R: ...
@overload
async def execute_activity_method(
    activity: Callable[[Any, *Ts], R], /, *args: *Ts, **options: Unpack[ActivityOptions]
) -> R: ...
def execute_activity_method(activity: Any, /, *args: *Ts, **options: Any) -> Any:
    """Like ``execute_activity``, for ``Class.method`` of a class whose bound method is registered."""
    instance = current_instance("execute_activity_method()")
    return instance.schedule_activity(activity_definition(activity), args, None, options)


@overload
def start_activity(
    activity: Callable[[*Ts], Awaitable[R]], /, *args: *Ts, **options: Unpack[ActivityOptions]
) -> ActivityHandle[R]: ...
@overload
def start_activity(
    activity: Callable[[*Ts], R], /, *args: *Ts, **options: Unpack[ActivityOptions]
) -> ActivityHandle[R]: ...
@overload
def start_activity(
    activity: str, /, *args: Any, result_type: type[R], **options: Unpack[ActivityOptions]
) -> ActivityHandle[R]: ...
@overload
def start_activity(
    activity: str, /, *args: Any, **options: Unpack[ActivityOptions]
) -> ActivityHandle[Any]: ...
def start_activity(activity: Any, /, *args: *Ts, **options: Any) -> Any:
    """Like ``execute_activity``, for a handle that is awaited or cancelled later."""
    return _schedule("start_activity()", activity, args, options)


@overload
def with_options(
    activity: Callable[P, Awaitable[R]], /, **options: Unpack[ActivityOptions]
) -> Callable[P, Coroutine[object, None, R]]: ...
@overload
def with_options(
    activity: Callable[P, R], /, **options: Unpack[ActivityOptions]
) -> Callable[P, Coroutine[object, None, R]]: ...
def with_options(activity: Any, /, **options: Any) -> Any:
    """Return a function that schedules the activity with these options; keywords work as in a plain call."""
    definition = activity_definition(activity)
    definition.options.overridden(options)

    def call(*args: Any, **kwargs: Any) -> Any:
        instance = current_instance("with_options(...)()")
        return instance.schedule_activity(definition, args, kwargs, options)

    return call


# --- waiting ----------------------------------------------------------------------------------------------------


async def sleep(duration: timedelta | float) -> None:
    """Wait durably; the same as ``asyncio.sleep`` in a workflow.

    Args:
        duration: A timedelta or seconds; zero only lets others run.

    Raises:
        ValueError: It is negative.
    """
    current_instance("sleep()")
    await asyncio.sleep(microseconds("sleep", duration) / 1_000_000)


async def sleep_until(moment: datetime) -> None:
    """Wait durably until a moment; returns at once when it has passed.

    Args:
        moment: With a time zone.

    Raises:
        TypeError: It is no datetime.
        ValueError: It has no time zone, or is more than a century away.
    """
    instance = current_instance("sleep_until()")
    left = time_until("sleep_until", moment, instance.now)
    if not left:
        return
    future: asyncio.Future[None] = instance.loop.create_future()
    timer = instance.start_timer_until(instance.now + left, _wake, future)
    try:
        await future
    finally:
        timer.cancel()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def wait_condition(
    condition: Callable[[], object],
    *,
    timeout: timedelta | float | None = None,  # noqa: ASYNC109
) -> None:
    """Wait until ``condition()`` is true; it is checked after each event of the run.

    Args:
        condition: Reads the workflow's own state; must not await or change anything.
        timeout: A timedelta or seconds; None waits for ever.

    Raises:
        TimeoutError: The time has passed. Uncaught, it fails the run.
        ValueError: The timeout is negative.
    """
    instance = current_instance("wait_condition()")
    if not callable(condition):
        raise TypeError(f"wait_condition needs a function without parameters, not {condition!r}")
    limit = None if timeout is None else microseconds("wait_condition timeout", timeout)
    if held := condition():
        if inspect.iscoroutine(held):  # which is true, whatever it would come to
            held.close()
            raise TypeError(
                "wait_condition needs a plain function, not an 'async def': it is called after each event"
            )
        return
    if limit == 0:
        raise TimeoutError("wait_condition: the condition did not hold, and timeout=0")
    future = add_condition(instance, condition, _place(condition) if limit is None else None)
    timer = None
    if limit is not None:
        timer = instance.loop.call_later(limit / 1_000_000, _give_up, future, timeout)
    try:
        await future
    finally:
        remove_condition(instance, future)
        if timer is not None:
            timer.cancel()


def _give_up(future: asyncio.Future[None], timeout: timedelta | float) -> None:
    if not future.done():
        future.set_exception(
            TimeoutError(f"wait_condition: the condition did not hold within {in_seconds(timeout)}")
        )


def _place(condition: Callable[[], object]) -> str:
    code = getattr(condition, "__code__", None)
    if code is None:
        return type(condition).__qualname__
    return clean(f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}")


# --- reading ----------------------------------------------------------------------------------------------------


def in_workflow() -> bool:
    """Whether the caller is workflow code."""
    return running_instance() is not None


def now() -> datetime:
    """The time of the event being handled, UTC; never goes back."""
    return utc(current_instance("now()").now)


def time() -> float:
    """The same in seconds since the epoch."""
    return current_instance("time()").now / 1_000_000


def uuid4() -> uuid.UUID:
    """A random id that is the same on replay."""
    return uuid.UUID(int=current_instance("uuid4()").random("uuid4").getrandbits(128), version=4)


def random(stream: str = "") -> random_module.Random:
    """A random generator that gives the same numbers on replay.

    Args:
        stream: Name of an independent stream; draws from one do not shift the others.
    """
    return current_instance("random()").random(f"random/{stream}")


def cancellation_requested() -> bool:
    """Whether somebody has asked this run to cancel; stays true after the CancelledError was seen."""
    return current_instance("cancellation_requested()").cancel_requested


def all_handlers_finished() -> bool:
    """Whether no async signal or update handler is running; wait for it before returning from ``run``."""
    return current_instance("all_handlers_finished()").handlers.running == 0
