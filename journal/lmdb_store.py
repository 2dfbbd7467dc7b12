"""The journal store in an LMDB environment: one directory, one writer process, readers anywhere.

Databases: ``log0`` and ``log1`` (8-byte big-endian sequence -> commit record; appends go to ``log0``) and
``meta`` (format version, journal id, writer epoch, current segment).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from mmap import PAGESIZE
from pathlib import Path
from typing import NoReturn

import lmdb

from .errors import (
    AppendRefusedError,
    CommitUnknownError,
    JournalAccessError,
    JournalClosedError,
    JournalCorruptError,
    JournalError,
)
from .fault_points import fault_point
from .lmdb_format import EPOCH_KEY, ID_KEY, NUMBER, open_error
from .lmdb_lock import Opened, registry_lock
from .lmdb_open import Durability, Options, attach_reader, attach_writer, open_environment
from .log_record import PlainRecord, encode_record, open_record
from .space import Space, measure
from .store import Entry, JournalStore, Location, Position

#: Address space reserved for the data file. It costs nothing until it is filled and must not grow in use.
MAP_SIZE = 64 << 30

#: A read transaction ends after so many records or bytes: one that lives long makes the file grow for ever.
CHUNK_RECORDS = 64
CHUNK_BYTES = 4 << 20

#: Decompressed records that ``read`` keeps, in bytes: runs that started together share records.
CACHE_BYTES = 8 << 20


class LmdbStore(JournalStore):
    """A journal in a directory.

    The writer holds the lock of the directory until ``close`` or the end of its process, and raises the
    writer epoch when it opens. Open it after any fork: a forked child that uses an inherited store gets
    ``JournalClosedError``, and the parent's store is not disturbed.

    Args:
        path: The directory; made, with its parents and a new journal in it, unless ``read_only``.
        map_size: Bytes of address space for the data file, and so its largest size; rounded down to whole pages.
            A file that is larger already does not grow.
        durability: ``"fsync"``: an append returns when it survives a power cut. ``"os"``: it survives the
            death of this process only; a crash of the machine may lose it or damage the journal.
        read_only: Take no lock and write nothing; the journal must exist. Shares the environment of a
            writer in this process; may be open while another process writes.

    Raises:
        JournalLockedError: Another process, or another store in this process, writes this journal.
        NotAJournalError: The path holds something else; nothing was changed there.
        JournalVersionError: The journal has another format version; nothing was changed.
        JournalAccessError: The directory cannot be created, read or written.
        JournalCorruptError: The data file was cut or is damaged; nothing was changed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        map_size: int = MAP_SIZE,
        durability: Durability = "fsync",
        read_only: bool = False,
    ) -> None:
        if durability not in {"fsync", "os"}:
            raise ValueError(f"durability is {durability!r}, not 'fsync' or 'os'")
        self.path = str(Path(path).absolute())
        self.read_only = read_only
        self._pid = os.getpid()
        self._options = Options(not read_only, map_size // PAGESIZE * PAGESIZE, durability)
        self._mutex = threading.Lock()
        self._closed = False
        self._failure: BaseException | None = None
        self._cache = _RecordCache()
        self._shared = (attach_reader if read_only else attach_writer)(self.path, self._options)
        try:
            with self._shared as opened, opened.env.begin() as txn:
                self._journal_id = txn.get(ID_KEY, b"", db=opened.meta).decode("ascii")
            if not read_only:
                self._position = self._take_over()
                fault_point("journal.open.after")
        except lmdb.Error as error:
            self.close()
            raise open_error(self.path, error) from error
        except BaseException:
            self.close()
            raise

    @property
    def journal_id(self) -> str:
        """Random id given when the journal was made; 32 hex digits."""
        return self._journal_id

    @property
    def position(self) -> Position:
        """This writer's epoch and next sequence; read-only: what the journal holds now.

        Raises:
            JournalClosedError: The store is closed or was inherited by a fork.
        """
        self._check_usable()
        if not self.read_only:
            return self._position
        with self._shared as opened, self._begin_read(opened) as txn:
            return _stored_position(txn, opened)

    def append(self, expected: Position, entries: Sequence[Entry]) -> Position:
        """Write one commit record; see ``JournalStore.append``.

        An exception before LMDB's commit is called leaves nothing written, one in it leaves it unknown. Both
        are reported as ``CommitUnknownError``: the caller does the same for both.

        Raises:
            AppendRefusedError: Epoch or sequence differ; nothing was written.
            JournalClosedError: The store is closed, or was inherited by a fork; nothing was written.
            CommitUnknownError: This or an earlier commit failed; ``reopen`` to go on.
            JournalError: The store is read-only; nothing was written.
            ValueError: An entry cannot be stored, or there is none; nothing was written.
        """
        self._check_usable()
        if self.read_only:
            raise JournalError(
                f"the journal {self.path!r} was opened read-only: open it for writing to append"
            )
        record = encode_record(entries)
        with self._mutex:
            self._check_usable()
            if self._failure is not None:
                raise CommitUnknownError(
                    f"an earlier commit to the journal {self.path!r} failed ({self._failure!r}): "
                    f"reopen the store before it accepts another append"
                ) from self._failure
            try:
                fault_point("journal.commit.before")
                self._commit(expected, record)
                fault_point("journal.commit.after")
            except AppendRefusedError:
                raise
            except BaseException as error:
                self._failure = error
                if not isinstance(error, Exception):
                    raise
                raise CommitUnknownError(
                    f"the commit of record {expected.sequence} to the journal {self.path!r} failed: {error!r}"
                ) from error
            self._position = Position(expected.epoch, expected.sequence + 1)
            return self._position

    def _commit(self, expected: Position, record: bytes) -> None:
        env, log, meta = self._shared.opened
        txn = env.begin(write=True)
        try:
            (epoch,) = NUMBER.unpack(txn.get(EPOCH_KEY, b"", db=meta))
            cursor = txn.cursor(db=log)
            sequence = _next_sequence(cursor)
            if expected != (epoch, sequence) or epoch != self._position.epoch:
                raise AppendRefusedError(  # noqa: TRY301  # decided inside the transaction
                    (expected.epoch, expected.sequence), (epoch, sequence)
                )
            if not cursor.put(NUMBER.pack(sequence), record, append=True):
                raise RuntimeError(f"LMDB skipped record {sequence}")  # noqa: TRY301  # aborts below
            fault_point("journal.commit.written")
            txn.commit()
        except BaseException:
            # After a failed commit the transaction is already gone, which abort may report.
            with suppress(Exception):
                txn.abort()
            raise

    def reopen(self) -> Position:
        """Begin a new writer incarnation; see ``JournalStore.reopen``.

        The environment is opened anew: after some failures LMDB refuses every further use of the old one.

        Raises:
            JournalClosedError: The store is closed, or was inherited by a fork.
            JournalAccessError: The journal cannot be opened or written; ``reopen`` may be tried again.
        """
        self._check_usable()
        if self.read_only:
            raise JournalError(
                f"the journal {self.path!r} was opened read-only: open it for writing to append"
            )
        with self._mutex:
            self._check_usable()
            with registry_lock():
                self._shared.replace(lambda: open_environment(self.path, self._options), self._options)
            self._cache.clear()
            try:
                self._position = self._take_over()
            except lmdb.Error as error:
                raise open_error(self.path, error) from error
            self._failure = None
            return self._position

    def _take_over(self) -> Position:
        opened = self._shared.opened
        with opened.env.begin(write=True) as txn:
            epoch, sequence = _stored_position(txn, opened)
            txn.put(EPOCH_KEY, NUMBER.pack(epoch + 1), db=opened.meta)
        return Position(epoch + 1, sequence)

    def scan(self, start: int = 0) -> Iterator[tuple[int, list[Entry]]]:
        """Yield the commit records that exist at the first step; see ``JournalStore.scan``."""
        following = max(start, 1)
        last = None
        while last is None or following <= last:
            self._check_usable()
            with self._shared as opened, self._begin_read(opened) as txn:
                if last is None:
                    last = _stored_position(txn, opened).sequence - 1
                rows = self._chunk(txn, opened, following, last)
            if not rows:
                break
            for key, record in rows:
                (sequence,) = NUMBER.unpack(key)
                if sequence != following and following > max(start, 1):
                    self._corrupt(following, "it is missing")
                yield sequence, self._open_record(sequence, record).entries()
                following = sequence + 1

    def _chunk(
        self, txn: lmdb.Transaction[bytes], opened: Opened, first: int, last: int
    ) -> list[tuple[bytes, bytes]]:
        rows: list[tuple[bytes, bytes]] = []
        size = 0
        try:
            cursor = txn.cursor(db=opened.log)
            more = cursor.set_range(NUMBER.pack(first))
            end = NUMBER.pack(last)
            while more and cursor.key() <= end and len(rows) < CHUNK_RECORDS and size < CHUNK_BYTES:
                rows.append(cursor.item())
                size += len(rows[-1][1])
                more = cursor.next()
        except lmdb.Error as error:
            self._corrupt(first, str(error))
        return rows

    def read(self, locations: Iterable[Location]) -> list[Entry]:
        """Return the entries at these locations; each record is read and decompressed once."""
        self._check_usable()
        wanted: dict[int, list[tuple[int, int]]] = {}
        count = 0
        for count, (sequence, index) in enumerate(locations, 1):
            wanted.setdefault(sequence, []).append((count - 1, index))
        found: dict[int, Entry] = {}
        sequences = sorted(wanted)
        for at in range(0, len(sequences), CHUNK_RECORDS):
            for sequence, record in self._records(sequences[at : at + CHUNK_RECORDS]):
                for place, index in wanted[sequence]:
                    try:
                        found[place] = record.entry(index)
                    except JournalCorruptError as error:
                        self._corrupt(sequence, str(error))
        return [found[place] for place in range(count)]

    def _records(self, sequences: Sequence[int]) -> Iterator[tuple[int, PlainRecord]]:
        stored: dict[int, bytes | None] = {}
        cached = {sequence: self._cache.get(sequence) for sequence in sequences}
        missing = [sequence for sequence in sequences if cached[sequence] is None]
        if missing:
            self._check_usable()
            with self._shared as opened, self._begin_read(opened) as txn:
                for sequence in missing:
                    try:
                        stored[sequence] = txn.get(NUMBER.pack(max(sequence, 0)), db=opened.log)
                    except lmdb.Error as error:
                        self._corrupt(sequence, str(error))
        for sequence in sequences:
            record = cached[sequence]
            if record is None:
                data = stored[sequence]
                if data is None:
                    self._corrupt(sequence, "it is missing")
                record = self._open_record(sequence, data)
                self._cache.put(sequence, record)
            yield sequence, record

    def space(self) -> Space:
        """How much room there is; see ``JournalStore.space``."""
        self._check_usable()
        try:
            with self._shared as opened, self._begin_read(opened) as txn:
                return measure(self.path, opened.env, txn, opened.databases)
        except (lmdb.Error, OSError) as error:
            raise JournalAccessError(
                f"the room of the journal {self.path!r} cannot be looked at: {error}"
            ) from error

    def _begin_read(self, opened: Opened) -> lmdb.Transaction[bytes]:
        try:
            return opened.env.begin()
        except lmdb.ReadersFullError:
            opened.env.reader_check()
            try:
                return opened.env.begin()
            except lmdb.Error as error:
                raise JournalAccessError(
                    f"the journal {self.path!r} has too many readers: {error}"
                ) from error

    def _open_record(self, sequence: int, data: bytes) -> PlainRecord:
        try:
            return open_record(data)
        except JournalCorruptError as error:
            raise self._corrupt_error(sequence, str(error)) from error

    def _corrupt_error(self, sequence: int, reason: str) -> JournalCorruptError:
        return JournalCorruptError(
            f"commit record {sequence} of the journal {self.path!r} cannot be read: {reason}"
        )

    def _corrupt(self, sequence: int, reason: str) -> NoReturn:
        raise self._corrupt_error(sequence, reason)

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise JournalClosedError(
                f"the journal {self.path!r} was opened in process {self._pid}, "
                f"this is process {os.getpid()}: open the journal after the fork"
            )
        if self._closed:
            raise JournalClosedError(f"the journal {self.path!r} is closed: open it again")

    def close(self) -> None:
        """Release the store and its lock; waits for a running append. Safe to call twice, and in a child."""
        if os.getpid() != self._pid:
            return
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            with registry_lock():
                lock = None
                if not self.read_only:
                    lock, self._shared.writer = self._shared.writer, None
                # The environment first: another process must not begin while this one could still write.
                self._shared.release()
                if lock is not None:
                    lock.release()
            self._cache.clear()


class _RecordCache:
    """The newest used decompressed records, from any thread."""

    def __init__(self) -> None:
        self._records: OrderedDict[int, PlainRecord] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, sequence: int) -> PlainRecord | None:
        with self._lock:
            record = self._records.get(sequence)
            if record is not None:
                self._records.move_to_end(sequence)
            return record

    def put(self, sequence: int, record: PlainRecord) -> None:
        with self._lock:
            if sequence not in self._records:
                self._records[sequence] = record
                self._size += _footprint(record)
            while self._size > CACHE_BYTES:
                self._size -= _footprint(self._records.popitem(last=False)[1])

    def clear(self) -> None:
        with self._lock:
            self._records.clear()
            self._size = 0


def _footprint(record: PlainRecord) -> int:
    # Five numbers an entry, an int object and a slot in the tuple each.
    return len(record.plain) + record.size * 5 * 40


def _stored_position(txn: lmdb.Transaction[bytes], opened: Opened) -> Position:
    (epoch,) = NUMBER.unpack(txn.get(EPOCH_KEY, b"", db=opened.meta))
    return Position(epoch, _next_sequence(txn.cursor(db=opened.log)))


def _next_sequence(cursor: lmdb.Cursor[bytes]) -> int:
    """Move to the last record; the number after it, or 1 in an empty log."""
    last: int = NUMBER.unpack(cursor.key())[0] if cursor.last() else 0
    return last + 1
