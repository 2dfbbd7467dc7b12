"""The data file is written anew while the journal is in use; there is always one file, whole, under its name."""

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from everact.journal import rewrite as room
from everact.journal import swap
from everact.journal.errors import (
    CommitUnknownError,
    JournalAccessError,
    JournalClosedError,
    JournalError,
    JournalFullError,
)
from everact.journal.fault_points import FAULT_POINTS, armed
from everact.journal.lmdb_store import LmdbStore
from everact.journal.rewrite import rewrite
from everact.journal.space import Space
from everact.journal.store import Entry, Location
from everact.journal.tables import NUMBER, Table

from .lmdb_processes import Script, run

POINTS = [point for point in FAULT_POINTS if point.startswith("rewrite.")]


def entry(number):
    return Entry(number, number, 0, number, b"turn %d" % number)


def append(store, records=1):
    for _ in range(records):
        store.append(store.position, [entry(store.position.sequence)])


def change(store, changes):
    store.append(store.position, [], changes)


def fill(store, rows=2000):
    """A record each in both segments, rows in two tables, and many free pages."""
    append(store, 5)
    change(store, lambda changes: changes.seal())
    append(store, 5)
    many = [(NUMBER.pack(n), os.urandom(2000)) for n in range(rows)]
    change(store, lambda changes: changes.put(Table.HISTORIES, many))
    change(store, lambda changes: changes.put(Table.RUNS, [(NUMBER.pack(n), b"run") for n in range(50)]))
    change(store, lambda changes: changes.remove(Table.HISTORIES, b"\0", NUMBER.pack(rows - 100), rows))


def content(store):
    with store.view() as tables:
        rows = {table: list(tables.scan(table)) for table in Table}
        segments = tables.segments
    return store.journal_id, store.position.sequence, segments, list(store.scan()), rows


def left_over(path):
    return {place.name for place in Path(path).iterdir()} - {"data.mdb", "lock.mdb", "everact.lock"}


@pytest.fixture
def store(tmp_journal):
    store = LmdbStore(tmp_journal, durability="os")
    fill(store)
    yield store
    store.close()


def test_the_file_shrinks_and_holds_the_same(store, tmp_journal):
    before = content(store)
    size = (tmp_journal / "data.mdb").stat().st_size
    seen = []
    done = rewrite(store, lambda done, of: seen.append((done, of)))
    assert done.bytes_before == size
    assert done.bytes_after == (tmp_journal / "data.mdb").stat().st_size < size / 4
    assert seen[-1][0] == seen[-1][1]
    assert content(store) == before
    assert left_over(tmp_journal) == set()
    append(store, 3)
    after = content(store)
    store.close()
    again = LmdbStore(tmp_journal, durability="os")
    assert content(again) == after
    append(again)
    again.close()


def test_the_writer_goes_on_with_the_position_it_has(store):
    position = store.position
    rewrite(store)
    assert store.position == position
    assert store.append(position, [entry(1)]) == position._replace(sequence=position.sequence + 1)


def test_the_file_keeps_its_rights(store, tmp_journal):
    data = tmp_journal / "data.mdb"
    data.chmod(0o640)
    rewrite(store)
    assert data.stat().st_mode & 0o777 == 0o640


def during_copy(monkeypatch, act, passes=3):
    """Let ``act`` happen between two pieces of the copy, which has 17 of them."""
    monkeypatch.setattr(room, "PIECE_ROWS", 10)
    count = room._Copy._count
    left = passes

    def counted(self, rows, size):
        nonlocal left
        left -= 1
        count(self, rows, size)
        if not left:
            thread = threading.Thread(target=act)  # a commit never comes from the copy's thread
            thread.start()
            thread.join(20)

    monkeypatch.setattr(room._Copy, "_count", counted)


@pytest.mark.parametrize("passes", [1, 2, 4, 12, 17])
def test_what_is_written_meanwhile_is_in_the_copy(store, monkeypatch, passes):
    def act():
        append(store, 100)
        change(store, lambda changes: changes.put(Table.HISTORIES, [(NUMBER.pack(5), b"new")]))
        change(store, lambda changes: changes.put(Table.HISTORIES, [(NUMBER.pack(1990), b"changed")]))
        change(store, lambda changes: changes.delete(Table.RUNS, [NUMBER.pack(3), NUMBER.pack(40)]))
        change(
            store, lambda changes: changes.remove(Table.HISTORIES, NUMBER.pack(1920), NUMBER.pack(1930), 5)
        )
        before.append(content(store))

    before = []
    during_copy(monkeypatch, act, passes)
    rewrite(store)
    assert content(store) == before[0]


