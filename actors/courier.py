"""The receiver's side of messages from run to run (R15): durable ones are taken in, in order, each once.

To take a message in is to journal what its run receives, in the transaction that says that the message is taken in. No
code of users runs here: it has its turns afterwards, as with everything that was received first (R1).

A run that cannot take anything in just now (what a turn of it decided is on its way through slow payload codecs) has
its messages kept back, in order, and holds up nobody else's. Those for a run that is damaged are also *put aside* in
the journal, as is what cannot be read: the outbox empties, and they are tried again, now and then and at each start.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from ..journal.errors import JournalCorruptError, JournalError
from ..journal.fault_points import fault_point
from ..journal.outbox import (
    Aside,
    Damaged,
    Message,
    Post,
    Taken,
    aside_message,
    broken_off,
    put_aside,
    row_of,
    taken_of,
)
from ..journal.run_messages import StartRun, decode_message
from .receiving import NotNowError, Receiving
from .sending import post_of

if TYPE_CHECKING:
    from .shard import Shard

log = logging.getLogger("everact.runtime")

#: Messages taken in before others have a turn.
SLICE = 500
#: Messages read from the journal at a time.
READ = 1000
#: Pause before messages that were kept back, or could not be looked at, are tried again, in seconds.
PAUSE = 0.01
LONG_PAUSE = 0.5


class Courier:
    """Takes in what runs send to runs of this shard; belongs to the loop's thread."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._receiving = Receiving(shard)
        self._waiting: deque[Message | Damaged] = deque()
        self._kept: dict[str, deque[Message]] = {}
        self._damaged: set[str] = set()
        self._aside: set[int] = set()
        self._read_to = 0
        self._is_behind = False
        self._is_stopped = False
        self._is_blocked = False
        self._taken = Taken(0)
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin with what the journal holds: at a start, and after a failed commit."""
        self._cancel_timer()
        self._is_blocked = False
        self._waiting.clear()
        self._kept.clear()
        self._damaged.clear()
        self._receiving.forget()
        with self._shard.store.view() as tables:
            self._taken = taken_of(tables, self._shard.number)
            aside = put_aside(tables)
        self._aside = {one.sequence for one in aside}
        self._waiting.extend(map(aside_message, aside))  # first: nothing for their runs was taken in since
        self._read_to = self._taken.watermark
        self._is_behind = True
        self._read()

    def stop(self) -> None:
        """Take nothing in any more: the journal keeps it."""
        self._is_stopped = True
        self._cancel_timer()

    @property
    def is_ready(self) -> bool:
        """Whether there is something to take in at once."""
        return bool(self._waiting or self._is_behind) and not (self._is_blocked or self._is_stopped)

    def committed(self, post: Post) -> None:
        """What a commit has changed in the outbox is durable."""
        shard = self._shard
        shard.outbox.acknowledged(post.senders)
        if post.taken:
            fault_point("courier.applied", self)
        if not self._is_behind:
            for message in post.sent:
                if message.destination == shard.number and message.sequence > self._read_to:
                    self._read_to = message.sequence
                    self._waiting.append(message)
        shard.go_on()

    def _read(self) -> None:
        """Read the next messages of those that were sent before this object knew of them."""
        found = self._shard.outbox.pending(self._shard.number, self._read_to, READ)
        self._is_behind = len(found) == READ
        for message in found:
            self._read_to = message.sequence
            if message.sequence not in self._taken:
                self._waiting.append(message)

    # --- taking in

    def work(self) -> None:
        """Take in some of what there is; called in the pump, before runs have their turns."""
        if not self._waiting and self._is_behind:
            self._read()
        self._work(SLICE)
        if self._kept and self._timer is None:
            self._try_later(LONG_PAUSE if self._kept.keys() <= self._damaged else PAUSE)

    def take_kept(self, workflow_id: str) -> None:
        """Take in what was kept back for the runs of an id, now that one can take it."""
        kept = self._kept.pop(workflow_id, None)
        if kept and not self._is_stopped:
            self._waiting.extendleft(reversed(kept))
            self._work(len(kept))

    def _work(self, count: int) -> None:
        waiting = self._waiting
        for _ in range(count):
            if not waiting:
                break
            message = waiting.popleft()
            try:
                self._take(message)
            except (JournalError, OSError) as error:  # a hiccup of the store says nothing about the message
                waiting.appendleft(message)
                log.error("messages between runs wait, the journal cannot be read just now: %s", error)  # noqa: TRY400
                self._is_blocked = True
                self._cancel_timer()
                self._try_later(LONG_PAUSE)
                break
        self._receiving.flush()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _try_later(self, seconds: float) -> None:
        if not self._is_stopped:
            self._timer = self._shard.loop.call_later(seconds, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        self._is_blocked = False
        kept, self._kept = self._kept, {}
        for messages in reversed(kept.values()):
            self._waiting.extendleft(reversed(messages))
        self._shard.go_on()

    def _take(self, message: Message | Damaged) -> None:
        """Take one message in: it is applied, refused, kept back or put aside."""
        if isinstance(message, Damaged):
            self._put_aside(message.sequence, message.row, message.error)
            return
        fault_point("courier.take.before", self)
        workflow_id = ""
        try:
            body = decode_message(message.body)
            workflow_id = body.started.workflow_id if isinstance(body, StartRun) else body.workflow_id
            if workflow_id in self._kept:
                self._keep(message, workflow_id)
                return
            self._receiving.take(message, body, self._kept)
        except NotNowError:
            self._keep(message, workflow_id)
        except JournalCorruptError as error:  # of that run, which keeps nobody else's out
            if workflow_id not in self._damaged:
                self._damaged.add(workflow_id)
                text = (
                    "messages to workflow %r are put aside in the journal, it is damaged "
                    "(`everact journal verify` names all of it): %s"
                )
                log.error(text, workflow_id, error)  # noqa: TRY400  (the message says it all)
            self._keep(message, workflow_id)
        except (JournalError, OSError):
            raise
        except Exception as error:  # noqa: BLE001  (undecodable, or ours: the others go on)
            row = row_of(message.run_key, message.body)
            if workflow_id:  # perhaps a part of it was applied: no start may take it in again
                row = broken_off(row)
            self._put_aside(message.sequence, row, error, message.run_key)
        else:
            self._damaged.discard(workflow_id)
            self._is_taken(message)

    def _is_taken(self, message: Message) -> None:
        shard = self._shard
        post = post_of(shard, shard.writer.open)
        if message.sequence in self._aside:  # its number was, long ago
            self._aside.discard(message.sequence)
            post.resumed.append((shard.number, message.sequence))
        else:
            post.taken.setdefault(shard.number, []).append(message.sequence)
            post.senders.append(message.run_key)

    def _keep(self, message: Message, workflow_id: str) -> None:
        """Keep a message back for later; also in the journal when nobody knows how much later."""
        self._kept.setdefault(workflow_id, deque()).append(message)
        if workflow_id in self._damaged and message.sequence not in self._aside:
            self._write_aside(message.sequence, row_of(message.run_key, message.body), message.run_key)

    def _put_aside(self, sequence: int, row: bytes, error: Any, run_key: int | None = None) -> None:
        """A message that cannot be read is nobody's: it is kept for people, and the others go on."""
        log.error(
            "message %d between runs cannot be taken in, and is put aside in the journal "
            "(`everact journal messages` shows it): %s: %s",
            sequence,
            type(error).__name__,
            error,
        )
        if sequence not in self._aside:
            self._write_aside(sequence, row, run_key)

    def _write_aside(self, sequence: int, row: bytes, run_key: int | None) -> None:
        shard = self._shard
        self._aside.add(sequence)
        post = post_of(shard, shard.writer.open)
        post.taken.setdefault(shard.number, []).append(sequence)
        post.aside.append(Aside(shard.number, sequence, row))
        if run_key is not None:
            post.senders.append(run_key)
