"""Tests that run many times, with other faults each time: ``crash_everywhere``, ``kill_everywhere``, ``chaos``.

The first run has none, and counts what could go wrong. What a test under ``chaos`` fails with is made small: faults are
left out one by one, and delays made shorter, as long as it still fails.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest

from ..journal.fault_points import FAULT_POINTS
from .crashes import CRASH_POINTS, LATE, OTHER_FAULTS, Fault, Plan, planned
from .killed_tests import KilledTest

__all__ = ["marked"]

#: Crashes of one test, kills of one test, seeds of one test, and faults for each seed, unless its mark says otherwise.
LIMIT = 200
KILL_LIMIT = 100
SEEDS = 20
FAULTS = 4
#: What comes late does so by at most as many seconds.
DELAY = 1.0
#: The least delay that is drawn; a failure is made small by steps of ten from here.
LEAST_DELAY = 0.001

#: The marks, and what they take.
_ARGUMENTS = {
    "crash_everywhere": ("points", "limit"),
    "kill_everywhere": ("points", "limit"),
    "chaos": ("seeds", "count", "faults", "delay"),
}


def marked(item: Any) -> Callable[[], None] | None:
    """What runs instead of a test; None when it has no mark.

    Raises:
        TypeError: A mark has an unknown argument.
        ValueError: A mark names what there is not.
    """
    names = [name for name in _ARGUMENTS if item.get_closest_marker(name) is not None]
    if not names:
        return None
    if len(names) > 1:
        raise ValueError(f"{item.nodeid} has both {names[0]} and {names[1]}: make it two tests")
    mark = item.get_closest_marker(names[0])
    _check_names(item, mark, _ARGUMENTS[names[0]])
    prepare: Callable[..., Callable[[], None]] = getattr(_Marked(item), names[0])
    return prepare(*mark.args, **mark.kwargs)


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
        plan = Plan(faults)
        self._follow(plan)
        return plan

    def _follow(self, plan: Plan) -> None:
        self._item.obj = self._function  # what wraps it, for asyncio as an example, wraps it once
        with planned(plan):
            self._once()

    def _fails(self, faults: Iterable[Fault]) -> bool:
        try:
            self._run(faults)
        except (Exception, pytest.fail.Exception):  # noqa: BLE001  (it is the test's)
            return True
        return False

    # --- a crash at each point

    def crash_everywhere(self, points: str | Iterable[str] = "*", limit: int = LIMIT) -> Callable[[], None]:
        """Run once to count, then once for each pass of each point that a pattern names."""
        patterns, alone = self._wanted("crash_everywhere", points, CRASH_POINTS)
        self._check_count("crash_everywhere's limit", limit)

        def everywhere() -> None:
            counted = self._run().choices(patterns)
            found = [fault for fault in counted if fault.kind in CRASH_POINTS]
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
                    error.add_note(
                        f"with a crash at pass {fault.number} of {fault.kind}; only this one: "
                        f'@pytest.mark.crash_everywhere(points="{fault}")'
                    )
                    raise
            if not happened:
                said = ", ".join(map(str, faults[:5]))
                raise RuntimeError(
                    f"{self._item.nodeid}: none of {len(faults)} crashes has happened: {said} is not passed so often"
                )

        return everywhere

    def kill_everywhere(
        self, points: str | Iterable[str] = "*", limit: int = KILL_LIMIT
    ) -> Callable[[], None]:
        """Run in a process of its own to count, then one that is killed for each pass of each point."""
        patterns, alone = self._wanted("kill_everywhere", points, FAULT_POINTS)
        self._check_count("kill_everywhere's limit", limit)
        return lambda: KilledTest(self._item, self._follow).everywhere(patterns, alone, limit)

    def _wanted(
        self, mark: str, points: str | Iterable[str], known: tuple[str, ...]
    ) -> tuple[list[str], list[Fault]]:
        """Patterns of points, and single crashes."""
        found = _texts(self._item, f"{mark}'s points", points)
        alone = [self._fault(one, known) for one in found if ":" in one]
        patterns = [one for one in found if ":" not in one]
        for pattern in patterns:
            if not any(fnmatchcase(point, pattern) for point in known):
                raise ValueError(
                    f"{self._item.nodeid}: no point is named by {pattern!r}; points: {', '.join(known)}"
                )
        return patterns, alone

    def _fault(self, text: str, kinds: tuple[str, ...]) -> Fault:
        kind, _, rest = text.partition(":")
        number, has_delay, delay = rest.partition(":")
        is_right = kind in kinds and number.isdigit() and int(number) > 0
        if has_delay:
            is_right = is_right and kind in LATE and re.fullmatch(r"\d+(\.\d+)?", delay) is not None
        if not is_right:
            raise ValueError(
                f"{self._item.nodeid}: there is no fault {text!r}; write 'name:pass', or 'name:pass:seconds' for what "
                f"comes late, with one of {', '.join(kinds)}"
            )
        return Fault(kind, int(number), float(delay or 0))

    def _check_count(self, what: str, value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{self._item.nodeid}: {what} is a number, 1 or more, not {value!r}")

    # --- several faults at a time

    def chaos(
        self,
        seeds: int | Iterable[int] = SEEDS,
        count: int = FAULTS,
        faults: Iterable[str] | None = None,
        delay: float = DELAY,
    ) -> Callable[[], None]:
        """Run once to count, then once for each seed with some faults that it draws; or with given ones only."""
        if faults is not None:
            if (seeds, count, delay) != (SEEDS, FAULTS, DELAY):
                raise ValueError(
                    f"{self._item.nodeid}: chaos takes faults, or seeds, count and delay, not both"
                )
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
        if (
            not isinstance(delay, (int, float))
            or isinstance(delay, bool)
            or not LEAST_DELAY <= delay < math.inf
        ):
            raise ValueError(
                f"{self._item.nodeid}: chaos' delay is a number of seconds, {LEAST_DELAY} or more, not {delay!r}"
            )

        def everything() -> None:
            choices = self._run().choices("*")
            if not choices:
                raise ValueError(
                    f"{self._item.nodeid} has no TestEnvironment in which something could go wrong"
                )
            for seed in drawn:
                draws = random.Random(f"{self._item.nodeid}/{seed}")  # noqa: S311  (to be drawn again)
                chosen = [
                    _delayed(fault, draws, delay) for fault in draws.sample(choices, min(count, len(choices)))
                ]
                if self._fails(chosen):
                    self._reproduce(self._shrunk(chosen))

        return everything

    def _shrunk(self, faults: list[Fault]) -> list[Fault]:
        """The fewest of these faults, and the shortest delays, with which it still fails."""
        for fault in list(faults):
            fewer = [other for other in faults if other != fault]
            if self._fails(fewer):
                faults = fewer
        for index, fault in enumerate(faults):
            for delay in _shorter(fault.delay):
                sooner = [*faults[:index], fault._replace(delay=delay), *faults[index + 1 :]]
                if self._fails(sooner):
                    faults = sooner
                    break
        return faults

    def _reproduce(self, faults: list[Fault], *, must_happen: bool = False) -> None:
        try:
            plan = self._run(faults)
            if must_happen and not plan.happened:
                raise RuntimeError(f"{self._item.nodeid}: none of these faults has happened")  # noqa: TRY301
        except BaseException as error:
            said = [str(fault) for fault in faults]
            error.add_note(f"with these faults; only these: @pytest.mark.chaos(faults={said!r})")
            raise


def _delayed(fault: Fault, draws: random.Random, most: float) -> Fault:
    """A fault with a delay that is drawn, if it is of those that come late: short ones as often as long ones."""
    if fault.kind not in LATE:
        return fault
    delay = LEAST_DELAY * (most / LEAST_DELAY) ** draws.random()
    return fault._replace(delay=float(f"{delay:.2g}"))


def _shorter(delay: float) -> Iterator[float]:
    """Delays to try instead of one, the shortest first."""
    if delay > 0:
        yield 0.0
    shorter = LEAST_DELAY
    while shorter < delay:
        yield shorter
        shorter *= 10
