"""Events of one run as one value of the histories table, and back.

A value is ``kind u8 | CRC-32 | plain text``, or ``kind u8 | zstd frame``, which carries its own checksum and names the
dictionary that it needs::

    plain text = count u32 | times i64[] | first events u32[] | body ends u32[] | flags u8[] | bodies

All numbers are little-endian. It is the layout of a commit record (``log_record``) without the run keys. Short values
are compressed with a dictionary that was trained on such values: alone they hold little that repeats.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate

import zstandard

from .errors import JournalCorruptError
from .row_checksum import sealed, unsealed
from .store import Changes, Entry, Tables
from .tables import NUMBER, Table

_PLAIN, _FRAME = 1, 2

#: zstd level of histories: they are written once and kept.
LEVEL = 1
#: Plain texts longer than this are compressed without a dictionary.
SHORT = 8 << 10
#: Plain texts that a dictionary is trained on: how many, their size together at most, and its own size, in bytes.
SAMPLES = 2000
SAMPLE_BYTES = 4 << 20
DICTIONARY_SIZE = 16 << 10

#: What the key of the second copy of a dictionary begins with.
_COPY = b"dictionary"

_CHECK = struct.Struct("<BI")
_COUNT = struct.Struct("<I")


@lru_cache(maxsize=1024)
def _columns(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}q{count}I{count}I{count}B")


def plain_text(entries: Sequence[Entry]) -> bytes:
    """The entries of one run, in order, as one text; ``encode`` makes a value of it."""
    count = len(entries)
    _keys, first_events, flags, times, bodies = zip(*entries, strict=True)
    header = _columns(count).pack(*times, *first_events, *accumulate(map(len, bodies)), *flags)
    return b"".join((_COUNT.pack(count), header, *bodies))


def entries_of(run_key: int, plain: bytes) -> list[Entry]:
    """The entries of a plain text.

    Raises:
        JournalCorruptError: It does not fit together.
    """
    try:
        (count,) = _COUNT.unpack_from(plain)
        if not 0 < count * 17 <= len(plain):
            raise JournalCorruptError(f"it claims {count} entries in {len(plain)} bytes")
        layout = _columns(count)
        columns = layout.unpack_from(plain, _COUNT.size)
    except struct.error as error:
        raise JournalCorruptError(str(error)) from error
    base = _COUNT.size + layout.size
    ends = columns[2 * count : 3 * count]
    if base + ends[-1] != len(plain):
        raise JournalCorruptError("its length differs from what its headers say")
    start = base
    found = []
    for index, end in enumerate(ends):
        body = plain[start : base + end]
        start = base + end
        found.append(Entry(run_key, columns[count + index], columns[3 * count + index], columns[index], body))
    return found


class _Trained:
    """A dictionary with its contexts; each thread needs its own."""

    def __init__(self, data: bytes) -> None:
        self._dictionary = zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_FULLDICT)
        self._dictionary.precompute_compress(level=LEVEL)
        self._local = threading.local()

    def compress(self, plain: bytes) -> bytes:
        compressor = getattr(self._local, "compressor", None)
        if compressor is None:
            compressor = self._local.compressor = zstandard.ZstdCompressor(
                level=LEVEL, dict_data=self._dictionary, write_checksum=True
            )
        return compressor.compress(plain)

    def decompress(self, frame: bytes) -> bytes:
        decompressor = getattr(self._local, "decompressor", None)
        if decompressor is None:
            decompressor = self._local.decompressor = zstandard.ZstdDecompressor(dict_data=self._dictionary)
        return _decompressed(decompressor, frame)


class _Contexts(threading.local):
    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def _decompressed(decompressor: zstandard.ZstdDecompressor, frame: bytes) -> bytes:
    return decompressor.decompress(frame, read_across_frames=False, allow_extra_data=False)


class HistoryCodec:
    """Encodes and decodes the values of one journal's histories; safe to use from many threads.

    Attributes:
        active: Number of the dictionary for new values; 0 is none.
    """

    def __init__(self) -> None:
        self.active = 0
        self._trained: dict[int, _Trained] = {}

    def add(self, number: int, data: bytes) -> None:
        """Make a dictionary known."""
        if number not in self._trained:
            self._trained[number] = _Trained(data)

    def encode(self, plain: bytes) -> bytes:
        """Make the value of a plain text."""
        if self.active and len(plain) <= SHORT:
            return b"\x02" + self._trained[self.active].compress(plain)
        frame = _contexts.compress(plain)
        if len(frame) + 1 < len(plain) + _CHECK.size:
            return b"\x02" + frame
        return _CHECK.pack(_PLAIN, zlib.crc32(plain)) + plain

    def decode(self, value: bytes, load: Callable[[int], bytes | None]) -> bytes:
        """Return the plain text of a value.

        Args:
            value: A value of the table.
            load: Finds a dictionary that is not known yet.

        Raises:
            JournalCorruptError: It is damaged, or its dictionary is missing.
        """
        try:
            if value[0] == _PLAIN:
                _kind, check = _CHECK.unpack_from(value)
                plain = value[_CHECK.size :]
                if zlib.crc32(plain) != check:
                    raise JournalCorruptError("its checksum differs")
                return plain
            if value[0] != _FRAME:
                raise JournalCorruptError(f"its kind {value[0]:#04x} is unknown to this version")
            frame = value[1:]
            number = zstandard.get_frame_parameters(frame).dict_id
            if not number:
                return _decompressed(_contexts.decompressor, frame)
            if number not in self._trained:
                data = load(number)
                if data is None:
                    raise JournalCorruptError(f"the dictionary {number} that it needs is missing")
                self.add(number, data)
            return self._trained[number].decompress(frame)
        except (IndexError, struct.error, zstandard.ZstdError) as error:
            raise JournalCorruptError(str(error)) from error


def _places(number: int) -> list[tuple[Table, bytes]]:
    """Where a dictionary is: twice, since all histories depend on it, and in tables that share no page."""
    return [(Table.FACTS, b"dictionary %d" % number), (Table.BLOBS, copy_key(number))]


def copy_key(number: int) -> bytes:
    """Key of the second copy of a dictionary in the table of blobs; it is as long as none of theirs."""
    return _COPY + NUMBER.pack(number)


def is_copy_key(key: bytes) -> bool:
    """Whether a key of the table of blobs is that of a dictionary."""
    return key.startswith(_COPY) and len(key) == len(_COPY) + NUMBER.size


def load_dictionary(tables: Tables, number: int) -> bytes | None:
    """Find a dictionary, or its copy.

    Raises:
        JournalCorruptError: Neither is whole.
    """
    damage: JournalCorruptError | None = None
    for place in _places(number):
        try:
            data = _dictionary(tables, number, place)
        except JournalCorruptError as error:
            damage = damage or error
            continue
        if data is not None:
            return data
    if damage is not None:
        raise damage
    return None


def _dictionary(tables: Tables, number: int, place: tuple[Table, bytes]) -> bytes | None:
    try:
        row = tables.get(*place)
        return None if row is None else unsealed(row)
    except JournalCorruptError as error:
        raise JournalCorruptError(
            f"the dictionary {number} of the histories cannot be read: {error}"
        ) from error


def dictionary_faults(tables: Tables, number: int) -> Iterator[tuple[Table, str]]:
    """Yield what is wrong with a dictionary and its copy; journals of before there were copies may lack these."""
    for place in _places(number):
        try:
            if _dictionary(tables, number, place) is None and place[0] is Table.FACTS:
                yield Table.FACTS, f"the dictionary {number} is missing"
        except JournalCorruptError as error:
            yield place[0], str(error)


def write_dictionary(changes: Changes, number: int, data: bytes) -> None:
    """Store a dictionary, and its copy."""
    row = sealed(data)
    for table, key in _places(number):
        changes.put(table, [(key, row)])


def mend_dictionaries(changes: Changes, newest: int) -> None:
    """Store those again of which one copy is missing or damaged, as far as the other one is whole."""
    for number in range(1, newest + 1):
        rows = [changes.get(*place) for place in _places(number)]
        if rows[0] is None or rows[0] != rows[1]:
            with suppress(JournalCorruptError):
                data = load_dictionary(changes, number)
                if data is not None:
                    write_dictionary(changes, number, data)


def train(samples: Sequence[bytes], number: int) -> bytes | None:
    """Train a dictionary on plain texts; None when they are not fit for it."""
    try:
        # Fixed parameters of the cover algorithm: the search for better ones takes seconds and gains 2 %.
        return zstandard.train_dictionary(
            DICTIONARY_SIZE, list(samples), k=64, d=8, level=LEVEL, dict_id=number
        ).as_bytes()
    except zstandard.ZstdError:
        return None
