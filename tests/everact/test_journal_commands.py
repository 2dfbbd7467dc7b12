"""``everact journal``: what it prints, its exit codes, and one line for what is wrong."""

import io
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdb
import pytest
from support.journals import fill, flip, make_journal, opened, runs_of_histories
from support.moved_journals import make_moved_journal, many_runs, rows_of, spoil_page

from everact import journal_commands
from everact.cli import main
from everact.journal.lmdb_store import LmdbStore
from everact.journal.verify import verify

RUNS = len(runs_of_histories())


class Cli:
    """Runs the command line in this process; keeps what it printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        self.monkeypatch = monkeypatch
        self.capture = capfdbinary
        self.out = self.err = ""

    def __call__(self, *arguments: str | Path) -> int:
        self.monkeypatch.setattr(sys, "argv", ["everact", "journal", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = self.capture.readouterr()
        self.out, self.err = out.decode(), err.decode()
        assert isinstance(left.value.code, int)
        return left.value.code

    def json(self, *arguments: str | Path, code: int = 0) -> Any:
        assert self(*arguments, "--json") == code
        return json.loads(self.out)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return Cli(monkeypatch, capfdbinary)


def test_a_whole_journal(cli: Cli, tmp_journal: Path) -> None:
    make_journal(tmp_journal)
    assert cli("verify", tmp_journal) == 0
    assert cli.out.endswith("everything is whole\n")
    assert f"{RUNS} runs" in cli.out
    assert cli.err == ""
    data = cli.json("verify", tmp_journal)
    assert data["is_sound"] is True
    assert data["runs"] == RUNS
    assert data["problems"] == []


def test_a_damaged_journal_is_exit_code_1(cli: Cli, tmp_journal: Path) -> None:
    make_journal(tmp_journal)
    flip(tmp_journal, 2)
    assert cli("verify", tmp_journal) == 1
    assert "\ncommit record 2: " in cli.out
    assert "DAMAGED: " in cli.out
    data = cli.json("verify", tmp_journal, code=1)
    assert data["problems"][0]["sequence"] == 2
    assert data["problem_count"] == len(data["problems"])
    assert cli("stats", tmp_journal) == 1
    assert "NOT COUNTED: commit record 2: " in cli.out
    assert cli.json("stats", tmp_journal, code=1)["damage"][0]["first"] == 2


def test_many_problems_are_shortened(cli: Cli, tmp_journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_commands, "PRINTED", 1)
    make_journal(tmp_journal)
    flip(tmp_journal, 2, 5)
    assert cli("verify", tmp_journal) == 1
    assert "\nand " in cli.out


def test_stats(cli: Cli, tmp_journal: Path) -> None:
    make_journal(tmp_journal, runs_of_histories("careless", "everything-open", "waits-generator"))
    assert cli("stats", tmp_journal) == 0
    assert "largest runs:\n  'w-run-waits-generator' (Waits, run run-waits-generator, completed)" in cli.out
    assert "oldest open run: " in cli.out
    data = cli.json("stats", tmp_journal)
    assert sum(sum(each.values()) for each in data["runs"].values()) == 3
    assert data["file_bytes"] == (tmp_journal / "data.mdb").stat().st_size
    assert data["oldest_open"]["started_at"] > 0


def test_export_and_import(cli: Cli, tmp_journal: Path, tmp_path: Path) -> None:
    make_journal(tmp_journal)
    assert cli("export", tmp_journal) == 0
    lines = cli.out.splitlines()
    assert len(lines) == RUNS
    assert cli.err == f"exported {RUNS} runs\n"
    file, other = tmp_path / "runs.jsonl", tmp_path / "other"
    assert cli.json("export", tmp_journal, "-o", file) == {
        "runs": RUNS,
        "messages": 0,
        "messages_moved": False,
        "left_out": [],
        "damage": [],
    }
    assert file.read_text().splitlines() == lines
    assert file.stat().st_mode & 0o777 == 0o600
    assert cli.json("import", other, file)["runs"] == RUNS
    assert cli("export", other) == 0
    assert cli.out.splitlines() == lines
    with opened(other) as store:
        assert verify(store).is_sound
    assert cli("import", other, file) == 1
    assert cli.err.startswith("everact: error: run 'run-careless' is in this journal already")
    assert cli.err.count("\n") == 1


def test_some_runs_are_exported(cli: Cli, tmp_journal: Path) -> None:
    make_journal(tmp_journal)
    assert cli("export", tmp_journal, "run-careless", "run-waits-set") == 0
    assert [json.loads(line)["run_id"] for line in cli.out.splitlines()] == ["run-careless", "run-waits-set"]
    assert cli("export", tmp_journal, "w-run-careless") == 0
    assert len(cli.out.splitlines()) == 1
    assert cli.err == "exported 1 run\n"
    assert cli("export", tmp_journal, "run-careless", "nobody") == 0
    assert cli("export", tmp_journal, "nobody", "-o", tmp_journal / "runs") == 1
    assert cli.err == "everact: error: the journal has no run of 'nobody'\n"


def test_import_from_standard_input(cli: Cli, tmp_journal: Path, tmp_path: Path) -> None:
    make_journal(tmp_journal)
    assert cli("export", tmp_journal, "run-careless") == 0
    text = io.TextIOWrapper(io.BytesIO(b"\n" + cli.out.encode()))
    cli.monkeypatch.setattr(sys, "stdin", text)
    assert cli("import", tmp_path / "new", "-") == 0
    assert cli.out == "imported 1 run with 7 events\n"


def test_export_leaves_damaged_runs_out(cli: Cli, tmp_journal: Path) -> None:
    # Two runs a commit: the second has the starts of the third run and of the fourth.
    make_journal(tmp_journal, runs_of_histories("careless", "deaths", "delayed", "drawing"))
    flip(tmp_journal, 2)
    assert cli("export", tmp_journal) == 1
    assert len(cli.out.splitlines()) == 2
    assert "\nleft out: run 3: the run begins with event 3: its start is missing\n" in cli.err
    assert "\ncannot be read: commit record 2: " in cli.err
    data = cli.json("export", tmp_journal, "-o", tmp_journal / "runs", code=1)
    assert data["runs"] + len(data["left_out"]) == 4
    assert data["damage"][0]["first"] == 2
    assert cli("export", tmp_journal, "w-run-careless") == 1


def test_a_damaged_page_is_named_by_all_and_the_rest_is_exported(
    cli: Cli, tmp_journal: Path, tmp_path: Path
) -> None:
    make_moved_journal(tmp_journal, many_runs(4))
    rows = rows_of(tmp_journal, "runs")
    spoil_page(tmp_journal, "runs", rows[len(rows) // 2][0])
    assert cli("verify", tmp_journal) == 1
    assert "\ntable 'runs', runs " in cli.out
    assert "DAMAGED: 1 problem; 0 runs not whole\n" in cli.out
    assert cli("stats", tmp_journal) == 1
    assert "\nNOT COUNTED: table 'runs', runs " in cli.out
    assert cli("export", tmp_journal) == 1
    assert len(cli.out.splitlines()) == 4 * RUNS
    # A slow machine sees a line of progress before it.
    assert f"exported {4 * RUNS} runs\ncannot be read: table 'runs', runs " in cli.err
    assert cli("backup", tmp_journal, tmp_path / "copy") == 1
    assert cli.err.startswith("everact: error: the data file of the journal ")
    assert cli.err.count("\n") == 1


def test_stats_of_what_was_moved(cli: Cli, tmp_journal: Path) -> None:
    make_moved_journal(tmp_journal, many_runs(4))
    assert cli("stats", tmp_journal) == 0
    for text in (
        "to move into the tables\n",
        " bytes, of these ",
        f"\n  runs: {4 * RUNS} rows, ",
        "in log and histories\n",
        "\ndictionary 1: ",
        "\nrequest ids: ",
    ):
        assert text in cli.out
    data = cli.json("stats", tmp_journal)
    assert data["tables"]["ids"]["rows"] == 4 * RUNS
    assert data["free_bytes"] > 0


def test_backup(cli: Cli, tmp_journal: Path, tmp_path: Path) -> None:
    make_journal(tmp_journal)
    assert cli("backup", tmp_journal, tmp_path / "copy") == 0
    assert cli.out.startswith(f"copied to {tmp_path / 'copy'}: ")
    assert cli.out.endswith("everything is whole\n")
    data = cli.json("backup", tmp_journal, tmp_path / "second")
    assert data["report"]["is_sound"] is True
    assert data["bytes"] == (tmp_path / "second" / "data.mdb").stat().st_size
    assert cli("backup", tmp_journal, tmp_path / "copy") == 1
    assert "is not empty" in cli.err


def test_reading_goes_beside_a_writer_and_import_does_not(
    cli: Cli, tmp_journal: Path, tmp_path: Path
) -> None:
    store = LmdbStore(tmp_journal, durability="os")
    try:
        fill(store)
        for command in ("verify", "stats", "export"):
            assert cli(command, tmp_journal) == 0
        assert cli("backup", tmp_journal, tmp_path / "copy") == 0
        (tmp_path / "none").write_text("")
        assert cli("import", tmp_journal, tmp_path / "none") == 1
        assert cli.err == (
            f"everact: error: the journal '{tmp_journal}' is in use by process {os.getpid()}: import into a new "
            f"directory, or stop that process first\n"
        )
    finally:
        store.close()


@pytest.mark.parametrize("command", ["verify", "stats", "export", "backup"])
def test_what_is_no_journal_is_one_line(cli: Cli, tmp_path: Path, command: str) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "note").write_text("mine")
    (tmp_path / "file").write_text("mine")
    more = [tmp_path / "copy"] if command == "backup" else []
    for name, says in (
        ("missing", "there is no journal at"),
        ("foreign", "holds no journal"),
        ("file", "not a dir"),
    ):
        assert cli(command, tmp_path / name, *more) == 1
        assert says in cli.err
        assert cli.err.startswith("everact: error: ")
        assert cli.err.count("\n") == 1
        assert cli.out == ""
    assert not (tmp_path / "missing").exists()


def test_what_cannot_be_imported_is_one_line(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    for text, says in (("{", "line 1 of "), ("{}", "this is no exported run")):
        file.write_text(text)
        assert cli("import", tmp_path / "new", file) == 1
        assert says in cli.err
        assert cli.err.count("\n") == 1


@pytest.fixture
def small_files() -> Iterator[Callable[[int], None]]:
    """Limits the size of the files that this process may write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_cannot_be_read_or_written_is_named_with_what_to_do(
    cli: Cli, tmp_journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_journal(tmp_journal)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("mine")
    there = "(File exists): it is there already and is not written over: give a new name"
    no_directory = "(No such file or directory): check the path, and that its directory is there"
    instead = "nothing was imported: give a file that `everact journal export` wrote"
    not_one = "(Not a directory): a part of its path is not a directory: check the path"
    for arguments, says in (
        (["export", tmp_journal, "-o", "mine"], f"the export 'mine' cannot be written {there}"),
        (["export", tmp_journal, "-o", "no/x"], f"the export 'no/x' cannot be written {no_directory}"),
        (["export", tmp_journal, "-o", "mine/x"], f"the export 'mine/x' cannot be written {not_one}"),
        (["import", "new", "no"], f"the file 'no' cannot be read {no_directory}"),
        (
            ["import", "new", tmp_journal],
            f"the file '{tmp_journal}' cannot be read (Is a directory): it is a directory: give a file",
        ),
        (
            ["import", "new", "mine"],
            f"line 1 of 'mine' is no JSON (JSON is malformed: invalid character (byte 0)), and {instead}",
        ),
        (
            ["backup", tmp_journal, "mine/x"],
            f"the directory '{tmp_path / 'mine'}' for the backup cannot be made {not_one}",
        ),
    ):
        assert cli(*arguments) == 1
        assert cli.err == f"everact: error: {says}\n"
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "new").exists()


