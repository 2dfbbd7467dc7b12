"""The JSON API of a runtime: resources under ``/v1``, for the door beside a journal and for the gateway.

Arguments arrive as JSON and are converted by the type hints of the workflow or handler here, where its code is; nothing
is ever unpickled. Values and errors have the forms of ``wire``. Ids and names in a path are percent-encoded.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from aiohttp import web

from .._version import __version__
from ..actors.call_codec import CallCodec
from ..actors.call_errors import WorkflowTypeError
from ..actors.errors import ResultTimeoutError
from ..actors.handles import WorkflowHandle
from ..actors.interceptors import header_records
from ..actors.options import QUERY_TIMEOUT
from ..actors.runtime import Runtime
from ..actors.workflow_actor import WorkflowActor
from ..journal.events import Header
from .errors import CallRefusedError
from .wire import (
    Raw,
    error_document,
    history_head,
    history_rows,
    payload_of,
    status_of,
    summary_document,
    to_json,
    value_of,
)

log = logging.getLogger("everact.runtime")

#: Most bytes of a request's body: the arguments of one call, which are bounded by ``PayloadLimits`` too.
BODY_LIMIT = 64 << 20
#: Rows of a list, and records of a history, that are encoded and sent at a time.
ROWS = 500

T = TypeVar("T")


class Start(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a start.

    Attributes:
        workflow: Name of the type.
        args: Arguments of its run method.
        options: As ``StartOptions``; durations in seconds.
        headers: What the interceptors of the client send along, by name.
    """

    workflow: str
    args: list[Raw] = []
    options: dict[str, Any] = {}
    headers: dict[str, Raw] = {}


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a signal, a query or an update.

    Attributes:
        args: Arguments of the handler.
        request_id: A repeat with the same one is applied once; not for queries.
        timeout: For queries: limit in seconds.
        wait: For updates: answer ``{"done": false}`` after so many seconds, for a repeat with the same request id.
        headers: As of ``Start``.
    """

    args: list[Raw] = []
    request_id: str | None = None
    timeout: float | None = None
    wait: float | None = None
    headers: dict[str, Raw] = {}


class Control(msgspec.Struct, forbid_unknown_fields=True):
    """Body of what is done to a run as a whole."""

    reason: str = ""


class StatusControl(msgspec.Struct, forbid_unknown_fields=True):
    """Body of what changes the status of a run: a repeat with the same request id is applied once."""

    reason: str = ""
    request_id: str | None = None


class Redrive(msgspec.Struct, forbid_unknown_fields=True):
    """Body of what delivers a dead letter again; ``number`` is that of its event."""

    number: int


class _RefusedError(CallRefusedError):
    """A refusal with its own HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Call:
    """One request: what its path, its query and its body say."""

    def __init__(self, request: web.BaseRequest, names: Mapping[str, str], query: Mapping[str, str]) -> None:
        self.request = request
        self.names = names
        self._query = dict(query)

    def text(self, name: str) -> str | None:
        """A query parameter, or None."""
        return self._query.pop(name, None)

    def seconds(self, name: str) -> float | None:
        """A query parameter that is a number of seconds, or None."""
        text = self.text(name)
        try:
            return None if text is None else float(text)
        except ValueError:
            raise _RefusedError(400, f"{name} must be a number of seconds, not {text!r}") from None

    def count(self, name: str) -> Any:
        """A query parameter that is a number; other text stays text, for who checks it."""
        text = self.text(name)
        return int(text) if text is not None and text.removeprefix("-").isdecimal() else text

    def no_more(self) -> None:
        """Refuse parameters that nobody has asked for."""
        if self._query:
            raise _RefusedError(400, f"unknown query parameter {min(self._query)!r}")

    async def body(self, kind: type[T]) -> T:
        """The body of the request, of this form; no body is one without any fields."""
        data = bytearray()
        while chunk := await self.request.content.readany():
            data += chunk
            if len(data) > BODY_LIMIT:
                raise _RefusedError(413, f"the body of a call may have up to {BODY_LIMIT:,} bytes")
        try:
            return msgspec.json.decode(bytes(data) or b"{}", type=kind)
        except msgspec.ValidationError as error:
            raise _RefusedError(400, f"the body of the call does not fit: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _RefusedError(400, f"the body of the call is no JSON: {error}") from None


class Api:
    """Serves the calls of other processes on one runtime, in its event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._converter = runtime._converter
        self._messenger = runtime._direct

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; the task is cancelled when its client goes away."""
        try:
            path, _, query = request.raw_path.partition("?")
            serve, names = _find(request.method, path)
            call = Call(request, names, dict(parse_qsl(query, keep_blank_values=True)))
            return await serve(self, call)
        except Exception as error:
            status = error.status if isinstance(error, _RefusedError) else status_of(error)
            if status == 500:
                log.exception("a call from another process failed: %s %s", request.method, request.raw_path)
            return _answer({"error": error_document(error, self._converter)}, status)

    # --- the runtime

    async def about(self, call: Call) -> web.Response:
        """What runs here."""
        call.no_more()
        runtime = self._runtime
        return _answer(
            {
                "name": runtime.name,
                "version": __version__,
                "pid": os.getpid(),
                "workflows": sorted(runtime._registry.workflows),
            }
        )

    async def list_workflows(self, call: Call) -> web.StreamResponse:
        """Runs, newest first."""
        kind, status, limit = call.text("type"), call.text("status"), call.count("limit")
        call.no_more()
        found = await self._runtime._list_workflows(kind, status, limit)
        return await _stream(call.request, b'{"workflows":[', map(summary_document, found))

    async def count_workflows(self, call: Call) -> web.Response:
        """How many runs there are."""
        kind, status = call.text("type"), call.text("status")
        call.no_more()
        return _answer({"count": await self._runtime._count_workflows(kind, status)})

    async def start(self, call: Call) -> web.Response:
        """Start a run."""
        call.no_more()
        body = await call.body(Start)
        definition = self._runtime._registry.workflow(body.workflow)
        args = definition.codec.values_of(self._converter, [payload_of(arg) for arg in body.args])
        headers = _headers(body.headers)
        start = self._runtime._start_workflow  # it checks the options
        handle = await start(definition.name, args, body.options, headers)
        return _answer(
            {
                "workflow_id": handle.workflow_id,
                "run_id": handle.run_id,
                "workflow_type": definition.name,
                "address": handle.address,
            },
            201,
        )

    # --- one run

    def _run(self, call: Call) -> tuple[WorkflowHandle[Any, Any], WorkflowActor]:
        """The run that a call is about."""
        run_id, kind = call.text("run_id"), call.text("type")
        call.no_more()
        handle = self._runtime.ref(call.names["id"])
        handle.run_id = run_id
        handle._messenger = self._messenger  # what came from another process has met its own interceptors
        actor = self._runtime._open().find(handle.workflow_id, run_id)
        actual = actor.state.started.workflow_type
        if kind is not None and kind != actual:
            raise WorkflowTypeError(actor.workflow_id, actual, kind)
        return handle, actor

    async def _message(
        self, call: Call, kind: str
    ) -> tuple[WorkflowHandle[Any, Any], CallCodec | None, Message, list[Any]]:
        body = await call.body(Message)
        handle, actor = self._run(call)
        definition = actor.definition
        handler = None if definition is None else definition.handlers[kind].get(call.names["name"])
        payloads = [payload_of(arg) for arg in body.args]
        if handler is not None:
            return handle, handler.codec, body, handler.codec.values_of(self._converter, payloads)
        where = f"argument of {kind} {call.names['name']}"
        return handle, None, body, [self._converter.decode(one, where=where) for one in payloads]

    def _value(self, codec: CallCodec | None, value: Any, where: str) -> Raw:
        if codec is None:
            return value_of(self._converter.encode(value, where=where), where)
        return value_of(codec.encode_result(self._converter, value), f"result of {codec.label}")

    async def describe(self, call: Call) -> web.Response:
        """Everything known of a run."""
        handle, _ = self._run(call)
        return _answer(summary_document(await handle.describe()))

    async def all_published(self, call: Call) -> web.Response:
        """What a run has published."""
        handle, _ = self._run(call)
        found = await self._messenger.all_published(handle)
        return _answer({"published": {key: value_of(payload, key) for key, payload in found.items()}})

    async def published(self, call: Call) -> web.Response:
        """One value of what a run has published."""
        handle, _ = self._run(call)
        key = call.names["name"]
        payload = (await self._messenger.all_published(handle, key)).get(key)
        return _answer(
            {"value": None if payload is None else value_of(payload, f"value published as {key!r}")}
        )

    async def history(self, call: Call) -> web.StreamResponse:
        """All records of a run."""
        handle, _ = self._run(call)
        found = await handle.fetch_history()
        return await _stream(call.request, history_head(found), history_rows(found))

    async def signal(self, call: Call) -> web.Response:
        """Send a signal."""
        handle, _codec, body, args = await self._message(call, "signal")
        headers = _headers(body.headers)
        await self._messenger.signal(handle, call.names["name"], args, body.request_id, headers)
        return _answer({})

    async def query(self, call: Call) -> web.Response:
        """Ask a query."""
        handle, codec, body, args = await self._message(call, "query")
        name = call.names["name"]
        limit = QUERY_TIMEOUT if body.timeout is None else body.timeout
        value = await self._messenger.query(handle, name, args, limit, _headers(body.headers))
        return _answer({"result": self._value(codec, value, f"result of query {name}")})

    async def update(self, call: Call) -> web.Response:
        """Send an update, and wait for its answer."""
        handle, codec, body, args = await self._message(call, "update")
        name = call.names["name"]
        if body.wait is not None and not body.request_id:
            raise _RefusedError(400, "wait needs a request_id: the answer is asked for again with it")
        waiting = asyncio.timeout(body.wait)
        try:
            async with waiting:
                headers = _headers(body.headers)
                value = await self._messenger.update(handle, name, args, body.request_id, headers)
        except TimeoutError:
            if not waiting.expired():
                raise
            return _answer({"done": False})
        return _answer({"done": True, "result": self._value(codec, value, f"result of update {name}")})

    async def redrive(self, call: Call) -> web.Response:
        """Deliver a dead letter again."""
        body = await call.body(Redrive)
        handle, _ = self._run(call)
        await handle.redrive(body.number)
        return _answer({})

    async def result(self, call: Call) -> web.Response:
        """Wait for a run's result."""
        wait, on_stall = call.seconds("wait"), call.text("on_stall") or "raise"
        handle, actor = self._run(call)
        handle.run_id = actor.run_id  # the same one, also when it is asked for again
        codec = None if actor.definition is None else actor.definition.codec
        try:
            value = await handle.result(timeout=wait, on_stall=on_stall)  # type: ignore[arg-type]
        except ResultTimeoutError:
            seen = await handle.describe()
            return _answer({"done": False, "run_id": handle.run_id, "waiting_on": seen.waiting_on})
        result = self._value(codec, value, f"result of {handle.workflow_id}")
        return _answer({"done": True, "run_id": handle.run_id, "result": result})


def _headers(given: Mapping[str, Raw]) -> tuple[Header, ...]:
    return header_records({name: payload_of(value) for name, value in given.items()}) if given else ()


Serve = Callable[[Api, Call], Awaitable[web.StreamResponse]]


def _control(verb: str) -> Serve:
    """What is done to a run as a whole by the handle's method of this name, which takes a reason."""

    async def serve(api: Api, call: Call) -> web.Response:
        body = await call.body(Control)
        handle, _ = api._run(call)
        await getattr(handle, verb)(body.reason)
        return _answer({})

    return serve


def _status_control(verb: str) -> Serve:
    """The same for a method that takes a request id, too."""

    async def serve(api: Api, call: Call) -> web.Response:
        body = await call.body(StatusControl)
        handle, _ = api._run(call)
        await getattr(handle, verb)(body.reason, request_id=body.request_id)
        return _answer({})

    return serve


class Route(NamedTuple):
    """Where a call is found: a method and a path, whose parts in braces are names."""

    method: str
    path: str
    serve: Serve


ROUTES = (
    Route("GET", "/v1", Api.about),
    Route("GET", "/v1/workflows", Api.list_workflows),
    Route("POST", "/v1/workflows", Api.start),
    Route("GET", "/v1/workflow-count", Api.count_workflows),
    Route("GET", "/v1/workflows/{id}", Api.describe),
    Route("GET", "/v1/workflows/{id}/history", Api.history),
    Route("GET", "/v1/workflows/{id}/result", Api.result),
    Route("GET", "/v1/workflows/{id}/published", Api.all_published),
    Route("GET", "/v1/workflows/{id}/published/{name}", Api.published),
    Route("POST", "/v1/workflows/{id}/signals/{name}", Api.signal),
    Route("POST", "/v1/workflows/{id}/queries/{name}", Api.query),
    Route("POST", "/v1/workflows/{id}/updates/{name}", Api.update),
    Route("POST", "/v1/workflows/{id}/cancel", _control("cancel")),
    Route("POST", "/v1/workflows/{id}/terminate", _control("terminate")),
    Route("POST", "/v1/workflows/{id}/pause", _status_control("pause")),
    Route("POST", "/v1/workflows/{id}/resume", _status_control("resume")),
    Route("POST", "/v1/workflows/{id}/release", _status_control("release")),
    Route("POST", "/v1/workflows/{id}/redrive", Api.redrive),
)

_PARTS = [(route, route.path.split("/")) for route in ROUTES]


def _find(method: str, path: str) -> tuple[Serve, dict[str, str]]:
    """What serves a path, and the names in it."""
    given = path.split("/")
    methods = []
    for route, parts in _PARTS:
        if len(parts) == len(given) and all(
            part == found or (part[:1] == "{" and found) for part, found in zip(parts, given, strict=True)
        ):
            if route.method == method:
                return route.serve, {
                    part[1:-1]: _unquoted(found)
                    for part, found in zip(parts, given, strict=True)
                    if part[:1] == "{"
                }
            methods.append(route.method)
    if methods:
        raise _RefusedError(405, f"{path} takes {' and '.join(methods)}, not {method}")
    known = ", ".join(dict.fromkeys(route.path for route in ROUTES))
    raise _RefusedError(404, f"there is no {path} here; this Everact {__version__} has {known}")


def _unquoted(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise _RefusedError(400, f"{part!r} in the path is not valid UTF-8") from None


def _answer(document: Mapping[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=to_json(document), status=status, content_type="application/json")


def refusal(status: int, message: str) -> web.Response:
    """The answer to a call that does not get as far as the API."""
    return _answer({"error": {"type": CallRefusedError.__name__, "message": message}}, status)


async def _stream(request: web.BaseRequest, head: bytes, rows: Iterable[Any]) -> web.StreamResponse:
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
