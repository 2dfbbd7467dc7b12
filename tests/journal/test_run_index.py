"""The index of runs, as built by a scan and as kept in step with commits."""

import random

import pytest

from everact.journal import events as ev
from everact.journal.failures import Failure
from everact.journal.fold import RunState
from everact.journal.loading import load
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.payloads import NULL
from everact.journal.request_ids import Request
from everact.journal.run_index import RunIndex
from everact.journal.run_status import status_flags
from everact.journal.store import CLOSES_RUN, HAS_REQUEST, STARTS_RUN, Entry

WHY = Failure(type="E")


class Book:
    """A store with its live index, written through one door."""

    def __init__(self):
        self.journal = MemoryJournal()
        self.store = MemoryStore(self.journal)
        self.index = RunIndex(self.store)
        self.states = {}
        self.open = {}

    def commit(self, *turns):
        """Each turn is ``(key, record, at)``."""
        entries, started = [], {}
        for key, record, at in turns:
            state = self.states.setdefault(key, RunState())
            flags = 0
            first = state.last_event + 1
            if first == 1:
                flags = STARTS_RUN
                started[key] = record.inputs[0]
            if any(getattr(event, "request_id", "") for event in record.inputs):
                flags |= HAS_REQUEST
            before = state.status
            state.apply(record, at)
            if state.outcome is not None:
                flags |= CLOSES_RUN
            if state.status != before:
                flags |= status_flags(state.status)
            entries.append(Entry(key, first, flags, at, ev.encode_record(record)))
        sequence = self.store.position.sequence
        self.store.append(self.store.position, entries)
        self.index.add(sequence, entries, started)

    def rows(self, index):
        return [
            (
                row.key,
                row.workflow_id,
                row.run_id,
                row.workflow_type,
                row.status,
                row.started_at,
                row.closed_at,
            )
            + (list(row.located()),)
            for row in index.rows.values()
        ]


def start(name, run):
    return ev.Turn((ev.WorkflowStarted(name, run, "T"),))


def test_a_run_is_found_by_key_by_workflow_id_and_by_run_id():
    book = Book()
    book.commit((1, start("a", "r1"), 10), (2, start("b", "r2"), 10))
    assert book.index.by_workflow_id["a"] is book.index.find("a", "r1") is book.index.rows[1]
    assert not book.index.rows[1].is_closed


def test_the_newest_run_of_an_id_is_found_and_every_one_by_its_request():
    book = Book()
    book.commit((1, start("a", "r1"), 10))
    book.commit((1, ev.Turn((), (ev.WorkflowTerminated(),)), 20), (2, start("a", "r2"), 20))
    newest = book.index.by_workflow_id["a"]
    before = book.index.older_runs["r1"]
    assert (newest.run_id, newest.status) == ("r2", "running")
    assert (before.status, before.closed_at) == ("terminated", 20)
    book.commit((3, ev.Turn((ev.WorkflowStarted("a", "r3", "T", request_id="q"),)), 30))
    assert load(book.store).runs.requests.find("a", "q") == Request(3, 1, b"")


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (ev.WorkflowCompleted(NULL), "completed"),
        (ev.WorkflowFailed(WHY), "failed"),
        (ev.WorkflowCancelled(), "cancelled"),
        (ev.WorkflowTerminated(), "terminated"),
    ],
)
def test_lists_show_the_end_of_a_run(outcome, status):
    book = Book()
    book.commit((1, start("a", "r1"), 10))
    book.commit((1, ev.Turn((), (outcome,)), 30))
    row = book.index.rows[1]
    assert (row.status, row.is_closed, row.closed_at) == (status, True, 30)


def test_lists_show_that_a_run_is_paused_and_goes_on():
    book = Book()
    book.commit((1, start("a", "r1"), 10))
    book.commit((1, ev.Turn((ev.RunPaused("why"),)), 20))
    assert (book.index.rows[1].status, book.index.rows[1].is_closed) == ("paused", False)
    loaded = load(book.store).runs
    assert loaded.rows[1].status == "paused"
    assert (loaded.count(None, "paused"), loaded.count(None, "running")) == (1, 0)
    book.commit((1, ev.Turn((ev.RunResumed(),)), 30))
    assert book.index.rows[1].status == "running"


