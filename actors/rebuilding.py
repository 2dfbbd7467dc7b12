"""After a failed commit a shard is rebuilt from its journal, which alone knows what is on disk (R5)."""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import TYPE_CHECKING

from ..journal.errors import AppendRefusedError, JournalAccessError, JournalDiskError
from . import recovery
from .timing import Cancellable

if TYPE_CHECKING:
    from .shard import Shard

log = logging.getLogger("everact.runtime")

#: Pause before the second rebuild in a row after failed commits, and the longest one, in seconds.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0
#: The loop's other work goes on after this long, in seconds.
REBUILD_SLICE = 0.005


class Rebuilding:
    """Rebuilds a shard after failed commits, as often as it takes.

    Attributes:
        failures: Commits and openings of the journal that failed, since the last commit that did not.
        is_running: It reads the journal, a little at a time.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.failures = 0
        self.is_running = False
        self._handle: Cancellable | None = None

    @property
    def is_pausing(self) -> bool:
        """It waits before it tries again."""
        return self._handle is not None and not self.is_running

    def commit_failed(self, error: BaseException) -> None:
        """Throw away everything that may not be on disk, and begin again from the journal.

        The first time at once; while it goes on failing after growing pauses, in which nothing is dispatched.
        """
        shard = self._shard
        if isinstance(error, AppendRefusedError):
            log.critical("another writer has taken over the journal, stopping: %s", error)
            shard.stop(error)
            return
        if isinstance(error, JournalDiskError):
            log.critical("stopping: %s", error)
            shard.stop(error)
            return
        pause = self._next_pause()
        text = "a commit failed, rebuilding from the journal in %.2g s: %s: %s"
        log.error(text, pause, type(error).__name__, error)
        if pause:
            self._handle = shard.timing.later.call_later(pause, self._rebuild)
        else:
            self._rebuild()

    def stop(self) -> None:
        """The shard has stopped: rebuild no more."""
        self.is_running = False
        if self._handle is not None:
            self._handle.cancel()

    def _next_pause(self) -> float:
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self.failures - 1)) if self.failures else 0.0
        self.failures += 1
        return pause

    def _rebuild(self, steps: Generator[None] | None = None) -> None:
        """Rebuild, or go on with it: the host's other work goes on meanwhile."""
        shard = self._shard
        self._handle = None
        if steps is None:
            steps = recovery.rebuild(shard)
        steady = shard.timing.machine.steady
        end = steady() + REBUILD_SLICE
        self.is_running = False
        try:
            for _ in steps:
                if steady() > end:
                    self.is_running = True
                    self._handle = shard.loop.call_soon(self._rebuild, steps)
                    return
            shard.outage.end()
            shard.intake.check()
        except JournalAccessError as error:
            shard.outage.begin(error, (*shard.actors.values(), *shard.closed_runs))
            self._handle = shard.timing.later.call_later(self._next_pause(), self._rebuild)
        except Exception as again:  # noqa: BLE001  (whatever it is: without a journal nothing goes on)
            log.critical("the journal cannot be opened again, stopping: %s", again)
            shard.stop(again)
