"""What the modules of events share; the events themselves are in ``events``, by theme also in modules of their own."""

from __future__ import annotations

import msgspec

from .payloads import Payload


class Event(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of all events."""


class Header(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What interceptors hand on beside the arguments of a call, by name."""

    name: str
    value: Payload
