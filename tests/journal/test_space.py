"""How much room a journal has; the map filled while others read (K03); what new work may use."""

import os
import threading
from pathlib import Path

import lmdb
import pytest

from everact.journal import disk_trouble
from everact.journal.errors import CommitUnknownError, JournalFullError
from everact.journal.lmdb_format import open_error
from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.space import RESERVE, UNLIMITED, Space, SpaceLimits, reserve_of
from everact.journal.store import STARTS_RUN, Entry

MIB = 1 << 20
GIB = 1 << 30


def append(store, size=20_000):
    position = store.position
    store.append(position, [Entry(position.sequence, 1, STARTS_RUN, 1, os.urandom(size))])


def fill(store, size=20_000):
    """Append until the map is full."""
    with pytest.raises(CommitUnknownError, match="MDB_MAP_FULL"):
        while True:
            append(store, size)


@pytest.fixture
def small(tmp_journal):
    store = LmdbStore(tmp_journal, map_size=MIB, durability="os")
    yield store
    store.close()


# --- the store


def test_space_counts_what_the_file_holds_and_what_is_free_in_it(small):
    env = small._shared.opened.env
    for _ in range(20):
        append(small)
    full = small.space()
    data = Path(small.path, "data.mdb")
    assert full.limit == MIB
    assert full.limited_by == "map"
    assert 0 <= data.stat().st_size - full.size <= 4096
    assert full.used >= 20 * 20_000
    with env.begin(write=True) as txn:
        txn.drop(small._shared.opened.logs[0], delete=False)
    empty = small.space()
    assert full.used - empty.used >= 20 * 20_000
    assert empty.room - full.room >= 20 * 20_000 - 8 * 4096
    assert empty.size >= full.size  # a file does not shrink
    disk = os.statvfs(small.path)
    assert empty.disk_size == disk.f_blocks * disk.f_frsize
    assert 0 < empty.disk_free <= empty.disk_size


