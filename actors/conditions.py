"""Conditions that a run waits for: checked after each event, and noted in the journal while there is no time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING

from ..journal import events as ev

if TYPE_CHECKING:
    from .workflow_instance import WorkflowInstance


def add_condition(
    run: WorkflowInstance, condition: Callable[[], object], place: str | None
) -> asyncio.Future[None]:
    """Let a future wait for a condition; ``place`` is noted in the journal when there is no time limit."""
    future = run.loop.create_future()
    if place is not None:
        run._places[future] = note_wait(run, place)
    run._conditions[future] = (condition, copy_context())  # what its first check saw, it goes on seeing
    return future


def remove_condition(run: WorkflowInstance, future: asyncio.Future[None]) -> None:
    """Stop checking a condition."""
    run._conditions.pop(future, None)
    wait = run._places.pop(future, None)
    if wait is not None:
        note_met(run, wait)


def note_wait(run: WorkflowInstance, place: str) -> int:
    """Note a wait without a time limit, for ``describe``; returns its number."""
    run.waits += 1
    run._outputs.append(ev.ConditionAwaited(place, run.waits))
    return run.waits


def note_met(run: WorkflowInstance, wait: int) -> None:
    """Note that it is over."""
    if not run.loop.discarded:
        run._outputs.append(ev.ConditionMet(wait))


def wake_conditions(run: WorkflowInstance) -> bool:
    """Check all of them once; returns whether one was woken."""
    woken = False
    for future, (condition, context) in list(run._conditions.items()):
        if not future.done():
            try:
                if not context.run(condition):
                    continue
                future.set_result(None)
            except Exception as error:  # noqa: BLE001  (the user's condition; its waiter gets it)
                future.set_exception(error)
            woken = True
        del run._conditions[future]
    return woken
