"""SIGKILL around requests to cancel: what was acknowledged ends its run once, after its clean-up."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest
from support.crashes import one_life
from support.rounds import rounds

from everact.journal import events as ev
from everact.journal.lmdb_store import LmdbStore
from everact.journal.loading import load
from everact.journal.verify import verify

PROGRAM = Path(__file__).with_name("cancelling_program.py")
LIMIT = 40
RUNS = 12
UNDO = 3

#: Where each life ends, one after the other.
LIVES = {
    "journal.commit.before": [2, 4, 3, 5],
    "journal.commit.written": [2, 4, 3, 5],
    "journal.commit.after": [2, 4, 3, 5],
    "compaction.written": [1, 2, 2, 3],
    "runtime.effects.before": [1, 3, 2, 4],
    "runtime.effects.after": [1, 3, 2, 4],
    "activity.start.before": [4, 12, 8, 20],
    "activity.cancel.before": [1, 2, 3, 1],
    "activity.result.before": [1, 3, 2, 6],
    "message.ack.before": [1, 3, 2, 4],
}


class Lives:
    """What has left all the lives of one journal."""

    def __init__(self, journal):
        self.journal = journal
        self.asked = set()
        self.undone = defaultdict(list)
        self.work = defaultdict(list)
        self.ends = defaultdict(set)
        self.settled = set()

    def live(self, fault=""):
        """One life; returns whether it came to its end."""
        is_over, lines, _ = one_life(PROGRAM, self.journal, fault=fault, limit=LIMIT)
        for kind, *rest in lines:
            if kind == "work":
                name, key, attempt = rest
                assert key not in self.settled, "what was cancelled in an earlier life has begun again"
                self.work[name].append((key, attempt))
            elif kind == "undo":
                name, n, key = rest
                assert key not in self.settled, "what an earlier life has undone was undone again"
                self.undone[name].append(n)
            elif kind == "asked":
                self.asked.add(rest[0])
            elif kind == "end":
                self.ends[rest[0]].add(rest[1])
        self.look()
        return is_over

    def look(self):
        """The journal after a life: whole, one request a run, and each command cancelled once."""
        store = LmdbStore(self.journal, read_only=True)
        try:
            assert verify(store).problems == []
            index = load(store).runs
            for row in index.newest_first():
                self.look_at(row, index)
        finally:
            store.close()

    def look_at(self, row, index):
        events = []
        for _at, record in index.records(row):
            events += [*record.inputs, *getattr(record, "outputs", ())]
        requests = [event for event in events if type(event) is ev.CancelRequested]
        assert len(requests) <= 1
        if row.workflow_id in self.asked:
            assert requests, "an acknowledged request is not in the journal"
            assert requests[0].reason == f"stop {row.workflow_id[2:]}"
        cancels = Counter(event.command for event in events if type(event) in CANCELS)
        assert set(cancels.values()) <= {1}
        ends = [event for event in events if isinstance(event, ev.OUTCOMES)]
        assert len(ends) <= 1
        # What is abandoned goes on: it may begin again.
        over = [
            event.command
            for event in events
            if type(event) in (ev.ActivityCompleted, ev.ActivityCancelled)
            or (type(event) is ev.ActivityCancelRequested and event.mode == ev.TRY_CANCEL)
        ]
        self.settled |= {f"{events[0].run_id}/{command}" for command in over}
        assert all(type(end) is ev.WorkflowCancelled for end in ends)

    def check(self):
        for number in range(RUNS):
            name = f"t-{number}"
            (end,) = self.ends[name]
            assert f"stop {number}" in end
            assert sorted(set(self.undone[name])) == list(range(UNDO)), "clean-up that is not whole"
            assert self.undone[name] == sorted(self.undone[name]), "clean-up out of order"
            assert self.work[name]


CANCELS = (ev.ActivityCancelRequested, ev.TimerCancelled)


@pytest.mark.slow
@pytest.mark.parametrize("point", LIVES)
def test_a_request_that_was_acknowledged_ends_its_run_once_when_killed_at(point, tmp_journal):
    lives = Lives(tmp_journal)
    kills = sum(not lives.live(f"{point}:{count}") for count in rounds(LIVES[point], 2))
    assert kills >= 2
    while not lives.live():
        pass
    lives.check()


def test_a_life_without_kills(tmp_journal):
    lives = Lives(tmp_journal)
    assert lives.live()
    lives.check()
    assert len(lives.asked) == RUNS
