"""``everact journal``: look into a journal, take runs out and in, back it up."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from .import_file import Documents

if TYPE_CHECKING:
    from .journal.lmdb_store import LmdbStore
    from .journal.messages_under_way import UnderWay
    from .journal.salvage import Progress
    from .journal.stats import RunSize, Stats
    from .journal.verify import Report

__all__ = ["app"]

#: Without a terminal a line says how far it is, each time so many seconds have passed.
PLAIN_SECONDS = 2.0
#: Problems that are printed as lines; JSON names more.
PRINTED = 20

app = typer.Typer(
    name="journal",
    help="Look into a journal, take runs out and in, back it up, purge and compact it. "
    "import, purge, compact and messages --discard need it for themselves; the others (and purge --dry-run) work "
    "while a runtime has it open.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Journal = Annotated[
    Path, typer.Argument(metavar="JOURNAL", help="The journal's directory.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def verify(journal: Journal, as_json: AsJson = False) -> None:
    """Read everything and check it. The exit code is 1 when something is wrong."""
    from .journal import verify as room  # noqa: PLC0415  (each command loads only what it needs)

    with _reading(journal) as store, _progress("verifying") as progress:
        report = room.verify(store, progress)
    if as_json:
        _print_json(_report_data(report))
    else:
        _print_report(report)
    raise typer.Exit(0 if report.is_sound else 1)


@app.command()
def stats(journal: Journal, as_json: AsJson = False) -> None:
    """Count runs, events and bytes. The exit code is 1 when something cannot be read."""
    from .journal import stats as room  # noqa: PLC0415

    with _reading(journal) as store, _progress("counting") as progress:
        found = room.gather(store, progress)
    if as_json:
        _print_json(
            {
                **vars(found),
                "tables": {name: vars(size) for name, size in found.tables.items()},
                "damage": [damage._asdict() for damage in found.damage],
            }
        )
    else:
        _print_stats(found)
    raise typer.Exit(1 if found.damage else 0)


@app.command()
def export(
    journal: Journal,
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID]...",
            help="Only runs with one of these workflow ids or run ids.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="A new file; default: standard output."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Say as JSON what was done; needs --output.")
    ] = False,
) -> None:
    """Write runs as JSON, one a line. Damaged runs are left out and named, and the exit code is then 1."""
    from .journal.export import LeftOut, export_runs  # noqa: PLC0415
    from .journal.importing import is_message  # noqa: PLC0415
    from .journal.salvage import Damage  # noqa: PLC0415

    if as_json and output is None:
        raise typer.BadParameter("--json needs --output: the runs themselves go to standard output")
    left_out: list[LeftOut] = []
    damage: list[Damage] = []
    moved: list[bool] = []
    runs = messages = 0
    with _reading(journal) as store, _output(output) as write, _progress("exporting") as progress:
        for document in export_runs(
            store,
            frozenset(ids or ()),
            left_out=left_out.append,
            damaged=damage.append,
            moved=lambda: moved.append(True),
            progress=progress,
        ):
            write(_json(document) + b"\n")
            if is_message(document):
                messages += 1
            else:
                runs += 1
        if ids and not (runs or left_out or damage):  # inside, so that no empty file is left behind
            _say(f"everact: error: the journal has no run of {', '.join(map(repr, ids))}", error=True)
            raise typer.Exit(1)
    if as_json:
        _print_json(
            {
                "runs": runs,
                "messages": messages,
                "messages_moved": bool(moved),
                "left_out": [run._asdict() for run in left_out],
                "damage": [one._asdict() for one in damage],
            }
        )
    else:
        _say(f"exported {_count(runs, 'run')}{_and_messages(messages)}", error=True)
    for what, found in (("left out", left_out), ("cannot be read", damage)):
        for one in found[:PRINTED]:
            _say(f"{what}: {one}", error=True)
        if len(found) > PRINTED:
            _say(f"{what}: {len(found) - PRINTED:,} more (--json names them)", error=True)
    if moved:
        _say(
            "open runs were sent messages while they were exported: one may be in the export twice, or missing. To "
            "import it, stop the program that has the journal open and export again (what is then on its way is "
            "exported too)",
            error=True,
        )
    raise typer.Exit(1 if left_out or damage or moved or (ids and not runs) else 0)


@app.command(name="import")
def import_(
    journal: Annotated[
        Path,
        typer.Argument(
            metavar="JOURNAL", help="The journal's directory; made if missing.", show_default=False
        ),
    ],
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="What export wrote; - is standard input.", show_default=False),
    ],
    as_json: AsJson = False,
) -> None:
    """Append exported runs to a journal that no runtime has open. Nothing is written unless all can be."""
    from .journal.importing import import_runs  # noqa: PLC0415

    instead = "import into a new directory"
    with Documents(file) as documents:
        documents.check()  # before a new journal is made
        with _writing(journal, instead) as store, _progress("importing") as progress:
            done = import_runs(store, documents, progress)
    if as_json:
        _print_json(done._asdict())
    else:
        events = _count(done.events, "event")
        _say(f"imported {_count(done.runs, 'run')} with {events}{_and_messages(done.messages)}")


@app.command()
def backup(
    journal: Journal,
    destination: Annotated[
        Path, typer.Argument(metavar="DESTINATION", help="A missing or empty directory.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Copy a journal, also one in use, and verify the copy. The exit code is 1 when the copy has damage."""
    from .journal import backup as room  # noqa: PLC0415

    with _progress("verifying the copy") as progress:
        done = room.backup(journal, destination, progress)
    if as_json:
        _print_json(
            {
                "path": done.path,
                "bytes": done.bytes,
                "source_bytes": done.source_bytes,
                "grown_bytes": done.grown_bytes,
                "seconds": round(done.seconds, 3),
                "report": _report_data(done.report),
            }
        )
    else:
        _say(f"copied to {destination}: {done.bytes:,} bytes (the journal has {done.source_bytes:,})")
        _print_report(done.report)
    if done.warning:
        _say(f"warning: {done.warning}", error=True)
    raise typer.Exit(0 if done.report.is_sound else 1)


