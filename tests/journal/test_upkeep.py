"""Purging and compacting a journal that no runtime has open: in commits of bounded size, and again after any kill."""

import threading

import pytest
from support.journals import entries_of, fill, flip, make_journal
from support.purges import check_tables

from everact.journal import blob_table, blobs, compaction, compaction_step, new_history, run_index, upkeep
from everact.journal import events as ev
from everact.journal.errors import CommitUnknownError, JournalAccessError, JournalCorruptError
from everact.journal.fault_points import armed
from everact.journal.lmdb_store import LmdbStore
from everact.journal.loading import load
from everact.journal.memory_store import MemoryStore
from everact.journal.outbox import Outbox, acknowledge, write_messages
from everact.journal.payloads import Payload
from everact.journal.purge_preview import preview
from everact.journal.purging import Selection
from everact.journal.read_ahead import ReadAhead
from everact.journal.store import Position
from everact.journal.tables import Table
from everact.journal.upkeep import Upkeep

NOW = 1_800_000_000_000_000


def now():
    return NOW


def run_of(key, *, closed=True, events=1, kind="Order"):
    """Entries of a run: its start, signals, its end."""
    start = ev.Turn((ev.WorkflowStarted("w", "r", kind, (Payload("json", b"%d" % key),)),))
    records = [(NOW + key, start)]
    records += [
        (NOW + key, ev.Turn((ev.SignalReceived("s", (Payload("json", b"%d" % number),)),)))
        for number in range(events)
    ]
    if closed:
        records.append((NOW + key, ev.Turn((), (ev.WorkflowCancelled(),))))
    return entries_of(records, key, run_id=f"{key}")


@pytest.fixture(params=["memory", "lmdb"])
def store(request, tmp_journal):
    store = MemoryStore() if request.param == "memory" else LmdbStore(tmp_journal, durability="os")
    yield store
    store.close()


def workflow_ids(store):
    return [row.workflow_id for row in load(store).runs.newest_first()]


def test_the_log_is_emptied_into_the_tables(store):
    fill(store, [run_of(key, closed=key % 2 == 0) for key in range(1, 8)])
    before = [load(store).runs.entries(row) for row in load(store).runs.newest_first()]
    seen = []
    Upkeep(store, now).empty_log(lambda done, of: seen.append((done, of)))
    assert list(store.scan()) == []
    assert seen[-1][0] == seen[-1][1]
    loaded = load(store)
    assert [loaded.runs.entries(row) for row in loaded.runs.newest_first()] == before
    assert len(loaded.runs.rows) == 0
    check_tables(store)
    position = store.position
    Upkeep(store, now).empty_log()
    assert store.position == position
    fill(store, [run_of(8)])  # and the log goes on where it was
    assert workflow_ids(store)[0] == "w-8"
    Upkeep(store, now).empty_log()
    check_tables(store)


def test_only_what_was_selected_and_is_closed_is_purged(store):
    fill(store, [run_of(key, closed=key != 3, kind="Order" if key < 5 else "Other") for key in range(1, 8)])
    work = Upkeep(store, now)
    selection = Selection(workflow_type="Order", closed_before=NOW + 4)
    assert preview(store, selection) == (2, {"Order", "Other"})
    assert len(workflow_ids(store)) == 7
    assert work.purge(selection) == 2
    assert workflow_ids(store) == ["w-7", "w-6", "w-5", "w-4", "w-3"]
    assert load(store).runs.count("Order", None) == 2
    check_tables(store)
    assert preview(store, Selection()).runs == 4
    assert work.purge(Selection()) == 4
    assert workflow_ids(store) == ["w-3"]
    assert preview(store, Selection()) == (0, {"Order", "Other"})  # of a type that is gone, too
    check_tables(store)


def test_keys_of_purged_runs_are_not_used_again(store):
    fill(store, [run_of(key) for key in range(1, 4)])
    Upkeep(store, now).purge(Selection())
    assert workflow_ids(store) == []
    assert load(store).next_key == 4


