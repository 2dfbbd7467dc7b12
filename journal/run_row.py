"""One run as lists show it, with where the log has its entries."""

from __future__ import annotations

from array import array

from . import fold
from .run_status import CLOSED
from .store import Location

#: A location is packed into one number: commit sequence, then index of the entry.
INDEX_BITS = 24
_INDEX_MASK = (1 << INDEX_BITS) - 1


class RunRow:
    """One run as lists show it.

    Attributes:
        key: Internal number, never used again.
        status: As ``RunState.status``.
        started_at: Microseconds since the epoch.
        closed_at: Microseconds since the epoch; 0 while open.
        through: The commit record up to which the histories have its entries; 0 when they have none.
        stored_status: Status in the table of runs; empty while it is not there.
        wake: Time of its row in the table of what falls due; 0 when there is none.
    """

    __slots__ = (
        "_locations",
        "closed_at",
        "key",
        "run_id",
        "started_at",
        "status",
        "stored_status",
        "through",
        "wake",
        "workflow_id",
        "workflow_type",
    )

    def __init__(self, key: int, workflow_id: str, run_id: str, workflow_type: str, started_at: int) -> None:
        self.key = key
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.workflow_type = workflow_type
        self.status = fold.RUNNING
        self.started_at = started_at
        self.closed_at = 0
        self.through = 0
        self.stored_status = ""
        self.wake = 0
        self._locations = array("Q")

    @property
    def is_closed(self) -> bool:
        """Whether the run has ended for good."""
        return self.status in CLOSED

    def located(self, before: int = 1 << 40) -> list[Location]:
        """The locations in commit records below ``before``; all by default."""
        limit = before << INDEX_BITS
        return [Location(n >> INDEX_BITS, n & _INDEX_MASK) for n in self._locations if n < limit]

    def reaches_below(self, sequence: int) -> bool:
        """Whether the log has entries of the run in commit records below ``sequence``."""
        return bool(self._locations) and self._locations[0] >> INDEX_BITS < sequence

    def moved(self, count: int) -> None:
        """The first ``count`` locations are in the histories now."""
        del self._locations[:count]

    def __len__(self) -> int:
        return len(self._locations)

    def __bool__(self) -> bool:
        return True
