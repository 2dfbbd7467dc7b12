"""``everact journal purge`` and ``compact``: they change a journal that no runtime has open."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .journal_commands import (
    AsJson,
    Journal,
    _count,
    _print_json,
    _progress,
    _reading,
    _say,
    _writing,
    app,
)

if TYPE_CHECKING:
    from .journal.lmdb_store import LmdbStore
    from .journal.purging import Selection

__all__ = ["app", "compact", "purge"]

_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@app.command()
def purge(  # noqa: PLR0917  (typer takes options as parameters)
    journal: Journal,
    closed_before: Annotated[
        str | None,
        typer.Option(
            metavar="DATE",
            help="Only runs that ended before: 2026-11-30, or 2026-11-30T14:00; UTC if no zone.",
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="AGE", help="Only runs that ended at least so long ago: 90s, 15m, 12h, 30d, 8w."
        ),
    ] = None,
    workflow_type: Annotated[
        str | None, typer.Option("--type", metavar="NAME", help="Only this workflow type.")
    ] = None,
    status: Annotated[
        str | None, typer.Option(help="Only this status: completed, failed, cancelled or terminated.")
    ] = None,
    workflow: Annotated[str | None, typer.Option(metavar="ID", help="Only runs of this workflow id.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the runs.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete closed runs for good. Their room is used again; `compact` gives it back to the disk.

    Open runs are never deleted. It can be stopped at any time and begun again.
    """
    from .journal.clock import SystemClock  # noqa: PLC0415  (each command loads only what it needs)
    from .journal.upkeep import Upkeep  # noqa: PLC0415

    now = SystemClock().wall
    selection = _selection(
        now(),
        closed_before=closed_before,
        older_than=older_than,
        workflow_type=workflow_type,
        status=status,
        workflow=workflow,
    )
    if dry_run:
        with _reading(journal) as store:
            runs = _counted(store, selection)
    else:
        _must_exist(journal)
        instead = "purge there with Runtime.purge(...) (--dry-run counts here)"
        with _writing(journal, instead) as store:
            runs = _counted(store, selection)
            if runs and not yes:
                _confirm(f"delete {_count(runs, 'closed run')} for good?")
            if runs:
                with _progress("purging") as progress:
                    runs = Upkeep(store, now).purge(selection, progress)
    if as_json:
        _print_json({"runs": runs, "dry_run": dry_run})
    else:
        _say(f"{'would purge' if dry_run else 'purged'} {_count(runs, 'run')}")


@app.command()
def compact(journal: Journal, as_json: AsJson = False) -> None:
    """Write the data file anew without its free pages, and let the next start read no log.

    The disk needs room for a copy of what the journal holds. It can be stopped at any time and begun again.
    """
    from .journal.clock import SystemClock  # noqa: PLC0415
    from .journal.rewrite import rewrite  # noqa: PLC0415
    from .journal.upkeep import Upkeep  # noqa: PLC0415

    _must_exist(journal)
    with _writing(journal, "compact it there with Runtime.compact_journal()") as store:
        with _progress("moving the log") as progress:
            Upkeep(store, SystemClock().wall).empty_log(progress)
        with _progress("copying") as progress:
            done = rewrite(store, progress)
    if as_json:
        _print_json(done._asdict())
    else:
        _say(f"compacted: {done.bytes_after:,} bytes (it had {done.bytes_before:,})")


def _counted(store: LmdbStore, selection: Selection) -> int:
    """How many runs would go; a type that the journal does not know is a mistake."""
    from .journal.purge_preview import preview  # noqa: PLC0415

    found = preview(store, selection)
    wanted = selection.workflow_type
    if wanted is not None and wanted not in found.types:
        known = ", ".join(map(repr, sorted(found.types)))
        there = f"it has {known}" if known else "it has no runs at all"
        _say(f"everact: error: the journal has never had runs of type {wanted!r}: {there}", error=True)
        raise typer.Exit(1)
    return found.runs


def _must_exist(journal: Path) -> None:
    """Opening a journal for writing would make one."""
    from .journal.errors import NotAJournalError  # noqa: PLC0415
    from .journal.lmdb_format import DATA_FILE, refuse_other_file  # noqa: PLC0415
    from .journal.lmdb_lock import LOCK_FILE, read_notes  # noqa: PLC0415

    refuse_other_file(str(journal))
    is_lost = (journal / LOCK_FILE).exists() and read_notes(str(journal)).journal_id
    if not (journal / DATA_FILE).exists() and not is_lost:
        raise NotAJournalError(f"there is no journal at {str(journal)!r}: check the path")


def _selection(
    now: int,
    *,
    closed_before: str | None,
    older_than: str | None,
    workflow_type: str | None,
    status: str | None,
    workflow: str | None,
) -> Selection:
    from .actors.options import selection_of  # noqa: PLC0415

    moment = None if closed_before is None else _moment(closed_before)
    age = None if older_than is None else _age(older_than)
    if all(given is None for given in (moment, age, workflow_type, status, workflow)):
        raise typer.BadParameter(
            "say which runs: --closed-before, --older-than, --type, --status or --workflow "
            "(--older-than 0s is every closed run)"
        )
    try:
        return selection_of(
            now,
            closed_before=moment,
            older_than=age,
            workflow_type=workflow_type,
            status=status,
            workflow_id=workflow,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"--closed-before takes a date or a time, as 2026-11-30 or 2026-11-30T14:00, not {text!r}"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _age(text: str) -> timedelta:
    found = _AGE.fullmatch(text)
    if found is None:
        raise typer.BadParameter(
            f"--older-than takes a number and a unit, as 90s, 15m, 12h, 30d or 8w, not {text!r}"
        )
    try:
        return timedelta(**{_UNITS[found[2]]: float(found[1])})
    except OverflowError:
        raise typer.BadParameter(f"--older-than is too long: {text!r}") from None


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody is there to be asked: repeat it with --yes (--dry-run only counts)")
    typer.confirm(question, abort=True, err=True)
