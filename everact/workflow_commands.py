"""``everact start | signal | query | ...``: start runs in the program that has a journal open, and talk to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .command_calls import (
    TIMEOUT,
    Id,
    Journal,
    RequestId,
    RunId,
    Timeout,
    call_program,
    check_words,
    done,
    failed,
    handle_of,
    json_values,
    time_to_answer,
)
from .journal_commands import AsJson, _print_json, _say

if TYPE_CHECKING:
    from .cluster.json_client import JsonClient

__all__ = ["app"]

app = typer.Typer()

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
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept in the history.")]


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
    retry_policy: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help='When a failed run is followed by another one: \'{"maximum_attempts": 3, "initial_interval": 10}\'.',
            show_default=False,
        ),
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
    from .actors.call_errors import WorkflowAlreadyStartedError  # noqa: PLC0415  (loads only what it needs)
    from .actors.start_policies import check  # noqa: PLC0415

    check_words(check, if_running, if_closed)
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
    if retry_policy is not None:
        options["retry_policy"] = _retry_policy(retry_policy)
    if workflow_id is not None:
        options["id"] = workflow_id
    if request_id is not None:
        options["request_id"] = request_id
    try:
        handle = call_program(
            journal, lambda client: client.spawn(workflow, *values, **options), timeout=timeout
        )
    except WorkflowAlreadyStartedError as error:
        name, words = error.choices()
        option = f"--{name.replace('_', '-')}"
        raise failed(f"{error.problem(option)} Other choices: {option} {' | '.join(words)}.", 1) from None
    if as_json:
        _print_json({"workflow_id": handle.workflow_id, "run_id": handle.run_id, "address": handle.address})
    else:
        _say(f"{handle.workflow_id!r} runs (run {handle.run_id})")


def _retry_policy(text: str) -> Any:
    """The policy that an option has as JSON."""
    import msgspec  # noqa: PLC0415

    from .actors.start_options import travelled_options  # noqa: PLC0415

    (value,) = json_values([text])
    try:
        return travelled_options({"retry_policy": msgspec.json.decode(value)})["retry_policy"]
    except (TypeError, ValueError) as error:
        raise typer.BadParameter(f"--retry-policy: {error}") from None


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
        timeout=time_to_answer(timeout),
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

    async def ask(client: JsonClient) -> str:
        handle = handle_of(client, workflow, run_id)
        status = (await handle.describe()).status
        await handle.release(reason, request_id=request_id)
        return status

    status = call_program(journal, ask, timeout=timeout)
    was_running = status == "running"
    says = "is running: there was nothing to release" if was_running else "is tried again"
    done(f"{workflow!r} {says}", as_json=as_json)


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
