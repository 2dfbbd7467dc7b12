"""SIGKILL while sagas do and undo: in the end everything that was done is undone, and nothing twice."""

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from support.crashes import load_program, one_life
from support.rounds import rounds

from everact.journal import events as ev
from everact.journal.lmdb_store import LmdbStore
from everact.journal.loading import load
from everact.journal.verify import verify
from everact.testing import Replayer

PROGRAM = Path(__file__).with_name("saga_program.py")
LIMIT = 40

#: Where each life ends, one after the other.
LIVES = {
    "journal.commit.before": [2, 8, 20, 9, 14],
    "journal.commit.written": [2, 8, 20, 9, 14],
    "journal.commit.after": [2, 8, 20, 9, 14],
    "runtime.effects.before": [3, 8, 20, 9, 14],
    "runtime.effects.after": [3, 8, 20, 9, 14],
    "message.ack.before": [3, 8, 20, 9, 14],
    "activity.start.before": [20, 60, 15, 5, 30],
    "activity.result.before": [20, 60, 15, 5, 30],
    "timer.fire.before": [1, 2, 1, 3],
    "run.control.before": [1, 2, 3, 1],
    "activity.cancel.before": [1, 2, 4, 3],
    "compaction.before": [1, 3, 2, 4],
    "compaction.written": [1, 3, 2, 4],
    "recovery.loaded": [1, 1],
    "recovery.after": [1, 1],
}
#: Passed once in each life, so the lives between must get on in some other way.
BETWEEN = "journal.commit.after:8"
STATUS = {"goes_well": "completed", "cancelled": "cancelled"}


class Lives:
    """What has left all the lives of one journal."""

    def __init__(self, folder):
        self.journal = folder / "journal"
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.program = load_program(PROGRAM)
        self.ends = defaultdict(set)
        self.settled = set()

    def live(self, fault=""):
        """One life; returns whether it came to its end."""
        is_over, lines, stderr = one_life(PROGRAM, self.journal, self.ledger, fault=fault, limit=LIMIT)
        assert stderr == b""
        for kind, *rest in lines:
            if kind == "end":
                self.ends[rest[0]].add(tuple(rest[1:]))
        self._look()
        return is_over

    def _look(self):
        """What the journal knows as done is never done again."""
        ran = Counter(line[3] for line in self.lines())
        for key, count in self.settled:
            assert ran[key] == count, f"{key} ran again, and its end was in the journal"
        store = LmdbStore(self.journal, read_only=True)
        try:
            assert verify(store).problems == []
            index, *_ = load(store)
            for row in index.newest_first():
                repeats = {}
                for _at, record in index.records(row):
                    for event in ev.events_of(record):
                        if isinstance(event, ev.ActivityScheduled):
                            repeats[event.command] = event.repeats or event.command
                        elif isinstance(event, ev.ActivityCompleted):
                            key = f"{row.run_id}/{repeats[event.command]}"
                            self.settled.add((key, ran[key]))
        finally:
            store.close()

    def lines(self):
        return [json.loads(line) for line in self.ledger.read_text().splitlines()]

    def check(self):
        kinds, steps = self.program.KINDS, self.program.STEPS
        assert set(self.ends) == {f"{kind}-{n}" for kind in kinds for n in (1, 2)}
        keys = defaultdict(set)
        for workflow_id, verb, step, key, _attempt, outcome in self.lines():
            if outcome == "done":
                keys[workflow_id, verb, step].add(key)
        twice = {what: found for what, found in keys.items() if len(found) > 1}
        assert twice == {}, "done under two keys"
        for workflow_id, ends in self.ends.items():
            kind = workflow_id.partition("-")[0]
            assert len({status for status, _error in ends}) == 1
            assert {status for status, _error in ends} == {STATUS.get(kind, "failed")}
            for step in (*steps, "bus"):
                done = len(keys[workflow_id, "do", step])
                undone = len(keys[workflow_id, "undo", step])
                if kind == "siblings":  # those that were told to stop may not have begun
                    assert done == undone or (done, undone) == (1, 0), f"{workflow_id} {step}"
                else:
                    assert done == (step != "bus")
                    assert undone == (done and kind != "goes_well"), f"{workflow_id} {step}"
        self._check_journal()

    def _check_journal(self):
        replayer = Replayer(
            workflows=[self.program.Trip], activities=[self.program.do, self.program.undo], guard="off"
        )
        assert replayer.replay_journal(self.journal).results
        store = LmdbStore(self.journal, read_only=True)
        try:
            index, *_ = load(store)
            for row in index.newest_first():
                records = index.records(row)
                self._check_run(row, [e for _at, r in records for e in ev.events_of(r)])
        finally:
            store.close()

    def _check_run(self, row, events):
        """Every compensation was completed once; what is undone is what was completed, the last one first."""
        kinds = Counter(type(event).__name__ for event in events)
        completed = [event.step for event in events if type(event).__name__ == "CompensationCompleted"]
        assert len(set(completed)) == len(completed)
        assert kinds["CompensationStarted"] == len(completed) + kinds["CompensationEscalated"]
        if row.workflow_id.startswith("siblings"):
            done = [e.command for e in events if type(e).__name__ == "ActivityCompleted"]
            assert len(done) == 2 * len(completed), "a sibling that was completed was not undone"
        elif not row.workflow_id.startswith("goes_well"):
            assert len(completed) == len(self.program.STEPS)
            names = [e.name for e in events if type(e).__name__ == "CompensationStarted"]
            assert list(dict.fromkeys(names)) == list(reversed(self.program.STEPS))


@pytest.mark.slow
@pytest.mark.parametrize("point", LIVES)
def test_what_was_done_is_undone_once_when_killed_at(point, tmp_path):
    lives = Lives(tmp_path)
    if point.startswith("recovery."):
        lives.live(BETWEEN)
    kills = 0
    for count in rounds(LIVES[point], 2):
        kills += not lives.live(f"{point}:{count}")
        if point.startswith("recovery."):
            kills += not lives.live(BETWEEN)
    # The one step that is told to stop is not told again: it runs again.
    assert kills >= (1 if point == "activity.cancel.before" else 2)
    while not lives.live():
        pass
    lives.check()


def test_a_life_without_kills(tmp_path):
    lives = Lives(tmp_path)
    assert lives.live()
    lives.check()
