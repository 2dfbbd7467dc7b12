"""Assertions about what sagas have undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..journal import events as ev
from ..journal.failures import one_line
from ..journal.saga_events import CompensationCompleted, CompensationFailed, CompensationStarted
from .declared_names import declared_name
from .history_sources import HistoryLike, StoredHistory, history_of
from .history_text import event_lines

__all__ = ["assert_compensated", "assert_not_compensated"]


class _Undone:
    """What a history says of one saga.

    Attributes:
        name: Its name.
        total: How many compensations it has to do.
        begun: Compensations in the order in which they began: number, step, what undoes it.
        done: Numbers of those that are done, in the order of their ends.
        failed: Those that have failed last, with why.
    """

    def __init__(self, start: CompensationStarted) -> None:
        self.name = start.saga_name
        self.total = start.total
        self.begun: dict[int, tuple[str, str]] = {}
        self.done: list[int] = []
        self.failed: dict[int, str] = {}


def assert_compensated(
    history: HistoryLike,
    compensations: Sequence[str | Callable[..., Any]],
    *,
    saga: str | None = None,
    in_order: bool = True,
) -> None:
    """A saga has undone these steps, in this order, each once, nothing else, and nothing is left to be undone.

    Args:
        history: What ``await handle.fetch_history()`` gave, an exported document, or the path of its file.
        compensations: What was called to undo them, in order: activities or functions, or their names; or the names of
            the steps that were undone.
        saga: Name of the saga; None for all compensations of the run.
        in_order: The order counts; not for a saga with ``parallel=True``.

    Raises:
        AssertionError: It is not so; with the history.
        TypeError: It is no history, or these are no compensations.
    """
    if isinstance(compensations, str) or callable(compensations):
        raise TypeError(f"compensations must be a list of names, not {compensations!r}")
    found = _readable(history)
    sagas = _sagas(found, saga)
    wanted = [_name(one) for one in compensations]
    for one in sagas:
        for number, why in one.failed.items():
            _fail(found, f"the compensation of step {one.begun[number][0]!r} failed: {why}")
        left = [step for number, (step, _) in one.begun.items() if number not in one.done]
        if left:
            _fail(found, f"saga {one.name!r} has not undone {', '.join(map(repr, left))}")
        if len(one.done) < one.total:
            _fail(found, f"saga {one.name!r} has done {len(one.done)} of {one.total} compensations")
        twice = sorted({one.begun[number][0] for number in one.done if one.done.count(number) > 1})
        if twice:
            _fail(found, f"saga {one.name!r} has undone {', '.join(map(repr, twice))} more than once")
    done = _in_order(found, sagas)
    if not in_order:
        left_over = list(done)
        for name in wanted:
            match = next((pair for pair in left_over if name in pair), None)
            if match is not None:
                left_over.remove(match)
        is_right = len(done) == len(wanted) and not left_over
    else:
        is_right = len(done) == len(wanted) and all(
            name in pair for name, pair in zip(wanted, done, strict=True)
        )
    if not is_right:
        expected = ", ".join(wanted) or "nothing"
        shown = ", ".join(f"{compensation} (of {step})" for step, compensation in done) or "nothing"
        order = " in this order" if in_order and len(wanted) > 1 else ""
        _fail(found, f"expected to be undone{order}: {expected}; what was undone: {shown}")


def assert_not_compensated(history: HistoryLike, *, saga: str | None = None) -> None:
    """No compensation has begun.

    Args:
        history: As of ``assert_compensated``.
        saga: Name of the saga; None for all of the run.

    Raises:
        AssertionError: One has; with the history.
        TypeError: It is no history.
    """
    found = _readable(history)
    for one in _sagas(found, saga):
        steps = ", ".join(repr(step) for step, _ in one.begun.values())
        _fail(found, f"saga {one.name!r} has begun to undo {steps}")


def _name(compensation: Any) -> str:
    """How the journal names what undoes a step: an activity, or a function."""
    name = declared_name(compensation)
    name = getattr(name, "__qualname__", name)
    if not isinstance(name, str):
        raise TypeError(
            f"compensations must be a list of names, activities or functions; {compensation!r} is none"
        )
    return name


def _readable(history: HistoryLike) -> StoredHistory:
    found = history_of(history)
    if found.error is not None:
        raise found.error
    return found


def _events(history: StoredHistory) -> list[ev.Event]:
    return [event for _at, record in history.records for event in ev.events_of(record)]


def _sagas(history: StoredHistory, name: str | None) -> list[_Undone]:
    sagas: dict[int, _Undone] = {}
    for event in _events(history):
        match event:
            case CompensationStarted():
                one = sagas.setdefault(event.saga, _Undone(event))
                one.begun.setdefault(event.step, (event.name, event.compensation))
                one.failed.pop(event.step, None)
            case CompensationCompleted():
                sagas[event.saga].done.append(event.step)
            case CompensationFailed():
                sagas[event.saga].failed[event.step] = one_line(event.failure)
            case _:
                pass
    return [one for one in sagas.values() if name in (None, one.name)]


def _in_order(history: StoredHistory, sagas: Sequence[_Undone]) -> list[tuple[str, str]]:
    """``(step, compensation)`` of what was undone, in the order of the ends."""
    names = {one.name for one in sagas}
    begun: dict[tuple[int, int], tuple[str, str]] = {}
    done: list[tuple[str, str]] = []
    for event in _events(history):
        if isinstance(event, CompensationStarted) and event.saga_name in names:
            begun[event.saga, event.step] = (event.name, event.compensation)
        elif isinstance(event, CompensationCompleted) and (event.saga, event.step) in begun:
            done.append(begun[event.saga, event.step])
    return done


def _fail(history: StoredHistory, text: str) -> NoReturn:
    lines = "\n".join(f"{'=>' if ' Compensation' in line else '  '} {line}" for line in event_lines(history))
    raise AssertionError(f"{text}, in the history of {history.workflow_id!r}:\n{lines}")
