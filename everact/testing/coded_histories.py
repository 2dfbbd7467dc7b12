"""Takes back what payload codecs have done to a history that was read out of a journal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ..actors.actor_coding import with_events
from ..actors.event_coder import EventCoder
from ..journal import events as ev
from ..journal.codecs import PayloadCodec
from ..journal.coded_fields import TEXT, map_event
from ..journal.payloads import Payload
from .history_sources import StoredHistory

__all__ = ["decoded"]

#: As converters store values, and as the text of a failure is stored.
_PLAIN = frozenset(["null", "raw", "json", "tagged", "pickle", TEXT])


def decoded(history: StoredHistory, codecs: Sequence[PayloadCodec]) -> StoredHistory:
    """The same without what the codecs have done; with an error when they cannot undo it.

    Call it where no event loop runs.
    """
    if not codecs or history.error is not None or not _is_coded(history):
        return history
    try:
        return replace(history, records=asyncio.run(_through(history, codecs)))
    except Exception as error:  # noqa: BLE001  (a codec may raise anything)
        return replace(history, error=error)


async def _through(
    history: StoredHistory, codecs: Sequence[PayloadCodec]
) -> tuple[tuple[int, ev.Record], ...]:
    coder = EventCoder(codecs, asyncio.get_running_loop())
    try:
        events = [event for _at, record in history.records for event in ev.events_of(record)]
        return tuple(with_events(list(history.records), await coder.decode(events)))
    finally:
        coder.close()


def _is_coded(history: StoredHistory) -> bool:
    """Whether anything in it is not as a converter has stored it: what ``fetch_history`` gave is plain."""
    encodings: set[str] = set()

    def note(payload: Payload, _place: str) -> Payload:
        encodings.add(payload.encoding)
        return payload

    for _at, record in history.records:
        for event in ev.events_of(record):
            map_event(event, note)
    return not encodings <= _PLAIN
