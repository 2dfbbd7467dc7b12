"""Giving the room of free pages back to the disk: the data file is written anew, while commits go on.

What the journal holds is copied in pieces, each read in a transaction of its own, into a new environment beside it.
Commits go on and say what they change, so that it can be copied again. When little is left, commits wait for the rest
of it and for the swap of the files: some milliseconds.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import lmdb

from .errors import JournalAccessError, JournalError
from .fault_points import fault_point
from .lmdb_format import DATA_FILE, MAX_DATABASES, open_databases, sync_directory
from .lmdb_lock import Opened
from .lmdb_store import LmdbStore
from .lmdb_tables import Touched
from .salvage import Progress
from .swap import WORKPLACE, make_ready, no_openers, withdraw
from .tables import Table

#: A piece of the copy ends after so many rows or bytes: others want to go on meanwhile.
PIECE_ROWS = 64
PIECE_BYTES = 128 << 10
BLOB_ROWS = 4
#: The copy is synced each time so many bytes were written: commits, which sync too, wait for what is being synced.
SYNC_BYTES = 1 << 20
#: With fewer rows than this left, commits wait for them.
FEW_ROWS = 64
#: Rounds of catching up, and beginnings, before it is given up.
ROUNDS = 20
ATTEMPTS = 3
#: Room that must be there beside the copy, in bytes.
MARGIN = 4 << 20


class Rewritten(NamedTuple):
    """What a rewrite has made of the data file.

    Attributes:
        bytes_before: Its size.
        bytes_after: Its size now.
    """

    bytes_before: int
    bytes_after: int


class _MovedError(Exception):
    """A segment of the log was sealed or dropped under the copy."""


def rewrite(store: LmdbStore, progress: Progress | None = None) -> Rewritten:
    """Write the data file anew, without free pages; others may read and write the journal meanwhile.

    It is best done while nothing seals or drops a segment of the log: then it begins again.

    Args:
        store: The journal, open for writing.
        progress: Called with the rows copied and all of them.

    Raises:
        JournalAccessError: There is no room for the copy, it cannot be written, or a commit failed meanwhile; the
            journal is as it was.
        JournalClosedError: The store was closed meanwhile; the journal is as it was.
        JournalError: The store is read-only, or is being rewritten already.
    """
    store._check_usable()
    if store.read_only:
        raise JournalError(f"the journal {store.path!r} was opened read-only: open it for writing to compact")
    with store._mutex:
        if store._touched is not None:
            raise JournalError(f"the journal {store.path!r} is being compacted already: wait for that")
        store._touched = Touched()
    try:
        for _ in range(ATTEMPTS):
            with suppress(_MovedError):
                return _rewrite(store, progress)
        raise JournalAccessError(
            f"the journal {store.path!r} was not compacted, its log moved on {ATTEMPTS} times meanwhile: try again"
        )
    except (lmdb.Error, OSError) as error:
        raise JournalAccessError(
            f"the journal {store.path!r} was not compacted, and is as it was: {error}"
        ) from error
    finally:
        store._touched = None


def _rewrite(store: LmdbStore, progress: Progress | None) -> Rewritten:
    path = store.path
    data = Path(path, DATA_FILE)
    before = data.stat()
    _check_room(store)
    with store._mutex:
        touched = store._touched = Touched()
    place = Path(tempfile.mkdtemp(prefix=WORKPLACE, dir=path))
    try:
        fault_point("rewrite.begun")
        copy = _Copy(store, place, touched)
        try:
            copy.take_all(progress)
            fault_point("rewrite.copied")
            with no_openers(
                path
            ):  # not with commits waiting: who is just opening the journal is waited for here
                pass
            with store._mutex:
                store._check_usable()
                if store._failure is not None:
                    raise JournalAccessError(
                        f"the journal {path!r} was not compacted, as a commit failed meanwhile: try again"
                    )
                copy.finish()
                _keep_rights(before, place / DATA_FILE)
                _swap(store, place)
        finally:
            copy.close()
    finally:
        shutil.rmtree(place, ignore_errors=True)
    fault_point("rewrite.after")
    return Rewritten(before.st_size, data.stat().st_size)


def _check_room(store: LmdbStore) -> None:
    space = store.space()
    needed = space.used + space.used // 16 + MARGIN
    if space.disk_free < needed:
        raise JournalAccessError(
            f"the journal {store.path!r} cannot be compacted: the copy needs {needed:,} bytes, and its disk has "
            f"{space.disk_free:,} free: make room, or purge more first"
        )


def _keep_rights(status: os.stat_result, copy: Path) -> None:
    copy.chmod(status.st_mode & 0o7777)
    if (os.getuid(), os.getgid()) != (status.st_uid, status.st_gid):
        with suppress(PermissionError):
            os.chown(copy, status.st_uid, status.st_gid)


def _swap(store: LmdbStore, place: Path) -> None:
    """Put the copy in the place of the data file; commits wait meanwhile."""
    try:
        make_ready(store.path, place)
        store._open_again()  # which carries out the swap
    except BaseException:
        # One of the two files has the name and is whole.
        withdraw(store.path)
        store._open_again()
        raise


class _Copy:
    """A new environment that becomes equal to a store's."""

    def __init__(self, store: LmdbStore, place: Path, touched: Touched) -> None:
        self._store = store
        self._place = place
        self._touched = touched
        self._env = lmdb.open(
            str(place),
            map_size=store._options.map_size,
            lock=False,
            sync=False,
            metasync=False,
            mode=0o600,
            max_dbs=MAX_DATABASES,
            lib_version=0,
        )
        self._is_open = True
        place.chmod(0o770)  # another user who may write the journal may have to carry it out
        self._copy = open_databases(self._env, create=True)
        self._ends: dict[int, bytes] = {}
        self._unsynced = 0
        self._rows = 0
        self._total = 0

    def take_all(self, progress: Progress | None) -> None:
        """Copy everything, and then what was written meanwhile, until little is left."""
        with self._store._shared as opened, opened.env.begin() as txn:
            self._total = sum(txn.stat(db)["entries"] for db in opened.databases[1:])

        def say() -> None:
            if progress is not None:
                progress(min(self._rows, self._total), self._total)

        for number in range(1, len(self._copy.databases)):
            self._take(number, say)
        for _ in range(ROUNDS):
            # No commit is half-way then: what one has said that it changes must be visible when it is copied again.
            with self._store._mutex:
                keys = self._touched.take()
            if self._catch_up(keys) < FEW_ROWS:
                break
            say()
        self._env.sync(True)

    def finish(self) -> None:
        """Copy the rest and close; nothing is committed to the store meanwhile."""
        self._catch_up(self._touched.take())
        with self._env.begin(write=True) as txn:
            txn.drop(self._copy.meta, delete=False)
            with self._store._shared as opened, opened.env.begin() as source:
                for key, value in source.cursor(db=opened.meta):
                    txn.put(key, value, db=self._copy.meta)
        # Also where commits are not synced: a power cut must not take with it what has long been on the disk.
        self._env.sync(True)
        sync_directory(self._place)
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        if self._is_open:
            self._is_open = False
            self._env.close()

    def _catch_up(self, keys: dict[Table, set[bytes]]) -> int:
        """Copy new records of the log and these rows, which were touched; returns how many those were."""
        before = self._rows
        for number in (1, 2):
            self._take(number, lambda: None)
        for table, touched in keys.items():
            names = sorted(touched)
            pieces = PIECE_ROWS if table is not Table.BLOBS else BLOB_ROWS
            for start in range(0, len(names), pieces):
                self._store._check_usable()
                piece = names[start : start + pieces]
                with self._store._shared as opened, self._store._begin_read(opened) as source:
                    rows = [(key, source.get(key, db=opened.tables[table])) for key in piece]
                with self._env.begin(write=True, db=self._copy.tables[table]) as txn:
                    for key, value in rows:
                        if value is None:
                            txn.delete(key)
                        else:
                            txn.put(key, value)
                self._count(len(rows), sum(len(value or b"") for _key, value in rows))
        return self._rows - before

    def _take(self, number: int, say: Callable[[], None]) -> None:
        """Copy the rows of a database from where it was left."""
        while True:
            self._store._check_usable()
            if self._touched.is_moved:
                raise _MovedError
            with self._store._shared as opened, self._store._begin_read(opened) as source:
                rows = self._piece(opened, source, number)
            if not rows:
                return
            with self._env.begin(write=True) as txn:
                cursor = txn.cursor(db=self._copy.databases[number])
                consumed, added = cursor.putmulti(rows, append=True)
                if not consumed == added == len(rows):
                    raise RuntimeError(f"LMDB took {added} of {len(rows)} rows of a copy")
            self._ends[number] = rows[-1][0]
            self._count(len(rows), sum(len(key) + len(value) for key, value in rows))
            say()

    def _piece(
        self, opened: Opened, source: lmdb.Transaction[bytes], number: int
    ) -> list[tuple[bytes, bytes]]:
        rows: list[tuple[bytes, bytes]] = []
        size = 0
        cursor = source.cursor(db=opened.databases[number])
        end = self._ends.get(number)
        found = cursor.first() if end is None else cursor.set_range(end + b"\0")
        for row in cursor.iternext() if found else ():
            rows.append(row)
            size += len(row[1])
            if len(rows) >= PIECE_ROWS or size >= PIECE_BYTES:
                break
        return rows

    def _count(self, rows: int, size: int) -> None:
        self._rows += rows
        self._unsynced += size
        if self._unsynced >= SYNC_BYTES:
            self._unsynced = 0
            self._env.sync(True)
