"""What the modules of events share: their root, the first event of every run, what travels beside arguments."""

from __future__ import annotations

from typing import Any

import msgspec

from .failures import Failure
from .payloads import Payload
from .run_chain import ChainRecord, StartRecord


class Event(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of all events."""


class Header(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What interceptors hand on beside the arguments of a call, by name."""

    name: str
    value: Payload


class ParentRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Which run has started this one as its child, and by which command."""

    workflow_id: str
    run_id: str
    command: int


class WorkflowStarted(Event, tag="ws", frozen=True):
    """The run exists. Always event 1.

    ``chain`` is there when another run came before. Its code does not run before ``begins_at`` unless that is 0;
    ``last_result`` and ``last_failure`` are what the runs before have left.
    """

    workflow_id: str
    run_id: str
    workflow_type: str
    args: tuple[Payload, ...] = ()
    request_id: str = ""
    digest: bytes = b""
    memo_names: tuple[str, ...] = ()
    memo: tuple[Payload, ...] = ()
    headers: tuple[Header, ...] = ()
    parent: ParentRecord | None = None
    options: StartRecord | None = None
    chain: ChainRecord | None = None
    begins_at: int = 0
    last_result: Payload | None = None
    last_failure: Failure | None = None

    @property
    def parent_id(self) -> str:
        """Workflow id of its parent; empty when it is nobody's child."""
        return "" if self.parent is None else self.parent.workflow_id


def event_fields(event: Event) -> dict[str, Any]:
    """Return an event's fields by name, for people and exports."""
    return {name: getattr(event, name) for name in event.__struct_fields__}
