"""Take runs out of a journal as JSON documents, and with them the messages that are on their way between runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from .lmdb_salvage import past_damage
from .message_document import message_document
from .messages_under_way import UnderWay, messages_under_way, outbox_state
from .run_check import RunCheck
from .run_document import document_of
from .run_examination import examine
from .run_walk import FoundRun, RunWalk
from .salvage import Damage, Progress
from .store import JournalStore


class LeftOut(NamedTuple):
    """A run that was not exported, because its events are not all whole.

    Attributes:
        run_key: Its internal number.
        workflow_id: Its workflow id; empty when it is not known.
        run_id: Its run id; empty when it is not known.
        reason: What is wrong with it first.
    """

    run_key: int
    workflow_id: str
    run_id: str
    reason: str

    def __str__(self) -> str:
        known = f" ({self.workflow_id!r}, {self.run_id})" if self.run_id else ""
        return f"run {self.run_key}{known}: {self.reason}"


def export_runs(
    store: JournalStore,
    ids: Collection[str] = (),
    *,
    left_out: Callable[[LeftOut], object],
    damaged: Callable[[Damage], object],
    moved: Callable[[], object],
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the runs that are whole as documents of plain JSON values, and then what they have sent each other.

    What ``import_runs`` makes of one is exported as the same document again; see ``run_document`` and
    ``message_document`` for their form. Each run is as it is when it is read; those that start after the first step are
    not part of it. Messages are those that no run has received yet, put aside or not.

    Args:
        store: The journal.
        ids: Workflow ids and run ids of the runs that are wanted, and of senders and receivers of messages; all
            without any.
        left_out: Called for each of these runs that is damaged.
        damaged: Called for commit records, pages and messages that cannot be read, whatever is wanted.
        moved: Called at the end if open runs were sent messages meanwhile, so that one may be in two of the documents,
            or in none.
        progress: Called with what is done and all there is to do: commit records, then runs.
    """
    with past_damage(store) as (readable, pages):
        for damage in pages:
            damaged(damage)
        with readable.view() as tables:
            before = outbox_state(tables)
        has_open = False
        walk = RunWalk(readable, damaged, progress)
        wanted = (lambda row: row.workflow_id in ids or row.run_id in ids) if ids else None
        for key in walk.run_keys(wanted):
            found, check, reason = _examined(walk, key)
            started = check.started
            named = started or found.row
            names = (named.workflow_id, named.run_id) if named is not None else ("", "")
            # Without any name a damaged run may be one of those that are wanted.
            if found.is_gone or (ids and any(names) and not any(name in ids for name in names)):
                continue
            if reason or started is None:
                left_out(LeftOut(key, *names, reason))
                continue
            has_open |= not check.is_closed
            yield document_of(started, [entry for _, entry in found.entries])
        yield from _messages(walk, ids, damaged)
        with readable.view() as tables:
            if has_open and outbox_state(tables) != before:
                moved()


def _messages(
    walk: RunWalk, ids: Collection[str], damaged: Callable[[Damage], object]
) -> Iterator[dict[str, Any]]:
    @lru_cache(maxsize=10_000)
    def names(run_key: int) -> tuple[str, str] | None:
        """Workflow id and run id of a sender; None when it is not known (any more)."""
        found, check, _ = _examined(walk, run_key)
        named = check.started or found.row
        return None if named is None else (named.workflow_id, named.run_id)

    for message in messages_under_way(walk.store):
        if message.body is None or message.error:
            damaged(Damage(0, 0, f"message {message.sequence}: {message.error}", _table_of(message)))
            continue
        sender = names(message.run_key) if message.run_key else None
        if not ids or any(name in ids for name in (*(sender or ()), *message.receiver)):
            yield message_document(sender, message.body)


def _table_of(message: UnderWay) -> str:
    return "facts" if message.is_aside else "outbox"


def _examined(walk: RunWalk, key: int) -> tuple[FoundRun, RunCheck, str]:
    """A run, what its events are, and why they are not all whole."""
    while True:
        found = walk.look(key)
        examined = examine(found, walk.spiller)
        check = examined.check
        if check.is_whole:
            return found, check, ""
        if not walk.has_moved_on():  # else a writer may have been between what was read of it
            events = [fault.message for fault in examined.faults if fault.event]
            return found, check, next(iter(events), "its events are not all whole")
