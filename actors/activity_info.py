"""What an attempt knows of itself, and its failures as data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from ..journal.errors import PayloadError
from ..journal.failures import Failure, class_names, one_line
from ..journal.payloads import PayloadConverter
from .activity import ActivityInfo
from .attempts import Attempt
from .completion_tokens import TaskToken
from .errors import ActivityTimeoutError
from .failure_conversion import decode_detail, failure_of, with_source


def info_of(attempt: Attempt, converter: PayloadConverter) -> ActivityInfo:
    """What ``activity.info()`` gives."""
    started = attempt.actor.state.started
    scheduled = attempt.scheduled
    command = scheduled.command
    limits = scheduled.limits
    heartbeat = limits.heartbeat if limits is not None else 0
    close = limits.schedule_to_close if limits is not None else 0
    start_to_close = timedelta(microseconds=scheduled.start_to_close)
    started_at = _utc(attempt.started_at or attempt.scheduled_at)
    failure = attempt.last_failure
    return ActivityInfo(
        activity_type=attempt.definition.name,
        workflow_id=started.workflow_id,
        run_id=started.run_id,
        workflow_type=started.workflow_type,
        command=command,
        attempt=attempt.number,
        idempotency_key=f"{started.run_id}/{scheduled.repeats or command}",
        scheduled_at=_utc(attempt.scheduled_at),
        started_at=started_at,
        deadline=started_at + start_to_close,
        schedule_to_close_deadline=_utc(attempt.scheduled_at + close) if close else None,
        start_to_close_timeout=start_to_close,
        heartbeat_timeout=timedelta(microseconds=heartbeat) if heartbeat else None,
        heartbeat_details=tuple(decode_detail(detail, converter) for detail in attempt.earlier),
        last_failure=None if failure is None else one_line(failure),
        task_token=str(TaskToken(started.workflow_id, started.run_id, command, attempt.number)),
    )


def _utc(at: int) -> datetime:
    return datetime.fromtimestamp(at // 1_000_000, UTC).replace(microsecond=at % 1_000_000)


def attempt_failure(error: BaseException, attempt: Attempt, converter: PayloadConverter) -> Failure:
    """What an attempt has raised, as data."""
    failure = failure_of(error, converter)
    if isinstance(error, PayloadError):  # the same value fails the same way each time
        failure = msgspec.structs.replace(failure, non_retryable=True)
    if failure.kind == "timeout":  # the activity's own; with a source it would be the limit's
        return failure
    return with_source(failure, attempt.definition.name, attempt.scheduled.command, attempt.number)


def timeout_failure(
    source: tuple[str, int, int], option: str, limit: int, cause: Failure | None = None
) -> Failure:
    """A limit has passed.

    Args:
        source: Name of the activity, number of the call, number of the attempt.
        option: The limit's name.
        limit: Its length, microseconds.
        cause: Why the attempt before failed.
    """
    activity_type, _command, attempt = source
    says = f"{option}={limit / 1_000_000:g} s"
    message = _TIMEOUTS[option].format(attempt=f"attempt {attempt} of activity {activity_type!r}", says=says)
    return Failure(
        type="ActivityTimeoutError",
        bases=class_names(ActivityTimeoutError),
        message=message,
        cause=cause,
        kind="timeout",
        source=source,
        retry_state=option,
    )


_TIMEOUTS = {
    "start_to_close_timeout": (
        "{attempt} took longer than {says}: raise that option if the work may take longer"
    ),
    "heartbeat_timeout": (
        "{attempt} sent no heartbeat within {says}: call activity.heartbeat() more often, or raise that option"
    ),
    "schedule_to_start_timeout": (
        "{attempt} had not begun within {says}: no slot was free, or no runtime with this activity was there; raise "
        "that option, or max_concurrent_activities or max_activity_threads of the Runtime"
    ),
    "schedule_to_close_timeout": (
        "{attempt} was under way or waited for when {says}, the limit of all attempts together, had passed: raise "
        "that option, or let the retry policy wait less"
    ),
}
