"""The event of values that outsiders read."""

from __future__ import annotations

from .event_base import Event
from .payloads import Payload


class ValuePublished(Event, tag="vp", frozen=True):
    """Command: outsiders read this value by its key from now on; None takes it out."""

    key: str
    value: Payload | None = None
