"""Every run of a journal, one after the other, past whatever is damaged."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from .blobs import Spiller, whole_entry
from .errors import JournalCorruptError
from .facts import Facts, read_facts
from .fold import RunState
from .history_values import HistoryCodec
from .run_history import history_entries
from .run_row import INDEX_BITS, unpacked
from .salvage import Damage, Progress, readable_records
from .snapshots import decode_state
from .store import HAS_BLOBS, Entry, JournalStore, Position, Segments, Tables
from .stored_runs import StoredRun, decode_run
from .tables import EVENT, NUMBER, Table, run_range

#: Runs that are looked for in one read transaction.
KEYS_AT_ONCE = 512


class Fault(NamedTuple):
    """One thing that is wrong with a run.

    Attributes:
        event: Number of the event; 0 when it is about a row of a table.
        message: What is wrong.
        sequence: The commit record; 0 when it is in no record of the log.
        table: The table; empty for the log.
    """

    event: int
    message: str
    sequence: int = 0
    table: str = ""


class FoundRun(NamedTuple):
    """What there is of a run at one moment.

    Attributes:
        key: Its key.
        entries: Its entries that can be read, in order, each with its commit record; 0 for those in the histories.
        has_history: Whether the histories have something of it, readable or not.
        row: Its row in the table of runs, if there is one that can be read.
        open_row: Its row in the table of open runs, if there is one that can be read.
        snapshot: What that row holds, with its large payloads; None when it is damaged.
        faults: What cannot be read, and where log and histories contradict each other.
        unknown: Tables whose row of this run cannot be read, so that it is not known whether there is one.
    """

    key: int
    entries: list[tuple[int, Entry]]
    has_history: bool
    row: StoredRun | None
    open_row: bytes | None
    snapshot: RunState | None
    faults: list[Fault]
    unknown: frozenset[Table]

    @property
    def is_gone(self) -> bool:
        """Whether there is no trace of it: it was purged."""
        return not self.entries and self.row is None and self.open_row is None and not self.faults


class _Moment(NamedTuple):
    """What changes whenever a writer does something that a reader can see."""

    position: Position
    segments: Segments
    facts: Facts | None


class RunWalk:
    """The runs of a journal in order of their keys; nothing is changed, and others may write meanwhile.

    Only where the entries of the log are is held in memory; runs are read one by one, each as it is at one moment.

    Attributes:
        records: Commit records of the log that can be read.
        log_entries: Entries in them.
        first_sequence: Sequence of the first of them; 0 when there is none.
        total: Highest run key, for the progress.

    Args:
        store: The journal.
        damaged: Called for what cannot be read of the log.
        progress: Called with what is done and all there is to do: commit records, then runs.
    """

    def __init__(
        self, store: JournalStore, damaged: Callable[[Damage], object], progress: Progress | None = None
    ) -> None:
        self.store = store
        self.records = 0
        self.log_entries = 0
        self.first_sequence = 0
        self._damaged = damaged
        self.spiller = Spiller(store.journal_id)
        self._codec = HistoryCodec()
        self._locations: dict[int, array[int]] = {}
        self._following = 1
        self._moment: _Moment | None = None
        self._progress = progress
        self._steps = 0
        with store.view() as tables:
            self.highest = max(
                _last_key(tables, table) for table in (Table.RUNS, Table.HISTORIES, Table.OPEN)
            )
        self.read_log()
        self.highest = max(self.highest, *self._locations) if self._locations else self.highest

    def read_log(self) -> None:
        """Take in what the log has got since the last time."""
        self._moment = self._now()
        stepped = self._step if not self._steps else None
        for sequence, entries in readable_records(self.store, self._damaged, stepped, self._following):
            self.first_sequence = self.first_sequence or sequence
            self._following = sequence + 1
            self.records += 1
            self.log_entries += len(entries)
            for number, entry in enumerate(entries, sequence << INDEX_BITS):
                found = self._locations.get(entry.run_key)
                if found is None:
                    found = self._locations[entry.run_key] = array("Q")
                found.append(number)
        self._following = max(self._following, self._moment.position.sequence)
        self._steps = self._steps or self.records

    def _step(self, done: int, of: int) -> None:
        if self._progress is not None:
            self._progress(done, of + self.highest)

    def has_moved_on(self) -> bool:
        """Whether a writer has done something since the log was read; if so, it is read on."""
        if self._now() == self._moment:
            return False
        self.read_log()
        return True

    def _now(self) -> _Moment:
        with self.store.view() as tables:
            segments = tables.segments
            try:
                facts = read_facts(tables)
            except JournalCorruptError:
                facts = None
        return _Moment(self.store.position, segments, facts)

    # --- the runs

    def run_keys(self, is_wanted: Callable[[StoredRun], bool] | None = None) -> Iterator[int]:
        """The keys of all runs of which there is a trace.

        Args:
            is_wanted: Leaves out runs by their rows in the table of runs, where these can be read.
        """
        in_log = ((key, None) for key in sorted(self._locations))
        found = merge(
            in_log, self._rows(), self._keys_in(Table.HISTORIES), self._keys_in(Table.OPEN), key=itemgetter(0)
        )
        for key, traces in groupby(found, itemgetter(0)):
            if key > self.highest:  # it came later
                return
            row = next((row for _, row in traces if row is not None), None)
            if row is None or is_wanted is None or is_wanted(row):
                yield key
            if self._progress is not None:
                self._progress(self._steps + key, self._steps + self.highest)

    def _rows(self) -> Iterator[tuple[int, StoredRun | None]]:
        """The table of runs: keys, and rows that can be read."""
        for name, value in self.store.rows(Table.RUNS):
            if len(name) != NUMBER.size:
                self._damaged(Damage(0, 0, f"the key {name.hex()} names no run", Table.RUNS.value))
                continue
            try:
                row = decode_run(value)
            except JournalCorruptError:
                row = None
            yield _number(name), row

    def _keys_in(self, table: Table) -> Iterator[tuple[int, None]]:
        following = 0
        while True:
            keys: list[int] = []
            with self.store.view() as tables:
                while len(keys) < KEYS_AT_ONCE and following <= self.highest:
                    row = next(tables.scan(table, NUMBER.pack(following) if following else b""), None)
                    if row is None:
                        break
                    if len(row[0]) < NUMBER.size:
                        self._damaged(Damage(0, 0, f"the key {row[0].hex()} names no run", table.value))
                        following = _number(row[0]) + 1
                        continue
                    keys.append(_number(row[0]))
                    following = keys[-1] + 1
            yield from ((key, None) for key in keys)
            if len(keys) < KEYS_AT_ONCE:
                return

    def __iter__(self) -> Iterator[FoundRun]:
        for key in self.run_keys():
            found = self.look(key)
            if not found.is_gone:
                yield found

    def peek(self, key: int) -> StoredRun | None:
        """A run's row in the table of runs, if it is there and can be read."""
        try:
            with self.store.view() as tables:
                row = tables.get(Table.RUNS, NUMBER.pack(key))
            return None if row is None else decode_run(row)
        except JournalCorruptError:
            return None

    def look(self, key: int) -> FoundRun:
        """Read a run as it is now."""
        faults: list[Fault] = []
        unknown: set[Table] = set()
        row: StoredRun | None = None
        with self.store.view() as tables:
            stored = _get(tables, Table.RUNS, key, unknown)
            if stored is None and Table.RUNS not in unknown and key in _purging(tables):
                return FoundRun(key, [], False, None, None, None, [], frozenset())
            open_row = _get(tables, Table.OPEN, key, unknown)
            snapshot = None
            if open_row is not None:
                try:
                    snapshot = decode_state(open_row, tables)
                except JournalCorruptError as error:
                    faults.append(Fault(0, str(error), table=Table.OPEN.value))
            history = self._history(tables, key, faults)
            has_history = tables.last(Table.HISTORIES, *run_range(key)) is not None
            log = self._logged(tables, key)
        if stored is not None:
            try:
                row = decode_run(stored)
            except JournalCorruptError as error:
                faults.append(Fault(0, str(error), table=Table.RUNS.value))
                unknown.add(Table.RUNS)
        through = row.through if row is not None else None
        entries = self._whole(_merged(history, log, through, faults), faults)
        return FoundRun(key, entries, has_history, row, open_row, snapshot, faults, frozenset(unknown))

    def _whole(self, entries: list[tuple[int, Entry]], faults: list[Fault]) -> list[tuple[int, Entry]]:
        """The entries with their large payloads; one that lacks some keeps the references, and is a fault."""
        found: list[tuple[int, Entry]] = []
        for sequence, entry in entries:
            whole = entry
            if entry.flags & HAS_BLOBS:
                try:
                    with self.store.view() as tables:
                        whole = whole_entry(entry, tables)
                except JournalCorruptError as error:
                    faults.append(Fault(entry.first_event, str(error), sequence, Table.BLOBS.value))
            found.append((sequence, whole))
        return found

    def _history(self, tables: Tables, key: int, faults: list[Fault]) -> list[Entry]:
        found: list[Entry] = []
        table = Table.HISTORIES.value
        for name, value in tables.scan(Table.HISTORIES, *run_range(key)):
            if len(name) != EVENT.size:
                faults.append(Fault(0, f"the key {name.hex()} is not one of this table", table=table))
                continue
            event = EVENT.unpack(name)[1]
            try:
                entries = history_entries(tables, self._codec, name, value)
            except JournalCorruptError as error:
                why = error.__cause__ or error
                faults.append(Fault(event, f"the history from here on cannot be read: {why}", table=table))
                continue
            if entries[0].first_event != event:
                what = f"its key says event {event}, it begins with event {entries[0].first_event}"
                faults.append(Fault(event, what, table=table))
            found += entries
        return found

    def _logged(self, tables: Tables, key: int) -> list[tuple[int, Entry]]:
        first = tables.segments.first
        places = [place for place in unpacked(self._locations.get(key, ())) if place.sequence >= first]
        return list(zip((place.sequence for place in places), tables.read(places), strict=True))


