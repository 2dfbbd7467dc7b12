"""The near horizon of time: only runs whose timers fall due soon are in memory for them (R16)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from ..journal.loading import due_runs, next_due
from .timers import always

if TYPE_CHECKING:
    from .shard import Shard

log = logging.getLogger("everact.runtime")

#: Runs whose first timer falls due later than this stay out of memory, microseconds.
HORIZON = 600 * 1_000_000
#: Pause before what falls due is looked up again when the journal could not be read, microseconds.
LOOK_PAUSE = 1_000_000
#: So many runs are brought in before others have a turn: some 3 ms.
SLICE = 64


class Horizon:
    """Brings runs into memory some time before what they wait for falls due.

    Attributes:
        watches: It has a look at a later time before it, since somebody out of memory may fall due.
        until: Every run with something that falls due up to here is in memory, microseconds.
    """

    def __init__(self, shard: Shard, bring_in: Callable[[Shard, int], object]) -> None:
        """Begin; nothing is looked up before ``begin``.

        Args:
            shard: Whose runs.
            bring_in: Makes the actor of a run that only the tables know, by its key.
        """
        self._shard = shard
        self._bring_in = bring_in
        self.watches = False
        self.until = 0

    def begin(self, until: int) -> None:
        """What falls due up to this time has been brought in."""
        self.until = until
        self._look()

    def watch(self) -> None:
        """A run leaves memory although something of it falls due, some time."""
        if not self.watches:
            self.watches = True
            self._shard.timers.add(self.until - HORIZON // 2, _next, always, self, 0)

    def _look(self) -> None:
        more = next_due(self._shard.store, self.until) is not None
        self.watches = False  # not before that is known: on an error there is a timer to look again already
        if more:
            self.watch()

    def move(self) -> None:
        """Bring in what falls due after the present end."""
        since = self.until
        with self._looking(since):
            # From here on nobody leaves who falls due before that: the rows are gone through once.
            self.until = max(since, self._shard.now()) + HORIZON
            self._some(due_runs(self._shard.store, since, self.until), since)

    def _some(self, keys: Iterator[int], since: int) -> None:
        """Bring in a few runs at a time: there may be very many, and there is time."""
        shard = self._shard
        if shard.error is not None or shard.horizon is not self:
            return
        with self._looking(since):
            some = list(islice(keys, SLICE))
            for key in some:
                if key not in shard.actors:
                    self._bring_in(shard, key)
            if some:
                shard.loop.call_soon(self._some, keys, since)
            else:
                self._look()

    @contextmanager
    def _looking(self, since: int) -> Generator[None]:
        """Look again soon when the journal cannot be read: a hiccup of the store must not leave the runs asleep."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  (of the store's own errors, too, not all are ours)
            text = "what falls due soon cannot be looked up, trying again in %g s: %s"
            log.error(text, LOOK_PAUSE / 1_000_000, error)  # noqa: TRY400  (the message says it all)
            self.until = since
            self._shard.timers.add(self._shard.now() + LOOK_PAUSE, _next, always, self, 0)


def _next(horizon: Horizon, _command: int) -> None:
    horizon.move()
