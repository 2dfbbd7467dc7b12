"""What a start does when its workflow id is taken: one decision, taken together with the start itself."""

from __future__ import annotations

from typing import Literal, get_args

from ..journal.run_status import CLOSED
from .options import IfClosed, IfRunning

Decision = Literal["start", "attach", "replace", "refuse"]

_RUNNING = get_args(IfRunning)
_CLOSED = get_args(IfClosed)
_UNSUCCESSFUL = frozenset(["failed", "cancelled", "terminated", "timed_out"])


def decide(status: str | None, if_running: IfRunning, if_closed: IfClosed) -> Decision:
    """Decide what a start does.

    Args:
        status: Status of the newest run of the id, or None when there is none.
        if_running: What to do when it is open (paused and stalled runs are open).
        if_closed: What to do when it has ended.
    """
    if status is None:
        return "start"
    if status not in CLOSED:
        return "refuse" if if_running == "fail" else if_running
    match if_closed:
        case "allow":
            return "start"
        case "allow_if_failed":
            return "start" if status in _UNSUCCESSFUL else "refuse"
        case "attach":
            return "attach"
        case "refuse":
            return "refuse"


def check(if_running: str, if_closed: str) -> None:
    """Refuse unknown words.

    Raises:
        ValueError: Names the option and its words.
    """
    if if_running in _RUNNING and if_closed in _CLOSED:  # at each start: no loop for that
        return
    for name, value, words in (("if_running", if_running, _RUNNING), ("if_closed", if_closed, _CLOSED)):
        if value not in words:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, words))}, not {value!r}")
