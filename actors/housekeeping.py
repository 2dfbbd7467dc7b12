"""What a journal needs while nothing is appended to it: runs past their retention are purged, on time.

Where there is traffic this goes with its commits; else there are commits for it, with pauses between them. A look at
what is past its retention costs a read, and comes when there may be something, but not every second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ..journal.errors import EveractError, JournalError
from ..journal.lmdb_store import LmdbStore
from ..journal.purging import Selection, expired, next_expiry, select
from ..journal.rewrite import Rewritten, rewrite
from ..journal.writer import Raise, settle
from .timers import always

if TYPE_CHECKING:
    from .shard import Shard

log = logging.getLogger("everact.runtime")

#: Between two looks at what is past its retention, microseconds: so late may a purge be.
LOOK_EVERY = 60 * 1_000_000
#: A commit that only moves and purges does so much, in entries that are moved: some 2 ms.
SPARE = 500
#: Between two of them, in seconds; and while the journal takes none.
PAUSE = 0.01
LONG_PAUSE = 1.0
#: Looking at all runs lets others have a turn after so many.
SLICE = 256


class Housekeeping:
    """Belongs to a shard and its loop's thread.

    Attributes:
        suspended: So many calls want that nothing is moved or purged for now.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._retentions = {
            name: definition.retention
            for name, definition in shard.workflows.items()
            if definition.retention is not None
        }
        self._handle: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[Any]] = []
        self._closed = False
        self.suspended = 0

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for a purge."""
        return bool(self._waiters)

    def begin(self) -> None:
        """Go on with what the tables say, once the journal has been read."""
        self._shard.compactor.suspended = self.suspended > 0
        if self._retentions:
            self._look()
        self.wake()

    def wake(self) -> None:
        """See to it that what presses is done, with appends or without."""
        compactor = self._shard.compactor
        if compactor.error is not None and self._waiters:
            text = f"nothing is purged, since the log is no longer moved into the tables: {compactor.error}"
            error = EveractError(text)
            error.__cause__ = compactor.error
            self.drop(error)
        if self._handle is None and not self._closed and compactor.is_pressed:
            self._handle = self._shard.loop.call_later(PAUSE, self._work)

    def _work(self) -> None:
        self._handle = None
        shard = self._shard
        writer = shard.writer
        if self._closed or shard.error is not None:
            return
        pause = PAUSE
        if writer.error is not None:
            pause = LONG_PAUSE
        elif writer.is_idle:
            step = shard.plan(0, SPARE)
            if step is not None:
                writer.work(step)
            elif not (shard.compactor.is_reading or shard.compactor.purger.is_looking):
                pause = LONG_PAUSE  # it has come to an end, or the disk is full
        if shard.compactor.is_pressed:
            self._handle = shard.loop.call_later(pause, self._work)

    # --- retention

    def _look(self) -> None:
        """Ask for the purge of all runs that are past their retention."""
        shard = self._shard
        compactor = shard.compactor
        now = shard.now()
        closed = compactor.first_closed()
        in_log = any(closed.get(name, now) + kept <= now for name, kept in self._retentions.items())
        if in_log or compactor.purger.log_repeats:
            compactor.hurry()
        compactor.purger.request(expired(shard.store, self._retentions, now), self._looked)
        self.wake()

    def _looked(self, purged: int) -> None:
        if purged:
            log.info("purged %d runs that were past their retention", purged)
        shard = self._shard
        now = shard.now()
        closed = shard.compactor.first_closed()
        times = [closed.get(name, now) + kept for name, kept in self._retentions.items()]
        try:
            stored = next_expiry(shard.store, self._retentions)
        except JournalError as error:
            log.error("what is past its retention cannot be looked up just now: %s", error)  # noqa: TRY400
            stored = now
        if stored is not None:
            times.append(stored)
        shard.timers.add(max(now + LOOK_EVERY, min(times)), _look_again, always, self, 0)

    # --- on request

    async def purge(self, selection: Selection, *, dry_run: bool) -> int:
        """Purge closed runs, those in the log included.

        Args:
            selection: Which ones.
            dry_run: Only count them.

        Returns:
            How many there were.
        """
        shard = self._shard
        keys = []
        for number, key in enumerate(select(shard.index, selection)):
            if key:
                keys.append(key)
            if not number % SLICE:
                await asyncio.sleep(0)
                shard.check()
        if dry_run or not keys:
            return len(keys)
        if shard.compactor.is_in_log(keys):
            shard.compactor.hurry()
        return int(await self._asked(iter(keys)))

    async def _asked(self, keys: Iterator[int]) -> Any:
        future: asyncio.Future[Any] = self._shard.loop.create_future()
        self._waiters.append(future)
        self._shard.compactor.purger.request(keys, partial(settle, future))
        self.wake()
        try:
            return await future
        finally:
            self._waiters.remove(future)

    async def compact(self) -> Rewritten:
        """Write the journal's data file anew; what the log holds stays there meanwhile.

        Raises:
            JournalError: It cannot be done; see ``rewrite``.
        """
        shard = self._shard
        store = shard.store
        if not isinstance(store, LmdbStore):
            raise JournalError(f"the journal {store.path!r} has no file that could be compacted")
        self.suspended += 1
        shard.compactor.suspended = True
        work = shard.loop.run_in_executor(None, rewrite, store)
        work.add_done_callback(self._compacted)
        return await asyncio.shield(work)  # a caller that is cancelled does not stop it

    def _compacted(self, work: asyncio.Future[Rewritten]) -> None:
        if not work.cancelled():
            work.exception()  # the caller may have gone away
        self.suspended -= 1
        self._shard.compactor.suspended = self.suspended > 0
        self.wake()

    # --- the end

    def drop(self, error: EveractError) -> None:
        """Nothing that was asked for will be known to be done."""
        for waiter in self._waiters:
            settle(waiter, Raise(error))

    def close(self, error: EveractError) -> None:
        """Do nothing more; what was begun goes on at the next start."""
        self._closed = True
        self.drop(error)
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def _look_again(housekeeping: Housekeeping, _command: int) -> None:
    housekeeping._look()
