"""Figures of an earlier run, to be held against those of this one: ratios to bare limits, never seconds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from .report import Line

#: A figure that is worse than the recorded one by more than this factor has fallen.
LEAST = 0.8


def cost(line: Line) -> float | None:
    """What a figure is compared by, less is better: its ratio to the first bare limit; memory as it is; else None."""
    if line.limits:
        return line.limits[0].ratio
    return line.value if line.unit == "KiB" else None


def write(path: Path, lines: Iterable[Line]) -> None:
    """Record the figures of a run."""
    found = {line.key: round(value, 3) for line in lines if (value := cost(line)) is not None}
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> dict[str, float]:
    """Recorded figures by key.

    Raises:
        ValueError: The file is not there, or holds something else.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"the recorded figures {str(path)!r} cannot be read: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(value, int | float) for value in found.values()):
        raise ValueError(f"{str(path)!r} holds no recorded figures; `--record FILE` writes some")
    return {str(key): float(value) for key, value in found.items()}


def fallen(lines: Iterable[Line], before: dict[str, float]) -> list[str]:
    """One line of text for each figure that has fallen below 0.8 of the recorded one."""
    found: list[str] = []
    for line in lines:
        now, then = cost(line), before.get(line.key)
        if now is not None and then is not None and then / now < LEAST:
            unit = "ratio to the bare limit" if line.limits else line.unit
            found.append(
                f"{line.key}: {then / now:.2f} x of the recorded figure ({unit} {now:.2f}, was {then:.2f})"
            )
    return found
