"""What every journal store promises. Memory and LMDB implement it; one contract suite tests them all.

A store is an append-only sequence of *commit records*. Each holds the entries that one commit wrote;
each entry is one run's turn (or accepted inputs) as opaque bytes with a small header. The store knows
nothing about what the bytes mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .space import Space

#: Entry flags: what start-up must know without decoding the body.
STARTS_RUN = 1
CLOSES_RUN = 2


class Entry(NamedTuple):
    """One run's share of a commit.

    Attributes:
        run_key: Internal number of the run, 1 or more.
        first_event: Number of the first event in the body, below 2**32; events of a run count from 1.
        flags: ``STARTS_RUN``, ``CLOSES_RUN`` or-ed, 0 to 255.
        at: Wall clock of the turn in microseconds since the epoch.
        body: The encoded turn.
    """

    run_key: int
    first_event: int
    flags: int
    at: int
    body: bytes


class Position(NamedTuple):
    """The state a writer believes in; stated with each append and checked inside its transaction.

    Attributes:
        epoch: Writer incarnation; raised each time a writer opens the store.
        sequence: Sequence number that the next commit record will get; the first one is 1, none is left out.
    """

    epoch: int
    sequence: int


class Location(NamedTuple):
    """Where an entry is.

    Attributes:
        sequence: Sequence number of the commit record, 1 or more.
        entry: Index of the entry inside the record, from 0. (``index`` is a method of every tuple.)
    """

    sequence: int
    entry: int


class JournalStore(ABC):
    """Append-only commit records with one writer.

    All methods but ``append`` may be called from any thread; ``append`` from one thread at a time. Every
    method but ``close`` raises ``JournalClosedError`` once the store is closed.

    Attributes:
        path: Where the journal is, for messages.
    """

    path: str = "in memory"

    @property
    @abstractmethod
    def journal_id(self) -> str:
        """Random id given when the journal was made; 32 hex digits."""

    @property
    @abstractmethod
    def position(self) -> Position:
        """This writer's epoch and the sequence that its next append will get.

        It is what this writer believes: it does not change when another one takes over.
        """

    @abstractmethod
    def append(self, expected: Position, entries: Sequence[Entry]) -> Position:
        """Write one commit record and return when it is durable.

        Args:
            expected: Epoch and sequence that the caller believes in.
            entries: At least one entry.

        Returns:
            The position after the append.

        Raises:
            AppendRefusedError: Epoch or sequence differ; nothing was written.
            JournalClosedError: The store is closed; nothing was written.
            ValueError: There is no entry, or a number of one is out of its range; nothing was written.
            CommitUnknownError: The commit failed; whether it is on disk is unknown. Every later append is
                refused with this error until ``reopen``. An exception that is no ``Exception`` (KeyboardInterrupt)
                has the same effect and is raised as it is.
        """

    @abstractmethod
    def reopen(self) -> Position:
        """Begin a new writer incarnation after a failed commit: raise the epoch, read the position anew.

        May be called at any time; of two writers on one journal, the one that called it last may append.
        """

    @abstractmethod
    def scan(self, start: int = 0) -> Iterator[tuple[int, list[Entry]]]:
        """Yield ``(sequence, entries)`` of each durable commit record from ``start`` on, in order.

        What is committed after the first step is not part of it, so a scan ends while others append.

        Raises:
            JournalCorruptError: A record cannot be read; names its sequence.
        """

    @abstractmethod
    def read(self, locations: Iterable[Location]) -> list[Entry]:
        """Return the entries at these locations, in the order given.

        Raises:
            JournalCorruptError: A record is missing or cannot be read.
        """

    @abstractmethod
    def space(self) -> Space:
        """How much room there is; cheap enough to be asked now and then between commits.

        Raises:
            JournalAccessError: It cannot be looked at just now.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the store; safe to call twice."""
