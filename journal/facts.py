"""What the tables say about themselves: one row, changed with each step of compaction."""

from __future__ import annotations

import msgspec

from .errors import JournalCorruptError
from .row_checksum import sealed, unsealed
from .store import Tables
from .tables import Table

_KEY = b"facts"


class Facts(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Facts about the tables of a journal.

    Attributes:
        highest_key: The highest run key in the tables.
        compacted_to: Of the sealed segment, entries of runs with keys up to this one are in the tables.
        counts: How many runs the table of runs has, by type and status; 0 of those that it had.
        dictionary: Number of the newest dictionary; 0 is none.
        trained_at: How many runs there were when it was trained.
        generation: Which table of request ids is written to, 0 or 1.
        generation_since: Since when, microseconds.
        generation_size: How many request ids it has.
        early: Runs that were moved before their segment was sealed: it may repeat what the histories have of them.
        early_before: The same for the sealed segment.
        purging: Runs that are gone, but for histories that are still to be deleted.
    """

    highest_key: int = 0
    compacted_to: int = 0
    counts: list[tuple[str, str, int]] = []
    dictionary: int = 0
    trained_at: int = 0
    generation: int = 0
    generation_since: int = 0
    generation_size: int = 0
    early: list[int] = []
    early_before: list[int] = []
    purging: list[int] = []

    def by_type_and_status(self) -> dict[tuple[str, str], int]:
        """How many runs the table of runs has."""
        return {(kind, status): number for kind, status, number in self.counts}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Facts).decode


def read_facts(tables: Tables) -> Facts:
    """Read the facts of a journal; a new one has the defaults.

    Raises:
        JournalCorruptError: They are damaged.
    """
    row = tables.get(Table.FACTS, _KEY)
    if row is None:
        return Facts()
    try:
        return _decode(unsealed(row))
    except (JournalCorruptError, msgspec.MsgspecError) as error:
        raise JournalCorruptError(f"the facts about the tables cannot be read: {error}") from error


def facts_row(facts: Facts) -> tuple[bytes, bytes]:
    """The row that holds the facts."""
    return _KEY, sealed(_encode(facts))
