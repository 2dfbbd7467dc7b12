"""``everact replay``: what it prints, its exit codes, and what it says to wrong usage."""

import asyncio
import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from support.corpus import BAD, GOOD, record
from support.corpus_workflows import ACTIVITIES, WORKFLOWS, Polite

from everact.cli import main
from everact.testing import Replayer

FLOWS = "support.corpus_workflows"


class Cli:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch = monkeypatch
        self.capture = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: object) -> object:
        self.monkeypatch.setattr(sys, "argv", ["everact", "replay", *map(str, arguments)])
        self.monkeypatch.setattr(sys, "path", list(sys.path))
        with pytest.raises(SystemExit) as left:
            main()
        self.out, self.err = self.capture.readouterr()
        return left.value.code


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(monkeypatch, capsys)


def polite() -> Replayer:
    """What --replayer is given."""
    return Replayer(workflows=WORKFLOWS, activities=ACTIVITIES, interceptors=[Polite()])


READY = polite()
NO_REPLAYER = 7


def test_a_history_passes(cli: Cli) -> None:
    assert cli(GOOD / "activity.json", "--workflows", f"{FLOWS}:Feature") == 0
    assert cli.out.startswith("1 replay with 4 events in ")
    assert "1 passed\n" in cli.out
    assert "passed: 'activity' (Feature, run " in cli.out
    assert cli.err == ""


def test_one_that_does_not_is_exit_code_1(cli: Cli, tmp_path: Path) -> None:
    xml = tmp_path / "report.xml"
    assert cli(GOOD / "timer.json", BAD / "timer.json", "-w", f"{FLOWS}:Feature", "--junit", xml) == 1
    assert "1 passed, 1 failed (1 nondeterminism)" in cli.out
    assert "    the history has: command 1: a timer of 0.002 s\n" in cli.out
    assert ET.fromstring(xml.read_text()).attrib["failures"] == "1"


def test_a_folder_and_a_list_of_classes(cli: Cli) -> None:
    assert (
        cli(GOOD, "-w", f"{FLOWS}:WORKFLOWS", "--activities", FLOWS) == 1
    )  # one of them needs an interceptor
    assert "38 passed, 1 failed (1 nondeterminism)" in cli.out


def test_two_classes_of_one_name_in_a_module_are_refused(cli: Cli) -> None:
    assert cli(GOOD, "-w", FLOWS) == 1
    assert "two workflow types are named 'Feature'" in cli.err or "two workflows are dynamic" in cli.err


@pytest.mark.slow
def test_json(cli: Cli) -> None:
    assert cli(BAD / "timer.json", "-w", f"{FLOWS}:WORKFLOWS", "--json", "--hash-seed", "3") == 1
    report = json.loads(cli.out)
    assert report["passed"] is False
    assert [result["hash_seed"] for result in report["results"]] == [None, 3]
    assert report["failures_by_kind"] == {"nondeterminism": 2}


def test_a_journal(cli: Cli, tmp_journal: Path) -> None:
    asyncio.run(record(tmp_journal, WORKFLOWS))
    common = ("--journal", tmp_journal, "-w", f"{FLOWS}:WORKFLOWS", "--activities", f"{FLOWS}:ACTIVITIES")
    assert cli(*common) == 0
    assert "38 replays with" in cli.out
    assert cli(*common, "--status", "running") == 0
    assert "passed: 'open' (Feature" in cli.out
    assert cli(*common, "--type", "Kid", "--type", "Something", "--limit", "2") == 0
    assert "2 replays with" in cli.out
    assert cli("--journal", tmp_journal / "nowhere", "-w", FLOWS + ":Feature") == 1
    assert "everact: error:" in cli.err


@pytest.mark.parametrize("name", ["polite", "READY"])
def test_a_replayer_of_ones_own(cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, "own_replayer", sys.modules[__name__])
    assert cli(GOOD / "headers.json", "--replayer", f"own_replayer:{name}") == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give files or directories of histories, or a journal with --journal"),
        (["a.json", "--journal", "j", "-w", FLOWS], "give files or directories of histories, or a journal"),
        (["a.json"], "say which code is to be replayed: --module FILE, --workflows"),
        (["a.json", "-w", FLOWS, "--replayer", "m:r"], "say which code is to be replayed"),
        (["a.json", "-w", FLOWS, "--limit", "3"], "--type, --status and --limit are for --journal"),
        (
            ["a.json", "--replayer", "m:r", "--hash-seed", "3"],
            "--activities, --hash-seed and --no-jump-steps are for --module and --workflows",
        ),
        (["a.json", "-w", "no_such_module:X"], "the module 'no_such_module' cannot be imported from here"),
        (["a.json", "-w", f"{FLOWS}:Nothing"], f"'{FLOWS}' has no 'Nothing'"),
        (["a.json", "-w", f"{FLOWS}:add"], "there is no workflow class in it"),
        (["a.json", "-w", "json"], "there is no workflow class in it"),
        (
            ["a.json", "-w", f"{FLOWS}:Feature", "--activities", f"{FLOWS}:Feature"],
            "there is no activity in it",
        ),
        (
            ["a.json", "--replayer", "own_replayer:NO_REPLAYER"],
            "that is no Replayer, and no function that makes one",
        ),
    ],
)
def test_wrong_usage_is_exit_code_2(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.setitem(sys.modules, "own_replayer", sys.modules[__name__])
    assert cli(*arguments) == 2
    assert says.replace(" ", "") in cli.err.replace("\n", "").replace("│", "").replace(" ", "")


def test_what_is_not_there(cli: Cli, tmp_path: Path) -> None:
    assert cli(tmp_path, "-w", f"{FLOWS}:Feature") == 1
    assert cli.err.startswith("everact: error: there is no history in")
    assert cli(tmp_path / "nothing.json", "-w", f"{FLOWS}:Feature") == 1
    assert "nothing.json': what is wanted is a file with the history of a run. Write one with" in cli.err


def test_modules_of_the_working_directory_are_found(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flows_of_mine.py").write_text("from support.corpus_workflows import Feature\n")
    monkeypatch.chdir(tmp_path)
    assert cli(GOOD / "timer.json", "-w", "flows_of_mine") == 0
    monkeypatch.delitem(sys.modules, "flows_of_mine")
