"""Encryption of payloads: AES-GCM with named keys."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from .codecs import PayloadCodec, packed, unpacked
from .errors import PayloadCodecError
from .payloads import Payload

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ENCODING = "aes-gcm"
#: First byte of what is stored.
VERSION = 1
_NONCE = 12
_TAG = 16
_LONGEST_ID = 255


class AesGcmCodec(PayloadCodec):
    """Encrypts and authenticates payloads with AES-GCM (NIST SP 800-38D), each with a random nonce of 96 bits.

    What is stored: the version (1 byte), the length of the key's id (1 byte), the id, the nonce (12 bytes), the
    ciphertext with its tag (16 bytes). Everything before the nonce is authenticated too. A key serves for 2**32
    payloads; make another one the active key before that.

    Args:
        keys: Key by id: 16, 24 or 32 random bytes each. Ids stand readable in the journal.
        active: Id of the key that encrypts; all of them decrypt. None: nothing is encrypted any more, and what is
            not is read.
        accept_plain: Read values that are not encrypted, from before this codec was used. Whoever can write the
            journal can then put values of their own there.

    Raises:
        ImportError: The package ``cryptography`` is missing.
        ValueError: A key has another length, an id is too long, or there is no active key.
        TypeError: A key is not bytes.
    """

    inline_limit = 64 << 10

    encryption = ENCODING

    def __init__(self, keys: Mapping[str, bytes], *, active: str | None, accept_plain: bool = False) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ImportError(
                "AesGcmCodec needs the package cryptography: pip install 'everact[encryption]'"
            ) from error
        if not isinstance(keys, Mapping):
            raise TypeError(f"keys must be a dict of keys by their ids, not a {type(keys).__name__}")
        for key_id, key in keys.items():
            _check_key(key_id, key)
        if active is not None and active not in keys:
            raise ValueError(f"the active key {active!r} is not among the keys: {_listed(keys)}")
        self._active = active
        self._header = b"" if active is None else _header(active)
        self._accept_plain = accept_plain or active is None
        self._ciphers: dict[str, AESGCM] = {key_id: AESGCM(key) for key_id, key in keys.items()}
        order = sorted(keys, key=lambda key_id: key_id != active)
        self._digest_keys = tuple(
            blake2b(b"everact request digest", key=keys[key_id], digest_size=32).digest() for key_id in order
        )

    def __repr__(self) -> str:
        return f"<AesGcmCodec active={self._active!r} keys={_listed(self._ciphers)}>"

    def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt with the active key, if there is one."""
        if self._active is None:
            return list(payloads)
        cipher, header = self._ciphers[self._active], self._header
        made: list[Payload] = []
        for payload in payloads:
            nonce = os.urandom(_NONCE)
            made.append(Payload(ENCODING, header + nonce + cipher.encrypt(nonce, packed(payload), header)))
        return made

    def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt with whichever key it was.

        Raises:
            PayloadCodecError: The key is not known, the payload was changed, or it is not encrypted.
        """
        return [self._plain(payload) for payload in payloads]

    def digest_keys(self) -> tuple[bytes, ...]:
        """One for each key, derived from it."""
        return self._digest_keys

    def _plain(self, payload: Payload) -> Payload:
        if payload.encoding != ENCODING:
            if self._accept_plain:
                return payload
            raise PayloadCodecError(
                f"it is stored without encryption (as {payload.encoding!r}); if it was written before the journal was "
                f"encrypted, read it with AesGcmCodec(..., accept_plain=True)"
            )
        data = payload.data
        start = 2 + (data[1] if len(data) > 1 else 0)
        if len(data) < start + _NONCE + _TAG or data[0] != VERSION:
            raise PayloadCodecError("the encrypted payload is damaged, or of a newer version of Everact")
        header, nonce = data[:start], data[start : start + _NONCE]
        key_id = header[2:].decode("utf-8", "replace")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise PayloadCodecError(
                f"it is encrypted with the key {key_id!r}, which is not among the keys here: {_listed(self._ciphers)}. "
                f"Add that key to AesGcmCodec(keys=...); a key is needed for as long as the journal has payloads of it"
            )
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

        try:
            return unpacked(cipher.decrypt(nonce, data[start + _NONCE :], header))
        except InvalidTag:
            raise PayloadCodecError(
                f"it cannot be decrypted with the key {key_id!r}: the key under this id is another one than the one "
                f"that wrote it, or the stored bytes were changed"
            ) from None


def _check_key(key_id: str, key: bytes) -> None:
    if not isinstance(key_id, str) or not 0 < len(key_id.encode()) <= _LONGEST_ID:
        raise ValueError(f"the id of a key must be a text of 1 to {_LONGEST_ID} bytes, not {key_id!r}")
    if not isinstance(key, bytes):
        raise TypeError(f"the key {key_id!r} must be bytes, not {type(key).__name__}")
    if len(key) not in (16, 24, 32):
        raise ValueError(f"the key {key_id!r} must have 16, 24 or 32 bytes, not {len(key)}")


def _header(key_id: str) -> bytes:
    encoded = key_id.encode()
    return bytes([VERSION, len(encoded)]) + encoded


def _listed(keys: Mapping[str, object]) -> str:
    return ", ".join(map(repr, keys)) or "none"
