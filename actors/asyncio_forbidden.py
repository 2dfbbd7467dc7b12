"""What workflow code may not call on its event loop, and what to call instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..journal.errors import EveractError

_ACTIVITY = "do it in an activity and call workflow.execute_activity()"
_THREADS = "workflow code runs on one thread; a signal (handle.signal()) brings values in from outside"
_OWNER = "the runtime runs and ends a workflow's loop; return from the run method to end the workflow"
_GENERATORS = "close a generator with 'async with contextlib.aclosing(...)'"

_ADVICE = {
    "run_forever": _OWNER,
    "run_until_complete": "await the coroutine, or start it with asyncio.create_task()",
    "stop": _OWNER,
    "close": _OWNER,
    "shutdown_asyncgens": _GENERATORS,
    "shutdown_default_executor": "a workflow's loop has no executor",
    "set_default_executor": "a workflow's loop has no executor; " + _ACTIVITY,
    "call_soon_threadsafe": _THREADS,
    "add_signal_handler": "handle process signals in the program that owns the Runtime",
    "remove_signal_handler": "handle process signals in the program that owns the Runtime",
}
_INPUT_OUTPUT = """
    getaddrinfo getnameinfo create_connection create_server create_unix_connection create_unix_server
    connect_accepted_socket create_datagram_endpoint start_tls sendfile connect_read_pipe connect_write_pipe
    subprocess_shell subprocess_exec add_reader remove_reader add_writer remove_writer sock_recv
    sock_recv_into sock_recvfrom sock_recvfrom_into sock_sendall sock_sendto sock_connect sock_accept
    sock_sendfile
"""
_SPELLINGS = {
    "run_in_executor": "loop.run_in_executor (asyncio.to_thread)",
    "create_connection": "loop.create_connection (asyncio.open_connection)",
    "create_server": "loop.create_server (asyncio.start_server)",
    "subprocess_exec": "loop.subprocess_exec (asyncio.create_subprocess_exec)",
    "subprocess_shell": "loop.subprocess_shell (asyncio.create_subprocess_shell)",
}


class ForbiddenInWorkflowError(EveractError, RuntimeError):
    """Workflow code, a query or a validator called what would make replay differ; nothing was done.

    Attributes:
        call: What was called.
        advice: What to do instead.
    """

    def __init__(self, call: str, advice: str) -> None:
        super().__init__(call, advice)
        self.call = call
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.call} is not available in workflow code: {self.advice}"


class ReadOnlyError(ForbiddenInWorkflowError):
    """A query or a validator tried to start something; nothing was done."""

    def __str__(self) -> str:
        return f"queries and validators may not call {self.call}: {self.advice}"


def read_only(call: str) -> ReadOnlyError:
    """The error for ``call`` inside a query or a validator."""
    return ReadOnlyError(call, "they only read the workflow's state; use a signal or an update to act")


def _refusal(name: str, advice: str) -> Callable[..., NoReturn]:
    call = _SPELLINGS.get(name, f"loop.{name}")

    def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise ForbiddenInWorkflowError(call, advice)

    refuse.__name__ = name
    refuse.__qualname__ = f"WorkflowLoop.{name}"
    refuse.__doc__ = f"Refused in workflow code: {advice}."
    return refuse


def refusals() -> dict[str, Callable[..., NoReturn]]:
    """The event loop methods that raise ForbiddenInWorkflowError, by name."""
    advice = dict.fromkeys(_INPUT_OUTPUT.split(), _ACTIVITY) | _ADVICE
    advice["run_in_executor"] = "put the blocking call in an activity and call workflow.execute_activity()"
    return {name: _refusal(name, text) for name, text in advice.items()}
