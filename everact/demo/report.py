"""What the demo shows: progress on a terminal or in plain lines, the table, the proof, or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .proof import Outcome
from .record import PackageResult
from .supervisor import Supervisor

#: Without a terminal there is a line each time another such share of the packages is done.
SHARE = 5
#: Files that the table names for each package; JSON names all.
NAMED = 10


def printable(text: str) -> str:
    """Text from file names, in which control characters cannot move the cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class ProgressView:
    """A bar on a terminal, a few lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shares = 0
        self._bar = Progress(
            TextColumn("auditing"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("packages, {task.fields[files]:,} files"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, files=0)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, recorded: int, packages: int, files: int) -> None:
        """See ``View``."""
        self._bar.update(self._task, completed=recorded, total=packages or None, files=files)
        shares = recorded * SHARE // packages if packages else 0
        if shares > self._shares:
            self._shares = shares
            if not self._console.is_terminal:
                self.say(f"{recorded} of {packages} packages, {files:,} files")

    def say(self, text: str) -> None:
        """See ``View``."""
        self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


def print_report(
    console: Console, outcome: Outcome, supervisor: Supervisor, asked: int, seconds: float
) -> None:
    """Print the table and the proof.

    Args:
        console: Where.
        outcome: What the journal shows.
        supervisor: Knows the kills.
        asked: Kills that were asked for.
        seconds: How long the audit took.
    """
    console.print(_table(outcome.table))

    def say(text: str) -> None:
        console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    for number, (kill, restart) in enumerate(zip(supervisor.kills, outcome.restarts, strict=True), 1):
        say(
            f"kill {number}: worker {kill.pid}, SIGKILL after {kill.seconds:.1f} s at {kill.recorded} of "
            f"{kill.packages} packages; {restart.results:,} activity results were in the journal, "
            f"{restart.results - restart.repeated:,} of them not repeated; {restart.cut} activities without a "
            f"result ran again"
        )
    made = len(supervisor.kills)
    if made < asked:
        say(f"{made} of {asked} kills were made: everything was over before the next one")
    for claim in outcome.claims:
        say(f"{'PROVED' if claim.holds else 'FAILED'}: {claim.text}")
    bad = [result for result in outcome.table if not result.is_sound]
    if bad:
        say(f"{len(bad)} packages are not as installed: {', '.join(result.package.name for result in bad)}")
    say(
        f"{len(outcome.table)} packages in {seconds:.1f} s with {len(supervisor.workers)} worker processes "
        f"(a plain loop that survives nothing: {outcome.plain_seconds:.1f} s)"
    )


def _table(results: Sequence[PackageResult]) -> Table:
    notes = [_notes(result) for result in results]
    rows = [_numbers(result) for result in results]
    table = Table(box=SIMPLE_HEAD, show_footer=True, padding=0, collapse_padding=True, pad_edge=False)
    table.add_column("package", f"{len(results)} packages", overflow="fold")
    table.add_column("version", overflow="fold")
    for number, name in enumerate(("files", "bytes", "mismatches", "missing", "no hash")):
        total = sum(row[number] for row in rows)
        table.add_column(name, f"{total:,}", justify="right", no_wrap=True)
    if any(notes):
        table.add_column("notes", overflow="fold")
    for result, row, note in zip(results, rows, notes, strict=True):
        cells = [Text(printable(result.package.name)), Text(printable(result.package.version))]
        cells += [Text(f"{number:,}") for number in row]
        table.add_row(
            *cells, *([Text(note)] if any(notes) else []), style=None if result.is_sound else "bold red"
        )
    return table


def _numbers(result: PackageResult) -> tuple[int, ...]:
    found = result.findings
    return found.files, found.bytes, len(found.changed), len(found.missing), found.unhashed


def _notes(result: PackageResult) -> str:
    found = result.findings
    names = [f"changed: {path}" for path in found.changed]
    names += [f"missing: {path}" for path in found.missing]
    names += [f"unreadable: {path}" for path in found.unreadable]
    lines = [printable(name) for name in names[:NAMED]]
    if len(names) > NAMED:
        lines.append(f"and {len(names) - NAMED} more (--json names all)")
    if result.note:
        lines.append(printable(result.note))
    return "\n".join(lines)


def as_json(
    outcome: Outcome, supervisor: Supervisor, asked: int, seconds: float, journal: str | None
) -> dict[str, Any]:
    """The same as data; arguments as for ``print_report``, and the journal's directory if it is kept."""
    return {
        "ok": is_ok(outcome),
        "packages": [
            {
                "name": result.package.name,
                "version": result.package.version,
                "files": result.findings.files,
                "bytes_hashed": result.findings.bytes,
                "no_hash": result.findings.unhashed,
                "mismatches": result.findings.changed,
                "missing": result.findings.missing,
                "unreadable": result.findings.unreadable,
                "note": result.note,
            }
            for result in outcome.table
        ],
        "kills_asked": asked,
        "kills": [
            {
                "pid": kill.pid,
                "seconds": round(kill.seconds, 3),
                "packages_recorded": kill.recorded,
                "packages": kill.packages,
                "results_in_journal": restart.results,
                "results_repeated": restart.repeated,
                "activities_cut": restart.cut,
            }
            for kill, restart in zip(supervisor.kills, outcome.restarts, strict=True)
        ],
        "workers": supervisor.workers,
        "proof": [{"holds": claim.holds, "text": claim.text} for claim in outcome.claims],
        "seconds": round(seconds, 3),
        "plain_seconds": round(outcome.plain_seconds, 3),
        "journal": journal,
    }


def is_ok(outcome: Outcome) -> bool:
    """Whether every claim holds and every package is as it was installed."""
    return all(claim.holds for claim in outcome.claims) and all(result.is_sound for result in outcome.table)
