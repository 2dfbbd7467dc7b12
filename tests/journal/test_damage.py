"""Damage in the file: what is broken is named, what is whole goes on, and nothing hangs."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import lmdb
import pytest
from support.hosting import hosted, settled
from support.journal_model import make_full_journal, make_tiny, segments_of, use_everything
from support.stores import DelegatingStore

from everact import workflow
from everact.exceptions import WorkflowHeldError
from everact.journal.errors import JournalCorruptError, JournalError
from everact.journal.lmdb_format import LOGS
from everact.journal.lmdb_store import LmdbStore
from everact.journal.loading import load
from everact.journal.tables import DEDUPE, NUMBER, Table, text_hash

TESTS = Path(__file__).parents[1]

#: What an error about each table must say; those whose rows are only hints, or have no values, or repeat what the
#: histories have, are not here.
NAMED = {
    Table.HISTORIES: r"the history of run \d+ from event \d+ on cannot be read",
    Table.RUNS: r"run \d+ in the table of runs cannot be read",
    Table.DEDUPE_0: r"what the request id '\w+' of workflow 'wf-\d+' has become cannot be read",
    Table.DEDUPE_1: r"what the request id '\w+' of workflow 'wf-\d+' has become cannot be read",
    Table.FACTS: r"the (facts about the tables|dictionary \d+ of the histories) cannot be read",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A journal with something in both segments and in every table; never opened by a test."""
    path = tmp_path_factory.mktemp("made") / "journal"
    with pytest.MonkeyPatch.context() as patch:
        make_tiny(patch)
        return path, make_full_journal(path)


@pytest.fixture
def journal(made, tmp_path, monkeypatch):
    make_tiny(monkeypatch)
    return shutil.copytree(made[0], tmp_path / "journal"), made[1]


@contextmanager
def database(path, name):
    with (
        lmdb.open(os.fspath(path), max_dbs=32, lib_version=0, map_size=1 << 30) as env,
        env.begin(write=True) as txn,
    ):
        yield txn, env.open_db(name, txn=txn, create=False)


def values_of(path, name):
    with database(path, name) as (txn, db):
        return list(txn.cursor(db=db))


def flip(path, name, key, value, place):
    damaged = bytearray(value)
    damaged[place] ^= 0x10
    with database(path, name) as (txn, db):
        assert txn.put(key, bytes(damaged), db=db)


def in_memory(path):
    """Keys of the rows of request ids that start-up finds in the log."""
    store = LmdbStore(path, durability="os", read_only=True)
    try:
        overlay = load(store).runs.requests
        return {text_hash(store.journal_id, *name) for name in overlay._requests}
    finally:
        store.close()


