"""A timeline as a Mermaid Gantt chart."""

from __future__ import annotations

from collections.abc import Iterator

from .model import CANCELLED, DONE, FAILED, LEFT, OPEN, Part, Span, Timeline

_TAGS = {DONE: "done, ", FAILED: "crit, ", CANCELLED: "crit, done, ", OPEN: "active, ", LEFT: ""}
#: Sections in this order, with the kinds that are in them.
_SECTIONS: dict[str, frozenset[str]] = {
    "Run": frozenset(["run", "paused", "quarantined", "held", "blame", "cancel request", "task failed"]),
    "Steps and sagas": frozenset(["step", "compensation", "escalation"]),
    "Activities": frozenset(["activity"]),
    "Timers and conditions": frozenset(["timer", "condition"]),
    "Messages": frozenset(["signal", "update", "dead letter", "signal sent", "cancel sent"]),
    "Other runs": frozenset(["child", "detached start"]),
    "Values": frozenset(["side effect", "memo", "published"]),
}
#: Beside letters and digits; others mean something to Mermaid, or to the page that it is put into.
_PLAIN = frozenset(" _.,()/+=@!?*'-")
#: Characters of a name.
LONGEST = 80


def mermaid_of(timeline: Timeline) -> str:
    """The chart as text. Its times are milliseconds, the finest that Mermaid knows."""
    return "\n".join(_lines(timeline)) + "\n"


def _lines(timeline: Timeline) -> Iterator[str]:
    yield "gantt"
    yield f"    title {_plain(f'{timeline.workflow_type} {timeline.workflow_id} ({timeline.status})')}"
    yield "    dateFormat x"
    day = 86_400_000_000
    yield f"    axisFormat {'%m-%d %H.%M' if timeline.end - timeline.start > day else '%H.%M.%S'}"
    yield "    todayMarker off"
    left = dict(enumerate(timeline.spans))
    for section, kinds in _SECTIONS.items():
        inside = [(number, span) for number, span in left.items() if span.kind in kinds]
        if inside:
            yield f"    section {section}"
        for number, span in inside:
            del left[number]
            yield _task(timeline, span, f"{span.kind} {span.label}", f"s{number}")
            for index, part in enumerate(span.parts if len(span.parts) > 1 else (), 1):
                if part.start <= timeline.end:
                    yield _task(timeline, part, f"{part.label} of {span.label}", f"s{number}p{index}")
    assert not left, {span.kind for span in left.values()}


def _task(timeline: Timeline, piece: Span | Part, name: str, key: str) -> str:
    start = piece.start // 1000
    end = (timeline.end if piece.end is None else piece.end) // 1000
    if isinstance(piece, Span) and piece.is_moment:
        return f"    {_plain(name)} :milestone, {_TAGS[piece.outcome]}{key}, {start}, 0ms"
    return f"    {_plain(name)} :{_TAGS[piece.outcome]}{key}, {start}, {max(end, start + 1)}"


def _plain(text: str) -> str:
    """A name in which nothing means anything to Mermaid; kinds before it keep it from being a keyword."""
    shown = "".join(c if c.isalnum() or c in _PLAIN else "_" for c in text)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 3]}..."
