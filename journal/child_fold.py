"""The part of a run's fold that is about other runs: its open children, and its messages on their way.

Changed in place, so that a parent of 10,000 children costs what they cost (R23). Arguments are left out: they have gone
with the message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from . import child_events as ce
from .events import ABANDON

if TYPE_CHECKING:
    from .fold import RunState


class PendingChild(msgspec.Struct, array_like=True, gc=False):
    """A child that is open, as far as its parent knows.

    Attributes:
        workflow_id: Its id.
        run_id: Its first run.
        workflow_type: Its type.
        scheduled_at: When the parent has decided to start it, microseconds.
        close_policy: What the parent's end does to it.
        is_started: The parent has heard that it exists; it asks for that only where it waits for it.
        cancel_requested: The parent has asked it to cancel.
    """

    workflow_id: str
    run_id: str
    workflow_type: str
    scheduled_at: int
    close_policy: int = ce.TERMINATE
    is_started: bool = False
    cancel_requested: bool = False


class PendingMessage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A signal, a request to cancel or a detached start that has not been answered.

    Attributes:
        kind: ``signal``, ``cancel`` or ``start``.
        workflow_id: Where it goes.
        run_id: The run that it is for; empty for the newest.
        name: Of the signal, or of the type that is started.
    """

    kind: str
    workflow_id: str
    run_id: str
    name: str


#: What runs have that have nothing to do with others, which are nearly all: shared, and never changed.
NOTHING: dict[int, Any] = {}


def _scheduled(state: RunState, _number: int, at: int, event: ce.ChildScheduled) -> None:
    start = event.start
    if state.children is NOTHING:
        state.children = {}
    state.children[event.command] = PendingChild(
        start.workflow_id, start.run_id, start.workflow_type, at, event.close_policy
    )


def _started(state: RunState, _number: int, _at: int, event: ce.ChildStarted) -> None:
    child = state.children.get(event.command)
    if child is not None:
        child.is_started = True


def _cancel(state: RunState, _number: int, _at: int, event: ce.ChildCancelRequested) -> None:
    if event.mode == ce.NEVER_SENT:
        state.children.pop(event.command, None)
    elif event.command in state.children:
        state.children[event.command].cancel_requested |= event.mode != ABANDON


def _ended(state: RunState, _number: int, _at: int, event: Any) -> None:
    state.children.pop(event.command, None)


def _sent(state: RunState, command: int, message: PendingMessage) -> None:
    if state.messages is NOTHING:
        state.messages = {}
    state.messages[command] = message


def _detached(state: RunState, _number: int, _at: int, event: ce.DetachedStart) -> None:
    start = event.start
    message = PendingMessage("start", start.workflow_id, start.run_id, start.workflow_type)
    _sent(state, event.command, message)


def _signal(state: RunState, _number: int, _at: int, event: ce.SignalSent) -> None:
    message = PendingMessage("signal", event.workflow_id, event.run_id, event.name)
    _sent(state, event.command, message)


def _cancel_sent(state: RunState, _number: int, _at: int, event: ce.CancelSent) -> None:
    _sent(state, event.command, PendingMessage("cancel", event.workflow_id, event.run_id, ""))


def _answered(state: RunState, _number: int, _at: int, event: ce.MessageDelivered | ce.MessageFailed) -> None:
    state.messages.pop(event.command, None)


#: What each event changes.
APPLY: dict[type, Callable[[RunState, int, int, Any], None]] = {
    ce.ChildScheduled: _scheduled,
    ce.ChildStarted: _started,
    ce.ChildCancelRequested: _cancel,
    **dict.fromkeys(ce.CHILD_ENDS, _ended),
    ce.DetachedStart: _detached,
    ce.SignalSent: _signal,
    ce.CancelSent: _cancel_sent,
    **dict.fromkeys(ce.MESSAGE_ENDS, _answered),
}
