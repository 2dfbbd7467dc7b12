"""Attempts that nobody waits for any more and that go on all the same: named, and in the end without a slot (F10).

A thread whose attempt's limit has passed is replaced (``thread_attempts``). A task cannot be replaced: it was
cancelled, and either ends or swallows that. One that swallows it would keep its slot for ever, and with few slots the
other runs would wait behind something that no run owns.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..journal.clock import Clock
from .places import task_place
from .timers import RECHECK

if TYPE_CHECKING:
    from .attempts import Attempt

log = logging.getLogger("everact.runtime")

#: What was cancelled has so long for its ``finally`` blocks before its slot goes to others, in seconds.
PATIENCE = 30.0


def name_of(attempt: Attempt) -> str:
    """An attempt, for people."""
    return f"activity {attempt.definition.name!r}, attempt {attempt.number} of workflow {attempt.actor.workflow_id!r}"


class UnwantedAttempts:
    """Tasks that were cancelled and have not ended.

    Attributes:
        lost: Those without a slot.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, give_up: Callable[[Attempt], None]
    ) -> None:
        """Begin.

        Args:
            loop: Where to wait.
            clock: Its steady time counts.
            give_up: Called for an attempt whose slot is to go to others.
        """
        self._loop = loop
        self._clock = clock
        self._give_up = give_up
        self._deadlines: OrderedDict[Attempt, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self.lost: dict[Attempt, None] = {}

    def add(self, attempt: Attempt) -> None:
        """Its task was just cancelled."""
        self._deadlines.setdefault(attempt, self._clock.steady() + PATIENCE)
        if self._timer is None:
            self._wait()

    def end(self, attempt: Attempt) -> bool:
        """A task has ended; returns whether its slot was given away before."""
        self._deadlines.pop(attempt, None)
        if attempt not in self.lost:
            return False
        del self.lost[attempt]
        return True

    def close(self) -> None:
        """Forget everything."""
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def check(self) -> None:
        """Give up those that are overdue; also for tests that have moved the clock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.steady()
        while self._deadlines:
            attempt, deadline = next(iter(self._deadlines.items()))
            if deadline > now:
                break
            del self._deadlines[attempt]
            text = "%s was cancelled %g s ago and goes on (%s): it swallows CancelledError. Its slot goes to others."
            log.warning(text, name_of(attempt), PATIENCE, task_place(attempt.task))
            self.lost[attempt] = None
            self._give_up(attempt)
        self._wait()

    def _wait(self) -> None:
        if self._deadlines:
            delay = next(iter(self._deadlines.values())) - self._clock.steady()
            self._timer = self._loop.call_later(min(max(delay, 0.0), RECHECK), self.check)
