"""Large payloads: kept once, beside the events that carry them.

A payload over the limit leaves its record before that is written; a reference stands in its place, and the payload goes
into the table of blobs in the same transaction. So it is written once, not again when its run is moved out of the log,
and equal ones are one: its address is a keyed hash of what is stored. A blob knows how many runs refer to it and goes
with the last one. Everything above the journal sees whole payloads only.

With encryption the stored bytes of equal values differ, so they have different addresses; nothing about a value shows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec
import zstandard

from . import events as ev
from .coded_fields import map_event, map_failure
from .errors import JournalCorruptError
from .fold import RunState
from .payloads import Payload
from .row_checksum import sealed, unsealed
from .store import HAS_BLOBS, Changes, Entry, JournalStore, Tables
from .tables import HASH_SIZE, NUMBER, Table, run_range

#: Payloads of more bytes than this leave their records.
SPILL = 64 << 10
#: Bytes of one row of a blob: large values of LMDB need pages in a row, which a used file has few of.
CHUNK = 256 << 10
#: Encoding of the payload that refers to a blob; its data is the address.
REFERENCE = "blob"
#: zstd level of blobs.
LEVEL = 1

#: Bytes of the number of a chunk, behind the address.
CHUNK_NUMBER = 4

_PLAIN, _ZSTD = 0, 1


class Blob(NamedTuple):
    """A payload on its way into the table."""

    address: bytes
    payload: Payload


class _Header(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The row at the address itself; the rows behind it, (address, number of the chunk), hold the bytes."""

    runs: int
    kind: int
    size: int
    chunks: int
    encoding: str
    check: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Header).decode


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
        swap = self._swap(blobs)
        inputs = tuple(map_event(event, swap) for event in record.inputs)
        if isinstance(record, ev.Turn):
            outputs = tuple(map_event(event, swap) for event in record.outputs)
            spilled: ev.Record = ev.Turn(inputs, outputs, record.delivers)
        else:
            spilled = ev.Received(inputs)
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
    mapped.activities = {}
    for command, pending in state.activities.items():
        copy = mapped.activities[command] = pending.copy()
        copy.scheduled = map_event(pending.scheduled, swap)
        if pending.last_failure is not None:
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
    swap = restorer(tables)
    inputs = tuple(map_event(event, swap) for event in record.inputs)
    if isinstance(record, ev.Turn):
        return ev.Turn(inputs, tuple(map_event(event, swap) for event in record.outputs), record.delivers)
    return ev.Received(inputs)


def restorer(tables: Tables) -> Callable[[Payload, str], Payload]:
    """What puts the payload in the place of a reference."""

    def swap(payload: Payload, _place: str) -> Payload:
        return read_blob(tables, payload.data) if payload.encoding == REFERENCE else payload

    return swap


def references(record: ev.Record) -> list[bytes]:
    """Addresses of the blobs that a stored record refers to."""
    found: list[bytes] = []

    def note(payload: Payload, _place: str) -> Payload:
        if payload.encoding == REFERENCE:
            found.append(payload.data)
        return payload

    for event in ev.events_of(record):
        map_event(event, note)
    return found


# --- the table


def write_blobs(changes: Changes, blobs: Iterable[tuple[int, Blob]]) -> None:
    """Store blobs, each with the key of the run that refers to it; what is there already is counted."""
    for run_key, blob in blobs:
        reference = NUMBER.pack(run_key) + blob.address
        if changes.get(Table.BLOB_RUNS, reference) is not None:
            continue
        changes.put(Table.BLOB_RUNS, [(reference, b"")])
        known = changes.get(Table.BLOBS, blob.address)
        if known is not None:
            _put_header(changes, blob.address, _with_runs(_header(blob.address, known), 1))
            continue
        data = blob.payload.data
        packed = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(data)
        kind = _ZSTD if len(packed) < len(data) * 0.9 else _PLAIN
        stored = packed if kind == _ZSTD else data
        chunks = [stored[at : at + CHUNK] for at in range(0, len(stored), CHUNK)]
        rows = [(blob.address + n.to_bytes(CHUNK_NUMBER, "big"), chunk) for n, chunk in enumerate(chunks)]
        check = zlib.crc32(stored)
        header = _Header(1, kind, len(data), len(chunks), blob.payload.encoding, check)
        _put_header(changes, blob.address, header)
        changes.put(Table.BLOBS, rows)


