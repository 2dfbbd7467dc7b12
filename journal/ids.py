"""Random ids, drawn from the system in bulk: one call to the kernel for each would cost more than the id."""

from __future__ import annotations

import os

_BYTES = 16
_DRAWN_AT_ONCE = 256

_pool: list[str] = []


def random_id() -> str:
    """128 random bits from the operating system, as 32 hex digits."""
    if not _pool:
        drawn = os.urandom(_BYTES * _DRAWN_AT_ONCE).hex()
        digits = 2 * _BYTES
        _pool.extend(drawn[at : at + digits] for at in range(0, len(drawn), digits))
    return _pool.pop()


if hasattr(os, "register_at_fork"):
    # A child must not hand out the ids that its parent will.
    os.register_at_fork(after_in_child=_pool.clear)
