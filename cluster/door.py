"""The door of a running journal: a unix socket beside it, by which other processes of this user talk to its runtime.

The socket listens as soon as the runtime is entered, but the HTTP server behind it is loaded when the first client
comes: a program that nobody calls pays for one descriptor. Whoever has the lock of the journal owns the socket's name,
so what an earlier owner has left there is replaced.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ..actors.doors import NO_DOOR, Door
from ..actors.runtime import Runtime
from ..journal.left_socket import SOCKET_FILE

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger("everact.runtime")

#: Longest path of a unix socket in bytes; longer ones go by a descriptor of their directory.
LONGEST_PATH = 100
#: How long leaving waits for answers that are on their way, in seconds.
LAST_ANSWERS = 1.0
#: Connections at a time, if the process may have twice as many files.
MOST_CONNECTIONS = 1000
#: Where the system shows a process its descriptors as paths.
PROC = "/proc/self/fd"
_BACKLOG = 128
#: In a forked child: both ends of a connection to itself, held for ever.
_nothing: list[socket.socket] = []


class SocketDoor(Door):
    """The open door of one runtime; belongs to its event loop."""

    def __init__(self, runtime: Runtime, directory: str) -> None:
        """Begin to listen.

        Raises:
            OSError: The socket cannot be made; there is no door then.
            NotImplementedError: The event loop cannot watch it.
        """
        self._runtime = runtime
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._http: web.Server | None = None
        self._most = min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._socket = _listen(directory)
        self._serving: asyncio.Task[None] | None = None
        try:
            self._inode = Path(directory, SOCKET_FILE).lstat().st_ino
            self._loop.add_reader(self._socket, self._first_client)
        except BaseException:
            self._socket.close()
            raise

    def _first_client(self) -> None:
        self._loop.remove_reader(self._socket)
        self._serving = self._loop.create_task(self._serve(), name="everact door")

    async def _serve(self) -> None:
        try:
            make = (await asyncio.to_thread(import_module, ".unix_server", __package__)).unix_server
            http: web.Server = make(self._runtime, self._most)
            self._http = http
            self._server = await self._loop.create_unix_server(http, sock=self._socket)
        except Exception:
            log.exception("the door of the journal %r is shut", self._directory)
            self._unlink()
            self._socket.close()

    async def close(self) -> None:
        """Let the last answers go, then shut the door."""
        self._unlink()
        if self._serving is None:
            self._loop.remove_reader(self._socket)
        else:
            await self._serving
        if self._server is not None:
            # Without its name nobody new comes. Who is there already is let in first: a connection that asyncio has
            # accepted, and not told of when the server is closed, stays open.
            for _ in range(4):
                await asyncio.sleep(0)
            self._server.close()
        if self._http is not None:
            self._http.pre_shutdown()  # those that ask nothing go at once
            await self._http.shutdown(LAST_ANSWERS)
        self._socket.close()

    def forsake(self) -> None:
        """In a forked child: let go of what would keep the parent's clients waiting after its end."""
        fds = [self._socket.fileno()]
        if self._http is not None:
            for connection in self._http.connections:
                transport = connection.transport
                peer = None if transport is None else transport.get_extra_info("socket")
                fds.append(-1 if peer is None else peer.fileno())
        # Their numbers stay taken, by what never has anything to say: the inherited loop watches them.
        _nothing.extend(socket.socketpair())
        for fd in fds:
            if fd >= 0:
                os.dup2(_nothing[0].fileno(), fd, inheritable=False)

    def _unlink(self) -> None:
        with suppress(OSError):
            place = Path(self._directory, SOCKET_FILE)
            if place.lstat().st_ino == self._inode:
                place.unlink()


def open_door(runtime: Runtime, directory: str) -> Door:
    """Let other processes in; where the socket cannot be made the runtime goes on without, and says so."""
    try:
        return SocketDoor(runtime, directory)
    except (OSError, NotImplementedError) as error:
        log.warning(
            "the journal %r has no door, other processes cannot reach this Runtime: %s",
            directory,
            error or repr(error),
        )
        return NO_DOOR


def _listen(directory: str) -> socket.socket:
    place = Path(directory, SOCKET_FILE)
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(place.lstat().st_mode):
            raise FileExistsError(f"{str(place)!r} is no socket; move it away")
        place.unlink()  # its owner is dead: the lock of the journal is ours
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.setblocking(False)
        with socket_path(directory) as path:
            found.bind(path)
        place.chmod(0o600)
        found.listen(_BACKLOG)  # only now can anybody connect
    except BaseException:
        found.close()
        raise
    return found


@contextmanager
def socket_path(directory: str) -> Generator[str]:
    """The path of the socket of a journal for ``bind`` and ``connect``, which take short ones only.

    Raises:
        OSError: It is too long, and there is no way around that here.
    """
    path = str(Path(directory, SOCKET_FILE))
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield path
        return
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        short = f"{PROC}/{fd}"
        if not Path(short).exists():
            raise OSError(f"the path {path!r} is too long for a unix socket: give the journal a shorter one")
        yield f"{short}/{SOCKET_FILE}"
    finally:
        os.close(fd)
