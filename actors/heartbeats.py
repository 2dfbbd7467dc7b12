"""Heartbeats of attempts: what they say, how long one may stay silent, and when the journal hears of them.

A heartbeat is taken where it is made, in a thread as on the loop, and costs the loop nothing: the time of the last one
is only looked at when the limit may have passed. What it says goes into the journal with the attempt's failure, or when
the runtime is left; in between once every ``NOTE_INTERVAL``, so that a hard crash loses no more than that.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count

from ..journal.clock import Clock
from .attempts import RECHECK, Attempt
from .timing import Handle, Later

#: The journal hears of one attempt's heartbeats at most this often, in seconds.
NOTE_INTERVAL = 10.0
#: Fewer entries than this are not worth a sweep.
_SMALL = 1024
#: A loop that comes to its timers later than this was kept from its work, in seconds.
STALL = 0.25
#: One that is later than this may have been kept for much longer: the timer fell due near the end of that.
LATE = 0.01


class HeartbeatWatch:
    """Finds attempts whose heartbeats have stayed away; on the steady clock.

    Args:
        loop: Where to wait.
        clock: Its steady time counts.
        expired: Called for an attempt that was silent for too long.
    """

    def __init__(self, loop: Later, clock: Clock, expired: Callable[[Attempt], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._expired = expired
        self._heap: list[tuple[float, int, Attempt]] = []
        self._order = count()
        self._sweep_at = _SMALL
        self._timer: Handle | None = None

    def start(self, attempt: Attempt) -> None:
        """The attempt begins now; does nothing when it has no such limit."""
        limits = attempt.scheduled.limits
        if limits is None or not limits.heartbeat:
            return
        attempt.last_beat = self._clock.steady()
        self._push(attempt, attempt.last_beat + limits.heartbeat / 1_000_000)

    def close(self) -> None:
        """Forget everything."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def soonest(self) -> float:
        """When it has to look again, on the steady clock; infinity when it has not."""
        while self._heap and self._heap[0][2].ended:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def check(self) -> None:
        """Call ``expired`` for those that are overdue; also for tests that have moved the clock."""
        timer, self._timer = self._timer, None
        stall = 0.0 if timer is None else self._loop.time() - timer.when()
        if timer is not None:
            timer.cancel()
        now = self._clock.steady()
        heap = self._heap
        try:
            while heap and heap[0][0] <= now:
                _deadline, _order, attempt = heapq.heappop(heap)
                limits = attempt.scheduled.limits
                if attempt.ended or limits is None:
                    continue
                deadline = attempt.last_beat + limits.heartbeat / 1_000_000
                if deadline <= now and attempt.worker is None and self._was_kept(attempt, stall):
                    # The loop stood still, and so did all that runs on it: nobody could send one (R19).
                    deadline = now + min(max(stall, STALL), limits.heartbeat / 1_000_000)
                if deadline > now:
                    self._push(attempt, deadline)
                else:
                    self._expired(attempt)
        finally:
            self._wait()

    def _was_kept(self, attempt: Attempt, stall: float) -> bool:
        """Whether the attempt gets more time; for a short delay once per silence, or a busy loop had no limits."""
        if stall > STALL:
            return True
        if stall <= LATE or attempt.spared_at == attempt.last_beat:
            return False
        attempt.spared_at = attempt.last_beat
        return True

    def _push(self, attempt: Attempt, deadline: float) -> None:
        heapq.heappush(self._heap, (deadline, next(self._order), attempt))
        if len(self._heap) > self._sweep_at:  # an entry is not taken out when its attempt ends
            self._heap[:] = [entry for entry in self._heap if not entry[2].ended]
            heapq.heapify(self._heap)
            self._sweep_at = max(_SMALL, 2 * len(self._heap))
        if self._timer is None or self._heap[0][2] is attempt:
            self._wait()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        soonest = self.soonest
        if soonest < math.inf:
            delay = soonest - self._clock.steady()
            self._timer = self._loop.call_later(min(max(delay, 0.0), RECHECK), self.check)
