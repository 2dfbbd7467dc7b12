"""Which fields of an event hold what users wrote, and so go through the payload codecs: one list for both ways.

Everything else stays readable for the store and its tools: ids, types, names, times, options, reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from . import child_events as ce
from . import events as ev
from .failures import Failure
from .payloads import Payload
from .saga_events import CompensationEscalated, CompensationFailed
from .step_events import StepAttemptFailed, StepCompleted, StepFailed

E = TypeVar("E", bound=ev.Event)

#: Fields with payloads and failures, by event; a test compares it with the events themselves.
CODED_FIELDS: dict[type[ev.Event], tuple[str, ...]] = {
    ev.WorkflowStarted: ("args", "memo", "headers", "last_result", "last_failure"),
    ev.SignalReceived: ("args", "headers"),
    ev.UpdateReceived: ("args", "headers"),
    ev.ActivityCompleted: ("result",),
    ev.ActivityFailed: ("failure",),
    ev.AttemptFailed: ("failure", "details"),
    ev.AttemptNoted: ("details",),
    ev.RunStalled: ("failure",),
    ev.ActivityScheduled: ("args", "headers"),
    ev.TaskFailed: ("failure",),
    ev.SideEffectRecorded: ("result", "failure"),
    ev.MemoUpserted: ("memo",),
    ev.ValuePublished: ("value",),
    ev.UpdateCompleted: ("result",),
    ev.UpdateFailed: ("failure",),
    ev.HandlerFailed: ("failure",),
    ev.WorkflowCompleted: ("result",),
    ev.WorkflowFailed: ("failure",),
    CompensationFailed: ("failure",),
    CompensationEscalated: ("failure",),
    ce.ChildScheduled: ("start",),
    ce.DetachedStart: ("start",),
    ce.SignalSent: ("args", "headers"),
    ce.ChildCompleted: ("result",),
    ce.ChildFailed: ("failure",),
    ev.WorkflowContinuedAsNew: ("args", "memo", "headers"),
    StepAttemptFailed: ("failure",),
    StepCompleted: ("failure", "result", "fields"),
    StepFailed: ("failure", "fields"),
}
#: What one of several values in a field is called, where it is no argument.
_PLACES = {"memo": "memo value", "details": "heartbeat detail", "last_result": "the last result"}
#: Encoding of a failure's message and trace as one payload, on its way through the codecs.
TEXT = "failure"

#: ``(payload, place)`` to what stands there instead; the place is ``"argument 2"``, ``"the failure's detail 1"``.
Swap = Callable[[Payload, str], Payload]
#: What an event's fields belong to (``"activity charge"``), and the names of its parameters.
About = Callable[[ev.Event], tuple[str, Sequence[str]]]

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[str, str]).decode


def map_event(event: E, swap: Swap, names: Sequence[str] = ()) -> E:
    """The same event with every payload swapped, those inside failures included.

    Args:
        event: Stored or plain.
        swap: Called for each payload, always in the same order.
        names: Names of the parameters, for the places of arguments.
    """
    fields = CODED_FIELDS.get(type(event))
    if fields is None:
        return event
    names = getattr(event, "field_names", names)
    return msgspec.structs.replace(
        event, **{name: _map(name, getattr(event, name), swap, names) for name in fields}
    )


def _map(name: str, value: Any, swap: Swap, names: Sequence[str]) -> Any:
    if isinstance(value, Payload):
        return swap(value, _PLACES.get(name, name))
    if isinstance(value, Failure):
        return map_failure(value, swap)
    if isinstance(value, ev.Event):
        return map_event(value, swap, names)
    if value is None:
        return None
    if name == "headers":
        return tuple([ev.Header(one.name, swap(one.value, f"header {one.name!r}")) for one in value])
    if name in _PLACES:
        return tuple(swap(payload, f"{_PLACES[name]} {index}") for index, payload in enumerate(value, 1))
    if name == "fields":
        return tuple(
            swap(payload, f"field {names[index]!r}" if index < len(names) else f"field {index + 1}")
            for index, payload in enumerate(value)
        )
    return tuple(
        swap(payload, f"argument {names[index]!r}" if index < len(names) else f"argument {index + 1}")
        for index, payload in enumerate(value)
    )


def map_failure(failure: Failure, swap: Swap, where: str = "the failure") -> Failure:
    """The same failure with every payload swapped, at every level.

    Message and trace go together as one payload; where the codecs have changed that, it stands in ``coded``.
    """
    text = failure.coded
    if text is None and (failure.message or failure.trace):
        text = Payload(TEXT, _pack((failure.message, failure.trace)))
    message = trace = ""
    if text is not None:
        text = swap(text, f"{where}'s message")
        if text.encoding == TEXT:
            message, trace = _unpack(text.data)
            text = None
    cause = failure.cause
    return msgspec.structs.replace(
        failure,
        message=message,
        trace=trace,
        coded=text,
        details=tuple(
            swap(detail, f"{where}'s detail {number}") for number, detail in enumerate(failure.details, 1)
        ),
        cause=None if cause is None else map_failure(cause, swap, f"{where}'s cause"),
        group=tuple(
            map_failure(member, swap, f"{where}'s member {number}")
            for number, member in enumerate(failure.group, 1)
        ),
    )


def fields_of(event: ev.Event, about: About | None = None) -> list[tuple[str, Payload]]:
    """Every payload of an event with the full name of its place, such as ``"argument 'order' of activity charge"``."""
    found: list[tuple[str, Payload]] = []
    owner, names = about(event) if about is not None else (what(event), ())

    def note(payload: Payload, place: str) -> Payload:
        found.append((f"{place} of {owner}", payload))
        return payload

    map_event(event, note, names)
    return found


def what(event: ev.Event) -> str:
    """What an event's fields belong to, as far as the event alone says it."""
    match event:
        case ev.WorkflowStarted() | ev.WorkflowContinuedAsNew():
            return f"workflow {event.workflow_type}"
        case ev.SignalReceived():
            return f"signal {event.name}"
        case ev.UpdateReceived():
            return f"update {event.name}"
        case ev.ActivityScheduled():
            return f"activity {event.activity_type}"
        case ev.ActivityCompleted() | ev.ActivityFailed() | ev.AttemptFailed() | ev.AttemptNoted():
            return f"the activity of command {event.command}"
        case ev.UpdateCompleted() | ev.UpdateFailed():
            return f"the update of event {event.update}"
        case ev.HandlerFailed():
            return f"the signal of event {event.message}"
        case ev.ValuePublished():
            return f"published key {event.key!r}"
        case ce.ChildScheduled() | ce.DetachedStart():
            return f"workflow {event.start.workflow_type}"
        case ce.SignalSent():
            return f"signal {event.name}"
        case ce.ChildCompleted() | ce.ChildFailed():
            return f"the child of command {event.command}"
        case ev.TaskFailed():
            return f"task {event.task}"
        case ev.SideEffectRecorded():
            return f"the side effect of command {event.command}"
        case CompensationFailed() | CompensationEscalated():
            return f"the compensation of step {event.name}"
        case StepAttemptFailed() | StepCompleted() | StepFailed():
            return f"the step of command {event.command}"
        case _:
            return "the workflow"
