"""What a start carries beside its type and its arguments, and how the runs of one workflow follow each other.

A run that continues as new, is retried or has a schedule ends in the same transaction as the next run of its *chain*
begins. Each run has a history of its own; its first event says where in the chain it stands.
"""

from __future__ import annotations

import msgspec


class RetryRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A retry policy as it was at the call; see ``RetryPolicy`` for the meaning of each field."""

    initial_interval: int = 1_000_000
    backoff_coefficient: float = 2.0
    maximum_interval: int = 60_000_000
    maximum_attempts: int = 10
    jitter: float = 0.1
    retry_on: tuple[str, ...] | None = None
    non_retryable: tuple[str, ...] = ()
    increment: int = 0


class StartRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Options of a start, as they were at the call; all runs of a chain have them.

    Attributes:
        run_timeout: How long each run may take, microseconds; 0 is no limit.
        execution_timeout: How long the whole chain may take, microseconds; 0 is no limit.
        retry: When a failed run is followed by another; None is never.
        cron: When the next run begins once one is over; empty is never.
        time_zone: Of the schedule.
    """

    run_timeout: int = 0
    execution_timeout: int = 0
    retry: RetryRecord | None = None
    cron: str = ""
    time_zone: str = "UTC"


class ChainRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where a run that was not started from outside stands in its chain.

    Attributes:
        first_run_id: The run that was.
        continued_run_id: The run before.
        reason: Why it follows: ``continue_as_new``, ``retry`` or ``cron``.
        attempt: Of the retry policy, from 1.
        deadline: When the whole chain must be over, microseconds; 0 is no limit.
        request_id: Of the start of the first run.
    """

    first_run_id: str
    continued_run_id: str
    reason: str
    attempt: int = 1
    deadline: int = 0
    request_id: str = ""


class RunLinks(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What lists say of a run's place in its chain; a run without others has none.

    Attributes:
        first_run_id: The first run.
        continued_from: The run before; empty for the first one.
        continued_to: The run that follows; empty when there is none.
    """

    first_run_id: str
    continued_from: str = ""
    continued_to: str = ""


class NextRun(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The run that follows another one: its first event is in the same transaction as the other's last one.

    Attributes:
        run_id: Its run id.
        reason: As of ``ChainRecord``.
        begins_at: Its code does not run before, microseconds; 0 is at once.
    """

    run_id: str
    reason: str
    begins_at: int = 0
