"""What a run's status can be, and how the flags of an entry state it."""

from __future__ import annotations

from . import fold, run_ends

#: Bits of an entry's flags that carry a status; 0 leaves it as it was. The fourth bit stands apart from the others.
_STATUS_SHIFT = 2
_STATUS_MASK = 7
_FOURTH_BIT = 128
_STATUSES = (
    "",
    fold.RUNNING,
    run_ends.COMPLETED,
    run_ends.FAILED,
    run_ends.CANCELLED,
    run_ends.TERMINATED,
    "quarantined",
    "held",
    fold.PAUSED,
    run_ends.TIMED_OUT,
    run_ends.CONTINUED,
)
#: What a run's status can be.
STATUSES = _STATUSES[1:]
_FLAGS = {
    name: (code & _STATUS_MASK) << _STATUS_SHIFT | (_FOURTH_BIT if code > _STATUS_MASK else 0)
    for code, name in enumerate(_STATUSES)
}
_NAMES = {flags: name for name, flags in _FLAGS.items()}
_ALL = _STATUS_MASK << _STATUS_SHIFT | _FOURTH_BIT
CLOSED = frozenset(
    [
        run_ends.COMPLETED,
        run_ends.FAILED,
        run_ends.CANCELLED,
        run_ends.TERMINATED,
        run_ends.TIMED_OUT,
        run_ends.CONTINUED,
    ]
)


def status_flags(status: str) -> int:
    """Entry flags that say the run has this status from here on."""
    return _FLAGS[status]


def flagged_status(flags: int) -> str:
    """The status that an entry's flags state; empty when they leave it as it was."""
    return _NAMES.get(flags & _ALL, "")
