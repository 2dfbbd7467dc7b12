"""``everact demo``: puts the parts together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

from rich.console import Console

from .proof import read_journal
from .record import find_packages
from .report import ProgressView, as_json, is_ok, print_report
from .supervisor import DemoError, Supervisor

#: Columns of the table where there is no terminal that limits them.
WIDTH = 120


def run(path: Path | None, journal: Path | None, kills: int, *, as_data: bool, keep: bool) -> int:
    """Audit packages while the worker is killed, and report.

    Args:
        path: Folder such as site-packages; None is everything that this interpreter can import.
        journal: Directory for the journal, new or empty; None is a temporary one.
        kills: How often to kill.
        as_data: Print JSON, and progress to standard error.
        keep: Do not remove a temporary journal.

    Returns:
        The exit code: 0 when all packages are as they were installed and the proof holds.

    Raises:
        DemoError: There is nothing to audit, the journal's directory is taken, or a worker has failed.
    """
    places = _places(path)
    if not find_packages(places):
        where = path or "this environment"
        raise DemoError(
            f"no installed packages (*.dist-info) in {where}: --path wants a site-packages folder"
        )
    console = Console(stderr=as_data)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH
    audit = f"audit-{secrets.token_hex(4)}"
    with _journal_folder(journal, keep=keep) as folder:
        began = time.monotonic()
        with ProgressView(console) as view:
            supervisor = Supervisor(folder, audit, places, kills, view)
            supervisor.run()
        seconds = time.monotonic() - began
        outcome = asyncio.run(read_journal(folder, audit, places, supervisor.kills, supervisor.starts))
        kept = folder if keep or journal else None
        if as_data:
            sys.stdout.write(json.dumps(as_json(outcome, supervisor, kills, seconds, kept), indent=2) + "\n")
        else:
            print_report(console, outcome, supervisor, kills, seconds)
        if kept:
            view.say(f"journal: {kept}")
    return 0 if is_ok(outcome) else 1


def _places(path: Path | None) -> list[str]:
    """Folders to audit, each once."""
    if path is not None:
        if not path.is_dir():
            raise DemoError(f"--path {path} is no folder")
        return [str(path.resolve())]
    # An empty entry of sys.path is the present folder, and so is Path("").
    return list(dict.fromkeys(str(Path(entry).resolve()) for entry in sys.path if Path(entry).is_dir()))


@contextlib.contextmanager
def _journal_folder(journal: Path | None, *, keep: bool) -> Generator[str]:
    if journal is not None:
        if journal.exists() and (not journal.is_dir() or any(journal.iterdir())):
            raise DemoError(f"--journal {journal} is there already: name a new directory")
        yield str(journal.absolute())
    elif keep:
        yield str(Path(tempfile.mkdtemp(prefix="everact-demo-")) / "journal")
    else:
        with tempfile.TemporaryDirectory(prefix="everact-demo-") as folder:
            yield str(Path(folder) / "journal")
