"""A client's way to the program that has a journal open: HTTP by the socket beside it, repeated while it restarts.

Every call may be sent twice: reading calls change nothing, and those that change something carry a request id or name
the run that they are for. So a call goes on when the program is restarted in the middle of it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from .._version import __version__
from ..actors.context import running_instance
from ..actors.errors import RuntimeClosedError
from ..actors.event_loop import ForbiddenInWorkflowError
from ..journal.left_socket import SOCKET_FILE
from ..journal.lmdb_lock import owner_of
from ..journal.payloads import PayloadConverter
from .door import socket_path
from .errors import NO_DIRECTORY, CallRefusedError, CallTimeoutError, RuntimeUnreachableError
from .silence import SilenceWatch
from .wire import Raw, error_from, from_json, to_json

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger("everact.client")

T = TypeVar("T")

#: Pause before a call is sent again, the first and the longest, in seconds.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
#: Connections for calls that are answered soon, and for those that wait for a run.
QUICK = 16
WAITING = 64
#: How long one request waits for a run before it is sent again, in seconds; among many that wait for connections the
#: square of their share of it, but at least the second.
WAIT = 20.0
LEAST_WAIT = 0.25


class _About(msgspec.Struct):
    """What a program says of itself."""

    name: str
    version: str


class Connection:
    """Sends calls to the program that has a journal open; belongs to one event loop.

    Attributes:
        is_patient: A program that goes away is waited for; not by who can do without one.
        is_closed: It is not to be used any more.

    Args:
        journal: Directory of the journal.
        timeout: How long a call may take beyond what it waits for a run, a restart of the program included, in seconds.
        converter: Reads the details of errors.
        say: Called with a text when the program does not answer; default: a warning on ``everact.client``.
    """

    def __init__(
        self,
        journal: str,
        timeout: float,
        converter: PayloadConverter,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.journal = str(Path(journal).absolute())
        self._timeout = timeout
        self._converter = converter
        self._loop = asyncio.get_running_loop()
        self._resources = ExitStack()
        self._sessions: tuple[aiohttp.ClientSession, aiohttp.ClientSession] | None = None
        self._waiting = 0
        self._slots = asyncio.Semaphore(WAITING)
        self._silence = SilenceWatch(
            self.journal, timeout, self._probe, partial(_reason, self.journal), say or log.warning
        )
        self._version = ""
        self.is_patient = True
        self.is_closed = False

    def _session(self, *, waits: bool) -> aiohttp.ClientSession:
        """The session for quick calls, or the one for those that wait; each has its own connections."""
        if self._sessions is None:
            import aiohttp  # noqa: PLC0415  (a program without clients never loads it)

            try:
                path = self._resources.enter_context(socket_path(self.journal))
            except OSError as error:
                raise self._unreachable(error) from error
            self._sessions = (
                aiohttp.ClientSession(connector=aiohttp.UnixConnector(path, limit=QUICK)),
                aiohttp.ClientSession(connector=aiohttp.UnixConnector(path, limit=0)),
            )
        return self._sessions[waits]

    async def close(self) -> None:
        """Let go of the sockets."""
        self.is_closed = True
        sessions, self._sessions = self._sessions, None
        for session in sessions or ():
            await session.close()
        self._resources.close()

    async def call(
        self,
        method: str,
        *path: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
        wait: float = 0.0,
        waits: bool = False,
        again: bool = True,
        sending: Callable[[], None] | None = None,
        repeat: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send a call until it is answered.

        Args:
            method: Of HTTP.
            *path: Parts of the path behind ``/v1``; quoted here.
            query: Parameters; those that are None are left out.
            body: What becomes JSON.
            wait: How long the program may take before it answers, in seconds.
            waits: Whether it waits for a run, which takes a connection of its own.
            again: Whether to wait for a program that does not listen; it may be starting.
            sending: Called each time before it is sent.
            repeat: By which arguments a repeat of the call is known as one, for callers; None: it only reads.

        Returns:
            The JSON of the answer.

        Raises:
            RuntimeUnreachableError: Nobody listens.
            CallTimeoutError: There was no answer in time.
            CallRefusedError: The program does not know the call.
            RuntimeError: The client was closed, or belongs to another event loop.
            ForbiddenInWorkflowError: It is used by workflow code.
            Exception: What the runtime has raised.
        """
        import aiohttp  # noqa: PLC0415

        if running_instance() is not None:
            raise ForbiddenInWorkflowError("a Client or one of its handles", "use it in an async activity")
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise RuntimeError(
                "this Client belongs to another event loop: connect one in each loop, or use everact.blocking"
            )
        url = self._url(path, query)
        data = None if body is None else to_json(body)
        end = loop.time() + self._timeout
        pause = FIRST_PAUSE
        was_taken = False
        while True:
            if self.is_closed:
                raise RuntimeError("this Client is closed: connect another one")
            left = max(0.0, end - loop.time())
            limit = aiohttp.ClientTimeout(total=wait + max(left, pause))
            try:
                session = self._session(waits=waits)
                if sending is not None:
                    sending()
                with self._silence.waiting(waits=waits):
                    async with session.request(method, url, data=data, timeout=limit) as response:
                        answer = await response.read()
            except TimeoutError:
                name = f"{method} {'/'.join(['/v1', *path])}"
                raise CallTimeoutError(
                    self.journal, name, self._timeout + wait, self._silence.holder, repeat
                ) from None
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
                was_taken = was_taken or not isinstance(error, aiohttp.ClientConnectorError)
                trouble: Exception = error
            except aiohttp.ClientError as error:
                raise self.unknown(f"it speaks no proper HTTP: {type(error).__name__}") from error
            else:
                if response.status < 400:
                    return answer
                trouble = self._error(response.status, answer)
                if not _will_pass(response.status, trouble):
                    raise trouble
                was_taken = was_taken or isinstance(trouble, RuntimeClosedError)
            if not (again and self.is_patient) or loop.time() + pause >= end:
                raise self._unreachable(trouble, repeat if was_taken else None) from trouble
            self._silence.is_gone(trouble)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)

    async def connect(self) -> str:
        """Call for the first time; returns the name of the runtime.

        Raises:
            RuntimeUnreachableError: Nobody listens.
            CallTimeoutError: There was no answer in time.
            CallRefusedError: What listens there is no Everact.
        """
        about = self.read(await self.call("GET", again=False), _About)
        self._version = about.version
        return about.name

    def read(self, answer: bytes, kind: type[T]) -> T:
        """An answer of this form.

        Raises:
            CallRefusedError: It is of another one: the program has another version, or is none of ours.
        """
        try:
            return msgspec.json.decode(answer, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self.unknown(str(error)) from None

    def part(self, answer: Mapping[str, Raw], name: str) -> Raw:
        """A field of an answer; errors as of ``read``."""
        if name not in answer:
            raise self.unknown(f"Object missing required field `{name}`")
        return answer[name]

    def unknown(self, why: str) -> CallRefusedError:
        """The error for an answer of an unknown form."""
        who = f"the program, Everact {self._version}," if self._version else "what listens there"
        return CallRefusedError(
            f"at the socket of the journal {self.journal!r} {who} answered in a form that this Everact {__version__} "
            f"does not know ({why}): use one version on both sides"
        )

    async def _probe(self) -> None:
        """Ask for a sign of life, as long as it takes."""
        import aiohttp  # noqa: PLC0415

        limit = aiohttp.ClientTimeout(total=None)
        async with self._session(waits=True).get(self._url((), None), timeout=limit) as response:
            await response.read()

    async def wait_for(
        self,
        method: str,
        *path: str,
        query: Mapping[str, object],
        body: Mapping[str, object] | None = None,
        limit: float | None = None,
        key: str = "done",
        repeat: Mapping[str, str] | None = None,
    ) -> dict[str, Raw]:
        """Send a call that waits for a run, again and again, until it is done or ``limit`` seconds have passed.

        Returns:
            The answer, whose ``key`` is JSON's true or false.
        """
        loop = asyncio.get_running_loop()
        end = None if limit is None else loop.time() + limit
        self._waiting += 1
        try:
            while True:
                async with self._slots:
                    wait = max(LEAST_WAIT, WAIT / max(1.0, self._waiting / WAITING) ** 2)
                    if end is not None:
                        wait = max(0.0, min(wait, end - loop.time()))
                    if body is None:
                        query = {**query, "wait": wait}
                    else:
                        body = {**body, "wait": wait}
                    data = await self.call(
                        method, *path, query=query, body=body, wait=wait, waits=True, repeat=repeat
                    )
                answer = self.read(data, dict[str, Raw])
                if is_true(self.part(answer, key)) or (end is not None and loop.time() >= end):
                    return answer
                if "run_id" in answer:  # of an id that is used again the same run is asked for
                    query = {**query, "run_id": from_json(answer["run_id"])}
        finally:
            self._waiting -= 1

    @staticmethod
    def _url(path: tuple[str, ...], query: Mapping[str, object] | None) -> Any:
        from yarl import URL  # noqa: PLC0415

        given = {name: value for name, value in (query or {}).items() if value is not None}
        text = "/".join(["http://everact/v1", *(quote(part, safe="") for part in path)])
        return URL(f"{text}?{urlencode(given, quote_via=quote)}" if given else text, encoded=True)

    def _error(self, status: int, answer: bytes) -> Exception:
        try:
            document = from_json(answer)["error"]
        except (msgspec.MsgspecError, KeyError, TypeError, UnicodeDecodeError):
            text = answer[:200].decode("utf-8", "replace")
            return CallRefusedError(f"the program answered with status {status}: {text}")
        error = error_from(document, self._converter)
        if type(error) is CallRefusedError and self._version not in ("", __version__):
            return CallRefusedError(
                f"{error}. The program runs Everact {self._version} and this is {__version__}: use one version"
            )
        return error

    def _unreachable(
        self, trouble: BaseException, repeat: Mapping[str, str] | None = None
    ) -> RuntimeUnreachableError:
        return RuntimeUnreachableError(self.journal, _reason(self.journal, trouble), repeat)


def _will_pass(status: int, error: Exception) -> bool:
    """Whether a refusal has nothing to do with the call: the program is being left, or is crowded."""
    return isinstance(error, RuntimeClosedError) or (status == 503 and isinstance(error, CallRefusedError))


def is_true(value: Raw) -> bool:
    """Whether a value is JSON's true."""
    return bytes(value) == b"true"


def _reason(journal: str, trouble: BaseException) -> str:
    """Why nobody could be reached, in words."""
    place = Path(journal, SOCKET_FILE)
    cause = getattr(trouble, "os_error", trouble)  # aiohttp's errors hold the system's
    try:
        if not Path(journal).is_dir():
            return NO_DIRECTORY
    except OSError as error:  # no right to look, a name that is too long
        return f"it cannot be found ({error.strerror})"
    try:
        if isinstance(cause, PermissionError):
            owner = place.stat().st_uid if os.access(journal, os.X_OK) else Path(journal).stat().st_uid
            return f"its socket is for user {owner} only, and this is user {os.getuid()}"
        owner_pid = owner_of(journal)
        if owner_pid is not None and not place.exists():
            return f"process {owner_pid} has it open without a door (Runtime(door=False), or a tool)"
    except OSError:
        pass
    if isinstance(trouble, RuntimeClosedError):
        return "the program is leaving its Runtime"
    if isinstance(trouble, CallRefusedError):
        return str(trouble)
    if not place.exists():
        return f"there is no socket {SOCKET_FILE!r} in it"
    return f"nobody listens at its socket {SOCKET_FILE!r} ({getattr(cause, 'strerror', None) or cause})"
