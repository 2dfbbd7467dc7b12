"""``everact list | start | signal | ...``: talk to the program that has a journal open, or read a closed journal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from .journal_commands import AsJson, _print_json, _say
from .workflow_texts import print_description, print_history, print_list

if TYPE_CHECKING:
    from .actors.handles import WorkflowHandle
    from .actors.journal_reader import JournalReader
    from .cluster.json_client import JsonClient

__all__ = ["app"]

#: Exit codes beside 0, 1 (an error, or a run that did not complete) and 2 (wrong usage).
NOT_RUNNING = 3
NO_RESULT_YET = 4

T = TypeVar("T")

app = typer.Typer()

Journal = Annotated[
    Path,
    typer.Option(
        "--journal", "-j", metavar="DIR", envvar="EVERACT_JOURNAL", help="The journal's directory.",
        show_default=False,
    ),
]  # fmt: skip
Id = Annotated[str, typer.Argument(metavar="ID", help="The workflow id.", show_default=False)]
Handler = Annotated[str, typer.Argument(metavar="NAME", help="The handler's name.", show_default=False)]
Args = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ARG]...", help="Arguments as JSON: 7, '\"tea\"', '{\"id\": 1}'.", show_default=False),
]  # fmt: skip
InputFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--input-file", metavar="FILE", help="An argument as JSON, - for standard input; again for the next one.",
        show_default=False,
    ),
]  # fmt: skip
RunId = Annotated[
    str | None, typer.Option(metavar="ID", help="This run; default: the newest one.", show_default=False)
]
RequestId = Annotated[
    str | None,
    typer.Option(metavar="ID", help="A repeat with the same one is applied once.", show_default=False),
]
Type = Annotated[str | None, typer.Option("--type", metavar="NAME", help="Only this workflow type.")]
Status = Annotated[
    str | None,
    typer.Option(
        help="Only this status: running, completed, failed, cancelled, terminated, quarantined, held, paused."
    ),
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept in the history.")]
Seconds = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="How long to wait; default: no limit.")
]


# --- reading


@app.command(name="list")
def list_(
    journal: Journal,
    workflow_type: Type = None,
    status: Status = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first. Works on a closed journal too."""
    asked: dict[str, Any] = {"workflow_type": workflow_type, "status": status, "limit": limit}
    found = _call(
        journal,
        lambda client: client.list_workflows(**asked),
        lambda reader: reader.list_workflows(**asked),
    )
    if as_json:
        from .cluster.wire import summary_document  # noqa: PLC0415

        _print_json({"workflows": [summary_document(one) for one in found]})
    else:
        print_list(found, limit)


@app.command()
def count(
    journal: Journal, workflow_type: Type = None, status: Status = None, as_json: AsJson = False
) -> None:
    """Count runs. Works on a closed journal too."""
    asked: dict[str, Any] = {"workflow_type": workflow_type, "status": status}
    found = _call(
        journal,
        lambda client: client.count_workflows(**asked),
        lambda reader: reader.count_workflows(**asked),
    )
    if as_json:
        _print_json({"count": found})
    else:
        typer.echo(found)


@app.command()
def describe(workflow: Id, journal: Journal, run_id: RunId = None, as_json: AsJson = False) -> None:
    """Show all that is known of a run. Works on a closed journal too."""
    seen = _call(
        journal,
        lambda client: _handle(client, workflow, run_id).describe(),
        lambda reader: reader.describe(workflow, run_id),
    )
    if as_json:
        from .cluster.wire import summary_document  # noqa: PLC0415

        _print_json(summary_document(seen))
    else:
        print_description(seen)


@app.command()
def history(workflow: Id, journal: Journal, run_id: RunId = None, as_json: AsJson = False) -> None:
    """Show the events of a run. Works on a closed journal too."""
    found = _call(
        journal,
        lambda client: _handle(client, workflow, run_id).fetch_history(),
        lambda reader: reader.history(workflow, run_id),
    )
    if as_json:
        from .cluster.wire import history_rows  # noqa: PLC0415

        names = {"workflow_id": found.workflow_id, "run_id": found.run_id}
        _print_json({**names, "records": list(history_rows(found))})
    else:
        print_history(found)


