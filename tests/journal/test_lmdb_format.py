"""What is not a journal is refused in words and left as it is; what a crash leaves is repaired."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import lmdb
import pytest

from everact.journal.errors import (
    JournalAccessError,
    JournalCorruptError,
    JournalVersionError,
    NotAJournalError,
)
from everact.journal.lmdb_format import FORMAT_KEY, META
from everact.journal.lmdb_lock import LOCK_FILE
from everact.journal.lmdb_store import LmdbStore
from everact.journal.store import Entry, Position

from .lmdb_processes import Script, run

TURN = [Entry(1, 1, 0, 1, b"turn")]


def make(path, records=1):
    store = LmdbStore(path, durability="os")
    for _ in range(records):
        store.append(store.position, TURN)
    store.close()
    return store.journal_id


def foreign(path, *, lib_version=0, name=None, put=True):
    with lmdb.open(os.fspath(path), max_dbs=4, lib_version=lib_version) as env:
        db = env.open_db(name) if name else None
        if put:
            with env.begin(write=True) as txn:
                txn.put(b"format", b"1", db=db)


def set_version(path, version):
    make(path)
    with (
        lmdb.open(os.fspath(path), max_dbs=4, lib_version=0) as env,
        env.begin(write=True) as txn,
    ):
        txn.put(FORMAT_KEY, version, db=env.open_db(META, txn=txn))


def snapshot(path):
    if path.is_file():
        return path.read_bytes()
    return {
        str(each.relative_to(path)): (each.stat().st_mtime_ns, each.is_file() and each.read_bytes())
        for each in sorted(path.rglob("*"))
    }


def a_file(path):
    path.write_text("notes")


def a_directory_of_something_else(path):
    path.mkdir()
    (path / "notes.txt").write_text("notes")


def a_stray_lock_table(path):
    path.mkdir()
    (path / "lock.mdb").write_text("")


def garbage(path):
    path.mkdir()
    (path / "data.mdb").write_bytes(os.urandom(20_000))


def garbage_beside_our_lock_file(path):
    garbage(path)
    (path / LOCK_FILE).write_text("")


def a_short_file(path):
    path.mkdir()
    (path / "data.mdb").write_text("short")


def an_empty_data_file_without_our_lock_file(path):
    path.mkdir()
    (path / "data.mdb").write_text("")


def an_empty_environment(path):
    foreign(path, put=False)


def an_environment_of_somebody_else(path):
    foreign(path)


def a_meta_database_of_somebody_else(path):
    foreign(path, name=b"meta")


def an_environment_of_somebody_else_beside_our_lock_file(path):
    foreign(path, name=b"meta")
    (path / LOCK_FILE).write_text("")


def an_environment_of_lmdb_1(path):
    foreign(path, lib_version=1)


NOT_OURS = [
    (a_file, r"'{path}' is not a directory, so it is not a journal"),
    (a_directory_of_something_else, r"'{path}' is not empty and holds no journal \(found 'notes.txt'\)"),
    (a_stray_lock_table, r"'{path}' is not empty and holds no journal \(found 'lock.mdb'\)"),
    (garbage, r"'{path}/data.mdb' is not an LMDB file"),
    (garbage_beside_our_lock_file, r"'{path}/data.mdb' is not an LMDB file"),
    (a_short_file, r"'{path}/data.mdb' is not an LMDB file"),
    (an_empty_data_file_without_our_lock_file, r"'{path}/data.mdb' is not an LMDB file"),
    (an_empty_environment, r"'{path}' holds an LMDB environment that is not an Everact journal"),
    (an_environment_of_somebody_else, r"'{path}' holds an LMDB environment that is not an Everact"),
    (a_meta_database_of_somebody_else, r"'{path}' holds an LMDB environment that is not an Everact"),
    (an_environment_of_somebody_else_beside_our_lock_file, r"'{path}' holds an LMDB environment that is not"),
    (an_environment_of_lmdb_1, r"'{path}/data.mdb' is an LMDB file of data format 3, journals have 1"),
]


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
@pytest.mark.parametrize(("prepare", "text"), NOT_OURS, ids=[each[0].__name__ for each in NOT_OURS])
def test_what_is_not_a_journal_is_refused_and_unchanged(tmp_journal, prepare, text, read_only):
    prepare(tmp_journal)
    before = snapshot(tmp_journal)
    with pytest.raises(NotAJournalError, match=text.format(path=tmp_journal)) as caught:
        LmdbStore(tmp_journal, read_only=read_only)
    advice = (
        "give the directory that a Runtime was given" if read_only else "give an empty or a new directory for"
    )
    assert advice in str(caught.value)
    assert snapshot(tmp_journal) == before


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
@pytest.mark.parametrize(
    ("version", "text"),
    [
        (
            b"3",
            "has format version 3, this version of Everact reads 2: use the version of Everact that wrote",
        ),
        (b"0", "has format version 0, this version of Everact reads 2: export it with the version"),
        (b"one", "has format version one, this version of Everact reads 2"),
        (b"", "has format version unknown, this version of Everact reads 2"),
    ],
    ids=["newer", "older", "strange", "missing"],
)
def test_another_format_version_is_refused_and_unchanged(tmp_journal, version, text, read_only):
    set_version(tmp_journal, version)
    before = snapshot(tmp_journal)
    with pytest.raises(JournalVersionError, match=f"'{tmp_journal}' {text}"):
        LmdbStore(tmp_journal, read_only=read_only)
    assert snapshot(tmp_journal) == before
    with Script('LmdbStore(path); say("unlocked")', tmp_journal) as other:
        assert "JournalVersionError" in other.process.communicate()[1]


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
def test_a_cut_data_file_is_refused_before_it_is_touched(tmp_journal, read_only):
    store = LmdbStore(tmp_journal, durability="os")
    store.append(store.position, [Entry(1, 1, 0, 1, os.urandom(1_000_000))])
    store.close()
    os.truncate(tmp_journal / "data.mdb", 500_000)
    before = snapshot(tmp_journal)
    with pytest.raises(
        JournalCorruptError, match="was cut to 500,000 bytes, its pages need .* from a backup"
    ):
        LmdbStore(tmp_journal, read_only=read_only)
    assert snapshot(tmp_journal) == before


def test_a_parent_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotAJournalError, match="journal' cannot be created, .* is not a directory"):
        LmdbStore(tmp_path / "file" / "journal")


def test_a_dangling_link_is_refused(tmp_path, tmp_journal):
    tmp_journal.symlink_to(tmp_path / "nowhere")
    with pytest.raises(NotAJournalError, match="is not a directory"):
        LmdbStore(tmp_journal)


def test_reading_needs_an_existing_journal(tmp_journal):
    with pytest.raises(NotAJournalError, match=f"there is no journal at '{tmp_journal}': check the path"):
        LmdbStore(tmp_journal, read_only=True)
    assert not tmp_journal.exists()
    tmp_journal.mkdir()
    with pytest.raises(NotAJournalError, match=f"there is no journal in '{tmp_journal}' yet"):
        LmdbStore(tmp_journal, read_only=True)
    assert snapshot(tmp_journal) == {}


def test_a_missing_directory_is_made_with_its_parents(tmp_path):
    path = tmp_path / "a" / "b" / "journal"
    make(path)
    assert {each.name for each in path.iterdir()} == {"data.mdb", "lock.mdb", LOCK_FILE}


def test_an_empty_directory_of_a_fresh_disk_is_accepted(tmp_journal):
    (tmp_journal / "lost+found").mkdir(parents=True)
    make(tmp_journal)


def test_a_data_file_alone_is_a_journal_as_a_backup_leaves_it(tmp_path, tmp_journal):
    journal_id = make(tmp_journal, 3)
    copy = tmp_path / "restored"
    copy.mkdir()
    shutil.copy(tmp_journal / "data.mdb", copy)
    for read_only in (True, False):
        store = LmdbStore(copy, read_only=read_only, durability="os")
        assert store.journal_id == journal_id
        assert len(list(store.scan())) == 3
        store.close()


@pytest.mark.parametrize(
    "killed_at",
    ["make_directory", "WriterLock", "lmdb.open", "lmdb.Environment.reader_check", "open_databases"],
)
def test_a_kill_while_the_journal_is_made_leaves_what_the_next_open_makes_whole(tmp_journal, killed_at):
    source = f"""
    from everact.journal import lmdb_open
    import lmdb
    name = {killed_at!r}

    def die_after(call):
        def run(*args, **options):
            made = call(*args, **options)
            if not options.get("readonly"):
                os.kill(os.getpid(), signal.SIGKILL)
            return made
        return run

    if name == "lmdb.Environment.reader_check":
        def open_databases(env, **options):
            with env.begin(write=True) as txn:
                env.open_db(b"log0", txn=txn)
                os.kill(os.getpid(), signal.SIGKILL)
        lmdb_open.open_databases = open_databases
    elif name == "lmdb.open":
        lmdb.open = die_after(lmdb.open)
    else:
        setattr(lmdb_open, name, die_after(getattr(lmdb_open, name)))
    LmdbStore(path)
    """
    with Script(source, tmp_journal) as killed:
        assert killed.process.wait() == -signal.SIGKILL
    store = LmdbStore(tmp_journal, durability="os")
    assert store.position == Position(1, 1)
    assert store.append(store.position, TURN) == Position(1, 2)
    store.close()


@pytest.mark.parametrize("content", [b"", bytes(8192)], ids=["empty", "zeros"])
def test_a_blank_data_file_beside_our_lock_file_is_begun_anew(tmp_journal, content):
    tmp_journal.mkdir()
    (tmp_journal / LOCK_FILE).write_text("")
    (tmp_journal / "data.mdb").write_bytes(content)
    with pytest.raises(NotAJournalError, match="there is no journal in .* yet"):
        LmdbStore(tmp_journal, read_only=True)
    make(tmp_journal)


@pytest.fixture
def open_directory():
    """A directory that every user can reach; pytest's are for one user only."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def as_another_user(path, **options):
    """Open as a user without rights; returns the error's name and text, or "opened"."""
    source = f"""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    try:
        LmdbStore(path, **{options!r}).close()
        say("opened")
    except JournalError as error:
        say(f"{{type(error).__name__}}: {{error}}")
    """
    # That user may not write the data of coverage either.
    (text,) = run(source, path, COVERAGE_PROCESS_CONFIG="", COVERAGE_PROCESS_START="")
    return text


