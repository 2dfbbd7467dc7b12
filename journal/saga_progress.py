"""How far a run's sagas are with their compensations: a part of its fold."""

from __future__ import annotations

import msgspec

from .saga_events import CompensationCompleted, CompensationFailed, CompensationStarted

#: Sagas that compensate or have done so, and are kept in memory; the history has all of them.
SAGAS_KEPT = 100


class SagaProgress(msgspec.Struct, array_like=True):
    """How far one saga is.

    Attributes:
        name: Its name.
        total: How many compensations it has to do.
        completed: How many are done.
        running: Names of the steps that are being undone, by number of the compensation.
        failed: Names of those whose compensation failed, likewise.
    """

    name: str
    total: int
    completed: int = 0
    running: dict[int, str] = {}
    failed: dict[int, str] = {}


Sagas = dict[int, SagaProgress]


def compensation_started(sagas: Sagas | None, event: CompensationStarted) -> Sagas:
    """Fold it in; there is no dict before a run's first compensation."""
    if sagas is None:
        sagas = {}
    progress = sagas.get(event.saga)
    if progress is None:
        if len(sagas) >= SAGAS_KEPT:
            ended = (number for number, one in sagas.items() if not one.running)
            sagas.pop(next(ended, next(iter(sagas))))
        progress = sagas[event.saga] = SagaProgress(event.saga_name, event.total)
    progress.failed.pop(event.step, None)
    progress.running[event.step] = event.name
    return sagas


def compensation_ended(sagas: Sagas | None, event: CompensationCompleted | CompensationFailed) -> None:
    """Fold it in."""
    progress = None if sagas is None else sagas.get(event.saga)
    if progress is None:
        return
    progress.running.pop(event.step, None)
    if isinstance(event, CompensationFailed):
        progress.failed[event.step] = event.name
    else:
        progress.completed += 1
