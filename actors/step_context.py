"""Which step's body is running, for what a step may do to things that outlive it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class RunningStep(Protocol):
    """A step whose body runs.

    Attributes:
        command: Its number in the run.
        parent: The step around it.
        is_outlived: It has done what no checkpoint holds, so that its body runs again in a replay.
        is_undone: A saga around it undoes it, should it be completed.
    """

    command: int
    parent: RunningStep | None
    is_outlived: bool
    is_undone: bool


current_step: ContextVar[RunningStep | None] = ContextVar("everact_step", default=None)


def outlives_step(entered_in: RunningStep | None) -> None:
    """A saga has learnt something: the steps inside its block that run now are no checkpoints, and tell it again.

    Args:
        entered_in: The step in whose body the saga's block was entered, if that was in one.
    """
    step = current_step.get()
    while step is not None and step is not entered_in:
        step.is_outlived = True
        step = step.parent


def is_in_undone_step() -> bool:
    """Whether the body of a step runs here that a saga undoes once it is completed."""
    step = current_step.get()
    while step is not None and not step.is_undone:
        step = step.parent
    return step is not None
