"""The commands on docs/retention.md print what the page shows, but for sizes."""

import asyncio
import re
import shlex
import sys
from pathlib import Path

import pytest

from everact import Runtime, workflow
from everact.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "retention.md"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SIZES = re.compile(r"[\d,]{4,}")


@workflow.defn
class Order:
    @workflow.run
    async def run(self) -> None: ...


async def fill_and_purge() -> None:
    """As the blocks of code above the commands do."""
    async with Runtime("shop", workflows=[Order], durability="os") as runtime:
        await runtime.execute(Order)
        await runtime.purge(workflow_type="Order")


def test_the_commands_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(fill_and_purge())
    shown = "".join(CONSOLE.findall(PAGE.read_text(encoding="utf-8")))
    printed = ""
    for command in re.findall(r"^\$ (.*)$", shown, re.MULTILINE):
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit):
            main()
        printed += f"$ {command}\n" + "".join(capfd.readouterr())
    assert SIZES.sub("*", printed) == SIZES.sub("*", shown)
