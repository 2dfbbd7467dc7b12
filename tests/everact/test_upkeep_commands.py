"""``everact journal purge`` and ``compact``: what they do, ask and print, and what they refuse."""

import json
import os
import sys
from pathlib import Path

import pytest
from support.journals import flip, make_journal, opened, runs_of_histories
from support.purges import check_tables

from everact import upkeep_commands
from everact.cli import main
from everact.journal.lmdb_damage import ADVICE
from everact.journal.lmdb_store import LmdbStore
from everact.journal.loading import load


class Cli:
    """Runs the command line in this process; keeps what it printed."""

    def __init__(self, monkeypatch, capfd):
        self.monkeypatch = monkeypatch
        self.capture = capfd
        self.out = self.err = ""

    def __call__(self, *arguments):
        self.monkeypatch.setattr(sys, "argv", ["everact", "journal", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        self.out, self.err = self.capture.readouterr()
        return left.value.code


@pytest.fixture
def cli(monkeypatch, capfd):
    return Cli(monkeypatch, capfd)


@pytest.fixture
def journal(tmp_journal):
    make_journal(tmp_journal)
    return tmp_journal


def rows(journal):
    with opened(journal) as store:
        return list(load(store).runs.newest_first())


CLOSED = sum(any(entry.flags & 2 for entry in run) for run in runs_of_histories())


def test_closed_runs_are_purged(cli, journal):
    before = rows(journal)
    assert cli("purge", journal, "--older-than", "0s", "--dry-run") == 0
    assert cli.out == f"would purge {CLOSED} runs\n"
    assert len(rows(journal)) == len(before)
    assert cli("purge", journal, "--older-than", "0s", "--yes") == 0
    assert cli.out == f"purged {CLOSED} runs\n"
    assert [row.run_id for row in rows(journal)] == [row.run_id for row in before if not row.is_closed]
    with opened(journal) as store:
        check_tables(store)
    assert cli("purge", journal, "--older-than", "0s") == 0  # nothing to ask about
    assert cli.out == "purged 0 runs\n"


@pytest.mark.parametrize("option", ["--type", "--workflow", "--status", "--closed-before"])
def test_a_choice_of_runs(cli, journal, option):
    before = rows(journal)
    one = next(row for row in before if row.is_closed)
    value, holds = {
        "--type": (one.workflow_type, lambda row: row.workflow_type == one.workflow_type),
        "--workflow": (one.workflow_id, lambda row: row.workflow_id == one.workflow_id),
        "--status": (one.status, lambda row: row.status == one.status),
        "--closed-before": ("1999-01-01", lambda row: False),
    }[option]
    gone = {row.run_id for row in before if row.is_closed and holds(row)}
    assert cli("purge", journal, option, value, "--yes", "--json") == 0
    assert json.loads(cli.out) == {"runs": len(gone), "dry_run": False}
    assert {row.run_id for row in rows(journal)} == {row.run_id for row in before} - gone


def test_it_asks_on_a_terminal(cli, journal, monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked = []
    monkeypatch.setattr(upkeep_commands.typer, "confirm", lambda question, **_options: asked.append(question))
    assert cli("purge", journal, "--older-than", "0s") == 0
    assert asked == [f"delete {CLOSED} closed runs for good?"]
    assert cli.out == f"purged {CLOSED} runs\n"


def test_without_a_terminal_it_needs_yes(cli, journal):
    before = len(rows(journal))
    assert cli("purge", journal, "--older-than", "0s") == 2
    assert "nobody is there to be asked" in cli.err
    assert "--yes" in cli.err
    assert len(rows(journal)) == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "say which runs"),
        (("--older-than", "soon"), "--older-than takes a number and a unit"),
        (("--older-than", "30"), "--older-than takes a number and a unit"),
        (("--older-than", "9999999999999w"), "--older-than is too long"),
        (("--closed-before", "yesterday"), "--closed-before takes a date or a time"),
        (("--status", "running"), "status must be that of a closed run"),
    ],
)
def test_wrong_usage_is_exit_code_2(cli, journal, arguments, text):
    assert cli("purge", journal, *arguments, "--yes") == 2
    assert text in " ".join(cli.err.replace("│", " ").split())


