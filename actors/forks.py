"""A forked child of a program with an open ``Runtime``: it can do its parent no harm, and is told what it cannot use.

The child has a copy of everything but the other threads: it would wait for ever for a writer that is not there, and
carry out effects that the parent carries out. It also has the event loop, whose epoll object belongs to both processes
(tried: when the child closes it, asyncio's loop is never woken again in the parent, and uvloop aborts the parent).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import sys
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .runtime import Runtime

#: Runtimes that were entered and not left.
open_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()


class _Forking(threading.local):
    """The loop that runs in the thread that forks; the child's asyncio no longer knows it."""

    loop: asyncio.AbstractEventLoop | None = None


_forking = _Forking()


def _before_fork() -> None:
    _forking.loop = asyncio._get_running_loop()


def _after_fork_in_parent() -> None:
    _forking.loop = None


def _after_fork_in_child() -> None:
    running, _forking.loop = _forking.loop, None
    for runtime in list(open_runtimes):
        loop = runtime.forsake()
        # A loop that was running in another thread stands still for ever; it may be in any state.
        if loop is not None and (loop is running or not loop.is_running()):
            _part(loop)
    open_runtimes.clear()


def _part(loop: Any) -> None:
    """Let an inherited loop change nothing that its parent's loop uses."""
    if hasattr(loop, "_selector"):
        if hasattr(select, "epoll"):  # a kqueue is not inherited
            # An empty one: what it watched is the parent's, and to read from it would rob the parent.
            with suppress(OSError), select.epoll() as empty:
                os.dup2(empty.fileno(), loop._selector.fileno(), inheritable=False)
    elif "uvloop.loop" in sys.modules:
        _part_uvloop(sys.modules["uvloop.loop"], loop)


def _part_uvloop(uvloop: Any, loop: Any) -> None:
    """Call libuv's ``uv_loop_fork``, which uvloop does not do by itself."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    pointer = pointer_of(uvloop.libuv_get_loop_t_ptr(loop), None)
    ctypes.CDLL(uvloop.__file__).uv_loop_fork(ctypes.c_void_p(pointer))


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
