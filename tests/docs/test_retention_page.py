"""The commands on docs/retention.md print what the page shows, but for sizes."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from everact.cli import main
from everact.journal.lmdb_store import LmdbStore

PAGE = Path(__file__).resolve().parents[2] / "docs" / "retention.md"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SIZES = re.compile(r"[\d,]{4,}")


def test_the_commands_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    LmdbStore("shop", durability="os").close()
    shown = "".join(CONSOLE.findall(PAGE.read_text(encoding="utf-8")))
    printed = ""
    for command in re.findall(r"^\$ (.*)$", shown, re.MULTILINE):
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit):
            main()
        printed += f"$ {command}\n" + "".join(capfd.readouterr())
    assert SIZES.sub("*", printed) == SIZES.sub("*", shown)
