"""A run's entries as new values of its history.

Values are long enough to compress well and short enough to be written again: a last one that is short is merged with
what follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .history_values import SHORT, HistoryCodec, plain_text
from .run_history import history_entries
from .store import Entry, Tables
from .tables import EVENT, Table, run_range

#: Entries and bytes of one value of the histories.
VALUE_ENTRIES = 512
#: So few are never cut: a value may be as large as they make it.
FEW_ENTRIES = 8
VALUE_BYTES = 128 << 10
#: A last value shorter than this is written again with what follows it.
MERGE_BELOW = 2 << 10


class NewHistory(NamedTuple):
    """What the histories get of one run.

    Attributes:
        key: The run.
        size: How many entries of the log it holds, from the first one that is there on.
        values: The new rows, in order.
        outdated: Key of the row that they replace; None when they only follow it.
        samples: Short plain texts among them, to train a dictionary on.
    """

    key: int
    size: int
    values: list[tuple[bytes, bytes]]
    outdated: bytes | None
    samples: Sequence[bytes]


def new_history(
    tables: Tables, codec: HistoryCodec, key: int, entries: Sequence[Entry], *, is_new: bool
) -> NewHistory:
    """Make the values.

    Args:
        tables: Where the run's last value is.
        codec: Encodes them.
        key: The run.
        entries: Its entries, at least one, that follow what the histories have of it.
        is_new: They have nothing of it.

    Raises:
        JournalCorruptError: The last value cannot be read; names the run.
    """
    new = list(entries)
    outdated = None
    if not is_new:
        last = tables.last(Table.HISTORIES, *run_range(key))
        same_key = EVENT.pack(key, new[0].first_event)
        if last is not None and (len(last[1]) < MERGE_BELOW or last[0] == same_key):
            new = history_entries(tables, codec, *last) + new
            outdated = last[0]
    values = []
    samples = []
    for part in _parts(new) if len(new) > FEW_ENTRIES else (new,):
        plain = plain_text(part)
        if len(plain) <= SHORT:
            samples.append(plain)
        values.append((EVENT.pack(key, part[0].first_event), codec.encode(plain)))
    return NewHistory(key, len(entries), values, outdated, samples)


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
