"""One commit's entries to one stored record, and back.

A record is a fixed head, then a *plain text* that is stored as it is (short) or as one zstd frame::

    kind u8 | check u32 | plain text or zstd frame
    plain text = count u32 | run keys u64[] | times i64[] | first events u32[] | body ends u32[] | flags u8[]
                 | bodies

All numbers are little-endian. The headers stand column by column: each column is packed by one call and
compresses better than rows. ``check`` is the CRC-32 of a plain text; of a frame, which carries its own
xxHash, it is the length of what it decompresses to, so that a damaged length never becomes an allocation.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import zstandard

from .errors import JournalCorruptError
from .store import HAS_REQUEST, Entry

#: Kinds of record: the format version in the low bits, ``COMPRESSED`` or-ed.
RECORD_VERSION = 2
COMPRESSED = 0x80
#: The same layout, before flags told of request ids: any entry may have some.
_WITHOUT_REQUEST_FLAG = 1
#: The check takes the version in, so that a damaged version is never read as another one.
_MASK = 0x5A5A_5A5A

#: Plain texts below this many bytes are not worth a zstd frame.
SMALL = 192

#: zstd level of the log: 38 us for 72 KB of events; compaction packs them tighter later.
LEVEL = -5

#: Longest plain text: offsets are 32 bits wide.
MAX_PLAIN = 0xFFFF_FFFF

_HEAD = struct.Struct("<BI")
_COUNT = struct.Struct("<I")
_ONE = struct.Struct("<IQqIIB")


@lru_cache(maxsize=1024)
def _columns(count: int) -> struct.Struct:
    """The layout of the headers of ``count`` entries."""
    return struct.Struct(f"<{count}Q{count}q{count}I{count}I{count}B")


class _Codecs(threading.local):
    """zstd contexts must not be shared by threads."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_codecs = _Codecs()


class PlainRecord(NamedTuple):
    """A decompressed, verified record, from which single entries are cut without building the others.

    Attributes:
        size: How many entries it holds.
        columns: Run keys, times, first events, body ends and flags, one after the other.
        bodies: Where the first body starts in ``plain``.
        plain: The plain text.
    """

    size: int
    columns: tuple[int, ...]
    bodies: int
    plain: bytes

    def entry(self, index: int) -> Entry:
        """Return one entry.

        Raises:
            JournalCorruptError: The record has no such entry.
        """
        size, columns, bodies, plain = self
        if not 0 <= index < size:
            raise JournalCorruptError(f"it has {size} entries, none with index {index}")
        ends = 3 * size
        start = bodies + (columns[ends + index - 1] if index else 0)
        return Entry(
            columns[index],
            columns[2 * size + index],
            columns[4 * size + index],
            columns[size + index],
            plain[start : bodies + columns[ends + index]],
        )

    def entries(self) -> list[Entry]:
        """Return all entries in order."""
        size, columns, start, plain = self
        ends = columns[3 * size : 4 * size]
        offset = start
        bodies = []
        for end in ends:
            bodies.append(plain[start : offset + end])
            start = offset + end
        return list(
            map(
                Entry,
                columns[:size],
                columns[2 * size : 3 * size],
                columns[4 * size :],
                columns[size : 2 * size],
                bodies,
            )
        )


def encode_record(entries: Sequence[Entry]) -> bytes:
    """Encode the entries of one commit.

    Raises:
        ValueError: There is no entry, a header number is out of its range, or the bodies exceed 4 GiB.
    """
    count = len(entries)
    if not count:
        raise ValueError("a commit record needs at least one entry")
    try:
        if count == 1:  # a step of a run alone waits for this
            ((run_key, first_event, flag, at, body),) = entries
            plain = _ONE.pack(1, run_key, at, first_event, len(body), flag) + body
        else:
            run_keys, first_events, flags, times, bodies = zip(*entries, strict=True)
            ends = accumulate(map(len, bodies))
            header = _columns(count).pack(*run_keys, *times, *first_events, *ends, *flags)
            plain = b"".join((_COUNT.pack(count), header, *bodies))
    except struct.error as error:
        raise ValueError(f"an entry cannot be stored: {_what_is_wrong(entries) or error}") from error
    if len(plain) < SMALL:
        return _HEAD.pack(RECORD_VERSION, zlib.crc32(plain, RECORD_VERSION)) + plain
    if len(plain) > MAX_PLAIN:
        raise ValueError(f"the entries of one commit hold {len(plain)} bytes; at most {MAX_PLAIN} fit")
    return _HEAD.pack(RECORD_VERSION | COMPRESSED, len(plain) ^ _MASK) + _codecs.compress(plain)


def decode_record(data: bytes) -> list[Entry]:
    """Return the entries of a record.

    Raises:
        JournalCorruptError: The record is damaged or of an unknown version; the caller names it.
    """
    return open_record(data).entries()


def open_record(data: bytes) -> PlainRecord:
    """Decompress and verify a record without building its entries.

    Raises:
        JournalCorruptError: The record is damaged or of an unknown version; the caller names it.
    """
    try:
        version, plain = _plain_text(data)
        (count,) = _COUNT.unpack_from(plain)
        # A wrong count can pass the checksum only by a bug of ours; it must not become a huge allocation.
        if not 0 < count * 25 <= len(plain):
            raise JournalCorruptError(f"it claims {count} entries in {len(plain)} bytes")
        layout = _columns(count)
        columns = layout.unpack_from(plain, _COUNT.size)
        bodies = _COUNT.size + layout.size
        if bodies + columns[4 * count - 1] != len(plain):
            raise JournalCorruptError("its length differs from what its headers say")
    except (struct.error, zstandard.ZstdError) as error:
        raise JournalCorruptError(str(error)) from error
    if version == _WITHOUT_REQUEST_FLAG:
        columns = (*columns[: 4 * count], *(flags | HAS_REQUEST for flags in columns[4 * count :]))
    return PlainRecord(count, columns, bodies, plain)


def _plain_text(data: bytes) -> tuple[int, bytes]:
    """The version of a record, and its plain text."""
    kind, check = _HEAD.unpack_from(data)
    stored = data[_HEAD.size :]
    version = kind & ~COMPRESSED
    if version not in {RECORD_VERSION, _WITHOUT_REQUEST_FLAG}:
        raise JournalCorruptError(f"its kind {kind:#04x} is unknown to this version")
    is_old = version == _WITHOUT_REQUEST_FLAG
    if not kind & COMPRESSED:
        if zlib.crc32(stored, 0 if is_old else version) != check:
            raise JournalCorruptError("its checksum differs")
        return version, stored
    if zstandard.frame_content_size(stored) != (check if is_old else check ^ _MASK):
        raise JournalCorruptError("its compressed frame does not state the expected length")
    plain = _codecs.decompress(stored, max_output_size=0, read_across_frames=False, allow_extra_data=False)
    return version, plain


def _what_is_wrong(entries: Iterable[Entry]) -> str | None:
    """Name the first header number that has no room, for the error message only."""
    ranges = {
        "run_key": (0, 2**64 - 1),
        "first_event": (0, 2**32 - 1),
        "flags": (0, 255),
        "at": (-(2**63), 2**63 - 1),
    }
    for index, entry in enumerate(entries):
        for name, (low, high) in ranges.items():
            value = getattr(entry, name)
            if not isinstance(value, int) or not low <= value <= high:
                return f"{name} of entry {index} is {value!r}, not an integer from {low} to {high}"
    return None
