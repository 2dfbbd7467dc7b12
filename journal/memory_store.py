"""A journal store in memory, for tests and for runs that need not survive the process."""

from __future__ import annotations

import errno
import os
import threading
import uuid
from bisect import bisect_left, insort
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

from .errors import AppendRefusedError, CommitUnknownError, JournalClosedError, JournalCorruptError
from .fault_points import fault_point
from .log_record import PlainRecord, encode_record, open_record
from .space import UNLIMITED, Space
from .store import Changes, Entry, JournalStore, Location, Position, Segments, Tables, Work
from .tables import Table


class _Map:
    """One table: a dict, and its keys in order."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []

    def copy(self) -> _Map:
        other = _Map()
        other.values = dict(self.values)
        other.keys = list(self.keys)
        return other

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.values:
            if not self.keys or key > self.keys[-1]:
                self.keys.append(key)
            else:
                insort(self.keys, key)
        self.values[key] = value

    def delete(self, key: bytes) -> None:
        if self.values.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]


class _State:
    """Log and tables at one moment; a commit changes a copy of what it touches and then takes its place."""

    def __init__(self) -> None:
        self.segments = Segments(0, 1)
        self.following = 1
        self.records: dict[int, bytes] = {}
        self.tables: dict[Table, _Map] = {}

    def copy(self) -> _State:
        other = _State()
        other.segments = self.segments
        other.following = self.following
        other.records = self.records  # a record never changes, and one that is not committed is taken back
        other.tables = dict(self.tables)
        return other


class MemoryJournal:
    """What stays when a ``MemoryStore`` is closed: give it to the next one to "open the journal again".

    Attributes:
        journal_id: Random id, 32 hex digits.
        epoch: Epoch of the newest writer.
        state: Log and tables.
        limit: Bytes that log and tables may have; an append that does not fit fails.
        lock: Held while an append or a takeover changes the others.
    """

    def __init__(self) -> None:
        self.journal_id = uuid.uuid4().hex
        self.epoch = 0
        # Records are kept encoded, so that every store refuses and keeps exactly the same.
        self.state = _State()
        self.limit = UNLIMITED
        self.lock = threading.Lock()

    @property
    def records(self) -> list[bytes]:
        """The commit records that the log holds, encoded, in order."""
        return list(self.state.records.values())


class _Snapshot(Tables):
    def __init__(self, state: _State) -> None:
        self._state = state

    @property
    def segments(self) -> Segments:
        return self._state.segments

    def get(self, table: Table, key: bytes) -> bytes | None:
        found = self._state.tables.get(table)
        return None if found is None else found.values.get(key)

    def scan(
        self, table: Table, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        found = self._state.tables.get(table)
        if found is None:
            return
        low = bisect_left(found.keys, start)
        high = len(found.keys) if stop is None else bisect_left(found.keys, stop)
        keys = found.keys[low:high]
        for key in reversed(keys) if reverse else keys:
            value = found.values.get(key)
            if value is not None:
                yield key, value

    def last(self, table: Table, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        return next(self.scan(table, start, stop, reverse=True), None)

    def count(self, table: Table) -> int:
        found = self._state.tables.get(table)
        return 0 if found is None else len(found.values)

    def read(self, locations: Iterable[Location]) -> list[Entry]:
        opened: dict[int, PlainRecord] = {}
        found = []
        for sequence, index in locations:
            # The records are shared with newer states.
            if sequence not in self._state.records or sequence >= self._state.following:
                raise JournalCorruptError(f"commit record {sequence} of the journal in memory is missing")
            try:
                if sequence not in opened:
                    opened[sequence] = open_record(self._state.records[sequence])
                found.append(opened[sequence].entry(index))
            except JournalCorruptError as error:
                raise _corrupt(sequence, error) from error
        return found


class _Changes(_Snapshot, Changes):
    def __init__(self, state: _State) -> None:
        super().__init__(state)
        self._own: set[Table] = set()

    def _map(self, table: Table) -> _Map:
        tables = self._state.tables
        if table not in self._own:
            before = tables.get(table)
            tables[table] = before.copy() if before is not None else _Map()
            self._own.add(table)
        return tables[table]

    def put(self, table: Table, items: Sequence[tuple[bytes, bytes]]) -> None:
        found = self._map(table)
        for key, value in items:
            found.put(key, value)

    def delete(self, table: Table, keys: Iterable[bytes]) -> None:
        found = self._map(table)
        for key in keys:
            found.delete(key)

    def remove(self, table: Table, start: bytes, stop: bytes, limit: int) -> int:
        found = self._map(table)
        low = bisect_left(found.keys, start)
        keys = found.keys[low : min(low + limit, bisect_left(found.keys, stop))]
        for key in keys:
            found.delete(key)
        return len(keys)

    def clear(self, table: Table) -> None:
        self._own.add(table)
        self._state.tables[table] = _Map()

    def seal(self) -> None:
        if self._state.segments.sealed:
            raise RuntimeError("there is a sealed segment already")
        self._state.segments = Segments(self._state.segments.current, self._state.following)

    def drop_sealed(self) -> None:
        state = self._state
        first = state.segments.current
        state.segments = Segments(0, first)
        state.records = {n: record for n, record in state.records.items() if n >= first}


class MemoryStore(JournalStore):
    """A store whose journal is an object of this process.

    Several may be open on one ``MemoryJournal``: the newest is its writer, the others' appends are refused.

    Args:
        backing: The journal to open; a new one by default.
    """

    def __init__(self, backing: MemoryJournal | None = None) -> None:
        self.backing = MemoryJournal() if backing is None else backing
        self._closed = False
        self._failure: BaseException | None = None
        self._position = self._take_over()

    @property
    def journal_id(self) -> str:
        """Random id given when the journal was made; 32 hex digits."""
        return self.backing.journal_id

    @property
    def position(self) -> Position:
        """This writer's epoch and the sequence that the next append will get.

        Raises:
            JournalClosedError: The store is closed.
        """
        self._check_open()
        return self._position

    def append(self, expected: Position, entries: Sequence[Entry], work: Work | None = None) -> Position:
        """Add one commit record; see ``JournalStore.append`` for what is raised."""
        self._check_open()
        if self._failure is not None:
            raise CommitUnknownError(
                "an earlier commit failed: reopen the store before it accepts another append"
            ) from self._failure
        record = encode_record(entries) if entries or work is None else b""
        journal = self.backing
        with journal.lock:
            actual = Position(journal.epoch, journal.state.following)
            if expected != actual or self._position.epoch != actual.epoch:
                raise AppendRefusedError((expected.epoch, expected.sequence), (actual.epoch, actual.sequence))
            try:
                fault_point("journal.commit.before", self)
                if journal.limit < UNLIMITED and len(record) > self.space().room:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301  # as a full disk does
                self._commit(record, work)
                fault_point("journal.commit.after", self)
            except BaseException as error:
                self._failure = error
                if not isinstance(error, Exception):
                    raise
                raise CommitUnknownError(
                    f"the commit of record {actual.sequence} failed: {error!r}"
                ) from error
            self._position = Position(actual.epoch, journal.state.following)
            return self._position

    def _commit(self, record: bytes, work: Work | None) -> None:
        state = self.backing.state.copy()
        sequence = state.following
        try:
            if record:
                state.records[sequence] = record
                state.following += 1
            if work is not None:
                work(_Changes(state))
            fault_point("journal.commit.written", self)
        except BaseException:
            self.backing.state.records.pop(sequence, None)
            raise
        self.backing.state = state

    def reopen(self) -> Position:
        """Begin a new writer incarnation; see ``JournalStore.reopen``."""
        self._check_open()
        self._position = self._take_over()
        self._failure = None
        return self._position

    @contextmanager
    def view(self) -> Generator[Tables]:
        """The tables at this moment."""
        self._check_open()
        yield _Snapshot(self.backing.state)

    def rows(
        self, table: Table, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield a table's rows; see ``JournalStore.rows``."""
        self._check_open()
        for row in _Snapshot(self.backing.state).scan(table, start, stop, reverse=reverse):
            self._check_open()
            yield row

    def scan(self, start: int = 0) -> Iterator[tuple[int, list[Entry]]]:
        """Yield the commit records that exist at the first step; see ``JournalStore.scan``."""
        self._check_open()
        state = self.backing.state
        records = state.records
        for sequence in range(max(start, state.segments.first), state.following):
            self._check_open()
            if sequence not in records:
                raise JournalCorruptError(f"commit record {sequence} of the journal in memory is missing")
            try:
                entries = open_record(records[sequence]).entries()
            except JournalCorruptError as error:
                raise _corrupt(sequence, error) from error
            yield sequence, entries

    def read(self, locations: Iterable[Location]) -> list[Entry]:
        """Return the entries at these locations; see ``JournalStore.read``."""
        self._check_open()
        return _Snapshot(self.backing.state).read(locations)

    def space(self) -> Space:
        """How much room there is; see ``JournalStore.space``."""
        self._check_open()
        state = self.backing.state
        size = sum(map(len, state.records.values()))
        for table in state.tables.values():
            size += sum(len(key) + len(value) for key, value in table.values.items())
        return Space(size, size, self.backing.limit)

    def close(self) -> None:
        """Release the store; the backing journal stays. Safe to call twice."""
        self._closed = True

    def _take_over(self) -> Position:
        with self.backing.lock:
            self.backing.epoch += 1
            return Position(self.backing.epoch, self.backing.state.following)

    def _check_open(self) -> None:
        if self._closed:
            raise JournalClosedError("the journal in memory is closed")


def _corrupt(sequence: int, error: JournalCorruptError) -> JournalCorruptError:
    return JournalCorruptError(f"commit record {sequence} of the journal in memory cannot be read: {error}")
