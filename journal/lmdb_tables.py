"""Log and tables of an LMDB environment inside one transaction."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

import lmdb

from .errors import JournalCorruptError
from .lmdb_format import EPOCH_KEY, SEGMENT_KEY, SEGMENTS
from .lmdb_lock import Opened
from .log_record import PlainRecord, open_record
from .store import Changes, Entry, Location, Position, Segments, Tables
from .tables import NUMBER, Table

#: Decompressed records that are kept, in bytes: runs that started together share records.
CACHE_BYTES = 8 << 20
#: Records that one read keeps at hand beside the cache, which is shared by threads.
NEAR = 64

#: What LMDB says of pages that are not what they should be.
DAMAGE = (lmdb.CorruptedError, lmdb.PageNotFoundError)


class RecordCache:
    """The newest used decompressed commit records, from any thread."""

    def __init__(self) -> None:
        self._records: OrderedDict[int, PlainRecord] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, sequence: int) -> PlainRecord | None:
        """A record, if it is here."""
        with self._lock:
            record = self._records.get(sequence)
            if record is not None:
                self._records.move_to_end(sequence)
            return record

    def put(self, sequence: int, record: PlainRecord) -> None:
        """Keep a record; the ones that were not used for longest go."""
        with self._lock:
            if sequence not in self._records:
                self._records[sequence] = record
                self._size += _footprint(record)
            while self._size > CACHE_BYTES:
                self._size -= _footprint(self._records.popitem(last=False)[1])

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._records.clear()
            self._size = 0


def _footprint(record: PlainRecord) -> int:
    # Five numbers an entry, an int object and a slot in the tuple each.
    return len(record.plain) + record.size * 5 * 40


class LmdbTables(Tables):
    """What a transaction sees.

    Args:
        path: The journal's directory, for messages.
        opened: The environment.
        txn: The transaction.
        cache: Decompressed records of this journal.
    """

    def __init__(self, path: str, opened: Opened, txn: lmdb.Transaction[bytes], cache: RecordCache) -> None:
        self._path = path
        self._opened = opened
        self._txn = txn
        self._cache = cache
        self._known: tuple[int, Segments] | None = None
        self._own = 0  # the record of this very transaction: nobody else may find it in the cache

    @property
    def segments(self) -> Segments:
        """The segments of the log."""
        return self._layout()[1]

    def _layout(self) -> tuple[int, Segments]:
        """Which log is appended to, and the segments; read when it is first asked for."""
        known = self._known
        if known is None:
            current, sealed, first = SEGMENTS.unpack(self._txn.get(SEGMENT_KEY, b"", db=self._opened.meta))
            known = self._known = current, Segments(sealed, first)
        return known

    @property
    def position(self) -> Position:
        """Epoch of the newest writer, and sequence of the next record."""
        (epoch,) = NUMBER.unpack(self._txn.get(EPOCH_KEY, b"", db=self._opened.meta))
        current, segments = self._layout()
        cursor = self._txn.cursor(db=self._opened.logs[current])
        if not cursor.last():
            return Position(epoch, segments.current)
        return Position(epoch, NUMBER.unpack(cursor.key())[0] + 1)

    def log_rows(self, first: int, last: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the records from ``first`` to ``last`` that are in the segment of the first, as they are stored."""
        try:
            cursor = self._txn.cursor(db=self._opened.logs[self._log(first)])
            end = NUMBER.pack(last)
            for key, record in cursor.iternext() if cursor.set_range(NUMBER.pack(first)) else ():
                if key > end:
                    return
                yield key, record
        except lmdb.Error as error:
            raise corrupt(self._path, first, str(error)) from error

    def _log(self, sequence: int) -> int:
        """Number of the segment that holds, or would hold, this record."""
        current, segments = self._layout()
        return current ^ (sequence < segments.current)

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The value of a key; see ``Tables.get``."""
        try:
            return self._txn.get(key, db=self._opened.tables[table])
        except lmdb.Error as error:
            raise self._damaged(table, error) from error

    def scan(
        self, table: Table, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows of a table; see ``Tables.scan``."""
        try:
            cursor = self._txn.cursor(db=self._opened.tables[table])
            if reverse:
                # To the last key below stop.
                found = cursor.prev() if stop is not None and cursor.set_range(stop) else cursor.last()
                for key, value in cursor.iterprev() if found else ():
                    if key < start:
                        return
                    yield key, value
                return
            found = cursor.set_range(start) if start else cursor.first()
            for key, value in cursor.iternext() if found else ():
                if stop is not None and key >= stop:
                    return
                yield key, value
        except lmdb.Error as error:
            raise self._damaged(table, error) from error

    def last(self, table: Table, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        """The last row of a range; see ``Tables.last``."""
        try:
            cursor = self._txn.cursor(db=self._opened.tables[table])
            found = cursor.prev() if cursor.set_range(stop) else cursor.last()
            row = cursor.item() if found else None
        except lmdb.Error as error:
            raise self._damaged(table, error) from error
        return row if row is not None and row[0] >= start else None

    def count(self, table: Table) -> int:
        """How many rows a table has."""
        rows: int = self._txn.stat(self._opened.tables[table])["entries"]
        return rows

    def read(self, locations: Iterable[Location]) -> list[Entry]:
        """Return entries of the log; runs that are neighbours share records."""
        found: list[Entry] = []
        near: dict[int, PlainRecord] = {}
        for sequence, index in locations:
            record = near.get(sequence)
            if record is None:
                if len(near) == NEAR:
                    near.clear()
                record = near[sequence] = self.record(sequence)
            try:
                found.append(record.entry(index))
            except JournalCorruptError as error:
                raise corrupt(self._path, sequence, str(error)) from error
        return found

    def record(self, sequence: int) -> PlainRecord:
        """One commit record of the log.

        Raises:
            JournalCorruptError: It is missing or cannot be read.
        """
        # What was dropped may still be in the cache.
        if sequence < self.segments.first:
            raise corrupt(self._path, sequence, "it is missing")
        record = self._cache.get(sequence)
        if record is None:
            data = self._stored_record(sequence)
            if data is None:
                raise corrupt(self._path, sequence, "it is missing")
            record = opened_record(self._path, sequence, data)
            if sequence != self._own:
                self._cache.put(sequence, record)
        return record

    def _stored_record(self, sequence: int) -> bytes | None:
        try:
            return self._txn.get(NUMBER.pack(sequence), db=self._opened.logs[self._log(sequence)])
        except lmdb.Error as error:
            raise corrupt(self._path, sequence, str(error)) from error

    def _damaged(self, table: Table, error: Exception) -> JournalCorruptError:
        return JournalCorruptError(
            f"the table {table.value!r} of the journal {self._path!r} cannot be read: {error}"
        )


class Touched:
    """What commits have changed beside the log since it was begun; for a rewrite, which copies in pieces meanwhile.

    Attributes:
        keys: Rows that were set or deleted, by table; they may have been so already when they were copied.
        is_moved: A segment was sealed or dropped, or a table cleared: what was copied is of no use.
    """

    def __init__(self) -> None:
        self.keys: dict[Table, set[bytes]] = {}
        self.is_moved = False

    def note(self, table: Table, keys: Iterable[bytes]) -> None:
        """Rows were set or deleted."""
        self.keys.setdefault(table, set()).update(keys)

    def take(self) -> dict[Table, set[bytes]]:
        """What was noted since the last time; no commit may be under way."""
        keys, self.keys = self.keys, {}
        return keys


class LmdbChanges(LmdbTables, Changes):
    """What a write transaction may do.

    Args:
        path: As for ``LmdbTables``, like the following ones.
        opened: The environment.
        txn: The transaction.
        cache: Decompressed records.
        touched: Told of every change, if there is one.
    """

    def __init__(
        self,
        path: str,
        opened: Opened,
        txn: lmdb.Transaction[bytes],
        cache: RecordCache,
        touched: Touched | None,
    ) -> None:
        super().__init__(path, opened, txn, cache)
        self._touched = touched

    def add(self, sequence: int, record: bytes) -> None:
        """Append a commit record."""
        cursor = self._txn.cursor(db=self._opened.logs[self._layout()[0]])
        if not cursor.put(NUMBER.pack(sequence), record, append=True):
            raise RuntimeError(f"LMDB skipped record {sequence}")
        self._own = sequence

    def put(self, table: Table, items: Sequence[tuple[bytes, bytes]]) -> None:
        """Set values; see ``Changes.put``."""
        if items:
            if self._touched is not None:
                self._touched.note(table, [key for key, _value in items])
            try:
                consumed, _added = self._txn.cursor(db=self._opened.tables[table]).putmulti(items)
            except DAMAGE as error:
                raise self._damaged(table, error) from error
            if consumed != len(items):
                raise RuntimeError(f"LMDB took {consumed} of {len(items)} rows for the table {table.value!r}")

    def delete(self, table: Table, keys: Iterable[bytes]) -> None:
        """Take keys out; see ``Changes.delete``."""
        db = self._opened.tables[table]
        try:
            for key in keys:
                if self._touched is not None:
                    self._touched.note(table, [key])
                self._txn.delete(key, db=db)
        except DAMAGE as error:
            raise self._damaged(table, error) from error

    def remove(self, table: Table, start: bytes, stop: bytes, limit: int) -> int:
        """Take out the first rows of a range; see ``Changes.remove``. Their values are not read."""
        try:
            cursor = self._txn.cursor(db=self._opened.tables[table])
            cursor.set_range(start)
            removed = 0
            while removed < limit and start <= cursor.key() < stop:  # behind the last row the key is empty
                if self._touched is not None:
                    self._touched.note(table, [cursor.key()])
                cursor.delete()  # and on to the next one
                removed += 1
        except DAMAGE as error:
            raise self._damaged(table, error) from error
        return removed

    def clear(self, table: Table) -> None:
        """Take everything out; see ``Changes.clear``."""
        if self._touched is not None:
            self._touched.is_moved = True
        self._txn.drop(self._opened.tables[table], delete=False)

    def seal(self) -> None:
        """Use the other segment from the next append on; see ``Changes.seal``."""
        current, segments = self._layout()
        if segments.sealed:
            raise RuntimeError("there is a sealed segment already")
        self._set_segments(current ^ 1, Segments(segments.current, self.position.sequence))

    def drop_sealed(self) -> None:
        """Drop the sealed segment; see ``Changes.drop_sealed``."""
        current, segments = self._layout()
        self._txn.drop(self._opened.logs[current ^ 1], delete=False)
        self._set_segments(current, Segments(0, segments.current))

    def _set_segments(self, current: int, segments: Segments) -> None:
        if self._touched is not None:
            self._touched.is_moved = True
        self._txn.put(SEGMENT_KEY, SEGMENTS.pack(current, *segments), db=self._opened.meta)
        self._known = current, segments


def opened_record(path: str, sequence: int, data: bytes) -> PlainRecord:
    """Decompress a commit record.

    Raises:
        JournalCorruptError: It cannot be read; names its sequence.
    """
    try:
        return open_record(data)
    except JournalCorruptError as error:
        raise corrupt(path, sequence, str(error)) from error


def corrupt(path: str, sequence: int, reason: str) -> JournalCorruptError:
    """The error for a commit record that is damaged or missing."""
    return JournalCorruptError(f"commit record {sequence} of the journal {path!r} cannot be read: {reason}")
