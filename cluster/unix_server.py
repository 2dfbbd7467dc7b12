"""The HTTP server behind the door of a journal; apart, as the door loads it for the first client only."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from typing import Any

from aiohttp import web

from ..actors.runtime import Runtime
from .api import Api
from .calls import refusal

#: How long a connection without a call is kept, in seconds.
KEEP_ALIVE = 75.0
#: Connections beyond those that are served: on these every call is refused in words; further ones are cut.
SPARE = 24
#: Longest first line of a request: a workflow id of 1,000 bytes and a handler's name, percent-encoded.
LONGEST_LINE = 32 << 10
#: aiohttp's own: it logs a trace for what is no HTTP, which its sender is told already.
_http_log = logging.getLogger("everact.runtime.http")
_http_log.setLevel(logging.CRITICAL)
_CREDENTIALS = struct.Struct("3i")


class _Server(web.Server):
    """A server that holds so many connections and no more: each is an open file of the program."""

    def __init__(self, handler: Any, hold: int, **options: Any) -> None:
        super().__init__(handler, **options)
        self._hold = hold

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._connections) > self._hold:
            transport.abort()


def unix_server(runtime: Runtime, most: int) -> web.Server:
    """Make the server for a runtime, in its event loop.

    Args:
        runtime: An entered runtime.
        most: Connections at a time; on further ones every call is refused.
    """
    api = Api(runtime)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        peer = None if request.transport is None else request.transport.get_extra_info("socket")
        if peer is None or not is_ours(peer):
            return refusal(403, "this program serves processes of its own user only")
        if len(server.connections) > most:
            return refusal(503, f"this program serves {most:,} connections at a time: try again later")
        return await api.handle(request)

    server = _Server(
        handle,
        most + SPARE,
        handler_cancellation=True,
        access_log=None,
        logger=_http_log,
        keepalive_timeout=KEEP_ALIVE,
        max_line_size=LONGEST_LINE,
        auto_decompress=False,  # a small body could become a huge one
    )
    return server


def is_ours(peer: socket.socket) -> bool:
    """Whether the other end of a connection is a process of this user, or of root."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the mode of the socket keeps others out
    # A copy, as the loop's object for the socket may have no getsockopt.
    with socket.socket(fileno=os.dup(peer.fileno())) as copy:
        credentials = copy.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(credentials)[1] in _allowed()


def _allowed() -> tuple[int, ...]:
    return os.getuid(), 0
