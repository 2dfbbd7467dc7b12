"""Taking closed runs out of the tables, a few with each commit.

A run is purged once the log holds nothing of it any more. Its rows go in one transaction, and from there on nobody
finds it; its histories and large payloads go with them when they are small. Those of a large one go in later commits:
until then the facts name it, so a purge that was killed goes on at the next start. Keys of runs are never used again,
so a new run of the same workflow id has nothing to do with what is left of the old one. Request ids stay for their
window: a repeat of what was sent to a purged run is still recognised.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from .blob_table import release_blobs
from .errors import JournalCorruptError
from .facts import Facts
from .fault_points import fault_point
from .run_index import RunIndex
from .run_row import RunRow
from .store import Changes, JournalStore
from .tables import NUMBER, PAIR, Table, closed_key, run_range, text_hash

log = logging.getLogger("everact.runtime")

#: What purging a run costs beside its rows of the histories, in entries that are moved.
PURGE_COST = 4
#: What giving up a large payload costs.
BLOB_COST = 10
#: A commit purges for at least so much, and for so much more with each entry that it appends: runs can end no faster.
PURGE_LEAST = 48
PURGE_PER_ENTRY = 10


class Selection(NamedTuple):
    """Which closed runs are to be purged.

    Attributes:
        closed_before: Those that ended before this moment, microseconds; None is any.
        workflow_type: Only this type.
        status: Only this status.
        workflow_id: Only runs of this id.
    """

    closed_before: int | None = None
    workflow_type: str | None = None
    status: str | None = None
    workflow_id: str | None = None

    def holds(self, row: RunRow) -> bool:
        """Whether a run is one of them; an open one never is."""
        return (
            row.is_closed
            and (self.closed_before is None or row.closed_at < self.closed_before)
            and self.workflow_type in (None, row.workflow_type)
            and self.status in (None, row.status)
            and self.workflow_id in (None, row.workflow_id)
        )


def select(index: RunIndex, selection: Selection) -> Iterator[int]:
    """Look at every run: yields the key of one that was selected, and 0 for another, so that the caller keeps pace."""
    for row in index.newest_first():
        yield row.key if selection.holds(row) else 0


def expired(store: JournalStore, retentions: Mapping[str, int], now: int) -> Iterator[int]:
    """Yield the keys of runs in the tables that are older than the retention of their type.

    Args:
        store: The journal.
        retentions: Of each type that has one, microseconds.
        now: The wall clock, microseconds.
    """
    for name, retention in retentions.items():
        start = text_hash(store.journal_id, name)
        stop = closed_key(start, max(0, now - retention + 1), 0)
        for key, _ in store.rows(Table.CLOSED, start, stop):
            if len(key) == len(start) + PAIR.size:
                yield PAIR.unpack_from(key, len(start))[1]


def next_expiry(store: JournalStore, retentions: Mapping[str, int]) -> int | None:
    """When the retention of the first run in the tables ends, microseconds."""
    times = []
    for name, retention in retentions.items():
        start = text_hash(store.journal_id, name)
        rows = store.rows(Table.CLOSED, start, closed_key(start, (1 << 64) - 1, 0))
        first = next((key for key, _ in rows if len(key) == len(start) + PAIR.size), None)
        if first is not None:
            times.append(PAIR.unpack_from(first, len(start))[0] + retention)
    return min(times, default=None)


class Purge:
    """What one commit purges: called with its changes.

    Attributes:
        runs: The runs that go.
        ends: Requests of which these are the last ones.
    """

    def __init__(self, journal_id: str, left: Sequence[int], rows: int) -> None:
        """Begin.

        Args:
            journal_id: Of the journal.
            left: Runs that are gone but for their histories.
            rows: At most so many rows of the histories are deleted, or fewer and some large payloads.
        """
        self._journal_id = journal_id
        self._left = left
        self._rows = rows
        self.runs: list[RunRow] = []
        self.ends: list[PurgeRequest] = []

    def __call__(self, changes: Changes) -> list[int]:
        """Delete (writer thread).

        Returns:
            Keys of the runs whose histories are not deleted yet.
        """
        fault_point("purge.before")
        name = self._journal_id
        keys = sorted(row.key for row in self.runs)
        changes.delete(Table.RUNS, [NUMBER.pack(key) for key in keys])
        changes.delete(
            Table.IDS, sorted(text_hash(name, row.workflow_id) + NUMBER.pack(row.key) for row in self.runs)
        )
        changes.delete(
            Table.CLOSED,
            sorted(
                closed_key(text_hash(name, row.workflow_type), row.closed_at, row.key) for row in self.runs
            ),
        )
        left = []
        rows = self._rows
        for key in (*self._left, *keys):
            if rows > 0:
                rows -= changes.remove(Table.HISTORIES, *run_range(key), rows)
            if rows > 0:
                rows -= BLOB_COST * self._release(changes, key, -(-rows // BLOB_COST))
            if rows <= 0:
                left.append(key)
        fault_point("purge.written")
        return left

    @staticmethod
    def _release(changes: Changes, key: int, limit: int) -> int:
        try:
            return release_blobs(changes, key, limit)
        except JournalCorruptError as error:  # what is damaged stays; the run is gone all the same
            log.error("large payloads of the purged run %d stay: %s", key, error)  # noqa: TRY400
            return 0


class PurgeRequest:
    """Runs to be purged, one after the other.

    Attributes:
        purged: How many of them are gone.
    """

    def __init__(self, keys: Iterator[int], done: Callable[[int], object]) -> None:
        """Begin.

        Args:
            keys: Of the runs; looked at when it is their turn.
            done: Called with ``purged`` once the last one is gone.
        """
        self.keys = keys
        self.done = done
        self.purged = 0


class Purger:
    """The loop's side: which runs each commit purges.

    Attributes:
        has_sent: Whether a run has sent messages that are not acknowledged; then it is not purged yet.
        forget: Called with the key of each run that is gone.
        log_repeats: A run was passed over, since the log may still hold entries of it that are in the tables too.
        is_looking: The last plan has looked at so many runs that are not purged that it has none; the next one goes on.
    """

    def __init__(self, store: JournalStore, index: RunIndex) -> None:
        self._store = store
        self._index = index
        self.has_sent: Callable[[int], bool] = lambda _key: False
        self.forget: Callable[[int], object] = lambda _key: None
        self._requests: deque[PurgeRequest] = deque()
        self._planned: dict[int, PurgeRequest] = {}
        self.log_repeats = False
        self.is_looking = False

    @property
    def is_asked(self) -> bool:
        """Whether there are requests."""
        return bool(self._requests)

    def request(self, keys: Iterator[int], done: Callable[[int], object]) -> None:
        """Purge these runs, those that are open or still in the log left out; arguments as of ``PurgeRequest``."""
        self._requests.append(PurgeRequest(keys, done))

    def plan(self, facts: Facts, budget: int) -> Purge | None:
        """What a commit purges.

        Args:
            facts: Of the tables.
            budget: What it may cost, in entries that are moved.
        """
        purge = Purge(self._store.journal_id, facts.purging, budget)
        taken: dict[PurgeRequest, list[int]] = {}
        try:
            self._take(purge, taken, {*facts.early, *facts.early_before}, 0 if facts.purging else budget)
        except Exception:
            for request, keys in taken.items():
                request.keys = chain(keys, request.keys)
            for row in purge.runs:
                del self._planned[row.key]
            self._requests.extendleft(reversed(purge.ends))
            raise
        if purge.runs or facts.purging:
            return purge
        self._end(purge)
        return None

    def _take(self, purge: Purge, taken: dict[PurgeRequest, list[int]], early: set[int], budget: int) -> None:
        """Let a purge have runs; those that are looked at only have their cost too."""
        cost = 0
        while self._requests and cost < budget:
            request = self._requests[0]
            key = next(request.keys, None)
            if key is None:
                purge.ends.append(self._requests.popleft())
                continue
            taken.setdefault(request, []).append(key)
            cost += 1
            if key in early:
                self.log_repeats = True
                continue
            row = None if key in self._planned else self._row(key)
            if row is not None:
                purge.runs.append(row)
                self._planned[key] = request
                cost += PURGE_COST
        self.is_looking = 0 < budget <= cost and not purge.runs

    def _row(self, key: int) -> RunRow | None:
        """A run that may be purged."""
        if key in self._index.rows or self.has_sent(key):
            return None  # the log has entries of it, or the outbox messages
        try:
            row = self._index.row(key)
        except JournalCorruptError as error:
            log.error("run %d is not purged: %s", key, error)  # noqa: TRY400  (the message says it all)
            return None
        return row if row is not None and row.is_closed else None

    def committed(self, purge: Purge) -> None:
        """Take note of a purge that is durable."""
        for row in purge.runs:
            self._planned.pop(row.key).purged += 1
            self._index.purged(row)
            self.forget(row.key)
        self._end(purge)

    @staticmethod
    def _end(purge: Purge) -> None:
        for request in purge.ends:
            request.done(request.purged)
