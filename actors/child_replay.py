"""Commands about other runs in replay: what must be equal, and how they are called."""

from __future__ import annotations

from ..journal import child_events as ce
from ..journal import events as ev

#: Those that are numbered at their call.
COMMANDS = (ce.ChildScheduled, ce.DetachedStart, ce.SignalSent, ce.CancelSent)

_HOW = ("", ", waiting until it has ended", ", letting it go on", ", before it was sent off")


def identity(event: ev.Event | None) -> tuple[object, ...]:
    """What must be equal; empty for other events. Whom it is about is a part of what is done."""
    match event:
        case ce.ChildScheduled() | ce.DetachedStart():
            start = event.start
            return (type(event), event.command, start.workflow_type, start.workflow_id)
        case ce.ChildCancelRequested():
            return (type(event), event.command, event.mode)
        case ce.SignalSent():
            return (type(event), event.command, event.workflow_id, event.run_id, event.name)
        case ce.CancelSent():
            return (type(event), event.command, event.workflow_id, event.run_id)
        case _:
            return ()


def describe(event: ev.Event) -> str:
    """The event for people; empty for other events."""
    match event:
        case ce.ChildScheduled():
            start = event.start
            return (
                f"command {event.command}: child workflow {start.workflow_type!r}, id {start.workflow_id!r}"
            )
        case ce.DetachedStart():
            start = event.start
            return f"command {event.command}: a detached {start.workflow_type!r}, id {start.workflow_id!r}"
        case ce.ChildCancelRequested():
            return f"the cancel of child command {event.command}{_HOW[event.mode]}"
        case ce.SignalSent():
            return f"command {event.command}: signal {event.name!r} to workflow {event.workflow_id!r}"
        case ce.CancelSent():
            return f"command {event.command}: the cancel of workflow {event.workflow_id!r}"
        case _:
            return ""
