"""Who is to blame for a hard death of the process, by what its flight recorder says (R12)."""

from __future__ import annotations

from .flight_recorder import Flight, Slot

#: So many deaths while it ran alone, without progress between them, and it does not run again.
DEATHS = 3
#: A suspect is alone for so long, in seconds, and twice as long after each further death, up to the longest time.
PROBATION = 1.0
LONGEST_PROBATION = 60.0


def suspects_of(flight: Flight) -> list[Slot]:
    """What ran when the process died; nothing when its death was asked for, or the machine's."""
    if flight.excused or not flight.same_boot:
        return []
    return [slot for slot in flight.slots if slot.is_running]


def probation(suspicions: int) -> float:
    """How long a suspect runs alone, in seconds.

    Args:
        suspicions: How many deaths it has been a suspect of, without progress since.
    """
    return min(LONGEST_PROBATION, PROBATION * 2.0 ** max(0, suspicions - 1))
