"""R18, K04, K05: one writer, by whatever path the journal is opened; a lock ends with its process."""

import fcntl
import os
import pickle
import threading

import lmdb
import pytest

from everact.journal.errors import (
    JournalAccessError,
    JournalClosedError,
    JournalError,
    JournalLockedError,
)
from everact.journal.lmdb_lock import LOCK_FILE, shared_environment
from everact.journal.lmdb_store import LmdbStore
from everact.journal.store import Entry, Location, Position

from .lmdb_processes import Script, run

OWNER = """
    store = LmdbStore(path, durability="os")
    store.append(store.position, [entry(1)])
    say("open")
    sys.stdin.read()
    store.close()
    """


def entry(number):
    return Entry(number, number, 0, number, b"turn %d" % number)


def open_os(path, **options):
    return LmdbStore(path, durability="os", **options)


def test_a_second_process_is_refused_and_told_the_owner(tmp_journal):
    with Script(OWNER, tmp_journal) as owner:
        owner.line()
        with pytest.raises(JournalLockedError, match=f"in use by process {owner.pid}: ") as caught:
            open_os(tmp_journal)
        assert caught.value.pid == owner.pid
        assert pickle.loads(pickle.dumps(caught.value)).pid == owner.pid
        owner.finish()
        store = open_os(tmp_journal)
        assert store.position == Position(2, 2)
        store.close()


def test_a_killed_owner_leaves_no_lock(tmp_journal):
    with Script(OWNER, tmp_journal) as owner:
        owner.line()
        owner.kill()
        store = open_os(tmp_journal)
        assert store.position == Position(2, 2)
        store.close()


@pytest.mark.parametrize(
    "heir",
    [
        # The child tells its id itself, after it has run what a fork runs.
        "child = not os.fork() and os.getpid()",
        "import subprocess; child = subprocess.Popen(['cat'], stdin=0, close_fds=False).pid",
    ],
    ids=["forked child", "started program"],
)
def test_after_the_owner_is_killed_its_children_do_not_keep_the_lock(tmp_journal, heir):
    source = f"""
    store = LmdbStore(path, durability="os")
    {heir}
    if child:
        say(child)
    sys.stdin.read()
    """
    with Script(source, tmp_journal) as owner:
        child = int(owner.line())
        owner.kill()
        os.kill(child, 0)
        store = open_os(tmp_journal)
        os.kill(child, 0)
        store.close()


def test_the_pid_of_an_earlier_owner_is_not_named(tmp_journal):
    open_os(tmp_journal).close()
    (tmp_journal / LOCK_FILE).write_text(f"{os.getpid()} 1 another-boot\n")
    with (tmp_journal / LOCK_FILE).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(JournalLockedError, match="in use by another process") as caught:
            open_os(tmp_journal)
    assert caught.value.pid is None


@pytest.fixture
def names(tmp_path, tmp_journal, monkeypatch):
    """The same directory by three paths."""
    (tmp_path / "link").symlink_to(tmp_journal)
    monkeypatch.chdir(tmp_path)
    return [tmp_journal, "journal", tmp_path / "link"]


def test_a_second_writer_in_this_process_is_refused_by_any_path(names):
    store = open_os(names[0])
    for name in names:
        with pytest.raises(JournalLockedError) as caught:
            open_os(name)
        assert caught.value.pid == os.getpid()
    assert store.append(store.position, [entry(1)]) == Position(1, 2)
    store.close()
    for name in names:
        open_os(name).close()


def test_readers_in_this_process_share_the_environment_by_any_path(names):
    writer = open_os(names[0])
    readers = [open_os(name, read_only=True) for name in names]
    assert len({id(store._shared) for store in [writer, *readers]}) == 1
    writer.append(writer.position, [entry(1)])
    for reader in readers:
        assert list(reader.scan()) == [(1, [entry(1)])]
        assert reader.position == Position(1, 2)
        assert reader.journal_id == writer.journal_id
        reader.close()
    assert writer.append(writer.position, [entry(2)]) == Position(1, 3)
    writer.close()
    assert shared_environment(writer._shared.key) is None