@pytest.mark.slow
@pytest.mark.parametrize("table", NAMED, ids=lambda table: table.value)
def test_a_damaged_value_is_named_and_never_believed(made, tmp_path, table):
    source, model = made
    path = shutil.copytree(source, tmp_path / "journal")
    name = table.value.encode()
    rows = values_of(path, name)
    if table is not Table.DEDUPE_1:
        assert rows
    # The log may have a request too, of a run that was moved early; then its row is not read.
    rows = [row for row in rows if table not in DEDUPE or row[0] not in in_memory(path)]
    for number, (key, value) in enumerate(rows[:: max(1, len(rows) // 8)]):
        flip(path, name, key, value, (0, len(value) // 2, len(value) - 1)[number % 3])
        store = LmdbStore(path, durability="os")
        try:
            refused = use_everything(store, model)
        except JournalCorruptError as error:  # start-up needs it
            refused = [str(error)]
        finally:
            store.close()
        # Of a dictionary there is a copy: nothing is refused without it.
        assert bool(refused) != key.startswith(b"dictionary "), (key, value)
        for text in refused:
            assert re.search(NAMED[table], text), text
        with database(path, name) as (txn, db):
            txn.put(key, value, db=db)
    store = LmdbStore(path, durability="os")
    assert use_everything(store, model) == []
    store.close()


@pytest.mark.slow
def test_a_damaged_snapshot_is_done_without(made, tmp_path, caplog):
    source, model = made
    path = shutil.copytree(source, tmp_path / "journal")
    name = Table.OPEN.value.encode()
    rows = values_of(path, name)
    for number, (key, value) in enumerate(rows):
        flip(path, name, key, value, (0, len(value) // 2, len(value) - 1)[number % 3])
    store = LmdbStore(path, durability="os")
    assert use_everything(store, model) == []
    store.close()
    assert "in the table of open runs cannot be read, its history is read instead: " in caplog.text


@pytest.mark.parametrize("log", LOGS, ids=["log0", "log1"])
def test_a_damaged_commit_record_is_named_at_start_up(journal, log):
    path, _model = journal
    for key, value in values_of(path, log):
        flip(path, log, key, value, len(value) // 2)
        store = LmdbStore(path, durability="os")
        with pytest.raises(JournalCorruptError) as caught:
            load(store)
        store.close()
        place = f"commit record {NUMBER.unpack(key)[0]} of the journal {str(path)!r} cannot be read: "
        assert str(caught.value).startswith(place)
        with database(path, log) as (txn, db):
            txn.put(key, value, db=db)


# --- while a journal is in use


@workflow.defn
class Adds:
    def __init__(self) -> None:
        self.numbers: list[int] = []

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: -1 in self.numbers)
        return len(self.numbers)

    @workflow.signal
    def add(self, n: int) -> None:
        self.numbers.append(n)


def about_damage(caplog):
    return [r.getMessage() for r in caplog.records if "no longer moved into the tables" in r.getMessage()]


class Damaged(DelegatingStore):
    """An open LMDB store whose log or tables are damaged behind its back."""

    def damage(self, name, choose):
        opened = self.inner._shared.opened
        db = opened.logs[LOGS.index(name)] if name in LOGS else opened.tables[Table(name.decode())]
        with opened.env.begin(write=True) as txn:
            key, value = choose(list(txn.cursor(db=db)))
            damaged = bytearray(value)
            damaged[len(damaged) // 2] ^= 0x10
            txn.put(key, bytes(damaged), db=db)
        self.inner._cache.clear()
        return key


async def use(runtime, refs, rounds):
    for number in range(rounds):
        for ref in refs:
            await ref.tell(Adds.add, number)


async def sealed(runtime, refs, store):
    """Go on until there is a sealed segment that is not moved yet."""
    for _ in range(200):
        await use(runtime, refs[:1], 1)
        if segments_of(store).sealed:
            return
    raise AssertionError("no segment was sealed")


async def test_a_damaged_sealed_record_stops_compaction_with_one_line_and_nothing_else(
    tmp_journal, monkeypatch, caplog
):
    make_tiny(monkeypatch, WINDOW=40, CROWD=1000)
    store = Damaged(LmdbStore(tmp_journal, durability="os"))
    async with hosted(store, Adds) as runtime:
        refs = [await runtime.spawn(Adds, id=f"a-{n}") for n in range(5)]
        await sealed(runtime, refs, store)
        with store.view() as tables:
            log = LOGS[tables._layout()[0] ^ 1]
        key = store.damage(log, lambda rows: rows[-1])
        await use(runtime, refs, 20)
        for ref in refs[:1]:
            await ref.tell(Adds.add, -1)
            assert await ref.result() > 20
        other = await runtime.spawn(Adds, id="later")
        await use(runtime, [other], 3)
        assert await runtime.count_workflows() == 6
        assert (await runtime.ref("a-1", Adds).describe()).status == "running"
    (line,) = about_damage(caplog)
    assert f"commit record {NUMBER.unpack(key)[0]} of the journal" in line


async def test_a_damaged_history_stops_compaction_and_the_others_can_be_read(
    tmp_journal, monkeypatch, caplog
):
    make_tiny(monkeypatch, WINDOW=20, CROWD=1000, MERGE_BELOW=100_000)
    store = Damaged(LmdbStore(tmp_journal, durability="os"))
    async with hosted(store, Adds) as runtime:
        refs = [await runtime.spawn(Adds, id=f"a-{n}") for n in range(5)]
        while not about_tables(store, Table.HISTORIES):
            await use(runtime, refs, 1)
        key = store.damage(b"histories", lambda rows: rows[0])
        broken = NUMBER.unpack_from(key)[0]
        await use(runtime, refs, 30)
        assert len(about_damage(caplog)) == 1
        assert f"the history of run {broken} from event 1 on cannot be read" in about_damage(caplog)[0]
        for ref in refs:
            row = runtime._shard.index.find(ref.workflow_id)
            if row.key == broken:
                with pytest.raises(JournalCorruptError, match=f"the history of run {broken} from event"):
                    await ref.fetch_history()
            else:
                assert len((await ref.fetch_history()).events) > 30
        await settled(runtime)


def about_tables(store, table):
    with store.view() as tables:
        return list(tables.scan(table))


async def test_pages_that_lmdb_refuses_stop_compaction_and_the_writer_goes_on(
    tmp_journal, monkeypatch, caplog
):
    """LMDB ends a transaction that meets such a page: the commit fails once, not for ever."""
    make_tiny(monkeypatch, WINDOW=20, CROWD=1000)
    monkeypatch.setattr("everact.actors.rebuilding.FIRST_PAUSE", 0.001)
    store = LmdbStore(tmp_journal, durability="os")

    def refuse(self, table, items):
        if items and table is Table.HISTORIES:
            raise self._damaged(table, lmdb.CorruptedError("Located page was wrong type"))
        real(self, table, items)

    from everact.journal.lmdb_tables import LmdbChanges

    real = LmdbChanges.put
    async with hosted(store, Adds) as runtime:
        refs = [await runtime.spawn(Adds, id=f"a-{n}") for n in range(5)]
        monkeypatch.setattr(LmdbChanges, "put", refuse)
        failed = 0
        for number in range(60):
            try:
                await refs[number % 5].tell(Adds.add, number, request_id=f"r-{number}")
            except JournalError:
                failed += 1
                await refs[number % 5].tell(Adds.add, number, request_id=f"r-{number}")
        assert failed == 1
        for ref in refs:
            await ref.tell(Adds.add, -1)
            assert await ref.result() == 13
    assert len(about_damage(caplog)) == 1
    assert "the table 'histories' of the journal" in about_damage(caplog)[0]


# --- between two lives


async def four_runs(path):
    """A journal that was left with four open runs in its tables."""
    async with hosted(LmdbStore(path, durability="os"), Adds) as runtime:
        refs = [await runtime.spawn(Adds, id=f"a-{n}") for n in range(4)]
        for number in range(30):
            for ref in refs:
                await ref.tell(Adds.add, number, request_id=f"r-{number}")


def damage_first(path, table):
    key, value = values_of(path, table.value.encode())[0]
    flip(path, table.value.encode(), key, value, len(value) // 2)
    return key


async def test_a_run_with_a_damaged_history_is_held_and_the_others_go_on(tmp_journal, monkeypatch):
    make_tiny(monkeypatch, WINDOW=20, CROWD=1000)
    await four_runs(tmp_journal)
    damage_first(tmp_journal, Table.HISTORIES)
    async with hosted(LmdbStore(tmp_journal, durability="os"), Adds) as runtime:
        assert await runtime.count_workflows(status="running") == 4
        broken, *others = (runtime.ref(f"a-{n}", Adds) for n in range(4))
        await broken.tell(Adds.add, 77)
        with pytest.raises(WorkflowHeldError, match="the history of run 1 from event 1 on cannot be read"):
            await broken.result()
        for ref in others:
            await ref.tell(Adds.add, 0, request_id="r-0")  # a repeat
            await ref.tell(Adds.add, -1)
            assert await ref.result() == 31
        await runtime.spawn(Adds, id="later")
        assert (await broken.describe()).status == "held"


async def test_what_start_up_needs_is_named_when_it_is_damaged(tmp_journal, monkeypatch):
    make_tiny(monkeypatch, WINDOW=20, CROWD=1000)
    await four_runs(tmp_journal)
    name = Table.FACTS.value.encode()
    flip(tmp_journal, name, b"facts", dict(values_of(tmp_journal, name))[b"facts"], 9)
    for _ in range(2):
        with pytest.raises(JournalCorruptError, match=NAMED[Table.FACTS]):
            async with hosted(LmdbStore(tmp_journal, durability="os"), Adds):
                pass


async def test_a_run_goes_on_without_its_row_in_the_table_of_runs(tmp_journal, monkeypatch, caplog):
    make_tiny(monkeypatch, WINDOW=20, CROWD=1000)
    await four_runs(tmp_journal)
    damage_first(tmp_journal, Table.RUNS)
    async with hosted(LmdbStore(tmp_journal, durability="os"), Adds) as runtime:
        for number in range(4):
            ref = runtime.ref(f"a-{number}", Adds)
            await ref.tell(Adds.add, 0, request_id="r-0")  # a repeat
            await ref.tell(Adds.add, -1)
            assert await ref.result() == 31
    assert re.search(NAMED[Table.RUNS], caplog.text)


async def test_a_damaged_row_of_ids_hides_no_run(tmp_journal, monkeypatch):
    make_tiny(monkeypatch, WINDOW=20, CROWD=1000)
    await four_runs(tmp_journal)
    damage_first(tmp_journal, Table.IDS)
    async with hosted(LmdbStore(tmp_journal, durability="os"), Adds) as runtime:
        for number in range(4):
            ref = runtime.ref(f"a-{number}", Adds)
            await ref.tell(Adds.add, -1)
            assert await ref.result() == 31


# --- whole pages


@pytest.mark.slow
def test_a_page_of_zeros_is_refused_or_ends_the_process_and_never_gives_wrong_answers(tmp_path):
    """Some of LMDB's own checks of pages abort the process; py-lmdb has no way to catch them."""
    program = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "support.zeroed_pages", os.fspath(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.fspath, (TESTS.parent, TESTS)))},
        cwd=TESTS.parent,
        capture_output=True,
        check=True,
    )
    said = json.loads(program.stdout)
    assert {page: text for page, text in said.items() if text.startswith("WRONG")} == {}
    allowed = re.compile(
        r"whole|ended by signal 6|refused: .*"
        r"(the data file of the journal .* is damaged|is not an LMDB file|cannot be read|cannot be opened)"
    )
    assert {page: text for page, text in said.items() if not allowed.match(text)} == {}
    assert sum(text.startswith("refused") for text in said.values()) >= 5
    assert sum(text == "whole" for text in said.values()) >= 5
