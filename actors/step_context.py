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
        owes_cancel: An activity of its body has gone on to its end although it was cancelled.
        has_done: An activity of its body is done.
    """

    command: int
    parent: RunningStep | None
    is_outlived: bool
    is_undone: bool
    owes_cancel: bool
    has_done: bool


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


def if_undone(here: RunningStep) -> RunningStep | None:
    """The step whose body runs here, if it or one around it is undone by a saga once it is completed."""
    step: RunningStep | None = here
    while step is not None and not step.is_undone:
        step = step.parent
    return here if step is not None else None


def put_off_cancel(step: RunningStep) -> None:
    """An activity that was cancelled has ended all the same: the cancel comes when what is undone is completed."""
    is_owed = False
    around: RunningStep | None = step
    while around is not None:
        around.is_outlived = True  # or a replay that skips the body would miss the cancel
        if around.is_undone and not is_owed:
            around.owes_cancel = is_owed = True
        around = around.parent


def note_done(step: RunningStep) -> None:
    """An activity of a body is done that is undone only if its step is completed."""
    around: RunningStep | None = step
    while around is not None and not around.is_undone:
        around = around.parent
    if around is not None:
        around.has_done = True
