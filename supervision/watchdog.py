"""The watchdog: a thread that names what blocks the loop's thread, and breaks it if it may (R19).

The loop's side costs two stores: ``current`` says what runs, a new object each time. The thread looks at it a few times
in each limit; the same object at two looks has run all the time between them.

To break is to raise ``exception`` in the loop's thread, at its next instruction of Python. ``finish`` makes sure that
it is not raised any later: the thread says first that something is up (``is_alert``), then, under the lock, looks
whether the same thing still runs. So whoever ends finds ``is_alert`` set, or is not found running; only in the first
case it takes the lock.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

log = logging.getLogger("everact.runtime")

_raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc
_NOTHING: Any = ctypes.py_object()  # NULL, which takes back what is not raised yet; None would be raised

#: The thread looks so many times in the shorter limit.
LOOKS = 4
#: What swallows the exception gets it again after this part of the limit for breaking.
AGAIN = 0.1


class Clock(Protocol):
    """Where the watchdog gets its time from."""

    def steady(self) -> float:
        """Seconds that never jump."""
        ...


class Watchdog:
    """Watches one thread, the one that makes it.

    Attributes:
        current: What runs there now, or None. Whoever begins something stores a new object here; at its end None, and
            calls ``finish`` if ``is_alert``.
        is_alert: Something has run for long.
        stalled: Seconds that the thread was blocked in all, as far as it was noticed: leases move by so much.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        warn_after: float,
        break_after: float | None,
        exception: type[BaseException],
        may_break: Callable[[Any], bool],
        named: Callable[[Any, float, FrameType | None], None],
    ) -> None:
        """Begin; ``start`` starts the thread.

        Args:
            clock: For the limits.
            warn_after: Seconds after which what blocks the thread is named.
            break_after: Seconds after which it is broken; None is never.
            exception: What is raised in it; a BaseException, so that no ``except Exception`` takes it.
            may_break: Whether a thing may be broken, or only named.
            named: Called in the watchdog's thread with the thing, for how long it has run, and where it is.
        """
        self._clock = clock
        self._warn_after = warn_after
        self._break_after = break_after
        self._exception = exception
        self._may_break = may_break
        self._named = named
        self._target = ctypes.c_ulong(threading.get_ident())
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._fired: Any = None
        # What the last look saw, since when, whether it was named, and when it is broken (again).
        self._seen: Any = None
        self._since = 0.0
        self._is_named = False
        self._break_at = 0.0
        self._slow: tuple[Any, float] | None = None
        self.current: Any = None
        self.is_alert = False
        self.stalled = 0.0

    @property
    def period(self) -> float:
        """Seconds between two looks."""
        return min(self._warn_after, self._break_after or self._warn_after) / LOOKS

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._watch, name="everact-watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            self._thread = None

    # --- the loop's side

    def finish(self) -> bool:
        """What ran has ended; needed only if ``is_alert``, which is to be looked at after ``current`` was emptied.

        Safe to call twice: an exception that was on its way may have cut the first call short.

        Returns:
            Whether it was broken. Then nothing that it has done may be kept.
        """
        self.current = None
        self._note_stall()
        with self._lock:
            _raise_in_thread(self._target, _NOTHING)
            fired, self._fired = self._fired, None
            self.is_alert = False
        return fired is not None

    def _note_stall(self) -> None:
        slow, self._slow = self._slow, None
        if slow is not None:
            self.stalled += self._clock.steady() - slow[1]

    # --- the watchdog's thread

    def _watch(self) -> None:
        while not self._end.wait(self.period):
            try:
                self.look()
            except Exception:
                log.exception("internal error in the watchdog; it goes on")

    def look(self) -> None:
        """See what runs, once; for the thread, and for tests."""
        now = self._clock.steady()
        current = self.current
        if current is None or current is not self._seen:
            self._seen = current
            self._since = now
            self._is_named = False
            self._break_at = now + (self._break_after or 0.0)
            return
        if self._slow is None or self._slow[0] is not current:
            self._slow = (current, self._since)
            self.is_alert = True
        frame = sys._current_frames().get(self._target.value)
        if _is_importing(frame):  # that time is not counted
            self._seen = None
            return
        blocked = now - self._since
        if not self._is_named and blocked >= self._warn_after:
            self._is_named = True
            self._named(current, blocked, frame)
        if self._break_after is not None and now >= self._break_at and self._may_break(current):
            self._break_at = now + self._break_after * AGAIN
            self._break(current)

    def _break(self, current: Any) -> None:
        self.is_alert = True
        with self._lock:
            if self.current is current:
                self._fired = current
                _raise_in_thread(self._target, ctypes.py_object(self._exception))


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