def release_blobs(changes: Changes, run_key: int, limit: int = 1 << 30) -> int:
    """A run is purged: its references go, and the blobs that nobody else refers to.

    Args:
        changes: The transaction.
        run_key: The run.
        limit: At most so many references, so that one transaction stays small.

    Returns:
        How many references went; fewer than ``limit`` when none is left.
    """
    gone: list[bytes] = []
    for key, _ in changes.scan(Table.BLOB_RUNS, *run_range(run_key)):
        if len(gone) == limit:
            break
        gone.append(key)
    for key in gone:
        address = key[NUMBER.size :]
        known = changes.get(Table.BLOBS, address)
        if known is None:
            continue
        header = _header(address, known)
        if header.runs > 1:
            _put_header(changes, address, _with_runs(header, -1))
        else:
            changes.delete(Table.BLOBS, [address, *_chunk_keys(address, header)])
    changes.delete(Table.BLOB_RUNS, gone)
    return len(gone)


def read_blob(tables: Tables, address: bytes) -> Payload:
    """A payload by its address.

    Raises:
        JournalCorruptError: It is missing or damaged.
    """
    header = _find(tables, address)
    stored = b"".join(_chunk(tables, address, key) for key in _chunk_keys(address, header))
    return Payload(header.encoding, _unpacked(address, header, stored))


def stream_blob(store: JournalStore, address: bytes) -> Iterator[bytes]:
    """The data of a payload piece by piece, for who need not have all of it in memory.

    Raises:
        JournalCorruptError: It is missing or damaged.
    """
    with store.view() as tables:
        header = _find(tables, address)
    unpack = zstandard.ZstdDecompressor().decompressobj() if header.kind == _ZSTD else None
    check = 0
    for key in _chunk_keys(address, header):
        with store.view() as tables:
            piece = _chunk(tables, address, key)
        try:
            data = piece if unpack is None else unpack.decompress(piece)
        except zstandard.ZstdError as error:
            raise _damaged(address, str(error)) from error
        check = zlib.crc32(piece, check)
        yield data
    if check != header.check:
        raise _damaged(address, "its checksum differs")


def check_blob(tables: Tables, address: bytes, spiller: Spiller) -> int:
    """Read a blob in full and compare it with its address; returns how many runs it says refer to it.

    Raises:
        JournalCorruptError: It is missing or damaged.
    """
    if spiller.address(read_blob(tables, address)) != address:
        raise _damaged(address, "its content differs from its address")
    return _find(tables, address).runs


def has_chunk(tables: Tables, key: bytes) -> bool:
    """Whether a row behind an address is a part of its blob.

    Raises:
        JournalCorruptError: The blob is damaged.
    """
    address = key[:HASH_SIZE]
    row = tables.get(Table.BLOBS, address)
    return row is not None and key in _chunk_keys(address, _header(address, row))


def _find(tables: Tables, address: bytes) -> _Header:
    row = tables.get(Table.BLOBS, address)
    if row is None:
        raise _damaged(address, "it is missing")
    return _header(address, row)


def _header(address: bytes, row: bytes) -> _Header:
    try:
        return _decode(unsealed(row))
    except (JournalCorruptError, msgspec.MsgspecError) as error:
        raise _damaged(address, str(error)) from error


def _with_runs(header: _Header, more: int) -> _Header:
    return msgspec.structs.replace(header, runs=header.runs + more)


def _put_header(changes: Changes, address: bytes, header: _Header) -> None:
    changes.put(Table.BLOBS, [(address, sealed(_encode(header)))])


def _chunk_keys(address: bytes, header: _Header) -> list[bytes]:
    return [address + number.to_bytes(CHUNK_NUMBER, "big") for number in range(header.chunks)]


def _chunk(tables: Tables, address: bytes, key: bytes) -> bytes:
    chunk = tables.get(Table.BLOBS, key)
    if chunk is None:
        raise _damaged(address, "a part of it is missing")
    return chunk


def _unpacked(address: bytes, header: _Header, stored: bytes) -> bytes:
    if zlib.crc32(stored) != header.check:
        raise _damaged(address, "its checksum differs")
    try:
        data = zstandard.ZstdDecompressor().decompress(stored) if header.kind == _ZSTD else stored
    except zstandard.ZstdError as error:
        raise _damaged(address, str(error)) from error
    return data


def _damaged(address: bytes, reason: str) -> JournalCorruptError:
    return JournalCorruptError(f"the large payload {address.hex()} cannot be read: {reason}")
