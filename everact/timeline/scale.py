"""Where moments are on a line: by time, or with long waits cut short."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from typing import Literal

from .model import Part, Span, Timeline

Scale = Literal["time", "events"]
SCALES = ("time", "events")


class Axis:
    """Places between 0 and 1.

    Args:
        timeline: The run.
        scale: ``time``: as far from each other as they are in time. ``events``: a gap counts with its logarithm, so
            that what happens in milliseconds is seen beside days.
    """

    def __init__(self, timeline: Timeline, scale: Scale) -> None:
        self._times = sorted({timeline.start, timeline.end, *_moments(timeline)})
        self._places = [0.0]
        for before, after in zip(self._times, self._times[1:], strict=False):
            gap = after - before
            self._places.append(self._places[-1] + (gap if scale == "time" else 1 + math.log1p(gap)))
        self._whole = self._places[-1] or 1.0

    def place(self, moment: int) -> float:
        """Where a moment of the run is."""
        index = bisect.bisect_left(self._times, moment)
        return self._places[min(index, len(self._places) - 1)] / self._whole


def _moments(timeline: Timeline) -> Iterator[int]:
    for span in timeline.spans:
        pieces: list[Span | Part] = [span, *span.parts]
        for piece in pieces:
            yield min(piece.start, timeline.end)
            if piece.end is not None:
                yield min(piece.end, timeline.end)
