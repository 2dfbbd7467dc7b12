"""What the fold of a run knows of an activity that has no outcome yet."""

from __future__ import annotations

from . import events as ev
from .failures import Failure
from .payloads import Payload


class PendingActivity:
    """An activity that is scheduled and has no outcome yet.

    Attributes:
        scheduled: The command.
        scheduled_at: Its time, microseconds.
        attempt: Number of the attempt that runs or will run next, from 1; the fence of its result.
        next_at: When the next attempt may start, microseconds; 0 is at once.
        last_failure: Why the attempt before failed.
        uncounted: How many of the attempts before do not count for the retry policy.
        suspicions: Deaths of the process while an attempt's code ran.
        deaths: Those while nothing else ran.
        details: What heartbeats have said last, of this attempt or an earlier one.
        has_begun: Whether the journal knows that the present attempt has begun.
        deadline: When somebody else must have completed it, microseconds; 0 while its own code is to do that.
        cancel: How the run has cancelled it: ``WAIT_CANCELLED``, ``WAIT_COMPLETED``, ``ABANDON``, or 0 for not at all.
    """

    __slots__ = (
        "attempt",
        "cancel",
        "deadline",
        "deaths",
        "details",
        "has_begun",
        "last_failure",
        "next_at",
        "scheduled",
        "scheduled_at",
        "suspicions",
        "uncounted",
    )

    def __init__(self, scheduled: ev.ActivityScheduled, scheduled_at: int) -> None:
        self.scheduled = scheduled
        self.scheduled_at = scheduled_at
        self.attempt = 1
        self.next_at = 0
        self.last_failure: Failure | None = None
        self.uncounted = 0
        self.suspicions = 0
        self.deaths = 0
        self.details: tuple[Payload, ...] = ()
        self.has_begun = False
        self.deadline = 0
        self.cancel = 0

    def copy(self) -> PendingActivity:
        """One like it."""
        other = PendingActivity(self.scheduled, self.scheduled_at)
        for name in PendingActivity.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    @property
    def start_deadline(self) -> int:
        """When the present attempt must have begun, microseconds; 0 for no limit, or when it has."""
        limits = self.scheduled.limits
        if limits is None or not limits.schedule_to_start or self.has_begun:
            return 0
        return (self.next_at or self.scheduled_at) + limits.schedule_to_start

    @property
    def close_deadline(self) -> int:
        """When it must be over, whatever is tried, microseconds; 0 for no limit."""
        limits = self.scheduled.limits
        return self.scheduled_at + limits.schedule_to_close if limits and limits.schedule_to_close else 0
