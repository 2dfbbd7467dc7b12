"""The runs of a journal: found by key, by workflow id, by run id; each with its entries.

What the log holds and the tables do not yet is the *overlay*, kept in memory in step with each commit; everything older
is read from the tables. Both together agree with the journal at every moment (R16). The overlay shows durable runs
only; ids that are reserved by a turn on its way to the disk are the runtime's business.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from msgspec import structs

from .blobs import restore, whole_entry
from .errors import JournalCorruptError
from .events import Record, WorkflowStarted
from .fold import RunState
from .history_values import HistoryCodec
from .request_ids import RequestIds
from .run_chain import ChainRecord, RunLinks
from .run_history import apply_newer, decoded, history_entries, log_entries, moved_state, read_history
from .run_repair import LostRunError, remade_row
from .run_row import INDEX_BITS, NOWHERE, RunRow
from .run_status import CLOSED, flagged_status
from .store import HAS_BLOBS, STARTS_RUN, Entry, JournalStore, Tables
from .stored_runs import read_row, stored_row
from .tables import HASH_SIZE, NUMBER, Table, run_range, text_hash

log = logging.getLogger("everact.runtime")

#: A run with so many entries in the log is crowded: to read them one by one is slow.
CROWD = 400
#: A run id that no row of its workflow id has is looked for in the rows of so many runs: their hints may be damaged.
HINTS_CHECKED = 1000


class RunIndex:
    """All durable runs.

    Attributes:
        rows: The overlay: runs that the log knows more of than the tables, and those in use; by key.
        by_workflow_id: The newest run in the overlay of each workflow id.
        older_runs: The others by run id: hardly any, mostly.
        requests: What request ids have become.
        counts: How many runs the table of runs has, by type and status.
        totals: How many runs there are, by type and status.
        returned: How many runs that were moved before have entries in the log again.
        crowded: Keys of open runs whose entries in the log have become many.
        codec: For the values of the histories.
        closed_since: When the first run of each type has closed that the log may still hold, microseconds.
        damaged: Keys of runs whose rows in the table of runs were found damaged.
        lost: What is wrong with runs that the log has entries of and the tables nothing that is whole, by key; these
            entries are nowhere else, so the log must stay as it is.
    """

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self.rows: dict[int, RunRow] = {}
        self.by_workflow_id: dict[str, RunRow] = {}
        self.older_runs: dict[str, RunRow] = {}
        self.requests = RequestIds(store)
        self.counts: dict[tuple[str, str], int] = {}
        self.totals: Counter[tuple[str, str]] = Counter()
        self.returned = 0
        self.crowded: list[int] = []
        self.codec = HistoryCodec()
        self.closed_since: dict[str, int] = {}
        self.damaged: set[int] = set()
        self.lost: dict[int, JournalCorruptError] = {}

    # --- the overlay

    def add(
        self, sequence: int, entries: list[Entry], started: dict[int, WorkflowStarted], moved_to: int = 0
    ) -> None:
        """Take in one durable commit record.

        Args:
            sequence: Its sequence number.
            entries: What it holds.
            started: First event of each run that it starts, by run key.
            moved_to: Entries of runs with keys up to this one are in the tables, and passed over.
        """
        base = sequence << INDEX_BITS
        rows = self.rows
        for number, (key, _first, flags, at, _body) in enumerate(entries, base):
            if key <= moved_to:
                continue
            row = rows.get(key)
            if flags:
                if flags & STARTS_RUN and row is None:
                    event = started[key]
                    row = RunRow(key, event.workflow_id, event.run_id, event.workflow_type, at)
                    row.parent_id = event.parent_id
                    if event.chain is not None:
                        self._link(row, event.chain)
                    self._insert(row)
                status = flagged_status(flags)
                if status:
                    if row is None:
                        row = self._adopted(key)
                        if row is None:
                            continue
                    self.totals[row.workflow_type, row.status] -= 1
                    self.totals[row.workflow_type, status] += 1
                    row.status = status
                    if status in CLOSED:
                        row.closed_at = at
                        self.closed_since.setdefault(row.workflow_type, at)
            if row is None:
                row = self._adopted(key)
                if row is None:
                    continue
            if sequence <= row.through:
                continue  # what the histories have already
            places = row._places
            if type(places) is array:
                places.append(number)
                if len(places) == CROWD:
                    self.crowded.append(key)
            elif places == NOWHERE:
                row._places = number
                self.returned += bool(row.stored_status)
            else:
                row._places = array("Q", (places, number))  # type: ignore[arg-type]

    def _link(self, row: RunRow, chain: ChainRecord) -> None:
        """A run begins that follows another one, whose end is in the same commit, and so in the overlay."""
        row.links = RunLinks(chain.first_run_id, chain.continued_run_id)
        before = self.by_workflow_id.get(row.workflow_id)
        if before is None or before.run_id != chain.continued_run_id:
            before = self.older_runs.get(chain.continued_run_id)
        if before is not None:
            links = before.links or RunLinks(before.run_id)
            before.links = structs.replace(links, continued_to=row.run_id)

    def begin(self, counts: dict[tuple[str, str], int]) -> None:
        """Begin with the runs that the tables have."""
        self.counts = counts
        self.totals = Counter(counts)

    def settle(self, row: RunRow, stored: RunRow) -> None:
        """The tables know a run that the log begins with: some of its entries there are in the histories too."""
        self._count(row, -1)
        row.through, row.stored_status, row.wake = stored.through, stored.stored_status, stored.wake
        self._count(row, 1)
        row.moved(row.below(row.through + 1))

    def purged(self, row: RunRow) -> None:
        """A run is gone from the tables."""
        self.totals[row.workflow_type, row.status] -= 1

    def _count(self, row: RunRow, times: int) -> None:
        """Take a run as the overlay has it in place of what the tables have."""
        self.totals[row.workflow_type, row.status] += times
        if row.stored_status:
            self.totals[row.workflow_type, row.stored_status] -= times

    def _insert(self, row: RunRow) -> None:
        self.rows[row.key] = row
        self._count(row, 1)
        newest = self.by_workflow_id.get(row.workflow_id)
        if newest is not None and newest is not row:
            older = newest if newest.key < row.key else row
            self.older_runs[older.run_id] = older
        if newest is None or newest.key < row.key:
            self.by_workflow_id[row.workflow_id] = row

    def logged(self) -> list[int]:
        """Keys of the runs with entries in the log that are not moved, the highest one first."""
        # All at once on the loop, so no call for each; and nearly in order already.
        return sorted([key for key, row in self.rows.items() if row._places != NOWHERE], reverse=True)

    def adopt(self, key: int) -> RunRow:
        """Take a run of the tables into the overlay.

        Raises:
            LostRunError: Nothing of it in the tables is whole.
            JournalCorruptError: A page is damaged.
        """
        row = self.row(key)
        if row is None:
            damage = JournalCorruptError(f"run {key} has entries in the log, but its start is missing")
            self._is_damaged(key, damage)
            with self._store.view() as tables:
                row = remade_row(tables, self.codec, key, damage)
        if key not in self.rows:
            self._insert(row)
        return row

    def _adopted(self, key: int) -> RunRow | None:
        """The same; None for a run that is lost."""
        try:
            return self.adopt(key)
        except LostRunError as error:
            self.lost[key] = error
            return None

    def drop(self, row: RunRow) -> None:
        """Take a run out of the overlay: the tables have all of it."""
        if self.rows.pop(row.key, None) is not None:
            if row.status != row.stored_status:
                self._count(row, -1)
            if self.by_workflow_id.get(row.workflow_id) is row:
                del self.by_workflow_id[row.workflow_id]
            elif self.older_runs.get(row.run_id) is row:
                del self.older_runs[row.run_id]

    # --- finding runs

    def row(self, key: int) -> RunRow | None:
        """A run by its key, from the overlay or the tables.

        Raises:
            JournalCorruptError: Its row is damaged, and so is its history.
        """
        row = self.rows.get(key)
        if row is None:
            with self._store.view() as tables:
                row = self.stored(tables, key)
        return row

    def stored(self, tables: Tables, key: int) -> RunRow | None:
        """A run as the tables have it; its snapshot or history stands in for a damaged row.

        Raises:
            LostRunError: These are damaged too.
            JournalCorruptError: A page is damaged.
        """
        try:
            return stored_row(tables, key)
        except JournalCorruptError as error:
            row = remade_row(tables, self.codec, key, error)
            self._is_damaged(key, error)
            return row

    def _is_damaged(self, key: int, error: JournalCorruptError) -> None:
        """Name a damaged row once."""
        if key not in self.damaged:
            self.damaged.add(key)
            log.error("damage, which `everact journal verify` tells more of: %s", error)

    def find(self, workflow_id: str, run_id: str | None = None) -> RunRow | None:
        """The newest run of a workflow id, or the one with this run id.

        Raises:
            JournalCorruptError: A run of the id has neither a row nor a history that is whole.
        """
        row = self.by_workflow_id.get(workflow_id)
        if run_id is not None and (row is None or row.run_id != run_id):
            row = self.older_runs.get(run_id)
        if row is not None:
            return row if row.workflow_id == workflow_id else None
        if not self.counts:
            return None  # the tables have no run
        start = text_hash(self._store.journal_id, workflow_id)
        stop = start + b"\xff" * 9
        with self._store.view() as tables:
            if tables.last(Table.IDS, start, stop) is None:
                return None
            others: list[int] = []
            for name, value in tables.scan(Table.IDS, start, stop, reverse=True):
                if len(name) != HASH_SIZE + NUMBER.size:
                    continue
                (key,) = NUMBER.unpack_from(name, HASH_SIZE)
                if run_id is not None and value != run_id.encode():
                    if len(others) < HINTS_CHECKED:
                        others.append(key)
                    continue
                row = self._named(tables, key, workflow_id, run_id)
                if row is not None:
                    return row
            for key in others:
                row = self._named(tables, key, workflow_id, run_id)
                if row is not None:
                    return row
        return None

    def _named(self, tables: Tables, key: int, workflow_id: str, run_id: str | None) -> RunRow | None:
        """A run if it has these ids: rows of ids are hints, it may be gone, and another id may have the same hash."""
        row = self.rows.get(key) or self.stored(tables, key)
        is_it = row is not None and row.workflow_id == workflow_id and run_id in (None, row.run_id)
        return row if is_it else None

    def status_of(self, workflow_id: str) -> str:
        """Status of the newest run of an id; ``starting`` before there is one, ``damaged`` when it cannot be read."""
        try:
            row = self.find(workflow_id)
        except JournalCorruptError:
            return "damaged"
        return "starting" if row is None else row.status

    def newest_first(self, before: int = 0) -> Iterator[RunRow]:
        """Every run, the one that started last first; runs may be moved into the tables while it goes on.

        Those whose rows are damaged are left out, and named in the log once.

        Args:
            before: Only those with a key below this one; 0: all.
        """
        rows = self._store.rows(Table.RUNS, stop=NUMBER.pack(before) if before else None, reverse=True)
        stored = ((NUMBER.unpack(key)[0], value) for key, value in rows if len(key) == NUMBER.size)
        following = next(stored, None)
        keys = sorted(self.rows)
        if before:
            del keys[bisect_left(keys, before) :]
        for key in (*reversed(keys), 0):
            while following is not None and following[0] >= key:
                if following[0] != key:
                    row = self.rows.get(following[0]) or self._readable(*following)
                    if row is not None:
                        yield row
                following = next(stored, None)
            row = self.row(key) if key else None
            if row is not None:
                yield row

    def _readable(self, key: int, value: bytes) -> RunRow | None:
        try:
            return read_row(key, value)
        except JournalCorruptError as error:
            self._is_damaged(key, error)
            return None

    def count(self, workflow_type: str | None, status: str | None) -> int:
        """How many runs are of a type and a status; None is any."""
        return sum(
            number
            for (kind, state), number in self.totals.items()
            if workflow_type in (None, kind) and status in (None, state)
        )

    # --- what a run has done

    def entries(self, row: RunRow) -> list[Entry]:
        """A run's durable entries, in order: from the histories, then from the log.

        Raises:
            JournalCorruptError: Part of it is missing or cannot be read.
        """
        # The locations first: what is moved from there meanwhile is then found in the histories.
        locations = row.located()
        with self._store.view() as tables:
            found = read_history(tables, self.codec, row.key) + log_entries(
                tables, self.codec, row.key, locations
            )
            return [whole_entry(entry, tables) for entry in found]

    def records(self, row: RunRow) -> list[tuple[int, Record]]:
        """A run's durable records as ``(time in microseconds, record)``; errors as of ``entries``."""
        return [(entry.at, decoded(entry)) for entry in self.entries(row)]

    def reading(self, row: RunRow) -> Iterator[tuple[int, Record]]:
        """A run's durable records as they are at this moment, decoded a few at a time as they are asked for.

        Raises:
            JournalCorruptError: Here or later: part of it is missing or cannot be read.
        """
        locations = row.located()
        with self._store.view() as tables:
            values = list(tables.scan(Table.HISTORIES, *run_range(row.key)))
            logged = log_entries(tables, self.codec, row.key, locations)
        return self._decoded(values, logged)

    def _decoded(
        self, values: list[tuple[bytes, bytes]], logged: list[Entry]
    ) -> Iterator[tuple[int, Record]]:
        for key, value in values:
            with self._store.view() as tables:
                entries = history_entries(tables, self.codec, key, value)
            for entry in entries:
                yield entry.at, self._whole(entry)
        for entry in logged:
            yield entry.at, self._whole(entry)

    def _whole(self, entry: Entry) -> Record:
        record = decoded(entry)
        if not entry.flags & HAS_BLOBS:
            return record
        with self._store.view() as tables:
            return restore(record, tables)

    def state(self, row: RunRow) -> RunState:
        """The fold of a run's durable records, from its snapshot where there is one."""
        locations = row.located()
        with self._store.view() as tables:
            state = moved_state(tables, self.codec, row.key)
            apply_newer(state, log_entries(tables, self.codec, row.key, locations), tables)
        return state
