"""Time that stands still until its environment moves it."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from typing import Any

#: A fixed time is where every environment begins that is given none.
START = datetime(2026, 1, 1, tzinfo=UTC)
#: So many seconds the steady clock shows at the beginning: code that takes 0.0 for "never" is found.
_STEADY = 1000.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class VirtualClock:
    """Both clocks of one environment; they may be read in any thread, and are moved by the environment alone.

    Attributes:
        elapsed: Microseconds that have passed since the beginning.
    """

    def __init__(self, start: datetime = START) -> None:
        """Begin.

        Args:
            start: Where the wall clock begins; it has a time zone.

        Raises:
            TypeError: It is no datetime.
            ValueError: It has no time zone, or is before 1970.
        """
        if not isinstance(start, datetime):
            raise TypeError(f"start_time must be a datetime, not {start!r}")
        if start.tzinfo is None:
            raise ValueError(f"start_time needs a time zone, as in {start!r}.replace(tzinfo=UTC)")
        self._start = (start - _EPOCH) // _MICROSECOND
        if self._start < 0:
            raise ValueError(f"start_time must not be before 1970, but is {start}")
        self.elapsed = 0
        self._stepped = 0

    def __repr__(self) -> str:
        return f"<VirtualClock {self.now():%Y-%m-%d %H:%M:%S.%f}>"

    def wall(self) -> int:
        """Microseconds since the epoch."""
        return self._start + self.elapsed + self._stepped

    def steady(self) -> float:
        """Seconds."""
        return _STEADY + self.elapsed / 1_000_000

    def now(self) -> datetime:
        """The wall clock as a datetime in UTC."""
        return _EPOCH + timedelta(microseconds=self.wall())

    def move(self, microseconds: int) -> None:
        """Let time pass; what falls due is the environment's business."""
        if microseconds < 0:
            raise ValueError(f"time does not go back, by {-microseconds} microseconds")
        self.elapsed += microseconds

    def step(self, microseconds: int) -> None:
        """Somebody sets the wall clock forward, or back; no time passes.

        Raises:
            ValueError: It would show a time before 1970.
        """
        if self.wall() + microseconds < 0:
            raise ValueError("the wall clock cannot be set to a time before 1970")
        self._stepped += microseconds

    def elapsed_at(self, steady: float) -> int:
        """What ``elapsed`` will be at a time of the steady clock, rounded up."""
        left = (steady - self.steady()) * 1_000_000
        return self.elapsed + max(0, -int(-left // 1))


class VirtualCall:
    """A call that is to come, by virtual time."""

    __slots__ = ("_args", "_at", "_callback", "is_over")

    def __init__(self, at: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._at = at
        self._callback = callback
        self._args = args
        self.is_over = False

    def cancel(self) -> None:
        """It is not wanted any more."""
        self.is_over = True

    def when(self) -> float:
        """When it is to come, on the steady clock."""
        return self._at

    def run(self) -> None:
        """Its time has come."""
        if not self.is_over:
            self.is_over = True
            self._callback(*self._args)


class VirtualLater:
    """Calls by virtual time: they come when the environment has moved its clock to them; see ``Timing.later``.

    Attributes:
        stir: Called when there is one more.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.stir: Callable[[], object] = _nothing
        self._clock = clock
        self._heap: list[tuple[float, int, VirtualCall]] = []
        self._order = count()

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: Any) -> VirtualCall:
        """Call ``callback(*args)`` once that many seconds have passed."""
        call = VirtualCall(self.time() + max(0.0, delay), callback, args)
        heappush(self._heap, (call.when(), next(self._order), call))
        self.stir()
        return call

    def time(self) -> float:
        """The steady clock."""
        return self._clock.steady()

    @property
    def soonest(self) -> float | None:
        """When the next call is due, on the steady clock."""
        while self._heap and self._heap[0][2].is_over:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def check(self) -> None:
        """Make the calls that are due; one that raises, as where the environment dies, leaves the others due."""
        now = self.time()
        due = deque[tuple[float, int, VirtualCall]]()
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap))
        try:
            while due:
                due.popleft()[2].run()
        finally:
            for left in due:
                heappush(self._heap, left)


def _nothing() -> None:
    pass


class VirtualLooks:
    """Looks at the clock: only those at once take place, the others by the environment; see ``Timing.looks``."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: Any) -> VirtualCall:
        """Call back in this pass of the loop, or never; none of them is late."""
        call = VirtualCall(math.inf, callback, args)
        if delay <= 0:
            asyncio.get_running_loop().call_soon(call.run)
        return call

    def time(self) -> float:
        """The steady clock."""
        return self._clock.steady()
