"""SIGKILL at every fault point, again and again: nothing acknowledged is lost, nothing is done twice."""

import random
import shutil
from pathlib import Path

import pytest
from support.crashes import Story

from everact.journal.fault_points import FAULT_POINTS

PROGRAM = Path(__file__).with_name("workload.py")

#: Passed a hundred times or more in a life without faults.
OFTEN = [1, 3, 40, 20]
#: Passed a few times.
SELDOM = [1, 2, 15, 8]
#: Passed once in each life, so the lives between must get on in some other way.
ONCE = ("journal.open.before", "journal.open.after", "recovery.loaded", "recovery.after")


def lives_of(point):
    """What kills each life, one after the other."""
    if point == "journal.open.created":  # passed when the journal is made, and never again
        return [f"{point}:1"]
    if point in ONCE:
        return [
            f"{point}:1",
            "message.ack.before:30",
            f"{point}:1",
            f"{point}:1",
            "journal.commit.after:40",
        ] + [f"{point}:1"]
    counts = SELDOM if point == "timer.fire.before" else OFTEN
    return [f"{point}:{count}" for count in counts]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    story = Story(PROGRAM, tmp_path_factory.mktemp("uninterrupted") / "journal")
    assert not story.live()
    story.check_end()
    return story


def go_through(story, faults, uninterrupted):
    for fault in faults:
        assert story.live(fault), f"life {story.lives} ended before {fault}"
    story.finish()
    story.check_end()
    story.compare(uninterrupted)


def test_the_workload_has_everything(uninterrupted):
    workload = uninterrupted.workload
    assert uninterrupted.acknowledged == {
        f"wf-{number}": len(workload.plan(number)) for number in range(workload.WORKFLOWS)
    }
    kinds = {type(event).__name__ for run in uninterrupted.runs.values() for event in run.events}
    assert kinds == {
        "ActivityCancelRequested",
        "ActivityCompleted",
        "ActivityFailed",
        "ActivityScheduled",
        "AttemptFailed",
        "CancelRequested",
        "ConditionAwaited",
        "SignalReceived",
        "TimerCancelled",
        "TimerFired",
        "TimerStarted",
        "UpdateCompleted",
        "UpdateReceived",
        "WorkflowCancelled",
        "WorkflowCompleted",
        "WorkflowFailed",
        "WorkflowStarted",
    }


@pytest.mark.smoke
@pytest.mark.slow
def test_a_killed_process_goes_on_where_it_was(tmp_journal, uninterrupted):
    faults = ["journal.commit.after:30", "message.ack.before:20", "journal.commit.written:10"]
    go_through(Story(PROGRAM, tmp_journal), faults, uninterrupted)


@pytest.mark.slow
@pytest.mark.parametrize("point", FAULT_POINTS)
def test_nothing_is_lost_or_repeated_when_killed_at(point, tmp_journal, uninterrupted):
    go_through(Story(PROGRAM, tmp_journal), lives_of(point), uninterrupted)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_repeated_when_killed_from_outside(seed, tmp_journal, uninterrupted):
    rng = random.Random(seed)
    story = Story(PROGRAM, tmp_journal)
    while story.kills < 6 and not story.is_done:
        story.live(kill_after=rng.randint(1, 70))
    assert story.kills >= 4
    story.finish()
    story.check_end()
    story.compare(uninterrupted)


@pytest.mark.slow
def test_a_journal_that_was_copied_while_closed_opens_elsewhere(tmp_path, uninterrupted):
    story = Story(PROGRAM, tmp_path / "journal")
    assert story.live("journal.commit.after:50")
    shutil.copytree(tmp_path / "journal", tmp_path / "elsewhere" / "copy")
    shutil.move(tmp_path / "journal", tmp_path / "away")
    story.journal = tmp_path / "elsewhere" / "copy"
    story.finish()
    story.check_end()
    story.compare(uninterrupted)
