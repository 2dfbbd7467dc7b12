"""SIGKILL at every fault point, again and again: nothing acknowledged is lost, nothing is done twice."""

import random
import shutil
from pathlib import Path

import pytest
from support.crashes import Story

from everact.journal.fault_points import FAULT_POINTS

PROGRAM = Path(__file__).with_name("workload.py")

#: Passes at which the lives end. A life without faults has a hundred commits or more, fewer on a busy machine.
COUNTS = [1, 3, 25, 12]
#: Not passed by this workload; other tests kill there.
ELSEWHERE = (
    "journal.open.migrated",
    "purge.",
    "rewrite.",
    "recovery.blamed",
    "activity.note.",
    "activity.cancel.",
    "activity.complete.",
    "outbox.",
    "courier.",
    "run.continue.",
    "run.begin.",
    "run.timeout.",
)
#: Passed once in each life, so the lives between must get on in some other way.
ONCE = ("journal.open.before", "journal.open.after", "recovery.loaded", "recovery.after")


def lives_of(point):
    """What kills each life, one after the other."""
    if point == "journal.open.created":  # passed when the journal is made, and never again
        return [f"{point}:1"]
    if point in ONCE:
        again = f"{point}:1"
        return [again, "message.ack.before:20", again, again, "journal.commit.after:20", again]
    return [f"{point}:{count}" for count in COUNTS]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    story = Story(PROGRAM, tmp_path_factory.mktemp("uninterrupted") / "journal")
    assert not story.live()
    story.check_end()
    return story


def go_through(story, faults, uninterrupted):
    for fault in faults:
        if not story.live(fault):
            break
    assert story.kills >= min(len(faults), 3), f"life {story.lives} ended before {fault}"
    story.finish()
    story.check_end()
    story.compare(uninterrupted)


def test_the_workload_has_everything(uninterrupted):
    workload = uninterrupted.workload
    assert uninterrupted.acknowledged == {
        f"wf-{number}": len(workload.plan(number)) for number in range(workload.WORKFLOWS)
    }
    kinds = {type(event).__name__ for run in uninterrupted.runs.values() for event in run.events}
    assert kinds >= {
        "ActivityCancelRequested",
        "ActivityCompleted",
        "ActivityFailed",
        "ActivityScheduled",
        "AttemptFailed",
        "CancelRequested",
        "ConditionAwaited",
        "HandlerFailed",
        "RunPaused",
        "RunResumed",
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
    faults = ["journal.commit.after:20", "message.ack.before:15", "journal.commit.written:10"]
    go_through(Story(PROGRAM, tmp_journal), faults, uninterrupted)


@pytest.mark.slow
@pytest.mark.parametrize("point", [point for point in FAULT_POINTS if not point.startswith(ELSEWHERE)])
def test_nothing_is_lost_or_repeated_when_killed_at(point, tmp_journal, uninterrupted):
    go_through(Story(PROGRAM, tmp_journal), lives_of(point), uninterrupted)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_repeated_when_killed_from_outside(seed, tmp_journal, uninterrupted):
    rng = random.Random(seed)
    story = Story(PROGRAM, tmp_journal)
    for _ in range(5):  # a life without faults writes some four hundred lines
        assert story.live(kill_after=rng.randint(1, 70))
    story.finish()
    story.check_end()
    story.compare(uninterrupted)


@pytest.mark.slow
def test_a_journal_that_was_copied_while_closed_opens_elsewhere(tmp_path, uninterrupted):
    story = Story(PROGRAM, tmp_path / "journal")
    assert story.live("journal.commit.after:30")
    without_socket = shutil.ignore_patterns("everact.sock")  # what a killed program has left of its door
    shutil.copytree(tmp_path / "journal", tmp_path / "elsewhere" / "copy", ignore=without_socket)
    shutil.move(tmp_path / "journal", tmp_path / "away")
    story.journal = tmp_path / "elsewhere" / "copy"
    story.finish()
    story.check_end()
    story.compare(uninterrupted)