# --- in and out -----------------------------------------------------------------------------------------------


@contextmanager
def _reading(journal: Path) -> Generator[LmdbStore]:
    from .journal.lmdb_store import LmdbStore  # noqa: PLC0415

    with _closing(LmdbStore(journal, read_only=True)) as store:
        yield store


@contextmanager
def _writing(journal: Path, instead: str) -> Generator[LmdbStore]:
    """A journal, open for writing.

    Args:
        journal: Its directory.
        instead: What a program that has it open can do.
    """
    from .journal.errors import JournalError, JournalLockedError  # noqa: PLC0415
    from .journal.lmdb_store import LmdbStore  # noqa: PLC0415

    try:
        store = LmdbStore(journal)
    except JournalLockedError as error:
        owner = f"process {error.pid}" if error.pid else "another process"
        raise JournalError(
            f"the journal {str(journal)!r} is in use by {owner}: {instead}, or stop that process first"
        ) from error
    with _closing(store):
        yield store


@contextmanager
def _closing(store: LmdbStore) -> Generator[LmdbStore]:
    """Close a store at the end; damage and lack of room that show on the way are said with what to do."""
    import lmdb  # noqa: PLC0415

    from .journal.disk_trouble import full_error  # noqa: PLC0415
    from .journal.errors import CommitUnknownError, JournalCorruptError, JournalDiskError  # noqa: PLC0415
    from .journal.lmdb_damage import ADVICE, damaged  # noqa: PLC0415

    try:
        yield store
    except lmdb.Error as error:
        raise damaged(store.path, str(error)) from error
    except JournalCorruptError as error:
        if "everact journal" in str(error):
            raise
        raise JournalCorruptError(f"the journal {store.path!r} is damaged ({error}): {ADVICE}") from error
    except JournalDiskError:
        raise
    except CommitUnknownError as error:
        raise (full_error(store.path, error.__cause__) or error) from error
    finally:
        store.close()


@contextmanager
def _progress(what: str) -> Generator[Progress]:
    """A bar on a terminal; elsewhere a line now and then. Both go to standard error."""
    if not sys.stderr.isatty():
        said = time.monotonic()

        def say(done: int, of: int) -> None:
            nonlocal said
            if time.monotonic() - said >= PLAIN_SECONDS:
                said = time.monotonic()
                _say(f"{what}: {done:,} of {of:,}", error=True)

        yield say
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def _output(path: Path | None) -> Generator[Callable[[bytes], object]]:
    from .journal.disk_trouble import saying  # noqa: PLC0415

    if path is None:
        what = "standard output cannot be written"
        yield partial(_write, sys.stdout.buffer, what)
        with saying(what):
            sys.stdout.buffer.flush()
        return
    what = f"the export {str(path)!r} cannot be written"
    with saying(what):
        # What runs hold is for the eyes of those who may read the journal.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb", buffering=0) as file:
        try:
            yield partial(_write, file, what)
        except BaseException:
            path.unlink()
            raise


def _write(file: RawIOBase | BinaryIO, what: str, data: bytes) -> None:
    from .journal.disk_trouble import saying  # noqa: PLC0415

    with saying(what):
        left = memoryview(data)
        while left:
            left = left[file.write(left) or 0 :]


