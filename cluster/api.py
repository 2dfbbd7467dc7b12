"""The JSON API of a runtime: resources under ``/v1``, for the door beside a journal and for the gateway.

Arguments arrive as JSON and are converted by the type hints of the workflow or handler here, where its code is; nothing
is ever unpickled. Values and errors have the forms of ``wire``. Ids and names in a path are percent-encoded.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

import msgspec
from aiohttp import web

from .._version import __version__
from ..actors.call_codec import CallCodec
from ..actors.call_errors import WorkflowTypeError
from ..actors.client_interceptors import ListWorkflowsInput
from ..actors.errors import ResultTimeoutError
from ..actors.handles import WorkflowHandle
from ..actors.headers import header_records
from ..actors.options import QUERY_TIMEOUT
from ..actors.outlook import outlook
from ..actors.runtime import Runtime
from ..actors.shard import Shard
from ..actors.start_options import travelled_options
from ..actors.succession import current_run, last_run
from ..actors.updates import WaitForStage
from ..actors.workflow_actor import WorkflowActor
from ..journal.events import Header
from . import activity_api
from .calls import Bodies, Call, RefusedError, answer, stream
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

#: Runs of a page when the caller does not say.
PAGE = 100


class Start(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a start.

    Attributes:
        workflow: Name of the type.
        args: Arguments of its run method.
        options: As ``StartOptions``; durations in seconds.
        headers: What the interceptors of the client send along, by name.
        extra_fields: Take objects with fields that their classes here do not have: their classes were others there.
    """

    workflow: str
    args: list[Raw] = []
    options: dict[str, Any] = {}
    headers: dict[str, Raw] = {}
    extra_fields: bool = False


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a signal, a query or an update.

    Attributes:
        args: Arguments of the handler.
        request_id: A repeat with the same one is applied once; not for queries.
        timeout: For queries: limit in seconds.
        wait: For updates: answer ``{"done": false}`` after so many seconds, for a repeat with the same request id.
        headers: As of ``Start``.
        wait_for_stage: For updates: ``accepted`` to be answered once it is accepted, ``completed`` once it is done.
        extra_fields: As of ``Start``.
    """

    args: list[Raw] = []
    request_id: str | None = None
    timeout: float | None = None
    wait: float | None = None
    headers: dict[str, Raw] = {}
    wait_for_stage: WaitForStage = "completed"
    extra_fields: bool = False


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


class Api:
    """Serves the calls of other processes on one runtime, in its event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._converter = runtime._converter
        self._bodies = Bodies()
        self._messenger = runtime._direct

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; the task is cancelled when its client goes away."""
        try:
            path, _, query = request.raw_path.partition("?")
            serve, names = _find(request.method, path)
            call = Call(request, names, dict(parse_qsl(query, keep_blank_values=True)), self._bodies)
            try:
                return await serve(self, call)
            finally:
                call.release()
        except Exception as error:
            status = error.status if isinstance(error, RefusedError) else status_of(error)
            if status == 500:
                log.exception("a call from another process failed: %s %s", request.method, request.raw_path)
            return answer({"error": error_document(error, self._converter)}, status)

    # --- the runtime

    async def about(self, call: Call) -> web.Response:
        """What runs here."""
        call.no_more()
        runtime = self._runtime
        return answer(
            {
                "name": runtime.name,
                "version": __version__,
                "pid": os.getpid(),
                "workflows": sorted(runtime._registry.workflows),
            }
        )

    async def list_workflows(self, call: Call) -> web.StreamResponse:
        """A page of the runs, newest first."""
        kind, status, token = call.text("type"), call.text("status"), call.text("next_page_token")
        size = call.count("page_size", PAGE)
        call.no_more()
        asked = ListWorkflowsInput(kind, status, None, size, token)
        page = await anext(self._runtime._list_workflows(asked).pages())
        head = b'{"next_page_token":' + to_json(page.next_page_token) + b',"workflows":['
        return await stream(call.request, head, map(summary_document, page.workflows))

    async def count_workflows(self, call: Call) -> web.Response:
        """How many runs there are."""
        kind, status = call.text("type"), call.text("status")
        call.no_more()
        return answer({"count": await self._runtime._count_workflows(kind, status)})

    async def start(self, call: Call) -> web.Response:
        """Start a run."""
        call.no_more()
        body = await call.body(Start)
        definition = self._runtime._registry.workflow(body.workflow)
        payloads = [payload_of(arg) for arg in body.args]
        args = definition.codec.values_of(self._converter, payloads, extra_fields=body.extra_fields)
        headers = _headers(body.headers)
        start = self._runtime._start_workflow  # it checks the options
        handle = await start(definition.name, args, travelled_options(body.options), headers)
        return answer(
            {
                "workflow_id": handle.workflow_id,
                "run_id": handle.run_id,
                "workflow_type": definition.name,
                "address": handle.address,
            },
            201,
        )

    # --- one run

    def _run(self, call: Call, *, follow: bool = True) -> tuple[WorkflowHandle[Any, Any], WorkflowActor]:
        """The run that a call is about, and what its chain has come to; without ``follow`` that very run."""
        run_id, kind = call.text("run_id"), call.text("type")
        call.no_more()
        handle = self._runtime.ref(call.names["id"])
        handle.run_id = run_id
        handle._messenger = self._messenger  # what came from another process has met its own interceptors
        shard = self._runtime._open()
        actor = (current_run if follow else Shard.find)(shard, handle.workflow_id, run_id)
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
            codec = handler.codec
            args = codec.values_of(self._converter, payloads, extra_fields=body.extra_fields)
            return handle, codec, body, args
        where = f"argument of {kind} {call.names['name']}"
        return handle, None, body, [self._converter.decode(one, where=where) for one in payloads]

    def _value(self, codec: CallCodec | None, value: Any, where: str) -> Raw:
        if codec is None:
            return value_of(self._converter.encode(value, where=where), where)
        return value_of(codec.encode_result(self._converter, value), f"result of {codec.label}")

    async def describe(self, call: Call) -> web.Response:
        """Everything known of a run."""
        handle, _ = self._run(call, follow=False)
        return answer(summary_document(await handle.describe()))

    async def all_published(self, call: Call) -> web.Response:
        """What a run has published."""
        handle, _ = self._run(call)
        found = await self._messenger.all_published(handle)
        return answer({"published": {key: value_of(payload, key) for key, payload in found.items()}})

    async def published(self, call: Call) -> web.Response:
        """One value of what a run has published."""
        handle, _ = self._run(call)
        key = call.names["name"]
        payload = (await self._messenger.all_published(handle, key)).get(key)
        return answer(
            {"value": None if payload is None else value_of(payload, f"value published as {key!r}")}
        )

    async def history(self, call: Call) -> web.StreamResponse:
        """All records of a run."""
        handle, _ = self._run(call, follow=False)
        found = await handle.fetch_history()
        return await stream(call.request, history_head(found), history_rows(found))

    async def signal(self, call: Call) -> web.Response:
        """Send a signal."""
        handle, _codec, body, args = await self._message(call, "signal")
        headers = _headers(body.headers)
        await self._messenger.signal(handle, call.names["name"], args, body.request_id, headers)
        return answer({})

    async def query(self, call: Call) -> web.Response:
        """Ask a query."""
        handle, codec, body, args = await self._message(call, "query")
        name = call.names["name"]
        limit = QUERY_TIMEOUT if body.timeout is None else body.timeout
        value = await self._messenger.query(handle, name, args, limit, _headers(body.headers))
        return answer({"result": self._value(codec, value, f"result of query {name}")})

    async def update(self, call: Call) -> web.Response:
        """Send an update, and wait until it is accepted, or for its answer."""
        handle, codec, body, args = await self._message(call, "update")
        name = call.names["name"]
        if body.wait is not None and not body.request_id:
            raise RefusedError(400, "wait needs a request_id: the answer is asked for again with it")
        stage = body.wait_for_stage
        waiting = asyncio.timeout(body.wait)
        try:
            async with waiting:
                started = await self._messenger.start_update(
                    handle, name, args, body.request_id, stage, headers=_headers(body.headers)
                )
                if stage == "accepted":
                    done = started.done()
                    started._answer.cancel()  # it is asked for by a repeat; the run need not stay in memory
                    return answer({"accepted": True, "done": done, "run_id": started.run_id})
                value = await started.result()
        except TimeoutError:
            if not waiting.expired():
                raise
            return answer({"accepted": False, "done": False} if stage == "accepted" else {"done": False})
        return answer({"done": True, "result": self._value(codec, value, f"result of update {name}")})

    async def redrive(self, call: Call) -> web.Response:
        """Deliver a dead letter again."""
        body = await call.body(Redrive)
        handle, _ = self._run(call)
        await handle.redrive(body.number)
        return answer({})

    async def result(self, call: Call) -> web.Response:
        """Wait for a run's result."""
        wait, on_stall = call.seconds("wait"), call.text("on_stall") or "raise"
        follow = call.text("follow_runs") != "false"
        handle, actor = self._run(call, follow=follow)
        handle.run_id = actor.run_id  # the same one, also when it is asked for again
        try:
            value = await handle.result(timeout=wait, on_stall=on_stall, follow_runs=follow)  # type: ignore[arg-type]
        except ResultTimeoutError:
            actor = last_run(self._runtime._open(), actor) if follow else actor
            seen = await self._runtime.ref(actor.workflow_id).describe()
            return answer(
                {
                    "done": False,
                    "run_id": handle.run_id,
                    "waiting_on": seen.waiting_on,
                    "outlook": await outlook(actor),
                }
            )
        actor = last_run(self._runtime._open(), actor) if follow else actor
        codec = None if actor.definition is None else actor.definition.codec
        result = self._value(codec, value, f"result of {handle.workflow_id}")
        kind = actor.state.started.workflow_type
        return answer({"done": True, "run_id": handle.run_id, "workflow_type": kind, "result": result})


