"""A journal that cannot be opened just now: no room even for a new epoch, or a disk that is read-only."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..journal.errors import JournalAccessError, JournalFullError
from ..journal.writer import Raise, settle
from .mailbox import OUTCOMES

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor

log = logging.getLogger("everact.runtime")


class Outage:
    """Whether a shard is without its journal; nobody is left to wait for the end of that.

    Args:
        path: The journal.

    Attributes:
        cause: Why it could not be opened, or None while it is open.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.cause: JournalAccessError | None = None

    def begin(self, cause: JournalAccessError, actors: Iterable[WorkflowActor]) -> None:
        """The journal could not be opened (once more): callers whose mail waits get an error, and it is dropped."""
        if self.cause is None:
            log.critical("the journal cannot be opened again just now, it is tried until it can: %s", cause)
        self.cause = cause
        for actor in actors:
            mailbox = actor.mailbox
            waiting = [] if actor.coding is None else actor.coding.drop_callers()
            waiting += [mail for mail in (*mailbox, *actor.early) if mail[1] is not None]
            actor.early.clear()
            kept = [mail for mail in mailbox if mail[1] is None]
            mailbox.clear()
            mailbox.extend(kept)
            for event, reply in waiting:
                assert reply is not None
                # How an attempt has ended is kept: it is in the run's ``outcomes``, and is written in the end.
                is_kept = type(event) in OUTCOMES
                settle(reply, Raise(actor.shard.writer.unknown() if is_kept else self.error()))

    def end(self) -> None:
        """The journal is open."""
        if self.cause is not None:
            self.cause = None
            log.warning("the journal %r is open again", self._path)

    def error(self) -> JournalAccessError:
        """What callers get meanwhile."""
        cause = self.cause
        if isinstance(cause, JournalFullError):
            return JournalFullError(*cause.args)
        error = JournalAccessError(
            f"the journal {self._path!r} cannot be opened just now; nothing was written. It is tried again by itself: "
            f"{cause}"
        )
        error.__cause__ = cause
        return error