def _json(value: object) -> bytes:
    import msgspec  # noqa: PLC0415

    return msgspec.json.encode(value)


def _print_json(value: object) -> None:
    import msgspec  # noqa: PLC0415

    typer.echo(msgspec.json.format(_json(value), indent=2).decode())


def _say(text: str, *, error: bool = False) -> None:
    """Print a line in which ids cannot move the cursor."""
    typer.echo(_printable(text), err=error)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _and_messages(number: int) -> str:
    return f" and {_count(number, 'message')} on their way" if number else ""


def _count(number: int, noun: str, several: str = "") -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {several or noun + 's'}"


# --- what is said ---------------------------------------------------------------------------------------------


def _report_data(report: Report) -> dict[str, Any]:
    messages = [message_data(message) for message in report.messages]
    return {"is_sound": report.is_sound, **vars(report), "messages": messages}


def message_data(message: UnderWay) -> dict[str, Any]:
    """A message between runs, as JSON says it."""
    workflow_id, run_id = message.receiver
    return {
        "sequence": message.sequence,
        "put_aside": message.is_aside,
        "what": message.what,
        "workflow_id": workflow_id,
        "run_id": run_id,
        "sender_key": message.run_key,
        "error": message.error,
    }


def _print_report(report: Report) -> None:
    _say(f"journal {report.journal_id}")
    _say(
        f"read {_count(report.runs, 'run')} ({report.open_runs:,} open) with {_count(report.events, 'event')}; "
        f"{_count(report.records, 'commit record')} in the log"
    )
    if report.waiting or report.put_aside:
        _say(f"messages between runs: {report.waiting:,} on their way, {report.put_aside:,} put aside")
        for message in report.messages[:PRINTED]:
            _say(f"  {message}")
        if len(report.messages) > PRINTED:
            _say("  and more (`everact journal messages` names all)")
    for problem in report.problems[:PRINTED]:
        _say(str(problem))
    if report.problem_count > PRINTED:
        _say(f"and {report.problem_count - PRINTED:,} more (--json names up to {len(report.problems):,})")
    if report.is_sound:
        _say("everything is whole")
    else:
        _say(
            f"DAMAGED: {_count(report.problem_count, 'problem')}; {_count(report.damaged_runs, 'run')} not whole"
        )


def _print_stats(stats: Stats) -> None:
    _say(f"journal {stats.journal_id}")
    total = sum(sum(statuses.values()) for statuses in stats.runs.values())
    _say(f"{_count(total, 'run')}, {_count(stats.events, 'event')}")
    for name, statuses in sorted(stats.runs.items()):
        counts = ", ".join(f"{number:,} {status}" for status, number in sorted(statuses.items()))
        _say(f"  {name or 'type unknown'}: {counts}")
    left = f" ({stats.first_sequence:,} to {stats.last_sequence:,})" if stats.records else ""
    _say(
        f"log: {_count(stats.records, 'commit record')}{left} "
        f"with {_count(stats.entries, 'entry', 'entries')} to move into the tables"
    )
    if stats.file_bytes is not None:
        _say(f"data file: {stats.file_bytes:,} bytes, of these {stats.free_bytes or 0:,} free for use")
        for name, size in stats.tables.items():
            if size.bytes:
                _say(f"  {name}: {_count(size.rows, 'row')}, {size.bytes:,} bytes")
    if stats.plain_bytes_per_event is not None:
        stored = "" if stats.bytes_per_event is None else f", {stats.bytes_per_event:,} in log and histories"
        _say(f"an event: {stats.plain_bytes_per_event:,} bytes as it is encoded{stored}")
    if stats.dictionary:
        _say(f"dictionary {stats.dictionary}: {stats.dictionary_bytes:,} bytes")
    if stats.requests_since:
        newer, older = stats.request_ids
        _say(f"request ids: {newer:,} since {_utc(stats.requests_since)}, {older:,} before")
    if stats.largest:
        _say("largest runs:")
    for run in stats.largest:
        _say(f"  {_run_line(run)}: {_count(run.events, 'event')}, {run.bytes:,} bytes")
    if stats.oldest_open is not None:
        _say(f"oldest open run: {_run_line(stats.oldest_open)}, since {_utc(stats.oldest_open.started_at)}")
    for damage in stats.damage[:PRINTED]:
        _say(f"NOT COUNTED: {damage}")
    if len(stats.damage) > PRINTED:
        _say(f"NOT COUNTED: {len(stats.damage) - PRINTED:,} more (--json names them)")


def _utc(microseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(microseconds // 1_000_000))


def _run_line(run: RunSize) -> str:
    return f"{run.workflow_id!r} ({run.workflow_type}, run {run.run_id}, {run.status})"
