"""Races and deadlines in workflow code: plain asyncio, with one rule for who has won and what becomes of the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

from .asyncio_forbidden import read_only
from .context import current_instance
from .options import in_seconds, microseconds, time_until

if TYPE_CHECKING:
    from .workflow_instance import WorkflowInstance

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class Won(NamedTuple, Generic[T]):
    """Who has won a race.

    Attributes:
        name: The keyword of the call; its position from 0 as text, for one that was given without.
        value: What it gave.
    """

    name: str
    value: T


@overload
async def race(first: Awaitable[A], second: Awaitable[B], /) -> Won[A | B]: ...
@overload
async def race(first: Awaitable[A], second: Awaitable[B], third: Awaitable[C], /) -> Won[A | B | C]: ...
@overload
async def race(*contenders: Awaitable[T], **named: Awaitable[T]) -> Won[T]: ...
async def race(*contenders: Awaitable[Any], **named: Awaitable[Any]) -> Won[Any]:
    """Wait for the first of several, and cancel the others.

    The first to end wins, by returning or by raising; of several that end in one turn, the one that comes first. The
    others are cancelled there and then, and the race is over when they are: activities and timers they wait for are
    withdrawn, and a signal that one was about to take is kept for the next wait.

    Args:
        *contenders: Coroutines, tasks, activities, steps.
        **named: The same with names; ``match`` on the winner's name then reads well.

    Returns:
        The winner.

    Raises:
        ValueError: Nothing was given.
        TypeError: One cannot be awaited.
        BaseException: What the winner raised.
    """
    instance = current_instance("race()")
    entries: dict[str, Any] = {**{str(place): one for place, one in enumerate(contenders)}, **named}
    if not entries:
        raise ValueError("race needs at least one coroutine, task or activity")
    if instance.read_only:
        _close(entries.values())
        raise read_only("race()")
    for name, one in entries.items():
        if not isinstance(one, Awaitable):
            _close(entries.values())
            advice = ""
            if isinstance(one, list | tuple):
                advice = ": pass them one by one, race(*...)"
            elif isinstance(one, int | float | timedelta):
                advice = f": a time limit is workflow.sleep({one!r}), of a number of seconds or a timedelta"
            raise TypeError(f"race: {name!r} must be a coroutine, task or activity, not {one!r}{advice}")
    return await _Race(instance, entries).result()


def _close(contenders: Iterable[Any]) -> None:
    """Withdraw what has not begun; otherwise "was never awaited" would follow."""
    for one in contenders:
        if asyncio.isfuture(one):
            one.cancel()
        elif asyncio.iscoroutine(one):
            one.close()


class _Race:
    """One race: each contender runs in a task of its own."""

    def __init__(self, instance: WorkflowInstance, entries: dict[str, Any]) -> None:
        self._winner = ""
        self._is_over = False
        self._running: set[str] = set()
        self._tasks = {
            name: instance.loop.create_task(self._run(name, one), name=f"race {name}")
            for name, one in entries.items()
        }

    async def _run(self, name: str, contender: Awaitable[Any]) -> Any:
        if self._is_over:  # before this one could begin
            _close([contender])
            return None
        self._running.add(name)
        try:
            return await contender
        finally:
            self._running.discard(name)
            if not self._is_over:
                self._winner = name
                self._end()

    def _end(self) -> None:
        """Cancel those that run, in order, before any of them goes on; the rest does not begin."""
        self._is_over = True
        for name, task in self._tasks.items():
            if name in self._running:
                task.cancel()

    async def result(self) -> Won[Any]:
        """Wait until all have ended."""
        cancelled: asyncio.CancelledError | None = None
        while left := [task for task in self._tasks.values() if not task.done()]:
            try:
                await asyncio.wait(left)
            except asyncio.CancelledError as error:
                cancelled = error
                if not self._is_over:
                    self._end()
        if cancelled is not None:
            raise cancelled
        return Won(self._winner, self._tasks[self._winner].result())


def deadline(when: datetime | timedelta | float, /) -> asyncio.Timeout:
    """Limit what is inside an ``async with`` block, however many steps and waits it has.

        async with workflow.deadline(timedelta(hours=2)):
            ...

    Args:
        when: A moment with a time zone, or the time from now on, a timedelta or seconds.

    Returns:
        What ``asyncio.timeout`` returns; the block is cancelled at that time, and leaves with a TimeoutError that
        says so.

    Raises:
        ValueError: A moment without a time zone, or a negative time.
        TypeError: It is none of these.
    """
    instance = current_instance("deadline()")
    if isinstance(when, datetime):
        left, limit = time_until("deadline", when, instance.now), f"by {when}"
    else:
        left, limit = microseconds("deadline", when), f"within {in_seconds(when)}"
    return _Deadline(instance.loop.time() + left / 1_000_000, limit)


class _Deadline(asyncio.Timeout):  # type: ignore[misc]  # final, as nothing of it is to change: nothing does
    """``asyncio.timeout`` whose error says what the limit was."""

    def __init__(self, when: float, limit: str) -> None:
        super().__init__(when)
        self._limit = limit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise TimeoutError(f"deadline: the block did not end {self._limit}") from late.__cause__