def test_ages_and_moments():
    assert upkeep_commands._age("1.5h").total_seconds() == 5400
    assert upkeep_commands._age("8w").days == 56
    assert upkeep_commands._moment("2026-11-30").isoformat() == "2026-11-30T00:00:00+00:00"
    assert upkeep_commands._moment("2026-11-30T14:00+02:00").isoformat() == "2026-11-30T14:00:00+02:00"


def test_compact_empties_the_log_and_shrinks_the_file(cli, journal):
    assert cli("purge", journal, "--older-than", "0s", "--yes") == 0
    size = (journal / "data.mdb").stat().st_size
    assert cli("compact", journal) == 0
    after = (journal / "data.mdb").stat().st_size
    assert after < size
    assert cli.out == f"compacted: {after:,} bytes (it had {size:,})\n"
    with opened(journal) as store:
        assert list(store.scan()) == []
        check_tables(store)
    assert cli("compact", journal, "--json") == 0
    done = json.loads(cli.out)
    assert done["bytes_after"] == (journal / "data.mdb").stat().st_size <= done["bytes_before"]


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (("purge", "--older-than", "0s"), "purge there with Runtime.purge(...) (--dry-run counts here)"),
        (("compact",), "compact it there with Runtime.compact_journal()"),
    ],
)
def test_a_journal_in_use_is_left_alone(cli, journal, command, instead):
    store = LmdbStore(journal)
    name, *options = command
    assert cli(name, journal, *options) == 1
    assert cli.err == (
        f"everact: error: the journal '{journal}' is in use by process {os.getpid()}: {instead}, or stop that "
        f"process first\n"
    )
    store.close()


def test_a_dry_run_counts_in_a_journal_in_use(cli, journal):
    store = LmdbStore(journal)
    assert cli("purge", journal, "--older-than", "0s", "--dry-run") == 0
    assert cli.out == f"would purge {CLOSED} runs\n"
    store.close()


@pytest.mark.parametrize("more", [("--yes",), ("--dry-run",)])
def test_a_type_that_never_was_is_a_mistake(cli, journal, more):
    before = rows(journal)
    types = sorted({row.workflow_type for row in before})
    assert cli("purge", journal, "--type", "Ordr", *more) == 1
    assert cli.err == (
        f"everact: error: the journal has never had runs of type 'Ordr': it has {', '.join(map(repr, types))}\n"
    )
    assert cli.out == ""
    assert len(rows(journal)) == len(before)


def test_a_type_whose_runs_are_gone_is_none(cli, journal):
    one = next(row.workflow_type for row in rows(journal) if row.is_closed)
    assert cli("purge", journal, "--older-than", "0s", "--yes") == 0
    assert cli("purge", journal, "--type", one, "--yes") == 0
    assert cli.out == "purged 0 runs\n"


def test_an_empty_journal_has_no_types(cli, tmp_journal):
    LmdbStore(tmp_journal).close()
    assert cli("purge", tmp_journal, "--type", "Order", "--yes") == 1
    assert cli.err.endswith("has never had runs of type 'Order': it has no runs at all\n")


@pytest.mark.parametrize("command", [("purge", "--older-than", "0s", "--yes"), ("compact",)])
def test_damage_is_said_with_what_to_do(cli, journal, command):
    flip(journal, 2)
    name, *options = command
    assert cli(name, journal, *options) == 1
    assert cli.err.startswith(f"everact: error: the journal '{journal}' is damaged (")
    assert "commit record 2" in cli.err
    assert cli.err.endswith(f"): {ADVICE}\n")
    assert "`everact journal verify`" in ADVICE
    assert cli.err.count("\n") == 1


@pytest.mark.parametrize("command", [("purge", "--older-than", "0s"), ("compact",)])
def test_a_lost_data_file_is_not_made_anew(cli, journal, command):
    (journal / "data.mdb").unlink()
    name, *options = command
    assert cli(name, journal, *options) == 1
    assert "has lost its data: data.mdb is missing" in cli.err


@pytest.mark.parametrize("command", [("purge", "--older-than", "0s"), ("compact",)])
def test_a_place_without_a_journal_is_refused_and_left_alone(cli, tmp_path: Path, command):
    name, *options = command
    assert cli(name, tmp_path / "none", *options) == 1
    assert cli.err == f"everact: error: there is no journal at '{tmp_path / 'none'}': check the path\n"
    assert list(tmp_path.iterdir()) == []
