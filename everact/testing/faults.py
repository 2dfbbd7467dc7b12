"""What a test environment offers for things that go wrong."""

from __future__ import annotations

from datetime import timedelta

from ..actors.options import positive_count
from .clock import VirtualClock
from .crashes import Lives, check_point
from .driver import TimeDriver


class Faults:
    """Crashes, commits that fail, and steps of the clock; a part of ``TestEnvironment``."""

    clock: VirtualClock
    _lives: Lives

    def _entered_driver(self) -> TimeDriver:
        """The driver of an environment that was entered."""
        raise NotImplementedError

    def _active_driver(self) -> TimeDriver:
        """The driver of an environment that is open."""
        raise NotImplementedError

    async def crash(self) -> None:
        """Die here, as by SIGKILL, and return in the next life.

        What was not committed is lost; code of activities that runs is cut, and runs again as another attempt. Calls in
        flight go on in the next life. No time passes.
        """
        self._active_driver()
        await self._lives.alive()  # it may have died by itself just now
        self._lives.die()
        await self._lives.alive()

    def crash_at(self, point: str, count: int = 1) -> None:
        """Die once at the ``count``-th pass from now of a fault point, one of ``CRASH_POINTS``.

        Raises:
            ValueError: There is no such point.
        """
        self._active_driver()
        self._lives.plan.add(check_point(point), positive_count("count", count))

    def fail_commit(self, *, count: int = 1, written: bool = False) -> None:
        """Let a commit fail, as one whose disk has an error; the runtime begins again from its journal.

        Args:
            count: Which commit from now on; 1 is the next one.
            written: It is on disk nevertheless: what it has become is unknown to the runtime, as to a caller.

        Raises:
            ValueError: ``count`` is not positive.
        """
        self._active_driver()
        kind = "commit.unknown" if written else "commit.fails"
        self._lives.plan.add(kind, positive_count("count", count))

    def step_clock(self, duration: timedelta | float) -> None:
        """Set the wall clock forward, or back by a negative duration; no time passes.

        Args:
            duration: A timedelta or seconds.

        Raises:
            ValueError: It would show a time before 1970.
        """
        delta = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
        self.clock.step(delta // timedelta(microseconds=1))
        self._active_driver().stir()

    @property
    def crashes(self) -> int:
        """How often the environment has died, and come back."""
        self._entered_driver()
        return self._lives.crashes
