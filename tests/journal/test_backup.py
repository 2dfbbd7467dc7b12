"""A backup is a whole journal, also of one that is being written; what is in the way is left alone."""

import os
from pathlib import Path

import pytest
from support.journals import cut, fill, make_journal, opened

from everact.journal import backup as module
from everact.journal.backup import backup
from everact.journal.errors import JournalAccessError, JournalCorruptError, NotAJournalError
from everact.journal.lmdb_store import LmdbStore
from everact.journal.stats import gather
from everact.journal.tables import Table
from everact.journal.verify import verify

from .lmdb_processes import Script

WRITER = """
    import threading
    from everact.journal import events as ev
    from everact.journal.store import STARTS_RUN

    store = LmdbStore(path, durability="os")
    stop = threading.Event()

    def listen():
        sys.stdin.readline()
        stop.set()

    listener = threading.Thread(target=listen)
    listener.start()
    key = 0
    while not stop.is_set():
        key += 1
        body = ev.encode_record(ev.Turn((ev.WorkflowStarted(f"w{key}", f"r{key}", "T"),)))
        store.append(store.position, [Entry(key, 1, STARTS_RUN, key, body)])
        if key == 200:
            say("writing")
    listener.join()
    say(key)
    store.close()
    """


def names(path):
    return sorted(place.name for place in Path(path).iterdir())


@pytest.mark.slow
def test_a_backup_while_another_process_writes(tmp_journal, tmp_path):
    with Script(WRITER, tmp_journal) as writer:
        assert writer.line() == "writing"
        done = backup(tmp_journal, tmp_path / "copy")
        again = backup(tmp_journal, tmp_path / "again")
        writer.process.stdin.write("stop\n")
        writer.process.stdin.flush()
        (written,) = writer.finish()
    assert done.report.is_sound
    assert again.report.is_sound
    assert 200 <= done.report.records <= again.report.records <= int(written)
    # Nothing of the writer was disturbed, and the copy is the beginning of what it has written.
    with opened(tmp_journal) as store, opened(done.path) as copy:
        assert verify(store).records == int(written)
        assert list(copy.scan()) == [row for row in store.scan() if row[0] <= done.report.records]
        assert copy.journal_id == store.journal_id


MOVER = """
    import threading
    from everact.journal.store import STARTS_RUN
    sys.path.insert(0, TESTS)
    from support.journals import runs_of_histories
    from support.moved_journals import Mover, many_runs, small_segments

    store = LmdbStore(path, durability="os")
    stop = threading.Event()
    listener = threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()))
    listener.start()
    with small_segments(200):
        mover = Mover(store)
        batches = [run for run in many_runs(12)]
        for number, run in enumerate(batches):
            for entry in run:
                mover.append([entry])
            if number == 100:
                say("moving")
            if number > 200 and stop.is_set():
                break
    listener.join()
    say(store.position.sequence)
    store.close()
    """


@pytest.mark.slow
def test_a_backup_while_the_log_is_moved(tmp_journal, tmp_path):
    tests = str(Path(__file__).resolve().parents[1])
    with Script(MOVER.replace("TESTS", repr(tests)), tmp_journal) as writer:
        assert writer.line() == "moving"
        copies = [backup(tmp_journal, tmp_path / f"copy-{n}") for n in range(3)]
        beside = [verified(tmp_journal) for _ in range(2)]
        writer.process.stdin.write("stop\n")
        writer.process.stdin.flush()
        writer.finish()
    assert [str(problem) for copy in copies for problem in copy.report.problems] == []
    assert [str(problem) for report in beside for problem in report.problems] == []
    assert copies[0].report.last_sequence > copies[0].report.records > 0  # most of it was moved
    with opened(copies[-1].path) as copy:
        assert gather(copy).tables["histories"].rows > 50


def verified(path):
    with opened(path) as store:
        return verify(store)


def test_a_backup_of_a_closed_journal_can_be_written(tmp_journal, tmp_path):
    make_journal(tmp_journal)
    done = backup(tmp_journal, tmp_path / "deep" / "copy")
    assert names(done.path) == ["data.mdb"]
    assert done.bytes == (tmp_path / "deep" / "copy" / "data.mdb").stat().st_size <= done.source_bytes
    assert done.report.is_sound
    copy = LmdbStore(done.path, durability="os")
    try:
        assert copy.position.sequence == done.report.last_sequence + 1
        before = copy.position
        assert copy.append(before, next(copy.scan())[1]).sequence == before.sequence + 1
    finally:
        copy.close()


