"""Compression of payloads."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec
import zstandard

from .codecs import PayloadCodec, packed, unpacked
from .errors import PayloadCodecError
from .payloads import Payload

ENCODING = "zstd"


class ZstdCodec(PayloadCodec):
    """Compresses payloads with Zstandard; what does not get smaller is left as it is.

    The journal compresses its records anyway. This codec is for large payloads that are to count less against the
    limits, and to be put before an encrypting codec, after which nothing can be compressed any more.

    Args:
        level: From 1 (quick) to 22 (small).
        smallest: Payloads of fewer bytes are left alone.

    Raises:
        ValueError: The level or the size is out of range.
    """

    inline_limit = 16 << 10

    def __init__(self, *, level: int = 3, smallest: int = 256) -> None:
        if not 1 <= level <= zstandard.MAX_COMPRESSION_LEVEL:
            raise ValueError(f"level must be from 1 to {zstandard.MAX_COMPRESSION_LEVEL}, not {level!r}")
        if smallest < 0:
            raise ValueError(f"smallest must not be negative, not {smallest!r}")
        self._level = level
        self._smallest = smallest
        self._of_thread = threading.local()  # zstandard's objects are for one thread each

    def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Compress."""
        return [self._compressed(payload) for payload in payloads]

    def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decompress.

        Raises:
            PayloadCodecError: A payload is damaged.
        """
        return [self._plain(payload) if payload.encoding == ENCODING else payload for payload in payloads]

    def _compressed(self, payload: Payload) -> Payload:
        if len(payload.data) < self._smallest:
            return payload
        compressor: zstandard.ZstdCompressor | None = getattr(self._of_thread, "compressor", None)
        if compressor is None:
            compressor = self._of_thread.compressor = zstandard.ZstdCompressor(level=self._level)
        data = compressor.compress(packed(payload))
        return Payload(ENCODING, data) if len(data) < len(payload.data) else payload

    def _plain(self, payload: Payload) -> Payload:
        decompressor: zstandard.ZstdDecompressor | None = getattr(self._of_thread, "decompressor", None)
        if decompressor is None:
            decompressor = self._of_thread.decompressor = zstandard.ZstdDecompressor()
        try:
            return unpacked(decompressor.decompress(payload.data))
        except (zstandard.ZstdError, msgspec.MsgspecError) as error:
            raise PayloadCodecError(f"the compressed payload is damaged: {error}") from error
