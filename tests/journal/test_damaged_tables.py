"""Damage to rows and to whole pages of each table: it is named, and all that is whole is still read."""

import random
import re
import shutil

import msgspec
import pytest
from support.journals import entries_of, opened
from support.moved_journals import (
    Mover,
    flip_row,
    make_moved_journal,
    many_runs,
    move,
    put,
    rows_of,
    small_segments,
    spoil_page,
)

from everact.journal import events as ev
from everact.journal import run_walk
from everact.journal.backup import backup
from everact.journal.blobs import Spiller
from everact.journal.errors import JournalCorruptError, JournalError
from everact.journal.export import export_runs
from everact.journal.facts import Facts, facts_row, read_facts
from everact.journal.fold import RunState
from everact.journal.history_values import HistoryCodec, copy_key, plain_text
from everact.journal.importing import import_runs
from everact.journal.lmdb_salvage import SalvageStore, damaged_pages, past_damage
from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryStore
from everact.journal.outbox import Outbox, acknowledge, write_messages
from everact.journal.request_ids import Request, encode_request
from everact.journal.run_chain import RunLinks
from everact.journal.snapshots import decode_state, encode_open, sealed
from everact.journal.stats import gather
from everact.journal.store import HAS_REQUEST, Entry, Location
from everact.journal.stored_runs import StoredRun, decode_run, encode_run
from everact.journal.tables import EVENT, NUMBER, PAIR, Table, closed_key, text_hash
from everact.journal.upkeep import Upkeep
from everact.journal.verify import verify

from .lmdb_processes import Script

PAGE_DAMAGE = ["zeros", "noise", "head", "rows"]
TABLES = ["histories", "runs", "ids", "open", "due", "closed", "dedupe0"]


def waiting_runs(first_key, number):
    """Open runs with a timer each."""
    start = ev.WorkflowStarted("", "", "Waits")
    return [
        entries_of(
            [(100, ev.Turn((start,), (ev.TimerStarted(1, 50, 5000 + n),)))], first_key + n, run_id=f"t{n}"
        )
        for n in range(number)
    ]


