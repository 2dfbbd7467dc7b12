"""Code that kills its process is stopped after a few deaths, and all other code goes on (R12, R4, C04)."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from support.crashes import read_journal

from everact.journal import events as ev

PROGRAM = Path(__file__).with_name("poison_program.py")
#: A process may have so much anonymous memory, in bytes; one of these has a tenth of it.
MEMORY = 400 << 20
MOST_LIVES = 25


def anonymous_bytes(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


def keep_small(process):
    """What a container or the kernel does to a process that eats memory."""

    def watch():
        while process.poll() is None:
            try:
                if anonymous_bytes(process.pid) > MEMORY:
                    process.kill()
                    return
            except OSError:
                return
            ended.wait(0.005)

    ended = threading.Event()
    threading.Thread(target=watch, daemon=True).start()
    return ended


def live(journal, kinds, fault=""):
    """One life; returns its lines and its exit code."""
    with subprocess.Popen(
        [sys.executable, os.fspath(PROGRAM), os.fspath(journal), *kinds],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "EVERACT_FAULT": fault},
    ) as process:
        ended = keep_small(process)
        try:
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
            ended.set()
    assert b"Traceback" not in err, err.decode()
    return [json.loads(line) for line in out.splitlines()], process.returncode


def lives(journal, kinds, faults=()):
    """Start the program again until it is done; returns all lines and how many lives it took."""
    lines = []
    faults = list(faults)
    for count in range(1, MOST_LIVES + 1):
        said, code = live(journal, kinds, faults.pop(0) if faults else "")
        lines += said
        if ["done"] in said:
            assert code == 0
            return lines, count
    raise AssertionError(f"not done after {MOST_LIVES} lives: {lines[-20:]}")


def ends(lines):
    return {workflow_id: outcome for kind, workflow_id, outcome in (x for x in lines if x[0] == "end")}


def check(journal, lines):
    """The good runs are done, no attempt ran twice, and the end was orderly."""
    runs = {run.workflow_id: run for run in read_journal(journal).values()}
    said = ends(lines)
    for n in range(4):
        assert said[f"good-{n}"] == 20
    again = {
        line: times
        for line, times in Counter((x[1], x[2]) for x in lines if x[0] == "ran").items()
        if times > 1
    }
    assert again == {}, "an attempt ran twice under one number"
    assert not (journal / "everact.flight").exists()
    return runs, said


def of(run, kind):
    return [event for event in run.events if isinstance(event, kind)]


@pytest.mark.smoke
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Exits", "Eats", "ExitsAtOnce"])
def test_a_run_that_kills_its_process_is_quarantined_and_the_others_end(tmp_journal, kind):
    lines, count = lives(tmp_journal, [kind])
    runs, said = check(tmp_journal, lines)
    assert "WorkflowQuarantinedError" in said[kind]
    assert "the process died 3 times while a turn of the workflow ran, and nothing else" in said[kind]
    run = runs[kind]
    assert run.state.status == "quarantined"
    assert sum(event.alone for event in of(run, ev.RunBlamed)) == 3
    if kind != "ExitsAtOnce":  # what was paid for is kept, and was not asked for again
        assert len(of(run, ev.ActivityCompleted)) == 1
        # Deaths among others do not count; each is followed by one alone.
        assert count <= 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ActivityExits", "ActivityEats"])
def test_an_activity_that_kills_its_process_fails_and_its_run_goes_on(tmp_journal, kind):
    lines, count = lives(tmp_journal, [kind])
    runs, said = check(tmp_journal, lines)
    assert said[kind] == "the process died 3 times while an attempt ran, and nothing else"
    lost = of(runs[kind], ev.AttemptLost)
    assert sum(event.blamed for event in lost) == 3
    assert all(event.counted and event.suspected for event in lost)
    assert [event.attempt for event in lost] == list(range(1, len(lost) + 1))


@pytest.mark.slow
def test_an_attempt_that_died_counts_for_its_retry_policy(tmp_journal):
    lines, count = lives(tmp_journal, ["ActivityExitsOnce"])
    runs, said = check(tmp_journal, lines)
    assert said["ActivityExitsOnce"] == "maximum_attempts=1 reached"
    assert len(of(runs["ActivityExitsOnce"], ev.AttemptLost)) == 1


@pytest.mark.slow
def test_a_query_and_a_validator_that_kill_are_refused_and_not_their_run(tmp_journal):
    lines, count = lives(tmp_journal, ["Asked"])
    runs, said = check(tmp_journal, lines)
    assert said["Asked"] == "well"
    refused = [line[1:] for line in lines if line[0] == "refused"]
    assert [name for name, _ in refused[-2:]] == ["QueryFailedError", "UpdateRejectedError"]
    assert "the process died 3 times while its query look ran" in refused[0][1]
    assert "the process died 3 times while its validator change ran" in refused[-1][1]


@pytest.mark.slow
def test_a_message_that_kills_in_the_moment_of_the_start_is_found(tmp_journal):
    lines, count = lives(tmp_journal, ["Told"])
    _runs, said = check(tmp_journal, lines)
    assert "WorkflowQuarantinedError" in said["Told"]
    assert "the process died 3 times while a turn of the workflow ran, and nothing else" in said["Told"]


@pytest.mark.slow
def test_several_poisons_at_once_are_all_found(tmp_journal):
    kinds = ["Exits", "ActivityExits", "ExitsAtOnce", "ActivityExitsOnce"]
    lines, count = lives(tmp_journal, kinds)
    _runs, said = check(tmp_journal, lines)
    assert "WorkflowQuarantinedError" in said["Exits"]
    assert "WorkflowQuarantinedError" in said["ExitsAtOnce"]
    assert said["ActivityExits"].startswith("the process died 3 times")
    assert said["ActivityExitsOnce"] == "maximum_attempts=1 reached"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Exits", "ActivityExits"])
def test_a_death_is_counted_once_when_the_next_start_dies_at_it(tmp_journal, kind):
    lines, count = lives(tmp_journal, [kind], ["", "recovery.blamed:1", "", "recovery.blamed:1"])
    runs, said = check(tmp_journal, lines)
    run = runs[kind]
    if kind == "Exits":
        lifes = [event.life for event in of(run, ev.RunBlamed)]
        assert len(lifes) == len(set(lifes))
        assert "WorkflowQuarantinedError" in said[kind]
    else:
        attempts = [event.attempt for event in of(run, ev.AttemptLost)]
        assert attempts == list(range(1, len(attempts) + 1))
        assert said[kind].startswith("the process died 3 times")