def test_a_directory_that_cannot_be_made_is_refused(open_directory):
    open_directory.chmod(0o555)
    text = as_another_user(open_directory / "journal")
    assert text.startswith(
        f"JournalAccessError: the directory of the journal '{open_directory}/journal' cannot"
    )
    assert "Permission denied" in text
    assert "create it for this user, or choose another one" in text


def test_a_directory_that_cannot_be_looked_for_is_refused(tmp_path, open_directory):
    with pytest.raises(
        JournalAccessError, match=r"yyy' cannot be found \(File name too long\): give a shorter name"
    ):
        LmdbStore(tmp_path / ("y" * 300))
    (open_directory / "closed").mkdir(mode=0o600)
    text = as_another_user(open_directory / "closed" / "journal")
    assert text.startswith(
        f"JournalAccessError: the journal '{open_directory}/closed/journal' cannot be found"
    )
    assert "(Permission denied): change its rights, or give another place" in text


def test_an_empty_directory_without_rights_is_refused(open_directory):
    (open_directory / "journal").mkdir(mode=0o555)
    text = as_another_user(open_directory / "journal")
    assert text.startswith(f"JournalAccessError: the journal '{open_directory}/journal' cannot be written by")
    assert "change the owner or the rights" in text
    assert snapshot(open_directory / "journal") == {}


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
def test_a_journal_of_another_user_is_refused_and_unchanged(open_directory, read_only):
    path = open_directory / "journal"
    make(path)
    path.chmod(0o755)
    for file in path.iterdir():
        file.chmod(0o400)
    before = snapshot(path)
    text = as_another_user(path, read_only=read_only)
    assert text.startswith(f"JournalAccessError: the journal '{path}' cannot be ")
    assert "Permission denied" in text
    assert snapshot(path) == before


