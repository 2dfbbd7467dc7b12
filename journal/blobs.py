"""Large payloads: kept once, beside the events that carry them.

A payload over the limit leaves its record before that is written; a reference stands in its place, and the payload goes
into the table of blobs in the same transaction. So it is written once, not again when its run is moved out of the log,
and equal ones are one: its address is a keyed hash of what is stored. A blob knows how many runs refer to it and goes
with the last one. Everything above the journal sees whole payloads only.

With encryption the stored bytes of equal values differ, so they have different addresses; nothing about a value shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

from . import events as ev
from .blob_table import Blob, blob_runs, damaged_blob, read_blob
from .coded_fields import map_event, map_failure
from .fold import LOST, RunState
from .payloads import Payload
from .store import HAS_BLOBS, Entry, Tables
from .tables import HASH_SIZE

#: Payloads of more bytes than this leave their records.
SPILL = 64 << 10
#: Encoding of the payload that refers to a blob; its data is the address.
REFERENCE = "blob"


class Spiller:
    """Takes large payloads out of records.

    Args:
        journal_id: The key of the addresses.
    """

    def __init__(self, journal_id: str) -> None:
        self._key = journal_id.encode("ascii")

    def address(self, payload: Payload) -> bytes:
        """Where a payload is kept."""
        digest = blake2b(digest_size=HASH_SIZE, key=self._key)
        digest.update(b"%d:%b" % (len(payload.encoding), payload.encoding.encode()))
        digest.update(payload.data)
        return digest.digest()

    def spill_entries(self, entries: Sequence[Entry]) -> tuple[Sequence[Entry], list[tuple[int, Blob]]]:
        """Take the large payloads out of the entries of a commit.

        Returns:
            The entries as they are to be stored, and the payloads, each with the key of its run.
        """
        large = [index for index, entry in enumerate(entries) if len(entry.body) > SPILL]
        if not large:
            return entries, []
        stored = list(entries)
        found: list[tuple[int, Blob]] = []
        for index in large:
            entry = entries[index]
            record, blobs = self.spill(ev.decode_record(entry.body))
            if blobs:
                stored[index] = entry._replace(flags=entry.flags | HAS_BLOBS, body=ev.encode_record(record))
                found += [(entry.run_key, blob) for blob in blobs]
        return stored, found

    def spill(self, record: ev.Record) -> tuple[ev.Record, list[Blob]]:
        """Take the large payloads out of a record.

        Returns:
            The record with references, and the payloads; the same record when it has none.
        """
        blobs: list[Blob] = []
        spilled = _map_record(record, self._swap(blobs))
        return (spilled, blobs) if blobs else (record, blobs)

    def spill_state(self, state: RunState) -> RunState:
        """The same fold with references; the blobs are there since the events that carried them."""
        return _map_state(state, self._swap([]))

    def _swap(self, blobs: list[Blob]) -> Callable[[Payload, str], Payload]:
        def swap(payload: Payload, _place: str) -> Payload:
            if len(payload.data) <= SPILL:
                return payload
            address = self.address(payload)
            blobs.append(Blob(address, payload))
            return Payload(REFERENCE, address)

        return swap


def restore_state(state: RunState, tables: Tables) -> RunState:
    """The fold with its large payloads in their places.

    Raises:
        JournalCorruptError: A blob is missing or damaged.
    """
    return _map_state(state, restorer(tables))


def _map_state(state: RunState, swap: Callable[[Payload, str], Payload]) -> RunState:
    """A fold with every payload of an open run swapped."""
    mapped = RunState()
    for name in RunState.__slots__:
        setattr(mapped, name, getattr(state, name))
    mapped.started = map_event(state.started, swap)
    mapped.answers = {
        number: swap(answer, "answer") if isinstance(answer, Payload) else map_event(answer, swap)
        for number, answer in state.answers.items()
    }
    mapped.unread = {number: map_event(event, swap) for number, event in state.unread.items()}
    mapped.updates = {number: map_event(event, swap) for number, event in state.updates.items()}
    mapped.dead_letters = [map_event(event, swap) for event in state.dead_letters]
    mapped.stall = None if state.stall is None else map_event(state.stall, swap)
    mapped.published = {key: swap(value, "published value") for key, value in state.published.items()}
    mapped.activities = {}
    for command, pending in state.activities.items():
        copy = mapped.activities[command] = pending.copy()
        copy.scheduled = map_event(pending.scheduled, swap)
        copy.details = tuple(swap(detail, "heartbeat detail") for detail in pending.details)
        if (
            pending.last_failure is not None and pending.last_failure.type != LOST
        ):  # no event carried that one
            copy.last_failure = map_failure(pending.last_failure, swap)
    return mapped


def whole_entry(entry: Entry, tables: Tables) -> Entry:
    """An entry with its large payloads in their places.

    Raises:
        JournalCorruptError: A blob is missing or damaged.
    """
    if not entry.flags & HAS_BLOBS:
        return entry
    body = ev.encode_record(restore(ev.decode_record(entry.body), tables))
    return entry._replace(flags=entry.flags & ~HAS_BLOBS, body=body)


def restore(record: ev.Record, tables: Tables) -> ev.Record:
    """A record with its large payloads in their places.

    Raises:
        JournalCorruptError: A blob is missing or damaged.
    """
    return _map_record(record, restorer(tables))


def _map_record(record: ev.Record, swap: Callable[[Payload, str], Payload]) -> ev.Record:
    """A record with every payload swapped."""
    events = [map_event(event, swap) for event in ev.events_of(record)]
    middle = len(record.inputs)
    return ev.with_events(record, events[:middle], events[middle:])


def restorer(tables: Tables) -> Callable[[Payload, str], Payload]:
    """What puts the payload in the place of a reference."""

    def swap(payload: Payload, _place: str) -> Payload:
        return read_blob(tables, payload.data) if payload.encoding == REFERENCE else payload

    return swap


def check_blob(tables: Tables, address: bytes, spiller: Spiller) -> int:
    """Read a blob in full and compare it with its address; returns how many runs it says refer to it.

    Raises:
        JournalCorruptError: It is missing or damaged.
    """
    if spiller.address(read_blob(tables, address)) != address:
        raise damaged_blob(address, "its content differs from its address")
    return blob_runs(tables, address)