@pytest.mark.parametrize("what", ["seal", "drop", "clear"])
def test_it_begins_again_when_the_log_moves_on(store, monkeypatch, what):
    def act():
        if what == "clear":
            change(store, lambda changes: changes.clear(Table.RUNS))
        else:
            change(store, lambda changes: changes.drop_sealed())
        if what == "seal":
            append(store)
            change(store, lambda changes: changes.seal())
        before.append(content(store))

    before = []
    during_copy(monkeypatch, act, 8)
    rewrite(store)
    assert content(store) == before[0]
    assert left_over(store.path) == set()


def test_it_gives_up_when_the_log_moves_on_all_the_time(store, monkeypatch):
    monkeypatch.setattr(room._Copy, "finish", lambda _self: moved())

    def moved():
        raise room._MovedError

    before = content(store)
    with pytest.raises(
        JournalAccessError, match="was not compacted, its log moved on 3 times meanwhile: try again"
    ):
        rewrite(store)
    assert content(store) == before
    assert left_over(store.path) == set()


def test_commits_go_on_while_it_copies(store, monkeypatch):
    """An append comes between any two pieces, and none waits for the copy."""
    monkeypatch.setattr(room, "PIECE_ROWS", 20)
    stop = threading.Event()
    times = []

    def write():
        while not stop.is_set():
            append(store)
            times.append(store.position.sequence)

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(5):
        rewrite(store)
    stop.set()
    thread.join()
    assert len(times) > 5
    assert [sequence for sequence, _ in store.scan()] == list(range(1, store.position.sequence))


def test_only_one_at_a_time(store):
    error = []

    def again():
        with pytest.raises(JournalError, match="is being compacted already: wait for that") as caught:
            rewrite(store)
        error.append(caught)

    with armed("rewrite.begun", again):
        rewrite(store)
    assert error
    rewrite(store)


def test_a_read_only_store_refuses(store):
    reader = LmdbStore(store.path, read_only=True)
    with pytest.raises(JournalError, match="was opened read-only: open it for writing to compact"):
        rewrite(reader)
    reader.close()


def test_without_room_for_the_copy_nothing_is_begun(store, monkeypatch):
    monkeypatch.setattr(store, "space", lambda: Space(8 << 20, 16 << 20, disk_free=5 << 20))
    with pytest.raises(
        JournalAccessError,
        match=r"the copy needs 13,107,200 bytes, and its disk has 5,242,880 free: make room",
    ):
        rewrite(store)
    assert left_over(store.path) == set()


@pytest.mark.parametrize("point", ["rewrite.begun", "rewrite.copied", "rewrite.ready", "rewrite.unlinked"])
def test_a_disk_that_fails_leaves_the_journal_as_it_was(store, point):
    def fail():
        raise OSError(28, "No space left on device")

    before = content(store)
    with armed(point, fail), pytest.raises(JournalError, match="No space left"):
        rewrite(store)
    assert left_over(store.path) == set()
    assert content(store) == before
    append(store)
    rewrite(store)
    append(store)


def test_a_commit_that_fails_meanwhile(store, monkeypatch):
    def fail():
        raise OSError("the disk is on fire")

    def act():
        with armed("journal.commit.written", fail), suppress(CommitUnknownError):
            append(store)

    during_copy(monkeypatch, act)
    with pytest.raises(
        JournalAccessError, match="was not compacted, as a commit failed meanwhile: try again"
    ):
        rewrite(store)
    store.reopen()
    append(store)
    rewrite(store)


def test_a_writer_that_is_opened_anew_meanwhile(store, monkeypatch):
    during_copy(monkeypatch, lambda: (store.reopen(), append(store, 3), before.append(content(store))))
    before = []
    rewrite(store)
    assert content(store) == before[0]
    position = store.position
    append(store)
    assert store.position == position._replace(sequence=position.sequence + 1)


