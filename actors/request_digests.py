"""What tells a repeated request from another one under the same request id."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from ..journal.payloads import Payload


def request_digest(kind: str, name: str, payloads: Sequence[Payload], key: bytes = b"") -> bytes:
    """Digest of a message or a start.

    Args:
        kind: ``start``, ``signal`` or ``update``.
        name: Of the handler or the workflow type.
        payloads: The plain arguments.
        key: Of the payload codecs, at most 64 bytes, so that nobody can try out what encrypted arguments are.
    """
    digest = blake2b(f"{kind} {name}".encode(), digest_size=16, key=key)
    for payload in payloads:
        digest.update(b"\0%d\0" % len(payload.data))
        digest.update(payload.encoding.encode())
        digest.update(payload.data)
    return digest.digest()
