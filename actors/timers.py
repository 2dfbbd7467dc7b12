"""Deadlines on the wall clock, waited for on the steady one (R11)."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

from ..journal.clock import Clock
from .timing import Handle, Later

#: The wall clock is looked at again at least this often, in seconds: it may have been set.
RECHECK = 1.0
#: So many fall due before the loop's other work goes on: some 2 ms of turns.
SLICE = 64
#: Pause before more fall due while there is no room for them, in seconds.
PAUSE = 0.002
#: Fewer dead entries than this are not worth a sweep.
_SMALL = 1024

Due = Callable[[Any, int], None]
Alive = Callable[[Any, int], bool]


def always(_owner: Any, _command: int) -> bool:
    """For what never loses its purpose."""
    return True


def _never() -> bool:
    return False


class TimerQueue:
    """All timers and retry delays of a shard, in order of deadline.

    An entry is not taken out when it loses its purpose: it is recognised when due, and dead ones are swept together.
    A hundred thousand that fall due at once come a few at a time, so that messages find their way between them.
    """

    def __init__(self, loop: Later, clock: Clock, is_crowded: Callable[[], bool] = _never) -> None:
        """Begin.

        Args:
            loop: Wakes the queue.
            clock: What the deadlines are compared with.
            is_crowded: Whether those that fell due before still wait for their turns: no more come meanwhile.
        """
        self._loop = loop
        self._clock = clock
        self._is_crowded = is_crowded
        self._heap: list[tuple[int, int, Due, Alive, Any, int]] = []
        self._order = count()
        self._handle: Handle | None = None
        self._wake_at = 0
        self._dead = 0

    def add(self, deadline: int, due: Due, alive: Alive, owner: Any, command: int) -> None:
        """Call ``due(owner, command)`` once the wall clock has reached ``deadline``.

        Args:
            deadline: Microseconds since the epoch.
            due: What to call.
            alive: Whether the entry still has a purpose.
            owner: Usually the run's actor.
            command: Number of the command.
        """
        heap = self._heap
        heapq.heappush(heap, (deadline, next(self._order), due, alive, owner, command))
        if self._handle is None or deadline < self._wake_at:
            self._arm()

    def note_dead(self, count: int) -> None:
        """So many entries have lost their purpose; once they may be half of all, they are swept."""
        self._dead += count
        if self._dead > max(_SMALL, len(self._heap) // 2):
            self.sweep()

    def sweep(self) -> None:
        """Take out the entries that have lost their purpose."""
        self._dead = 0
        # In place: what falls due may ask for a sweep.
        self._heap[:] = [entry for entry in self._heap if entry[3](entry[4], entry[5])]
        heapq.heapify(self._heap)

    def check(self) -> None:
        """Call everything that is due, however much; also for tests that have moved the clock."""
        self._fall_due(sys.maxsize)

    def soonest(self, matters: Callable[[Any], bool]) -> int | None:
        """The first deadline of an entry that has a purpose, and whose owner matters; microseconds."""
        heap = self._heap
        while heap and not heap[0][3](heap[0][4], heap[0][5]):
            heapq.heappop(heap)
        if heap and not matters(heap[0][4]):  # there are few of these
            return min(
                (entry[0] for entry in heap if matters(entry[4]) and entry[3](entry[4], entry[5])),
                default=None,
            )
        return heap[0][0] if heap else None

    def _wake(self) -> None:
        if self._is_crowded():
            self._handle = self._loop.call_later(PAUSE, self._wake)
            self._wake_at = 0
        else:
            self._fall_due(SLICE)

    def _fall_due(self, most: int) -> None:
        heap = self._heap
        now = self._clock.wall()
        try:
            while most and heap and heap[0][0] <= now:
                _deadline, _order, due, alive, owner, command = heapq.heappop(heap)
                most -= 1
                if alive(owner, command):
                    due(owner, command)
        finally:  # what one of them raises does not stop the others
            self._arm()

    def close(self) -> None:
        """Forget everything."""
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._heap:
            self._wake_at = self._heap[0][0]
            delay = (self._wake_at - self._clock.wall()) / 1_000_000
            self._handle = self._loop.call_later(min(max(delay, 0.0), RECHECK), self._wake)
