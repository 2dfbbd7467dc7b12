"""What outsiders see of a run's sagas."""

from __future__ import annotations

from dataclasses import dataclass

from ..journal.saga_progress import Sagas


@dataclass(frozen=True)
class SagaInfo:
    """How far a saga is that undoes, or has undone, what it did.

    Attributes:
        name: Its name.
        total: How many compensations it has to do.
        completed: How many are done.
        running: Names of the steps that are being undone.
        failed: Names of the steps whose compensation failed.
    """

    name: str
    total: int
    completed: int
    running: tuple[str, ...]
    failed: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"{self.completed} of {self.total} compensations done"]
        parts += [
            f"{word} {', '.join(names)}"
            for word, names in (("undoing", self.running), ("failed", self.failed))
            if names
        ]
        return f"{self.name}: {'; '.join(parts)}"


def sagas_of(sagas: Sagas | None) -> tuple[SagaInfo, ...]:
    """Those that undo, or have undone, what they did."""
    return tuple(
        SagaInfo(
            saga.name,
            saga.total,
            saga.completed,
            tuple(saga.running.values()),
            tuple(saga.failed.values()),
        )
        for saga in (sagas or {}).values()
    )
