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


class Query(NamedTuple):
    """A query: it is answered between events, in order of arrival."""

    name: str
    args: tuple[Payload, ...]


class Inspection(NamedTuple):
    """A look at the fold, between events; its answer waits until what it has seen is durable."""

    read: Callable[[RunState], Any]


Mail = ev.Event | Query | Inspection

MESSAGES = frozenset([ev.SignalReceived, ev.UpdateReceived])
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