def test_a_map_is_whole_pages_and_no_smaller_than_its_file(tmp_journal):
    store = LmdbStore(tmp_journal, map_size=MIB + 4095, durability="os")
    assert store.space().limit == MIB
    fill(store)
    used = store.space().used
    store.close()
    smaller = LmdbStore(tmp_journal, map_size=MIB // 2, durability="os")
    assert used <= smaller.space().limit <= MIB
    smaller.close()
    larger = LmdbStore(tmp_journal, map_size=2 * MIB, durability="os")
    append(larger, MIB // 2)
    larger.close()


def test_a_full_map_writes_nothing_and_a_reopened_store_goes_on(small):
    fill(small)
    records = [sequence for sequence, _entries in small.scan()]
    assert records == list(range(1, small.position.sequence))
    small.reopen()  # its new epoch is the tiny commit
    append(small, 10)
    assert len(list(small.scan())) == len(records) + 1


def test_the_map_is_filled_while_another_thread_reads(small):
    append(small)
    begun, filled = threading.Event(), threading.Event()
    seen = []

    def read():
        rows = small.scan()
        seen.append([next(rows)[0]])
        begun.set()
        while not filled.is_set():
            seen.append([sequence for sequence, _entries in small.scan()])
        seen[0] += [sequence for sequence, _entries in rows]

    reader = threading.Thread(target=read)
    with small._shared as opened, opened.env.begin() as txn, txn.cursor(db=opened.logs[0]) as cursor:
        assert cursor.first()  # a transaction of its own stays open, too
        reader.start()
        assert begun.wait(20)
        fill(small)
        assert [bytes(key)[-1] for key in cursor.iternext(values=False)] == [1]
    small.reopen()
    append(small, 10)
    filled.set()
    reader.join(20)
    assert not reader.is_alive()
    assert seen[0] == [1]  # a scan is of what there was when it began
    for sequences in seen:
        assert sequences == list(range(1, len(sequences) + 1))


def test_a_journal_in_memory_has_the_limit_it_was_given():
    journal = MemoryJournal()
    assert MemoryStore(journal).space() == Space(0, 0)
    journal.limit = 1000
    store = MemoryStore(journal)
    append(store, 500)
    with pytest.raises(CommitUnknownError, match="No space left on device"):
        append(store, 600)
    assert store.position.sequence == 2
    store.reopen()
    append(store, 100)


def test_the_table_of_readers_has_all_its_blocks(small):
    # A page of it without a block would kill the process that touches it on a full disk.
    table = Path(small.path, "lock.mdb").stat()
    assert table.st_blocks * 512 >= table.st_size
    assert small._shared.opened.env.info()["max_readers"] == 1024


# --- what new work may use


@pytest.mark.parametrize(
    ("space", "limits", "spare"),
    [
        # The journal's own limit.
        (Space(300 * MIB, 300 * MIB, GIB), SpaceLimits(), ("map", GIB, 724 * MIB, RESERVE)),
        (Space(300 * MIB, 400 * MIB, GIB), SpaceLimits(GIB), ("quota", GIB, 724 * MIB, RESERVE)),
        (Space(MIB, MIB, GIB, "file"), SpaceLimits(), ("file", GIB, GIB - MIB, RESERVE)),
        (Space(MIB, MIB, GIB, "file"), SpaceLimits(8 * MIB), ("quota", 8 * MIB, 7 * MIB, MIB)),
        (Space(9 * MIB, 9 * MIB, GIB), SpaceLimits(8 * MIB), ("quota", 8 * MIB, 0, MIB)),
        # A disk; what is free in the file needs no more of it.
        (Space(MIB, MIB, GIB, "map", 70 * MIB, GIB), SpaceLimits(), ("disk", GIB, 70 * MIB, RESERVE)),
        (Space(MIB, 5 * MIB, GIB, "map", 0, GIB), SpaceLimits(), ("disk", GIB, 4 * MIB, RESERVE)),
        (Space(MIB, MIB, GIB, "map", 7 * MIB, 8 * MIB), SpaceLimits(), ("disk", 8 * MIB, 7 * MIB, MIB)),
        (Space(MIB, MIB, GIB, "map", 7 * MIB, GIB), SpaceLimits(None, 0), ("disk", GIB, 7 * MIB, 0)),
        (
            Space(MIB, MIB, GIB, "map", 70 * MIB, GIB),
            SpaceLimits(None, 100 * MIB),
            ("disk", GIB, 70 * MIB, 100 * MIB),
        ),
    ],
)
def test_the_scarcest_limit_decides(space, limits, spare):
    assert tuple(limits.spare(space)) == spare


def test_work_under_way_may_use_the_reserve():
    space = Space(MIB, 3 * MIB, GIB, "map", 5 * MIB, GIB)
    assert space.room == 7 * MIB
    assert SpaceLimits().room(space) == 7 * MIB
    assert SpaceLimits(4 * MIB).room(space) == 3 * MIB
    assert Space(MIB, MIB).room == UNLIMITED - MIB


def test_the_reserve_of_small_things_is_a_share():
    assert [reserve_of(total) for total in (0, 8 * MIB, 512 * MIB, GIB)] == [0, MIB, RESERVE, RESERVE]


# --- errors


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("quota", "its quota of 8,388,608 bytes has 1,024 bytes left"),
        ("disk", "its file system of 8,388,608 bytes has 1,024 bytes left"),
        ("map", "its data file of at most 8,388,608 bytes has 1,024 bytes left"),
        (
            "file",
            "its data file, which this process may not make larger than 8,388,608 bytes, has 1,024 bytes left",
        ),
    ],
)
def test_the_error_says_what_is_full(what, text):
    assert (
        f"the journal '/j' is full: {text}, and 2,048 are kept for work under way; nothing was written. "
        in str(JournalFullError("/j", what, 8 * MIB, 1024, 2048))
    )
    assert str(JournalFullError("/j", what, 8 * MIB, 1024, 2048, 5000)).startswith(
        f"the journal '/j' has no room for a message of 5,000 bytes: {text}, and 2,048 are kept"
    )


def test_an_open_that_finds_the_map_full_says_so(small):
    fill(small)
    error = open_error(small.path, lmdb.MapFullError("MDB_MAP_FULL"))
    assert type(error) is JournalFullError
    assert error.what == "map"
    assert error.total == Path(small.path, "data.mdb").stat().st_size


def test_a_disk_that_cannot_be_looked_at_is_not_called_full(tmp_path):
    gone = os.fspath(tmp_path / "gone")
    assert disk_trouble.full_error(gone) is None
    assert not disk_trouble.is_read_only(gone)
    assert "cannot be written by this user (Permission denied: '/x')" in str(
        disk_trouble.write_error(gone, "/x", "Permission denied")
    )
