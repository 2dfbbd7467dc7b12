"""What a start carries beside its type and arguments: limits, retries, a schedule, a delay. Checked at the call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from ..journal.run_chain import RetryRecord, StartRecord
from .cron import check_schedule, next_time
from .options import RetryPolicy, microseconds, positive_microseconds

#: The options of a start that its events carry.
CARRIED = frozenset(
    ["run_timeout", "execution_timeout", "retry_policy", "cron_schedule", "time_zone", "start_delay"]
)


class Carried(NamedTuple):
    """These options in their stored form; the fields of ``WorkflowStarted`` of the same names.

    Attributes:
        options: None when there are none.
        begins_at: When the run begins, microseconds; 0 is at once.
    """

    options: StartRecord | None = None
    begins_at: int = 0


NOTHING = Carried()


def carried(given: Mapping[str, Any], now: int) -> Carried:
    """Check the options of a start that its events carry; others are left alone.

    Args:
        given: Of ``StartOptions``; None is as if it were not there.
        now: The wall clock, microseconds.

    Raises:
        TypeError: A value is of the wrong type.
        ValueError: A value is out of its range, or two do not go together.
        ImportError: A schedule was given, and the package that reads them is not installed.
    """
    if CARRIED.isdisjoint(given):
        return NOTHING
    cron, zone = "", "UTC"
    if given.get("cron_schedule") is not None:
        cron, zone = check_schedule(given["cron_schedule"], given.get("time_zone", "UTC"), now)
    elif given.get("time_zone") is not None:
        raise ValueError("time_zone is that of a cron_schedule, and there is none")
    retry = given.get("retry_policy")
    record = StartRecord(
        _limit(given, "run_timeout"),
        _limit(given, "execution_timeout"),
        None if retry is None else retry_record(retry),
        cron,
        zone,
    )
    begins_at = 0
    delay = given.get("start_delay")
    if delay is not None:
        if cron:
            raise ValueError(
                "start_delay and cron_schedule do not go together: the schedule says when runs begin"
            )
        wait = microseconds("start_delay", delay)
        begins_at = now + wait if wait else 0
    elif cron:
        begins_at = next_time(cron, zone, now)
    return Carried(None if record == StartRecord() else record, begins_at)


def changed(record: StartRecord | None, given: Mapping[str, Any]) -> StartRecord | None:
    """The options of a run with those of a call put over them; None leaves one as it is.

    Args:
        record: Of the run.
        given: ``run_timeout`` and ``retry_policy``.

    Raises:
        TypeError: A value is of the wrong type.
        ValueError: A value is out of its range.
    """
    changes: dict[str, Any] = {}
    if given.get("run_timeout") is not None:
        changes["run_timeout"] = _limit(given, "run_timeout")
    if given.get("retry_policy") is not None:
        changes["retry"] = retry_record(given["retry_policy"])
    return msgspec.structs.replace(record or StartRecord(), **changes) if changes else record


def _limit(given: Mapping[str, Any], name: str) -> int:
    value = given.get(name)
    return 0 if value is None else positive_microseconds(name, value)


def retry_record(policy: object) -> RetryRecord:
    """The stored form of a workflow's retry policy, which has no default.

    Raises:
        TypeError: It is no ``RetryPolicy``.
    """
    if not isinstance(policy, RetryPolicy):
        raise TypeError(f"retry_policy must be a RetryPolicy, not {policy!r}")
    return policy.to_record() or RetryRecord()


# --- between processes


def plain_option(name: str, value: Any) -> Any:
    """A start option as it travels in JSON: a duration is a number of seconds, a policy an object with its fields.

    Raises:
        TypeError: The retry policy is none.
        ValueError: A number is not finite: JSON has none of these, and it would arrive as no limit.
    """
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, float) and not math.isfinite(value):
        microseconds(name, value)
    if name == "retry_policy" and value is not None:
        record = retry_record(value)
        return {
            "initial_interval": record.initial_interval / 1_000_000,
            "backoff_coefficient": record.backoff_coefficient,
            "maximum_interval": record.maximum_interval / 1_000_000,
            "maximum_attempts": record.maximum_attempts,
            "jitter": record.jitter,
            "retry_on": record.retry_on,
            "non_retryable_error_types": record.non_retryable,
            "increment": record.increment / 1_000_000,
        }
    return value


def travelled_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Start options that came as JSON, as ``spawn`` takes them.

    Raises:
        TypeError: The retry policy is no object, has an unknown field, or one of the wrong type.
        ValueError: One of its fields is out of its range.
    """
    found = dict(options)
    policy = found.get("retry_policy")
    if policy is not None:
        if not isinstance(policy, Mapping):
            raise TypeError(
                f'retry_policy must be an object with fields of RetryPolicy, such as {{"maximum_attempts": 3}}, not '
                f"{policy!r}"
            )
        known = [field.name for field in fields(RetryPolicy)]
        unknown = policy.keys() - known
        if unknown:
            raise TypeError(
                f"unknown field {min(unknown)!r} of retry_policy; known: {', '.join(sorted(known))}"
            )
        found["retry_policy"] = RetryPolicy(**policy)
    return found
