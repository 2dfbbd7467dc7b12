"""What all events have in common; the events themselves are in ``events``, by theme also in modules of their own."""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of all events."""
