"""Whether a journal takes new work (R22): starts and messages stop before the room for work under way is used up.

Counting what comes in only says when to look; decided is on what the store finds then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..journal import events as ev
from ..journal.clock import Clock
from ..journal.errors import JournalError
from ..journal.payloads import total_size
from ..journal.space import SpaceLimits, Spare
from ..journal.store import Entry, JournalStore
from .mailbox import Mail

if TYPE_CHECKING:
    from .shard import Shard
    from .workflow_actor import WorkflowActor

log = logging.getLogger("everact.runtime")

#: The room is looked at again at least this often while there is traffic, or while it is short, in seconds.
CHECK_EVERY = 1.0
#: Bytes that a message or a start takes beside its arguments: its event and entry, its pages in the journal's tree.
OVERHEAD = 512
#: From this share of the reserve on, a result is only written when there is room for it, ...
LARGE_SHARE = 16
#: ... and then leaves this share to small events.
SMALL_EVENTS_SHARE = 4
#: So many bytes may come in before the room is looked at again, however little is left.
LEAST_STRIDE = 64 << 10


class Intake:
    """The gate of one journal; belongs to the loop's thread.

    Attributes:
        full: What is scarce, while nothing new is taken; else None.
        large: Results of more bytes than this must ask whether there is room.
    """

    def __init__(
        self,
        store: JournalStore,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        limits: SpaceLimits,
        undurable: Callable[[], int],
    ) -> None:
        """Begin; the first use looks at the room.

        Args:
            store: The open journal.
            loop: Its loop.
            clock: Where time comes from.
            limits: What the user allows.
            undurable: How many bytes have been taken in and are not in the store yet.
        """
        self._store = store
        self._loop = loop
        self._clock = clock
        self._limits = limits
        self._undurable = undurable
        self._came_in = 0
        self._stride = 0
        self._next = 0.0  # nothing has been looked at yet
        self._kept: dict[tuple[int, int], tuple[WorkflowActor, ev.ActivityCompleted]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.full: Spare | None = None
        self.large = 0

    def admit(self, size: int) -> None:
        """Let a new start or message in.

        Args:
            size: Bytes of its arguments.

        Raises:
            JournalFullError: There is no room for it; nothing was written.
        """
        size += OVERHEAD
        self._came_in += size
        if self.full is not None or self._came_in > self._stride or self._clock.steady() >= self._next:
            spare = self.check()
            if self.full is not None:
                raise self.full.error(self._store.path)
            if spare is not None and size > spare.bytes:
                raise spare.error(self._store.path, size)

    def committed(self, entries: Iterable[Entry]) -> None:
        """Take note of a durable commit."""
        self._came_in += sum([len(entry.body) for entry in entries])
        if self._timer is not None or self._came_in > self._stride or self._clock.steady() >= self._next:
            self.check()

    def check(self) -> Spare | None:
        """Look at the room; stop intake, or begin it again.

        Returns:
            What is spare; None when the store cannot say just now: then everything stays as it is.
        """
        self._next = self._clock.steady() + CHECK_EVERY
        found = self._look()
        spare = found[0] if found is not None else None
        if spare is not None:
            self.large = spare.reserve // LARGE_SHARE
            self._came_in, self._stride = 0, max(LEAST_STRIDE, spare.bytes // 4)
            if self.full is None and spare.bytes <= 0:
                self.full = spare
                log.warning("no new starts, signals and updates: %s", spare.error(self._store.path))
            elif self.full is not None and spare.bytes > spare.slack:
                self.full = None
                text = "the journal %r has room again, %s bytes: new starts, signals and updates are taken"
                log.warning(text, self._store.path, f"{spare.bytes:,}")
            elif self.full is not None:
                self.full = spare
        self._give_back()
        if self._timer is None and (self.full is not None or self._kept):
            self._timer = self._loop.call_later(CHECK_EVERY, self._due)
        return spare

    def _look(self) -> tuple[Spare, int] | None:
        """What is spare, and the room for work under way, when all that is on its way to the store is there."""
        try:
            space = self._store.space()
        except JournalError:
            return None  # it is being opened again, or closed
        coming = self._undurable()
        spare = self._limits.spare(space)
        return spare._replace(left=max(0, spare.left - coming)), self._limits.room(space) - coming

    def _due(self) -> None:
        self._timer = None
        self.check()

    # --- large results

    def keeps(self, actor: WorkflowActor, event: ev.ActivityCompleted) -> bool:
        """Whether a large result must wait, in memory, for room: in a commit it would take the others with it."""
        if self._has_room(len(event.result.data)):
            return False
        if (actor.key, event.command) not in self._kept:
            log.warning(
                "workflow %r: the journal has no room for the result of activity command %d (%s bytes); it waits in "
                "memory, and the activity runs again if this process ends before there is room",
                actor.workflow_id,
                event.command,
                f"{len(event.result.data):,}",
            )
        self._kept[actor.key, event.command] = actor, event
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_EVERY, self._due)
        return True

    def _has_room(self, size: int) -> bool:
        found = self._look()
        return found is None or size + found[0].reserve // SMALL_EVENTS_SHARE <= found[1]

    def _give_back(self) -> None:
        for key, (actor, event) in list(self._kept.items()):
            if actor.outcomes.get(event.command) is not event:
                del self._kept[key]  # nobody wants it any more, or a rebuild has put it into the mailbox
            elif self._has_room(len(event.result.data)):
                del self._kept[key]
                actor.put(event)

    def close(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._kept.clear()


def coming(shard: Shard) -> int:
    """Bytes that a shard has taken in and that are not in its store yet."""
    waiting = sum(_size_of(mail) for actor in shard._ready for mail, _reply in actor.mailbox)
    if shard.writer.error is not None:  # the results that went down with a commit will come again
        waiting += sum(
            _size_of(event) for actor in shard.actors.values() for event in actor.outcomes.values()
        )
    if shard.coder is not None:
        waiting += shard.coder.encoding
    return shard.writer.undurable_bytes + waiting


def _size_of(mail: Mail) -> int:
    """Bytes that a piece of mail will take in the journal, as far as they are the caller's."""
    if isinstance(mail, ev.WorkflowStarted | ev.SignalReceived | ev.UpdateReceived):
        memo = mail.memo if isinstance(mail, ev.WorkflowStarted) else ()
        return OVERHEAD + total_size(mail.args) + total_size(memo)
    if isinstance(mail, ev.AttemptNoted):
        return OVERHEAD + total_size(mail.details)
    if isinstance(mail, ev.ActivityCompleted):
        return OVERHEAD + len(mail.result.data)
    return 0
