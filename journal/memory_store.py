"""A journal store in memory, for tests and for runs that need not survive the process."""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence

from .errors import AppendRefusedError, CommitUnknownError, JournalClosedError, JournalCorruptError
from .fault_points import fault_point
from .log_record import PlainRecord, decode_record, encode_record, open_record
from .space import UNLIMITED, Space
from .store import Entry, JournalStore, Location, Position


class MemoryJournal:
    """What stays when a ``MemoryStore`` is closed: give it to the next one to "open the journal again".

    Attributes:
        journal_id: Random id, 32 hex digits.
        epoch: Epoch of the newest writer.
        records: The commit records; the one with sequence ``n`` is ``records[n - 1]``.
        limit: Bytes that the records may have; an append that does not fit fails.
        lock: Held while an append or a takeover changes the others.
    """

    def __init__(self) -> None:
        self.journal_id = uuid.uuid4().hex
        self.epoch = 0
        # Encoded, so that every store refuses and keeps exactly the same.
        self.records: list[bytes] = []
        self.limit = UNLIMITED
        self.lock = threading.Lock()


class MemoryStore(JournalStore):
    """A store whose journal is an object of this process.

    Several may be open on one ``MemoryJournal``: the newest is its writer, the others' appends are refused.

    Args:
        backing: The journal to open; a new one by default.
    """

    def __init__(self, backing: MemoryJournal | None = None) -> None:
        self.backing = MemoryJournal() if backing is None else backing
        self._closed = False
        self._failure: BaseException | None = None
        self._position = self._take_over()

    @property
    def journal_id(self) -> str:
        """Random id given when the journal was made; 32 hex digits."""
        return self.backing.journal_id

    @property
    def position(self) -> Position:
        """This writer's epoch and the sequence that the next append will get.

        Raises:
            JournalClosedError: The store is closed.
        """
        self._check_open()
        return self._position

    def append(self, expected: Position, entries: Sequence[Entry]) -> Position:
        """Add one commit record; see ``JournalStore.append`` for what is raised."""
        self._check_open()
        if self._failure is not None:
            raise CommitUnknownError(
                "an earlier commit failed: reopen the store before it accepts another append"
            ) from self._failure
        record = encode_record(entries)
        journal = self.backing
        with journal.lock:
            actual = Position(journal.epoch, len(journal.records) + 1)
            if expected != actual or self._position.epoch != actual.epoch:
                raise AppendRefusedError((expected.epoch, expected.sequence), (actual.epoch, actual.sequence))
            try:
                fault_point("journal.commit.before")
                fault_point("journal.commit.written")
                if journal.limit < UNLIMITED and len(record) > self.space().room:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301  # as a full disk does
                journal.records.append(record)
                fault_point("journal.commit.after")
            except BaseException as error:
                self._failure = error
                if not isinstance(error, Exception):
                    raise
                raise CommitUnknownError(
                    f"the commit of record {actual.sequence} failed: {error!r}"
                ) from error
            self._position = Position(actual.epoch, actual.sequence + 1)
            return self._position

    def reopen(self) -> Position:
        """Begin a new writer incarnation; see ``JournalStore.reopen``."""
        self._check_open()
        self._position = self._take_over()
        self._failure = None
        return self._position

    def scan(self, start: int = 0) -> Iterator[tuple[int, list[Entry]]]:
        """Yield the commit records that exist at the first step; see ``JournalStore.scan``."""
        self._check_open()
        end = len(self.backing.records)
        for sequence in range(max(start, 1), end + 1):
            self._check_open()
            try:
                entries = decode_record(self.backing.records[sequence - 1])
            except JournalCorruptError as error:
                raise self._corrupt(sequence, error) from error
            yield sequence, entries

    def read(self, locations: Iterable[Location]) -> list[Entry]:
        """Return the entries at these locations; see ``JournalStore.read``."""
        self._check_open()
        records = self.backing.records
        opened: dict[int, PlainRecord] = {}
        found = []
        for sequence, index in locations:
            if not 0 < sequence <= len(records):
                raise JournalCorruptError(f"commit record {sequence} of the journal in memory is missing")
            try:
                if sequence not in opened:
                    opened[sequence] = open_record(records[sequence - 1])
                found.append(opened[sequence].entry(index))
            except JournalCorruptError as error:
                raise self._corrupt(sequence, error) from error
        return found

    def space(self) -> Space:
        """How much room there is; see ``JournalStore.space``."""
        self._check_open()
        journal = self.backing
        size = sum(map(len, journal.records))
        return Space(size, size, journal.limit)

    def close(self) -> None:
        """Release the store; the backing journal stays. Safe to call twice."""
        self._closed = True

    def _take_over(self) -> Position:
        with self.backing.lock:
            self.backing.epoch += 1
            return Position(self.backing.epoch, len(self.backing.records) + 1)

    def _check_open(self) -> None:
        if self._closed:
            raise JournalClosedError("the journal in memory is closed")

    @staticmethod
    def _corrupt(sequence: int, error: JournalCorruptError) -> JournalCorruptError:
        return JournalCorruptError(
            f"commit record {sequence} of the journal in memory cannot be read: {error}"
        )