def test_a_store_that_is_closed_meanwhile(store, tmp_journal, monkeypatch):
    before = content(store)
    during_copy(monkeypatch, store.close)
    with pytest.raises(JournalClosedError):
        rewrite(store)
    assert left_over(tmp_journal) == set()
    again = LmdbStore(tmp_journal, durability="os")
    assert content(again) == before
    again.close()


# --- kills --------------------------------------------------------------------------------------------------------

REWRITES = """
    import threading
    from everact.journal.rewrite import rewrite
    store = LmdbStore(path)
    def append():
        position = store.position
        store.append(position, [entry(position.sequence)])
        say(position.sequence)
    append()
    thread = threading.Thread(target=lambda: [append() for _ in range(20)])
    thread.start()
    rewrite(store)
    thread.join()
    append()
    store.close()
    say("end")
    """


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("reader", [False, True], ids=["", "read before it is opened again"])
def test_a_kill_leaves_one_whole_file_under_the_name(store, tmp_journal, point, reader):
    before = content(store)
    store.close()
    acknowledged = []
    for _ in range(2):
        with Script(REWRITES, tmp_journal, EVERACT_FAULT=f"{point}:1") as script:
            acknowledged += map(int, script.process.stdout.read().split())
            assert script.process.wait() == -signal.SIGKILL
        if reader:
            check(tmp_journal, before, acknowledged, read_only=True)
    check(tmp_journal, before, acknowledged, read_only=False)
    assert left_over(tmp_journal) == set()
    assert run(REWRITES, tmp_journal)[-1] == "end"
    assert left_over(tmp_journal) == set()


def check(path, before, acknowledged, *, read_only):
    store = LmdbStore(path, read_only=read_only)
    journal_id, _sequence, segments, records, rows = content(store)
    assert (journal_id, segments, rows) == (before[0], before[2], before[4])
    assert records[: len(before[3])] == before[3]
    sequences = [sequence for sequence, _ in records]
    assert sequences == list(range(1, len(sequences) + 1))
    assert set(acknowledged) <= set(sequences)
    assert (
        len(sequences) - len(before[3]) <= len(acknowledged) + 2
    )  # a commit of each life had no time to say so
    store.close()


def test_an_unfinished_swap_is_carried_out_where_readers_keep_the_files_open(store, tmp_journal):
    """A reader in this process keeps the environment open, as the last writer here had opened it."""
    reader = LmdbStore(tmp_journal, read_only=True)
    store.close()
    with Script(REWRITES, tmp_journal, EVERACT_FAULT="rewrite.ready:1") as script:
        script.process.wait()
    writer = LmdbStore(tmp_journal, durability="os")
    assert left_over(tmp_journal) == set()
    append(writer)
    assert content(reader) == content(writer)
    sequence = writer.position.sequence
    writer.close()
    reader.close()
    again = LmdbStore(tmp_journal, read_only=True)
    assert again.position.sequence == sequence
    again.close()


# --- other processes and stores -----------------------------------------------------------------------------------

READER = """
    store = LmdbStore(path, read_only=True)
    for line in sys.stdin:
        records = list(store.scan())
        assert [sequence for sequence, _ in records] == list(range(1, len(records) + 1))
        say(len(records))
    """


def ask(script):
    script.process.stdin.write("\n")
    script.process.stdin.flush()
    return int(script.line())


def test_a_reader_in_another_process_sees_the_new_file(store, tmp_journal):
    with Script(READER, tmp_journal) as reader:
        assert ask(reader) == 10
        for expected in range(11, 14):
            rewrite(store)
            append(store)
            assert ask(reader) == expected


def test_readers_in_this_process_go_on(store):
    reader = LmdbStore(store.path, read_only=True)
    scanning = reader.scan()
    next(scanning)
    rewrite(store)
    append(store)
    assert len(list(scanning)) == 9
    assert content(reader) == content(store)
    assert reader.read([Location(11, 0)]) == [entry(11)]
    reader.close()


def test_a_long_read_keeps_the_old_file(store, tmp_journal):
    source = """
        from everact.journal.tables import Table
        store = LmdbStore(path, read_only=True)
        with store.view() as tables:
            before = list(tables.scan(Table.HISTORIES))
            say("reading")
            sys.stdin.readline()
            assert list(tables.scan(Table.HISTORIES)) == before
        say("same")
        """
    with Script(source, tmp_journal) as reader:
        assert reader.line() == "reading"
        rewrite(store)
        change(store, lambda changes: changes.clear(Table.HISTORIES))
        rows = [(NUMBER.pack(n), b"x" * 900) for n in range(99)]
        for _ in range(20):
            change(store, lambda changes: changes.put(Table.HISTORIES, rows))
        assert store.space().used < 1 << 20  # it does not hold up the new file's pages either
        reader.process.stdin.write("\n")
        reader.process.stdin.flush()
        assert reader.line() == "same"