def test_a_directory_that_cannot_be_entered_is_refused(open_directory):
    path = open_directory / "journal"
    make(path)
    path.chmod(0o000)
    text = as_another_user(path, read_only=True)
    assert text.startswith(f"JournalAccessError: the journal '{path}' cannot be read by this user")
    path.chmod(0o755)


def test_a_data_file_without_rights_to_write_can_be_read(open_directory):
    path = open_directory / "journal"
    make(path)
    for name in ("lock.mdb", LOCK_FILE):
        (path / name).unlink()
    (path / "data.mdb").chmod(0o444)
    path.chmod(0o555)
    before = snapshot(path)
    assert as_another_user(path, read_only=True) == "opened"
    assert "cannot be written by this user" in as_another_user(path)
    assert snapshot(path) == before


@pytest.mark.parametrize("pages", [1, 2, 5, 9, 15])
def test_a_file_that_lacks_its_last_pages_never_kills_the_process(tmp_journal, pages):
    """A touched page beyond the end of the file is a SIGBUS, so this runs elsewhere."""
    store = LmdbStore(tmp_journal, durability="os")
    for number in range(1, 61):
        store.append(store.position, [Entry(number, 1, 0, 1, os.urandom(900))])
    store.close()
    data = tmp_journal / "data.mdb"
    os.truncate(data, data.stat().st_size - pages * 4096)
    script = Script(
        "store = LmdbStore(path); list(store.scan()); store.append(store.position, [])", tmp_journal
    )
    with script as other:
        stderr = other.process.communicate()[1]
    assert other.process.returncode == 1
    assert "JournalCorruptError" in stderr
    assert "damaged" in stderr


