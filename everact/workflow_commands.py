"""``everact list | start | signal | ...``: talk to the program that has a journal open, or read a closed journal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .command_calls import (
    LEAST_TIMEOUT,
    NO_RESULT_YET,
    TIMEOUT,
    Journal,
    RequestId,
    RunId,
    Timeout,
    call_program,
    done,
    failed,
    handle_of,
    json_values,
)
from .journal_commands import AsJson, _print_json, _say
from .workflow_texts import ListPrinter, print_description, print_history

if TYPE_CHECKING:
    from .actors.journal_reader import JournalReader
    from .cluster.json_client import JsonClient

__all__ = ["app"]

app = typer.Typer()

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
Type = Annotated[str | None, typer.Option("--type", metavar="NAME", help="Only this workflow type.")]
Status = Annotated[
    str | None,
    typer.Option(
        help="Only this status: running, paused, quarantined, held, completed, failed, cancelled, terminated, "
        "timed_out, continued_as_new."
    ),
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept in the history.")]
Seconds = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="How long to wait; default: no limit.")
]


# --- reading


@app.command(name="list")
def list_(  # noqa: PLR0917
    journal: Journal,
    workflow_type: Type = None,
    status: Status = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    next_page_token: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="Go on behind an earlier list, whose --json has it."),
    ] = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first, as they are read. Works on a closed journal too."""
    from .actors.listing import PAGE_SIZE  # noqa: PLC0415

    asked: dict[str, Any] = {"workflow_type": workflow_type, "status": status}
    printer = ListPrinter(limit, next_page_token, as_json=as_json)

    async def running(client: JsonClient) -> None:
        listing = client.list_workflows(
            **asked, limit=printer.left, page_size=PAGE_SIZE, next_page_token=printer.token
        )
        async for page in listing.pages():
            printer.page(page)

    def closed(reader: JournalReader) -> None:  # goes on where a program has gone away
        while not printer.is_over:
            size = min(printer.left, PAGE_SIZE)
            printer.page(reader.list_workflows(**asked, limit=size, next_page_token=printer.token))

    call_program(journal, running, closed, timeout=timeout, patient=False)
    printer.end()


