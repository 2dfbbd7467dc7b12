"""The command line: ``everact`` and ``python -m everact`` are the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from . import activity_commands, message_commands, reading_commands, replay_command, workflow_commands
from ._version import __version__
from .debugging import commands as debugging_commands
from .journal.errors import EveractError
from .lint import commands as lint_commands
from .timeline import commands as timeline_commands

__all__ = ["app", "main"]

app = typer.Typer(
    name="everact",
    help="Durable workflows as actors: ordinary async Python that survives kill -9, with no server.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(reading_commands.app)
app.add_typer(workflow_commands.app)
app.add_typer(activity_commands.app)
app.add_typer(message_commands.app)
app.add_typer(replay_command.app)
app.add_typer(debugging_commands.app)
app.add_typer(timeline_commands.app)
app.add_typer(lint_commands.app)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"everact {__version__}")
        raise typer.Exit


@app.callback()
def _everact(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    path: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A site-packages folder; default: what this Python can import."),
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A new directory for the journal; default: temporary.")
    ] = None,
    kills: Annotated[int, typer.Option(min=0, help="How often to kill the worker.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; progress goes to stderr.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep a temporary journal and print its path.")
    ] = False,
) -> None:
    """Audit the installed packages while the worker is killed.

    Each package is a durable workflow that hashes its files. The worker process is ended with SIGKILL on the way
    and started again, and what the journal holds at the end is counted. The exit code is 1 when a file is not as
    its package's RECORD says.
    """
    from .demo.command import run  # noqa: PLC0415  (each command loads only what it needs)

    raise typer.Exit(run(path, journal, kills, as_data=as_json, keep=keep))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def bench(context: typer.Context) -> None:
    """Measure this machine (its own --help lists the options)."""
    from .bench.__main__ import run as measure  # noqa: PLC0415

    raise typer.Exit(measure(context.args))


def main() -> None:
    """Run the command line.

    Exit codes: 0; 1 for an error or a failed check; 2 for wrong usage; 3 when no program has the journal open that a
    command needs; 4 when a run has no result in time.
    """
    try:
        app(prog_name="everact")
    except EveractError as error:
        _fail(str(error))
    except OSError as error:
        from .journal.disk_trouble import said  # noqa: PLC0415

        place = "what it prints" if error.filename is None else f"{str(error.filename)!r}"
        _fail(said(f"{place} cannot be read or written", error))


def _fail(text: str) -> NoReturn:
    sys.stderr.write(f"everact: error: {text}\n")
    sys.exit(1)
