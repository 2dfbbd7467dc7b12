"""How commands call the program that has a journal open, or read a closed journal; and how they end."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from .journal_commands import _print_json, _say

if TYPE_CHECKING:
    from .actors.handles import WorkflowHandle
    from .actors.journal_reader import JournalReader
    from .cluster.json_client import JsonClient

__all__ = [
    "NOT_RUNNING",
    "NO_ANSWER",
    "NO_RESULT_YET",
    "TIMEOUT",
    "Id",
    "Journal",
    "RequestId",
    "RunId",
    "Timeout",
    "call_program",
    "check_words",
    "done",
    "failed",
    "handle_of",
    "json_values",
    "time_to_answer",
]

#: Exit codes beside 0, 1 (an error, or a run that did not complete) and 2 (wrong usage).
NOT_RUNNING = 3
NO_RESULT_YET = 4
NO_ANSWER = 5
#: How long a program may take to answer, in seconds; and at least, where the limit is that of a result or a query.
TIMEOUT = 30.0
LEAST_TIMEOUT = 5.0

T = TypeVar("T")

Journal = Annotated[
    Path,
    typer.Option(
        "--journal", "-j", metavar="DIR", envvar="EVERACT_JOURNAL", help="The journal's directory.",
        show_default=False,
    ),
]  # fmt: skip
Id = Annotated[str, typer.Argument(metavar="ID", help="The workflow id.", show_default=False)]
RunId = Annotated[
    str | None, typer.Option(metavar="ID", help="This run; default: the newest one.", show_default=False)
]
RequestId = Annotated[
    str | None,
    typer.Option(metavar="ID", help="A repeat with the same one is applied once.", show_default=False),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long the program may take to answer."),
]


def call_program(
    journal: Path,
    running: Callable[[JsonClient], Awaitable[T]],
    closed: Callable[[JournalReader], T] | None = None,
    *,
    timeout: float = TIMEOUT,
    patient: bool = True,
) -> T:
    """Call the program that has the journal open; if there is none, read the journal where that will do.

    Args:
        journal: The journal's directory.
        running: What to ask of the program.
        closed: What to read instead.
        timeout: How long the program may take to answer, in seconds.
        patient: Wait as long for a program that goes away in the middle; else the journal is read at once.
    """
    from .cluster.errors import CallTimeoutError, RuntimeUnreachableError  # noqa: PLC0415
    from .cluster.json_client import JsonClient  # noqa: PLC0415

    class Telling(JsonClient):
        """Says on standard error when the program does not answer."""

        @staticmethod
        def _say(text: str) -> None:
            _say(f"everact: {text} (--timeout)", error=True)

    async def call() -> T:
        async with Telling.connect(f"unix:{journal}", timeout=timeout) as client:
            client._connection.is_patient = patient
            return await running(client)

    try:
        try:
            return asyncio.run(call())
        except RuntimeUnreachableError as error:
            if closed is None or error.repeat_with is not None:
                raise
        from .actors.journal_reader import JournalReader  # noqa: PLC0415

        with JournalReader(journal) as reader:
            return closed(reader)
    except CallTimeoutError as error:
        raise failed(f"{error.problem}. {_repeat(error.repeat_with)}", NO_ANSWER) from None
    except RuntimeUnreachableError as error:
        if error.repeat_with is None:
            raise failed(error, NOT_RUNNING) from None
        text = f"{error.problem}. {_repeat(error.repeat_with, ' when the program runs again')}"
        raise failed(text, NO_ANSWER) from None
    except (TypeError, ValueError, TimeoutError) as error:  # what the call or its arguments are refused with
        from .journal.errors import EveractError  # noqa: PLC0415

        if isinstance(error, EveractError):
            raise
        raise failed(error, 1) from None


def _repeat(repeat_with: Mapping[str, str] | None, when: str = "") -> str:
    """How a command without an answer is repeated."""
    if repeat_with is None:
        return "Nothing was changed: repeat the command, or give it more time with --timeout"
    options = " ".join(
        f"--{name.replace('_', '-')} {shlex.quote(value)}" for name, value in repeat_with.items()
    )
    once = f" with {options}: it is then done once" if options else ": it is done at most once"
    return f"Whether it was done is unknown; repeat the command{when}{once}"


def failed(error: Exception | str, code: int) -> typer.Exit:
    """Say what went wrong; the exit is to be raised."""
    _say(f"everact: error: {error}", error=True)
    return typer.Exit(code)


def handle_of(client: JsonClient, workflow: str, run_id: str | None) -> WorkflowHandle[Any, Any]:
    """The run that a command is about."""
    handle = client.ref(workflow)
    if run_id is not None:
        handle.run_id = run_id
    return handle


def json_values(args: list[str] | None, files: list[Path] | None = None) -> list[Any]:
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


def check_words(check: Callable[..., None], *words: Any) -> None:
    """Refuse words of options that a check refuses by the option's name, as wrong usage."""
    try:
        check(*words)
    except ValueError as error:
        name, _, says = str(error).partition(" ")
        raise typer.BadParameter(f"--{name.replace('_', '-')} {says}") from None


def time_to_answer(limit: float | None) -> float:
    """How long the program may take to answer where the command has a limit of another kind, in seconds."""
    return TIMEOUT if limit is None else min(TIMEOUT, max(LEAST_TIMEOUT, limit))


def done(text: str, *, as_json: bool) -> None:
    """Say that it is done."""
    if as_json:
        _print_json({})
    else:
        _say(text)
