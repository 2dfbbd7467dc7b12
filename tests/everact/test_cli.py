"""The command line: versions, exit codes, and one line for an error."""

import subprocess
import sys
from pathlib import Path

import pytest

import everact
from everact.cli import main


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run it in this process; returns the exit code."""
    monkeypatch.setattr(sys, "argv", ["everact", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert isinstance(left.value.code, int)
    return left.value.code


def test_the_version_is_the_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"everact {everact.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fly"], "No such command 'fly'"),
        (["--fly"], "No such option"),
        (["demo", "--kills", "many"], "'--kills'"),
        (["demo", "--kills", "-1"], "'--kills'"),
        (["demo", "extra"], "unexpected extra argument"),
        (["bench", "--fly"], "unrecognized arguments: --fly"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *arguments) == 2
    assert says in capsys.readouterr().err


def test_help_names_the_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "--help") == 0
    out = capsys.readouterr().out
    assert "demo" in out
    assert "bench" in out


def test_an_error_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    (full / "a-1.dist-info").mkdir(parents=True)
    for arguments, says in (
        (["--path", str(empty)], f"no installed packages (*.dist-info) in {empty}"),
        (["--path", str(tmp_path / "none")], "is no folder"),
        (["--path", str(full), "--journal", str(full)], "name a new directory"),
    ):
        assert call(monkeypatch, "demo", *arguments) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("everact: error: ")
        assert says in err
        assert err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.smoke
def test_the_module_is_the_same_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "everact", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"everact {everact.__version__}\n"
