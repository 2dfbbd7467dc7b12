"""A journal that the first Everact has written is opened, brought to this format, and goes on."""

import os
import shutil
import signal
from datetime import timedelta

import lmdb
import pytest
from support.clock import SECOND, ManualClock
from support.hosting import hosted, settled, tick
from support.journal_model import Model, make_tiny
from support.old_format import ACTIVITIES, FORMAT_1, WORKFLOWS, Adds, Breaks, unpack

from everact.exceptions import RequestIdReusedError, WorkflowFailedError, WorkflowHeldError
from everact.journal.errors import JournalVersionError
from everact.journal.fault_points import armed
from everact.journal.lmdb_format import FORMAT_KEY, META
from everact.journal.lmdb_store import LmdbStore
from everact.journal.loading import load
from everact.journal.log_record import decode_record
from everact.journal.store import Segments
from everact.journal.tables import NUMBER

from .lmdb_processes import Script


@pytest.fixture
def old(tmp_path):
    return unpack(FORMAT_1, tmp_path / "journal")


def version_of(path):
    with lmdb.open(os.fspath(path), max_dbs=32, lib_version=0, lock=False) as env:
        meta = env.open_db(META, create=False)
        with env.begin() as txn:
            return txn.get(FORMAT_KEY, db=meta)


def model_of(path):
    """What is in the log of format 1, read without any of our stores."""
    model = Model()
    with lmdb.open(os.fspath(path), max_dbs=32, lib_version=0, lock=False) as env:
        log = env.open_db(b"log0", create=False)
        with env.begin() as txn:
            for number, (key, record) in enumerate(txn.cursor(db=log), 1):
                assert NUMBER.unpack(key) == (number,)
                model.add(decode_record(record))
    return model


def clock_of(model):
    """A clock a second after the last turn."""
    return ManualClock(max(entry.at for entries in model.runs.values() for entry in entries) + SECOND)


def test_the_fixture_is_of_format_1_and_full_of_life(old):
    assert version_of(old) == b"1"
    model = model_of(old)
    assert len(model.runs) == 20
    assert len(model.requests) > 90
    assert {model.state(key).status for key in model.runs} == {"running", "completed", "failed", "terminated"}


def test_reading_alone_does_not_change_it_and_says_what_to_do(old):
    before = (old / "data.mdb").read_bytes()
    text = (
        f"the journal {str(old)!r} has format version 1, this version of Everact reads 2: "
        f"open it once with a Runtime or `everact journal compact`, which brings it to this version"
    )
    with pytest.raises(JournalVersionError) as caught:
        LmdbStore(old, read_only=True)
    assert str(caught.value) == text
    assert (old / "data.mdb").read_bytes() == before


def test_a_newer_format_is_refused_by_readers_and_writers_and_left_alone(old):
    with (
        lmdb.open(os.fspath(old), max_dbs=32, lib_version=0) as env,
        env.begin(write=True) as txn,
    ):
        txn.put(FORMAT_KEY, b"3", db=env.open_db(META, txn=txn))
    before = (old / "data.mdb").read_bytes()
    for read_only in (True, False):
        with pytest.raises(JournalVersionError, match=r"has format version 3, .* or a newer one"):
            LmdbStore(old, read_only=read_only)
    assert (old / "data.mdb").read_bytes() == before


def test_a_writer_brings_it_to_this_format_and_every_run_is_there(old):
    model = model_of(old)
    store = LmdbStore(old)
    loaded = load(store)
    model.check_index(loaded.runs, states=loaded.states)
    model.check_tables(store)
    assert loaded.states.keys() == model.open()
    assert loaded.next_key == len(model.runs) + 1
    with store.view() as tables:
        assert tables.segments == Segments(0, 1)
    store.close()
    assert version_of(old) == b"2"
    reader = LmdbStore(old, read_only=True)
    model.check_index(load(reader).runs)
    reader.close()


@pytest.mark.parametrize(
    ("point", "version"),
    [("journal.open.before", b"1"), ("journal.open.migrated", b"1"), ("journal.open.after", b"2")],
)
def test_a_kill_while_it_is_brought_to_this_format_leaves_one_or_the_other(old, point, version):
    model = model_of(old)
    for _ in range(2):
        with Script("LmdbStore(path)", old, EVERACT_FAULT=f"{point}:1") as other:
            assert other.process.wait() == -signal.SIGKILL
        assert version_of(old) == version
    store = LmdbStore(old)
    model.check_index(load(store).runs)
    store.close()
    assert version_of(old) == b"2"


def test_an_error_while_it_is_brought_to_this_format_changes_nothing(old):
    def fail():
        raise OSError(28, "No space left on device")

    with armed("journal.open.migrated", fail), pytest.raises(Exception, match="No space left"):
        LmdbStore(old)
    assert version_of(old) == b"1"
    LmdbStore(old).close()
    assert version_of(old) == b"2"


async def test_every_run_goes_on(old):
    model = model_of(old)
    clock = clock_of(model)
    async with hosted(LmdbStore(old), *WORKFLOWS, activities=ACTIVITIES, clock=clock) as runtime:
        await settled(runtime)
        for number in range(12):
            ref = runtime.ref(f"adds-{number}", Adds)
            right = [2 * number, *range(number), 2 * number]
            assert await ref.query(Adds.look) == right
            # What had been acknowledged counts once.
            await runtime.spawn(Adds, number, id=f"adds-{number}", request_id=f"start-{number}")
            if number:
                await ref.tell("add", 0, request_id=f"add-{number}-0")
                with pytest.raises(RequestIdReusedError):
                    await ref.tell("add", 5, request_id=f"add-{number}-0")
            assert await ref.ask("add_double", number, request_id=f"double-{number}") == 2 * number
            if number % 3:
                await ref.tell("add", 77)
                await ref.tell("end")
                assert await ref.result() == [*right, 77]
        assert await runtime.count_workflows(status="running") == 3
        with pytest.raises(WorkflowFailedError):
            await runtime.ref("breaks", Breaks).result()
        with pytest.raises(WorkflowHeldError, match="Renamed"):
            await runtime.ref("renamed").result()
        await tick(runtime, clock, timedelta(hours=1).total_seconds())
        assert await runtime.ref("sleeps-1").result() == "slept 1 hours"
        assert await runtime.ref("retries").result() == 7
        await tick(runtime, clock, timedelta(hours=1).total_seconds())
        assert await runtime.ref("sleeps-2").result() == "slept 2 hours"
        assert await runtime.count_workflows() == len(model.runs)


@pytest.mark.slow
async def test_its_log_is_moved_into_the_tables_and_dropped(old, monkeypatch):
    make_tiny(monkeypatch)
    clock = clock_of(model_of(old))
    copy = shutil.copytree(old, old.with_name("as it was"))
    async with hosted(LmdbStore(old), *WORKFLOWS, activities=ACTIVITIES, clock=clock) as runtime:
        ref = runtime.ref("adds-1", Adds)
        for number in range(60):
            await ref.tell("add", number)
        assert runtime._shard.compactor.error is None
    before = model_of(copy)
    store = LmdbStore(old, read_only=True)
    with store.view() as tables:
        assert tables.segments.first > 118
    model = Model()
    index = load(store).runs
    for row in sorted(index.newest_first(), key=lambda row: row.key):
        entries = index.entries(row)
        assert entries[: len(before.runs[row.key])] == before.runs[row.key]
        model.add(entries)
    assert model.runs.keys() == before.runs.keys()
    model.check_index(index)
    model.check_tables(store)
    store.close()
