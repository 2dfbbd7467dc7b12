"""Purging and compacting a journal that no runtime has open."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .compaction import Compactor
from .loading import load
from .outbox import Outbox
from .purging import Selection, select
from .salvage import Progress
from .store import JournalStore

#: A commit does so much, in entries that are moved: some 20 ms.
SPARE = 5000


class Upkeep:
    """Changes the tables of a journal in commits that hold nothing else.

    Each commit leaves a whole journal, so it can be killed at any time and begun again.
    """

    def __init__(self, store: JournalStore, now: Callable[[], int]) -> None:
        """Read the journal.

        Args:
            store: The journal, open for writing.
            now: The wall clock, microseconds.

        Raises:
            JournalCorruptError: A commit record or a row that is needed cannot be read.
        """
        self._store = store
        loaded = load(store)
        self._index = loaded.runs
        self._compactor = Compactor(store, loaded.runs, loaded.facts, lambda _key: None, now)
        self._compactor.reads_here = True
        self._compactor.purger.has_sent = Outbox(store).has_sent

    def empty_log(self, progress: Progress | None = None) -> None:
        """Move everything that the log holds into the tables.

        Args:
            progress: Called with the entries moved and all of them.

        Raises:
            JournalCorruptError: The log is damaged.
        """
        rows = self._index.rows
        total = sum(map(len, rows.values()))
        self._compactor.hurry()
        for _ in self._steps():
            if progress is not None:
                progress(total - sum(map(len, rows.values())), total)

    def purge(self, selection: Selection, progress: Progress | None = None) -> int:
        """Purge closed runs.

        Args:
            selection: Which ones.
            progress: Called with the runs purged and all of them.

        Returns:
            How many there were.

        Raises:
            JournalCorruptError: The journal is damaged.
        """
        keys = [key for key in select(self._index, selection) if key]
        if not keys:
            return 0
        if self._compactor.is_in_log(keys):
            self.empty_log()
        counts: list[int] = []
        taken = 0

        def one_by_one() -> Iterator[int]:
            nonlocal taken
            for key in keys:
                taken += 1
                yield key

        self._compactor.purger.request(one_by_one(), counts.append)
        for _ in self._steps():
            if progress is not None:
                progress(taken, len(keys))
        return counts[0]

    def _steps(self) -> Iterator[None]:
        """Commit until nothing presses."""
        compactor = self._compactor
        while compactor.is_pressed:
            step = compactor.plan(0, SPARE)
            if step is None and compactor.purger.is_looking:
                continue
            if step is None:
                break
            position = self._store.append(self._store.position, [], step)
            compactor.committed(step, position.sequence)
            yield
        if compactor.error is not None:
            raise compactor.error
