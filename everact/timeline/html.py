"""A timeline as one HTML page: no script, nothing from elsewhere, all texts escaped."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from ..actors.descriptions import HistoryEvent
from ..journal_commands import _utc
from .model import Part, Span, Timeline, seconds
from .scale import Axis, Scale
from .text import events, took

#: Characters of the fields of one event.
FIELDS = 10_000

_STYLE = """
:root { color-scheme: light dark; --done: #2e8b57; --failed: #c0392b; --cancelled: #b8860b; --open: #2874a6;
  --left: #888; --line: #8884; }
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5rem; }
h1 { font-size: 1.2rem; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dt { opacity: .7; } dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; }
th, td { text-align: left; padding: .15rem .5rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { position: sticky; top: 0; background: Canvas; }
.n { width: 5rem; } .t { width: 6rem; text-align: right; } .w { width: 32%; overflow-wrap: anywhere; }
.bar { position: relative; height: 1.1rem; }
.bar i { position: absolute; top: .25rem; height: .6rem; min-width: 2px; border-radius: 2px; }
.bar i.moment { width: .5rem; height: .5rem; margin-left: -.25rem; transform: rotate(45deg); border-radius: 0; }
.done { background: var(--done); } .failed { background: var(--failed); } .cancelled { background: var(--cancelled); }
.open { background: var(--open); } .left { background: var(--left); }
b.done, b.failed, b.cancelled, b.open, b.left { background: none; }
b.failed { color: var(--failed); } b.cancelled { color: var(--cancelled); } b.open { color: var(--open); }
small { opacity: .8; } pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 12px; }
"""


def html_of(timeline: Timeline, scale: Scale) -> str:
    """The page."""
    return "\n".join(_page(timeline, Axis(timeline, scale), scale)) + "\n"


def _page(timeline: Timeline, axis: Axis, scale: Scale) -> Iterator[str]:
    title = escape(f"{timeline.workflow_type} {timeline.workflow_id}")
    yield "<!DOCTYPE html>"
    yield '<html lang="en">'
    yield "<head>"
    yield '<meta charset="utf-8">'
    policy = "default-src 'none'; style-src 'unsafe-inline'"  # should an escape ever fail, no script runs
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title>"
    yield f"<style>{_STYLE}</style>"
    yield "</head>"
    yield "<body>"
    yield f"<h1>{title}</h1>"
    yield "<dl>"
    for name, value in (
        ("run", timeline.run_id),
        ("status", timeline.status),
        ("started", _utc(timeline.start)),
        ("until", f"{_utc(timeline.end)} ({seconds(timeline.end - timeline.start)})"),
        ("events", str(len(timeline.history))),
        ("scale", "as time passes" if scale == "time" else "long waits are cut short"),
    ):
        yield f"<dt>{name}</dt><dd>{escape(value)}</dd>"
    yield "</dl>"
    yield "<table>"
    yield (
        '<thead><tr><th class="n">event</th><th class="t">at</th><th class="t">took</th><th>when</th>'
        '<th class="w">what</th></tr></thead>'
    )
    yield "<tbody>"
    for span in timeline.spans:
        yield from _row(timeline, axis, span)
    yield "</tbody>"
    yield "</table>"
    yield f"<details><summary>All {len(timeline.history)} events</summary>"
    yield "<table><tbody>"
    for event in timeline.history:
        yield (
            f'<tr id="e{event.number}"><td class="n">{event.number}</td>'
            f"<td>{event.at:%Y-%m-%d %H:%M:%S.%f}<br>{escape(event.kind)}</td>"
            f'<td class="w" style="width:70%"><pre>{escape(_fields(event))}</pre></td></tr>'
        )
    yield "</tbody></table>"
    yield "</details>"
    yield "</body>"
    yield "</html>"


def _row(timeline: Timeline, axis: Axis, span: Span) -> Iterator[str]:
    detail = f"<br><small>{escape(span.detail)}</small>" if span.detail else ""
    first = span.events[0]
    yield (
        f'<tr><td class="n"><a href="#e{first}">{escape(events(span))}</a></td>'
        f'<td class="t">+{seconds(span.start - timeline.start)}</td>'
        f'<td class="t">{escape(took(timeline, span))}</td>'
        f'<td><div class="bar">{_bars(timeline, axis, span)}</div></td>'
        f'<td class="w" style="padding-left:{span.depth + 0.5:g}rem">{escape(span.kind)} <b class="{span.outcome}">'
        f"{escape(span.label)}</b> <small>{span.outcome}</small>{detail}</td></tr>"
    )


def _bars(timeline: Timeline, axis: Axis, span: Span) -> str:
    pieces: list[Span | Part] = [*span.parts] if len(span.parts) > 1 else [span]
    return "".join(_bar(timeline, axis, span, piece) for piece in pieces if piece.start <= timeline.end)


def _bar(timeline: Timeline, axis: Axis, span: Span, piece: Span | Part) -> str:
    left = axis.place(piece.start) * 100
    end = timeline.end if piece.end is None else piece.end
    label = piece.label if isinstance(piece, Part) else span.label
    said = escape(f"{label}: {piece.outcome}, {took(timeline, piece)}", quote=True)
    if isinstance(piece, Span) and piece.is_moment:
        return f'<i class="moment {piece.outcome}" style="left:{left:.3f}%" title="{said}"></i>'
    width = axis.place(end) * 100 - left
    return f'<i class="{piece.outcome}" style="left:{left:.3f}%;width:{width:.3f}%" title="{said}"></i>'


def _fields(event: HistoryEvent) -> str:
    from ..history_texts import fields_text  # noqa: PLC0415

    text = fields_text(event)
    return text if len(text) <= FIELDS else f"{text[: FIELDS - 3]}..."
