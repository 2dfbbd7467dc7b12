"""Tests that run many times, with other faults each time: ``@pytest.mark.crash_everywhere`` and ``@pytest.mark.chaos``.

The first run has none, and counts what could go wrong. What a test under ``chaos`` fails with is made small: faults are
left out one by one as long as it still fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

import pytest

from .crashes import CRASH_POINTS, OTHER_FAULTS, Fault, Plan, planned

__all__ = ["marked"]

#: Crashes of one test, seeds of one test, and faults for each seed, unless its mark says otherwise.
LIMIT = 200
SEEDS = 20
FAULTS = 4


def marked(item: Any) -> Callable[[], None] | None:
    """What runs instead of a test; None when it has neither mark.

    Raises:
        TypeError: A mark has an unknown argument.
        ValueError: A mark names what there is not.
    """
    everywhere, chaos = item.get_closest_marker("crash_everywhere"), item.get_closest_marker("chaos")
    if everywhere is not None and chaos is not None:
        raise ValueError(f"{item.nodeid} has both crash_everywhere and chaos: make it two tests")
    if everywhere is not None:
        _check_names(item, everywhere, ("points", "limit"))
        return _Marked(item).crash_everywhere(*everywhere.args, **everywhere.kwargs)
    if chaos is None:
        return None
    _check_names(item, chaos, ("seeds", "count", "faults"))
    return _Marked(item).chaos(*chaos.args, **chaos.kwargs)


def _check_names(item: Any, mark: pytest.Mark, known: tuple[str, ...]) -> None:
    unknown = sorted(mark.kwargs.keys() - set(known))
    if unknown or len(mark.args) > len(known):
        what = repr(unknown[0]) if unknown else f"a {len(known) + 1}th argument"
        raise TypeError(f"{item.nodeid}: {mark.name} does not take {what}; it takes {', '.join(known)}")


def _texts(item: Any, what: str, value: object) -> list[str]:
    """One text, or several."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, (list, tuple)) or not all(isinstance(one, str) for one in found) or not found:
        raise TypeError(f"{item.nodeid}: {what} is a text or a list of some, not {value!r}")
    return list(found)


class _Marked:
    """A test, and what it is run with."""

    def __init__(self, item: Any) -> None:
        self._item = item
        self._once: Callable[[], None] = item.runtest
        self._function = getattr(item, "obj", None)

    def _run(self, faults: Iterable[Fault] = ()) -> Plan:
        self._item.obj = self._function  # what wraps it, for asyncio as an example, wraps it once
        plan = Plan(faults)
        with planned(plan):
            self._once()
        return plan

    def _fails(self, faults: Iterable[Fault]) -> bool:
        try:
            self._run(faults)
        except (Exception, pytest.fail.Exception):  # noqa: BLE001  (it is the test's)
            return True
        return False

    # --- a crash at each point

    def crash_everywhere(self, points: str | Iterable[str] = "*", limit: int = LIMIT) -> Callable[[], None]:
        """Run once to count, then once for each pass of each point that a pattern names."""
        patterns = _texts(self._item, "crash_everywhere's points", points)
        alone = [self._fault(pattern, CRASH_POINTS) for pattern in patterns if ":" in pattern]
        patterns = [pattern for pattern in patterns if ":" not in pattern]
        for pattern in patterns:
            if not any(fnmatchcase(point, pattern) for point in CRASH_POINTS):
                raise ValueError(
                    f"{self._item.nodeid}: no point is named by {pattern!r}; points: {', '.join(CRASH_POINTS)}"
                )
        self._check_count("crash_everywhere's limit", limit)

        def everywhere() -> None:
            counted = self._run().choices(patterns)
            found = [fault for fault in counted if fault[0] in CRASH_POINTS]
            if len(found) > limit:
                found = [found[index * len(found) // limit] for index in range(limit)]
            faults = alone + found
            if not faults:
                raise ValueError(
                    f"{self._item.nodeid} passes none of the points {', '.join(patterns)}: is there a TestEnvironment "
                    f"in it?"
                )
            happened = 0
            for fault in faults:
                try:
                    happened += bool(self._run([fault]).happened)
                except BaseException as error:
                    point, number = fault
                    error.add_note(
                        f"with a crash at pass {number} of {point}; only this one: "
                        f'@pytest.mark.crash_everywhere(points="{point}:{number}")'
                    )
                    raise
            if not happened:
                said = ", ".join(f"{point}:{number}" for point, number in faults[:5])
                raise RuntimeError(
                    f"{self._item.nodeid}: none of {len(faults)} crashes has happened: {said} is not passed so often"
                )

        return everywhere

    def _fault(self, text: str, kinds: tuple[str, ...]) -> Fault:
        kind, _, number = text.partition(":")
        if kind not in kinds or not number.isdigit() or not int(number):
            raise ValueError(
                f"{self._item.nodeid}: there is no fault {text!r}; write 'name:pass', with one of {', '.join(kinds)}"
            )
        return kind, int(number)

    def _check_count(self, what: str, value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{self._item.nodeid}: {what} is a number, 1 or more, not {value!r}")

    # --- several faults at a time

    def chaos(
        self, seeds: int | Iterable[int] = SEEDS, count: int = FAULTS, faults: Iterable[str] | None = None
    ) -> Callable[[], None]:
        """Run once to count, then once for each seed with some faults that it draws; or with given ones only."""
        if faults is not None:
            if seeds != SEEDS or count != FAULTS:
                raise ValueError(f"{self._item.nodeid}: chaos takes faults, or seeds and count, not both")
            kinds = (*CRASH_POINTS, *OTHER_FAULTS)
            given = [self._fault(fault, kinds) for fault in _texts(self._item, "chaos' faults", faults)]
            return lambda: self._reproduce(given, must_happen=True)
        if isinstance(seeds, int) and not isinstance(seeds, bool):
            self._check_count("chaos' seeds", seeds)
            seeds = range(seeds)
        if isinstance(seeds, (str, bytes, bool)) or not isinstance(seeds, Iterable):
            raise TypeError(
                f"{self._item.nodeid}: chaos' seeds are a number, or a list of some, not {seeds!r}"
            )
        drawn = list(seeds)
        self._check_count("chaos' count", count)

        def everything() -> None:
            choices = self._run().choices("*")
            if not choices:
                raise ValueError(
                    f"{self._item.nodeid} has no TestEnvironment in which something could go wrong"
                )
            for seed in drawn:
                draws = random.Random(f"{self._item.nodeid}/{seed}")  # noqa: S311  (to be drawn again)
                chosen = draws.sample(choices, min(count, len(choices)))
                if self._fails(chosen):
                    self._reproduce(self._shrunk(chosen))

        return everything

    def _shrunk(self, faults: list[Fault]) -> list[Fault]:
        """The fewest of these faults with which it still fails."""
        for fault in list(faults):
            fewer = [other for other in faults if other != fault]
            if self._fails(fewer):
                faults = fewer
        return faults

    def _reproduce(self, faults: list[Fault], *, must_happen: bool = False) -> None:
        try:
            plan = self._run(faults)
            if must_happen and not plan.happened:
                raise RuntimeError(f"{self._item.nodeid}: none of these faults has happened")  # noqa: TRY301
        except BaseException as error:
            said = [f"{kind}:{number}" for kind, number in faults]
            error.add_note(f"with these faults; only these: @pytest.mark.chaos(faults={said!r})")
            raise
