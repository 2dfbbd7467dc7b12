"""Whether a failed attempt is repeated, and when."""

from __future__ import annotations

import random

from ..journal.events import RetryRecord
from ..journal.failures import Failure

_DEFAULT = RetryRecord()


def decide(record: RetryRecord | None, attempt: int, failure: Failure, rng: random.Random) -> tuple[int, str]:
    """Decide what follows a failed attempt.

    Args:
        record: The policy; None is the default one.
        attempt: Number of the attempt that failed, from 1.
        failure: Why it failed.
        rng: Source of the jitter.

    Returns:
        The wait before the next attempt in microseconds, or -1 with the reason why there is none.
    """
    policy = record or _DEFAULT
    if failure.non_retryable:
        return -1, "non-retryable error"
    names = failure.names()
    if names.intersection(policy.non_retryable):
        return -1, "error type is non-retryable"
    if policy.retry_on is not None and not names.intersection(policy.retry_on):
        return -1, "error type is not in retry_on"
    if policy.maximum_attempts and attempt >= policy.maximum_attempts:
        return -1, f"maximum_attempts={policy.maximum_attempts} reached"
    if failure.next_delay >= 0:
        return failure.next_delay, ""
    try:
        delay = policy.initial_interval * policy.backoff_coefficient ** (attempt - 1)
        delay = min(delay + policy.increment * (attempt - 1), policy.maximum_interval)
    except OverflowError:
        delay = policy.maximum_interval
    if policy.jitter:
        delay *= 1 + policy.jitter * (2 * rng.random() - 1)
    return round(min(delay, policy.maximum_interval)), ""
