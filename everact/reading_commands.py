"""``everact list | describe | result | ...``: look at runs, also on a closed journal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .command_calls import (
    NO_RESULT_YET,
    TIMEOUT,
    Id,
    Journal,
    RunId,
    Timeout,
    call_program,
    check_words,
    failed,
    handle_of,
    time_to_answer,
)
from .journal_commands import AsJson, _print_json
from .workflow_texts import ListPrinter, print_description, print_history

if TYPE_CHECKING:
    from .actors.journal_reader import JournalReader
    from .cluster.json_client import JsonClient

__all__ = ["app"]

app = typer.Typer()

Type = Annotated[str | None, typer.Option("--type", metavar="NAME", help="Only this workflow type.")]
Status = Annotated[
    str | None,
    typer.Option(
        help="Only this status: running, paused, quarantined, held, completed, failed, cancelled, terminated, "
        "timed_out, continued_as_new."
    ),
]
Seconds = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="How long to wait; default: no limit.")
]


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
    from .actors.options import check_status  # noqa: PLC0415

    check_words(check_status, status)
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
    from .actors.options import check_status  # noqa: PLC0415

    check_words(check_status, status)
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
            timeout=time_to_answer(timeout),
        )
    except ResultTimeoutError as error:
        raise failed(error, NO_RESULT_YET) from None
    _print_json({"result": found} if as_json else found)


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
