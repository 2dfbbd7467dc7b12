"""Reading ahead what compaction moves: in order, no more than fits, and what goes wrong is told."""

import itertools
import logging
import random
import threading
import tracemalloc
from array import array
from types import SimpleNamespace

import pytest
from support.journals import fill, runs_of_histories

from everact.journal import compaction, read_ahead, run_index
from everact.journal.compaction import Compactor
from everact.journal.errors import JournalClosedError
from everact.journal.history_values import HistoryCodec, entries_of
from everact.journal.loading import load
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.read_ahead import ReadAhead, Wanted
from everact.journal.run_row import INDEX_BITS
from everact.journal.store import Entry
from everact.journal.tables import EVENT


def packed(*places):
    return array("Q", [(sequence << INDEX_BITS) | index for sequence, index in places])


@pytest.fixture
def store():
    """Three commits with an entry of each of three runs, 1,000 bytes each."""
    store = MemoryStore()
    for sequence in range(1, 4):
        entries = [Entry(key, sequence, 0, 5, b"%d" % key * 1000) for key in (1, 2, 3)]
        store.append(store.position, entries)
    return store


WANTED = [
    Wanted(key, packed(*((sequence, key - 1) for sequence in range(1, 4))), is_new=True) for key in (1, 2, 3)
]


def read_all(store):
    return ReadAhead(store, HistoryCodec(), WANTED, here=True)


def test_the_entries_of_each_run_come_in_order(store):
    read = read_all(store)
    assert read.done.is_set()
    assert [(new.key, new.size, new.outdated) for new in read.found] == [
        (1, 3, None),
        (2, 3, None),
        (3, 3, None),
    ]
    for new in read.found:
        ((key, value),) = new.values
        assert key == EVENT.pack(new.key, 1)
        entries = entries_of(new.key, HistoryCodec().decode(value, lambda _: None))
        assert entries == [Entry(new.key, number, 0, 5, b"%d" % new.key * 1000) for number in (1, 2, 3)]
    assert read.left_out() == []


def test_what_is_too_much_at_a_time_is_left_for_the_next(store, monkeypatch):
    monkeypatch.setattr(read_ahead, "MOST_BYTES", 4_000)
    read = read_all(store)
    assert [(new.key, new.size) for new in read.found] == [(1, 3)]
    assert read.left_out() == [2, 3]


def test_an_error_is_kept_for_who_takes_the_entries(store):
    store.close()
    read = read_all(store)
    assert isinstance(read.error, JournalClosedError)
    assert (read.found, read.left_out()) == ([], [1, 2, 3])


def test_the_thread_gives_others_a_turn_and_goes_on_for_longer_when_it_is_late(store, monkeypatch):
    monkeypatch.setattr(read_ahead, "AT_ONCE", 1)
    times = itertools.count(0.0, 0.0004)
    monkeypatch.setattr(read_ahead, "perf_counter", lambda: next(times))
    pauses = []

    def pauses_of(*, is_late):
        reading = ReadAhead(store, HistoryCodec(), WANTED, here=True)
        reading._wanted, reading._rests, reading.is_late = WANTED, True, is_late
        monkeypatch.setattr(read_ahead, "sleep", pauses.append)
        pauses.clear()
        reading._work()
        return len(pauses)

    assert pauses_of(is_late=False) > 2 * pauses_of(is_late=True) > 0


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(compaction, "WINDOW", 40)
    monkeypatch.setattr(compaction, "WINDOW_PER_RUN", 0)
    monkeypatch.setattr(compaction, "READ_AHEAD", 7)
    for module in (compaction, run_index):
        monkeypatch.setattr(module, "CROWD", 10_000)


def moved(store, steps):
    """Let a compactor of its own move the log with commits that only move."""
    loaded = load(store)
    it = Compactor(store, loaded.runs, loaded.facts, lambda _key: None, lambda: 0)
    it.reads_here = True
    it.hurry()
    for _ in range(steps):
        step = it.plan(0, 3)
        if step is None:
            break
        position = store.append(store.position, [], step)
        it.committed(step, position.sequence)
    return it


@pytest.mark.parametrize("most", [1, 500, 1 << 20])
@pytest.mark.parametrize("steps", [2, 5, 1000])
def test_all_of_a_segment_is_moved_in_pieces(small, monkeypatch, most, steps):
    monkeypatch.setattr(read_ahead, "MOST_BYTES", most)
    journal = MemoryJournal()
    store = MemoryStore(journal)
    fill(store)
    expected = {entries[0].run_key: entries for entries in runs_of_histories()}
    it = moved(store, steps)
    assert it.error is None
    index = load(store).runs
    assert {row.key: index.entries(row) for row in index.newest_first()} == expected
    if steps == 1000:
        assert list(store.scan()) == []


def test_damage_that_is_met_ahead_stops_compaction_with_one_line(small, caplog):
    caplog.set_level(logging.ERROR, "everact.runtime")
    store = MemoryStore()
    fill(store)
    it = moved(store, 1)  # sealed
    middle = len(store.backing.records) // 2
    damaged = bytearray(store.backing.state.records[middle])
    damaged[len(damaged) // 2] ^= 1
    loaded_before = it  # the overlay was read while all was whole
    store.backing.state.records[middle] = bytes(damaged)
    while (step := loaded_before.plan(0, 3)) is not None:
        position = store.append(store.position, [], step)
        loaded_before.committed(step, position.sequence)
    assert f"commit record {middle} of the journal in memory cannot be read" in str(it.error)
    assert caplog.text.count("its log is no longer moved into the tables") == 1
    assert it.plan(10) is None


def test_no_more_is_held_than_fits_however_much_a_few_records_have(monkeypatch):
    size, runs, records = 20_000, 50, 24
    store = MemoryStore()
    for sequence in range(1, records + 1):
        bodies = [random.randbytes(size) for _ in range(runs)]
        entries = [Entry(key, sequence, 0, 5, body) for key, body in enumerate(bodies, 1)]
        store.append(store.position, entries)
    wanted = [
        Wanted(key, packed(*((sequence, key - 1) for sequence in range(1, records + 1))), is_new=True)
        for key in range(1, runs + 1)
    ]
    monkeypatch.setattr(read_ahead, "MOST_BYTES", 1 << 20)
    tracemalloc.start()
    read = ReadAhead(store, HistoryCodec(), wanted, here=True)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert read.error is None
    assert read.found
    assert peak < 12 << 20  # all of it is 24 MB; beside what is held there are decompressed records


class NoThreads(threading.Thread):
    """The system gives no more of them."""

    def start(self):
        raise RuntimeError("can't start new thread")


def test_without_another_thread_it_reads_on_this_one(store, monkeypatch):
    monkeypatch.setattr(read_ahead, "threading", SimpleNamespace(Thread=NoThreads, Event=threading.Event))
    read = ReadAhead(store, HistoryCodec(), WANTED, here=False)
    assert read.done.is_set()
    assert [new.size for new in read.found] == [3, 3, 3]


def test_without_another_thread_there_is_no_dictionary_and_all_else_goes_on(small, monkeypatch):
    monkeypatch.setattr(compaction, "SAMPLES", 3)
    monkeypatch.setattr(compaction, "threading", SimpleNamespace(Thread=NoThreads))
    store = MemoryStore()
    fill(store)
    it = moved(store, 1000)
    assert it.error is None
    assert list(store.scan()) == []
    assert it._training is None
