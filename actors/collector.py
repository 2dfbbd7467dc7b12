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


class Collector:
    """The collector of this process, as open runtimes want it."""

    def __init__(self) -> None:
        self._users = 0
        self._before: tuple[int, int, int] | None = None

    def enter(self) -> None:
        """A Runtime is entered. A threshold that is higher already, or 0 (it is off), is left as it is."""
        self._users += 1
        before = gc.get_threshold()
        if self._users == 1 and 0 < before[0] < THRESHOLD:
            self._before = before
            gc.set_threshold(THRESHOLD, *before[1:])

    def leave(self) -> None:
        """One is left: behind the last one all is as it was, unless the program has set a threshold meanwhile."""
        self._users -= 1
        if self._users or self._before is None:
            return
        before, self._before = self._before, None
        if gc.get_threshold() == (THRESHOLD, *before[1:]):
            gc.set_threshold(*before)


collector = Collector()
