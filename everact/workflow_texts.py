"""How the commands show runs to people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

from .history_texts import FIELDS, event_line
from .journal_commands import _printable, _say

if TYPE_CHECKING:
    from .actors.descriptions import History, WorkflowDescription, WorkflowSummary
    from .actors.listing import WorkflowPage
    from .actors.step_info import StepInfo

__all__ = ["ListPrinter", "print_description", "print_history"]

#: Of the table of runs.
HEADERS = ("workflow id", "type", "status", "started", "closed", "run")


class ListPrinter:
    """Prints runs page by page as they are read, for people or as one JSON document.

    Attributes:
        left: How many may still be printed.
        token: Behind it the list goes on; None at the beginning and at the end.
        is_over: There are no more.
    """

    def __init__(self, limit: int, token: str | None, *, as_json: bool) -> None:
        self.left = limit
        self.token = token
        self.is_over = False
        self._limit = limit
        self._as_json = as_json
        self._widths: list[int] | None = None
        self._count = 0
        self._shows_parents = False
        self._shows_chains = False

    def page(self, page: WorkflowPage) -> None:
        """Print some more."""
        if self._as_json:
            self._print_json(page.workflows)
        elif page.workflows:
            self._print_table(page.workflows)
        self._count += len(page.workflows)
        self.left -= len(page.workflows)
        self.token = page.next_page_token
        self.is_over = self.token is None or self.left <= 0

    def end(self) -> None:
        """Print what belongs behind the last one."""
        from .cluster.wire import to_json  # noqa: PLC0415

        if self._as_json:
            typer.echo(f'],"next_page_token":{to_json(self.token).decode()}}}')
        elif not self._count:
            typer.echo("no runs")
        elif self.token is not None:
            typer.echo(f"the newest {self._limit:,} (--limit)")

    def _print_json(self, found: Sequence[WorkflowSummary]) -> None:
        from .cluster.wire import summary_document, to_json  # noqa: PLC0415

        rows = [to_json(summary_document(run)).decode() for run in found]
        between = "," if self._count else '{"workflows":['
        typer.echo((between if rows or not self._count else "") + ",\n".join(rows), nl=False)

    def _print_table(self, found: Sequence[WorkflowSummary]) -> None:
        """Rows of a table; the widths of the first page hold for the others, if they fit."""
        from rich.box import SIMPLE_HEAD  # noqa: PLC0415
        from rich.console import Console  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        if self._widths is None:  # the first page decides
            self._shows_parents = any(run.parent_id for run in found)
            self._shows_chains = any(map(_chain, found))
        headers = [*HEADERS]
        headers += [
            name for name, shown in (("chain", self._shows_chains), ("parent", self._shows_parents)) if shown
        ]
        rows = [
            [
                _printable(cell)
                for cell in (
                    run.workflow_id,
                    run.workflow_type,
                    run.status,
                    _time(run.started_at),
                    _time(run.closed_at),
                    run.run_id,
                    *([_chain(run)] if self._shows_chains else []),
                    *([run.parent_id or ""] if self._shows_parents else []),
                )
            ]
            for run in found
        ]
        table = Table(box=SIMPLE_HEAD, show_header=self._widths is None, show_edge=False)
        if self._widths is None:
            self._widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
        for header, width in zip(headers, self._widths, strict=True):
            table.add_column(header, min_width=width if not sys.stdout.isatty() else None)
        for row in rows:
            table.add_row(*(Text(cell, overflow="fold") for cell in row))
        # Elsewhere than on a terminal lines are as long as they must be, for grep.
        Console(width=None if sys.stdout.isatty() else 10_000).print(table)


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
        ("first run", seen.first_run_id if seen.first_run_id != seen.run_id else ""),
        ("continued from", seen.continued_from or ""),
        ("continued to", seen.continued_to or ""),
        ("attempt", seen.attempt if seen.attempt > 1 else ""),
        ("schedule", seen.cron_schedule or ""),
        ("begins", _time(seen.begins_at)),
        ("deadline", _time(seen.deadline)),
        ("waiting on", "" if seen.closed_at else seen.waiting_on),
        ("cancel requested", seen.cancel_reason or "yes" if seen.cancel_requested else ""),
        ("terminated", "" if seen.terminate_reason is None else seen.terminate_reason or "no reason given"),
        ("steps", ", ".join(f"{count} {status}" for status, count in sorted(seen.step_counts.items()))),
        *(("step", _step(step)) for step in seen.steps if step.ended_at is None),
        ("children", f"{seen.child_count:,} {_children_of(seen)}" if seen.child_count else ""),
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


def _step(step: StepInfo) -> str:
    """A step that runs."""
    tried = f", attempt {step.attempt}" if step.attempt > 1 else ""
    waits = f", which begins at {_time(step.next_attempt_at)}" if step.next_attempt_at else ""
    return f"{step.name} since {_time(step.started_at)}{tried}{waits}"


def print_history(found: History) -> None:
    """The events of a run, a line each."""
    for event in found:
        _say(f"{event.number:6} {event_line(event)}")


def _chain(run: WorkflowSummary) -> str:
    """A mark for a run with others in its chain: ``<`` one goes before it, ``>`` one follows."""
    return ("<" if run.continued_from else "") + (">" if run.continued_to else "")


def _children_of(seen: WorkflowDescription) -> str:
    """What the children are that a run lists: after its end, those that were open then."""
    return "open at its end" if seen.closed_at else "open"


def _time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"
