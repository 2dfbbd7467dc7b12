"""The garbage collector while a Runtime is open: it looks for cycles less often.

Runs live in waves: hundreds start together, each with some fifty objects, and all of them are freed by their reference
counts when the runs end. The collector's first threshold of 700 objects is passed again and again while a wave grows;
each time it finds nothing, moves the objects on to its older generations, and so has all objects of the program looked
at soon after. A seventh of the time that a busy program had for its runs went there.
"""

from __future__ import annotations

import gc

#: Net new objects before the collector looks at the youngest ones; a wave of a few hundred runs stays below it.
THRESHOLD = 20_000

_open = 0
_before: tuple[int, int, int] | None = None


def collect_less() -> None:
    """A Runtime is entered. A threshold that is higher already, or 0 (no collector at all), is left as it is."""
    global _open, _before
    _open += 1
    if _open == 1 and 0 < gc.get_threshold()[0] < THRESHOLD:
        _before = gc.get_threshold()
        gc.set_threshold(THRESHOLD, *_before[1:])


def collect_as_before() -> None:
    """One is left: behind the last one all is as it was, unless the program has set a threshold meanwhile."""
    global _open, _before
    _open -= 1
    if _open == 0 and _before is not None:
        if gc.get_threshold() == (THRESHOLD, *_before[1:]):
            gc.set_threshold(*_before)
        _before = None