@app.command()
def count(
    journal: Journal,
    workflow_type: Type = None,
    status: Status = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Count runs. Works on a closed journal too."""
    asked: dict[str, Any] = {"workflow_type": workflow_type, "status": status}
    found = call_program(
        journal,
        lambda client: client.count_workflows(**asked),
        lambda reader: reader.count_workflows(**asked),
        timeout=timeout,
        patient=False,
    )
    if as_json:
        _print_json({"count": found})
    else:
        typer.echo(found)


@app.command()
def describe(
    workflow: Id, journal: Journal, run_id: RunId = None, timeout: Timeout = TIMEOUT, as_json: AsJson = False
) -> None:
    """Show all that is known of a run. Works on a closed journal too."""
    seen = call_program(
        journal,
        lambda client: handle_of(client, workflow, run_id).describe(),
        lambda reader: reader.describe(workflow, run_id),
        timeout=timeout,
        patient=False,
    )
    if as_json:
        from .cluster.wire import summary_document  # noqa: PLC0415

        _print_json(summary_document(seen))
    else:
        print_description(seen)


@app.command()
def history(
    workflow: Id, journal: Journal, run_id: RunId = None, timeout: Timeout = TIMEOUT, as_json: AsJson = False
) -> None:
    """Show the events of a run. Works on a closed journal too."""
    found = call_program(
        journal,
        lambda client: handle_of(client, workflow, run_id).fetch_history(),
        lambda reader: reader.history(workflow, run_id),
        timeout=timeout,
        patient=False,
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
    timeout: Timeout = TIMEOUT,
) -> None:
    """Show what a run has published, as JSON, without running its code. Works on a closed journal too."""
    from .cluster.wire import value_of  # noqa: PLC0415

    found = call_program(
        journal,
        lambda client: client.published(handle_of(client, workflow, run_id)),
        lambda reader: {
            name: value_of(payload, f"value published as {name!r}")
            for name, payload in reader.published(workflow, run_id).items()
        },
        timeout=timeout,
        patient=False,
    )
    if key is None:
        _print_json({"published": found})
    elif key in found:
        _print_json(found[key])
    else:
        known = ", ".join(found) or "nothing"
        raise failed(f"{workflow!r} has not published {key!r}; it has published: {known}", 1)


@app.command()
def result(  # noqa: PLR0917
    workflow: Id,
    journal: Journal,
    run_id: RunId = None,
    timeout: Seconds = None,
    follow_runs: Annotated[
        bool, typer.Option(help="Wait for the last run, when another one follows; or for this one only.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Wait for a run and print its result as JSON; of a run that has ended also on a closed journal.

    The exit code is 1 when the run did not complete, and 4 when it has no result in time.
    """
    from .actors.errors import ResultTimeoutError  # noqa: PLC0415

    try:
        found = call_program(
            journal,
            lambda client: handle_of(client, workflow, run_id).result(
                timeout=timeout, follow_runs=follow_runs
            ),
            lambda reader: _stored_result(reader, journal, workflow, run_id, follow_runs=follow_runs),
            timeout=_to_answer(timeout),
        )
    except ResultTimeoutError as error:
        raise failed(error, NO_RESULT_YET) from None
    _print_json({"result": found} if as_json else found)


def _to_answer(limit: float | None) -> float:
    """How long the program may take to answer where the command has a limit of another kind, in seconds."""
    return TIMEOUT if limit is None else min(TIMEOUT, max(LEAST_TIMEOUT, limit))


def _stored_result(
    reader: JournalReader, journal: Path, workflow: str, run_id: str | None, *, follow_runs: bool
) -> Any:
    from .cluster.errors import RuntimeUnreachableError  # noqa: PLC0415
    from .cluster.wire import value_of  # noqa: PLC0415

    status, payload = reader.result(workflow, run_id, follow_runs=follow_runs)
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
    run_timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long a run may take.", show_default=False)
    ] = None,
    execution_timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="How long all its runs may take.", show_default=False),
    ] = None,
    start_delay: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Begin so much later.", show_default=False)
    ] = None,
    cron: Annotated[
        str | None,
        typer.Option(metavar="FIELDS", help="When runs begin: '0 6 * * mon-fri'.", show_default=False),
    ] = None,
    time_zone: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of --cron: Europe/Berlin.", show_default=False)
    ] = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Start a workflow in the running program."""
    values = json_values(args, input_file)
    options: dict[str, Any] = {"if_running": if_running, "if_closed": if_closed}
    times = {
        "run_timeout": run_timeout,
        "execution_timeout": execution_timeout,
        "start_delay": start_delay,
        "cron_schedule": cron,
        "time_zone": time_zone,
    }
    options |= {name: value for name, value in times.items() if value is not None}
    if workflow_id is not None:
        options["id"] = workflow_id
    if request_id is not None:
        options["request_id"] = request_id
    handle = call_program(journal, lambda client: client.spawn(workflow, *values, **options), timeout=timeout)
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
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Send a signal to a run of the running program."""
    values = json_values(args, input_file)
    call_program(
        journal,
        lambda client: handle_of(client, workflow, run_id).signal(handler, *values, request_id=request_id),
        timeout=timeout,
    )
    done(f"{handler!r} was received by {workflow!r}", as_json=as_json)


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
    values = json_values(args, input_file)
    answer = call_program(
        journal,
        lambda client: handle_of(client, workflow, run_id).query(handler, *values, timeout=timeout),
        timeout=_to_answer(timeout),
    )
    _print_json({"result": answer} if as_json else answer)


