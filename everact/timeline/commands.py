"""``everact timeline``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..command_calls import TIMEOUT, RunId, Timeout, call_program, failed, handle_of

if TYPE_CHECKING:
    from ..actors.descriptions import History

__all__ = ["app"]

app = typer.Typer()

FORMATS = ("text", "mermaid", "html")


@app.command()
def timeline(  # noqa: PLR0917  (typer takes options as parameters)
    run: Annotated[
        str,
        typer.Argument(
            metavar="ID|HISTORY",
            help="A workflow id; or a file that `everact journal export` or `everact history --json` wrote, "
            "- for standard input.",
            show_default=False,
        ),
    ],
    journal: Annotated[
        Path | None,
        typer.Option(
            "--journal",
            "-j",
            metavar="DIR",
            envvar="EVERACT_JOURNAL",
            help="The journal's directory, for a workflow id.",
            show_default=False,
        ),
    ] = None,
    run_id: RunId = None,
    workflow_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Of the run, when a file has several.", show_default=False),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", "-f", metavar="WORD", help="text, mermaid or html.")
    ] = "text",
    scale: Annotated[
        str,
        typer.Option(metavar="WORD", help="time; or events: long waits are cut short (text and html)."),
    ] = "time",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it there; default: standard output."),
    ] = None,
    timeout: Timeout = TIMEOUT,
) -> None:
    """Show what a run did when: activities, timers, messages, children, steps. Works on a closed journal too.

    An existing file is read as an exported history; all else is a workflow id of the journal.
    """
    from .scale import SCALES  # noqa: PLC0415  (each command loads only what it needs)

    if form not in FORMATS:
        raise typer.BadParameter(f"--format is one of {', '.join(FORMATS)}, not {form!r}")
    if scale not in SCALES:
        raise typer.BadParameter(f"--scale is one of {', '.join(SCALES)}, not {scale!r}")
    is_file = run == "-" or Path(run).is_file()
    if journal is None and not is_file:
        raise typer.BadParameter(f"{run!r} is no file; for a workflow id give --journal DIR")
    if is_file:
        found = _from_file(Path(run), workflow_id, run_id)
    else:
        assert journal is not None
        found = call_program(
            journal,
            lambda client: handle_of(client, run, run_id).fetch_history(),
            lambda reader: reader.history(run, run_id),
            timeout=timeout,
            patient=False,
        )
    _write(found, form, scale, output)


def _from_file(path: Path, workflow_id: str | None, run_id: str | None) -> History:
    from ..history_files import UnreadableHistoryError, find_run, read_histories  # noqa: PLC0415

    try:
        return find_run(read_histories(path), path, workflow_id, run_id)
    except UnreadableHistoryError as error:
        raise failed(error, 1) from None


def _write(found: History, form: str, scale: str, output: Path | None) -> None:
    from ..journal.disk_trouble import saying  # noqa: PLC0415
    from .html import html_of  # noqa: PLC0415
    from .mermaid import mermaid_of  # noqa: PLC0415
    from .model import timeline_of  # noqa: PLC0415
    from .text import print_text  # noqa: PLC0415

    seen = timeline_of(found)
    if output is None and form == "text":
        print_text(seen, scale)  # type: ignore[arg-type]
        return
    text = html_of(seen, scale) if form == "html" else mermaid_of(seen)  # type: ignore[arg-type]
    if output is None:
        typer.echo(text, nl=False)
        return
    with (
        saying(f"the timeline {str(output)!r} cannot be written"),
        output.open("w", encoding="utf-8") as file,
    ):
        if form == "text":
            print_text(seen, scale, file)  # type: ignore[arg-type]
        else:
            file.write(text)
