"""K05, K03: readers that were killed, that are slow, that many: the data file stays flat and nobody is kept out."""

import os
import threading

import pytest

from everact.journal.errors import CommitUnknownError
from everact.journal.lmdb_store import LmdbStore
from everact.journal.reader_table import CHECK_EVERY, LONG, ReaderWatch
from everact.journal.store import Entry, Location

from .lmdb_processes import Script

#: Forks as many readers as each line says, and kills each of them in a read. It imports once for all of them.
NURSERY = """
    for line in sys.stdin:
        for _ in range(int(line)):
            told, tell = os.pipe()
            pid = os.fork()
            if not pid:
                store = LmdbStore(path, read_only=True)
                assert store.read([Location(1, 0)]) == [entry(1)]
                held = store._shared.opened.env.begin()
                os.write(tell, b"r")
                signal.pause()
            os.close(tell)
            assert os.read(told, 1) == b"r"
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(told)
        say("killed")
    """

#: A reader that goes on until it is killed.
READER = """
    store = LmdbStore(path, read_only=True)
    held = store._shared.opened.env.begin()
    say("reading")
    sys.stdin.read()
    """

MANY_READS = """
    store = LmdbStore(path, read_only=True)
    held = [store._shared.opened.env.begin() for _ in range(1000)]
    say("reading")
    sys.stdin.read()
    """


def entry(number):
    return Entry(number, number, 0, number, b"turn %d" % number)


def pages_used(store):
    return store._shared.opened.env.info()["last_pgno"]


def append(store, count):
    for _ in range(count):
        store.append(store.position, [entry(store.position.sequence)])


@pytest.fixture
def store(tmp_journal):
    store = LmdbStore(tmp_journal, durability="os")
    append(store, 1)
    yield store
    store.close()


class Nursery(Script):
    def kill_readers(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        assert self.line() == "killed"


class Steady:
    """Seconds that pass when the test says so."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(store):
    clock = Steady()
    store._readers = ReaderWatch(store.path, clock)
    return clock


@pytest.fixture(scope="module")
def flat(tmp_path_factory):
    """Pages that 10,000 records take when nobody reads, and some to spare; an old reader pins four a commit."""
    store = LmdbStore(tmp_path_factory.mktemp("flat") / "journal", durability="os")
    append(store, 10_000)
    used = pages_used(store)
    store.close()
    return used + 100


def slots(store):
    return store._shared.opened.env.info()["num_readers"]


def readers(store):
    return store._shared.opened.env.readers()


@pytest.mark.slow
def test_three_hundred_killed_readers_keep_nobody_out_and_the_file_flat(store, tmp_journal, clock, flat):
    with Nursery(NURSERY, tmp_journal) as nursery:
        nursery.kill_readers(300)
        assert slots(store) < 50  # each opening frees the slots of those before it
        clock.now += CHECK_EVERY
        append(store, 10_000)
        nursery.kill_readers(1)
        assert store.read([Location(9_000, 0)]) == [entry(9_000)]
        nursery.finish()
    assert pages_used(store) < flat
    writer = store.position.epoch
    store.close()
    again = LmdbStore(tmp_journal, durability="os")
    assert again.position.epoch == writer + 1
    again.close()


def test_a_writer_that_goes_on_frees_the_pages_of_a_killed_reader(store, tmp_journal, clock, flat):
    with Script(READER, tmp_journal) as reader:
        reader.line()
        reader.kill()
        append(store, 100)
        pinned = pages_used(store)
        assert str(reader.pid) in readers(store)
        clock.now += CHECK_EVERY
        append(store, 1)
        assert str(reader.pid) not in readers(store)
        append(store, 9_000)
    assert pages_used(store) < flat + pinned


def test_slots_of_the_killed_are_used_again_when_there_are_no_others(store, tmp_journal):
    """Without an opening and without a commit in between."""
    env = store._shared.opened.env
    with Script(MANY_READS, tmp_journal) as reader:
        reader.line()
        reader.kill()
        held = [env.begin() for _ in range(env.max_readers() - slots(store))]
        assert slots(store) == env.max_readers()
        assert store.read([Location(1, 0)]) == [entry(1)]
        assert str(reader.pid) not in readers(store)
    for txn in held:
        txn.abort()


def test_a_reader_that_never_ends_is_named_once(store, tmp_journal, clock, caplog):
    with Script(READER, tmp_journal) as reader:
        reader.line()
        append(store, 1001)
        for _ in range(30):
            clock.now += CHECK_EVERY
            append(store, 1)
            if clock.now <= LONG:
                assert not caplog.records
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert record.getMessage() == (
            f"process {reader.pid} has been reading the journal {str(tmp_journal)!r} in one go for 60 s, and its data "
            f"file grows meanwhile: wait for that process (a backup?), or stop it"
        )
        reader.kill()
        clock.now += CHECK_EVERY
        append(store, 1)
    with Script(READER, tmp_journal) as other:
        other.line()
        append(store, 1001)
        for _ in range(14):
            clock.now += CHECK_EVERY
            append(store, 1)
        assert [str(other.pid) in each.getMessage() for each in caplog.records] == [False, True]


def test_a_reader_of_few_commits_is_not_named(store, tmp_journal, clock, caplog):
    with Script(READER, tmp_journal) as reader:
        reader.line()
        for _ in range(100):
            clock.now += CHECK_EVERY
            append(store, 1)
    assert not caplog.records


def test_an_iterator_that_nobody_reads_on_holds_no_page(store, tmp_journal, flat):
    append(store, 999)
    scans = [store.scan(), LmdbStore(tmp_journal, read_only=True).scan()]
    assert [next(scan) for scan in scans] == [(1, [entry(1)])] * 2
    assert {line.split()[-1] for line in readers(store).splitlines()} == {"txnid", "-"}
    append(store, 20_000)
    assert pages_used(store) < 2 * flat + 100
    for scan in scans:
        assert [sequence for sequence, _ in scan] == list(range(2, 1001))


def test_a_full_map_with_an_open_iterator_and_a_read_in_another_thread(tmp_journal):
    """K03: the map never grows in use, so there is nothing to abort on."""
    store = LmdbStore(tmp_journal, map_size=2 << 20, durability="os")
    append(store, 200)
    scan = store.scan()
    next(scan)
    reading, full = threading.Event(), threading.Event()

    def read():
        with store._shared as opened, opened.env.begin() as txn:
            cursor = txn.cursor(db=opened.logs[0])
            cursor.first()
            reading.set()
            assert full.wait(30)
            while cursor.next():
                pass

    thread = threading.Thread(target=read)
    thread.start()
    assert reading.wait(30)
    with pytest.raises(CommitUnknownError, match="MDB_MAP_FULL"):
        while True:
            store.append(store.position, [Entry(1, 1, 0, 1, os.urandom(10_000))])
    full.set()
    thread.join()
    store.reopen()
    assert [sequence for sequence, _ in scan] == list(range(2, 201))
    store.close()
