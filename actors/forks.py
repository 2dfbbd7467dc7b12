"""A forked child of a program with an open ``Runtime``: it can do its parent no harm, and is told what it cannot use.

The child has a copy of everything but the threads: it would wait for ever for a writer that is not there, carry out
effects that the parent carries out, and, on asyncio's own loop, change the one epoll object that both processes have
(tried: when the child closes its loop, the parent's is never woken again).
"""

from __future__ import annotations

import asyncio
import os
import select
import selectors
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .runtime import Runtime

#: Runtimes that were entered and not left.
open_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for runtime in list(open_runtimes):
        loop = runtime.forsake()
        if loop is not None:
            _leave_epoll(loop)
    open_runtimes.clear()


def _leave_epoll(loop: asyncio.AbstractEventLoop) -> None:
    """Give an inherited loop an empty epoll object. Its descriptors are the parent's: to read them would rob it."""
    selector = getattr(loop, "_selector", None)
    # uvloop sees to this itself, and a kqueue is not inherited.
    if hasattr(select, "epoll") and isinstance(selector, selectors.EpollSelector):
        vars(selector)["_selector"] = select.epoll()


os.register_at_fork(after_in_child=_after_fork_in_child)
