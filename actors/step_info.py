"""What outsiders see of a run's steps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from ..journal.step_progress import StepProgress, Steps


@dataclass(frozen=True)
class StepInfo:
    """One step of a run.

    Attributes:
        name: Its name.
        command: Number of the call in the run.
        parent: Number of the step around it; 0 for none.
        status: ``running``, ``completed``, ``failed``, ``cancelled``, ``skipped`` (optional, and failed) or
            ``unfinished`` (the run ended before it).
        attempt: The attempt that runs or runs next, or was the last, from 1.
        started_at: UTC.
        ended_at: UTC; None while it runs.
        next_attempt_at: When the next attempt begins, UTC; None when none waits.
        is_checkpoint: Replay goes to its end without running its body.
    """

    name: str
    command: int
    parent: int
    status: str
    attempt: int
    started_at: datetime
    ended_at: datetime | None
    next_attempt_at: datetime | None
    is_checkpoint: bool


def steps_of(steps: Steps | None) -> tuple[StepInfo, ...]:
    """The newest ended steps in the order of their ends, then those that run in the order of their starts."""
    if steps is None:
        return ()
    return tuple(map(_info, (*steps.ended, *steps.running.values())))


def counts_of(steps: Steps | None) -> dict[str, int]:
    """How many steps have ended, by status."""
    return {} if steps is None else dict(steps.counts)


def _info(step: StepProgress) -> StepInfo:
    return StepInfo(
        step.name,
        step.command,
        step.parent,
        step.status,
        step.attempt,
        _utc(step.started_at),
        _utc(step.ended_at) if step.ended_at else None,
        _utc(step.next_at) if step.next_at else None,
        step.is_checkpoint,
    )


def _utc(at: int) -> datetime:
    return datetime.fromtimestamp(at // 1_000_000, UTC).replace(microsecond=at % 1_000_000)
