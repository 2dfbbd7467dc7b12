"""Events of histories for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .actors.descriptions import HistoryEvent

__all__ = ["event_line", "fields_text"]

#: Characters of an event's fields in one line; JSON has them all.
FIELDS = 160
#: Fields that only programs read.
_INTERNAL = frozenset(["tag", "event", "digest"])


def event_line(event: HistoryEvent) -> str:
    """An event in one line."""
    text = fields_text(event)
    shown = text if len(text) <= FIELDS else f"{text[: FIELDS - 3]}..."
    return f"{event.at:%Y-%m-%d %H:%M:%S.%f} {event.kind} {shown}"


def fields_text(event: HistoryEvent) -> str:
    """Its fields as JSON, without what is empty."""
    from .cluster.wire import to_json  # noqa: PLC0415  (each command loads only what it needs)
    from .journal.run_document import plain  # noqa: PLC0415

    fields = {name: value for name, value in plain(event.event).items() if name not in _INTERNAL}
    return to_json(
        {name: _short(value) for name, value in fields.items() if value not in ("", None, [])}
    ).decode()


def _short(value: Any) -> Any:
    """A payload as its value alone, where that is JSON."""
    if isinstance(value, list):
        return [_short(one) for one in value]
    return value["json"] if isinstance(value, dict) and value.keys() == {"encoding", "json"} else value
