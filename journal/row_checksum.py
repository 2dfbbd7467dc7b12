"""Rows of tables with a checksum: LMDB has none of its own."""

from __future__ import annotations

import zlib

from .errors import JournalCorruptError

_SIZE = 4


def sealed(data: bytes) -> bytes:
    """A row of these data."""
    return zlib.crc32(data).to_bytes(_SIZE, "little") + data


def unsealed(row: bytes) -> bytes:
    """The data of a row.

    Raises:
        JournalCorruptError: The checksum differs.
    """
    data = row[_SIZE:]
    if int.from_bytes(row[:_SIZE], "little") != zlib.crc32(data):
        raise JournalCorruptError("the checksum of a row differs")
    return data