def _get(tables: Tables, table: Table, key: int, unknown: set[Table]) -> bytes | None:
    try:
        return tables.get(table, NUMBER.pack(key))
    except JournalCorruptError:
        # The page is named once, not for each run on it.
        unknown.add(table)
        return None


def _merged(
    history: list[Entry], log: list[tuple[int, Entry]], through: int | None, faults: list[Fault]
) -> list[tuple[int, Entry]]:
    """All entries of a run, in order; what the log repeats stands in for what the histories have lost.

    Args:
        history: What the histories have.
        log: What the log has, with the commit records.
        through: Up to which commit record the histories should have it; None when that cannot be read.
        faults: Contradictions are added here.
    """
    # Not by the numbers of events: turns that only deliver have none.
    known = set(history)
    lost = False
    further = 0
    new: list[tuple[int, Entry]] = []
    for sequence, entry in log:
        if entry in known:
            further = sequence if through is not None and sequence > through else further
            continue
        lost |= through is not None and sequence <= through
        new.append((sequence, entry))
    if further:
        what = f"it says that the histories go to commit record {through}, they go to {further}"
        faults.append(Fault(0, what, table=Table.RUNS.value))
    entries = [(0, entry) for entry in history]
    if not lost:
        return entries + new
    if not any(fault.table == Table.HISTORIES.value for fault in faults):
        sequence, entry = new[0]
        faults.append(Fault(entry.first_event, "the histories have something else, or nothing", sequence))
    repeated = {entry for _, entry in log}
    merged = [(0, entry) for entry in history if entry not in repeated] + log
    return sorted(merged, key=lambda pair: pair[1].first_event)


def _purging(tables: Tables) -> list[int]:
    """Runs that are gone, but for histories that are still to be deleted."""
    try:
        return read_facts(tables).purging
    except JournalCorruptError:
        return []


def _last_key(tables: Tables, table: Table) -> int:
    row = next(tables.scan(table, reverse=True), None)
    return _number(row[0]) if row is not None else 0


def _number(key: bytes) -> int:
    """The run key that a key begins with; one that is cut short is taken as if zeros followed."""
    return int.from_bytes(key[: NUMBER.size].ljust(NUMBER.size, b"\0"), "big")
