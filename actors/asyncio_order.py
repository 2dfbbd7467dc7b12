"""asyncio's helpers, made order-stable on workflow loops and left alone on all others.

``install()`` replaces the *code* of the stock functions by a dispatcher. So ``from asyncio import wait_for``
done before Everact was imported is caught too, and the functions keep their identity and signature.
"""

from __future__ import annotations

import asyncio
import asyncio.events
import asyncio.runners
import asyncio.tasks
import inspect
import sys
from asyncio import _get_running_loop
from collections.abc import Callable
from functools import wraps
from types import FunctionType, SimpleNamespace
from typing import Any, cast

from . import asyncio_groups, asyncio_locks, asyncio_waits
from .asyncio_forbidden import ForbiddenInWorkflowError
from .asyncio_sets import OrderedSet
from .event_loop import WorkflowLoop

__all__ = ["OrderedSet", "install"]

# The dispatchers below run with the globals of asyncio's own modules, where install() puts this name.
_everact = SimpleNamespace()


def _active() -> bool:
    return isinstance(_get_running_loop(), WorkflowLoop)


async def wait(fs: Any, *, timeout: Any = None, return_when: Any = None) -> Any:  # noqa: ASYNC109
    """Dispatch asyncio.wait."""
    if _everact.active():
        return await _everact.wait(fs, timeout=timeout, return_when=return_when)
    return await _everact.stock_wait(fs, timeout=timeout, return_when=return_when)


async def wait_for(fut: Any, timeout: Any) -> Any:  # noqa: ASYNC109
    """Dispatch asyncio.wait_for."""
    if _everact.active():
        return await _everact.wait_for(fut, timeout)
    return await _everact.stock_wait_for(fut, timeout)


def as_completed(fs: Any, *, timeout: Any = None) -> Any:
    """Dispatch asyncio.as_completed."""
    if _everact.active():
        return _everact.as_completed(fs, timeout=timeout)
    return _everact.stock_as_completed(fs, timeout=timeout)


def gather(*coros_or_futures: Any, return_exceptions: Any = False) -> Any:
    """Dispatch asyncio.gather."""
    if _everact.active():
        return _everact.gather(*coros_or_futures, return_exceptions=return_exceptions)
    return _everact.stock_gather(*coros_or_futures, return_exceptions=return_exceptions)


def all_tasks(loop: Any = None) -> Any:
    """Dispatch asyncio.all_tasks."""
    mine = _everact.workflow_loop(loop)
    return _everact.stock_all_tasks(loop) if mine is None else _everact.all_tasks(mine)


def _run_3_11(main: Any, *, debug: Any = None) -> Any:
    if _everact.active():
        _everact.refuse_run(main)
    return _everact.stock_run(main, debug=debug)


def _run_3_12(  # pyright: ignore[reportUnusedFunction]  # chosen by name
    main: Any, *, debug: Any = None, loop_factory: Any = None
) -> Any:
    if _everact.active():
        _everact.refuse_run(main)
    return _everact.stock_run(main, debug=debug, loop_factory=loop_factory)


def new_event_loop() -> Any:
    """Dispatch asyncio.new_event_loop, which asyncio.Runner calls too."""
    if _everact.active():
        _everact.refuse_loop()
    return _everact.stock_new_event_loop()


def _workflow_loop(loop: Any) -> WorkflowLoop | None:
    found = _get_running_loop() if loop is None else loop
    return found if isinstance(found, WorkflowLoop) else None


def _all_tasks(loop: WorkflowLoop) -> OrderedSet[Any]:
    return OrderedSet(loop.live_tasks())


_NO_LOOP = "await the coroutine, or start it with asyncio.create_task()"


def _refuse_run(main: Any, call: str = "asyncio.run") -> None:
    if inspect.iscoroutine(main):
        main.close()
    raise ForbiddenInWorkflowError(call, _NO_LOOP)


def _refuse_loop() -> None:
    raise ForbiddenInWorkflowError("asyncio.new_event_loop (asyncio.Runner)", _NO_LOOP)


def install() -> None:
    """Make asyncio order-stable on workflow loops; calling it again does nothing.

    Raises:
        RuntimeError: This Python's asyncio has other signatures than those known here.
    """
    if hasattr(asyncio.tasks, "_everact"):
        return
    _everact.active = _active
    _everact.workflow_loop = _workflow_loop
    _everact.refuse_run = _refuse_run
    _everact.refuse_loop = _refuse_loop
    _everact.wait = asyncio_waits.wait
    _everact.wait_for = asyncio_waits.wait_for
    _everact.as_completed = asyncio_waits.as_completed
    _everact.gather = asyncio_waits.gather
    _everact.all_tasks = _all_tasks
    for dispatcher in (wait, wait_for, as_completed, gather, all_tasks):
        _replace_code(asyncio.tasks, dispatcher.__name__, dispatcher)
    _replace_code(asyncio.runners, "run", _run_3_12 if sys.version_info >= (3, 12) else _run_3_11)
    _replace_code(asyncio.events, "new_event_loop", new_event_loop)
    _guard_runner()

    _replace_method(asyncio.TaskGroup, "__aenter__", asyncio_groups.enter_group)
    _replace_method(asyncio.TaskGroup, "__aexit__", asyncio_groups.exit_group)
    _replace_method(asyncio.Timeout, "__aexit__", asyncio_groups.exit_timeout)
    _replace_method(asyncio.Condition, "wait", asyncio_locks.wait_condition)
    _replace_method(asyncio.Semaphore, "acquire", asyncio_locks.acquire_semaphore)


def _replace_code(module: Any, name: str, dispatcher: Callable[..., Any]) -> None:
    stock = cast("FunctionType", getattr(module, name))
    ours = cast("FunctionType", dispatcher).__code__
    if _parameters(stock) != _parameters(dispatcher) or stock.__closure__:
        raise RuntimeError(f"asyncio.{name} of Python {sys.version.split()[0]} is not known to Everact")
    kept = FunctionType(stock.__code__, stock.__globals__, stock.__name__, stock.__defaults__)
    kept.__kwdefaults__ = cast("dict[str, Any]", stock.__kwdefaults__)
    kept.__qualname__ = stock.__qualname__
    kept.__doc__ = stock.__doc__
    setattr(_everact, f"stock_{name}", kept)
    stock.__globals__["_everact"] = _everact
    stock.__code__ = ours.replace(co_name=name, co_qualname=name)


def _parameters(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    return [(one.name, one.kind) for one in inspect.signature(function).parameters.values()]


def _replace_method(owner: type, name: str, ours: Callable[..., Any]) -> None:
    stock = getattr(owner, name)
    setattr(owner, f"_everact_stock_{name.strip('_')}", stock)

    @wraps(stock)
    async def dispatch(self: Any, *args: Any) -> Any:
        return await (ours if _active() else stock)(self, *args)

    setattr(owner, name, dispatch)


def _guard_runner() -> None:
    stock = asyncio.Runner.run

    @wraps(stock)
    def run(self: Any, coro: Any, *args: Any, **kwargs: Any) -> Any:
        if _active():
            _refuse_run(coro, "asyncio.Runner.run")
        return stock(self, coro, *args, **kwargs)

    asyncio.Runner.run = run  # type: ignore[method-assign]
