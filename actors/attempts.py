"""One attempt of an activity: what runs, and the deadlines of those that run."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..journal.clock import Clock
from ..journal.fold import PendingActivity
from .definitions import ActivityDefinition

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


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
    """

    __slots__ = ("actor", "definition", "ended", "number", "scheduled", "scheduled_at", "task", "worker")

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


class AttemptDeadlines:
    """Start-to-close limits on the steady clock: one queue for each length, since equal ones end in order."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, expired: Callable[[Attempt], None]
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._expired = expired
        self._queues: dict[int, OrderedDict[Attempt, float]] = {}
        self._handles: dict[int, asyncio.TimerHandle] = {}

    def start(self, attempt: Attempt) -> None:
        """The attempt begins now."""
        length = attempt.scheduled.start_to_close
        queue = self._queues.get(length)
        if queue is None:
            queue = self._queues[length] = OrderedDict()
        deadline = self._clock.steady() + length / 1_000_000
        queue[attempt] = deadline
        if length not in self._handles:
            self._handles[length] = self._loop.call_later(length / 1_000_000, self._check, length)

    def stop(self, attempt: Attempt) -> None:
        """The attempt has ended."""
        queue = self._queues.get(attempt.scheduled.start_to_close)
        if queue is not None:
            queue.pop(attempt, None)

    def close(self) -> None:
        """Forget everything."""
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
        self._queues.clear()

    def _check(self, length: int) -> None:
        queue = self._queues[length]
        now = self._clock.steady()
        while queue:
            attempt, deadline = next(iter(queue.items()))
            if deadline > now:
                self._handles[length] = self._loop.call_later(deadline - now, self._check, length)
                return
            del queue[attempt]
            self._expired(attempt)
        del self._handles[length]
        del self._queues[length]
