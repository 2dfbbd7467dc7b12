"""What handles do in another process than their runtime: the calls of ``Messenger``, sent through a connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from ..actors.call_codec import CallCodec
from ..actors.call_errors import WorkflowClosedError
from ..actors.definitions import WorkflowDefinition
from ..actors.descriptions import History, WorkflowDescription
from ..actors.errors import ResultTimeoutError
from ..actors.message_arguments import handler_name
from ..actors.options import check_request_id, check_text, microseconds, positive_count
from ..actors.publishing import check_key
from ..actors.repeats import VERBS
from ..actors.updates import UpdateHandle, WaitForStage, check_stage
from ..journal import events as ev
from ..journal.errors import PayloadEncodeError
from ..journal.ids import random_id
from ..journal.payloads import NULL, PayloadConverter
from ..journal.run_document import record_of
from .connection import Connection, is_true
from .remote_updates import RemoteUpdateHandle
from .wire import Raw, from_json, payload_of, value_of

if TYPE_CHECKING:
    from ..actors.handles import ActorRef, OnStall


class _History(msgspec.Struct):
    """A history as it travels."""

    workflow_id: str
    run_id: str
    records: list[dict[str, Any]]


class RemoteMessenger:
    """Talks to the runs of a runtime in another process on behalf of handles.

    Attributes:
        has_objects: Values are objects of Python; otherwise JSON that somebody has typed.
        cluster: Name of the runtime, as addresses have it.
        converter: Encodes and decodes values.
    """

    has_objects = True

    def __init__(self, cluster: str, connection: Connection, converter: PayloadConverter) -> None:
        self.cluster = cluster
        self._connection = connection
        self.converter = converter

    async def signal(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        request_id: str | None,
        headers: tuple[ev.Header, ...] = (),
    ) -> None:
        """Send a signal; returns once it is durable."""
        request_id = check_request_id(request_id) or random_id()
        name, _codec, body = self._message(ref, "signal", handler, args)
        body |= {"request_id": request_id, **with_headers(headers)}
        await self._connection.call(
            "POST",
            *_run(ref),
            "signals",
            name,
            query=_which(ref),
            body=body,
            repeat={"request_id": request_id},
        )

    async def update(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        request_id: str | None,
        headers: tuple[ev.Header, ...] = (),
    ) -> Any:
        """Send an update and wait for its answer."""
        request_id = check_request_id(request_id) or random_id()
        name, codec, body = self._message(ref, "update", handler, args)
        body |= {"request_id": request_id, **with_headers(headers)}
        answer = await self._connection.wait_for(
            "POST",
            *_run(ref),
            "updates",
            name,
            query=_which(ref),
            body=body,
            repeat={"request_id": request_id},
        )
        return self.value(codec, self._connection.part(answer, "result"), f"result of update {name}")

    async def query(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        limit: timedelta | float,
        headers: tuple[ev.Header, ...] = (),
    ) -> Any:
        """Ask a query."""
        seconds = microseconds("query timeout", limit) / 1_000_000
        name, codec, body = self._message(ref, "query", handler, args)
        body |= {"timeout": seconds, **with_headers(headers)}
        data = await self._connection.call(
            "POST", *_run(ref), "queries", name, query=_which(ref), body=body, wait=seconds
        )
        answer = self._connection.part(self._connection.read(data, dict[str, Raw]), "result")
        return self.value(codec, answer, f"result of query {name}")

    async def cancel(self, ref: ActorRef[Any], reason: str) -> None:
        """Ask the run to cancel itself."""
        await self._control(ref, "cancel", reason, "cancelled")

    async def terminate(self, ref: ActorRef[Any], reason: str) -> None:
        """End the run at once."""
        await self._control(ref, "terminate", reason, "terminated")

    async def control(
        self,
        ref: ActorRef[Any],
        kind: type[ev.RunPaused | ev.RunResumed | ev.RunReleased],
        reason: str,
        request_id: str | None,
    ) -> None:
        """Pause, resume or release the run."""
        check_text("the reason", reason, may_be_empty=True)
        request_id = check_request_id(request_id) or random_id()
        body = {"reason": reason, "request_id": request_id}
        await self._connection.call(
            "POST", *_run(ref), VERBS[kind], query=_which(ref), body=body, repeat={"request_id": request_id}
        )

    async def redrive(self, ref: ActorRef[Any], number: int) -> None:
        """Deliver a dead letter again; sent twice, it is done once."""
        positive_count("the number of a dead letter", number)
        body = {"number": number}
        await self._connection.call("POST", *_run(ref), "redrive", query=_which(ref), body=body, repeat={})

    async def start_update(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        request_id: str | None,
        stage: WaitForStage,
        *,
        headers: tuple[ev.Header, ...] = (),
    ) -> UpdateHandle[Any]:
        """Send an update, and wait until it is accepted or answered."""
        check_stage(stage)
        request_id = check_request_id(request_id) or random_id()
        name, codec, body = self._message(ref, "update", handler, args)
        body |= {"request_id": request_id, **with_headers(headers)}
        path = ("POST", *_run(ref), "updates", name)
        repeat = {"request_id": request_id}
        accepted = await self._connection.wait_for(
            *path,
            query=_which(ref),
            body={**body, "wait_for_stage": "accepted"},
            key="accepted",
            repeat=repeat,
        )
        run_id: str = from_json(self._connection.part(accepted, "run_id"))

        async def ask() -> Any:
            query = _which(ref, run_id)
            answer = await self._connection.wait_for(*path, query=query, body=body, repeat=repeat)
            return self.value(codec, self._connection.part(answer, "result"), f"result of update {name}")

        update = RemoteUpdateHandle(
            ask,
            is_done=is_true(self._connection.part(accepted, "done")),
            workflow_id=ref.workflow_id,
            run_id=run_id,
            name=name,
            request_id=request_id,
        )
        if stage == "completed":
            await update.answered()
        return update

    async def _control(self, ref: ActorRef[Any], verb: str, reason: str, end: str) -> None:
        """Do something to a run as a whole; sent twice, it is done once, as it names the run.

        Args:
            ref: The run; the newest one of its id is looked up first.
            verb: What is done.
            reason: Why.
            end: The status of a run that it has ended.
        """
        check_text("the reason", reason, may_be_empty=True)
        run_id = ref.run_id
        if run_id is None:
            run_id = (await self.describe(ref)).run_id
        sent = 0

        def note() -> None:
            nonlocal sent
            sent += 1

        try:
            await self._connection.call(
                "POST",
                *_run(ref),
                verb,
                query=_which(ref, run_id),
                body={"reason": reason},
                sending=note,
                repeat={"run_id": run_id},
            )
        except WorkflowClosedError as error:
            if sent < 2 or error.status != end:
                raise  # else the first sending has ended it, and only its answer was lost

    async def describe(self, ref: ActorRef[Any]) -> WorkflowDescription:
        """Describe the run."""
        data = await self._connection.call("GET", *_run(ref), query=_which(ref))
        return self._connection.read(data, WorkflowDescription)

    async def published(self, ref: ActorRef[Any], key: str, hint: Any) -> Any:
        """A value that the run has published, by its type; None when there is none."""
        check_key(key)
        data = await self._connection.call("GET", *_run(ref), "published", key, query=_which(ref))
        payload = payload_of(self._connection.part(self._connection.read(data, dict[str, Raw]), "value"))
        if payload is NULL:
            return None
        return self.converter.decode(payload, hint, where=f"value published as {key!r} by {ref.workflow_id}")

    async def history(self, ref: ActorRef[Any]) -> History:
        """Read the run's durable events."""
        data = await self._connection.call("GET", *_run(ref), "history", query=_which(ref))
        found = self._connection.read(data, _History)
        try:
            records = [(record["at"], record_of(record)) for record in found.records]
        except (KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
            raise self._connection.unknown(f"a record of a history: {error!r}") from None
        return History(found.workflow_id, found.run_id, records)

    async def result(
        self,
        ref: ActorRef[Any],
        limit: timedelta | float | None,
        on_stall: OnStall,
        *,
        follow_runs: bool = True,
    ) -> Any:
        """Wait for the outcome of the run, or of the chain that it belongs to, and return or raise it."""
        seconds = None if limit is None else microseconds("result timeout", limit) / 1_000_000
        if on_stall not in ("raise", "wait"):
            raise ValueError(f"on_stall must be 'raise' or 'wait', not {on_stall!r}")
        query = {**_which(ref), "on_stall": on_stall, "follow_runs": None if follow_runs else "false"}
        answer = await self._connection.wait_for("GET", *_run(ref), "result", query=query, limit=seconds)
        if not is_true(answer["done"]):
            outlook = from_json(self._connection.part(answer, "outlook"))
            raise ResultTimeoutError(
                f"workflow {ref.workflow_id!r} had no result within {seconds:g} s; {outlook}"
            )
        definition: WorkflowDefinition | None = ref._definition
        kind = from_json(self._connection.part(answer, "workflow_type"))
        codec = definition.codec if definition is not None and kind == definition.name else None
        return self.value(codec, self._connection.part(answer, "result"), f"result of {ref.workflow_id}")

    def encoded_one(self, value: Any, where: str) -> Raw:
        """Turn a value without a hint into what travels."""
        try:
            payload = self.converter.encode(value, where=where)
        except PayloadEncodeError:
            payload = self.converter.encode(value, type(value), where=where)
        return value_of(payload, where)

    def encoded(self, codec: CallCodec | None, args: Sequence[Any], where: str) -> list[Raw]:
        """Check arguments and turn them into what travels, by their hints where those are known."""
        if codec is None:
            return [self.encoded_one(arg, where) for arg in args]
        payloads, _ = codec.encode_args(self.converter, args)
        return [value_of(payload, f"an argument of {codec.label}") for payload in payloads]

    def _message(
        self, ref: ActorRef[Any], kind: str, handler: Any, args: Sequence[Any]
    ) -> tuple[str, CallCodec | None, dict[str, Any]]:
        """The handler's name, its codec if that is known, and what a body says of the arguments."""
        name = handler_name(kind, handler)
        definition: WorkflowDefinition | None = ref._definition
        found = None if definition is None else definition.handlers[kind].get(name)
        codec = found.codec if found is not None else None if isinstance(handler, str) else _codec(handler)
        values = self.encoded(codec, args, f"argument of {kind} {name}")
        return name, codec, {"args": values, **with_classes(codec is not None)}

    def value(self, codec: CallCodec | None, value: Raw, where: str) -> Any:
        """A value that has travelled, by its hint where that is known."""
        payload = payload_of(value)
        if codec is None:
            return self.converter.decode(payload, where=where)
        return codec.decode_result(self.converter, payload)


@lru_cache(maxsize=1000)
def _codec(handler: Callable[..., Any]) -> CallCodec:
    """The codec of a handler of which only the method is known."""
    return CallCodec(handler, handler.__qualname__, skip_first=True)


def _run(ref: ActorRef[Any]) -> tuple[str, str]:
    return "workflows", ref.workflow_id


def _which(ref: ActorRef[Any], run_id: str | None = None) -> dict[str, object]:
    """The run and the type that a reference is bound to."""
    kind = None if ref._definition is None else ref._definition.name or None
    return {"run_id": run_id or ref.run_id, "type": kind}


def with_classes(are_known: bool) -> dict[str, bool]:
    """The field of a body that has values of classes, perhaps of another version than the program's.

    What is plain was typed by somebody: fields that the classes of the program do not have are refused.
    """
    return {"extra_fields": True} if are_known else {}


def with_headers(headers: tuple[ev.Header, ...]) -> dict[str, dict[str, Raw]]:
    """The field of a body that has them; none without them, for a program of before there were any."""
    found = {one.name: value_of(one.value, f"header {one.name!r}") for one in headers}
    return {"headers": found} if found else {}
