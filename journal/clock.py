"""The two clocks: wall time for what is recorded, steady time for waiting."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where a runtime gets its time from; tests inject their own."""

    def wall(self) -> int:
        """Microseconds since the epoch; may jump either way."""
        ...

    def steady(self) -> float:
        """Seconds that never jump, from an arbitrary start."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall(self) -> int:
        """Microseconds since the epoch."""
        return time.time_ns() // 1000

    def steady(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()
