"""What the modules of events share: their root, and the first event of every run."""

from __future__ import annotations

import msgspec

from .payloads import Payload


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
    """The run exists. Always event 1."""

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

    @property
    def parent_id(self) -> str:
        """Workflow id of its parent; empty when it is nobody's child."""
        return "" if self.parent is None else self.parent.workflow_id