def test_a_backup_beside_a_writer_of_this_process(tmp_journal, tmp_path):
    store = LmdbStore(tmp_journal, durability="os")
    try:
        fill(store)
        written = store.position.sequence - 1
        done = backup(tmp_journal, tmp_path / "copy")
        assert store.append(store.position, next(store.scan())[1]).sequence == written + 2
    finally:
        store.close()
    assert done.report.is_sound
    assert done.report.records == written


def test_the_copy_has_the_rights_of_the_journal(tmp_journal, tmp_path):
    make_journal(tmp_journal)
    (tmp_journal / "data.mdb").chmod(0o640)
    place = backup(tmp_journal, tmp_path / "copy").path
    assert Path(place).stat().st_mode & 0o777 == 0o700
    assert Path(place, "data.mdb").stat().st_mode & 0o777 == 0o640


def test_an_empty_directory_is_taken(tmp_journal, tmp_path):
    make_journal(tmp_journal)
    (tmp_path / "copy").mkdir()
    assert backup(tmp_journal, tmp_path / "copy").report.is_sound


def test_what_is_in_the_way_is_left_alone(tmp_journal, tmp_path):
    make_journal(tmp_journal)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    before = names(tmp_path)
    with pytest.raises(JournalAccessError, match="is not empty"):
        backup(tmp_journal, tmp_path / "full")
    for name in ("file", "link"):
        with pytest.raises(JournalAccessError, match="is not a directory"):
            backup(tmp_journal, tmp_path / name)
    with pytest.raises(JournalAccessError, match="is not empty"):
        backup(tmp_journal, tmp_journal)
    with pytest.raises(JournalAccessError, match="is inside the journal"):
        backup(tmp_journal, tmp_journal / "copy")
    with pytest.raises(JournalAccessError, match=r"cannot be made \(Not a directory\)"):
        backup(tmp_journal, tmp_path / "file" / "copy")
    assert names(tmp_path) == before
    assert (tmp_path / "full" / "note").read_text() == "mine"


def test_no_journal_is_no_source(tmp_path):
    with pytest.raises(NotAJournalError):
        backup(tmp_path / "nothing", tmp_path / "copy")
    assert names(tmp_path) == []


def test_a_cut_data_file_is_refused(tmp_journal, tmp_path):
    make_journal(tmp_journal)
    data = tmp_journal / "data.mdb"
    os.truncate(data, data.stat().st_size // 4)
    with pytest.raises(JournalCorruptError, match="was cut"):
        backup(tmp_journal, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_damage_is_copied_and_reported(tmp_journal, tmp_path):
    make_journal(tmp_journal)
    cut(tmp_journal, 3)
    done = backup(tmp_journal, tmp_path / "copy")
    assert [problem.sequence for problem in done.report.problems if not problem.run_key] == [3]


def test_a_backup_that_fails_leaves_nothing(tmp_journal, tmp_path, monkeypatch):
    make_journal(tmp_journal)

    def fail(*_):
        raise OSError(28, "No space left on device")

    before = names(tmp_path)
    monkeypatch.setattr(module, "verify", fail)
    with pytest.raises(JournalAccessError, match="No space left"):
        backup(tmp_journal, tmp_path / "copy")
    assert names(tmp_path) == before


def test_a_copy_beside_a_busy_writer_says_how_much_the_data_file_grew(tmp_journal, tmp_path, monkeypatch):
    make_journal(tmp_journal)
    original = module._copy
    store = LmdbStore(tmp_journal, durability="os")

    def copy(reader, place):
        original(reader, place)
        store.append(
            store.position, [], lambda changes: changes.put(Table.BLOBS, [(b"x", os.urandom(1_000_000))])
        )

    monkeypatch.setattr(module, "_copy", copy)
    try:
        done = backup(tmp_journal, tmp_path / "first")
        assert done.grown_bytes >= 1_000_000
        assert done.seconds > 0
        assert done.warning == ""
        monkeypatch.setattr(module, "GROWN", 1_000)
        assert done.warning.startswith(
            f"the data file grew by {done.grown_bytes:,} bytes in the 0 s in which it was"
        )
        monkeypatch.setattr(module, "_copy", original)
        quiet = backup(tmp_journal, tmp_path / "second")
        assert (quiet.grown_bytes, quiet.warning) == (0, "")
    finally:
        store.close()