def test_a_limit_on_the_size_of_files_is_called_that(
    cli: Cli, tmp_journal: Path, tmp_path: Path, small_files: Callable[[int], None]
) -> None:
    make_journal(tmp_journal)
    assert cli("export", tmp_journal, "-o", tmp_path / "runs.jsonl") == 0
    small_files(4096)
    limit = "(File too large): this process may not make files so large (ulimit -f): raise that limit\n"
    assert cli("export", tmp_journal, "-o", tmp_path / "more.jsonl") == 1
    assert cli.err == f"everact: error: the export '{tmp_path / 'more.jsonl'}' cannot be written {limit}"
    assert not (tmp_path / "more.jsonl").exists()
    assert cli("backup", tmp_journal, tmp_path / "copy") == 1
    assert cli.err.endswith(f"cannot be copied to '{tmp_path / 'copy'}' {limit}")
    full = "which this process may not make larger than 4,096 bytes, has 0 bytes left; nothing was written. Raise the"
    for command in (["import", tmp_path / "new", tmp_path / "runs.jsonl"], ["compact", tmp_journal]):
        assert cli(*command) == 1
        assert full in cli.err
        assert "(ulimit -f)" in cli.err
        assert cli.err.count("\n") == 1
    assert cli("verify", tmp_journal) == 0