def _headers(given: Mapping[str, Raw]) -> tuple[Header, ...]:
    return header_records({name: payload_of(value) for name, value in given.items()}) if given else ()


Serve = Callable[[Api, Call], Awaitable[web.StreamResponse]]


def _control(verb: str) -> Serve:
    """What is done to a run as a whole by the handle's method of this name, which takes a reason."""

    async def serve(api: Api, call: Call) -> web.Response:
        body = await call.body(Control)
        handle, _ = api._run(call)
        await getattr(handle, verb)(body.reason)
        return answer({})

    return serve


def _status_control(verb: str) -> Serve:
    """The same for a method that takes a request id, too."""

    async def serve(api: Api, call: Call) -> web.Response:
        body = await call.body(StatusControl)
        handle, _ = api._run(call)
        await getattr(handle, verb)(body.reason, request_id=body.request_id)
        return answer({})

    return serve


def _attempt(verb: str) -> Serve:
    """What is said of an attempt that is worked on outside."""

    async def serve(api: Api, call: Call) -> web.Response:
        call.no_more()
        await activity_api.VERBS[verb](api._runtime, call)
        return answer({})

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
    *(Route("POST", f"/v1/activities/{verb}", _attempt(verb)) for verb in activity_api.VERBS),
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
        raise RefusedError(405, f"{path} takes {' and '.join(methods)}, not {method}")
    known = ", ".join(dict.fromkeys(route.path for route in ROUTES))
    raise RefusedError(404, f"there is no {path} here; this Everact {__version__} has {known}")


def _unquoted(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise RefusedError(400, f"{part!r} in the path is not valid UTF-8") from None
