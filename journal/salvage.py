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
    """Part of a journal that cannot be read.

    Attributes:
        first: Sequence number of the first commit record; in a table whose keys begin with it, the first run key.
        last: Of the last one; 0 when it is not known.
        reason: Why, in words.
        table: Name of the table; empty for the log.
    """

    first: int
    last: int
    reason: str
    table: str = ""

    @property
    def place(self) -> str:
        """Where it is, in words."""
        what = "run" if self.table else "commit record"
        if not self.first:
            numbers = ""
        elif self.last == self.first:
            numbers = f"{what} {self.first}"
        else:
            numbers = f"{what}s {self.first} " + (f"to {self.last}" if self.last else "and later")
        return ", ".join(filter(None, (self.table and f"table {self.table!r}", numbers)))

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


def readable_records(
    store: JournalStore,
    damaged: Callable[[Damage], object],
    progress: Progress | None = None,
    start: int = 1,
) -> Iterator[tuple[int, list[Entry]]]:
    """Yield ``(sequence, entries)`` of every commit record of the log that can be read, in order.

    What is committed after the first step is not part of it, nor what is moved into the tables before it is reached.

    Args:
        store: The journal.
        damaged: Called for what is passed over; neighbours with one reason are one call.
        progress: Called after each record with the records done and all of them.
        start: Sequence number to begin with.
    """
    end = store.position.sequence
    following = start = max(start, _first(store))
    bad: Damage | None = None

    def note(sequence: int, reason: str) -> None:
        nonlocal bad
        if bad is not None and (bad.reason, bad.last + 1) == (reason, sequence):
            bad = bad._replace(last=sequence)
            return
        flush()
        bad = Damage(sequence, sequence, reason)

    def flush() -> None:
        nonlocal bad
        if bad is not None:
            damaged(bad)
        bad = None

    def done() -> None:
        if progress is not None:
            progress(following - start, end - start)

    while following < end:
        try:
            for sequence, entries in store.scan(following):
                if sequence >= end:
                    break
                flush()
                yield sequence, entries
                following = sequence + 1
                done()
            break
        except JournalCorruptError as error:
            # The scan may have failed for a later record of the same pages: ask for this one alone.
            found = _alone(store, following, error)
            first = _first(store)
            if following < first:  # moved away meanwhile
                following = first
                continue
            if isinstance(found, str):
                note(following, found)
            else:
                flush()
                yield following, found
            following += 1
            done()
    flush()


def _first(store: JournalStore) -> int:
    with store.view() as tables:
        return tables.segments.first


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
