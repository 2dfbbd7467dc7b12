"""In which order a saga undoes its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from .options import check_text
from .saga_steps import Compensation

Order = Sequence[str] | Mapping[str, Sequence[str]]


def checked_order(order: Any) -> Order | None:
    """Return a proper order: a list of names, or such lists by the name of the failed step.

    Raises:
        TypeError: It is neither.
        ValueError: A name is empty, or not valid Unicode.
    """
    if order is None:
        return None
    if isinstance(order, Mapping):
        return {check_text("a step in order", name): _names(names) for name, names in order.items()}
    return _names(order)


def _names(names: Any) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(
            f"order must be a list of names of steps, or a dict of such lists by the step that failed, not {names!r}"
        )
    return [check_text("a step in order", name) for name in names]


def in_groups(
    done: Sequence[Compensation], order: Order | None, failed: str, *, is_parallel: bool
) -> list[list[Compensation]]:
    """Put compensations in the order in which they run: those of a group run side by side.

    Args:
        done: As their steps were completed.
        order: Names of steps that go first.
        failed: Name of the step that failed; empty when none did.
        is_parallel: Those of one priority make one group, otherwise each is one.
    """
    newest_first = sorted(done, key=lambda one: (-one.priority, -one.sequence))
    if is_parallel:
        return [list(group) for _, group in groupby(newest_first, key=lambda one: one.priority)]
    first = order.get(failed, ()) if isinstance(order, Mapping) else order or ()
    places: dict[str, int] = {}
    for place, name in enumerate(first):
        places.setdefault(name, place)
    newest_first.sort(key=lambda one: places.get(one.step, len(first)))
    return [[one] for one in newest_first]