def test_a_reader_stays_when_the_writer_of_this_process_closes_and_another_process_writes(tmp_journal):
    writer = open_os(tmp_journal)
    writer.append(writer.position, [entry(1)])
    reader = open_os(tmp_journal, read_only=True)
    writer.close()
    run('store = LmdbStore(path, durability="os"); store.append(store.position, [entry(2)])', tmp_journal)
    assert reader.read([Location(2, 0), Location(1, 0)]) == [entry(2), entry(1)]
    with pytest.raises(JournalClosedError):
        writer.append(Position(1, 3), [entry(3)])
    reader.close()


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_a_writer_may_open_after_a_reader(tmp_journal, durability):
    open_os(tmp_journal).close()
    reader = open_os(tmp_journal, read_only=True)
    scan = reader.scan()
    writer = LmdbStore(tmp_journal, durability=durability)
    writer.append(writer.position, [entry(1)])
    assert list(scan) == [(1, [entry(1)])]
    writer.close()
    writer = open_os(tmp_journal)
    assert writer.append(writer.position, [entry(2)]) == Position(3, 3)
    assert reader.position == Position(3, 3)
    writer.close()
    reader.close()


def test_a_writer_that_opens_waits_for_a_read_in_another_thread(tmp_journal):
    open_os(tmp_journal).close()
    reader = open_os(tmp_journal, read_only=True)
    waiting = threading.Event()
    opened = []
    idle = reader._shared._idle
    wait = idle.wait

    def wait_and_tell():
        waiting.set()
        return wait()

    def write():
        opened.append(open_os(tmp_journal))

    idle.wait = wait_and_tell
    with reader._shared as environment, environment.env.begin() as txn:
        thread = threading.Thread(target=write)
        thread.start()
        assert waiting.wait(30)
        assert txn.get(b"everact", db=environment.meta) == b"journal"
        assert not opened
    thread.join()
    assert reader.position == opened[0].position
    opened[0].close()
    reader.close()


def test_reading_needs_no_lock_and_writes_nothing(tmp_journal):
    with Script(OWNER, tmp_journal) as owner:
        owner.line()
        before = (tmp_journal / LOCK_FILE).read_bytes()
        reader = LmdbStore(tmp_journal, read_only=True)
        assert list(reader.scan()) == [(1, [entry(1)])]
        for use in (lambda: reader.append(reader.position, [entry(2)]), reader.reopen):
            with pytest.raises(JournalError, match="read-only: open it for writing"):
                use()
        reader.close()
        assert (tmp_journal / LOCK_FILE).read_bytes() == before
        owner.finish()


def test_a_killed_reader_leaves_no_slot(tmp_journal):
    writer = open_os(tmp_journal)
    writer.append(writer.position, [entry(1)])
    source = """
    store = LmdbStore(path, read_only=True)
    txn = store._shared.opened.env.begin()
    say("reading")
    sys.stdin.read()
    """
    # The second reader keeps the table in use: LMDB begins a new one when nobody has it open.
    with Script(source, tmp_journal) as reader, Script(source, tmp_journal) as other:
        reader.line()
        other.line()
        assert str(reader.pid) in writer._shared.opened.env.readers()
        reader.kill()
        writer.reopen()
        assert str(reader.pid) not in writer._shared.opened.env.readers()
        assert str(other.pid) in writer._shared.opened.env.readers()
    writer.close()


def test_too_many_readers_is_a_clear_error_and_passes(tmp_journal):
    store = open_os(tmp_journal)
    store.append(store.position, [entry(1)])
    env = store._shared.opened.env
    readers = [env.begin() for _ in range(env.max_readers())]
    with pytest.raises(JournalAccessError, match="too many readers"):
        store.read([Location(1, 0)])
    for txn in readers:
        txn.abort()
    del readers, txn
    assert store.read([Location(1, 0)]) == [entry(1)]
    store.close()


def test_a_full_map_fails_the_commit_and_a_larger_one_goes_on(tmp_journal):
    store = open_os(tmp_journal, map_size=1 << 20)
    with pytest.raises(JournalError) as caught:
        for number in range(1, 100):
            store.append(store.position, [Entry(number, 1, 0, 0, os.urandom(50_000))])
    assert isinstance(caught.value.__cause__, lmdb.MapFullError)
    kept = list(store.scan())
    assert len(kept) == number - 1 > 0
    assert store.reopen() == Position(2, number)
    store.close()
    store = open_os(tmp_journal, map_size=1 << 30)
    store.append(store.position, [Entry(1, 1, 0, 0, bytes(1_000_000))])
    assert list(store.scan())[:-1] == kept
    store.close()


def test_an_address_space_limit_is_named(tmp_journal):
    source = """
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    try:
        LmdbStore(path)
    except JournalAccessError as error:
        say(error)
    LmdbStore(path, map_size=1 << 20).close()
    """
    (text,) = run(source, tmp_journal)
    assert "the address space of this process is limited (ulimit -v)" in text
    assert "map_size" in text