@pytest.mark.parametrize("kind", ["held", "quarantined"])
def test_lists_show_that_a_run_stands_still_and_goes_on(kind):
    book = Book()
    book.commit((1, start("a", "r1"), 10))
    book.commit((1, ev.Turn((ev.RunStalled(kind, WHY),)), 20))
    assert (book.index.rows[1].status, book.index.rows[1].is_closed) == (kind, False)
    assert load(book.store).runs.rows[1].status == kind
    book.commit((1, ev.Turn((ev.RunReleased(),)), 30))
    assert book.index.rows[1].status == "running"


def test_the_records_of_a_run_are_read_in_order():
    book = Book()
    signals = [ev.Turn((ev.SignalReceived(f"s{n}"),)) for n in range(5)]
    book.commit((1, start("a", "r1"), 10), (2, start("b", "r2"), 11))
    for n, turn in enumerate(signals):
        book.commit((2, turn, 20 + n), (1, turn, 30 + n))
    records = book.index.records(book.index.rows[1])
    assert records == [(10, start("a", "r1")), *((30 + n, turn) for n, turn in enumerate(signals))]


def test_an_empty_journal_has_no_runs():
    index, _facts, states, next_key = load(MemoryStore())
    assert (index.rows, states, next_key) == ({}, {}, 1)


def test_keys_are_never_used_again_even_of_runs_that_have_ended():
    book = Book()
    book.commit((7, start("a", "r1"), 10))
    book.commit((7, ev.Turn((), (ev.WorkflowTerminated(),)), 20))
    _, _, states, next_key = load(book.store)
    assert (states, next_key) == ({}, 8)


@pytest.mark.parametrize("seed", range(8))
def test_a_scan_finds_what_was_kept_in_step(seed):
    rng = random.Random(seed)
    book = Book()
    alive, key = [], 0
    for at in range(60):
        turns, busy = [], set()
        for _ in range(rng.randint(1, 4)):
            if not alive or rng.random() < 0.3:
                key += 1
                alive.append(key)
                turns.append((key, start(f"w{rng.randint(1, 5)}", f"r{key}"), at))
                busy.add(key)
                continue
            run = rng.choice(alive)
            if run in busy:
                continue
            busy.add(run)
            record = rng.choice(
                [
                    ev.Turn((ev.SignalReceived("s"),), (ev.ActivityScheduled(1, "x"),)),
                    ev.Received((ev.SignalReceived("s"),)),
                    ev.Turn((ev.RunStalled("held", WHY),)),
                    ev.Turn((ev.RunReleased(),)),
                    ev.Turn((), (ev.WorkflowCompleted(NULL),)),
                ]
            )
            turns.append((run, record, at))
            if record.inputs == () and isinstance(record, ev.Turn):
                alive.remove(run)
        if turns:
            book.commit(*turns)
    index, _, states, next_key = load(book.store)
    assert book.rows(index) == book.rows(book.index)
    assert index.by_workflow_id.keys() == book.index.by_workflow_id.keys()
    assert next_key == key + 1
    assert states.keys() == set(alive)
    for run, state in states.items():
        for slot in RunState.__slots__:
            if slot != "activities":
                assert getattr(state, slot) == getattr(book.states[run], slot), slot
        assert state.activities.keys() == book.states[run].activities.keys()


def test_counting_does_not_look_at_the_runs():
    book = Book()
    book.commit((1, start("a", "r1"), 10), (2, start("b", "r2"), 10))
    book.commit((1, ev.Turn((), (ev.WorkflowTerminated(),)), 20))
    index = load(book.store).runs

    class Unseen(dict):
        def values(self):
            raise AssertionError("looked at the runs")

        __iter__ = items = keys = values

    for each in (book.index, index):
        each.rows = Unseen(each.rows)
        assert [each.count(None, status) for status in ("running", "terminated", "held", None)] == [
            1,
            1,
            0,
            2,
        ]
        assert (each.count("T", "running"), each.count("other", None)) == (1, 0)
