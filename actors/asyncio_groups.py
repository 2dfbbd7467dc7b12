"""TaskGroup and timeout as in CPython 3.13 on every supported Python, and in order of creation."""

from __future__ import annotations

from asyncio import CancelledError, sleep
from asyncio.timeouts import _State  # type: ignore[attr-defined]
from types import TracebackType
from typing import Any

from .asyncio_sets import OrderedSet


async def enter_group(group: Any) -> Any:
    """``TaskGroup.__aenter__`` with an ordered set of tasks, so that an abort cancels the oldest first."""
    entered = await group._everact_stock_aenter()
    group._tasks = OrderedSet(group._tasks)
    return entered


async def exit_group(
    group: Any, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
) -> None:
    """``TaskGroup.__aexit__``: wait for all tasks; at the first failure cancel the rest."""
    group._exiting = True
    if error is not None and group._is_base_error(error) and group._base_error is None:
        group._base_error = error
    cancelled = error if isinstance(error, CancelledError) else None
    if kind is not None and not group._aborting:
        group._abort()

    # The parent can be cancelled more than once while it waits.
    while group._tasks:
        if group._on_completed_fut is None:
            group._on_completed_fut = group._loop.create_future()
        try:
            await group._on_completed_fut
        except CancelledError as again:
            if not group._aborting:
                cancelled = again
                group._abort()
        group._on_completed_fut = None

    parent = group._parent_task
    try:
        if group._base_error is not None:
            raise group._base_error
        # The group cancelled its own parent: taken back, after the waits, as since 3.13.
        if group._parent_cancel_requested and await _take_back_cancel(parent) == 0:
            cancelled = None
        if cancelled is not None and not group._errors:
            raise cancelled
        if error is not None and not isinstance(error, CancelledError):
            group._errors.append(error)
        if group._errors:
            # A cancel from outside is still to be delivered after the group's errors.
            if parent.cancelling():
                parent.uncancel()
                parent.cancel()
            raise BaseExceptionGroup("unhandled errors in a TaskGroup", group._errors) from None
    finally:
        # Exceptions hold frames, and frames hold this group.
        group._errors = None
        del error, cancelled


async def exit_timeout(
    scope: Any, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
) -> None:
    """``Timeout.__aexit__``: turn the cancel that the timeout made into TimeoutError."""
    if scope._timeout_handler is not None:
        scope._timeout_handler.cancel()
        scope._timeout_handler = None
    if scope._state is _State.ENTERED:
        scope._state = _State.EXITED
        return
    scope._state = _State.EXPIRED
    # More requests than on entry: somebody else cancels too, and goes first.
    if await _take_back_cancel(scope._task) > scope._cancelling or kind is None:
        return
    if isinstance(error, CancelledError):
        raise TimeoutError from error
    _say_timed_out(error)
    if isinstance(error, ExceptionGroup):
        for one in error.exceptions:
            _say_timed_out(one)


async def _take_back_cancel(task: Any) -> int:
    """``uncancel()`` of the current task as since 3.13: the last one also stops a cancel not yet delivered.

    Such a cancel is left by a group inside whose tasks failed while they were cancelled. Before 3.13 only an await
    ends it, so there is one on every Python.
    """
    undelivered = task._must_cancel
    left: int = task.uncancel()
    if left or not undelivered:
        return left
    try:
        await sleep(0)
    except CancelledError:
        if task.cancelling():
            # Another one, of this very moment: it stays to be delivered.
            task.uncancel()
            task.cancel()
    cancelling: int = task.cancelling()
    return cancelling


def _say_timed_out(error: BaseException | None) -> None:
    while error is not None and error.__context__ is not None:
        if isinstance(error.__context__, CancelledError):
            timed_out = TimeoutError()
            timed_out.__context__ = timed_out.__cause__ = error.__context__
            error.__context__ = timed_out
            return
        error = error.__context__
