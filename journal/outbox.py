"""Messages from run to run (R15): written with the turn that sends them, sent in order, taken in once.

Each destination shard has a sequence of its own. A message is a row of the table until its destination has acknowledged
it; the receiver commits up to which number it has taken in all messages, its *watermark*, and those that it has taken
in *ahead* of one for a run that could not take it yet, in the transaction that applies them. So what is sent again is
known. Numbers are never used twice.

A message that cannot be taken in for long, as it cannot be read or its run is damaged, is *put aside*: its number
counts as taken in, so that the outbox empties, and its row is kept among the facts until it can be taken in after all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from .errors import JournalCorruptError
from .fault_points import fault_point
from .row_checksum import sealed, unsealed
from .store import Changes, JournalStore, Tables
from .tables import NUMBER, PAIR, Table, run_range

_ACKNOWLEDGED = b"outbox "
_WATERMARK = b"watermark "
_ASIDE = b"aside "
#: Before the row of a message that is kept for people only: so it reads as no message.
_BROKEN_OFF = b"half applied "
HALF_APPLIED = "Everact itself failed while it was taken in, perhaps in part: no start tries it again"


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


class Damaged(NamedTuple):
    """A row that is no message any more.

    Attributes:
        sequence: The number that it should have.
        row: What is there.
        error: What is wrong.
    """

    sequence: int
    row: bytes
    error: JournalCorruptError


class Aside(NamedTuple):
    """A message that was put aside.

    Attributes:
        source: Number of the shard that has sent it.
        sequence: Its number there.
        row: As it stood in the outbox.
    """

    source: int
    sequence: int
    row: bytes


class Outbox:
    """The sender's side; belongs to the loop's thread.

    Numbers are given at the turn and written with it. After a failed commit a new object reads what is durable.
    """

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._last: dict[int, int] = {}
        self._senders: Counter[int] = Counter()
        for _key, value in store.rows(Table.OUTBOX):
            with suppress(JournalCorruptError):  # whoever sends it says so; nobody knows whose it is
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

    def pending(self, destination: int, after: int = 0, limit: int = 1000) -> list[Message | Damaged]:
        """Durable messages that are not acknowledged, in order; a row that is damaged comes as that.

        Args:
            destination: The shard.
            after: Only those with a higher number.
            limit: At most so many.
        """
        found: list[Message | Damaged] = []
        start, stop = PAIR.pack(destination, after + 1), run_range(destination)[1]
        for key, value in self._store.rows(Table.OUTBOX, start, stop):
            if len(found) == limit:
                break
            try:
                found.append(message_of(key, value))
            except JournalCorruptError as error:
                found.append(Damaged(PAIR.unpack(key)[1], value, error))
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

    def acknowledged(self, senders: Iterable[int]) -> None:
        """Messages of these runs were taken in, durably; a run is named once for each."""
        for run_key in senders:
            self._senders[run_key] -= 1
            if not self._senders[run_key]:
                del self._senders[run_key]


def write_messages(changes: Changes, messages: Iterable[Message]) -> None:
    """Put messages into the outbox, in the transaction of the turns that send them."""
    rows = [
        (PAIR.pack(message.destination, message.sequence), row_of(message.run_key, message.body))
        for message in messages
    ]
    changes.put(Table.OUTBOX, sorted(rows))


def row_of(run_key: int, body: bytes) -> bytes:
    """What the outbox holds of a message."""
    return sealed(NUMBER.pack(run_key) + body)


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
    return taken_of(tables, source).watermark


class Taken(NamedTuple):
    """Which messages of a source shard were taken in.

    Attributes:
        watermark: All up to this one.
        ahead: And these ranges above it, each from its first to its last number.
    """

    watermark: int
    ahead: tuple[tuple[int, int], ...] = ()

    def __contains__(self, sequence: object) -> bool:
        assert isinstance(sequence, int)
        return sequence <= self.watermark or any(first <= sequence <= last for first, last in self.ahead)

    def with_more(self, sequences: Iterable[int]) -> Taken:
        """The same with further messages.

        Raises:
            ValueError: One of them was taken in before: a repeat must not be applied.
        """
        ranges: list[tuple[int, int]] = [(0, self.watermark), *self.ahead]
        ranges += [(sequence, sequence) for sequence in sequences]
        joined: list[tuple[int, int]] = []
        for first, last in sorted(ranges):
            if joined and first <= joined[-1][1]:
                raise ValueError(f"message {first} was taken in before")
            if joined and first == joined[-1][1] + 1:
                joined[-1] = joined[-1][0], last
            else:
                joined.append((first, last))
        return Taken(joined[0][1], tuple(joined[1:]))


def taken_of(tables: Tables, source: int) -> Taken:
    """Which messages of a source shard were taken in."""
    value = tables.get(Table.FACTS, _WATERMARK + NUMBER.pack(source))
    if value is None:
        return Taken(0)
    pairs = tuple(PAIR.iter_unpack(value[NUMBER.size :]))
    return Taken(NUMBER.unpack_from(value)[0], tuple((first, last) for first, last in pairs))


def take(changes: Changes, source: int, sequences: Iterable[int]) -> Taken:
    """Messages were taken in; call it in the transaction that applies them.

    Raises:
        ValueError: One of them was taken in before.
    """
    try:
        taken = taken_of(changes, source).with_more(sequences)
    except ValueError as error:
        raise ValueError(f"of shard {source}: {error}") from None
    value = NUMBER.pack(taken.watermark) + b"".join(PAIR.pack(*pair) for pair in taken.ahead)
    changes.put(Table.FACTS, [(_WATERMARK + NUMBER.pack(source), value)])
    return taken


class Post:
    """What one commit changes in the outbox: called with its changes.

    Attributes:
        number: Of the shard that commits; what it takes from itself is acknowledged at once.
        sent: Messages of its turns.
        taken: Numbers of the messages that its turns have taken in, by source shard.
        aside: Messages that are put aside; their numbers are in ``taken`` too.
        resumed: Messages that were put aside and are taken in after all, by source shard and number.
        senders: Runs whose messages were taken in, one for each message.
    """

    __slots__ = ("aside", "number", "resumed", "senders", "sent", "taken")

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent: list[Message] = []
        self.taken: dict[int, list[int]] = {}
        self.aside: list[Aside] = []
        self.resumed: list[tuple[int, int]] = []
        self.senders: list[int] = []

    def __call__(self, changes: Changes) -> None:
        """Write it all (writer thread)."""
        if self.sent:
            fault_point("outbox.send.before")
            write_messages(changes, self.sent)
        if self.taken:
            fault_point("outbox.apply.before")
        for source, sequences in self.taken.items():
            taken = take(changes, source, sequences)
            if source == self.number:
                acknowledge(changes, source, taken.watermark)
        for source, sequence, row in self.aside:
            changes.put(Table.FACTS, [(_ASIDE + PAIR.pack(source, sequence), row)])
        # Behind those that this very commit puts aside: one may be of both.
        discard_aside(changes, self.resumed)
        fault_point("outbox.written")


def put_aside(tables: Tables) -> list[Aside]:
    """Messages that were put aside, in the order in which they were sent."""
    stop = _ASIDE + b"\xff" * PAIR.size
    found: list[Aside] = []
    for key, row in tables.scan(Table.FACTS, _ASIDE, stop):
        if len(key) == len(_ASIDE) + PAIR.size:  # else it is no message
            source, sequence = PAIR.unpack_from(key, len(_ASIDE))
            found.append(Aside(source, sequence, row))
    return found


def discard_aside(changes: Changes, which: Iterable[tuple[int, int]]) -> None:
    """Forget messages that were put aside, by source shard and number."""
    changes.delete(Table.FACTS, [_ASIDE + PAIR.pack(*one) for one in which])


def facts_of(tables: Tables) -> list[tuple[bytes, bytes]]:
    """What the facts say of messages that were acknowledged, taken in, and put aside."""
    return [
        (key, b"" if kind is _ASIDE else value)
        for kind in (_ACKNOWLEDGED, _WATERMARK, _ASIDE)
        for key, value in tables.scan(Table.FACTS, kind, kind + b"\xff" * (PAIR.size + 1))
    ]


def broken_off(row: bytes) -> bytes:
    """The row of a message that an error of ours broke off: perhaps a part of it was applied, so nobody takes it in."""
    return _BROKEN_OFF + row


def whole_row(aside: Aside) -> Aside | None:
    """A message that was broken off, as it was before that; None for any other."""
    return (
        aside._replace(row=aside.row.removeprefix(_BROKEN_OFF)) if aside.row.startswith(_BROKEN_OFF) else None
    )


def aside_message(aside: Aside) -> Message | Damaged:
    """A message that was put aside, as it would come from the outbox."""
    if aside.row.startswith(_BROKEN_OFF):
        return Damaged(aside.sequence, aside.row, JournalCorruptError(HALF_APPLIED))
    try:
        return message_of(PAIR.pack(aside.source, aside.sequence), aside.row)
    except JournalCorruptError as error:
        return Damaged(aside.sequence, aside.row, error)


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
