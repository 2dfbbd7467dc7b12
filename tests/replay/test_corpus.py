"""The exported corpus replays for ever: good histories pass, bad ones fail with the text that stands beside them."""

import json

import pytest
from support.corpus import BAD, GOOD, OLD, replayer, told
from support.corpus_workflows import ACTIVITIES, KINDS, WORKFLOWS
from support.histories import FOLDER, read
from support.history_workflows import ACTIVITIES as HEX_ACTIVITIES
from support.history_workflows import WORKFLOWS as HEX_WORKFLOWS
from support.old_format import ACTIVITIES as OLD_ACTIVITIES
from support.old_format import WORKFLOWS as OLD_WORKFLOWS
from support.old_format import Renamed

from everact import History
from everact.exceptions import ReplayFailedError
from everact.journal import events as ev
from everact.testing import Replayer


def paths(folder, pattern="*.json"):
    return [pytest.param(path, id=path.stem) for path in sorted(folder.glob(pattern))]


def test_there_is_a_corpus():
    for folder in (GOOD, BAD):
        names = {path.stem for path in folder.glob("*.json")}
        assert {*KINDS, "headers", "dynamic"} <= names
    assert {path.stem for path in BAD.glob("*.txt")} == {path.stem for path in BAD.glob("*.json")}
    kinds = {path.read_text().partition("\n")[0] for path in BAD.glob("*.txt")}
    assert kinds == {"nondeterminism", "damaged", "undecodable", "crashed"}


@pytest.mark.parametrize("path", paths(GOOD))
def test_a_good_history_replays(path):
    report = replayer(path.stem).replay(path)
    (result,) = report.results
    assert result.passed
    assert result.workflow_id == json.loads(path.read_text())["workflow_id"]
    assert result.events > 1


@pytest.mark.parametrize("path", paths(BAD))
def test_a_bad_history_is_found_out_with_its_text(path):
    assert told(path) == path.with_suffix(".txt").read_text()
    with pytest.raises(ReplayFailedError):
        replayer(path.stem).replay(path)


def test_a_history_of_interceptors_needs_them():
    with pytest.raises(ReplayFailedError, match=r"the history has: command 1: a timer of 0\.001 s"):
        replayer("plain").replay(GOOD / "headers.json")


@pytest.mark.parametrize("path", paths(OLD, "sparse-*.json"))
def test_an_export_without_the_fields_that_came_later_replays(path):
    assert replayer(path.stem).replay(path).passed


def of_hex(path):
    _, records = read(path)
    started = records[0][1].inputs[0]
    return History(started.workflow_id, started.run_id, records)


@pytest.mark.parametrize("path", paths(OLD, "*.hex.json"))
def test_a_run_of_the_first_format_replays(path):
    old = Replayer(workflows=[*OLD_WORKFLOWS, Renamed], activities=OLD_ACTIVITIES)
    assert old.replay(of_hex(path)).passed


def test_the_histories_of_the_other_corpus_replay_with_the_replayer_too():
    everything = Replayer(workflows=HEX_WORKFLOWS, activities=HEX_ACTIVITIES)
    report = everything.replay_many(of_hex(path) for path in sorted(FOLDER.glob("*.json")))
    assert len(report.results) >= 60


def test_a_whole_folder_at_once():
    report = Replayer(workflows=WORKFLOWS, activities=ACTIVITIES).replay_many(GOOD, raise_on_failure=False)
    assert len(report.results) == len(list(GOOD.glob("*.json")))
    assert [result.source for result in report.failed] == [str(GOOD / "headers.json")]
    assert report.failures_by_kind == {"nondeterminism": 1}


def test_together_the_good_ones_have_what_they_are_for():
    seen = set()
    for path in GOOD.glob("*.json"):
        for record in json.loads(path.read_text())["records"]:
            seen |= {event["event"] for event in (*record["inputs"], *record.get("outputs", ()))}
    every = {cls.__name__ for cls in ev.AnyEvent.__args__}
    # What a run meets from outside stands in the other corpus: deaths, stalls, pauses, time limits of the run.
    assert every - seen <= {
        "ActivityCancelled",
        "AttemptLost",
        "AttemptNoted",
        "ChildCancelRequested",
        "ChildCancelled",
        "ChildStartFailed",
        "ChildTerminated",
        "CompensationEscalated",
        "RunBlamed",
        "RunPaused",
        "RunReleased",
        "RunResumed",
        "RunStalled",
        "SignalKept",
        "SignalTaken",
        "StepCancelled",
        "StepFailed",
        "TaskFailed",
        "WorkflowTerminated",
        "WorkflowTimedOut",
    }
