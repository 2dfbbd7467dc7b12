"""One run as lists show it, with where the log has its entries."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

import msgspec

from . import fold
from .run_chain import RunLinks
from .run_status import CLOSED
from .store import Location

#: A location is packed into one number: commit sequence, then index of the entry.
INDEX_BITS = 24
_INDEX_MASK = (1 << INDEX_BITS) - 1
#: The place of the only entry of a run that has none.
NOWHERE = -1


def unpacked(places: Iterable[int]) -> list[Location]:
    """Packed locations as they are read."""
    return [Location(n >> INDEX_BITS, n & _INDEX_MASK) for n in places]


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
        parent_id: Workflow id of the run whose child it is; empty when it is nobody's.
        links: Its place in its chain; None for a run without others, and in rows of before there were any.
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
    parent_id: str = ""
    links: RunLinks | None = None
    # One entry alone, as most idle runs have it, is a number: an array takes 112 bytes.
    _places: int | array[int] = NOWHERE

    @property
    def is_closed(self) -> bool:
        """Whether the run has ended for good."""
        return self.status in CLOSED

    def below(self, sequence: int) -> int:
        """How many of its entries in the log are in commit records below ``sequence``."""
        places = self._places
        if type(places) is array:
            return bisect_left(places, sequence << INDEX_BITS)
        return int(NOWHERE < places < sequence << INDEX_BITS)  # type: ignore[operator]

    def packed(self, count: int | None = None) -> array[int]:
        """Where its first ``count`` entries in the log are, all by default, each packed into one number."""
        places = self._places
        if type(places) is array:
            return places[:count]
        return array("Q", (places,) if places != NOWHERE and count != 0 else ())  # type: ignore[arg-type]

    def located(self, count: int | None = None) -> list[Location]:
        """The same, as they are read."""
        return unpacked(self.packed(count))

    def sequence(self, position: int) -> int:
        """The commit record of its entry at this position in the log."""
        places = self._places
        place: int = places[position] if type(places) is array else places  # type: ignore[assignment]
        return place >> INDEX_BITS

    def moved(self, count: int) -> None:
        """The first ``count`` locations are in the histories now."""
        rest = self.packed()[count:]
        self._places = rest if len(rest) > 1 else rest[0] if rest else NOWHERE

    def __len__(self) -> int:
        places = self._places
        return len(places) if type(places) is array else int(places != NOWHERE)

    def __bool__(self) -> bool:
        return True
