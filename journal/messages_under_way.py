"""The messages of a journal that no run has received yet: on their way, or put aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from . import events as ev
from .errors import JournalCorruptError
from .outbox import (
    HALF_APPLIED,
    Aside,
    Damaged,
    Taken,
    aside_message,
    facts_of,
    put_aside,
    taken_of,
    whole_row,
)
from .run_messages import Answer, RunMessage, StartRun, ToRun, decode_message
from .store import JournalStore, Tables
from .tables import PAIR, Table


class UnderWay(NamedTuple):
    """A message that no run has received yet.

    Attributes:
        sequence: Its number.
        source: Number of the shard that has sent it.
        is_aside: It was put aside.
        run_key: The run that has sent it; 0 when that is not known.
        body: What it says; None when it cannot be read.
        error: Why not, or why nobody takes it in; empty for one that will be received.
    """

    sequence: int
    source: int
    is_aside: bool
    run_key: int
    body: RunMessage | None
    error: str = ""

    @property
    def receiver(self) -> tuple[str, str]:
        """Workflow id and run id that it is for; no run id is the newest one."""
        match self.body:
            case None:
                return "", ""
            case StartRun():
                return self.body.started.workflow_id, self.body.started.run_id
            case ToRun() | Answer():
                return self.body.workflow_id, self.body.run_id

    @property
    def what(self) -> str:
        """What it is, in words."""
        match self.body:
            case None:
                return "unreadable"
            case StartRun(started):
                return f"start of a {started.workflow_type}"
            case ToRun(event=ev.SignalReceived(name)):
                return f"signal {name!r}"
            case ToRun(event=ev.CancelRequested()):
                return "cancel"
            case ToRun(event=ev.WorkflowTerminated()):
                return "terminate"
            case ToRun() | Answer():
                return type(self.body.event).__name__

    def __str__(self) -> str:
        place = "put aside" if self.is_aside else "on its way"
        if self.body is None:
            return f"message {self.sequence}, {place}, cannot be read: {self.error}"
        sender = f" from run {self.run_key}" if self.run_key else ""
        error = f": {self.error}" if self.error else ""
        return f"message {self.sequence}, {place}: {self.what} for {self.receiver[0]!r}{sender}{error}"


def messages_under_way(store: JournalStore) -> Iterator[UnderWay]:
    """Yield the messages of a journal in the order in which they will be received: those put aside come first."""
    with store.view() as tables:
        aside = put_aside(tables)
    for one in aside:
        yield _under_way(one, is_aside=True)
    taken: dict[int, Taken] = {}
    for key, row in store.rows(Table.OUTBOX):
        if len(key) != PAIR.size:
            continue  # no message
        shard, sequence = PAIR.unpack(key)
        if shard not in taken:
            taken[shard] = _taken(store, shard)
        if sequence not in taken[shard]:
            yield _under_way(Aside(shard, sequence, row), is_aside=False)


def _taken(store: JournalStore, shard: int) -> Taken:
    try:
        with store.view() as tables:
            return taken_of(tables, shard)
    except (
        JournalCorruptError
    ):  # a damaged page, which is named elsewhere: what is in the outbox may be on its way
        return Taken(0)


def _under_way(found: Aside, *, is_aside: bool) -> UnderWay:
    if (whole := whole_row(found)) is not None:
        return _under_way(whole, is_aside=is_aside)._replace(error=HALF_APPLIED)
    message = aside_message(found)
    if isinstance(message, Damaged):
        return UnderWay(found.sequence, found.source, is_aside, 0, None, str(message.error))
    try:
        body = decode_message(message.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return UnderWay(found.sequence, found.source, is_aside, message.run_key, None, str(error))
    return UnderWay(found.sequence, found.source, is_aside, message.run_key, body)


def outbox_state(tables: Tables) -> object:
    """What changes whenever a message is sent, received or put aside."""
    try:
        last = next(tables.scan(Table.OUTBOX, reverse=True), None)
    except JournalCorruptError:
        last = None
    return facts_of(tables), last and last[0]
