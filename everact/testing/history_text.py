"""A history as text that is the same in each run of a test, so that it can be committed and compared."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..journal import events as ev
from ..journal.failures import Failure
from ..journal.payloads import Payload
from ..journal.run_document import plain
from ..journal.step_events import StepAttemptFailed
from .history_sources import HistoryLike, StoredHistory, history_of

__all__ = ["assert_history_matches", "event_lines", "history_text"]

#: Set to 1, ``assert_history_matches`` writes the files instead of comparing them.
UPDATE = "EVERACT_UPDATE_HISTORIES"
#: Fields that differ from run to run or that only programs read.
_LEFT_OUT = frozenset(["tag", "event", "digest", "deadline", "next_at", "begins_at", "trace", "bases", "now"])
#: Ids that are drawn at random: those of Everact, and UUIDs.
_ID = re.compile(
    r"\b(?:[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b", re.IGNORECASE
)
#: ``file:line`` of code: lines move with each edit, folders are those of one machine.
_PLACE = re.compile(r"(?:[^\s:\"']*/)?([^\s/:\"']+\.py):\d+")
#: In microseconds.
_DURATIONS = frozenset(
    ["duration", "start_to_close", "schedule_to_start", "schedule_to_close", "heartbeat", "limit"]
)
_IN, _OUT = ">", "<"


def history_text(history: HistoryLike) -> str:
    """The events of a run, a line each: number, ``>`` for what came in or ``<`` for what the code decided, and fields.

    Left out, or replaced by what they stand for: times, traces, digests, the folders and lines of code, and ids that
    were drawn at random. Ids become ``<id 1>``, ``<id 2>`` in the order in which they come, the run id ``<run>``, and a
    workflow id that nobody has chosen ``<workflow>``. Other values that code has drawn at random stay as they are.
    Fields with their default are left out too, so that new versions of Everact, which may add some, give the same text.

    Args:
        history: What ``Replayer.replay`` takes.

    Raises:
        TypeError: It is no history.
        ImportRefusedError: It is damaged.
    """
    found = history_of(history)
    if found.error is not None:
        raise found.error
    return "".join(f"{line}\n" for line in event_lines(found))


def event_lines(history: StoredHistory) -> Iterator[str]:
    """A line for each event."""
    names = _Names(history)
    width = len(str(history.events))
    number = 0
    for _at, record in history.records:
        outputs = record.outputs if isinstance(record, ev.Turn) else ()
        for sign, events in ((_IN, record.inputs), (_OUT, outputs)):
            for place, event in enumerate(events):
                number += 1
                told = _told(event)
                if place and type(event) is ev.TimerStarted and type(events[place - 1]) is StepAttemptFailed:
                    told["duration"] = "<backoff>"  # by a jitter out of the seed
                fields = "".join(
                    f" {name}={json.dumps(_named(value, names), ensure_ascii=False)}"
                    for name, value in told.items()
                )
                yield f"{number:{width}} {sign} {type(event).__name__}{fields}"


def assert_history_matches(
    history: HistoryLike, path: str | os.PathLike[str], *, update: bool | None = None
) -> None:
    """Compare the text of a history with a committed file.

    Args:
        history: What ``history_text`` takes.
        path: The file.
        update: Write the file instead; None does what the environment variable ``EVERACT_UPDATE_HISTORIES`` says (1).

    Raises:
        AssertionError: They differ, or there is no such file.
    """
    text = history_text(history)
    file = Path(path)
    if update if update is not None else os.environ.get(UPDATE) == "1":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return
    advice = f"if that is right, run the test once with {UPDATE}=1 and commit the file"
    try:
        expected = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise AssertionError(
            f"there is no file {str(file)!r} to compare the history with: {advice}\n{text}"
        ) from None
    if text != expected:
        changes = "\n".join(
            difflib.unified_diff(
                expected.splitlines(), text.splitlines(), str(file), "this history", lineterm=""
            )
        )
        raise AssertionError(f"the history differs from {str(file)!r}; {advice}\n{changes}")


class _Names:
    """Gives what differs from run to run a name that does not."""

    def __init__(self, history: StoredHistory) -> None:
        self._known = {history.workflow_id: "<workflow>", history.run_id: "<run>"}
        self._ids = 0

    def in_text(self, text: str) -> str:
        """A text with these names."""
        text = _ID.sub(lambda match: self._name(match[0]), text)
        return _PLACE.sub(r"\1", text)

    def _name(self, drawn: str) -> str:
        name = self._known.get(drawn)
        if name is None:
            self._ids += 1
            name = self._known[drawn] = f"<id {self._ids}>"
        return name


def _told(struct: msgspec.Struct) -> dict[str, Any]:
    """The fields that say something."""
    if isinstance(struct, ev.RandomDrawn):  # how many draws a shuffle takes depends on the seed
        return {"streams": [stream for stream, _command, _count in struct.draws]}
    told: dict[str, Any] = {}
    defaults = dict(
        zip(reversed(struct.__struct_fields__), reversed(struct.__struct_defaults__), strict=False)
    )
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if name in _LEFT_OUT or (name in defaults and value == defaults[name]):
            continue
        told[name] = _seconds(value) if name in _DURATIONS and type(value) is int else _short(value)
    return told


def _short(value: Any) -> Any:
    """A stored value as what it is for people."""
    match value:
        case Payload():
            stored = plain(value)
            if "json" in stored:
                return stored["json"]
            return None if value.encoding == "null" else f"<{value.encoding}: {len(value.data)} bytes>"
        case Failure():
            text = value.type if not value.message else f"{value.type}: {value.message}"
            return text if value.cause is None else f"{text}, caused by {_short(value.cause)}"
        case ev.Header():
            return {value.name: _short(value.value)}
        case msgspec.Struct():
            return _told(value)
        case tuple():
            return [_short(one) for one in value]
        case bytes():
            return f"<{len(value)} bytes>"
        case _:
            return value


def _seconds(microseconds: int) -> str:
    return f"{microseconds / 1_000_000:.6f}".rstrip("0").rstrip(".") + " s"


def _named(value: Any, names: _Names) -> Any:
    match value:
        case str():
            return names.in_text(value)
        case list():
            return [_named(one, names) for one in value]
        case Mapping():
            return {names.in_text(str(key)): _named(one, names) for key, one in value.items()}
        case _:
            return value