@app.command()
def published(
    workflow: Id,
    journal: Journal,
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="Only this one.", show_default=False)
    ] = None,
    run_id: RunId = None,
) -> None:
    """Show what a run has published, as JSON, without running its code. Works on a closed journal too."""
    from .cluster.wire import value_of  # noqa: PLC0415

    found = _call(
        journal,
        lambda client: client.published(_handle(client, workflow, run_id)),
        lambda reader: {
            name: value_of(payload, f"value published as {name!r}")
            for name, payload in reader.published(workflow, run_id).items()
        },
    )
    if key is None:
        _print_json({"published": found})
    elif key in found:
        _print_json(found[key])
    else:
        known = ", ".join(found) or "nothing"
        raise _failed(ValueError(f"{workflow!r} has not published {key!r}; it has published: {known}"), 1)


@app.command()
def result(
    workflow: Id,
    journal: Journal,
    run_id: RunId = None,
    timeout: Seconds = None,
    as_json: AsJson = False,
) -> None:
    """Wait for a run and print its result as JSON; of a run that has ended also on a closed journal.

    The exit code is 1 when the run did not complete, and 4 when it has no result in time.
    """
    from .actors.errors import ResultTimeoutError  # noqa: PLC0415

    try:
        found = _call(
            journal,
            lambda client: _handle(client, workflow, run_id).result(timeout=timeout),
            lambda reader: _stored_result(reader, journal, workflow, run_id),
        )
    except ResultTimeoutError as error:
        raise _failed(error, NO_RESULT_YET) from None
    _print_json({"result": found} if as_json else found)


def _stored_result(reader: JournalReader, journal: Path, workflow: str, run_id: str | None) -> Any:
    from .cluster.errors import RuntimeUnreachableError  # noqa: PLC0415
    from .cluster.wire import value_of  # noqa: PLC0415

    status, payload = reader.result(workflow, run_id)
    if payload is None:
        raise RuntimeUnreachableError(
            str(journal), f"workflow {workflow!r} is {status} and has no result yet"
        )
    return value_of(payload, f"result of {workflow}")


# --- changing


@app.command()
def start(  # noqa: PLR0917  (typer takes options as parameters)
    workflow: Annotated[
        str, typer.Argument(metavar="WORKFLOW", help="The workflow type.", show_default=False)
    ],
    journal: Journal,
    args: Args = None,
    input_file: InputFiles = None,
    workflow_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The workflow id; default: a random one.")
    ] = None,
    if_running: Annotated[
        str, typer.Option(metavar="WORD", help="When the id is running: fail, attach or replace.")
    ] = "fail",
    if_closed: Annotated[
        str,
        typer.Option(metavar="WORD", help="When the id has ended: allow, allow_if_failed, refuse or attach."),
    ] = "allow",
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Start a workflow in the running program."""
    values = _values(args, input_file)
    options: dict[str, Any] = {"if_running": if_running, "if_closed": if_closed}
    if workflow_id is not None:
        options["id"] = workflow_id
    if request_id is not None:
        options["request_id"] = request_id
    handle = _call(journal, lambda client: client.spawn(workflow, *values, **options))
    if as_json:
        _print_json({"workflow_id": handle.workflow_id, "run_id": handle.run_id, "address": handle.address})
    else:
        _say(f"{handle.workflow_id!r} runs (run {handle.run_id})")


@app.command()
def signal(  # noqa: PLR0917
    workflow: Id,
    handler: Handler,
    journal: Journal,
    args: Args = None,
    input_file: InputFiles = None,
    run_id: RunId = None,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Send a signal to a run of the running program."""
    values = _values(args, input_file)
    _call(
        journal,
        lambda client: _handle(client, workflow, run_id).signal(handler, *values, request_id=request_id),
    )
    _done(f"{handler!r} was received by {workflow!r}", as_json=as_json)


