"""One run as lists show it, with where the log has its entries."""

from __future__ import annotations

from array import array

import msgspec

from . import fold
from .run_status import CLOSED
from .store import Location

#: A location is packed into one number: commit sequence, then index of the entry.
INDEX_BITS = 24
INDEX_MASK = (1 << INDEX_BITS) - 1


class RunRow(
    msgspec.Struct, eq=False, gc=False
):  # there may be a million: the garbage collector passes them over
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

    key: int
    workflow_id: str
    run_id: str
    workflow_type: str
    started_at: int
    status: str = fold.RUNNING
    closed_at: int = 0
    through: int = 0
    stored_status: str = ""
    wake: int = 0
    _locations: array[int] = msgspec.field(default_factory=lambda: array("Q"))

    @property
    def is_closed(self) -> bool:
        """Whether the run has ended for good."""
        return self.status in CLOSED

    def located(self, before: int = 1 << 40) -> list[Location]:
        """The locations in commit records below ``before``; all by default."""
        limit = before << INDEX_BITS
        return [Location(n >> INDEX_BITS, n & INDEX_MASK) for n in self._locations if n < limit]

    def packed(self, before: int = 1 << 40) -> array[int]:
        """The same, each packed into one number."""
        limit = before << INDEX_BITS
        places = self._locations
        return places[:] if not places or places[-1] < limit else array("Q", [n for n in places if n < limit])

    def moved(self, count: int) -> None:
        """The first ``count`` locations are in the histories now."""
        del self._locations[:count]

    def __len__(self) -> int:
        return len(self._locations)

    def __bool__(self) -> bool:
        return True
