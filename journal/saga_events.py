"""Events of sagas: what is compensated, and how that went.

A saga has a number in its run, a compensation has one in its saga: the order in which they run, from 1.
"""

from __future__ import annotations

from .event_base import Event
from .failures import Failure


class CompensationStarted(Event, tag="gs", frozen=True):
    """Annotation: a compensation begins, or begins again after a release; replay does not compare it.

    Attributes:
        saga: Number of the saga.
        step: Number of the compensation.
        name: Of the step that is undone.
        compensation: What undoes it.
        saga_name: Name of the saga.
        total: How many compensations the saga has to do.
        command: Of the activity that does it; 0 when a function does.
    """

    saga: int
    step: int
    name: str
    compensation: str
    saga_name: str
    total: int
    command: int = 0


class CompensationCompleted(Event, tag="gc", frozen=True):
    """Annotation: the step is undone; replay does not compare it."""

    saga: int
    step: int
    name: str


class CompensationFailed(Event, tag="gf", frozen=True):
    """Annotation: the compensation failed for good, or until a release; replay does not compare it."""

    saga: int
    step: int
    name: str
    failure: Failure


class CompensationEscalated(Event, tag="ge", frozen=True):
    """Command: a failed compensation quarantines the run; its release lets all that have failed begin again.

    One that failed while the run stood still is delivered between the release and its effect: it quarantines no more.
    """

    command: int
    saga: int
    step: int
    name: str
    failure: Failure


Compensating = CompensationStarted | CompensationCompleted | CompensationFailed | CompensationEscalated
