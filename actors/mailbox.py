"""What can lie in a run's mailbox: events of its journal, and questions, which are never journalled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from ..journal import events as ev
from ..journal.fold import RunState
from ..journal.payloads import Payload

#: Who waits for what comes of a piece of mail.
Reply = asyncio.Future[Any] | None


class UpdateReply(asyncio.Future[Any]):
    """Who waits for an update in two stages.

    Attributes:
        accepted: Done once the update is accepted: its validator has passed it, and it is durable.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.accepted: asyncio.Future[Any] = loop.create_future()
        for future in (self, self.accepted):  # what goes wrong is perhaps never asked for
            future.add_done_callback(_seen)


class ChainReply(asyncio.Future[Any]):
    """Who waits for the end of a chain of runs: goes with the run that follows."""


def _seen(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


class Query(NamedTuple):
    """A query: it is answered between events, in order of arrival."""

    name: str
    args: tuple[Payload, ...]
    headers: tuple[ev.Header, ...] = ()


class Inspection(NamedTuple):
    """A look at the fold, between events; its answer waits until what it has seen is durable."""

    read: Callable[[RunState], Any]


Mail = ev.Event | Query | Inspection

MESSAGES = frozenset([ev.SignalReceived, ev.UpdateReceived])
#: What people do to a run, whatever it does itself: it acts at receipt, before mail that has had no turn.
CONTROLS = frozenset([ev.RunPaused, ev.RunResumed, ev.RunReleased])
URGENT = CONTROLS | {ev.WorkflowTerminated, ev.WorkflowTimedOut}
#: Mail that may come with a request id.
REPEATABLE = MESSAGES | CONTROLS
#: How an activity's attempt ended.
OUTCOMES = frozenset([ev.ActivityCompleted, ev.ActivityFailed, ev.AttemptFailed, ev.ActivityCancelled])
#: Events that are refused when what they are about is over (R3).
FENCED = OUTCOMES | {ev.AttemptNoted, ev.TimerFired}
#: Events that user code sees.
DELIVERED = MESSAGES | {
    ev.WorkflowStarted,
    ev.CancelRequested,
    ev.ActivityCompleted,
    ev.ActivityFailed,
    ev.ActivityCancelled,
    ev.TimerFired,
}
