"""SIGKILL around the commits of steps: a step whose end is in the journal never runs again, and no total is lost."""

from collections import defaultdict
from pathlib import Path

import pytest
from support.crashes import load_program, one_life, read_journal
from support.rounds import rounds
from support.steps import Replayed

from everact.journal.step_events import StepCompleted, StepStarted

PROGRAM = Path(__file__).with_name("step_program.py")
LIMIT = 40

#: Where each life ends, one after the other.
LIVES = {
    "journal.commit.before": [2, 9, 15, 6],
    "journal.commit.written": [2, 9, 15, 6],
    "journal.commit.after": [2, 9, 15, 6],
    "runtime.effects.before": [2, 12, 8, 20],
    "runtime.effects.after": [2, 12, 8, 20],
    "activity.start.before": [1, 20, 8, 30],
    "activity.result.before": [1, 20, 10, 15],
    "timer.fire.before": [1, 5, 3, 8],
    "recovery.loaded": [1],
}


class Lives:
    """What has left all the lives of one journal."""

    def __init__(self, journal):
        self.journal = journal
        self.program = load_program(PROGRAM)
        self.ends = defaultdict(list)
        self.over = defaultdict(set)

    def live(self, fault=""):
        """One life; returns whether it came to its end."""
        is_over, lines, _ = one_life(PROGRAM, self.journal, fault=fault, limit=LIMIT)
        for kind, name, said in (line for line in lines if "ran" not in line):
            if kind == "end":
                self.ends[name].append(said)
            else:
                assert said not in self.over[name], f"{name}: the body of {said} ran again"
        self.look()
        return is_over

    def look(self):
        """Read the journal: which steps are over, and that both replays of each run come to the same."""
        for run in read_journal(self.journal).values():
            jumped = Replayed(self.program.Ledger, [self.program.add], run.records)
            whole = Replayed(self.program.Ledger, [self.program.add], run.records, jump=False)
            assert jumped.fields == whole.fields
            assert jumped.counters == whole.counters
            self.over[run.workflow_id] = set(places(run.events))

    def check(self):
        assert set(self.ends) == {f"l-{number}" for number in range(self.program.RUNS)}
        for name, ends in self.ends.items():
            assert all(end == ends[0] for end in ends), f"{name} has two results"
            rounds, last = ends[0][:-1], ends[0][-1]
            assert [line.split()[-1] for line in rounds] == ["1000"] * self.program.ROUNDS
            assert last.startswith("{'a': ")


def places(events):
    """The steps that a replay skips, as the program names them."""
    names, numbers = {}, defaultdict(int)
    for event in events:
        if isinstance(event, StepStarted):
            names[event.command] = event.name
        elif isinstance(event, StepCompleted) and event.checkpoint is not None and event.command in names:
            name = names[event.command]
            yield f"{name} {numbers[name]}"
            numbers[name] += name != "finish"
            if name == "settle":
                numbers["finish"] += 1


@pytest.mark.slow
@pytest.mark.parametrize("point", LIVES)
def test_steps_go_on_where_they_were_when_killed_at(point, tmp_journal):
    lives = Lives(tmp_journal)
    kills = sum(not lives.live(f"{point}:{count}") for count in rounds(LIVES[point], 2))
    assert kills >= min(2, len(LIVES[point]))
    while not lives.live():
        pass
    lives.check()


def test_a_life_without_kills(tmp_journal):
    lives = Lives(tmp_journal)
    assert lives.live()
    lives.check()
    assert lives.over["l-0"] == {f"{name} {n}" for name in ("move", "settle", "finish") for n in range(4)}
