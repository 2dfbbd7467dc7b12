"""Random commits, takeovers and faults at every fault point of a store agree with a dictionary and a list."""

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from everact.journal.errors import (
    AppendRefusedError,
    CommitUnknownError,
    JournalClosedError,
    JournalCorruptError,
)
from everact.journal.fault_points import armed
from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.store import Entry, Location, Position, Segments
from everact.journal.tables import Table

TABLES = [Table.RUNS, Table.OPEN, Table.DEDUPE_0]
COMMIT_POINTS = ["journal.commit.before", "journal.commit.written", "journal.commit.after"]
OPEN_POINTS = ["journal.open.before", "journal.open.created", "journal.open.after"]

KEYS = st.integers(0, 30).map(lambda n: bytes([n % 7]) * (1 + n % 5))
VALUES = st.sampled_from([b"", b"v", b"w" * 300, b"x" * 5000])
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(TABLES), st.lists(st.tuples(KEYS, VALUES), max_size=6)),
        st.tuples(st.just("delete"), st.sampled_from(TABLES), st.lists(KEYS, max_size=4)),
        st.tuples(st.just("clear"), st.sampled_from(TABLES)),
        st.tuples(st.just("seal")),
        st.tuples(st.just("drop_sealed")),
    ),
    max_size=5,
)
ENTRIES = st.lists(
    st.builds(
        Entry,
        st.integers(1, 9),
        st.integers(1, 99),
        st.integers(0, 255),
        st.integers(0, 2**50),
        st.binary(max_size=400),
    ),
    max_size=4,
)


class Failure(Exception):
    pass


def fail():
    raise Failure("the disk is on fire")


class Contents:
    """What a journal holds."""

    def __init__(self):
        self.following = 1
        self.records = {}
        self.tables = {table: {} for table in TABLES}
        self.segments = Segments(0, 1)

    def copy(self):
        other = Contents()
        other.following = self.following
        other.records = dict(self.records)
        other.tables = {table: dict(rows) for table, rows in self.tables.items()}
        other.segments = self.segments
        return other

    def after(self, entries, changes):
        """What an append makes of it; None when it must not succeed."""
        other = self.copy()
        if entries:
            other.records[other.following] = entries
            other.following += 1
        for verb, *rest in changes:
            match verb:
                case "put":
                    other.tables[rest[0]].update(rest[1])
                case "delete":
                    for key in rest[1]:
                        other.tables[rest[0]].pop(key, None)
                case "clear":
                    other.tables[rest[0]].clear()
                case "seal" if other.segments.sealed:
                    return None
                case "seal":
                    other.segments = Segments(other.segments.current, other.following)
                case "drop_sealed":
                    other.segments = Segments(0, other.segments.current)
                    other.records = {n: r for n, r in other.records.items() if n >= other.segments.current}
        return other


def work_of(changes):
    def work(target):
        for verb, *rest in changes:
            getattr(target, verb)(*rest)

    return work


class StoreMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.held = Contents()
        self.epoch = 1
        self.failed = False
        self.views = ExitStack()
        self.store = self.open()

    @property
    def position(self):
        return Position(self.epoch, self.held.following)

    @rule(entries=ENTRIES, changes=CHANGES, point=st.sampled_from([*COMMIT_POINTS, *[None] * 6]))
    def append(self, entries, changes, point):
        work = work_of(changes) if changes or not entries else None
        after = self.held.after(entries, changes)
        if self.failed:
            with pytest.raises(CommitUnknownError, match="reopen the store"):
                self.store.append(self.position, entries, work)
        elif point is None and after is not None:
            self.held = after
            assert (
                self.store.append(Position(self.epoch, self.store.position.sequence), entries, work)
                == self.position
            )
        else:
            with ExitStack() as stack:
                if point is not None:
                    stack.enter_context(armed(point, fail))
                with pytest.raises(CommitUnknownError):
                    self.store.append(self.position, entries, work)
            if point == "journal.commit.after" and after is not None:
                self.held = after
            self.failed = True

    @precondition(lambda self: not self.failed)
    @rule(
        entries=ENTRIES.filter(len), changes=CHANGES, epochs=st.integers(-1, 1), sequences=st.integers(-1, 1)
    )
    def append_elsewhere(self, entries, changes, epochs, sequences):
        expected = Position(self.epoch + epochs, self.held.following + sequences)
        if expected != self.position:
            with pytest.raises(AppendRefusedError) as caught:
                self.store.append(expected, entries, work_of(changes))
            assert caught.value.actual == self.position

    @rule()
    def reopen(self):
        self.epoch += 1
        assert self.store.reopen() == self.position
        self.failed = False

    @rule()
    def close_and_open(self):
        self.store.close()
        with pytest.raises(JournalClosedError):
            self.store.reopen()
        self.store = self.open()
        self.epoch += 1
        self.failed = False

    @rule(point=st.sampled_from(OPEN_POINTS))
    def open_and_fail(self, point):
        self.store.close()
        raised = self.raised_by_opening(point)
        if raised == "after":
            self.epoch += 1
        if raised == "nothing":  # the point is not passed
            self.epoch += 1
            self.store.close()
        self.store = self.open()
        self.epoch += 1
        self.failed = False

    def raised_by_opening(self, point):
        with armed(point, fail):
            try:
                self.store = self.open()
            except Failure:
                return point.rpartition(".")[2]
        return "nothing"

    @rule(sequence=st.integers(0, 40), index=st.integers(0, 4))
    def read(self, sequence, index):
        record = self.held.records.get(sequence, [])
        if index < len(record):
            assert self.store.read([Location(sequence, index)]) == [record[index]]
        else:
            with pytest.raises(JournalCorruptError, match=f"commit record {sequence} "):
                self.store.read([Location(sequence, index)])

    @rule(start=st.integers(0, 40))
    def scan(self, start):
        right = [(n, record) for n, record in self.held.records.items() if n >= start]
        assert list(self.store.scan(start)) == right

    @rule(table=st.sampled_from(TABLES), start=KEYS, stop=st.none() | KEYS, reverse=st.booleans())
    def scan_table(self, table, start, stop, reverse):
        rows = sorted(self.held.tables[table].items(), reverse=reverse)
        right = [row for row in rows if row[0] >= start and (stop is None or row[0] < stop)]
        assert list(self.store.rows(table, start, stop, reverse=reverse)) == right
        with self.store.view() as tables:
            assert list(tables.scan(table, start, stop, reverse=reverse)) == right
            if stop is not None:
                assert tables.last(table, start, stop) == max(right, default=None)

    @invariant()
    def everything_is_there(self):
        with self.store.view() as tables:
            assert tables.segments == self.held.segments
            for table, rows in self.held.tables.items():
                assert dict(tables.scan(table)) == rows
                assert all(tables.get(table, key) == value for key, value in rows.items())
        assert dict(self.store.scan()) == self.held.records

    def teardown(self):
        self.store.close()


class MemoryMachine(StoreMachine):
    def __init__(self):
        self.journal = MemoryJournal()
        super().__init__()

    def open(self):
        return MemoryStore(self.journal)


class LmdbMachine(StoreMachine):
    def __init__(self):
        self.directory = Path(tempfile.mkdtemp(prefix="everact-model-"))
        super().__init__()

    def open(self):
        return LmdbStore(self.directory / "journal", durability="os")

    def teardown(self):
        super().teardown()
        shutil.rmtree(self.directory)


@pytest.mark.slow
@pytest.mark.timeout(600)  # to make a failing example small takes minutes
@pytest.mark.parametrize("machine", [MemoryMachine, LmdbMachine])
def test_a_store_holds_what_was_committed_whatever_fails(machine):
    run_state_machine_as_test(
        machine,
        settings=settings(settings(), stateful_step_count=40, suppress_health_check=list(HealthCheck)),
    )


@pytest.mark.parametrize("point", OPEN_POINTS)
def test_a_fault_while_a_journal_is_made_leaves_all_of_it_or_nothing(tmp_journal, point):
    for _ in range(2):
        with armed(point, fail):
            try:
                LmdbStore(tmp_journal, durability="os").close()
            except Failure:
                continue
            assert point == "journal.open.created"
    store = LmdbStore(tmp_journal, durability="os")
    assert store.position == Position(3 if point.endswith("after") else 1, 1)
    assert list(store.scan()) == []
    store.close()