def test_a_run_that_was_moved_early_leaves_nothing_in_the_log(store, monkeypatch):
    """Its entries stand in the log and in the histories: purged from these alone, it would come back."""
    monkeypatch.setattr(compaction, "CROWD", 4)
    monkeypatch.setattr(run_index, "CROWD", 4)
    monkeypatch.setattr(upkeep, "SPARE", 3)
    fill(store, [run_of(1, closed=False, events=10), run_of(2)])
    work = Upkeep(store, now)
    step = work._compactor.plan(0)
    position = store.append(store.position, [], step)
    work._compactor.committed(step, position.sequence)
    assert load(store).facts.early == [1]
    end = run_of(1, events=10)[-1]
    store.append(store.position, [end])
    assert Upkeep(store, now).purge(Selection(workflow_id="w-1")) == 1
    assert workflow_ids(store) == ["w-2"]
    check_tables(store)


def test_a_closed_run_that_the_log_repeats_is_passed_over_until_the_log_has_moved_on(store, monkeypatch):
    monkeypatch.setattr(compaction, "CROWD", 4)
    monkeypatch.setattr(run_index, "CROWD", 4)
    fill(store, [run_of(1, events=3)])
    store.append(store.position, run_of(2)[:1])
    work = Upkeep(store, now)
    compactor = work._compactor
    compactor._index.crowded.append(1)  # it was open when it became crowded
    step = compactor.plan(0)
    compactor.committed(step, store.append(store.position, [], step).sequence)
    assert load(store).facts.early == [1]
    assert 1 not in compactor._index.rows
    counts = []
    compactor.purger.request(iter([1]), counts.append)
    list(work._steps())
    assert counts == [0]
    assert compactor.purger.log_repeats
    assert workflow_ids(store) == ["w-2", "w-1"]
    compactor.hurry()
    compactor.purger.request(iter([1]), counts.append)
    list(work._steps())
    assert counts == [0, 1]
    assert workflow_ids(store) == ["w-2"]
    check_tables(store)


def test_one_plan_looks_at_so_many_runs_only(store, monkeypatch):
    monkeypatch.setattr(upkeep, "SPARE", 3)
    monkeypatch.setattr(compaction, "PURGE_LEAST", 3)
    fill(store, [run_of(key, closed=key > 9) for key in range(1, 11)])
    Upkeep(store, now).empty_log()
    work = Upkeep(store, now)
    keys, counts = iter(range(1, 11)), []
    purger = work._compactor.purger
    purger.request(keys, counts.append)
    assert work._compactor.plan(0) is None
    assert purger.is_looking
    assert next(keys) == 4
    list(work._steps())
    assert counts == [1]
    assert not purger.is_looking
    assert len(workflow_ids(store)) == 9
    check_tables(store)


def test_a_plan_that_cannot_read_on_loses_no_run(store, monkeypatch):
    fill(store, [run_of(key) for key in range(1, 6)])
    Upkeep(store, now).empty_log()
    work = Upkeep(store, now)
    counts = []
    work._compactor.purger.request(iter([]), counts.append)
    work._compactor.purger.request(iter(range(1, 6)), counts.append)
    with monkeypatch.context() as patch:
        seen = iter([False, False, JournalAccessError("too many readers")])

        def once(_key):
            found = next(seen)
            if isinstance(found, Exception):
                raise found
            return found

        patch.setattr(work._compactor.purger, "has_sent", once)
        with pytest.raises(JournalAccessError):
            work._compactor.plan(0)
    list(work._steps())
    assert counts == [0, 5]
    assert workflow_ids(store) == []
    check_tables(store)


