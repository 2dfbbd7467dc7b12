"""What becomes of something that has crashed: restarted after a pause, or given up.

One for one: each child is counted and restarted for itself, and the others never hear of it. Knows nothing of what it
supervises.
"""

from __future__ import annotations

import random
from collections import deque
from typing import NamedTuple

from .backoff import Backoff


class RestartLimit(NamedTuple):
    """When restarting is given up.

    Attributes:
        most: Restarts within the window.
        window: Its length, in seconds.
        backoff: The pauses before them.
    """

    most: int = 3
    window: float = 5.0
    backoff: Backoff = Backoff()


class OneForOne:
    """The crashes of one child since it last made progress; make a new one then.

    Attributes:
        count: Restarts so far.
    """

    __slots__ = ("_at", "_last", "_limit", "count")

    def __init__(self, limit: RestartLimit) -> None:
        self._limit = limit
        self._at: deque[float] = deque()
        self._last: object = None
        self.count = 0

    def crashed(self, cause: object, now: float, source: random.Random) -> float | None:
        """Decide what follows a crash.

        Args:
            cause: What crashed and where, comparable; the same twice in a row would come again and again.
            now: Time on the steady clock, in seconds.
            source: Where the jitter comes from.

        Returns:
            The pause before the restart in seconds; None to give up.
        """
        limit = self._limit
        while self._at and self._at[0] <= now - limit.window:
            self._at.popleft()
        if cause == self._last or len(self._at) >= limit.most:
            return None
        self._last = cause
        self._at.append(now)
        pause = limit.backoff.pause(self.count, source)
        self.count += 1
        return pause
