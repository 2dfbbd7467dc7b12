"""Commands, run in the process of the tests."""

import sys

import pytest

from everact.cli import main


@pytest.fixture
def everact(monkeypatch, capsys, tmp_journal):
    """Run a command in this process; returns the exit code, what it printed, and its errors."""

    def call(*arguments, stdin=None, journal=tmp_journal):
        if stdin is not None:
            monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": stdin}))
        monkeypatch.setattr(
            sys, "argv", ["everact", *arguments, *(("--journal", str(journal)) if journal else ())]
        )
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return left.value.code, out, err

    return call
