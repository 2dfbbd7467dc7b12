"""``everact debug``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..journal_commands import _print_json, _say
from .code_options import CodeFiles, CodeNames

__all__ = ["app"]

app = typer.Typer()

HistoryFile = Annotated[
    Path,
    typer.Argument(
        metavar="HISTORY",
        help="A file that `everact journal export` or `everact history --json` wrote; - is standard input.",
        show_default=False,
    ),
]
WorkflowId = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Of the run, when the file has several.", show_default=False),
]
OneRunId = Annotated[str | None, typer.Option("--run-id", metavar="ID", help="Likewise.", show_default=False)]


@app.command()
def debug(  # noqa: PLR0917  (typer takes options as parameters)
    history: HistoryFile,
    to_event: Annotated[
        int,
        typer.Option(
            "--to-event",
            metavar="N",
            help="Where to stop, as `everact history` numbers events.",
            show_default=False,
        ),
    ],
    module: CodeFiles = None,
    workflows: CodeNames = None,
    workflow_id: WorkflowId = None,
    run_id: OneRunId = None,
    interceptor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="An interceptor that the program has; again for the next.",
            show_default=False,
        ),
    ] = None,
    converter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="A converter of values that the program has; again for another.",
            show_default=False,
        ),
    ] = None,
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Read pickled values: they can run code here.")
    ] = False,
    use_pdb: Annotated[
        bool,
        typer.Option("--pdb/--no-pdb", help="Stop in pdb; or print the stacks and variables of all tasks."),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; implies --no-pdb.")] = False,
) -> None:
    """Replay a run's history, and stop in its code at an event.

    It stops at the first line that runs because of the event; at an event that the code decides (a command, the end),
    at the line that does. Activities do not run, and nothing is written.
    """
    from ..actors.errors import RegistrationError  # noqa: PLC0415  (each command loads only what it needs)
    from ..history_files import UnreadableHistoryError, find_run, read_histories  # noqa: PLC0415
    from .code_files import CodeNotFoundError, load_code  # noqa: PLC0415
    from .debugger import Debugger, HistoryMismatchError  # noqa: PLC0415
    from .targets import EventNotReachedError  # noqa: PLC0415

    if not module and not workflows:
        raise typer.BadParameter("say where the code is: --module FILE or --workflows MODULE[:NAME]")
    try:
        found = find_run(read_histories(history), history, workflow_id, run_id)
        code = load_code(
            module or (), workflows or (), interceptor or (), converter or (), trust_pickle=trust_pickle
        )
        debugger = Debugger(found, code, to_event)
        if use_pdb and not as_json:
            for line in debugger.debug():
                _say(line)
            return
        stop = debugger.look()
    except (
        UnreadableHistoryError,
        CodeNotFoundError,
        EventNotReachedError,
        HistoryMismatchError,
        RegistrationError,
    ) as error:
        for line in str(error).splitlines():
            _say(line if line != str(error).splitlines()[0] else f"everact: error: {line}", error=True)
        raise typer.Exit(1) from None
    if as_json:
        event = {"number": stop.event.number, "at": stop.event.at.isoformat(), "kind": stop.event.kind}
        names = {
            "workflow_id": found.workflow_id,
            "run_id": found.run_id,
            "event": event,
            "notes": stop.notes,
        }
        _print_json({**names, **stop.state.as_data()})
        return
    from .run_state import lines_of  # noqa: PLC0415

    for line in (*debugger.about(), *lines_of(stop.state)):
        _say(line)
