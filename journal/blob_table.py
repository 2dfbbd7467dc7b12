"""The table of blobs: each large payload once, with how many runs refer to it.

A blob goes with the last of these runs. Which payloads become blobs, and at which address, is for ``blobs`` to say.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
import zstandard

from .errors import JournalCorruptError
from .payloads import Payload
from .row_checksum import sealed, unsealed
from .store import Changes, JournalStore, Tables
from .tables import HASH_SIZE, NUMBER, Table, run_range

log = logging.getLogger("everact.runtime")

#: Bytes of one row of a blob: large values of LMDB need pages in a row, which a used file has few of.
CHUNK = 256 << 10
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


def write_blobs(changes: Changes, blobs: Iterable[tuple[int, Blob]]) -> None:
    """Store blobs, each with the key of the run that refers to it; what is there already is counted.

    One whose header is damaged is written again: its content is at hand.
    """
    for run_key, blob in blobs:
        reference = NUMBER.pack(run_key) + blob.address
        if changes.get(Table.BLOB_RUNS, reference) is not None:
            continue
        changes.put(Table.BLOB_RUNS, [(reference, b"")])
        known = changes.get(Table.BLOBS, blob.address)
        if known is None:
            _write(changes, blob, 1)
            continue
        try:
            header = _header(blob.address, known)
        except JournalCorruptError as error:
            log.error("written again: %s", error)  # noqa: TRY400  (the message says it all)
            changes.remove(Table.BLOBS, blob.address, blob.address + b"\xff" * (CHUNK_NUMBER + 1), 1 << 30)
            _write(changes, blob, _references(changes, blob.address))
        else:
            _put_header(changes, blob.address, _with_runs(header, 1))


def _write(changes: Changes, blob: Blob, runs: int) -> None:
    data = blob.payload.data
    packed = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(data)
    kind = _ZSTD if len(packed) < len(data) * 0.9 else _PLAIN
    stored = packed if kind == _ZSTD else data
    chunks = [stored[at : at + CHUNK] for at in range(0, len(stored), CHUNK)]
    rows = [(blob.address + n.to_bytes(CHUNK_NUMBER, "big"), chunk) for n, chunk in enumerate(chunks)]
    header = _Header(runs, kind, len(data), len(chunks), blob.payload.encoding, zlib.crc32(stored))
    _put_header(changes, blob.address, header)
    changes.put(Table.BLOBS, rows)


def _references(tables: Tables, address: bytes) -> int:
    """How many runs refer to a blob; reads all references there are."""
    return sum(key[NUMBER.size :] == address for key, _ in tables.scan(Table.BLOB_RUNS))


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
            raise damaged_blob(address, str(error)) from error
        check = zlib.crc32(piece, check)
        yield data
    if check != header.check:
        raise damaged_blob(address, "its checksum differs")


def has_chunk(tables: Tables, key: bytes) -> bool:
    """Whether a row behind an address is a part of its blob.

    Raises:
        JournalCorruptError: The blob is damaged.
    """
    address = key[:HASH_SIZE]
    row = tables.get(Table.BLOBS, address)
    return row is not None and key in _chunk_keys(address, _header(address, row))


def blob_runs(tables: Tables, address: bytes) -> int:
    """How many runs a blob says refer to it.

    Raises:
        JournalCorruptError: It is missing or damaged.
    """
    return _find(tables, address).runs


def _find(tables: Tables, address: bytes) -> _Header:
    row = tables.get(Table.BLOBS, address)
    if row is None:
        raise damaged_blob(address, "it is missing")
    return _header(address, row)


def _header(address: bytes, row: bytes) -> _Header:
    try:
        return _decode(unsealed(row))
    except (JournalCorruptError, msgspec.MsgspecError) as error:
        raise damaged_blob(address, str(error)) from error


def _with_runs(header: _Header, more: int) -> _Header:
    return msgspec.structs.replace(header, runs=header.runs + more)


def _put_header(changes: Changes, address: bytes, header: _Header) -> None:
    changes.put(Table.BLOBS, [(address, sealed(_encode(header)))])


def _chunk_keys(address: bytes, header: _Header) -> list[bytes]:
    return [address + number.to_bytes(CHUNK_NUMBER, "big") for number in range(header.chunks)]


def _chunk(tables: Tables, address: bytes, key: bytes) -> bytes:
    chunk = tables.get(Table.BLOBS, key)
    if chunk is None:
        raise damaged_blob(address, "a part of it is missing")
    return chunk


def _unpacked(address: bytes, header: _Header, stored: bytes) -> bytes:
    if zlib.crc32(stored) != header.check:
        raise damaged_blob(address, "its checksum differs")
    try:
        data = zstandard.ZstdDecompressor().decompress(stored) if header.kind == _ZSTD else stored
    except zstandard.ZstdError as error:
        raise damaged_blob(address, str(error)) from error
    return data


def damaged_blob(address: bytes, reason: str) -> JournalCorruptError:
    """The error for a blob that cannot be read."""
    return JournalCorruptError(f"the large payload {address.hex()} cannot be read: {reason}")
