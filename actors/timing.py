"""How a runtime waits: its loop calls it back. A test environment puts virtual time in place of that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from ..journal.clock import Clock


class Cancellable(Protocol):
    """A call that is to come soon, as asyncio has it."""

    def cancel(self) -> None:
        """It is not wanted any more."""
        ...


class Handle(Cancellable, Protocol):
    """A call that is to come at some time, as asyncio has it."""

    def when(self) -> float:
        """When it is to come, by ``Later.time``."""
        ...


class Later(Protocol):
    """What calls back after a time: the part of an event loop that has to do with time."""

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: Any) -> Handle:
        """Call ``callback(*args)`` after ``delay`` seconds."""
        ...

    def time(self) -> float:
        """Seconds, from an arbitrary start."""
        ...


class Timing:
    """What one runtime waits by.

    Attributes:
        later: For calls that make something happen: a restart, another try.
        looks: For looks at the clock by queues that know themselves what is due next, and when (``soonest``).
        machine: For what has to do with this machine and not with the time of runs: how long code has blocked the
            loop, how long a slice of work may take, how long a disk is left alone.
    """

    __slots__ = ("later", "looks", "machine")

    def __init__(self, later: Later, looks: Later, machine: Clock) -> None:
        self.later = later
        self.looks = looks
        self.machine = machine


def real_timing(loop: asyncio.AbstractEventLoop, clock: Clock) -> Timing:
    """Time as it passes outside tests."""
    return Timing(loop, loop, clock)
