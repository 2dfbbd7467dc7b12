"""What a run's status can be, and how the flags of an entry state it."""

from __future__ import annotations

from . import fold

#: Bits of an entry's flags that carry a status; 0 leaves it as it was.
_STATUS_SHIFT = 2
_STATUS_MASK = 7
_STATUSES = (
    "",
    fold.RUNNING,
    fold.COMPLETED,
    fold.FAILED,
    fold.CANCELLED,
    fold.TERMINATED,
    "quarantined",
    "held",
)
#: What a run's status can be.
STATUSES = _STATUSES[1:]
_CODES = {name: code for code, name in enumerate(_STATUSES)}
CLOSED = frozenset([fold.COMPLETED, fold.FAILED, fold.CANCELLED, fold.TERMINATED])


def status_flags(status: str) -> int:
    """Entry flags that say the run has this status from here on."""
    return _CODES[status] << _STATUS_SHIFT


def flagged_status(flags: int) -> str:
    """The status that an entry's flags state; empty when they leave it as it was."""
    return _STATUSES[(flags >> _STATUS_SHIFT) & _STATUS_MASK]
