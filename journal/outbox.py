"""Messages from run to run (R15): written with the turn that sends them, sent in order, taken in once.

Each destination shard has a sequence of its own. A message is a row of the table until its destination has acknowledged
it; the receiver commits the number of the newest message it has taken in, its *watermark*, in the transaction that
applies it, so that what is sent again is known. Numbers are never used twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from .errors import JournalCorruptError
from .row_checksum import sealed, unsealed
from .store import Changes, JournalStore, Tables
from .tables import NUMBER, PAIR, Table, run_range

_ACKNOWLEDGED = b"outbox "
_WATERMARK = b"watermark "


class Message(NamedTuple):
    """A message on its way.

    Attributes:
        destination: Number of the shard that it goes to.
        sequence: Its number among those of that destination, from 1.
        run_key: The run that sends it; it is not purged before the message is acknowledged.
        body: What the receiver decodes.
    """

    destination: int
    sequence: int
    run_key: int
    body: bytes


class Outbox:
    """The sender's side; belongs to the loop's thread.

    Numbers are given at the turn and written with it. After a failed commit a new object reads what is durable.
    """

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._last: dict[int, int] = {}
        self._senders: Counter[int] = Counter()
        for _key, value in store.rows(Table.OUTBOX):
            self._senders[NUMBER.unpack_from(unsealed(value))[0]] += 1

    def new(self, destination: int, run_key: int, body: bytes) -> Message:
        """Number a message; it goes into the batch of the turn that sends it."""
        last = self._last.get(destination)
        if last is None:
            with self._store.view() as tables:
                last = _last_sequence(tables, destination)
        self._last[destination] = last + 1
        self._senders[run_key] += 1
        return Message(destination, last + 1, run_key, body)

    def pending(self, destination: int, after: int = 0, limit: int = 1000) -> list[Message]:
        """Durable messages that are not acknowledged, in order.

        Args:
            destination: The shard.
            after: Only those with a higher number.
            limit: At most so many.

        Raises:
            JournalCorruptError: One of them is damaged; names it.
        """
        found: list[Message] = []
        start, stop = PAIR.pack(destination, after + 1), run_range(destination)[1]
        for key, value in self._store.rows(Table.OUTBOX, start, stop):
            if len(found) == limit:
                break
            found.append(message_of(key, value))
        return found

    def destinations(self) -> list[int]:
        """Shards with messages that are durable and not acknowledged."""
        found: list[int] = []
        start = b""
        while (row := next(self._store.rows(Table.OUTBOX, start), None)) is not None:
            found.append(PAIR.unpack(row[0])[0])
            start = run_range(found[-1])[1]
        return found

    def has_sent(self, run_key: int) -> bool:
        """Whether a message of this run is not acknowledged yet."""
        return self._senders[run_key] > 0

    def acknowledged(self, messages: Iterable[Message]) -> None:
        """The acknowledgement of these is durable."""
        for message in messages:
            self._senders[message.run_key] -= 1
            if not self._senders[message.run_key]:
                del self._senders[message.run_key]


def write_messages(changes: Changes, messages: Iterable[Message]) -> None:
    """Put messages into the outbox, in the transaction of the turns that send them."""
    rows = [
        (
            PAIR.pack(message.destination, message.sequence),
            sealed(NUMBER.pack(message.run_key) + message.body),
        )
        for message in messages
    ]
    changes.put(Table.OUTBOX, sorted(rows))


def acknowledge(changes: Changes, destination: int, sequence: int) -> None:
    """The destination has taken in all messages up to this one: take them out."""
    stop = PAIR.pack(destination, sequence + 1)
    changes.delete(
        Table.OUTBOX, [key for key, _ in changes.scan(Table.OUTBOX, NUMBER.pack(destination), stop)]
    )
    before = acknowledged_to(changes, destination)
    changes.put(Table.FACTS, [(_ACKNOWLEDGED + NUMBER.pack(destination), NUMBER.pack(max(before, sequence)))])


def acknowledged_to(tables: Tables, destination: int) -> int:
    """Number of the newest message that a destination has acknowledged; 0 before the first."""
    return _number(tables, _ACKNOWLEDGED, destination)


def watermark(tables: Tables, source: int) -> int:
    """Number of the newest message of a source shard that was taken in; 0 before the first."""
    return _number(tables, _WATERMARK, source)


def set_watermark(changes: Changes, source: int, sequence: int) -> None:
    """A message was taken in; call it in the transaction that applies it.

    Raises:
        ValueError: It is not the next one: a repeat must not be applied, and none may be left out.
    """
    before = watermark(changes, source)
    if sequence != before + 1:
        raise ValueError(f"message {sequence} of shard {source} does not follow {before}")
    changes.put(Table.FACTS, [(_WATERMARK + NUMBER.pack(source), NUMBER.pack(sequence))])


def _number(tables: Tables, kind: bytes, shard: int) -> int:
    value = tables.get(Table.FACTS, kind + NUMBER.pack(shard))
    return 0 if value is None else int(NUMBER.unpack(value)[0])


def _last_sequence(tables: Tables, destination: int) -> int:
    row = tables.last(Table.OUTBOX, *run_range(destination))
    newest = 0 if row is None else int(PAIR.unpack(row[0])[1])
    return max(newest, acknowledged_to(tables, destination))


def message_of(key: bytes, value: bytes) -> Message:
    """The message in a row of the outbox.

    Raises:
        JournalCorruptError: It is damaged; names it.
    """
    destination, sequence = PAIR.unpack(key)
    try:
        data = unsealed(value)
    except JournalCorruptError as error:
        raise JournalCorruptError(f"message {sequence} to shard {destination}: {error}") from error
    return Message(destination, sequence, NUMBER.unpack_from(data)[0], data[NUMBER.size :])
