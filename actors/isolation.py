"""At start, each suspect of a hard death runs alone for a while, before the others do anything (R12).

What runs alone when the process dies again is to blame. A run is alone until it has handled what it has; an attempt
until it has ended; each at most for a time that doubles with each death that it was a suspect of. Meanwhile the other
runs' mail waits, and so do their attempts; only pause, resume, release and terminate act on them at once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..journal.fold import TURN, RunState
from ..supervision.blame import probation
from .timing import Handle

if TYPE_CHECKING:
    from .attempts import Attempt
    from .shard import Shard
    from .workflow_actor import WorkflowActor

log = logging.getLogger("everact.runtime")


def is_suspect(state: RunState) -> bool:
    """Whether the process has died in a turn of the run, since it has last progressed."""
    return TURN in state.blame


class Isolation:
    """What is held back, and who is alone. It begins before runs are brought in, and ends by itself."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._runs: deque[WorkflowActor] = deque()
        self._suspects: deque[Attempt] = deque()
        self._held_runs: list[WorkflowActor] = []
        self._held_attempts: list[Attempt] = []
        self._run: WorkflowActor | None = None
        self._attempt: Attempt | None = None
        self._timer: Handle | None = None

    def begin(self) -> None:
        """All runs that have something to do are in memory."""
        self._runs.extend(actor for actor in self._shard.actors.values() if is_suspect(actor.state))
        if self._runs:
            self._shard.timers.check()  # a timer that fell due meanwhile is something that a suspect has to handle
        alone = sum(not _is_done(actor) for actor in self._runs)  # one that stands still does not run
        if alone or self._suspects:
            text = (
                "the process has died while code ran; alone, before the others, run now: runs %d, attempts %d"
            )
            log.warning(text, alone, len(self._suspects))
        self._next()

    def hold(self, attempt: Attempt) -> None:
        """An attempt is to be started: later, or once it is its turn to be alone."""
        pending = attempt.actor.state.activities.get(attempt.scheduled.command)
        is_one = pending is not None and pending.suspicions > 0
        (self._suspects if is_one else self._held_attempts).append(attempt)

    def admits(self, actor: WorkflowActor) -> bool:
        """Whether a run may have a turn now; one that may not gets it later."""
        if actor is self._run:
            return True
        if actor.is_urgent():
            actor.work(only_urgent=True)  # no code of the run: what people do to it acts at receipt
        self._held_runs.append(actor)
        return False

    def urge(self, actor: WorkflowActor) -> None:
        """A run that is held back has got something that acts at receipt."""
        if actor in self._held_runs:
            self._held_runs.remove(actor)
            self._take_back([actor])

    def look(self) -> None:
        """Something has happened: perhaps the one that is alone is done."""
        if self._run is not None:
            if _is_done(self._run):
                self._next()
        elif self._attempt is not None and self._attempt.ended:
            self._next()

    def _next(self) -> None:
        self.stop()
        self._run = self._attempt = None
        while self._runs:
            actor = self._runs.popleft()
            if not _is_done(actor):
                self._run = actor
                self._wait(actor.state.blame[TURN].suspicions)
                if actor in self._held_runs:
                    self._held_runs.remove(actor)
                    self._take_back([actor])
                return
        while self._suspects:
            attempt = self._suspects.popleft()
            pending = attempt.actor.state.activities.get(attempt.scheduled.command)
            if not attempt.ended and pending is not None:
                self._attempt = attempt
                self._wait(pending.suspicions)
                self._shard.dispatcher.pool.submit(attempt)
                return
        self.end()

    def _take_back(self, actors: Sequence[WorkflowActor]) -> None:
        """Let runs that were held back have their turns."""
        shard = self._shard
        for actor in actors:
            if actor in (shard.actors.get(actor.key), shard.closed_runs.get(actor.key)):
                shard._ready.append(actor)
        shard.go_on()

    def _wait(self, suspicions: int) -> None:
        self._timer = self._shard.timing.later.call_later(probation(suspicions), self._next)

    def stop(self) -> None:
        """Wait for nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Let everybody go on."""
        shard = self._shard
        if shard.isolation is not self:
            return
        shard.isolation = None
        self.stop()
        self._take_back(self._held_runs)
        for attempt in (*self._suspects, *self._held_attempts):
            if not attempt.ended:
                shard.dispatcher.pool.submit(attempt)


def _is_done(actor: WorkflowActor) -> bool:
    """Whether a run has handled what it has, durably, or can go no further."""
    state = actor.state
    if not actor.delivers or not is_suspect(state):
        return (
            True  # its progress is durable with the commit that follows; a death before that finds it suspect
        )
    is_coding = actor.coding is not None and not actor.coding.is_idle
    return not (actor.queued or actor.mailbox or state.unread or is_coding)
