"""One call of another process as HTTP: what it says, and how it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from .errors import CallRefusedError
from .wire import to_json

#: Most bytes of a request's body: the arguments of one call, which are bounded by ``PayloadLimits`` too.
BODY_LIMIT = 64 << 20
#: Most bytes of all bodies that are in hand at a time, and how long one may take to arrive, in seconds.
BODIES_LIMIT = 4 * BODY_LIMIT
BODY_TIME = 60.0
#: Rows of a list, and records of a history, that are encoded and sent at a time.
ROWS = 500

T = TypeVar("T")


class RefusedError(CallRefusedError):
    """A refusal with its own HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Bodies:
    """How many bytes the bodies have that are in hand."""

    def __init__(self) -> None:
        self.size = 0


class Call:
    """One request: what its path, its query and its body say."""

    def __init__(
        self, request: web.BaseRequest, names: Mapping[str, str], query: Mapping[str, str], bodies: Bodies
    ) -> None:
        self.request = request
        self.names = names
        self._query = dict(query)
        self._bodies = bodies
        self._size = 0

    def release(self) -> None:
        """It is answered, and its body forgotten."""
        self._bodies.size -= self._size
        self._size = 0

    def text(self, name: str) -> str | None:
        """A query parameter, or None."""
        return self._query.pop(name, None)

    def seconds(self, name: str) -> float | None:
        """A query parameter that is a number of seconds, or None."""
        text = self.text(name)
        try:
            return None if text is None else float(text)
        except ValueError:
            raise RefusedError(400, f"{name} must be a number of seconds, not {text!r}") from None

    def count(self, name: str, default: int) -> Any:
        """A query parameter that is a number; other text stays text, for who checks it."""
        text = self.text(name)
        if text is None:
            return default
        return int(text) if text.isascii() and len(text) < 20 and text.removeprefix("-").isdigit() else text

    def no_more(self) -> None:
        """Refuse parameters that nobody has asked for."""
        if self._query:
            raise RefusedError(400, f"unknown query parameter {min(self._query)!r}")

    async def body(self, kind: type[T]) -> T:
        """The body of the request, of this form; no body is one without any fields."""
        data = bytearray()
        try:
            async with asyncio.timeout(BODY_TIME):
                while chunk := await self.request.content.readany():
                    data += chunk
                    self._size += len(chunk)
                    self._bodies.size += len(chunk)
                    if len(data) > BODY_LIMIT:
                        raise RefusedError(413, f"the body of a call may have up to {BODY_LIMIT:,} bytes")
                    if self._bodies.size > BODIES_LIMIT:
                        raise RefusedError(503, "this program has very large calls in hand: try again later")
        except TimeoutError:
            raise RefusedError(408, f"the body of the call did not arrive within {BODY_TIME:g} s") from None
        try:
            return msgspec.json.decode(bytes(data) or b"{}", type=kind)
        except msgspec.ValidationError as error:
            raise RefusedError(400, f"the body of the call does not fit: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RefusedError(400, f"the body of the call is no JSON: {error}") from None


def answer(document: Mapping[str, Any], status: int = 200) -> web.Response:
    """The answer to a call."""
    return web.Response(body=to_json(document), status=status, content_type="application/json")


def refusal(status: int, message: str) -> web.Response:
    """The answer to a call that does not get as far as the API."""
    return answer({"error": {"type": CallRefusedError.__name__, "message": message}}, status)


async def stream(request: web.BaseRequest, head: bytes, rows: Iterable[Any]) -> web.StreamResponse:
    """Send rows a few at a time, so that neither many rows nor a slow client hold the loop."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    batch: list[bytes] = []
    between = head
    for row in rows:
        batch.append(to_json(row))
        if len(batch) == ROWS:
            await response.write(between + b",".join(batch))
            await asyncio.sleep(0)
            between, batch = b",", []
    await response.write((between if batch or between is head else b"") + b",".join(batch) + b"]}")
    return response
