"""What one commit moves out of the log and purges: written inside the transaction of its append.

The loop's side of it, which decides what that is, is the ``Compactor``.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import msgspec

from .errors import JournalCorruptError
from .facts import Facts, facts_row
from .fault_points import fault_point
from .history_values import SHORT, HistoryCodec, dictionary_row, plain_text
from .purging import Purge
from .run_history import history_entries
from .store import Changes, Entry, Location
from .stored_runs import StoredRun, encode_run
from .tables import DEDUPE, EVENT, NUMBER, PAIR, Table, closed_key, run_range, text_hash

#: Entries and bytes of one value of the histories.
VALUE_ENTRIES = 512
#: So few are never cut: a value may be as large as they make it.
FEW_ENTRIES = 8
VALUE_BYTES = 128 << 10
#: A last value shorter than this is written again with what follows it.
MERGE_BELOW = 2 << 10


class Move(NamedTuple):
    """One run's share of a step, as the loop's side has seen it."""

    key: int
    run: StoredRun
    entries: list[Entry] | None  # None: they are still to be read
    locations: list[Location]
    size: int
    snapshot: bytes | None  # None: it is closed
    wake: int
    wake_before: int
    is_new: bool
    was_open: bool
    requests: list[tuple[bytes, bytes]]


class Step:
    """The changes that go with one commit: called with them inside its transaction.

    Attributes:
        entries: How many entries it moves, for the pace.
        purge: What it purges.
        seals: It seals the current segment.
        drops: It drops the sealed one.
        error: Why it has moved nothing: damage.
        samples: Plain texts of short histories, to train a dictionary on.
    """

    def __init__(self, journal_id: str, codec: HistoryCodec, facts: Facts) -> None:
        self._journal_id = journal_id
        self._codec = codec
        self.facts = facts
        self.moves: list[Move] = []
        self.purge: Purge | None = None
        self.entries = 0
        self.seals = False
        self.drops = False
        self.dictionary: bytes | None = None
        self.clears_requests = False
        self.error: JournalCorruptError | None = None
        self.samples: list[bytes] = []

    def __call__(self, changes: Changes) -> None:
        """Write it all (writer thread)."""
        try:
            histories, outdated = self._histories(changes)
        except JournalCorruptError as error:
            self.error = (
                error  # the commit must not fail for it: nothing is moved, everything stays where it is
            )
            return
        try:
            self._write(changes, histories, outdated)
        except JournalCorruptError as error:
            self.error = error
            raise

    def _write(self, changes: Changes, histories: list[tuple[bytes, bytes]], outdated: list[bytes]) -> None:
        fault_point("compaction.before")
        # In every table in the order of the keys: neighbours are on one page.
        changes.delete(Table.HISTORIES, outdated)
        changes.put(Table.HISTORIES, histories)
        self._runs(changes)
        if self.clears_requests:
            changes.clear(DEDUPE[self.facts.generation])
        requests = [request for move in self.moves for request in move.requests]
        if requests:
            changes.put(DEDUPE[self.facts.generation], sorted(requests))
        if self.purge is not None:
            self.facts = msgspec.structs.replace(self.facts, purging=self.purge(changes))
        facts = [facts_row(self.facts)]
        if self.dictionary is not None:
            facts.append(dictionary_row(self.facts.dictionary, self.dictionary))
        changes.put(Table.FACTS, facts)
        if self.drops:
            changes.drop_sealed()
        if self.seals:
            changes.seal()
        fault_point("compaction.written")

    def _histories(self, changes: Changes) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        """The new values of the histories, and the keys of those that they replace."""
        unread = [location for move in self.moves if move.entries is None for location in move.locations]
        read = iter(changes.read(unread))
        values: list[tuple[bytes, bytes]] = []
        outdated: list[bytes] = []
        encode = self._codec.encode
        for move in self.moves:
            new = list(islice(read, move.size)) if move.entries is None else move.entries
            if not move.is_new:
                last = changes.last(Table.HISTORIES, *run_range(move.key))
                same_key = EVENT.pack(move.key, new[0].first_event)
                if last is not None and (len(last[1]) < MERGE_BELOW or last[0] == same_key):
                    new = history_entries(changes, self._codec, *last) + new
                    outdated.append(last[0])
            for part in _parts(new) if len(new) > FEW_ENTRIES else (new,):
                plain = plain_text(part)
                if len(plain) <= SHORT:
                    self.samples.append(plain)
                values.append((EVENT.pack(move.key, part[0].first_event), encode(plain)))
        return values, outdated

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
            key = NUMBER.pack(move.key)
            run = move.run
            runs.append((key, encode_run(run)))
            if move.is_new:
                ids.append((text_hash(self._journal_id, run.workflow_id) + key, run.run_id.encode()))
            if move.snapshot is not None:
                opened.append((key, move.snapshot))
            else:
                kind = kinds.get(run.workflow_type)
                if kind is None:
                    kind = kinds[run.workflow_type] = text_hash(self._journal_id, run.workflow_type)
                closed.append((closed_key(kind, run.closed_at, move.key), b""))
                if move.was_open:
                    not_open.append(key)
            if move.wake != move.wake_before:
                if move.wake_before:
                    not_due.append(PAIR.pack(move.wake_before, move.key))
                if move.wake:
                    due.append((PAIR.pack(move.wake, move.key), b""))
        changes.put(Table.RUNS, runs)
        changes.put(Table.IDS, sorted(ids))
        changes.put(Table.OPEN, opened)
        changes.delete(Table.OPEN, not_open)
        changes.put(Table.CLOSED, sorted(closed))
        changes.delete(Table.DUE, not_due)
        changes.put(Table.DUE, sorted(due))


def _parts(entries: list[Entry]) -> list[list[Entry]]:
    """Cut a run's entries into pieces of the size of a value."""
    if len(entries) <= VALUE_ENTRIES and sum(len(entry.body) for entry in entries) <= VALUE_BYTES:
        return [entries]
    parts: list[list[Entry]] = []
    size = VALUE_BYTES
    for entry in entries:
        full = size >= VALUE_BYTES or len(parts[-1]) >= VALUE_ENTRIES
        # Turns that only deliver have no events: several entries may begin with the same one, which is a value's key.
        if full and not (parts and parts[-1][0].first_event == entry.first_event):
            parts.append([])
            size = 0
        parts[-1].append(entry)
        size += len(entry.body)
    return parts
