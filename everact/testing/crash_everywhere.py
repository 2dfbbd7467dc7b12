"""``@pytest.mark.crash_everywhere``: a test is run once to count the fault points it passes, then once for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .crashes import CRASH_POINTS, Plan, planned

#: So many crashes of one test, unless its mark says otherwise.
LIMIT = 200


def crash_everywhere(item: Any, mark: pytest.Mark) -> Callable[[], None]:
    """What runs instead of a test that is marked.

    Args:
        item: The test.
        mark: ``points``: a pattern, or several, as ``"journal.*"`` (default all), or ``"point:pass"`` for one crash;
            ``limit``: how many crashes there are at most, evenly spread over all passes of all points.

    Raises:
        ValueError: The mark names no point, or is passed something else.
    """
    points, limit = _arguments(item.nodeid, *mark.args, **mark.kwargs)
    once, function = item.runtest, getattr(item, "obj", None)

    def run(plan: Plan) -> None:
        item.obj = function  # what wraps it, for asyncio as an example, wraps it once
        with planned(plan):
            once()

    def everywhere() -> None:
        count = Plan()
        run(count)
        alone = [tuple(point.split(":")) for point in points if ":" in point]
        choices = [(point, int(number)) for point, number in alone]
        choices += count.choices(tuple(point for point in points if ":" not in point), limit)
        if not choices:
            raise ValueError(f"{item.nodeid} passes none of the points {', '.join(points)}")
        happened = 0
        for choice in choices:
            plan = Plan(choice)
            try:
                run(plan)
            except BaseException as error:
                point, number = choice
                error.add_note(
                    f"with a crash at pass {number} of {point}; only this one: "
                    f'@pytest.mark.crash_everywhere(points="{point}:{number}")'
                )
                raise
            happened += plan.has_happened
        if not happened:
            raise RuntimeError(f"{item.nodeid}: none of {len(choices)} crashes has happened")

    return everywhere


def _arguments(
    test: str, points: str | list[str] | tuple[str, ...] = "*", limit: int = LIMIT
) -> tuple[list[str], int]:
    """Check what the mark was given."""
    found = [points] if isinstance(points, str) else list(points)
    for point in found:
        name, colon, number = point.partition(":")
        if colon and (name not in CRASH_POINTS or not number.isdigit() or not int(number)):
            raise ValueError(
                f"{test}: crash_everywhere has no crash {point!r}; write 'point:pass', with one of "
                f"{', '.join(CRASH_POINTS)}"
            )
    if not isinstance(limit, int) or limit < 1:
        raise ValueError(f"{test}: crash_everywhere's limit is a number of crashes, 1 or more, not {limit!r}")
    return found, limit