@app.command()
def query(  # noqa: PLR0917
    workflow: Id,
    handler: Handler,
    journal: Journal,
    args: Args = None,
    input_file: InputFiles = None,
    run_id: RunId = None,
    timeout: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait.")] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Ask a query of a run of the running program, and print its answer as JSON."""
    values = _values(args, input_file)
    answer = _call(
        journal, lambda client: _handle(client, workflow, run_id).query(handler, *values, timeout=timeout)
    )
    _print_json({"result": answer} if as_json else answer)


@app.command()
def update(  # noqa: PLR0917
    workflow: Id,
    handler: Handler,
    journal: Journal,
    args: Args = None,
    input_file: InputFiles = None,
    run_id: RunId = None,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Send an update to a run of the running program, and print its answer as JSON."""
    values = _values(args, input_file)
    answer = _call(
        journal,
        lambda client: _handle(client, workflow, run_id).execute_update(
            handler, *values, request_id=request_id
        ),
    )
    _print_json({"result": answer} if as_json else answer)


@app.command()
def cancel(
    workflow: Id, journal: Journal, reason: Reason = "", run_id: RunId = None, as_json: AsJson = False
) -> None:
    """Ask a run of the running program to cancel itself."""
    _call(journal, lambda client: _handle(client, workflow, run_id).cancel(reason))
    _done(f"{workflow!r} was asked to cancel itself", as_json=as_json)


@app.command()
def terminate(
    workflow: Id, journal: Journal, reason: Reason = "", run_id: RunId = None, as_json: AsJson = False
) -> None:
    """End a run of the running program at once, without running its code again."""
    _call(journal, lambda client: _handle(client, workflow, run_id).terminate(reason))
    _done(f"{workflow!r} was terminated", as_json=as_json)


@app.command()
def pause(
    workflow: Id, journal: Journal, reason: Reason = "", run_id: RunId = None, as_json: AsJson = False
) -> None:
    """Let a run of the running program handle nothing more until it is resumed."""
    _call(journal, lambda client: _handle(client, workflow, run_id).pause(reason))
    _done(f"{workflow!r} is paused", as_json=as_json)


@app.command()
def resume(
    workflow: Id, journal: Journal, reason: Reason = "", run_id: RunId = None, as_json: AsJson = False
) -> None:
    """Let a paused run of the running program go on."""
    _call(journal, lambda client: _handle(client, workflow, run_id).resume(reason))
    _done(f"{workflow!r} goes on", as_json=as_json)


@app.command()
def release(
    workflow: Id, journal: Journal, reason: Reason = "", run_id: RunId = None, as_json: AsJson = False
) -> None:
    """Try a quarantined or held run of the running program again."""
    _call(journal, lambda client: _handle(client, workflow, run_id).release(reason))
    _done(f"{workflow!r} is tried again", as_json=as_json)


@app.command()
def redrive(
    workflow: Id,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="Of the event, as describe shows it.")],
    journal: Journal,
    run_id: RunId = None,
    as_json: AsJson = False,
) -> None:
    """Deliver a signal again whose handler has failed."""
    _call(journal, lambda client: _handle(client, workflow, run_id).redrive(number))
    _done(f"event {number} of {workflow!r} is delivered again", as_json=as_json)


# --- in and out


def _call(
    journal: Path,
    running: Callable[[JsonClient], Awaitable[T]],
    closed: Callable[[JournalReader], T] | None = None,
) -> T:
    """Call the program that has the journal open; if there is none, read the journal where that will do."""
    from .cluster.errors import RuntimeUnreachableError  # noqa: PLC0415
    from .cluster.json_client import JsonClient  # noqa: PLC0415

    async def call() -> T:
        async with await JsonClient.connect(f"unix:{journal}") as client:
            return await running(client)

    try:
        try:
            return asyncio.run(call())
        except RuntimeUnreachableError:
            if closed is None:
                raise
        from .actors.journal_reader import JournalReader  # noqa: PLC0415

        with JournalReader(journal) as reader:
            return closed(reader)
    except RuntimeUnreachableError as error:
        raise _failed(error, NOT_RUNNING) from None
    except (TypeError, ValueError, TimeoutError) as error:  # what the call or its arguments are refused with
        from .journal.errors import EveractError  # noqa: PLC0415

        if isinstance(error, EveractError):
            raise
        raise _failed(error, 1) from None


def _failed(error: Exception, code: int) -> typer.Exit:
    _say(f"everact: error: {error}", error=True)
    return typer.Exit(code)


def _handle(client: JsonClient, workflow: str, run_id: str | None) -> WorkflowHandle[Any, Any]:
    handle = client.ref(workflow)
    if run_id is not None:
        handle.run_id = run_id
    return handle


def _values(args: list[str] | None, files: list[Path] | None) -> list[Any]:
    """The arguments of a call as JSON texts, checked."""
    import msgspec  # noqa: PLC0415

    if args and files:
        raise typer.BadParameter("give the arguments in the command or in files, not in both")
    texts = [(text, text.encode("utf-8", "surrogateescape")) for text in args or ()]
    for file in files or ():
        try:
            data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        except OSError as error:
            raise typer.BadParameter(f"--input-file {file}: {error.strerror}") from None
        texts.append((f"--input-file {file}", data))
    for shown, data in texts:
        try:
            msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise typer.BadParameter(
                f"{shown[:100]!r} is no JSON ({error}); a text needs its quotes: '\"tea\"'"
            ) from None
    return [msgspec.Raw(data) for _, data in texts]


def _done(text: str, *, as_json: bool) -> None:
    if as_json:
        _print_json({})
    else:
        _say(text)
