"""A journal whose data file has damaged pages, read past them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from .errors import JournalAccessError, JournalCorruptError
from .lmdb_format import DATA_FILE, EPOCH_KEY, LOGS, META, SEGMENT_KEY, SEGMENTS
from .lmdb_pages import Leaf, PageFile
from .lmdb_store import LmdbStore
from .lmdb_tables import LmdbTables, RecordCache, corrupt
from .salvage import Damage
from .store import JournalStore, Position, Segments
from .tables import EVENT, NUMBER, Table

#: Pages that are looked at in one read transaction.
PAGES_AT_ONCE = 20_000
#: How often a moment is sought between two commits.
TRIES = 1000
#: How damage to the list of free pages is named: no run lacks anything by it, but nothing can be written.
FREE_LIST = "free pages"
#: Tables whose keys begin with a run key.
_BY_RUN = (Table.HISTORIES, Table.RUNS, Table.OPEN)

#: What follows the run key in the key of a run's first row, or of its only one.
_STARTS = (b"", EVENT.pack(0, 1)[NUMBER.size :])


class PageTables(LmdbTables):
    """What a transaction sees, read from the pages themselves.

    Rows on damaged pages are passed over by ``scan`` and ``log_rows``; whoever asks for one of them by its key gets
    ``JournalCorruptError``.

    Args:
        path: The journal's directory, for messages.
        pages: The data file.
        cache: Decompressed records of this journal.
    """

    def __init__(self, path: str, pages: PageFile, cache: RecordCache) -> None:
        self._path = path
        self._pages = pages
        self._cache = cache
        current, sealed, first = SEGMENTS.unpack(pages.get(META, SEGMENT_KEY) or b"")
        self._known = current, Segments(sealed, first)
        self._own = 0

    @property
    def position(self) -> Position:
        """Epoch of the newest writer, and sequence of the record behind the last one that is not on a damaged page."""
        (epoch,) = NUMBER.unpack(self._pages.get(META, EPOCH_KEY) or b"")
        last = next(self._rows(LOGS[self._layout()[0]], b"", None, reverse=True), None)
        return Position(epoch, NUMBER.unpack(last[0])[0] + 1 if last else self.segments.current)

    @property
    def current_log(self) -> str:
        """Name of the segment that is appended to."""
        return LOGS[self._layout()[0]].decode()

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The value of a key; see ``Tables.get``."""
        try:
            return self._pages.get(table.value.encode(), key)
        except JournalCorruptError as error:
            raise self._damaged(table, error) from error

    def scan(
        self, table: Table, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of a table that can be read; see ``Tables.scan``."""
        yield from self._rows(table.value.encode(), start, stop, reverse=reverse)

    def log_rows(self, first: int, last: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield records as they are stored; see ``LmdbTables.log_rows``."""
        yield from self._rows(LOGS[self._log(first)], NUMBER.pack(first), NUMBER.pack(last + 1))

    def _rows(
        self, name: bytes, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        for leaf in self._pages.leaves(name, start, stop, reverse=reverse):
            for row in reversed(leaf.rows) if reverse else leaf.rows:
                if start <= row[0] and (stop is None or row[0] < stop):
                    yield row

    def last(self, table: Table, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        """The last row of a range that can be read; see ``Tables.last``."""
        return next(self.scan(table, start, stop, reverse=True), None)

    def count(self, table: Table) -> int:
        """How many rows of a table can be read."""
        return sum(len(leaf.rows) for leaf in self._pages.leaves(table.value.encode()))

    def _stored_record(self, sequence: int) -> bytes | None:
        try:
            return self._pages.get(LOGS[self._log(sequence)], NUMBER.pack(sequence))
        except JournalCorruptError as error:
            raise corrupt(self._path, sequence, str(error)) from error


class SalvageStore(LmdbStore):
    """A journal opened for reading that does not trust its pages.

    Args:
        path: The journal's directory.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, read_only=True)

    def _tables(self) -> AbstractContextManager[LmdbTables]:
        return self.page_tables()

    @contextmanager
    def page_tables(self) -> Generator[PageTables]:
        """The tables at this moment."""
        with page_file(self) as pages:
            yield PageTables(self.path, pages, self._cache)


@contextmanager
def past_damage(store: JournalStore) -> Generator[tuple[JournalStore, list[Damage]]]:
    """A store by which all that is whole can be read, and the damage to pages of the tables.

    Damage to pages of the log is found by reading the log, but for that at its end.

    Args:
        store: Any store; one in an LMDB environment with damaged pages is replaced.
    """
    damage = damaged_pages(store) if isinstance(store, LmdbStore) else []
    if not damage:
        yield store, []
        return
    assert isinstance(store, LmdbStore)
    salvage = SalvageStore(store.path)
    try:
        with salvage.page_tables() as tables:
            first, current = tables.segments.current, tables.current_log
        yield (
            salvage,
            [one for one in damage if one.table.encode() not in LOGS]
            + [
                one._replace(first=max(one.first, first), table="")
                for one in damage
                if one.table == current and not one.last
            ],
        )
    finally:
        salvage.close()


def damaged_pages(store: LmdbStore) -> list[Damage]:
    """Look at every page of tables, logs and free list; nothing is changed, and others may write meanwhile.

    Raises:
        JournalCorruptError: What says where the tables are is damaged.
    """
    found: list[Damage] = []
    for table in (*(name.decode() for name in LOGS), *(table.value for table in Table)):
        start: bytes | None = b""
        while start is not None:
            with page_file(store) as pages:
                start = _look(pages, table, start, found)
    with page_file(store) as pages:
        found += [Damage(0, 0, leaf.damage, FREE_LIST) for leaf in pages.free_list() if leaf.damage]
    return found


def _look(pages: PageFile, table: str, start: bytes, found: list[Damage]) -> bytes | None:
    """Note the damaged pages from one key on; where to go on, or None at the end."""
    for number, leaf in enumerate(pages.leaves(table.encode(), start), 1):
        if leaf.damage:
            found.append(_damage(table, leaf))
        if number >= PAGES_AT_ONCE:
            return leaf.high
    return None


def _damage(table: str, leaf: Leaf) -> Damage:
    first = last = 0
    if table.encode() in LOGS or Table(table) in _BY_RUN:
        first = _number(leaf.low, 1)
        # The limit is the first key of the next page, which may be a later part of the same run.
        is_other_run = leaf.high is not None and leaf.high[NUMBER.size :] in _STARTS
        last = _number(leaf.high, 0) - is_other_run
    return Damage(first, last, leaf.damage, table)


def _number(key: bytes | None, default: int) -> int:
    return NUMBER.unpack_from(key)[0] if key is not None and len(key) >= NUMBER.size else default


@contextmanager
def page_file(store: LmdbStore) -> Generator[PageFile]:
    """The pages of a journal's data file as they are at this moment; leave it soon.

    Raises:
        JournalAccessError: A writer commits so fast that no moment can be held.
    """
    path = Path(store.path, DATA_FILE)
    for _ in range(TRIES):
        if store.read_only:
            store._follow()
        with store._shared as opened, path.open("rb") as file:
            if os.fstat(file.fileno()).st_ino != opened.files[0]:
                continue  # put in the place of the one that is open, just now
            with (
                store._begin_read(opened) as txn,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
                memoryview(mapped) as data,
            ):
                pages = PageFile(data, opened.env.stat()["psize"])
                # The page that leads to all others is written again two commits later, and not before the one between.
                if pages.transaction == opened.env.info()["last_txnid"] == txn.id():
                    yield pages
                    return
    raise JournalAccessError(
        f"the journal {store.path!r} is written too fast to be read past damage: try again"
    )
