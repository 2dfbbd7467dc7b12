"""Which step's body is running, for what a step may do to things that outlive it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class RunningStep(Protocol):
    """A step whose body runs.

    Attributes:
        command: Its number in the run.
        parent: The step around it.
        saga: The saga in whose block it was called.
        is_outlived: It has done what no checkpoint holds, so that its body runs again in a replay.
    """

    command: int
    parent: RunningStep | None
    saga: object | None
    is_outlived: bool


current_step: ContextVar[RunningStep | None] = ContextVar("everact_step", default=None)


def outlives_step(saga: object) -> None:
    """A saga has learnt something: the steps inside its block that run now are no checkpoints, and tell it again."""
    step = current_step.get()
    while step is not None and step.saga is saga:
        step.is_outlived = True
        step = step.parent
