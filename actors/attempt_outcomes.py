"""From how an attempt ended to the event that its run gets: the result, the next attempt, or the end of it all."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ..journal import events as ev
from ..journal.errors import PayloadTooLargeError
from ..journal.failures import Failure, class_names
from ..journal.fold import LOST, PendingActivity
from ..journal.payloads import Payload
from ..supervision.blame import DEATHS
from .activity_info import timeout_failure
from .errors import AttemptLostError
from .failure_conversion import activity_failure, failure_of, with_source
from .retries import decide as decide_retry

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor

#: What an attempt's end becomes.
OutcomeEvent = ev.ActivityCompleted | ev.ActivityFailed | ev.AttemptFailed | ev.ActivityCancelled


def outcome_event(
    pending: PendingActivity,
    outcome: Payload | Failure,
    clock: Callable[[], int],
    jitter: random.Random,
    *,
    is_cancelled: bool,
    details: tuple[Payload, ...] = (),
) -> OutcomeEvent:
    """Decide what an attempt's end means.

    Args:
        pending: The activity, of which this is the present attempt.
        outcome: Its result or its failure.
        clock: The wall clock, microseconds.
        jitter: For the wait before the next attempt.
        is_cancelled: It was asked to stop, and the run waits for its end: there is no further attempt.
        details: What its heartbeats have said and the journal does not know.
    """
    scheduled, number = pending.scheduled, pending.attempt
    command = scheduled.command
    if isinstance(outcome, Payload):
        return ev.ActivityCompleted(command, number, outcome)
    if is_cancelled:
        if outcome.kind == "cancelled":
            return ev.ActivityCancelled(command, number)
        return failed(pending, outcome, "cancelled")
    delay, reason = decide_retry(scheduled.retry, number - pending.uncounted, outcome, jitter)
    if delay < 0:
        return failed(pending, outcome, reason)
    now = clock()
    deadline = pending.close_deadline
    if deadline and now + delay >= deadline:
        limit = (scheduled.limits or ev.LimitsRecord()).schedule_to_close / 1_000_000
        return failed(
            pending, outcome, f"schedule_to_close_timeout={limit:g} s leaves no time for another attempt"
        )
    return ev.AttemptFailed(command, number, outcome, now + delay, details)


def failed(pending: PendingActivity, cause: Failure, reason: str) -> ev.ActivityFailed:
    """The activity has failed for good."""
    scheduled, number = pending.scheduled, pending.attempt
    failure = activity_failure(cause, scheduled.activity_type, scheduled.command, number, reason)
    return ev.ActivityFailed(scheduled.command, number, failure, reason)


def given_up(pending: PendingActivity) -> str:
    """Why there is no further attempt after one was lost with its process; empty when there is one."""
    if pending.last_failure is None or pending.last_failure.type != LOST:
        return ""
    if pending.deaths >= DEATHS:
        return f"the process died {pending.deaths} times while an attempt ran, and nothing else"
    policy = pending.scheduled.retry or ev.RetryRecord()
    if LOST in policy.non_retryable:
        return "error type is non-retryable"
    if policy.maximum_attempts and pending.attempt - 1 - pending.uncounted >= policy.maximum_attempts:
        return f"maximum_attempts={policy.maximum_attempts} reached"
    return ""


def lost_for_good(pending: PendingActivity, reason: str) -> ev.ActivityFailed:
    """What becomes of an activity whose last attempt was lost with its process."""
    name, command, number = pending.scheduled.activity_type, pending.scheduled.command, pending.attempt - 1
    message = "" if pending.last_failure is None else pending.last_failure.message
    lost = Failure(AttemptLostError.__name__, class_names(AttemptLostError), message, kind="lost")
    failure = activity_failure(with_source(lost, name, command, number), name, command, number, reason)
    return ev.ActivityFailed(command, pending.attempt, failure, reason)


def timed_out(pending: PendingActivity, option: str, limit: int, cause: Failure | None) -> ev.ActivityFailed:
    """A limit has passed behind which there is no further attempt; ``cause`` is why the last one failed."""
    source = (pending.scheduled.activity_type, pending.scheduled.command, pending.attempt)
    failure = timeout_failure(source, option, limit, cause)
    return failed(pending, failure, f"{option} reached")


def too_large(actor: WorkflowActor, event: OutcomeEvent, error: PayloadTooLargeError) -> ev.ActivityFailed:
    """What becomes of an attempt's outcome that is over the limit; trying again would give it again."""
    pending = actor.state.activities.get(event.command)
    name = "" if pending is None else pending.scheduled.activity_type
    cause = with_source(failure_of(error, actor.shard.converter), name, event.command, event.attempt)
    cause = msgspec.structs.replace(cause, non_retryable=True)
    reason = "non-retryable error"
    failure = activity_failure(cause, name, event.command, event.attempt, reason)
    return ev.ActivityFailed(event.command, event.attempt, failure, reason)
