"""One attempt of an activity: what runs, and the deadlines of those that run."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING

from ..journal.clock import Clock
from ..journal.events import ABANDON, WAIT_COMPLETED
from ..journal.fold import PendingActivity
from .definitions import ActivityDefinition
from .notices import Notice
from .thread_interrupts import ThreadInterrupt
from .timing import Handle, Later

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor

#: The clock is looked at again after this long, in seconds: it may have jumped, as after a suspend.
RECHECK = 1.0


class Attempt:
    """An attempt from its dispatch to its end.

    ``(run id, command, attempt number)`` is its fence: what ends later than its successor began is refused (R3).

    Attributes:
        actor: The run that wants the result.
        scheduled: The command.
        scheduled_at: Its time, microseconds.
        number: From 1.
        definition: What to run.
        ended: Its outcome was taken, or nobody wants it any more.
        task: The asyncio task, for ``async def`` activities.
        worker: The thread that runs it, for plain ones.
        interrupt: The way into its code there.
        started_at: When it got its slot, microseconds; 0 while it waits for one.
        last_beat: When its last heartbeat came, on the steady clock.
        spared_at: The heartbeat behind which it got more time, because the loop was kept from its work.
        details: What its heartbeats have said last; at first, those of the attempts before.
        noted: What of that the journal has been told.
        note_after: The journal is not told again before this, on the steady clock.
        earlier: ``details`` as the attempt found it.
        last_failure: Why the attempt before failed.
        is_cancelled: It was asked to stop.
        is_broken_into: Its code was, too: a ``CancelledError`` was thrown into it.
        cancelled: Tells its code so; made when that asks.
        is_abandoned: The run has let it go: it goes on when the run ends.
        is_detached: Its code has returned, and somebody else completes it.
        slot: Its slot in the flight recorder; -1 when it has none.
    """

    __slots__ = (
        "actor",
        "cancelled",
        "definition",
        "details",
        "earlier",
        "ended",
        "interrupt",
        "is_abandoned",
        "is_broken_into",
        "is_cancelled",
        "is_detached",
        "last_beat",
        "last_failure",
        "note_after",
        "noted",
        "number",
        "scheduled",
        "scheduled_at",
        "slot",
        "spared_at",
        "started_at",
        "task",
        "worker",
    )

    def __init__(
        self, actor: WorkflowActor, pending: PendingActivity, definition: ActivityDefinition
    ) -> None:
        self.actor = actor
        self.scheduled = pending.scheduled
        self.scheduled_at = pending.scheduled_at
        self.number = pending.attempt
        self.definition = definition
        self.ended = False
        self.task: asyncio.Task[None] | None = None
        self.worker: object = None
        self.interrupt: ThreadInterrupt | None = None
        self.started_at = 0
        self.last_beat = self.spared_at = 0.0
        self.details = self.noted = self.earlier = pending.details
        self.note_after = 0.0
        self.last_failure = pending.last_failure
        self.is_cancelled = pending.cancel == WAIT_COMPLETED
        self.is_broken_into = False
        self.cancelled: Notice | None = None
        self.is_abandoned = pending.cancel == ABANDON
        self.is_detached = pending.deadline > 0
        self.slot = -1


class AttemptDeadlines:
    """Start-to-close limits on the steady clock: one queue for each length, since equal ones end in order.

    One timer of the loop serves them all. It waits for the soonest deadline, at most ``RECHECK`` (R11), and is not
    set again when nothing runs; so an attempt costs it nothing, however long its limit.
    """

    def __init__(self, loop: Later, clock: Clock, expired: Callable[[Attempt], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._expired = expired
        self._queues: dict[int, OrderedDict[Attempt, float]] = {}
        self._timer: Handle | None = None
        self._timer_at = math.inf

    def start(self, attempt: Attempt) -> None:
        """The attempt begins now."""
        length = attempt.scheduled.start_to_close
        queue = self._queues.get(length)
        if queue is None:
            queue = self._queues[length] = OrderedDict()
        now = self._clock.steady()
        queue[attempt] = deadline = now + length / 1_000_000
        if deadline < self._timer_at:
            self._wait(now, deadline)

    def stop(self, attempt: Attempt) -> None:
        """The attempt has ended."""
        length = attempt.scheduled.start_to_close
        queue = self._queues.get(length)
        if queue is not None and queue.pop(attempt, None) is not None and not queue:
            del self._queues[length]

    def close(self) -> None:
        """Forget everything."""
        self._forget_timer()
        self._queues.clear()

    def _wait(self, now: float, deadline: float) -> None:
        self._forget_timer()
        self._timer_at = min(deadline, now + RECHECK)
        self._timer = self._loop.call_later(max(0.0, self._timer_at - now), self.check)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._timer_at = math.inf

    @property
    def soonest(self) -> float:
        """When the next one is over, on the steady clock; infinity when none runs."""
        return min((next(iter(queue.values())) for queue in self._queues.values()), default=math.inf)

    def check(self) -> None:
        """Call ``expired`` for those that are overdue; also for tests that have moved the clock."""
        self._forget_timer()
        now = self._clock.steady()
        due = [
            attempt
            for queue in self._queues.values()
            for attempt, _deadline in takewhile(lambda entry: entry[1] <= now, queue.items())
        ]
        try:
            for attempt in due:
                self.stop(attempt)
                self._expired(attempt)
        finally:
            soonest = self.soonest
            if soonest < self._timer_at:
                self._wait(now, soonest)
