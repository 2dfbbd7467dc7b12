"""SIGKILL between the end of a run and the beginning of the next one: there is nothing between them (R21, D03)."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.crashes import load_program, read_journal
from support.rounds import rounds

from everact.actors.definitions import activity_definition, workflow_definition
from everact.actors.replay import replay
from everact.actors.workflow_instance import WorkflowInstance
from everact.journal.payloads import PayloadConverter
from everact.journal.run_ends import next_run

PROGRAM = Path(__file__).with_name("chain_program.py")
LIMIT = 50

#: Where each life ends, one after the other.
LIVES = {
    "run.continue.before": [1, 30],
    "run.continue.after": [30, 7],
    "run.begin.before": [1, 2],
    "run.timeout.before": [1, 1],
    "journal.commit.written": [3, 9],
    "journal.commit.after": [9, 3],
    "runtime.effects.before": [4, 12],
    "message.ack.before": [12],
}


class Lives:
    """What has left all the lives of one journal."""

    def __init__(self, journal):
        self.program = load_program(PROGRAM)
        self.journal = journal
        self.acknowledged = {}
        self.steps = Counter()
        self.ends = {}

    def live(self, fault="", kill_after=None):
        """One life; returns whether it came to its end."""
        process = subprocess.Popen(
            [sys.executable, "-W", "error", os.fspath(PROGRAM), os.fspath(self.journal)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "EVERACT_FAULT": fault},
            bufsize=0,  # what is read by lines, and by communicate() from there on, has no buffer between
        )
        with process:
            process.stdin.write(json.dumps(self.acknowledged).encode() + b"\n")
            process.stdin.flush()
            seen = b""
            if kill_after:
                seen = b"".join(process.stdout.readline() for _ in range(kill_after))
                process.kill()
            out, err = process.communicate(timeout=LIMIT)
        assert process.returncode in (0, -signal.SIGKILL), err.decode()
        for kind, *rest in map(json.loads, (seen + out).splitlines()):
            if kind == "ack":
                name, n = rest
                assert n == self.acknowledged.get(name, 0), "acknowledged out of order"
                self.acknowledged[name] = n + 1
            elif kind == "step":
                self.steps[rest[0]] += 1
            elif kind == "end":
                assert self.ends.setdefault(rest[0], rest[1]) == rest[1]
        self.runs = read_journal(self.journal)
        self.check_chains()
        return process.returncode == 0

    def check_chains(self):
        """Each run that says which one follows is followed by it, and each that follows has one before."""
        by_id = {run.events[0].run_id: run for run in self.runs.values()}
        followed = {}
        for run_id, run in by_id.items():
            following = next_run(run.state.outcome)
            if following is not None:
                assert by_id[following.run_id].events[0].chain.continued_run_id == run_id
                followed[following.run_id] = run_id
        for run_id, run in by_id.items():
            assert (run.events[0].chain is not None) == (run_id in followed)
        still_open = Counter(run.workflow_id for run in by_id.values() if run.state.outcome is None)
        assert not still_open or max(still_open.values()) == 1

    def check_end(self):
        program = self.program
        wanted = list(range(program.COUNT))
        for name in program.COUNTERS:
            assert self.ends[name] == wanted, f"{name}: {self.ends[name]}"
        assert self.ends["loop"] == program.LOOPS
        assert self.ends["shaky"] == [program.ATTEMPTS, f"attempt {program.ATTEMPTS - 1}"]
        assert self.ends["slow"] == "the run took longer than run_timeout=0.05 s"
        runs = Counter(run.workflow_id for run in self.runs.values())
        assert (runs["loop"], runs["shaky"], runs["slow"]) == (program.LOOPS, program.ATTEMPTS, 2)
        wanted = {*range(1, program.LOOPS + 1), *range(-program.ATTEMPTS, 0)}
        assert self.steps.keys() == wanted
        workflows = {
            cls.__name__: workflow_definition(cls)
            for cls in (program.Counter, program.Handled, program.Loop, program.Shaky, program.Slow)
        }
        activities = {"step": activity_definition(program.step)}
        for run in self.runs.values():  # what every run of every chain has decided, it decides again
            instance = WorkflowInstance(
                workflows[run.events[0].workflow_type], activities, PayloadConverter(), workflows=workflows
            )
            replay(instance, run.records)
            if instance.outcome is not None:
                assert instance.outcome == run.state.outcome
            instance.discard()


@pytest.mark.slow
@pytest.mark.parametrize("point", LIVES)
def test_chains_go_on_when_killed_at(point, tmp_journal):
    lives = Lives(tmp_journal)
    kills = sum(not lives.live(f"{point}:{count}") for count in rounds(LIVES[point], 2))
    assert kills >= 1
    while not lives.live():
        pass
    lives.check_end()


@pytest.mark.slow
def test_chains_go_on_when_killed_at_random(tmp_journal):
    numbers = random.Random(21)
    lives = Lives(tmp_journal)
    for _ in range(4):
        if lives.live(kill_after=numbers.randrange(5, 150)):
            break
    while not lives.live():
        pass
    lives.check_end()


def test_a_life_without_kills(tmp_journal):
    lives = Lives(tmp_journal)
    assert lives.live()
    lives.check_end()
    assert set(lives.steps.values()) == {1}
