"""A timeline as text, with bars."""

from __future__ import annotations

import sys
from typing import IO

from ..journal_commands import _printable, _utc
from .model import CANCELLED, DONE, FAILED, LEFT, OPEN, Part, Span, Timeline, seconds
from .scale import Axis, Scale

#: Columns where no terminal says how many there are.
WIDTH = 140
BAR = 40

_FULL = {DONE: "━", FAILED: "x", CANCELLED: "┄", OPEN: "╸", LEFT: "╌"}
_ASCII = str.maketrans("━┄╸╌◆", "=~>.*")
_COLOURS = {DONE: "green", FAILED: "red", CANCELLED: "yellow", OPEN: "cyan", LEFT: "bright_black"}
_MOMENT = "◆"


def print_text(timeline: Timeline, scale: Scale, file: IO[str] | None = None) -> None:
    """Print it; coloured on a terminal."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    out = file or sys.stdout
    console = Console(
        file=out, width=None if out.isatty() else WIDTH, highlight=False, markup=False, emoji=False
    )
    ascii_only = not (getattr(out, "encoding", None) or "").lower().startswith("utf")
    axis = Axis(timeline, scale)
    console.print(Text(_printable(heading(timeline))))
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("event", no_wrap=True)
    table.add_column("at", justify="right", no_wrap=True)
    table.add_column("took", justify="right", no_wrap=True)
    table.add_column("", width=BAR, no_wrap=True)
    table.add_column("what", overflow="fold", ratio=1)
    for span in timeline.spans:
        colour = _COLOURS[span.outcome]
        table.add_row(
            events(span),
            f"+{seconds(span.start - timeline.start)}",
            took(timeline, span),
            Text(_bar(timeline, axis, span, ascii_only=ascii_only), style=colour),
            Text(_printable(what(span)), style="" if span.outcome in {DONE, OPEN} else colour),
        )
        for part in span.parts if len(span.parts) > 1 else ():
            table.add_row(
                "",
                f"+{seconds(part.start - timeline.start)}",
                took(timeline, part),
                Text(_bar(timeline, axis, part, ascii_only=ascii_only), style=_COLOURS[part.outcome]),
                Text(f"{'  ' * (span.depth + 1)}{part.label}: {part.outcome}"),
            )
    console.print(table)


def heading(timeline: Timeline) -> str:
    """What run it is."""
    whole = seconds(timeline.end - timeline.start)
    return (
        f"{timeline.workflow_id!r} ({timeline.workflow_type}, run {timeline.run_id}): {timeline.status}, "
        f"{_utc(timeline.start)}, {whole}, {len(timeline.history)} events"
    )


def what(span: Span) -> str:
    """A span in words."""
    detail = f" ({span.detail})" if span.detail else ""
    outcome = "" if span.is_moment and span.outcome == DONE else f": {span.outcome}"
    return f"{'  ' * span.depth}{span.kind} {span.label}{outcome}{detail}"


def events(span: Span) -> str:
    """Numbers of its first and last events."""
    return str(span.events[0]) if len(span.events) < 2 else f"{span.events[0]}-{span.events[-1]}"


def took(timeline: Timeline, piece: Span | Part) -> str:
    """Its duration."""
    if isinstance(piece, Span) and piece.is_moment:
        return ""
    end = timeline.end if piece.end is None else piece.end
    return "not begun" if end < piece.start else seconds(end - piece.start)


def _bar(timeline: Timeline, axis: Axis, piece: Span | Part, *, ascii_only: bool) -> str:
    bar = bar_of(timeline, axis, piece)
    return bar.translate(_ASCII) if ascii_only else bar


def bar_of(timeline: Timeline, axis: Axis, piece: Span | Part) -> str:
    """Its bar."""
    first = min(BAR - 1, int(axis.place(piece.start) * BAR))
    if isinstance(piece, Span) and piece.is_moment:
        return " " * first + _MOMENT
    end = timeline.end if piece.end is None else piece.end
    last = max(first + 1, round(axis.place(end) * BAR))
    return " " * first + _FULL[piece.outcome] * (last - first)