def is_sealed(store):
    with store.view() as tables:
        return bool(tables.segments.sealed)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A journal with many runs, and its documents by run id."""
    path = tmp_path_factory.mktemp("whole") / "journal"
    runs = many_runs(2)
    store = LmdbStore(path, durability="os")
    waiting = waiting_runs(len(runs) + 1, 112)
    mover = move(store, [*runs, *waiting[:12]])
    del waiting[:12]
    with small_segments(40):
        while is_sealed(store):
            mover.append(waiting.pop(0))
        while not is_sealed(store):
            mover.append(waiting.pop(0))
        for _ in range(3):  # a few records for the other segment, while this one is being moved
            mover.append(waiting.pop(0))
    assert is_sealed(store)
    store.close()
    with opened(path) as store:
        assert verify(store).problems == []
        return path, documents(store)


@pytest.fixture
def journal(whole, tmp_journal):
    shutil.copytree(whole[0], tmp_journal)
    return tmp_journal


def documents(store, left_out=None, damaged=None):
    found = export_runs(
        store,
        left_out=([] if left_out is None else left_out).append,
        damaged=([] if damaged is None else damaged).append,
        moved=pytest.fail,
    )
    return {document["run_id"]: document for document in found}


def middle(path, table):
    rows = rows_of(path, table)
    return rows[len(rows) // 2][0]


def problems(path):
    with opened(path) as store:
        return [str(problem) for problem in verify(store).problems]


def test_runs_are_in_all_places(whole):
    path, exported = whole
    with opened(path) as store:
        report, stats = verify(store), gather(store)
        with store.view() as tables:
            in_tables = {NUMBER.unpack(key)[0] for key, _ in tables.scan(Table.RUNS)}
            unfinished = {NUMBER.unpack(key)[0] for key, _ in tables.scan(Table.OPEN)}
        in_log = {entry.run_key for _, entries in store.scan() for entry in entries}
    assert in_tables - in_log
    assert in_tables & in_log & unfinished
    assert in_log
    assert report.runs == len(exported) == sum(sum(each.values()) for each in stats.runs.values())
    assert report.entries == stats.entries > 0
    assert report.events == stats.events > report.entries
    assert stats.first_sequence > 1
    assert stats.dictionary > 0
    assert stats.tables["runs"].rows == len(in_tables)
    assert stats.tables["histories"].bytes > stats.tables["due"].bytes > 0
    assert sum(size.bytes for size in stats.tables.values()) + stats.free_bytes < stats.file_bytes
    assert stats.request_ids[0] == stats.tables["dedupe0"].rows > 0


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("how", PAGE_DAMAGE)
def test_a_damaged_page_hides_no_other(whole, journal, table, how):
    spoil_page(journal, table, middle(journal, table), how)
    left_out, damaged = [], []
    with opened(journal) as store:
        report = verify(store)
        left = documents(store, left_out, damaged)
        stats = gather(store)
    first, *others = report.problems
    assert (first.table, first.run_key > 0) == (table, table in {"histories", "runs", "open"})
    assert " is damaged: " in first.message
    assert [one.table for one in damaged] == [one.table for one in stats.damage] == [table]
    assert left.items() <= whole[1].items()
    assert len(left) + len(left_out) == len(whole[1]) == report.runs
    assert len(left_out) == report.damaged_runs == len({problem.run_key for problem in others})
    assert (len(left_out) > 0) == (table == "histories")
    # The page says which runs are on it, and these are the damaged ones.
    assert all(first.run_key <= problem.run_key <= first.last for problem in others)


@pytest.mark.parametrize("table", ["log0", "log1", "open", "due", "facts"])
def test_a_page_of_zeros_that_start_up_would_read_is_refused(journal, table):
    """LMDB would end the process: it is found before LMDB goes there."""
    spoil_page(journal, table, middle(journal, table))
    before = (journal / "data.mdb").read_bytes()
    with pytest.raises(JournalCorruptError) as caught:
        LmdbStore(journal, durability="os")
    assert re.fullmatch(
        r"the data file of the journal '.*' is damaged \(page \d+ is damaged: it says that it is page 0\): "
        r"`everact journal verify` names all of it, `everact journal export` takes out what is whole; restore a backup",
        str(caught.value),
    )
    assert (journal / "data.mdb").read_bytes() == before


@pytest.mark.parametrize("how", PAGE_DAMAGE)
@pytest.mark.parametrize("log", ["log0", "log1"])
def test_a_damaged_page_of_the_log(whole, journal, log, how):
    spoil_page(journal, log, rows_of(journal, log)[-1][0], how)
    left_out, damaged = [], []
    with opened(journal) as store:
        report = verify(store)
        left = documents(store, left_out, damaged)
    assert report.problems
    assert damaged
    assert {one.table for one in damaged} == {""}
    for run_id, document in left.items():  # an open run may lack its newest records
        assert document["records"] == whole[1][run_id]["records"][: len(document["records"])]


@pytest.mark.parametrize("seed", range(15))
def test_whatever_is_damaged_what_is_exported_is_right(whole, journal, seed):
    """Anywhere in the file, in any way: an error that says so, or the tools do their work."""
    choice = random.Random(seed)
    data = bytearray((journal / "data.mdb").read_bytes())
    for _ in range(choice.choice([1, 2, 10])):
        page = choice.randrange(2, len(data) // 4096) * 4096
        match choice.randrange(4):
            case 0:
                data[page + choice.randrange(4096)] ^= 1 << choice.randrange(8)
            case 1:
                data[page : page + 4096] = choice.randbytes(4096)
            case 2:
                data[page + choice.randrange(48)] = choice.randrange(256)
            case _:
                other = choice.randrange(2, len(data) // 4096) * 4096
                data[page : page + 4096] = data[other : other + 4096]
    (journal / "data.mdb").write_bytes(data)
    try:
        with opened(journal) as store:
            report = verify(store)
            gather(store)
            left = documents(store, [])
    except JournalError:
        return
    for run_id, document in left.items():
        before = whole[1][run_id]["records"]
        assert document["records"] == before[: len(document["records"])]
        assert document["records"] == before or not report.is_sound


@pytest.mark.parametrize("how", ["flip", "remove"])
def test_the_log_that_is_left_is_damaged_at_its_start(whole, journal, how):
    with opened(journal) as store, store.view() as tables:
        first = tables.segments.first
    log = next(name for name in ("log0", "log1") if NUMBER.pack(first) in dict(rows_of(journal, name)))
    if how == "flip":
        flip_row(journal, log, NUMBER.pack(first))
    else:
        put(journal, log, NUMBER.pack(first), None)
    left_out, damaged = [], []
    with opened(journal) as store:
        report = verify(store)
        left = documents(store, left_out, damaged)
    assert [(one.first, one.last) for one in damaged] == [(first, first)]
    assert report.problems[0].sequence == first
    assert report.problems[0].message == ("it is missing" if how == "remove" else damaged[0].reason)
    assert len(left) >= len(whole[1]) - 2  # a record has turns of two runs


def test_a_branch_page_that_is_damaged(journal):
    # The pages under it cannot be reached: all of the table is lost, and nothing else.
    copy = journal.parent / "copy"
    with opened(journal) as store:
        histories = gather(store).tables["histories"]
    backup(journal, copy)
    data = bytearray((copy / "data.mdb").read_bytes())
    keys = [key for key, _ in rows_of(journal, "histories")]
    (base,) = {
        base
        for base in range(8192, len(data), 4096)
        if data[base + 10] & 1 and sum(key in data[base : base + 4096] for key in keys) > 10
    }
    data[base : base + 4096] = bytes(4096)
    (copy / "data.mdb").write_bytes(data)
    assert histories.rows == len(keys)
    with opened(copy) as store:
        report = verify(store)
    assert report.problems[0].table == "histories"
    assert report.runs > 100
    assert report.damaged_runs > 100


@pytest.mark.parametrize("table", ["runs", "page of runs"])
def test_a_run_is_chosen_although_its_row_is_damaged(whole, journal, table):
    key = NUMBER.pack(key_of(journal, "run-careless-1"))
    if table == "runs":
        flip_row(journal, table, key)
    else:
        spoil_page(journal, "runs", key)
    with opened(journal) as store:
        found = export_runs(
            store, ["run-careless-1"], left_out=pytest.fail, damaged=lambda _: None, moved=pytest.fail
        )
        assert list(found) == [whole[1]["run-careless-1"]]


@pytest.mark.parametrize("table", ["histories", "runs", "open", "facts"])
def test_a_changed_byte_is_named(whole, journal, table):
    key = b"facts" if table == "facts" else middle(journal, table)
    flip_row(journal, table, key)
    left_out = []
    with opened(journal) as store:
        (problem,) = verify(store).problems
        left = documents(store, left_out)
        assert {damage.table for damage in gather(store).damage} == {table}
    assert problem.table == table
    assert bool(problem.run_key) == (table != "facts")
    assert left.items() <= whole[1].items()
    assert len(left_out) == len(whole[1]) - len(left) == (table == "histories")
    if left_out:
        (run,) = left_out
        assert run.run_key == problem.run_key
        assert run.reason.startswith("the history from here on cannot be read: ")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("runs", "the run has no row here"),
        ("ids", "the run has no row here"),
        ("open", "the run is open, and has no row here"),
        ("due", "the run waits for a time, and has no row here"),
        ("closed", "the run has ended, and has no row here"),
        ("dedupe0", "does not lead to its event"),
        ("histories", "its start is missing|none of its events are there"),
    ],
)
def test_a_row_that_is_missing_is_named(whole, journal, table, says):
    put(journal, table, middle(journal, table), None)
    with opened(journal) as store:
        report = verify(store)
        left = documents(store)
    assert any(re.search(says, problem.message) for problem in report.problems)
    assert report.problems[0].workflow_id
    assert len(left) == len(whole[1]) - (table == "histories")


def key_of(path, run_id):
    return next(
        NUMBER.unpack(key)[0] for key, row in rows_of(path, "runs") if decode_run(row).run_id == run_id
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"workflow_id": "other"}, "it names ('other', 't3', 'Waits'), its first event another run"),
        ({"status": "held"}, "it says 'held', the events 'running'"),
        ({"status": "completed"}, "the run has ended (completed): its end is missing"),
        ({"started_at": 5}, "its time of start is not that of the events"),
        ({"closed_at": 5}, "its time of end is not that of the events"),
        ({"links": RunLinks("t1")}, "its place in its chain is not that of the events"),
        ({"through": 0}, "it does not say whether the histories have something of it"),
    ],
)
def test_a_row_of_runs_that_lies_is_named(journal, change, says):
    key = NUMBER.pack(key_of(journal, "t3"))
    run = decode_run(dict(rows_of(journal, "runs"))[key])
    for name, value in change.items():
        fields = {field: getattr(run, field) for field in run.__struct_fields__} | {name: value}
        run = type(run)(**fields)
    put(journal, "runs", key, encode_run(run))
    assert any(says in problem for problem in problems(journal))


def test_a_snapshot_that_lies_is_named(journal):
    key = NUMBER.pack(key_of(journal, "t3"))
    state = decode_state(dict(rows_of(journal, "open"))[key])
    state.timers[1] = ev.TimerStarted(1, 50, 77)
    put(journal, "open", key, encode_open(state, Spiller("0"))[0])
    assert any(
        "it differs from the events in: timers, what it needs" in problem for problem in problems(journal)
    )
    state.last_event = 99
    put(journal, "open", key, encode_open(state, Spiller("0"))[0])
    assert any(
        "the run had at least 99 events: its end is missing" in problem for problem in problems(journal)
    )


def test_an_open_row_of_a_run_that_has_ended_is_named(journal):
    key = NUMBER.pack(key_of(journal, "run-careless-0"))
    row = rows_of(journal, "open")[0][1]
    put(journal, "open", key, row)
    assert any("the run has ended, and has a row here" in problem for problem in problems(journal))


@pytest.mark.parametrize(
    ("table", "key", "value", "says"),
    [
        ("ids", b"x" * 16 + NUMBER.pack(99_999), b"r", "leads to run 99999, which is not there"),
        ("ids", b"x" * 16 + NUMBER.pack(1), b"r", "leads to run 1, which has other ids"),
        ("ids", b"short", b"r", "is not one of this table"),
        ("due", PAIR.pack(5, 1), b"", "leads to run 1, which is not open"),
        ("due", b"short", b"", "is not one of this table"),
        ("closed", b"x" * 16 + PAIR.pack(5, 99_999), b"", "leads to run 99999, which is not there"),
        ("closed", b"x" * 16 + PAIR.pack(5, 1), b"", "has another type or another time than run 1"),
        ("closed", PAIR.pack(5, 1), b"", "is not one of this table"),
        ("dedupe1", b"x" * 16, b"damage", "cannot be read: the checksum of a row differs"),
        (
            "dedupe1",
            b"x" * 16,
            encode_request(Request(1, 1, b"")),
            "leads to event 1 of run 1, which has another request id",
        ),
        (
            "dedupe1",
            b"x" * 16,
            encode_request(Request(99_999, 1, b"")),
            "leads to run 99999, which never was",
        ),
        ("outbox", b"short", b"", "is not one of this table"),
        (
            "outbox",
            PAIR.pack(7, 1),
            b"damage",
            "cannot be read: message 1 to shard 7: the checksum of a row differs",
        ),
        (
            "outbox",
            PAIR.pack(7, 3),
            sealed(b"12345678"),
            "is message 3 to shard 7, the one before it is missing",
        ),
        ("histories", b"short-key-12", b"?", "cannot be read: its kind 0x3f is unknown"),
        (
            "histories",
            EVENT.pack(99_999, 1),
            b"?",
            "run 99999, event 1: the history from here on cannot be read",
        ),
        ("open", NUMBER.pack(99_999), b"", "table 'runs', run 99999: the run has no row here"),
        ("runs", NUMBER.pack(99_999), b"", "run 99999, event 1: none of its events are there"),
        ("runs", b"\0\0\0", b"", "table 'runs': the key 000000 names no run"),
    ],
)
def test_a_stray_row_is_named(journal, table, key, value, says):
    put(journal, table, key, value)
    assert any(says in problem for problem in problems(journal)), problems(journal)


def test_an_open_run_among_the_closed_ones_is_named(journal):
    key = key_of(journal, "t3")
    put(journal, "closed", b"x" * 16 + PAIR.pack(5, key), b"")
    assert any(f"leads to run {key}, which is open" in problem for problem in problems(journal))


def test_what_is_left_of_a_run_that_is_being_purged_is_no_damage(whole, journal):
    key = key_of(journal, "run-careless-0")
    run = decode_run(dict(rows_of(journal, "runs"))[NUMBER.pack(key)])
    with opened(journal) as store:
        ids, kind = (text_hash(store.journal_id, text) for text in (run.workflow_id, run.workflow_type))
        with store.view() as tables:
            facts = read_facts(tables)
    put(journal, "runs", NUMBER.pack(key), None)
    assert any("the run has no row here" in problem for problem in problems(journal))
    put(journal, "ids", ids + NUMBER.pack(key), None)
    put(journal, "closed", closed_key(kind, run.closed_at, key), None)
    counts = [(*name, n - (name == [run.workflow_type, run.status])) for *name, n in facts.counts]
    put(journal, "facts", *facts_row(msgspec.structs.replace(facts, purging=[key], counts=counts)))
    assert problems(journal) == []
    with opened(journal) as store:
        assert documents(store).keys() == whole[1].keys() - {"run-careless-0"}


def test_wrong_facts_are_named(journal):
    put(journal, "facts", *facts_row(Facts(highest_key=2, dictionary=2, counts=[("Gone", "failed", 3)])))
    found = problems(journal)
    assert "table 'facts': the dictionary 2 is missing" in found
    assert any(problem.startswith("table 'facts': the highest run key is ") for problem in found)
    assert "table 'facts': 3 runs of type 'Gone' are said to be failed, 0 are" in found


def test_a_lost_dictionary_is_named_by_each_history_that_needs_it(journal):
    put(journal, "facts", b"dictionary 1", None)
    put(journal, "blobs", copy_key(1), None)
    found = problems(journal)
    assert any("the dictionary 1 that it needs is missing" in problem for problem in found)
    assert "table 'facts': the dictionary 1 is missing" in found


@pytest.mark.parametrize(("table", "key"), [("facts", b"dictionary 1"), ("blobs", copy_key(1))])
def test_a_damaged_dictionary_is_named_and_done_without(whole, journal, table, key):
    flip_row(journal, table, key)
    found = problems(journal)
    assert [problem.partition(" cannot be read: ")[0] for problem in found] == [
        f"table {table!r}: the dictionary 1 of the histories"
    ]
    with opened(journal) as store:
        assert documents(store) == whole[1]


@pytest.mark.parametrize("how", PAGE_DAMAGE)
def test_a_damaged_page_of_facts_hides_no_history(whole, journal, how):
    spoil_page(journal, "facts", b"facts", how)
    with opened(journal) as store:
        assert documents(store, [], []) == whole[1]


@pytest.mark.parametrize("number", [0, 1])
def test_a_dictionary_is_stored_twice_again_with_the_next_segment(journal, number):
    table, key = [("facts", b"dictionary 1"), ("blobs", copy_key(1))][number]
    row = dict(rows_of(journal, table))[key]
    if number:
        put(journal, table, key, None)  # as in a journal of before there were copies
    else:
        flip_row(journal, table, key)
    store = LmdbStore(journal, durability="os")
    work = Upkeep(store, lambda: 10**15)
    work.empty_log()
    first = store.position.sequence
    start = ev.WorkflowStarted("", "", "Waits")
    store.append(store.position, entries_of([(100, ev.Turn((start,)))], 10**6, run_id="later"))
    Upkeep(store, lambda: 10**15).empty_log()
    assert store.position.sequence == first + 1
    store.close()
    assert dict(rows_of(journal, table))[key] == row
    assert problems(journal) == []


# --- what the histories have lost, or have twice


def test_a_run_is_damaged_from_a_lost_part_on(tmp_journal):
    """Its beginning is read, its end is not taken for whole."""
    run = long_run()
    make_moved_journal(tmp_journal, [run], window=50)
    rows = rows_of(tmp_journal, "histories")
    assert len(rows) > 1
    flip_row(tmp_journal, "histories", rows[-1][0])
    with opened(tmp_journal) as store:
        (problem,) = verify(store).problems
        left_out = []
        assert documents(store, left_out) == {}
    assert (problem.event, problem.table) == (EVENT.unpack(rows[-1][0])[1], "histories")
    assert [run.run_id for run in left_out] == ["long"]
    put(tmp_journal, "histories", rows[-1][0], None)  # the same, and no trace of it
    with opened(tmp_journal) as store:
        report = verify(store)
    assert report.damaged_runs == 1


def long_run():
    turns = [(n, ev.Received((ev.SignalReceived("s" * 2000, (), str(n)),))) for n in range(2, 200)]
    return entries_of([(1, ev.Turn((ev.WorkflowStarted("", "", "T"),))), *turns], 1, run_id="long")


def test_what_the_log_repeats_stands_in_for_lost_history(tmp_journal):
    """A run that was moved early leaves repeats in the log."""
    run = long_run()[:20]
    make_moved_journal(tmp_journal, [run])
    assert rows_of(tmp_journal, "histories") == []
    codec = HistoryCodec()
    key = EVENT.pack(1, 1)
    put(tmp_journal, "histories", key, codec.encode(plain_text(run[:10])))
    state = RunState()
    for entry in run[:10]:
        state.apply(ev.decode_record(entry.body), entry.at)
    put(tmp_journal, "open", NUMBER.pack(1), encode_open(state, Spiller("0"))[0])
    row = StoredRun("w-long", "long", "T", "running", 1, 0, 10)
    put(tmp_journal, "runs", NUMBER.pack(1), encode_run(row))
    with opened(tmp_journal) as store:
        name = text_hash(store.journal_id, "w-long") + NUMBER.pack(1)
    put(tmp_journal, "ids", name, b"long")
    put(tmp_journal, "facts", *facts_row(Facts(highest_key=1, counts=[("T", "running", 1)], early=[1])))
    assert problems(tmp_journal) == []
    flip_row(tmp_journal, "histories", key)
    with opened(tmp_journal) as store:
        report = verify(store)
        (document,) = documents(store).values()
    assert [problem.table for problem in report.problems] == ["histories"]
    assert report.damaged_runs == 0
    assert len(document["records"]) == len(run)
    put(tmp_journal, "runs", NUMBER.pack(1), b"damage")
    with opened(tmp_journal) as store:
        assert verify(store).damaged_runs == 0
    put(tmp_journal, "runs", NUMBER.pack(1), encode_run(row))
    # A row that knows of less than the histories have.
    put(tmp_journal, "histories", key, codec.encode(plain_text(run[:10])))
    put(tmp_journal, "runs", NUMBER.pack(1), encode_run(StoredRun("w-long", "long", "T", "running", 1, 0, 5)))
    found = problems(tmp_journal)
    assert any("the histories go to commit record 5, they go to 10" in problem for problem in found)
    put(tmp_journal, "runs", NUMBER.pack(1), encode_run(row))
    # And where both are there, they must be the same.
    changed = [*run[:9], run[9]._replace(at=run[9].at + 1)]
    put(tmp_journal, "histories", key, codec.encode(plain_text(changed)))
    assert any(
        "the histories have something else, or nothing" in problem for problem in problems(tmp_journal)
    )


def test_a_value_under_another_event_is_named(journal):
    rows = rows_of(journal, "histories")
    key, value = rows[0]
    put(journal, "histories", key, None)
    put(journal, "histories", EVENT.pack(EVENT.unpack(key)[0], 2), value)
    assert any("its key says event 2, it begins with event 1" in problem for problem in problems(journal))


# --- beside a writer


class BusyMover:
    """A store with open runs; each call of ``work`` gives some of them events, which are moved soon.

    Always the same runs, whatever histories are committed: what is moved when is always the same, too.
    """

    def __init__(self):
        self.store = MemoryStore()
        self.runs = waiting_runs(1, 80)
        self.open = range(41, 81)
        self.mover = move(self.store, self.runs, window=20)
        self.choice = random.Random(9)
        self.before = self.segments()

    def segments(self):
        with self.store.view() as tables:
            return tables.segments

    def work(self):
        with small_segments(20):
            for key in self.choice.sample(self.open, 3):
                first = self.mover.states[key].last_event + 1
                record = ev.Received((ev.SignalReceived("s", (), f"{key}-{first}", b"d"),))
                self.mover.append([Entry(key, first, HAS_REQUEST, 200, ev.encode_record(record))])

    def check(self):
        assert self.segments().first > self.before.current, "nothing was moved meanwhile"


def test_a_writer_between_two_looks_is_no_damage(monkeypatch):
    """Each look at a run finds the writer some commits further; what it moves meanwhile is read where it is then."""
    busy = BusyMover()
    look = run_walk.RunWalk.look
    looks = []

    def work_and_look(self, key):
        busy.work()
        looks.append(key)
        return look(self, key)

    monkeypatch.setattr(run_walk.RunWalk, "look", work_and_look)
    assert [str(problem) for problem in verify(busy.store).problems] == []
    busy.check()
    assert len(looks) > len(set(looks)), "no run was looked at again"


def test_runs_are_exported_while_they_are_moved():
    busy = BusyMover()
    count = 0
    for _document in export_runs(busy.store, left_out=pytest.fail, damaged=pytest.fail, moved=pytest.fail):
        count += 1
        busy.work()
    assert count == len(busy.runs)
    busy.check()


# --- round trip


def test_what_is_moved_goes_out_and_in_and_is_moved_again(whole):
    first = whole[1]
    store = MemoryStore()
    done = import_runs(store, first.values())
    assert done.runs == len(first)
    assert documents(store) == first
    with small_segments(40):
        mover = Mover(store)
        for n in range(400):
            key = 1000 + n
            mover.append(entries_of([(1, ev.Turn((ev.WorkflowStarted("", "", "T"),)))], key, run_id=f"n{n}"))
    with store.view() as tables:
        assert tables.count(Table.RUNS) > len(first)
        assert tables.segments.first > len(first)
    assert verify(store).problems == []
    assert documents(store).items() >= first.items()


# --- the store that reads past damage


def test_past_damage_of_a_whole_journal_is_the_store_itself(journal):
    with opened(journal) as store:
        assert damaged_pages(store) == []
        with past_damage(store) as (same, damage):
            assert same is store
            assert damage == []


def test_the_pages_say_what_lmdb_says(journal):
    with opened(journal) as store:
        salvage = SalvageStore(str(journal))
        try:
            assert salvage.position == store.position
            assert list(salvage.scan()) == list(store.scan())
            assert salvage.read([Location(store.position.sequence - 1, 0)]) == store.read(
                [Location(store.position.sequence - 1, 0)]
            )
            with store.view() as tables, salvage.view() as pages:
                assert pages.segments == tables.segments
                for table in Table:
                    rows = list(tables.scan(table))
                    assert list(pages.scan(table)) == rows == list(salvage.rows(table))
                    assert list(pages.scan(table, reverse=True)) == rows[::-1]
                    assert pages.count(table) == tables.count(table) == len(rows)
                    for key, value in rows[::7]:
                        assert pages.get(table, key) == value
                        assert pages.get(table, key + b"?") is None
                        for reverse in (False, True):
                            assert list(pages.scan(table, key, rows[-1][0], reverse=reverse)) == list(
                                tables.scan(table, key, rows[-1][0], reverse=reverse)
                            )
        finally:
            salvage.close()


REWRITER = """
    from everact.journal.rewrite import rewrite

    store = LmdbStore(path, durability="os")
    rewrite(store)
    say("rewritten")
    store.close()
    """


def test_pages_are_those_of_the_file_that_has_the_name_now(journal):
    """Another process writes the data file anew while it is open here."""
    with opened(journal) as store:
        before = verify(store)
        size = sum(table.bytes for table in gather(store).tables.values())
        file = (journal / "data.mdb").stat().st_ino
        with Script(REWRITER, journal) as other:
            assert other.line() == "rewritten"
            other.finish()
        assert (journal / "data.mdb").stat().st_ino != file
        assert damaged_pages(store) == []
        assert verify(store) == before
        assert sum(table.bytes for table in gather(store).tables.values()) < size


def test_large_values_are_read_from_their_pages(tmp_journal):
    store = LmdbStore(tmp_journal, durability="os")
    noise = random.Random(1).randbytes(50_000).hex()
    run = entries_of([(1, ev.Turn((ev.WorkflowStarted("", noise, "T"),)))], 1, run_id=noise)
    store.append(store.position, run)
    store.close()
    with opened(tmp_journal) as store:
        salvage = SalvageStore(str(tmp_journal))
        try:
            assert list(salvage.scan()) == list(store.scan())
        finally:
            salvage.close()
        assert damaged_pages(store) == []


def test_messages_on_their_way_are_whole(tmp_journal):
    store = LmdbStore(tmp_journal, durability="os")
    outbox = Outbox(store)
    messages = [outbox.new(7, 1, b"hello") for _ in range(3)]
    store.append(store.position, [], lambda changes: write_messages(changes, messages))
    store.append(store.position, [], lambda changes: acknowledge(changes, 7, 1))
    assert verify(store).problems == []
    store.close()
    put(tmp_journal, "outbox", PAIR.pack(7, 2), None)
    (problem,) = problems(tmp_journal)
    assert "message 3 to shard 7" in problem


def test_a_damaged_page_is_not_copied(journal, tmp_path):
    spoil_page(journal, "runs", middle(journal, "runs"))
    with pytest.raises(JournalCorruptError) as raised:
        backup(journal, tmp_path / "copy")
    assert "has damaged pages and is not copied (table 'runs', runs " in str(raised.value)
    assert "`everact journal export` takes out what is whole" in str(raised.value)
    assert not (tmp_path / "copy").exists()
