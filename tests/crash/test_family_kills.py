"""SIGKILL between runs: a child is started once, its end told once, signals arrive in order, each once (R15)."""

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from support.crashes import one_life
from support.rounds import rounds

from everact.journal import child_events as ce
from everact.journal import events as ev
from everact.journal.lmdb_store import LmdbStore
from everact.journal.outbox import Outbox, put_aside, taken_of
from everact.journal.run_walk import RunWalk
from everact.journal.verify import verify

PROGRAM = Path(__file__).with_name("family.py")
LIMIT = 60
FAMILIES = 4
CHILDREN = 4
RESULT = [
    sum(n * n for n in range(CHILDREN)),
    None,
    "not started",
    ["one", "two", "three"],
    "cancelled",
    "WorkflowNotFoundError",
]

#: Where each life ends, one after the other.
LIVES = {
    "outbox.send.before": [1, 2, 5, 9],
    "outbox.apply.before": [1, 2, 5, 9],
    "outbox.written": [1, 3, 7, 12],
    "courier.take.before": [1, 10, 40, 25],
    "courier.applied": [1, 2, 5, 9],
    "journal.commit.written": [2, 5, 9, 14],
    "journal.commit.after": [2, 5, 9, 14],
    "runtime.effects.before": [2, 5, 9, 14],
}


class Lives:
    """What has left all the lives of one journal."""

    def __init__(self, journal):
        self.journal = journal
        self.ends = defaultdict(list)

    def live(self, fault=""):
        """One life; returns whether it came to its end."""
        is_over, lines, _ = one_life(PROGRAM, self.journal, fault=fault, limit=LIMIT)
        for kind, *rest in lines:
            if kind == "end":
                self.ends[rest[0]].append(rest[1])
        store = LmdbStore(self.journal)
        try:
            assert verify(store).problems == []
        finally:
            store.close()
        return is_over

    def check(self):
        store = LmdbStore(self.journal)
        try:
            assert list(Outbox(store).pending(0)) == []
            with store.view() as tables:
                assert put_aside(tables) == []
                assert taken_of(tables, 0).ahead == ()
            walk = RunWalk(store, lambda damage: pytest.fail(str(damage)))
            runs = {}
            for key in list(walk.run_keys(None)):
                events = [
                    e
                    for _, entry in walk.look(key).entries
                    for e in ev.events_of(ev.decode_record(entry.body))
                ]
                name = events[0].workflow_id
                assert name not in runs, f"{name} was started twice"
                runs[name] = events
        finally:
            store.close()
        assert len(runs) == FAMILIES * (1 + CHILDREN + 1 + 1 + 1 + 1 + 3)
        for number in range(FAMILIES):
            self._check_family(f"family-{number}", number, runs)

    def _check_family(self, name, number, runs):
        events = runs[name]
        (ends,) = {json.dumps(end) for end in self.ends[name]}
        assert json.loads(ends) == [RESULT[0], ["failed", f"Broken: no {number}"], *RESULT[2:]]
        scheduled = [event for event in events if isinstance(event, ce.ChildScheduled)]
        heard = Counter(event.command for event in events if isinstance(event, ce.CHILD_ENDS))
        started = Counter(event.command for event in events if isinstance(event, ce.ChildStarted))
        answered = Counter(event.command for event in events if isinstance(event, ce.MESSAGE_ENDS))
        assert set(heard.values()) == set(started.values()) == set(answered.values()) == {1}
        spared = {
            e.command for e in scheduled if e.start.workflow_id.endswith(("terminate", "cancel", "abandon"))
        }
        assert heard.keys() == {event.command for event in scheduled} - spared
        words = [
            json.loads(e.args[0].data)
            for e in runs[f"{name}/ear"]
            if isinstance(e, ev.SignalReceived) and e.args
        ]
        assert words == ["one", "two", "three"]


@pytest.mark.slow
@pytest.mark.parametrize("point", LIVES)
def test_families_are_whole_when_killed_at(point, tmp_journal):
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
