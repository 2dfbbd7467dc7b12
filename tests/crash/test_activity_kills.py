"""SIGKILL while activities are followed closely: what was said, asked and answered is there in the next life.

Few slots: what died with a process holds none in the next one (F11).
"""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from support.crashes import one_life
from support.rounds import rounds

from everact.journal.lmdb_store import LmdbStore
from everact.journal.verify import verify

PROGRAM = Path(__file__).with_name("expedition.py")
LIMIT = 40
RUNS = 12

#: Where each life ends, one after the other.
LIVES = {
    "activity.note.before": [1, 20, 40, 25],
    "activity.cancel.before": [1, 3, 6, 2],
    "activity.complete.before": [1, 3, 5, 2],
    "activity.start.before": [1, 20, 8, 30],
    "activity.result.before": [1, 20, 10, 15],
    "journal.commit.written": [2, 6, 3, 8],
    "journal.commit.after": [2, 6, 3, 8],
    "runtime.effects.before": [2, 12, 8, 20],
    "runtime.effects.after": [2, 12, 8, 20],
}


class Lives:
    """What has left all the lives of one journal."""

    def __init__(self, journal):
        self.journal = journal
        self.seeds = defaultdict(set)
        self.places = defaultdict(list)
        self.answered = defaultdict(int)
        self.ends = defaultdict(list)

    def live(self, fault=""):
        """One life; returns whether it came to its end."""
        is_over, lines, _ = one_life(PROGRAM, self.journal, fault=fault, limit=LIMIT)
        for kind, *rest in lines:
            if kind == "used":
                self.seeds[rest[0]].add(rest[1])
            elif kind == "climbs":
                self.places[rest[0]].append((rest[1], rest[2]))
            elif kind == "answered":
                self.answered[rest[0]] += 1
            elif kind == "end":
                self.ends[rest[0]].append(rest[1])
        store = LmdbStore(self.journal)
        try:
            assert verify(store).problems == []
        finally:
            store.close()
        return is_over

    def check(self):
        names = {f"x-{number}" for number in range(RUNS)}
        assert set(self.ends) == names
        for name in names:
            assert len(self.seeds[name]) == 1, "a side effect was seen that is not the journal's"
            assert self.answered[name] <= 1, "one attempt was completed twice"
            (ends,) = {json.dumps(end) for end in self.ends[name]}
            is_same, place, rested, answer, memo = json.loads(ends)
            assert (is_same, rested, answer) == (True, "told to stop", 42)
            assert memo == {"n": int(name[2:]), "place": place}
            # Each attempt goes on where the one before was when it failed, or what the journal knew when it was lost.
            assert place >= 9
            attempts = [attempt for attempt, _found in self.places[name]]
            assert attempts == sorted(set(attempts)), "an attempt ran twice under one number"
            said = [found[0] if found else 0 for _attempt, found in self.places[name]]
            assert said == sorted(said)


@pytest.mark.slow
@pytest.mark.parametrize("point", LIVES)
def test_followed_activities_go_on_when_killed_at(point, tmp_journal):
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
    assert set(lives.answered.values()) == {1}
    assert {attempt for places in lives.places.values() for attempt, _ in places} == {1, 2, 3}
