"""What one commit moves out of the log and purges: written inside the transaction of its append.

The loop's side of it, which decides what that is, is the ``Compactor``.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from .blobs import Spiller
from .facts import Facts, facts_row
from .fault_points import fault_point
from .history_values import mend_dictionaries, write_dictionary
from .new_history import NewHistory
from .purging import Purge
from .read_ahead import ReadAhead
from .snapshots import finish_open
from .store import Changes
from .stored_runs import StoredRun, encode_run
from .tables import DEDUPE, NUMBER, PAIR, Table, closed_key, text_hash

#: A commit waits at most so long for what is read ahead, in seconds.
LONGEST_WAIT = 0.005


class Move(NamedTuple):
    """One run's share of a step, as the loop's side has seen it."""

    history: NewHistory
    run: StoredRun
    snapshot: bytes | None  # a draft of it; None: it is closed
    wake: int
    wake_before: int
    is_new: bool
    was_open: bool
    requests: list[tuple[bytes, bytes]]


class Step:
    """The changes that go with one commit: called with them inside its transaction.

    Attributes:
        purge: What it purges.
        seals: It seals the current segment.
        drops: It drops the sealed one.
        waits_for: It waits for this a while, so that more is not appended than can be moved.
        error: What has failed the commit: damage, or what came up in it.
    """

    def __init__(self, journal_id: str, facts: Facts) -> None:
        self._journal_id = journal_id
        self._spiller = Spiller(journal_id)
        self.facts = facts
        self.moves: list[Move] = []
        self.purge: Purge | None = None
        self.seals = False
        self.drops = False
        self.waits_for: ReadAhead | None = None
        self.dictionary: bytes | None = None
        self.clears_requests = False
        self.error: Exception | None = None

    def __call__(self, changes: Changes) -> None:
        """Write it all (writer thread)."""
        if self.waits_for is not None:
            self.waits_for.done.wait(LONGEST_WAIT)
        try:
            self._write(changes)
        except Exception as error:
            self.error = error
            raise

    def _write(self, changes: Changes) -> None:
        fault_point("compaction.before")
        # In every table in the order of the keys: neighbours are on one page.
        histories = [move.history for move in self.moves]
        changes.delete(Table.HISTORIES, [new.outdated for new in histories if new.outdated is not None])
        changes.put(Table.HISTORIES, [value for new in histories for value in new.values])
        self._runs(changes)
        if self.clears_requests:
            changes.clear(DEDUPE[self.facts.generation])
        requests = [request for move in self.moves for request in move.requests]
        if requests:
            changes.put(DEDUPE[self.facts.generation], sorted(requests))
        if self.purge is not None:
            self.facts = msgspec.structs.replace(self.facts, purging=self.purge(changes))
        changes.put(Table.FACTS, [facts_row(self.facts)])
        if self.dictionary is not None:
            write_dictionary(changes, self.facts.dictionary, self.dictionary)
        if self.drops:
            changes.drop_sealed()
        if self.seals:
            changes.seal()
            mend_dictionaries(changes, self.facts.dictionary)  # now and then: it is a read for each
        fault_point("compaction.written")

    def _runs(self, changes: Changes) -> None:
        runs: list[tuple[bytes, bytes]] = []
        ids: list[tuple[bytes, bytes]] = []
        opened: list[tuple[bytes, bytes]] = []
        not_open: list[bytes] = []
        closed: list[tuple[bytes, bytes]] = []
        due: list[tuple[bytes, bytes]] = []
        not_due: list[bytes] = []
        kinds: dict[str, bytes] = {}
        for move in self.moves:
            number = move.history.key
            key = NUMBER.pack(number)
            run = move.run
            runs.append((key, encode_run(run)))
            if move.is_new:
                ids.append((text_hash(self._journal_id, run.workflow_id) + key, run.run_id.encode()))
            if move.snapshot is not None:
                opened.append((key, finish_open(move.snapshot, self._spiller)))
            else:
                kind = kinds.get(run.workflow_type)
                if kind is None:
                    kind = kinds[run.workflow_type] = text_hash(self._journal_id, run.workflow_type)
                closed.append((closed_key(kind, run.closed_at, number), b""))
                if move.was_open:
                    not_open.append(key)
            if move.wake != move.wake_before:
                if move.wake_before:
                    not_due.append(PAIR.pack(move.wake_before, number))
                if move.wake:
                    due.append((PAIR.pack(move.wake, number), b""))
        changes.put(Table.RUNS, runs)
        changes.put(Table.IDS, sorted(ids))
        changes.put(Table.OPEN, opened)
        changes.delete(Table.OPEN, not_open)
        changes.put(Table.CLOSED, sorted(closed))
        changes.delete(Table.DUE, not_due)
        changes.put(Table.DUE, sorted(due))
