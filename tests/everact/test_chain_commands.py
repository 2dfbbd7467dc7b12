"""The commands on chains of runs: options of a start, results that follow; also on a closed journal."""

import json
import sys

import pytest
from support.door_program import Program

from everact.cli import main


@pytest.fixture
def everact(monkeypatch, capsys, tmp_journal):
    """Run a command in this process; returns the exit code, what it printed, and its errors."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["everact", *arguments, "--journal", str(tmp_journal)])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return left.value.code, out, err

    return call


@pytest.mark.slow
def test_a_chain_is_seen_and_followed_by_commands(everact, tmp_journal):
    with Program(tmp_journal, CHAINED="1") as program:
        code, out, _ = everact("start", "Hops", "[]", "--id", "a", "--json", "--execution-timeout", "3600")
        first = json.loads(out)["run_id"]
        assert code == 0
        assert everact("signal", "a", "hop", '"one"', "--run-id", first)[0] == 0
        assert everact("signal", "a", "hop", '"end"', "--run-id", first)[0] == 0
        assert json.loads(everact("result", "a")[1]) == {"item": "one", "count": 1}
        assert json.loads(everact("result", "a", "--run-id", first)[1]) == {"item": "one", "count": 1}
        code, _, err = everact("result", "a", "--run-id", first, "--no-follow-runs")
        assert code == 1
        assert "goes on as run" in err
        last = json.loads(everact("describe", "a", "--json")[1])
        shown = everact("describe", "a")[1]
        assert f"first run:        {first}\n" in shown
        listed = json.loads(everact("list", "--json")[1])["workflows"]
        newest, between, oldest = [
            (run["run_id"], run["first_run_id"], run["continued_from"], run["continued_to"])
            for run in listed
            if run["workflow_id"] == "a"
        ]
        assert oldest == (first, first, None, between[0])
        assert between[1:] == (first, first, newest[0])
        assert newest == (last["run_id"], first, between[0], None)
        table = everact("list")[1]
        assert "chain" in table.splitlines()[0]
        marks = {line.split()[-2]: line.split()[-1] for line in table.splitlines() if line.startswith(" a ")}
        assert marks == {newest[0]: "<", between[0]: "<>", oldest[0]: ">"}
        shown = everact("describe", "a", "--run-id", first)[1]
        assert "status:           continued_as_new\n" in shown
        assert "continued to:     " in shown
        code, out, _ = everact("start", "Hops", "[]", "--id", "later", "--start-delay", "3600")
        shown = everact("describe", "later")[1]
        assert "begins:           " in shown
        assert "waiting on:       its time to begin, " in shown
        code, _, err = everact("start", "Hops", "[]", "--cron", "daily")
        assert (code, "cron_schedule must be five fields" in err) == (1, True)
        policy = (
            '{"maximum_attempts": 2, "initial_interval": 0.01, "non_retryable_error_types": ["KeyError"]}'
        )
        assert everact("start", "Hops", "[]", "--id", "again", "--retry-policy", policy)[0] == 0
        assert everact("signal", "again", "hop", '"fail"')[0] == 0
        assert "attempt:          2\n" in everact("describe", "again")[1]
        assert everact("list", "--status", "continued_as_new")[1].count("Hops") == 2
        program.leave()
    assert json.loads(everact("result", "a", "--run-id", first)[1]) == {"item": "one", "count": 1}
    assert json.loads(everact("result", "a")[1]) == {"item": "one", "count": 1}
    code, _, err = everact("result", "a", "--run-id", first, "--no-follow-runs")
    assert (code, "goes on as run" in err) == (1, True)
    assert "continued from:   " in everact("describe", "a")[1]
