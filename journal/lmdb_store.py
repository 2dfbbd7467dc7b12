"""The journal store in an LMDB environment: one directory, one writer process, readers anywhere.

Databases: ``log0`` and ``log1`` (8-byte big-endian sequence -> commit record, used in turn), one for each table, and
``meta`` (format version, journal id, writer epoch, segments).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from mmap import PAGESIZE
from pathlib import Path
from types import TracebackType

import lmdb

from .disk_failure import DataFile
from .disk_trouble import why_failed
from .errors import (
    AppendRefusedError,
    CommitUnknownError,
    JournalAccessError,
    JournalClosedError,
    JournalDiskError,
    JournalError,
)
from .fault_points import fault_point
from .lmdb_format import EPOCH_KEY, ID_KEY, check_path, open_error
from .lmdb_lock import Opened
from .lmdb_open import Durability, Options, attach_reader, attach_writer, open_environment
from .lmdb_tables import LmdbChanges, LmdbTables, RecordCache, Touched, corrupt, opened_record
from .log_record import encode_record
from .reader_table import ReaderWatch
from .space import Space, measure
from .store import Entry, JournalStore, Location, Position, Tables, Work
from .swap import files_of, openers
from .tables import NUMBER, Table

#: Address space reserved for the data file. It costs nothing until it is filled and must not grow in use.
MAP_SIZE = 64 << 30

#: A read transaction ends after so many records or bytes: one that lives long makes the file grow for ever.
CHUNK_RECORDS = 64
CHUNK_ROWS = 512
CHUNK_BYTES = 4 << 20


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
        ValueError: The path cannot be one.
        JournalLockedError: Another process, or another store in this process, writes this journal.
        NotAJournalError: The path holds something else; nothing was changed there.
        JournalVersionError: The journal has another format version; nothing was changed.
        JournalAccessError: The directory cannot be created, read or written.
        JournalCorruptError: The data file was cut or is damaged; nothing was changed.
        JournalDiskError: The first commit could not be synced.
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
        self.path = self.directory = check_path(str(Path(path).absolute()))
        self.read_only = read_only
        self._pid = os.getpid()
        self._options = Options(not read_only, map_size // PAGESIZE * PAGESIZE, durability)
        self._mutex = threading.Lock()
        self._closed = False
        self._failure: BaseException | None = None
        self._data_file: DataFile | None = None
        self._readers = ReaderWatch(self.path)
        self._touched: Touched | None = None
        self._cache = RecordCache()
        self._shared = (attach_reader if read_only else attach_writer)(self.path, self._options)
        try:
            with self._shared as opened, opened.env.begin() as txn:
                self._journal_id = txn.get(ID_KEY, b"", db=opened.meta).decode("ascii")
            if not read_only:
                self._open_data_file()
                self._position = self._take_over()
                assert self._shared.writer is not None
                self._shared.writer.state_owner(self._journal_id)
                fault_point("journal.open.after")
        except (lmdb.Error, OSError) as error:
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
        with self._tables() as tables:
            return tables.position

    def append(self, expected: Position, entries: Sequence[Entry], work: Work | None = None) -> Position:
        """Write one commit record; see ``JournalStore.append``.

        An exception before LMDB's commit is called leaves nothing written, one in it leaves it unknown. Both
        are reported as ``CommitUnknownError``: the caller does the same for both.

        Raises:
            AppendRefusedError: Epoch or sequence differ; nothing was written.
            JournalClosedError: The store is closed, or was inherited by a fork; nothing was written.
            CommitUnknownError: This or an earlier commit failed; ``reopen`` to go on.
            JournalDiskError: The disk failed in this or an earlier commit; this store is of no more use.
            JournalError: The store is read-only; nothing was written.
            ValueError: An entry cannot be stored, or there is none; nothing was written.
        """
        record = encode_record(entries) if entries or work is None else b""
        with self._mutex:
            self._check_usable()
            if self.read_only:
                raise JournalError(
                    f"the journal {self.path!r} was opened read-only: open it for writing to append"
                )
            if self._failure is not None:
                raise CommitUnknownError(
                    f"an earlier commit to the journal {self.path!r} failed ({self._failure!r}): "
                    f"reopen the store before it accepts another append"
                ) from self._failure
            try:
                fault_point("journal.commit.before", self)
                self._commit(expected, record, work)
                fault_point("journal.commit.after", self)
            except (AppendRefusedError, JournalDiskError):
                raise
            except BaseException as error:
                self._failure = error
                if not isinstance(error, Exception):
                    raise
                raise CommitUnknownError(
                    f"the commit of record {expected.sequence} to the journal {self.path!r} failed: {error!r}"
                    f"{why_failed(self.path, error)}"
                ) from error
            self._position = Position(expected.epoch, expected.sequence + bool(record))
            self._readers.look(self._shared.opened.env)
            return self._position

    def _commit(self, expected: Position, record: bytes, work: Work | None) -> None:
        opened = self._shared.opened
        txn = opened.env.begin(write=True)
        try:
            changes = LmdbChanges(self.path, opened, txn, self._cache, self._touched)
            epoch, sequence = changes.position
            if expected != (epoch, sequence) or epoch != self._position.epoch:
                raise AppendRefusedError(  # noqa: TRY301  # decided inside the transaction
                    (expected.epoch, expected.sequence), (epoch, sequence)
                )
            if record:
                changes.add(sequence, record)
            if work is not None:
                work(changes)
            fault_point("journal.commit.written", self)
            self._sync(txn)
        except BaseException:
            # After a failed commit the transaction is already gone, which abort may report.
            with suppress(Exception):
                txn.abort()
            raise

    def _sync(self, txn: lmdb.Transaction[bytes]) -> None:
        """Commit; when the disk may have failed to sync, shut the journal for this process."""
        try:
            txn.commit()
        except lmdb.Error as error:
            if self._data_file is None:  # nothing is synced
                raise
            reason = self._data_file.sync_failure(error)
            if not reason:
                raise
            failure = JournalDiskError(self.path, reason)
            failure.__cause__ = error
            self._shared.fail(failure)
            self._data_file.drop_cache()
            raise failure from error

    def reopen(self) -> Position:
        """Begin a new writer incarnation; see ``JournalStore.reopen``.

        The environment is opened anew: after some failures LMDB refuses every further use of the old one.

        Raises:
            JournalClosedError: The store is closed, or was inherited by a fork.
            JournalAccessError: The journal cannot be opened or written; ``reopen`` may be tried again.
            JournalDiskError: The disk failed, now or in an earlier commit.
        """
        self._check_usable()
        if self.read_only:
            raise JournalError(
                f"the journal {self.path!r} was opened read-only: open it for writing to append"
            )
        with self._mutex:
            self._check_usable()
            try:
                self._open_again()
                self._cache.clear()
                self._position = self._take_over()
            except (lmdb.Error, OSError) as error:
                raise open_error(self.path, error) from error
            self._failure = None
            return self._position

    def _open_again(self) -> None:
        self._close_data_file()
        self._shared.replace(lambda: open_environment(self.path, self._options), self._options)
        self._open_data_file()

    def _follow(self) -> None:
        """Open the journal anew when its writer, in another process, has put another data file in its place."""
        if self._shared.writer is None and files_of(self.path) != self._shared.opened.files:
            with openers(self.path):
                self._open_again()

    def _take_over(self) -> Position:
        opened = self._shared.opened
        with opened.env.begin(write=True) as txn:
            epoch, sequence = LmdbTables(self.path, opened, txn, self._cache).position
            txn.put(EPOCH_KEY, NUMBER.pack(epoch + 1), db=opened.meta)
            self._sync(txn)
        return Position(epoch + 1, sequence)

    def _open_data_file(self) -> None:
        if not self.read_only and self._options.durability == "fsync":
            self._data_file = DataFile(self.path)

    def _close_data_file(self) -> None:
        if self._data_file is not None:
            self._data_file.close()
            self._data_file = None

    def scan(self, start: int = 0) -> Iterator[tuple[int, list[Entry]]]:
        """Yield the commit records that exist at the first step; see ``JournalStore.scan``."""
        self._check_usable()
        following = max(start, 1)
        last = None
        while last is None or following <= last:
            self._check_usable()
            with self._tables() as tables:
                if last is None:
                    last = tables.position.sequence - 1
                following = max(following, tables.segments.first)  # what is older is in the tables
                rows = self._chunk(tables, following, last)
            if not rows:
                if following <= last:
                    raise corrupt(self.path, following, "it is missing")
                break
            for key, record in rows:
                (sequence,) = NUMBER.unpack(key)
                if sequence != following:
                    raise corrupt(self.path, following, "it is missing")
                yield sequence, opened_record(self.path, sequence, record).entries()
                following = sequence + 1

    def _chunk(self, tables: LmdbTables, first: int, last: int) -> list[tuple[bytes, bytes]]:
        """Records from ``first`` on, all of one segment, as they are stored."""
        rows: list[tuple[bytes, bytes]] = []
        size = 0
        for row in tables.log_rows(first, last):
            rows.append(row)
            size += len(row[1])
            if len(rows) >= CHUNK_RECORDS or size >= CHUNK_BYTES:
                break
        return rows

    def read(self, locations: Iterable[Location]) -> list[Entry]:
        """Return the entries at these locations; see ``JournalStore.read``."""
        self._check_usable()
        with self._tables() as tables:
            return tables.read(locations)

    def view(self) -> AbstractContextManager[Tables]:
        """The tables at this moment; see ``JournalStore.view``."""
        self._check_usable()
        return self._tables()

    def rows(
        self, table: Table, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield a table's rows; see ``JournalStore.rows``."""
        while True:
            self._check_usable()
            rows: list[tuple[bytes, bytes]] = []
            size = 0
            with self._tables() as tables:
                for row in tables.scan(table, start, stop, reverse=reverse):
                    rows.append(row)
                    size += len(row[1])
                    if len(rows) >= CHUNK_ROWS or size >= CHUNK_BYTES:
                        break
            yield from rows
            if len(rows) < CHUNK_ROWS and size < CHUNK_BYTES:
                return
            if reverse:
                stop = rows[-1][0]
            else:
                start = rows[-1][0] + b"\0"

    def _tables(self) -> AbstractContextManager[LmdbTables]:
        return _View(self)

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

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise JournalClosedError(
                f"the journal {self.path!r} was opened in process {self._pid}, "
                f"this is process {os.getpid()}: open the journal after the fork"
            )
        if self._closed:
            raise JournalClosedError(f"the journal {self.path!r} is closed: open it again")
        self._shared.check_disk()

    def close(self) -> None:
        """Release the store and its lock; waits for a running append. Safe to call twice, and in a child."""
        if os.getpid() != self._pid:
            return
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            self._close_data_file()
            self._shared.release(writer=not self.read_only)
            self._cache.clear()


class _View(AbstractContextManager[LmdbTables]):
    """A read transaction. A class: each start of a run has one, and a generator costs as much as all else in it."""

    __slots__ = ("_store", "_txn")

    def __init__(self, store: LmdbStore) -> None:
        self._store = store

    def __enter__(self) -> LmdbTables:
        store = self._store
        if store.read_only:
            store._follow()
        opened = store._shared.__enter__()
        try:
            self._txn = store._begin_read(opened)
        except BaseException:
            store._shared.__exit__(None, None, None)
            raise
        return LmdbTables(store.path, opened, self._txn, store._cache)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._txn.abort()
        finally:
            self._store._shared.__exit__(kind, error, trace)
