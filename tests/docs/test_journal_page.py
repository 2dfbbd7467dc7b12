"""The commands on docs/journal.md print what the page shows, but for ids and times."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from everact.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "journal.md"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHANGES = re.compile(
    r"\b[0-9a-f]{32}\b|since \S+ \S+|[\d,.]+ bytes|data file [\d,]+|has [\d,]+|[\d,.]+ (?:free|in log)"
)


def test_the_commands_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    program = PYTHON.findall(page)[0].replace("await main()\n", "asyncio.run(main())\n")
    Path("order.py").write_text(program)
    runpy.run_path("order.py", run_name="order")
    capfd.readouterr()
    shown = "".join(CONSOLE.findall(page))
    printed = ""
    for command in re.findall(r"^\$ (.*)$", shown, re.MULTILINE):
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit):
            main()
        printed += f"$ {command}\n" + "".join(capfd.readouterr())
    assert CHANGES.sub("*", printed) == CHANGES.sub("*", shown)