@pytest.mark.parametrize("ahead", [0, 30 * 365 * 24 * 3600 * 1_000_000])
def test_request_ids_are_forgotten_although_the_clock_was_ahead(store, ahead):
    clock = [NOW + ahead]
    generations = []
    for key in range(1, 5):
        fill(
            store,
            [entries_of([(NOW, ev.Turn((ev.WorkflowStarted("w", "r", "T", (), f"q{key}", b"d"),)))], key)],
        )
        Upkeep(store, lambda: clock[0]).empty_log()
        generations.append(load(store).facts.generation)
        clock[0] = NOW + (key - 1) * (compaction.DEDUPE_WINDOW // 2 + 1)
    assert generations == [0, 0, 0, 1]


def test_a_run_whose_messages_are_on_their_way_stays_until_they_are_acknowledged(store):
    fill(store, [run_of(1), run_of(2)])
    message = Outbox(store).new(7, 1, b"hello")
    store.append(store.position, [], lambda changes: write_messages(changes, [message]))
    assert Upkeep(store, now).purge(Selection()) == 1
    assert workflow_ids(store) == ["w-1"]
    store.append(store.position, [], lambda changes: acknowledge(changes, 7, message.sequence))
    assert Upkeep(store, now).purge(Selection()) == 1
    assert workflow_ids(store) == []


@pytest.mark.parametrize(
    "point", ["purge.before", "purge.written", "journal.commit.after", "compaction.written"]
)
def test_a_purge_that_fails_in_any_commit_can_be_done_again(store, point, monkeypatch):
    monkeypatch.setattr(upkeep, "SPARE", 12)
    monkeypatch.setattr(compaction, "PURGE_LEAST", 12)
    monkeypatch.setattr(new_history, "VALUE_ENTRIES", 2)
    monkeypatch.setattr(new_history, "MERGE_BELOW", 0)
    runs = [run_of(key, events=40 if key == 2 else 1, closed=key != 5) for key in range(1, 8)]
    fill(store, runs)
    for passes in range(1, 40):
        left = passes

        def fail():
            nonlocal left
            left -= 1
            if not left:
                raise OSError("the disk is on fire")

        try:
            with armed(point, fail):
                Upkeep(store, now).purge(Selection(closed_before=NOW + 7))
            break
        except CommitUnknownError:
            store.reopen()
            ids = workflow_ids(store)
            assert {"w-5", "w-7"} <= set(ids)
            check_tables(store)
            loaded = load(store)
            for row in loaded.runs.newest_first():  # whole or gone
                assert loaded.runs.entries(row) == runs[row.key - 1]
    assert passes > 1
    assert workflow_ids(store) == ["w-7", "w-5"]
    Upkeep(store, now).empty_log()  # which finishes what a failure has left of histories
    assert check_tables(store).purging == []


def test_large_payloads_go_with_their_last_run(store, monkeypatch):
    monkeypatch.setattr(upkeep, "SPARE", 12)
    monkeypatch.setattr(compaction, "PURGE_LEAST", 12)
    monkeypatch.setattr(blobs, "SPILL", 100)
    spiller = blobs.Spiller(store.journal_id)
    shared = Payload("raw", b"shared" * 100)
    for key in range(1, 4):
        own = [Payload("raw", b"%d and %d" % (key, number) * 100) for number in range(5)]
        start = ev.Turn((ev.WorkflowStarted("w", "r", "Order", (shared, *own)),))
        end = ev.Turn((), (ev.WorkflowCancelled(),))
        entries, found = spiller.spill_entries(
            entries_of([(NOW + key, start), (NOW + key, end)], key, run_id=f"{key}")
        )
        store.append(
            store.position, entries, lambda changes, found=found: blob_table.write_blobs(changes, found)
        )

    def addresses():
        return {key[:16] for key, _ in store.rows(Table.BLOBS)}

    assert len(addresses()) == 16
    for key, left in ((1, 11), (2, 6), (3, 0)):
        Upkeep(store, now).purge(Selection(workflow_id=f"w-{key}"))
        Upkeep(store, now).empty_log()
        assert len(addresses()) == left
        with store.view() as tables:
            assert not left or blob_table.read_blob(tables, spiller.address(shared)) == shared
    assert list(store.rows(Table.BLOB_RUNS)) == []
    assert check_tables(store).purging == []


def test_a_damaged_large_payload_stays_and_its_run_goes(store, monkeypatch, caplog):
    monkeypatch.setattr(blobs, "SPILL", 100)
    spiller = blobs.Spiller(store.journal_id)
    start = ev.Turn((ev.WorkflowStarted("w", "r", "Order", (Payload("raw", b"large" * 100),)),))
    end = ev.Turn((), (ev.WorkflowCancelled(),))
    entries, found = spiller.spill_entries(entries_of([(NOW, start), (NOW, end)], 1, run_id="1"))
    store.append(store.position, entries, lambda changes: blob_table.write_blobs(changes, found))
    ((key, _), _chunk) = store.rows(Table.BLOBS)
    store.append(store.position, [], lambda changes: changes.put(Table.BLOBS, [(key, b"damage")]))
    assert Upkeep(store, now).purge(Selection()) == 1
    assert workflow_ids(store) == []
    assert "large payloads of the purged run 1 stay" in caplog.text


def test_no_commit_purges_much(store, monkeypatch):
    monkeypatch.setattr(upkeep, "SPARE", 50)
    fill(store, [run_of(key) for key in range(1, 101)])
    sizes = []
    with armed("purge.before", lambda: sizes.append(1)):
        assert Upkeep(store, now).purge(Selection()) == 100
    assert 10 <= len(sizes) <= 12
    assert workflow_ids(store) == []


def test_a_damaged_log_stops_it_and_changes_nothing(tmp_journal):
    make_journal(tmp_journal, [run_of(key) for key in range(1, 5)])
    flip(tmp_journal, 3)
    store = LmdbStore(tmp_journal, durability="os")
    with pytest.raises(JournalCorruptError, match="commit record 3"):
        Upkeep(store, now).purge(Selection())
    assert store.position == Position(2, 7)
    store.close()


def test_the_file_stays_small_while_runs_come_and_go(tmp_journal):
    store = LmdbStore(tmp_journal, durability="os")
    sizes = []
    key = 1
    for _ in range(12):
        fill(store, [run_of(n, events=20) for n in range(key, key + 100)])
        key += 100
        Upkeep(store, now).purge(Selection())
        sizes.append(store.space().size)
    store.close()
    assert sizes[-1] <= sizes[3], sizes


@pytest.mark.parametrize("looked_at", range(1, 9))
def test_a_list_that_is_read_slowly_shows_each_run_once_although_all_are_moved_meanwhile(store, looked_at):
    fill(store, [run_of(key, closed=key % 2 == 0) for key in range(1, 5)])
    Upkeep(store, now).empty_log()
    fill(store, [run_of(key, closed=key % 2 == 0) for key in range(5, 9)])
    work = Upkeep(store, now)
    rows = work._index.newest_first()
    found = [next(rows).key for _ in range(looked_at)]
    work.empty_log()
    assert found + [row.key for row in rows] == [8, 7, 6, 5, 4, 3, 2, 1]


def test_no_commit_moves_all_that_could_not_be_moved_in_time(store, monkeypatch):
    monkeypatch.setattr(compaction, "WINDOW", 10)
    monkeypatch.setattr(compaction, "MOST", 8)
    fill(store, [run_of(key) for key in range(1, 41)])
    compactor = Upkeep(store, now)._compactor

    def commit():
        step = compactor.plan(1)
        compactor.committed(step, store.append(store.position, [], step).sequence)
        return step

    assert commit().seals
    compactor.suspended = True
    assert compactor.plan(1000) is None  # the other segment is full as well by now
    compactor.suspended = False
    moved = [commit()]
    while not moved[-1].drops:
        moved.append(commit())
    sizes = [sum(move.history.size for move in step.moves) for step in moved]
    assert sum(sizes) == 40 * 3
    assert max(sizes) <= compaction.MOST + compaction.MOST_PER_ENTRY


def test_commits_wait_a_while_for_what_is_being_read_once_the_other_segment_is_full(store, monkeypatch):
    monkeypatch.setattr(compaction, "WINDOW", 200)
    fill(store, [run_of(key) for key in range(1, 71)])
    compactor = Upkeep(store, now)._compactor
    compactor.reads_here = False
    begin, waited = threading.Event(), []

    class Reading(ReadAhead):
        def _work(self):
            begin.wait()
            super()._work()

    monkeypatch.setattr(compaction, "ReadAhead", Reading)

    def commit(appended):
        step = compactor.plan(appended)
        if step is not None:
            if step.waits_for is not None:
                monkeypatch.setattr(step.waits_for.done, "wait", waited.append)
            compactor.committed(step, store.append(store.position, [], step).sequence)

    commit(1)  # sealed
    commit(100)
    commit(100)
    assert waited == []
    commit(100)
    assert waited == [compaction_step.LONGEST_WAIT]
    assert compactor._reading.is_late
    begin.set()
