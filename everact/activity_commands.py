"""``everact activity complete | fail | report-cancelled | heartbeat``: complete attempts from outside the program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .command_calls import TIMEOUT, Journal, Timeout, call_program, done, json_values
from .journal_commands import AsJson

if TYPE_CHECKING:
    from .actors.activity_handles import AsyncActivityHandle

__all__ = ["app"]

app = typer.Typer(
    name="activity", help="Complete activities from outside, by their task tokens.", no_args_is_help=True
)

Token = Annotated[
    str | None,
    typer.Option("--token", metavar="TOKEN", help="activity.info().task_token.", show_default=False),
]
OfWorkflow = Annotated[
    str | None,
    typer.Option(
        "--workflow-id", metavar="ID", help="Instead of the token: the workflow that called the activity,",
        show_default=False,
    ),
]  # fmt: skip
Command = Annotated[
    int | None,
    typer.Option("--command", min=1, metavar="N", help="and the number of the call.", show_default=False),
]
OfRun = Annotated[
    str | None,
    typer.Option("--run-id", metavar="ID", help="This run of it; default: the newest.", show_default=False),
]
Details = Annotated[
    list[str] | None,
    typer.Option(metavar="JSON", help="A detail as JSON; again for the next one.", show_default=False),
]


@app.command()
def complete(  # noqa: PLR0917  (typer takes options as parameters)
    journal: Journal,
    result: Annotated[
        str, typer.Option(metavar="JSON", help="The activity's result as JSON.", show_default=False)
    ],
    token: Token = None,
    workflow_id: OfWorkflow = None,
    command: Command = None,
    run_id: OfRun = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Say that an activity has a result."""
    (value,) = json_values([result])
    _act(
        journal, (token, workflow_id, command, run_id), lambda handle: handle.complete(value), timeout=timeout
    )
    done("the activity is completed", as_json=as_json)


@app.command()
def fail(  # noqa: PLR0917
    journal: Journal,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The message of the failure.", show_default=False)
    ],
    error_type: Annotated[
        str, typer.Option("--type", metavar="NAME", help="Its type, as retry policies name it.")
    ] = "ApplicationError",
    non_retryable: Annotated[
        bool, typer.Option("--non-retryable", help="There is to be no other attempt.")
    ] = False,
    detail: Details = None,
    token: Token = None,
    workflow_id: OfWorkflow = None,
    command: Command = None,
    run_id: OfRun = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Say that an attempt of an activity has failed; its retry policy decides whether there is another one."""
    from .actors.errors import ApplicationError  # noqa: PLC0415
    from .cluster.wire import payload_of  # noqa: PLC0415
    from .journal.payloads import PayloadConverter  # noqa: PLC0415

    details = [PayloadConverter().decode(payload_of(value)) for value in json_values(detail)]
    error = ApplicationError(reason, *details, type=error_type, non_retryable=non_retryable)
    _act(journal, (token, workflow_id, command, run_id), lambda handle: handle.fail(error), timeout=timeout)
    done("the attempt has failed", as_json=as_json)


@app.command()
def report_cancelled(  # noqa: PLR0917
    journal: Journal,
    token: Token = None,
    workflow_id: OfWorkflow = None,
    command: Command = None,
    run_id: OfRun = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Say that an activity has stopped without a result."""
    _act(
        journal,
        (token, workflow_id, command, run_id),
        lambda handle: handle.report_cancelled(),
        timeout=timeout,
    )
    done("the activity is cancelled", as_json=as_json)


@app.command()
def heartbeat(  # noqa: PLR0917
    journal: Journal,
    detail: Details = None,
    token: Token = None,
    workflow_id: OfWorkflow = None,
    command: Command = None,
    run_id: OfRun = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Say that an activity is alive, and how far it has come. The exit code is 1 when it is to stop."""
    values = json_values(detail)
    _act(
        journal,
        (token, workflow_id, command, run_id),
        lambda handle: handle.heartbeat(*values),
        timeout=timeout,
    )
    done("the activity is alive", as_json=as_json)


def _act(
    journal: Path,
    names: tuple[str | None, str | None, int | None, str | None],
    act: Callable[[AsyncActivityHandle], Awaitable[None]],
    *,
    timeout: float,
) -> None:
    """Do something about the attempt that is meant."""
    token, workflow_id, command, run_id = names
    if (token is None) == (workflow_id is None or command is None) or (
        token is not None and (workflow_id, command, run_id) != (None, None, None)
    ):
        raise typer.BadParameter("give --token, or --workflow-id and --command")
    given: dict[str, Any] = {"workflow_id": workflow_id, "command": command, "run_id": run_id}
    tokens = [] if token is None else [token]

    async def call(client: Any) -> None:
        await act(client.activity_handle(*tokens, **({} if tokens else given)))

    call_program(journal, call, timeout=timeout)
