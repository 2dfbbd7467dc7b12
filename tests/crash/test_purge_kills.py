"""SIGKILL in purges and rewrites, while the purged ids are used again: runs are whole or gone, and never mixed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.purges import check_journal, next_key

from everact.journal.clock import SystemClock
from everact.journal.fault_points import FAULT_POINTS
from everact.journal.lmdb_store import LmdbStore
from everact.journal.upkeep import Upkeep

PROGRAM = Path(__file__).with_name("purge_program.py")
#: Beside those of purges and rewrites: places where such a commit can end.
POINTS = [
    *(point for point in FAULT_POINTS if point.startswith(("purge.", "rewrite."))),
    "journal.commit.written",
    "journal.commit.after",
    "compaction.written",
    "recovery.loaded",
]
PASSES = {"rewrite": [1, 1, 2], "recovery": [1, 1]}
LIMIT = 40


class Lives:
    """What is known of a journal after each life of the program."""

    def __init__(self, journal):
        self.journal = journal
        self.lives = 0
        self.started = {}
        self.results = {}
        self.maybe_gone = set()
        self.gone = set()
        self.next_key = 1

    def live(self, fault=""):
        """One life, and everything is checked; returns what it printed."""
        self.lives += 1
        process = subprocess.run(
            [sys.executable, "-W", "error", os.fspath(PROGRAM), os.fspath(self.journal), str(self.lives)],
            capture_output=True,
            timeout=LIMIT,
            check=False,
            env={**os.environ, "EVERACT_FAULT": fault},
        )
        told = f"life {self.lives} ({fault or 'no fault'})"
        lines = [json.loads(line) for line in process.stdout.splitlines()]
        assert process.stderr == b"", f"{told}: {process.stderr.decode()}"
        assert process.returncode in (0, -signal.SIGKILL), told
        for kind, *rest in lines:
            if kind == "started":
                workflow_id, run_id = rest
                self.started[run_id or workflow_id] = workflow_id
            elif kind == "ended":
                self.results[rest[0]] = rest[1]
            elif kind == "purging":
                self.maybe_gone = set(self.results)
            elif kind == "purged":
                self.gone |= {run for run in self.maybe_gone if self.started[run].startswith("Counter")}
        runs, facts = check_journal(self.journal)
        self._check(told, runs)
        assert next_key(self.journal) >= self.next_key, f"{told}: keys of runs are used again"
        self.next_key = next_key(self.journal)
        self.is_done = process.returncode == 0
        return lines, runs, facts

    def _check(self, told, runs):
        by_run_id = {run.events[0].run_id: run for run in runs.values()}
        for run in runs.values():
            label = json.loads(run.events[0].args[0].data)
            if run.state.outcome is not None and type(run.state.outcome).__name__ == "WorkflowCompleted":
                signals = sum(type(event).__name__ == "SignalReceived" for event in run.events)
                assert json.loads(run.state.outcome.result.data) == f"{label}: {signals}", told
        for run_id, result in self.results.items():
            if run_id in by_run_id and by_run_id[run_id].state.outcome is not None:
                assert json.loads(by_run_id[run_id].state.outcome.result.data) == result, told
        assert not self.gone & by_run_id.keys(), f"{told}: purged runs are back"
        may_be_gone = (
            self.gone | self.maybe_gone | {r for r, w in self.started.items() if w.startswith("Brief")}
        )
        replaced = {r for r in self.started if r not in self.results}
        for run_id in self.started.keys() - may_be_gone - replaced:
            assert run_id in by_run_id, f"{told}: run {run_id} of {self.started[run_id]} is gone"
        still_open = {run.workflow_id for run in runs.values() if run.state.outcome is None}
        known = {workflow_id for workflow_id in self.started.values() if workflow_id.startswith("open-")}
        assert known <= still_open, f"{told}: open runs are gone: {known - still_open}"


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_runs_are_whole_or_gone_when_killed_at(point, tmp_journal):
    lives = Lives(tmp_journal)
    kills = 0
    for passes in PASSES.get(point.partition(".")[0], [1, 5, 20]):
        lives.live(f"{point}:{passes}")
        kills += not lives.is_done
    assert kills >= 2
    lines, runs, _facts = lives.live()
    assert lives.is_done
    assert ["compacted"] in lines
    store = LmdbStore(tmp_journal, durability="os")
    Upkeep(store, SystemClock().wall).empty_log()  # and what was left of histories
    store.close()
    after, facts = check_journal(tmp_journal)
    assert facts.purging == []
    assert {key: run.entries for key, run in after.items()} == {key: run.entries for key, run in runs.items()}
    assert list(tmp_journal.glob("rewrit*")) == []


@pytest.mark.slow
def test_the_file_stays_small_while_ids_are_used_again(tmp_journal):
    lives = Lives(tmp_journal)
    sizes = []
    for _ in range(4):
        lives.live()
        assert lives.is_done
        sizes.append((tmp_journal / "data.mdb").stat().st_size)
    assert max(sizes[1:]) <= 2 * sizes[0]