CUTS = """
import os, shutil, sys
from everact.journal.errors import JournalCorruptError
from everact.journal.lmdb_store import LmdbStore

journal, copy = sys.argv[1:]
size = os.path.getsize(os.path.join(journal, "data.mdb"))
outcomes = set()
for cut in range(0, size, 4096):
    shutil.copytree(journal, copy)
    os.truncate(os.path.join(copy, "data.mdb"), size - cut)
    try:
        store = LmdbStore(copy, read_only=True)
        assert len(list(store.scan())) == 20
        store.close()
        outcomes.add("whole")
    except JournalCorruptError as error:
        assert "was cut to" in str(error) or "damaged" in str(error), error
        outcomes.add("refused")
    shutil.rmtree(copy)
print(sorted(outcomes))
"""


def test_a_reader_of_a_data_file_that_was_cut_is_not_killed(tmp_path):
    """The last pages may be free ones; a page that holds something and is not there would be SIGBUS."""
    store = LmdbStore(tmp_path / "journal")
    for number in range(20):
        store.append(store.position, [Entry(1, number + 1, 0, 0, os.urandom(500))])
    store.close()
    done = subprocess.run(
        [sys.executable, "-c", CUTS, str(tmp_path / "journal"), str(tmp_path / "copy")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "['refused', 'whole']\n"), done.stderr


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
def test_a_path_with_a_nul_is_refused_before_anything_is_made(tmp_path, read_only):
    with pytest.raises(
        ValueError, match=r"the path of a journal cannot hold the character NUL: '.*/a\\x00b'"
    ):
        LmdbStore(tmp_path / "a\0b", read_only=read_only)
    assert list(tmp_path.iterdir()) == []
