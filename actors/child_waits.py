"""Waiting for many children at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal

from ..journal import child_events as ce
from .child_commands import ChildFuture, child_error
from .child_errors import ChildWorkflowError
from .children import ChildWorkflowHandle
from .context import current_instance
from .options import each_of, in_seconds, microseconds, positive_count
from .typing import R, R_co

ChildStatus = Literal["running", "completed", "failed", "cancelled", "terminated", "not started"]


@dataclass(frozen=True)
class ChildOutcome(Generic[R_co]):
    """How one of several children stands.

    Attributes:
        id: Its workflow id.
        status: ``running``, ``completed``, ``failed``, ``cancelled`` or ``terminated``.
        result: What it returned; None unless it is completed.
        error: Why it has no result; None unless it has ended without one.
    """

    id: str
    status: ChildStatus
    result: R_co | None = None
    error: ChildWorkflowError | None = None


@dataclass(frozen=True)
class First:
    """A strategy of ``wait_for_children``: wait until so many have ended; made by ``first``."""

    count: int


def first(count: int) -> First:
    """Wait for the first ``count`` children that end.

    Raises:
        ValueError: It is less than 1.
    """
    return First(positive_count("workflow.first: the number of children", count))


async def wait_for_children(
    handles: Iterable[ChildWorkflowHandle[Any, R]],
    strategy: Literal["all", "any"] | First = "all",
    *,
    timeout: timedelta | float | None = None,  # noqa: ASYNC109
) -> list[ChildOutcome[R]]:
    """Wait until enough children have ended, in whatever way; a child that failed raises nothing here.

    The others go on, and so do all when the time has passed: their handles can be waited for again. If the code that
    waits is cancelled, that does to each open child what its ``cancellation_type`` says.

    Args:
        handles: From ``start_child_workflow``.
        strategy: ``all`` (default), ``any`` (the same as ``first(1)``), or ``first(n)``.
        timeout: A timedelta or seconds; None waits for ever.

    Returns:
        How each one stands, in the order of the handles.

    Raises:
        TimeoutError: The time has passed. Uncaught, it fails the run.
        ValueError: There are fewer handles than are to be waited for, or the strategy is unknown.
    """
    instance = current_instance("wait_for_children()")
    each_of("wait_for_children: the handles", handles)
    waited = list(handles)
    for handle in waited:
        if not isinstance(handle, ChildWorkflowHandle):
            raise TypeError(
                f"wait_for_children needs handles of start_child_workflow, not {handle!r}; what execute_child_workflow "
                f"returns is for asyncio.gather and asyncio.wait"
            )
    wanted = _wanted(strategy, len(waited))
    limit = None if timeout is None else microseconds("wait_for_children timeout", timeout)
    futures = list(dict.fromkeys(handle._child for handle in waited))
    missing = wanted - sum(handle._child.done() for handle in waited)
    if missing > 0:
        if limit == 0:
            raise _too_late(waited, wanted, timeout)
        count = _Count(instance.loop.create_future(), waited, missing)
        timer = None
        if limit is not None:
            timer = instance.loop.call_later(limit / 1_000_000, count.give_up)
        try:
            in_time = await count.future
        except asyncio.CancelledError:
            count.leave(futures)
            await _cancelled(futures)
            raise
        finally:
            count.leave(futures)
            if timer is not None:
                timer.cancel()
        if not in_time:
            raise _too_late(waited, wanted, timeout)
    return [_outcome(handle) for handle in waited]


class _Count:
    """Counts children down as they end."""

    __slots__ = ("_missing", "_times", "future")

    def __init__(
        self, future: asyncio.Future[bool], waited: Sequence[ChildWorkflowHandle[Any, Any]], missing: int
    ) -> None:
        self.future = future
        self._missing = missing
        self._times: dict[asyncio.Future[Any], int] = {}
        for handle in waited:  # one may be named twice
            child = handle._child
            if not child.done():
                if child not in self._times:
                    child.add_done_callback(self._one_more)
                self._times[child] = self._times.get(child, 0) + 1

    def _one_more(self, child: asyncio.Future[Any]) -> None:
        self._missing -= self._times.get(child, 0)
        if self._missing <= 0 and not self.future.done():
            self.future.set_result(True)

    def give_up(self) -> None:
        if not self.future.done():
            self.future.set_result(False)

    def leave(self, futures: Iterable[ChildFuture]) -> None:
        for child in futures:
            if not child.done():
                child.remove_done_callback(self._one_more)


def _wanted(strategy: object, count: int) -> int:
    if strategy == "all":
        return count
    if strategy == "any":
        wanted = 1
    elif isinstance(strategy, First):
        wanted = strategy.count
    else:
        raise ValueError(f"strategy must be 'all', 'any' or workflow.first(n), not {strategy!r}")
    if wanted > count:
        raise ValueError(f"wait_for_children is to wait for {wanted} of {count} children")
    return wanted


def _too_late(
    waited: Sequence[ChildWorkflowHandle[Any, Any]], wanted: int, timeout: timedelta | float | None
) -> TimeoutError:
    ended = sum(handle.done() for handle in waited)
    return TimeoutError(
        f"wait_for_children: {ended} of {len(waited)} children have ended within {in_seconds(timeout or 0)}, "
        f"{wanted} were waited for"
    )


async def _cancelled(futures: Sequence[ChildFuture]) -> None:
    """Cancel what the code has waited for, in the order of creation, and wait for those that are to be waited for."""
    for child in sorted(futures, key=lambda child: child.command):
        child.cancel()
    left = [child for child in futures if not child.done()]
    if left:
        await asyncio.wait(left)


def _outcome(handle: ChildWorkflowHandle[Any, R]) -> ChildOutcome[R]:
    child = handle._child
    if not child.done():
        return ChildOutcome(handle.id, "running")
    if child.cancelled():
        event = ce.ChildCancelled(child.command, child.start.run_id, "by the code that waited for it")
        error: BaseException | None = child_error(child, event)
    else:
        error = child.exception()
    if error is None:
        return ChildOutcome(handle.id, "completed", child.result())
    assert isinstance(error, ChildWorkflowError)
    status: Any = error.status
    return ChildOutcome(handle.id, status, None, error)
