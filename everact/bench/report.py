"""One line per workload: ours, the bare limits beside it, the target."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Limit:
    """A bare limit, measured in the same run.

    Attributes:
        what: What was measured.
        value: In the unit of the line.
        ratio: Our time over its time: 1 is as fast as the bare limit, 2 takes twice as long.
    """

    what: str
    value: float
    ratio: float


@dataclasses.dataclass(frozen=True)
class Line:
    """A figure and what it is compared with.

    Attributes:
        key: Short name for programs, the same from version to version.
        workload: W1, W2 or W3, as in the comparison of engines; ``W3 alone`` is its second half.
        what: The figure in words.
        value: The figure.
        unit: Its unit.
        limits: The bare limits beside it.
        target: The target in words.
        reached: Whether the target was reached; None where there is none.
        note: More about it, for people.
        detail: More figures.
    """

    key: str
    workload: str
    what: str
    value: float
    unit: str
    limits: tuple[Limit, ...] = ()
    target: str = ""
    reached: bool | None = None
    note: str = ""
    detail: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def verdict(self) -> str:
        """The target and whether it was reached."""
        if self.reached is None:
            return self.target
        return f"{self.target}: {'reached' if self.reached else 'missed'}"

    def text(self) -> str:
        """The line for people."""
        parts = [f"{self.what}: {show(self.value, self.unit)}"]
        if self.note:
            parts[0] += f" ({self.note})"
        parts += [f"{x.what} {show(x.value, self.unit)}, ratio {x.ratio:.2f}" for x in self.limits]
        if self.target:
            parts.append(f"target {self.verdict()}")
        return f"{self.workload:<9} " + " | ".join(parts)


def show(value: float, unit: str) -> str:
    """A figure with its unit, no more digits than it deserves."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 3
    return f"{value:,.{digits}f} {unit}"


def quantile(values: Sequence[float], q: float) -> float:
    """The value below which the part ``q`` of all lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def median_lines(runs: Sequence[Sequence[Line]]) -> list[Line]:
    """Of several runs of one workload, each line from the run in which its figure was the median."""
    chosen: list[Line] = []
    for same in zip(*runs, strict=True):
        values = [line.value for line in same]
        line = same[values.index(statistics.median_low(values))]
        if len(values) > 1:
            line = dataclasses.replace(line, detail={**line.detail, "all_runs": values})
        chosen.append(line)
    return chosen


def table(lines: Iterable[Line]) -> str:
    """All lines as aligned text that survives a log file."""
    rows = [("", "figure", "everact", "bare limit in the same run", "bare", "ratio", "target")]
    for line in lines:
        limits = [(x.what, show(x.value, line.unit), f"{x.ratio:.2f}") for x in line.limits] or [("", "", "")]
        ours = show(line.value, line.unit)
        rows.append((line.workload, line.what, ours, *limits[0], line.verdict()))
        rows += [("", "", "", *more, "") for more in limits[1:]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(row.rstrip() for row in text)