def test_a_writer_here_follows_what_a_writer_elsewhere_has_done(store, tmp_journal):
    """The environment stays open for a reader while another process writes the file anew and appends to it."""
    reader = LmdbStore(tmp_journal, read_only=True)
    store.close()
    acknowledged = run(REWRITES, tmp_journal)[:-1]
    again = LmdbStore(tmp_journal, durability="os")
    assert again.position.sequence == int(acknowledged[-1]) + 1
    append(again)
    assert content(reader)[3] == content(again)[3]
    again.close()
    reader.close()
    assert (
        int(run("say(LmdbStore(path, read_only=True).position.sequence)", tmp_journal)[0])
        == int(acknowledged[-1]) + 2
    )


def test_a_process_that_never_finishes_opening_is_named(store, tmp_journal, monkeypatch):
    monkeypatch.setattr(swap, "PATIENCE", 0.0)
    before = content(store)
    with swap.openers(store.path):
        with pytest.raises(
            JournalAccessError, match=r"another process has been opening the journal .* \(`fuser -v"
        ):
            rewrite(store)
        append(store)
        assert left_over(tmp_journal) == set()
    assert content(store)[4] == before[4]
    rewrite(store)


def test_a_process_that_begins_to_open_at_the_swap_keeps_the_old_file(store, tmp_journal, monkeypatch):
    """It came between the look for such processes and the swap."""
    monkeypatch.setattr(swap, "PATIENCE", 0.0)
    before = content(store)
    holding = swap.openers(store.path)
    with (
        armed("rewrite.ready", lambda: holding.__enter__()),
        pytest.raises(JournalAccessError, match="opening"),
    ):
        rewrite(store)
    assert left_over(tmp_journal) == set()
    assert content(store) == before
    append(store)
    holding.__exit__(None, None, None)
    rewrite(store)
    append(store)


def test_a_quota_holds_for_the_new_file(tmp_journal):
    store = LmdbStore(tmp_journal, durability="os", map_size=16 << 20)
    fill(store)
    rewrite(store)
    assert store.space().limit == 16 << 20
    with pytest.raises((CommitUnknownError, JournalFullError)):
        for _ in range(9000):
            change(
                store,
                lambda changes: changes.put(Table.RUNS, [(os.urandom(8), b"x" * 3000) for _ in range(99)]),
            )
    store.close()


class AskedFor:
    """A mutex that says when a second thread comes."""

    def __init__(self, inner, asked):
        self.inner = inner
        self.asked = asked

    def __enter__(self):
        if self.inner.locked():
            self.asked.set()
        self.inner.acquire()

    def __exit__(self, *_error):
        self.inner.release()


def test_what_is_half_way_through_its_commit_is_not_taken_for_copied(tmp_journal, monkeypatch):
    """Its keys are noted before the commit; read then, they have their old values, and nobody notes them again."""
    store = LmdbStore(tmp_journal, durability="os")
    fill(store, 100)
    half_way, looked = threading.Event(), threading.Event()
    store._mutex = AskedFor(store._mutex, looked)

    def write():
        def wait():
            half_way.set()
            assert looked.wait(20)

        with armed("journal.commit.written", wait):
            change(store, lambda changes: changes.put(Table.BLOBS, [(b"address", b"large")]))

    writer = threading.Thread(target=write)
    catch_up = room._Copy._catch_up

    def caught_up(copy, *args):
        if (
            copy._store._mutex.inner.locked() and not looked.is_set()
        ):  # what was to be copied is known already
            copied = catch_up(copy, *args)
            looked.set()
            writer.join()
            return copied
        return catch_up(copy, *args)

    monkeypatch.setattr(room._Copy, "_catch_up", caught_up)
    with armed("rewrite.begun", lambda: (writer.start(), half_way.wait(20))):
        rewrite(store)
    writer.join()
    with store.view() as tables:
        assert tables.get(Table.BLOBS, b"address") == b"large"
    store.close()
