"""A run as a document of plain JSON values and back, exactly.

A document has ``format``, ``version``, ``workflow_id``, ``run_id``, ``workflow_type`` and ``records``. A record has its
time ``at`` (microseconds since the epoch), ``flags``, ``kind`` (``turn`` or ``received``), ``inputs`` and, for a turn,
``outputs`` and ``delivers``. An event is an object with its stored ``tag``, its name ``event`` for people, and its
fields by name. A payload has its ``encoding`` and its bytes: as a ``json`` value where that gives the same bytes
again, else as ``base64``.
"""

from __future__ import annotations

import base64
import math
import types
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from . import events as ev
from .errors import ImportRefusedError
from .payloads import Payload
from .store import Entry

FORMAT = "everact run"
#: Raised when an older Everact could misread a document.
VERSION = 1

_KINDS: dict[str, type[ev.Record]] = {"turn": ev.Turn, "received": ev.Received}
_EVENTS: dict[str, type[ev.Event]] = {str(cls.__struct_config__.tag): cls for cls in get_args(ev.AnyEvent)}
_JSON_ENCODINGS = frozenset(["json", "tagged"])
#: Only a text longer than this can be nested deeply; such a one must leave room for the document around it.
_SHALLOW = 400
_ROOM = 200

_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder().decode


def document_of(workflow: ev.WorkflowStarted, entries: Iterable[Entry]) -> dict[str, Any]:
    """Describe a run.

    Args:
        workflow: Its first event.
        entries: All its entries, in order.

    Raises:
        msgspec.DecodeError: An entry's body is damaged.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "workflow_id": workflow.workflow_id,
        "run_id": workflow.run_id,
        "workflow_type": workflow.workflow_type,
        "records": [
            {"at": entry.at, "flags": entry.flags, **record_document(ev.decode_record(entry.body))}
            for entry in entries
        ],
    }


def entries_of(document: Mapping[str, Any], run_key: int) -> list[Entry]:
    """Build the entries of a described run.

    Args:
        document: What ``document_of`` made, perhaps after a way through JSON.
        run_key: The run's number in its new journal.

    Raises:
        ImportRefusedError: It is no such document, or of a newer version.
    """
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise ImportRefusedError(
            f"this is no exported run: its format is not {FORMAT!r} (`everact journal export` writes them)"
        )
    if document.get("version") != VERSION:
        raise ImportRefusedError(
            f"the exported run has version {document.get('version')!r}, this Everact reads {VERSION}: "
            f"use a newer Everact"
        )
    entries: list[Entry] = []
    number = 1
    name = document.get("run_id")
    try:
        for stored in document["records"]:
            record = record_of(stored)
            at, flags = msgspec.convert((stored["at"], stored["flags"]), tuple[int, int])
            entries.append(Entry(run_key, number, flags, at, ev.encode_record(record)))
            number += len(record.inputs) + (len(record.outputs) if isinstance(record, ev.Turn) else 0)
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise ImportRefusedError(
            f"the exported run {name!r} is damaged: record {len(entries) + 1}: {error!r}"
        ) from error
    return entries


def record_document(record: ev.Record) -> dict[str, Any]:
    """Describe one record."""
    kind = "turn" if isinstance(record, ev.Turn) else "received"
    return {"kind": kind, **{name: plain(getattr(record, name)) for name in record.__struct_fields__}}


def record_of(document: Mapping[str, Any]) -> ev.Record:
    """Build a described record.

    Raises:
        Exception: It is damaged: a KeyError, TypeError, ValueError, AttributeError or MsgspecError.
    """
    return structured(_KINDS[document["kind"]], document)  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """A stored struct, or a value in one, as plain JSON values."""
    if isinstance(value, Payload):
        return _payload(value)
    if isinstance(value, msgspec.Struct):
        fields = {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        if isinstance(value, ev.Event):
            return {"tag": value.__struct_config__.tag, "event": type(value).__name__, **fields}
        return fields
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return _base64(value)
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def _payload(payload: Payload) -> dict[str, Any]:
    described: dict[str, Any] = {"encoding": payload.encoding}
    data = payload.data
    if payload.encoding in _JSON_ENCODINGS:
        try:
            if len(data) > _SHALLOW:
                _from_json(b"[" * _ROOM + data + b"]" * _ROOM)
            value = _from_json(data)
            if _to_json(value) == data:
                return {**described, "json": value}
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
    return {**described, "base64": _base64(data)} if data else described


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


@lru_cache(maxsize=64)
def _fields(cls: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {name: hints[name] for name in cls.__struct_fields__}


def structured(hint: Any, value: Any) -> Any:
    """Build a value of this type from its plain form."""
    if hint is Payload:
        return _load_payload(value)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        fields = _fields(hint).items()
        # What is not there is a field that an older Everact did not have; the required ones are missed by the class.
        return hint(**{name: structured(inner, value[name]) for name, inner in fields if name in value})
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Union or origin is types.UnionType:
        known = [one for one in inside if one is not type(None)]
        if value is None and len(known) < len(inside):
            return None
        cls: Any = known[0] if len(known) == 1 else _EVENTS[msgspec.convert(value, dict[str, Any])["tag"]]
        return structured(cls, value)
    if origin is tuple and len(inside) == 2 and inside[1] is Ellipsis:
        return tuple(structured(inside[0], item) for item in msgspec.convert(value, list[Any]))
    if hint is bytes:
        return base64.b64decode(value, validate=True)
    if hint is float and isinstance(value, str):
        return float(value)
    return msgspec.convert(value, hint)


def _load_payload(value: Any) -> Payload:
    encoding = msgspec.convert(value["encoding"], str)
    if "json" in value:
        return Payload(encoding, _to_json(value["json"]))
    return Payload(encoding, base64.b64decode(value.get("base64", ""), validate=True))
