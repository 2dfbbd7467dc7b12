"""What every journal store promises. Memory and LMDB implement it; one contract suite tests them all.

A store is a *log* and *tables*. The log is a sequence of *commit records*: each holds the entries that one commit
wrote, each entry is one run's turn (or accepted inputs) as opaque bytes with a small header. Tables are ordered maps
of bytes, changed only in the transaction of an append. The store knows nothing about what the bytes mean.

The log has two *segments* that are used in turn: one is appended to; the other is empty, or *sealed*: complete, and
being moved into the tables, after which it is dropped whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from .space import Space
from .tables import Table

#: Entry flags: what start-up must know without decoding the body.
STARTS_RUN = 1
CLOSES_RUN = 2
#: A message in the body carries a request id.
HAS_REQUEST = 32
#: The body refers to blobs.
HAS_BLOBS = 64


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


class Segments(NamedTuple):
    """Which commit records are in which segment of the log.

    Attributes:
        sealed: Sequence of the first record of the sealed segment; 0 when there is none.
        current: Sequence of the first record of the segment that is appended to.
    """

    sealed: int
    current: int

    @property
    def first(self) -> int:
        """Sequence of the oldest record that the log may still hold."""
        return self.sealed or self.current


class Tables(ABC):
    """The tables at one moment."""

    @abstractmethod
    def get(self, table: Table, key: bytes) -> bytes | None:
        """The value of a key, or None."""

    @abstractmethod
    def scan(
        self, table: Table, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield ``(key, value)`` with ``start <= key < stop`` in the order of the keys, or backwards."""

    @abstractmethod
    def last(self, table: Table, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        """The row with the highest key in ``start <= key < stop``, or None."""

    @abstractmethod
    def count(self, table: Table) -> int:
        """How many rows a table has."""

    @abstractmethod
    def read(self, locations: Iterable[Location]) -> list[Entry]:
        """As ``JournalStore.read``."""

    @property
    @abstractmethod
    def segments(self) -> Segments:
        """The segments of the log."""


class Changes(Tables):
    """What an append may do to tables and segments, in its own transaction."""

    @abstractmethod
    def put(self, table: Table, items: Sequence[tuple[bytes, bytes]]) -> None:
        """Set values; sorted keys are the cheapest."""

    @abstractmethod
    def delete(self, table: Table, keys: Iterable[bytes]) -> None:
        """Take keys out; those that are not there are passed over."""

    @abstractmethod
    def remove(self, table: Table, start: bytes, stop: bytes, limit: int) -> int:
        """Take out the first rows with ``start <= key < stop``, at most ``limit``; returns how many those were."""

    @abstractmethod
    def clear(self, table: Table) -> None:
        """Take everything out, at the cost of the table's pages at most, never of its keys."""

    @abstractmethod
    def seal(self) -> None:
        """From the next append on use the other segment; there must be no sealed one."""

    @abstractmethod
    def drop_sealed(self) -> None:
        """Drop the sealed segment and all its records."""


#: Changes to tables that go with an append.
Work = Callable[[Changes], None]


class JournalStore(ABC):
    """Append-only commit records and the tables made of them, with one writer.

    All methods but ``append`` may be called from any thread; ``append`` from one thread at a time. Every
    method but ``close`` raises ``JournalClosedError`` once the store is closed.

    Attributes:
        path: Where the journal is, for messages.
        directory: Where files can be put beside it; None when it is in memory.
    """

    path: str = "in memory"
    directory: str | None = None

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
    def append(self, expected: Position, entries: Sequence[Entry], work: Work | None = None) -> Position:
        """Write one commit record and return when it is durable.

        Args:
            expected: Epoch and sequence that the caller believes in.
            entries: At least one entry, unless there is work: then no record is written.
            work: Called inside the transaction, behind the record. All of it is committed, or nothing.

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
    def view(self) -> AbstractContextManager[Tables]:
        """The tables at this moment; leave it soon: what it sees is kept for it."""

    @abstractmethod
    def rows(
        self, table: Table, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """As ``Tables.scan``, in pieces: what is committed between two pieces may be seen or not."""

    @abstractmethod
    def scan(self, start: int = 0) -> Iterator[tuple[int, list[Entry]]]:
        """Yield ``(sequence, entries)`` of each commit record that the log holds from ``start`` on, in order.

        What is committed after the first step is not part of it, so a scan ends while others append. Records that are
        moved into the tables while it goes on may be left out.

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