def test_a_full_output_is_one_line(cli: Cli, tmp_journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_journal(tmp_journal)
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=full))
        assert cli("export", tmp_journal) == 1
    assert cli.err == (
        "everact: error: standard output cannot be written (No space left on device): its disk is full: make room, "
        "or give a place on another disk\n"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fly"], "No such command 'fly'"),
        (["verify"], "Missing argument 'JOURNAL'"),
        (["verify", "a", "b"], "unexpected extra argument"),
        (["export", "a", "--json"], "needs --output"),
    ],
)
def test_wrong_usage_is_exit_code_2(cli: Cli, arguments: list[str], says: str) -> None:
    assert cli(*arguments) == 2
    assert says in cli.err


def test_without_a_terminal_progress_is_lines(
    cli: Cli, tmp_journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_commands, "PLAIN_SECONDS", 0)
    make_journal(tmp_journal)
    assert cli("verify", tmp_journal) == 0
    assert cli.err.startswith("verifying: 1 of ")


def test_on_a_terminal_progress_is_a_bar(
    cli: Cli, tmp_journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    make_journal(tmp_journal)
    assert cli("verify", tmp_journal) == 0
    assert cli.out.endswith("everything is whole\n")


def test_damage_that_lmdb_finds_is_one_line_and_leaves_no_file(
    cli: Cli, tmp_journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise lmdb.CorruptedError("mdb_cursor_get: bad page")

    make_journal(tmp_journal)
    monkeypatch.setattr(LmdbStore, "scan", fail)
    assert cli("export", tmp_journal, "-o", tmp_path / "runs.jsonl") == 1
    assert cli.err.startswith("everact: error: the data file of the journal ")
    assert cli.err.count("\n") == 1
    assert not (tmp_path / "runs.jsonl").exists()


def test_a_backup_that_let_the_data_file_grow_says_so(
    cli: Cli, tmp_journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from everact.journal import backup as room  # noqa: PLC0415

    make_journal(tmp_journal)
    assert cli("backup", tmp_journal, tmp_path / "quiet") == 0
    assert cli.err == ""
    monkeypatch.setattr(room.Backup, "warning", "the data file grew")
    assert cli("backup", tmp_journal, tmp_path / "busy") == 0
    assert cli.err == "warning: the data file grew\n"
    data = cli.json("backup", tmp_journal, tmp_path / "json")
    assert data["grown_bytes"] == 0
    assert data["seconds"] >= 0