@app.command()
def update(  # noqa: PLR0917
    workflow: Id,
    handler: Handler,
    journal: Journal,
    args: Args = None,
    input_file: InputFiles = None,
    wait_for_stage: Annotated[
        str,
        typer.Option(metavar="STAGE", help="completed: print the answer; accepted: do not wait for it."),
    ] = "completed",
    run_id: RunId = None,
    request_id: RequestId = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Send an update to a run of the running program, and print its answer as JSON.

    With --wait-for-stage accepted the request id is printed: the same command with it and without that option waits
    for the answer.
    """
    from .actors.updates import check_stage  # noqa: PLC0415

    try:
        check_stage(wait_for_stage)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    values = json_values(args, input_file)
    if wait_for_stage == "accepted":
        started = call_program(
            journal,
            lambda client: handle_of(client, workflow, run_id).start_update(
                handler, *values, request_id=request_id
            ),
            timeout=timeout,
        )
        if as_json:
            names = {"run_id": started.run_id, "request_id": started.request_id}
            _print_json({"accepted": True, **names})
        else:
            _say(f"{handler!r} was accepted by {workflow!r} (request id {started.request_id})")
        return
    answer = call_program(
        journal,
        lambda client: handle_of(client, workflow, run_id).execute_update(
            handler, *values, request_id=request_id
        ),
        timeout=timeout,
    )
    _print_json({"result": answer} if as_json else answer)


@app.command()
def cancel(  # noqa: PLR0917
    workflow: Id,
    journal: Journal,
    reason: Reason = "",
    run_id: RunId = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Ask a run of the running program to cancel itself."""
    call_program(journal, lambda client: handle_of(client, workflow, run_id).cancel(reason), timeout=timeout)
    done(f"{workflow!r} was asked to cancel itself", as_json=as_json)


@app.command()
def terminate(  # noqa: PLR0917
    workflow: Id,
    journal: Journal,
    reason: Reason = "",
    run_id: RunId = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """End a run of the running program at once, without running its code again."""
    call_program(
        journal, lambda client: handle_of(client, workflow, run_id).terminate(reason), timeout=timeout
    )
    done(f"{workflow!r} was terminated", as_json=as_json)


@app.command()
def pause(  # noqa: PLR0917
    workflow: Id,
    journal: Journal,
    reason: Reason = "",
    run_id: RunId = None,
    request_id: RequestId = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Let a run of the running program handle nothing more until it is resumed."""
    call_program(
        journal,
        lambda client: handle_of(client, workflow, run_id).pause(reason, request_id=request_id),
        timeout=timeout,
    )
    done(f"{workflow!r} is paused", as_json=as_json)


@app.command()
def resume(  # noqa: PLR0917
    workflow: Id,
    journal: Journal,
    reason: Reason = "",
    run_id: RunId = None,
    request_id: RequestId = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Let a paused run of the running program go on."""
    call_program(
        journal,
        lambda client: handle_of(client, workflow, run_id).resume(reason, request_id=request_id),
        timeout=timeout,
    )
    done(f"{workflow!r} goes on", as_json=as_json)


@app.command()
def release(  # noqa: PLR0917
    workflow: Id,
    journal: Journal,
    reason: Reason = "",
    run_id: RunId = None,
    request_id: RequestId = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Try a quarantined or held run of the running program again."""
    call_program(
        journal,
        lambda client: handle_of(client, workflow, run_id).release(reason, request_id=request_id),
        timeout=timeout,
    )
    done(f"{workflow!r} is tried again", as_json=as_json)


@app.command()
def redrive(  # noqa: PLR0917
    workflow: Id,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="Of the event, as describe shows it.")],
    journal: Journal,
    run_id: RunId = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Deliver a signal again whose handler has failed."""
    call_program(journal, lambda client: handle_of(client, workflow, run_id).redrive(number), timeout=timeout)
    done(f"event {number} of {workflow!r} is delivered again", as_json=as_json)
