"""Where user code is, for error texts: the frames that are neither ours nor the standard library's."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

_LIBRARY = frozenset(["everact", "asyncio", "random"])


def is_user_code(frame: FrameType) -> bool:
    """Whether a frame is neither ours nor of asyncio or random."""
    return frame.f_globals.get("__name__", "").partition(".")[0] not in _LIBRARY


def user_place() -> str:
    """``file:line`` of the innermost frame of user code."""
    frame = sys._getframe(2)
    while frame.f_back is not None and not is_user_code(frame):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def task_place(task: asyncio.Task[Any] | None) -> str:
    """``file:line`` where the code of an attempt's task waits."""
    place = "not in its own code"
    inner: Any = None if task is None else task.get_coro()
    while inner is not None:
        frame: FrameType | None = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
        inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
        if frame is not None and is_user_code(frame):
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        elif frame is not None and inner is None:
            inner = frame.f_locals.get("coroutine")  # which ``Marks.follow`` drives
    return place


def suspended_at(main: asyncio.Task[Any] | None) -> str:
    """``file:line`` where main waits, for error texts."""
    if main is None:
        return "before the first await"
    frames: list[tuple[FrameType, int]] = []
    if main.done():
        trace = None if main.cancelled() or main._exception is None else main._exception.__traceback__
        while trace is not None:
            frames.append((trace.tb_frame, trace.tb_lineno))
            trace = trace.tb_next
    else:
        inner: Any = main.get_coro()
        while inner is not None:
            frame = getattr(inner, "cr_frame", None)
            if frame is not None:
                frames.append((frame, frame.f_lineno))
            inner = getattr(inner, "cr_await", None)
    for frame, line in reversed(frames):
        if is_user_code(frame):
            return f"{frame.f_code.co_filename}:{line}"
    return "after the end of run"
