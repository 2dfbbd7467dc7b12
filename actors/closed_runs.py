"""Ended runs that stay in memory for a while: somebody asks for the result, or queries, soon after the end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..journal.run_row import RunRow
from .call_errors import WorkflowNotFoundError
from .workflow_actor import WorkflowActor

if TYPE_CHECKING:
    from .shard import Shard

#: Ended runs kept ready for questions about them, and bytes of their answers together.
CLOSED_KEPT = 256
CLOSED_BYTES = 32 << 20


class ClosedRuns:
    """The ended runs of a shard that were in use last."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._kept: OrderedDict[int, WorkflowActor] = OrderedDict()
        self._bytes = 0

    def __iter__(self) -> Iterator[WorkflowActor]:
        return iter(self._kept.values())

    def get(self, key: int) -> WorkflowActor | None:
        """The actor of an ended run that is in memory."""
        return self._kept.get(key)

    def read(self, row: RunRow) -> WorkflowActor:
        """The actor of an ended run, read from the journal unless it is in memory.

        Raises:
            WorkflowNotFoundError: It was purged meanwhile.
        """
        shard = self._shard
        actor = self._kept.get(row.key)
        if actor is None:
            actor = WorkflowActor(shard, row.key, row.workflow_id, shard.workflows.get(row.workflow_type))
            for at, record in shard.index.records(row):
                actor.state.apply(record, at)
            if shard.index.row(row.key) is None:
                raise WorkflowNotFoundError(row.workflow_id, row.run_id)
            self.keep(actor)
        else:
            self._kept.move_to_end(row.key)
        return actor

    def keep(self, actor: WorkflowActor) -> None:
        """Keep a run whose end is durable, in the place of those that nobody asked about for the longest time."""
        kept = self._kept
        kept[actor.key] = actor
        self._bytes += actor.state.answer_bytes
        while len(kept) > CLOSED_KEPT or (self._bytes > CLOSED_BYTES and len(kept) > 1):
            self.drop(next(iter(kept)))

    def drop(self, key: int) -> None:
        """Let a run out of memory, if it is there."""
        actor = self._kept.pop(key, None)
        if actor is not None:
            self._bytes -= actor.state.answer_bytes
            self._shard.passivation.forget(actor)
            actor.drop_instance()

    def clear(self) -> None:
        """Let all of them out of memory."""
        for actor in self:
            actor.drop_instance()
        self._kept.clear()
        self._bytes = 0
