"""An exception from outside in a thread that runs an activity's code, at its next bytecode.

CPython's ``PyThreadState_SetAsyncExc`` puts it there; code that hangs in a C call sees it when that returns. It must
never arrive outside the user's code, where it would end a thread of the pool: whoever sends it and whoever leaves that
code hold the same lock, and what was sent and has not arrived by then is taken back. It is sent at most once.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Generator
from contextlib import contextmanager

_set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc


class ThreadInterrupt:
    """The way into one attempt's code in a thread.

    ``enter``, ``leave`` and ``shielded`` are called in that thread, ``send`` in any other.
    """

    __slots__ = ("_is_sent", "_is_wanted", "_lock", "_shields", "_thread")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = 0
        self._shields = 0
        self._is_wanted = False
        self._is_sent = False

    def enter(self) -> None:
        """User code begins in this thread.

        Raises:
            CancelledError: It was interrupted before.
        """
        with self._lock:
            if not self._is_wanted:
                self._thread = threading.get_ident()
                return
            self._is_sent = True
        raise asyncio.CancelledError

    def leave(self) -> None:
        """User code has ended; a second time does nothing more."""
        with self._lock:
            self._thread = 0
            if self._is_sent:
                _set_exception(ctypes.c_ulong(threading.get_ident()), None)

    def send(self) -> None:
        """Raise ``CancelledError`` in the code, now or where its shield ends."""
        with self._lock:
            self._is_wanted = True
            if self._thread and not self._shields and not self._is_sent:
                self._is_sent = True
                _set_exception(ctypes.c_ulong(self._thread), ctypes.py_object(asyncio.CancelledError))

    @contextmanager
    def shielded(self) -> Generator[None]:
        """Nothing is raised inside; what was sent meanwhile comes at the end."""
        with self._lock:
            self._shields += 1
        try:
            yield
        finally:
            with self._lock:
                self._shields -= 1
                is_due = self._is_wanted and not self._is_sent and not self._shields
                self._is_sent = self._is_sent or is_due
        if is_due:
            raise asyncio.CancelledError
