"""wait, wait_for, as_completed and gather with one order on every supported Python.

The rules are those of CPython 3.13, without its sets of tasks.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, Future, ensure_future, iscoroutine, isfuture
from asyncio.tasks import _GatheringFuture  # type: ignore[attr-defined]
from collections import deque
from collections.abc import Iterable
from typing import Any, Self

from .asyncio_discard import RunDiscarded
from .asyncio_sets import OrderedSet, in_order

_RETURN_WHEN = (asyncio.FIRST_COMPLETED, asyncio.FIRST_EXCEPTION, asyncio.ALL_COMPLETED)


def _is_one(awaitable: Any) -> bool:
    # A command is a future that also has a coroutine's methods: the future counts.
    return isfuture(awaitable) or iscoroutine(awaitable)


def _release(waiter: Future[None], *_: object) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def wait(
    fs: Iterable[Any],
    *,
    timeout: float | None = None,  # noqa: ASYNC109
    return_when: str = asyncio.ALL_COMPLETED,
) -> tuple[OrderedSet[Any], OrderedSet[Any]]:
    """As ``asyncio.wait``; both sets keep the order of ``fs``."""
    if _is_one(fs):
        raise TypeError(f"expect a list of futures, not {type(fs).__name__}")
    if return_when not in _RETURN_WHEN:
        raise ValueError(f"Invalid return_when value: {return_when}")
    futures = in_order(fs, "asyncio.wait")
    if not futures:
        raise ValueError("Set of Tasks/Futures is empty.")
    if any(not isfuture(future) and iscoroutine(future) for future in futures):
        raise TypeError("Passing coroutines is forbidden, use tasks explicitly.")

    loop = asyncio.get_running_loop()
    waiter: Future[None] = loop.create_future()
    timer = None if timeout is None else loop.call_later(timeout, _release, waiter)
    left = len(futures)

    def ended(future: Future[Any]) -> None:
        nonlocal left
        left -= 1
        if (
            left <= 0
            or return_when == asyncio.FIRST_COMPLETED
            or (
                return_when == asyncio.FIRST_EXCEPTION
                and not future.cancelled()
                and future.exception() is not None
            )
        ):
            if timer is not None:
                timer.cancel()
            _release(waiter)

    for future in futures:
        future.add_done_callback(ended)
    try:
        await waiter
    finally:
        if timer is not None:
            timer.cancel()
        for future in futures:
            future.remove_done_callback(ended)
    return (
        OrderedSet([future for future in futures if future.done()]),
        OrderedSet([future for future in futures if not future.done()]),
    )


async def _cancel_and_wait(future: Future[Any]) -> None:
    waiter: Future[None] = asyncio.get_running_loop().create_future()

    def ended(_: Future[Any]) -> None:
        _release(waiter)

    future.add_done_callback(ended)
    try:
        future.cancel()
        # Not the future itself: then a cancel of this wait could not be told from its own.
        await waiter
    finally:
        future.remove_done_callback(ended)


async def wait_for(fut: Any, timeout: float | None) -> Any:  # noqa: ASYNC109
    """As ``asyncio.wait_for`` since 3.12: awaits in this task, so that a cancel is never swallowed."""
    if timeout is not None and timeout <= 0:
        future = ensure_future(fut)
        if future.done():
            return future.result()
        await _cancel_and_wait(future)
        try:
            return future.result()
        except CancelledError as error:
            raise TimeoutError from error
    async with asyncio.timeout(timeout):
        return await fut


class CompletionIterator:
    """What ``as_completed`` returns: a plain and an asynchronous iterator, as in 3.13 on every Python."""

    def __init__(self, aws: Iterable[Any], timeout: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._done: deque[Future[Any] | None] = deque()
        self._waiters: deque[Future[None]] = deque()
        self._timer: Any = None
        self._todo = dict.fromkeys(ensure_future(one) for one in in_order(aws, "asyncio.as_completed"))
        self._left = len(self._todo)
        for future in self._todo:
            future.add_done_callback(self._ended)
        if self._todo and timeout is not None:
            self._timer = loop.call_later(timeout, self._timed_out)

    def __aiter__(self) -> Self:
        return self

    def __iter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        return await self._next()

    def __next__(self) -> Any:
        if not self._left:
            raise StopIteration
        self._left -= 1
        return self._next_result()

    def _timed_out(self) -> None:
        for future in self._todo:
            future.remove_done_callback(self._ended)
            self._put(None)
        self._todo.clear()

    def _ended(self, future: Future[Any]) -> None:
        if not self._todo:
            return  # it timed out first
        del self._todo[future]
        self._put(future)
        if not self._todo and self._timer is not None:
            self._timer.cancel()

    def _put(self, future: Future[Any] | None) -> None:
        self._done.append(future)
        self._wake_next()

    def _wake_next(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    async def _next(self) -> Future[Any]:
        while not self._done:
            waiter: Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                waiter.cancel()
                if self._done and not waiter.cancelled():
                    # Woken and cancelled in the same instant: the next in line takes it.
                    self._wake_next()
                raise
        future = self._done.popleft()
        if future is None:
            raise TimeoutError
        return future

    async def _next_result(self) -> Any:
        return (await self._next()).result()


def as_completed(fs: Iterable[Any], *, timeout: float | None = None) -> CompletionIterator:
    """As ``asyncio.as_completed``; starts coroutines in the order of ``fs``."""
    if _is_one(fs):
        raise TypeError(f"expects an iterable of awaitables, not {type(fs).__name__}")
    return CompletionIterator(fs, timeout)


def gather(*coros_or_futures: Any, return_exceptions: bool = False) -> Future[Any]:
    """As ``asyncio.gather`` since 3.12, where futures that are done count at once."""
    loop = asyncio.get_running_loop()
    if not coros_or_futures:
        empty: Future[Any] = loop.create_future()
        empty.set_result([])
        return empty

    futures: dict[Any, Future[Any]] = {}
    try:
        for one in coros_or_futures:
            if one not in futures:
                futures[one] = ensure_future(one, loop=loop)
    except (RuntimeError, RunDiscarded):
        # Refused: no "was never awaited" for the rest on top of it.
        for one in coros_or_futures:
            if one not in futures and iscoroutine(one) and not isfuture(one):
                one.close()
        raise
    children = [futures[one] for one in coros_or_futures]
    left = len(futures)
    outer = _GatheringFuture(children, loop=loop)

    def ended(future: Future[Any]) -> None:
        nonlocal left
        left -= 1
        if outer.done():
            if not future.cancelled():
                future.exception()  # it counts as retrieved
            return
        if not return_exceptions:
            error = _error_of(future)
            if error is not None:
                outer.set_exception(error)
                return
        if left == 0:
            if outer._cancel_requested:
                outer.set_exception(future._make_cancelled_error())  # type: ignore[attr-defined]
            else:
                outer.set_result([_outcome_of(child) for child in children])

    done = [future for future in futures.values() if future.done()]
    for future in futures.values():
        if not future.done():
            future.add_done_callback(ended)
    for future in done:
        ended(future)
    result: Future[Any] = outer
    return result


def _error_of(future: Future[Any]) -> BaseException | None:
    if future.cancelled():
        error: BaseException = future._make_cancelled_error()  # type: ignore[attr-defined]
        return error
    return future.exception()


def _outcome_of(future: Future[Any]) -> Any:
    if future.cancelled():
        return CancelledError(future._cancel_message or "")  # type: ignore[attr-defined]
    error = future.exception()
    return future.result() if error is None else error
