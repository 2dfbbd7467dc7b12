"""Read a journal past its damage: whatever commit record is whole is given, whatever is not is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from .errors import JournalCorruptError
from .store import Entry, JournalStore, Location

#: Called with how many commit records are done and how many there are.
Progress = Callable[[int, int], None]


class Damage(NamedTuple):
    """Commit records that cannot be read.

    Attributes:
        first: Sequence number of the first one.
        last: Of the last one.
        reason: Why, in words.
    """

    first: int
    last: int
    reason: str


def readable_records(
    store: JournalStore, damaged: Callable[[Damage], None], progress: Progress | None = None
) -> Iterator[tuple[int, list[Entry]]]:
    """Yield ``(sequence, entries)`` of every commit record that can be read, in order.

    What is committed after the first step is not part of it.

    Args:
        store: The journal.
        damaged: Called for what is passed over; neighbours with one reason are one call.
        progress: Called after each record.
    """
    end = store.position.sequence
    following = 1
    bad: Damage | None = None

    def note(first: int, last: int, reason: str) -> None:
        nonlocal bad
        if bad is not None and (bad.reason, bad.last + 1) == (reason, first):
            bad = bad._replace(last=last)
            return
        flush()
        bad = Damage(first, last, reason)

    def flush() -> None:
        nonlocal bad
        if bad is not None:
            damaged(bad)
        bad = None

    while following < end:
        try:
            for sequence, entries in store.scan(following):
                if sequence > following:
                    note(following, min(sequence, end) - 1, "it is missing")
                following = sequence
                if sequence >= end:
                    break
                flush()
                yield sequence, entries
                following += 1
                if progress is not None:
                    progress(sequence, end - 1)
            break
        except JournalCorruptError as error:
            # The scan may have failed for a later record of the same pages: ask for this one alone.
            found = _alone(store, following, error)
            if isinstance(found, str):
                note(following, following, found)
            else:
                flush()
                yield following, found
            following += 1
            if progress is not None:
                progress(following - 1, end - 1)
    flush()


def _alone(store: JournalStore, sequence: int, scanned: JournalCorruptError) -> list[Entry] | str:
    """The entries of one record, or why it cannot be read."""
    entries: list[Entry] = []
    try:
        for index in count():
            entries += store.read([Location(sequence, index)])
    except JournalCorruptError as error:
        # Once the first entry is there, the error only says that there is no further one.
        if entries:
            return entries
        return _reason(error)
    return _reason(scanned)


def _reason(error: JournalCorruptError) -> str:
    text = str(error)
    if text.endswith(" is missing"):
        return "it is missing"
    return text.partition("cannot be read: ")[2] or text
