"""A journal whose data file is gone, or damaged where it begins, is called just that, and never begun anew."""

import shutil
from pathlib import Path

import pytest
from support.journals import fill

from everact.journal.errors import JournalCorruptError, NotAJournalError
from everact.journal.lmdb_pages import head_trouble
from everact.journal.lmdb_store import LmdbStore
from everact.journal.verify import verify

PAGE = 4096


def put(start, stop, byte=b"\xa5"):
    return lambda data: data[:start] + byte * (stop - start) + data[stop:]


def on_both(start, stop):
    return lambda data: put(start, stop)(put(PAGE + start, PAGE + stop)(data))


#: What is done to the file, and what is said of it.
HEADS = {
    "cut inside of the first page": (lambda data: data[:100], "it ends inside of page 0"),
    "a few bytes": (lambda data: data[:40], "it has only 40 bytes"),
    "one page": (lambda data: data[:PAGE], "it ends inside of page 1"),
    "first bytes zero": (put(0, 16, b"\0"), "page 0 is of the wrong kind"),
    "first page zero": (put(0, PAGE, b"\0"), "page 0 does not begin as in a journal"),
    "second page zero": (put(PAGE, 2 * PAGE, b"\0"), "page 1 does not begin as in a journal"),
    "both pages zero": (put(0, 2 * PAGE, b"\0"), "page 0 does not begin as in a journal"),
    "magic": (put(16, 20), "page 0 does not begin as in a journal"),
    "second magic": (put(PAGE + 16, PAGE + 20), "page 1 does not begin as in a journal"),
    "version": (put(20, 24), "page 0 does not begin as in a journal"),
    "second version": (put(PAGE + 20, PAGE + 24), "page 1 does not begin as in a journal"),
    "page size": (on_both(40, 44), "page 0 says that pages have 2,779,096,485 bytes"),
    "number of pages": (on_both(136, 144), r"it should have 11,936,128,518,282,651,046 pages of 4,096 bytes"),
    "root": (on_both(128, 136), "MDB_PAGE_NOTFOUND"),
    "garbage": (lambda data: b"\xa5" * len(data), "page 0 does not begin as in a journal"),
}
#: Without a lock file nothing but the file itself says whose it was.
RECOGNISED = [name for name in HEADS if name not in ("garbage", "a few bytes")]

LOST = {
    "missing": (None, "data.mdb is missing"),
    "empty": (b"", "data.mdb is empty"),
    "zeros": (b"\0" * 50_000, "data.mdb holds nothing but zeros"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A journal's directory, to be copied."""
    path = tmp_path_factory.mktemp("made") / "journal"
    store = LmdbStore(path, durability="os")
    fill(store)
    store.close()
    return path


@pytest.fixture
def journal(made, tmp_journal):
    shutil.copytree(made, tmp_journal)
    return tmp_journal


def spoil(journal: Path, change) -> None:
    data = journal / "data.mdb"
    data.write_bytes(change(data.read_bytes()))


def contents(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir() if each.name != "lock.mdb"}


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
@pytest.mark.parametrize("case", HEADS)
def test_a_damaged_head_is_named_and_nothing_is_changed(journal, case, read_only):
    change, says = HEADS[case]
    spoil(journal, change)
    before = contents(journal)
    with pytest.raises(JournalCorruptError, match=says) as caught:
        LmdbStore(journal, read_only=read_only)
    text = str(caught.value)
    assert text.startswith(f"the data file of the journal '{journal}' is damaged (")
    assert text.endswith(
        "), and no command can read past that: keep a copy of the directory, then restore it from a backup"
    )
    after = contents(journal)
    assert after["data.mdb"] == before["data.mdb"]


@pytest.mark.parametrize("case", RECOGNISED)
def test_a_damaged_copy_without_a_lock_file_is_still_a_journal(journal, case):
    (journal / "everact.lock").unlink()
    (journal / "lock.mdb").unlink()
    spoil(journal, HEADS[case][0])
    with pytest.raises(JournalCorruptError, match="is damaged"):
        LmdbStore(journal)


def test_what_holds_nothing_of_a_journal_is_none(journal):
    (journal / "everact.lock").unlink()
    spoil(journal, HEADS["garbage"][0])
    with pytest.raises(NotAJournalError, match="is not an LMDB file"):
        LmdbStore(journal)


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
@pytest.mark.parametrize("case", LOST)
def test_a_lost_data_file_is_missed(journal, case, read_only):
    left, says = LOST[case]
    (journal / "data.mdb").unlink()
    if left is not None:
        (journal / "data.mdb").write_bytes(left)
    before = contents(journal)
    with pytest.raises(JournalCorruptError) as caught:
        LmdbStore(journal, read_only=read_only)
    assert str(caught.value) == (
        f"the journal '{journal}' has lost its data: {says}. Restore it from a backup; "
        f"to begin anew, give a new directory"
    )
    assert contents(journal) == before


def test_it_is_missed_after_a_writer_was_killed_too(journal):
    lock = journal / "everact.lock"
    lock.write_text(f"1 2 other-boot{lock.read_text()}")  # as a killed writer leaves it
    (journal / "data.mdb").unlink()
    with pytest.raises(JournalCorruptError, match="has lost its data"):
        LmdbStore(journal)


def test_a_restored_file_is_opened(journal, made):
    (journal / "data.mdb").unlink()
    with pytest.raises(JournalCorruptError):
        LmdbStore(journal)
    shutil.copy(made / "data.mdb", journal)
    LmdbStore(journal).close()


def test_a_damaged_list_of_free_pages_is_found(journal):
    """No run lacks anything by it, and nothing can be written."""
    spoil(journal, on_both(80, 88))
    with pytest.raises(JournalCorruptError) as caught:
        LmdbStore(journal)
    assert str(caught.value).endswith(
        "keep a copy of the directory; `everact journal verify` names what is damaged; then restore a backup, or take "
        "out what is whole with `everact journal export`"
    )
    store = LmdbStore(journal, read_only=True)
    try:
        report = verify(store)
    finally:
        store.close()
    assert [(problem.table, report.damaged_runs) for problem in report.problems] == [("free pages", 0)]


def test_a_whole_head_is_no_trouble(made):
    data = (made / "data.mdb").read_bytes()
    assert not head_trouble(data[: 2 << 16], len(data))
