"""How the commands show runs to people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

from .journal_commands import _printable, _say

if TYPE_CHECKING:
    from .actors.descriptions import History, WorkflowDescription, WorkflowSummary

__all__ = ["print_description", "print_history", "print_list"]

#: Characters of an event's fields in one line; JSON has them all.
FIELDS = 160
#: Fields that only programs read.
_INTERNAL = frozenset(["tag", "event", "digest"])


def print_list(found: Sequence[WorkflowSummary], limit: int) -> None:
    """A table of runs."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    if not found:
        typer.echo("no runs")
        return
    has_children = any(run.parent_id for run in found)
    names = [
        "workflow id",
        "type",
        "status",
        "started",
        "closed",
        "run",
        *(["parent"] if has_children else []),
    ]
    table = Table(*names, box=SIMPLE_HEAD)
    for run in found:
        row = (
            run.workflow_id,
            run.workflow_type,
            run.status,
            _time(run.started_at),
            _time(run.closed_at),
            run.run_id,
            *([run.parent_id or ""] if has_children else []),
        )
        table.add_row(*(Text(_printable(cell), overflow="fold") for cell in row))
    # Elsewhere than on a terminal lines are as long as they must be, for grep.
    Console(width=None if sys.stdout.isatty() else 10_000).print(table)
    if len(found) == limit:
        typer.echo(f"the newest {limit:,} (--limit)")


def print_description(seen: WorkflowDescription) -> None:
    """What is known of a run, a line each."""
    lines: list[tuple[str, Any]] = [
        ("workflow id", seen.workflow_id),
        ("run", seen.run_id),
        ("type", seen.workflow_type),
        ("status", seen.status),
        ("started", _time(seen.started_at)),
        ("closed", _time(seen.closed_at)),
        ("parent", "" if seen.parent is None else f"{seen.parent.workflow_id} (run {seen.parent.run_id})"),
        ("waiting on", "" if seen.closed_at else seen.waiting_on),
        ("cancel requested", "yes" if seen.cancel_requested else ""),
        ("children", f"{seen.child_count:,} open" if seen.child_count else ""),
        *(("child", f"{c.workflow_id} ({c.workflow_type}, {c.status})") for c in seen.children),
        ("backlog", seen.backlog or ""),
        ("events", seen.history_length),
        *(("last failure", f"{a.activity_type}: {a.last_failure}") for a in seen.pending_activities if a.last_failure),
        ("paused", "" if seen.pause_reason is None else seen.pause_reason or "no reason given"),
        *(("published", f"{key} = {_value(value)}") for key, value in seen.published.items()),
        *(("saga", str(saga)) for saga in seen.sagas),
        *(("dead letter", str(letter)) for letter in seen.dead_letters),
    ]  # fmt: skip
    for name, value in lines:
        if value != "":
            _say(f"{name + ':':18}{value}")
    if seen.failure:
        typer.echo("failure:")
        for line in seen.failure.splitlines():
            _say(f"  {line}")


def _value(value: Any) -> str:
    import msgspec  # noqa: PLC0415

    text = msgspec.json.encode(value, enc_hook=repr).decode()
    return text if len(text) <= FIELDS else f"{text[: FIELDS - 3]}..."


def print_history(found: History) -> None:
    """The events of a run, a line each."""
    from .cluster.wire import to_json  # noqa: PLC0415
    from .journal.run_document import plain  # noqa: PLC0415

    for event in found:
        fields = {name: value for name, value in plain(event.event).items() if name not in _INTERNAL}
        text = to_json({name: _short(value) for name, value in fields.items() if value not in ("", None, [])})
        shown = text.decode()
        shown = shown if len(shown) <= FIELDS else f"{shown[: FIELDS - 3]}..."
        _say(f"{event.number:6} {event.at:%Y-%m-%d %H:%M:%S.%f} {event.kind} {shown}")


def _short(value: Any) -> Any:
    """A payload as its value alone, where that is JSON."""
    if isinstance(value, list):
        return [_short(one) for one in value]
    return value["json"] if isinstance(value, dict) and value.keys() == {"encoding", "json"} else value


def _time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"
