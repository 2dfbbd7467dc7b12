"""Payload codecs: what is done to stored values on their way into the journal, and undone on their way out.

A codec is given payloads and gives as many back. What it has changed it marks by an encoding of its own, so that it
knows it again; what carries another mark it leaves alone on the way out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from inspect import iscoroutinefunction

import msgspec

from .blobs import REFERENCE
from .errors import PayloadCodecError
from .failures import safe_message
from .payloads import Payload

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Payload).decode


class PayloadCodec(ABC):
    """Base of payload codecs: compression, encryption, or keeping large values elsewhere.

    ``encode`` and ``decode`` may be plain functions, which run in threads, several at a time, or ``async def``, which
    run on the event loop. They never run inside workflow code, and a run waits while its own payloads are on their
    way; the others go on. What they raise goes to the caller whose value it was, or stalls the run.

    Attributes:
        inline_limit: Payloads of at most so many bytes together are coded at once, without the way through a thread.
            Only for codecs that need microseconds for that and wait for nothing; 0 for all others.
        encryption: For a codec that encrypts, a name for that, which never changes; else empty. A journal remembers
            it, and is not opened without a codec of this name any more.
    """

    inline_limit: int = 0
    encryption: str = ""

    @abstractmethod
    def encode(self, payloads: Sequence[Payload]) -> Sequence[Payload] | Awaitable[Sequence[Payload]]:
        """Change payloads on their way into the journal; as many come back, in the same order."""

    @abstractmethod
    def decode(self, payloads: Sequence[Payload]) -> Sequence[Payload] | Awaitable[Sequence[Payload]]:
        """Undo ``encode``; payloads that this codec has not made come back as they are."""

    def digest_keys(self) -> tuple[bytes, ...]:
        """Keys (at most 64 bytes each) for the digests of repeated requests, the present one first.

        A digest of a message's arguments stands in the journal beside its request id. Without a key it would let a
        reader try out what an encrypted value may be.
        """
        return ()


def packed(payload: Payload) -> bytes:
    """A whole payload as bytes, for a codec to work on."""
    return _pack(payload)


def unpacked(data: bytes) -> Payload:
    """Undo ``packed``.

    Raises:
        msgspec.DecodeError: The bytes are something else.
    """
    return _unpack(data)


def is_async(codec: PayloadCodec, way: str) -> bool:
    """Whether a codec's ``encode`` or ``decode`` runs on the event loop."""
    return iscoroutinefunction(getattr(codec, way))


def checked(codec: PayloadCodec, way: str, given: Sequence[Payload], made: object) -> list[Payload]:
    """What a codec has given back.

    Raises:
        PayloadCodecError: It is not one payload for each, or marked as only the journal marks.
    """
    name = type(codec).__name__
    if not isinstance(made, Sequence) or not all(isinstance(payload, Payload) for payload in made):
        raise PayloadCodecError(
            f"payload codec {name}: {way} must return a list of payloads, not {made!r:.200}"
        )
    if len(made) != len(given):
        raise PayloadCodecError(
            f"payload codec {name}: {way} was given {len(given)} payloads and returned {len(made)}"
        )
    if way == "encode" and any(payload.encoding == REFERENCE for payload in made):
        raise PayloadCodecError(
            f"payload codec {name}: the encoding {REFERENCE!r} is the journal's own mark: give what the codec makes "
            f"another one, such as 'mine/{REFERENCE}'"
        )
    return list(made)


def trouble(codec: PayloadCodec, way: str, error: BaseException) -> PayloadCodecError:
    """What a codec has raised, as the error of Everact that says which codec it was."""
    name = type(codec).__name__
    if isinstance(error, PayloadCodecError):  # its own words say what to do
        ours = PayloadCodecError(f"payload codec {name}: {error.message}", error.where, error.path)
    else:
        ours = PayloadCodecError(
            f"payload codec {name} could not {way} it: {type(error).__name__}: {safe_message(error)}"
        )
    ours.__cause__ = error
    return ours
