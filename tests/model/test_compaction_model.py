"""Random runs on tiny segments: whatever is moved, whenever it fails or dies, the journal holds what was written."""

import shutil
import tempfile
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
from support.clock import SECOND, START
from support.journal_model import Host, Model, make_tiny, some_turn

from everact.journal.compaction import MOST_FAILURES
from everact.journal.fault_points import armed
from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryJournal, MemoryStore

POINTS = [
    "journal.commit.before",
    "journal.commit.written",
    "journal.commit.after",
    "compaction.before",
    "compaction.written",
]
NUMBERS = st.integers(0, 999)
WINDOW = 60 * SECOND


class Failure(Exception):
    pass


def fail():
    raise Failure("the disk is on fire")


class JournalMachine(RuleBasedStateMachine):
    """Turns collect in a batch, batches are committed with what the compactor plans, some fail, some lives end."""

    def __init__(self):
        super().__init__()
        self.number = 0
        self.model = Model()
        self.host = Host(self.open(), self.model, START)

    def since(self):
        return self.host.now - WINDOW

    def open_keys(self):
        return sorted(key for key in self.model.open() | self.host.states.keys() if self.is_open(key))

    def is_open(self, key):
        state = self.host.states.get(key)
        return state.outcome is None if state is not None else key in self.model.open()

    @rule(name=st.integers(0, 5), kind=st.sampled_from("AB"), with_request=st.booleans())
    def start(self, name, kind, with_request):
        workflow_id = f"wf-{name}"
        running = [self.host.state(key).started.workflow_id for key in self.open_keys()]
        self.number += 1
        if workflow_id not in running:
            self.host.start(workflow_id, kind, f"start-{self.number}" if with_request else "")

    @rule(which=NUMBERS, choice=NUMBERS, count=st.integers(1, 6))
    def turns(self, which, choice, count):
        for step in range(count):
            keys = self.open_keys()
            if keys:
                self.number += 1
                some_turn(
                    self.host, keys[(which + step * choice) % len(keys)], choice + step * which, self.number
                )

    @rule(which=NUMBERS, count=st.integers(5, 12))
    def turns_of_one_run(self, which, count):
        keys = self.open_keys()
        for step in range(count if keys else 0):
            self.number += 1
            some_turn(self.host, keys[which % len(keys)], step % 14, self.number)
            if step % 3 == 0:
                self.committed(self.host.commit())

    @rule()
    def commit(self):
        self.committed(self.host.commit())

    def committed(self, error):
        assert error is None, error
        self.model.check_index(self.host.index, since=self.since())
        if self.host.compactor.error is not None:  # failures in a row have stopped it, until the next start
            assert self.host.compactor.failures >= MOST_FAILURES
            self.die()

    @rule(point=st.sampled_from(POINTS))
    def commit_that_fails(self, point):
        with armed(point, fail):
            error = self.host.commit()
        if error is not None:
            assert isinstance(error.__cause__, Failure)
            self.host.check_loaded(self.since())

    @rule()
    def die(self):
        """The open batch is lost; another process opens the journal."""
        now = self.host.now
        self.host.store.close()
        self.host = Host(self.open(), self.model, now)
        self.host.check_loaded(self.since())

    @rule(which=NUMBERS)
    def forget(self, which):
        keys = sorted(self.host.states)
        if keys:
            self.host.forget(keys[which % len(keys)])

    @rule(seconds=st.sampled_from([0, 1, 40]))
    def time_passes(self, seconds):
        self.host.now += seconds * SECOND + 1

    @precondition(lambda self: not self.host.batch)
    @invariant()
    def tables_fit_together(self):
        self.model.check_tables(self.host.store)

    def teardown(self):
        self.host.commit()
        self.die()
        self.host.store.close()


class MemoryMachine(JournalMachine):
    def __init__(self):
        self.journal = MemoryJournal()
        super().__init__()

    def open(self):
        return MemoryStore(self.journal)


class LmdbMachine(JournalMachine):
    def __init__(self):
        self.directory = Path(tempfile.mkdtemp(prefix="everact-model-"))
        super().__init__()

    def open(self):
        return LmdbStore(self.directory / "journal", durability="os")

    def teardown(self):
        try:
            super().teardown()
        finally:
            self.host.store.close()
            shutil.rmtree(self.directory)


def run(machine, examples):
    profile = settings()
    run_state_machine_as_test(
        machine,
        settings=settings(
            profile,
            max_examples=profile.max_examples * examples // 50,
            stateful_step_count=150,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    make_tiny(monkeypatch, DEDUPE_WINDOW=WINDOW, DEDUPE_COUNT=10_000)


@pytest.mark.slow
@pytest.mark.timeout(600)  # to make a failing example small takes minutes
@pytest.mark.parametrize(("machine", "examples"), [(MemoryMachine, 40), (LmdbMachine, 25)])
def test_a_journal_holds_what_was_written_whatever_is_moved_or_fails(machine, examples):
    run(machine, examples)
