"""Runs out of memory: a bounded number keep their code, and who waits for nothing here leaves altogether.

A run that leaves is what the journal says of it; its next message, or what falls due, brings it back. Everything
happens on the loop's thread between turns, and the code that is dropped gets no word in (``asyncio_discard``).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from ..journal.run_times import next_wake, waits_to_begin

if TYPE_CHECKING:
    from .shard import Shard
    from .workflow_actor import WorkflowActor

#: So many of the runs that were used least are passed over when one has to go: they have mail, or a turn of theirs is
#: on its way to the disk.
LOOKS = 8
#: So many runs are looked at before others have a turn.
SLICE = 256


class Passivation:
    """Decides which runs of a shard stay in memory.

    Attributes:
        evicted: How many runs have had their code dropped for others.
    """

    def __init__(self, shard: Shard, limit: int) -> None:
        """Begin.

        Args:
            shard: Whose runs.
            limit: Runs that may have their code in memory.
        """
        self._shard = shard
        self._limit = limit
        self._used: OrderedDict[int, WorkflowActor] = OrderedDict()
        self._resting: dict[int, WorkflowActor] = {}
        self.evicted = 0

    def use(self, actor: WorkflowActor) -> None:
        """A run is about to have a turn: it is the last one to go."""
        key = actor.key
        if key in self._used:
            self._used.move_to_end(key)
        else:
            self._used[key] = actor
            self._resting.pop(key, None)

    def rest(self, actor: WorkflowActor) -> None:
        """A run is in memory and has no turn to come: it may leave with the next sweep."""
        if actor.key not in self._used:
            self._resting[actor.key] = actor

    def forget(self, actor: WorkflowActor) -> None:
        """A run has ended, or nobody has asked an ended one for long; one with something to do goes when it is done."""
        if actor.key in self._used and not self._is_busy(actor):
            del self._used[actor.key]
        self._resting.pop(actor.key, None)

    def clear(self) -> None:
        """Every run is made anew."""
        self._used.clear()
        self._resting.clear()

    @property
    def is_over(self) -> bool:
        """Whether there are too many."""
        return len(self._used) > self._limit

    def trim(self) -> None:
        """Drop the code of the runs that were used least, until there is room; those with something to do stay."""
        used = self._used
        looks = LOOKS
        while len(used) > self._limit and looks:
            key, actor = used.popitem(last=False)
            if self._is_busy(actor):
                used[key] = actor
                looks -= 1
                continue
            if actor.instance is not None:
                actor.drop_instance()
                self.evicted += 1
            if not self._leave(actor):
                self._resting[key] = actor

    def sweep(self) -> None:
        """Let those leave that could not before, since the tables did not know all of them; a few at a time."""
        resting, self._resting = self._resting, {}
        self._sweep(resting)

    def _sweep(self, resting: dict[int, WorkflowActor]) -> None:
        shard = self._shard
        if shard.error is not None:
            return
        for _ in range(min(SLICE, len(resting))):
            key, actor = resting.popitem()
            if key in self._used or shard.actors.get(key) is not actor:
                continue
            if self._is_busy(actor) or not self._leave(actor):
                self._resting[key] = actor
        if resting:
            shard.loop.call_soon(self._sweep, resting)

    def _is_busy(self, actor: WorkflowActor) -> bool:
        return (
            actor.queued
            or not actor.batch.durable
            or bool(actor.mailbox)
            or bool(actor.early)
            or (actor.coding is not None and not actor.coding.is_idle)
        )

    def _leave(self, actor: WorkflowActor) -> bool:
        """Take a run out of memory if the journal alone can bring it back in time; returns whether it has left."""
        shard = self._shard
        state = actor.state
        if (
            actor.instance is not None
            or state.activities
            or (state.unread and not waits_to_begin(state))
            or state.stall is not None
            or actor.result_waiters
            or any(not waiter.done() for waiters in actor.update_waiters.values() for waiter in waiters)
            or actor.attempts
            or actor.outcomes
            or shard.actors.get(actor.key) is not actor
            or shard.newest.get(actor.workflow_id) is not actor  # a start that will replace it is on its way
        ):
            return False
        row = shard.index.rows.get(actor.key)
        is_stored = row is None or not len(row)
        if wake := next_wake(state):
            # The table of what falls due knows of it only once the run was moved there.
            if not is_stored or wake <= shard.horizon.until:
                return False
            shard.timers.note_dead(len(state.timers) + 1)
            shard.horizon.watch()
        shard.forget(actor)
        actor.is_retired = True
        if row is not None and is_stored:
            shard.index.drop(row)
        return True
