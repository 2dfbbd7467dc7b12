"""Events of steps: where each begins and ends, and what its checkpoint restores.

A step has the command number that its call took.
"""

from __future__ import annotations

import msgspec

from .event_base import Event
from .failures import Failure
from .payloads import Payload


class Checkpoint(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where a run stood when a step ended with nothing in flight, so that replay may skip the step's body (R6).

    Attributes:
        next_command: Number of the next command.
        tasks: How many tasks the run had made.
        waits: How many waits it had counted.
        now: Its time, microseconds.
        deleted: Fields of the workflow object that the step has taken away.
        randoms: Streams of random numbers that it has drawn from: name, words drawn so far, and the spare number that
            ``gauss`` keeps.
        sagas: How many sagas had begun to compensate, and how many of their steps had been completed.
    """

    next_command: int
    tasks: int
    waits: int
    now: int
    deleted: tuple[str, ...] = ()
    randoms: tuple[tuple[str, int, float | None], ...] = ()
    sagas: tuple[int, int] = (0, 0)


class StepStarted(Event, tag="ps", frozen=True):
    """Command: the body of a step begins.

    Attributes:
        command: Its number.
        name: Its name.
        outer: Number of the step around it; 0 for none.
        is_alone: Nothing else was in flight, and the object's fields were rebound from their stored form.
    """

    command: int
    name: str
    outer: int = 0
    is_alone: bool = False


class StepAttemptFailed(Event, tag="pa", frozen=True):
    """Command: an attempt of a step failed, and another follows at ``next_at``.

    Attributes:
        command: Of the step.
        attempt: Number of the attempt, from 1.
        failure: Why.
        next_at: When the next one begins, microseconds.
        is_restored: The fields were put back to what they were before it.
    """

    command: int
    attempt: int
    failure: Failure
    next_at: int = 0
    is_restored: bool = False


class StepCompleted(Event, tag="pc", frozen=True):
    """Command: a step gave a result.

    Attributes:
        command: Of the step.
        handled: What has given the result when the body failed: ``on_error``, ``on_timeout`` or ``optional``.
        failure: How the body failed then.
        checkpoint: Where the run stood; None when something else was in flight: then replay runs the body again.
        result: With a checkpoint.
        field_names: Fields that the step has changed, with a checkpoint.
        fields: Their values.
    """

    command: int
    handled: str = ""
    failure: Failure | None = None
    checkpoint: Checkpoint | None = None
    result: Payload | None = None
    field_names: tuple[str, ...] = ()
    fields: tuple[Payload, ...] = ()


class StepFailed(Event, tag="pf", frozen=True):
    """Command: a step failed, and its caller got the error; the rest as of ``StepCompleted``."""

    command: int
    failure: Failure
    checkpoint: Checkpoint | None = None
    field_names: tuple[str, ...] = ()
    fields: tuple[Payload, ...] = ()


class StepCancelled(Event, tag="px", frozen=True):
    """Command: a CancelledError left a step, or something else that is no error of its own, such as continue-as-new."""

    command: int


StepEvent = StepStarted | StepAttemptFailed | StepCompleted | StepFailed | StepCancelled
