"""Between exceptions and failures as data.

The live run and the replayed run see the same thing, because both get it from the data.
"""

from __future__ import annotations

import asyncio
import builtins
from typing import Any

import msgspec

from ..journal.errors import PayloadError
from ..journal.failures import (
    CAUSE_LIMIT,
    GROUP_LIMIT,
    Failure,
    class_names,
    clean,
    format_trace,
    one_line,
    raised_at,
    safe_message,
)
from ..journal.payload_trouble import glimpse
from ..journal.payloads import Payload, PayloadConverter
from .errors import (
    ActivityCancelledError,
    ActivityError,
    ActivityTimeoutError,
    ApplicationError,
    FailureError,
    FailureGroupError,
    NondeterminismError,
)
from .options import microseconds

#: How many arguments a NondeterminismError has; they travel as the failure's details.
_NONDETERMINISM_ARGS = 5


def is_failure(error: BaseException) -> bool:
    """Whether an error that leaves ``run`` ends the run as failed; any other is a crash of its code."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_failure(member) for member in error.exceptions)
    return isinstance(error, FailureError | builtins.TimeoutError)


def failure_of(
    error: BaseException, converter: PayloadConverter, *, kind: str = "", depth: int = 0
) -> Failure:
    """Turn an error into data, with its causes.

    Args:
        error: What was raised.
        converter: Encodes the details.
        kind: Overrides the kind found from the class.
        depth: How deep in the chain of causes this error is.
    """
    if isinstance(error, FailureError) and error.failure is not None and not kind:
        if error.failure.trace:
            return error.failure
        return msgspec.structs.replace(error.failure, trace=format_trace(error))  # where it left the workflow
    cause = error.__cause__
    if cause is None and not error.__suppress_context__:
        cause = error.__context__
    group = error.exceptions[:GROUP_LIMIT] if isinstance(error, BaseExceptionGroup) else ()
    details: tuple[Payload, ...] = ()
    non_retryable = False
    next_delay = -1
    name = type(error).__name__
    message = safe_message(error) or raised_at(error)
    if isinstance(error, BaseExceptionGroup):
        message = clean(error.message)
    elif isinstance(error, NondeterminismError):
        details = tuple(_encode_detail(value, converter) for value in error.args)
    elif isinstance(error, ApplicationError):
        name = clean(str(error.type)) if type(error) is ApplicationError else name
        message = safe_message(Exception(error.message))
        details = tuple(_encode_detail(value, converter) for value in error.details)
        non_retryable = error.non_retryable
        if error.next_retry_delay is not None:
            next_delay = microseconds("next_retry_delay", error.next_retry_delay)
    return Failure(
        type=name,
        bases=class_names(type(error)),
        message=message,
        trace=format_trace(error),
        details=details,
        cause=failure_of(cause, converter, depth=depth + 1)
        if cause is not None and depth < CAUSE_LIMIT
        else None,
        kind=kind or _kind_of(error),
        non_retryable=non_retryable,
        next_delay=next_delay,
        group=tuple(failure_of(member, converter, depth=depth + 1) for member in group),
    )


def _kind_of(error: BaseException) -> str:
    if isinstance(error, builtins.TimeoutError):
        return "timeout"
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "application"


def _encode_detail(value: Any, converter: PayloadConverter) -> Payload:
    try:
        return converter.encode(value, where="a detail of the error")
    except PayloadError:
        return converter.encode(clean(glimpse(value, 1000)))


def error_of(failure: Failure, converter: PayloadConverter) -> Exception:
    """Turn data into the error that workflow code and callers catch.

    Args:
        failure: As stored.
        converter: Decodes the details; a detail that does not decode comes back as its ``Payload``.
    """
    error: Exception
    if failure.group:
        error = FailureGroupError(failure.message, [error_of(member, converter) for member in failure.group])
    elif failure.kind == "activity" and failure.source is not None:
        activity_type, command, attempt = failure.source
        error = ActivityError(failure.message, activity_type, command, attempt, failure.retry_state)
    elif failure.kind == "timeout" and failure.source is not None:
        error = ActivityTimeoutError(failure.message)
    elif failure.kind == "cancelled" and failure.source is not None:
        error = ActivityCancelledError(failure.message or "the activity was cancelled")
    elif failure.type == "NondeterminismError" and len(failure.details) == _NONDETERMINISM_ARGS:
        error = NondeterminismError(*(_decode_detail(payload, converter) for payload in failure.details))
    else:
        error = ApplicationError(
            failure.message,
            *(_decode_detail(payload, converter) for payload in failure.details),
            type=failure.type,
            non_retryable=failure.non_retryable,
        )
    if isinstance(error, FailureError):
        error.failure = failure
    if failure.trace and not failure.group:
        error.add_note(f"It was raised here:\n{failure.trace.rstrip()}")
    if failure.cause is not None:
        error.__cause__ = error_of(failure.cause, converter)
    return error


def _decode_detail(payload: Payload, converter: PayloadConverter) -> Any:
    try:
        return converter.decode(payload)
    except PayloadError:
        return payload


def activity_failure(
    cause: Failure, activity_type: str, command: int, attempt: int, retry_state: str
) -> Failure:
    """Wrap the last attempt's failure as what the workflow catches: an ``ActivityError``."""
    attempts = "1 attempt" if attempt == 1 else f"{attempt} attempts"
    return Failure(
        type="ActivityError",
        bases=class_names(ActivityError),
        message=f"activity {activity_type!r} failed after {attempts} ({retry_state}): {one_line(cause)}",
        cause=cause,
        kind="activity",
        source=(activity_type, command, attempt),
        retry_state=retry_state,
    )


def with_source(failure: Failure, activity_type: str, command: int, attempt: int) -> Failure:
    """The same failure, saying which attempt it comes from."""
    return msgspec.structs.replace(failure, source=(activity_type, command, attempt))
