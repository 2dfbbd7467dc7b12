"""Between exceptions and failures as data.

The live run and the replayed run see the same thing, because both get it from the data.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Sequence
from typing import Any

import msgspec

from ..journal.errors import PayloadDecodeError
from ..journal.failures import (
    CAUSE_LIMIT,
    FAILURE_LIMIT,
    GROUP_LIMIT,
    Failure,
    class_names,
    clean,
    format_trace,
    one_line,
    raised_at,
    safe_message,
    shorten,
)
from ..journal.payload_trouble import glimpse
from ..journal.payloads import Payload, PayloadConverter
from .child_errors import refused_error, run_error
from .errors import (
    ActivityCancelledError,
    ActivityError,
    ActivityTimeoutError,
    ApplicationError,
    AttemptLostError,
    FailureError,
    FailureGroupError,
    NondeterminismError,
    SagaCompensationError,
    WorkflowTimeoutError,
    with_limit_told,
)
from .options import microseconds

#: How many arguments a NondeterminismError has (and had); they travel as the failure's details.
_NONDETERMINISM_ARGS = (7, 6, 5)


def is_failure(error: BaseException) -> bool:
    """Whether an error that leaves ``run`` ends the run as failed; any other is a crash of its code."""
    left = [error]
    seen = set()
    while left:  # no recursion: groups may be nested deeply, and share members
        one = left.pop()
        if isinstance(one, BaseExceptionGroup):
            if id(one) not in seen:
                seen.add(id(one))
                left.extend(one.exceptions)
        elif not isinstance(one, FailureError | builtins.TimeoutError):
            return False
    return True


def failure_of(error: BaseException, converter: PayloadConverter, *, kind: str = "") -> Failure:
    """Turn an error into data, with its causes and members; whatever the error is, this gives a failure.

    Args:
        error: What was raised.
        converter: Encodes the details.
        kind: Overrides the kind found from the class.
    """
    return _Conversion(converter).convert(error, kind, 0)


def plain_failure(error: BaseException, kind: str = "") -> Failure:
    """The class and the message of an error, for one that shows no more."""
    message = safe_message(error)
    try:
        cls = type(error)
        return Failure(clean(cls.__name__), class_names(cls), message, kind=kind or _kind_of(error))
    except Exception:  # noqa: BLE001  (a metaclass may do anything)
        return Failure("Exception", (), message, kind=kind or "application")


class _Conversion:
    """One error on its way to data.

    What hangs on an error may be endless (a cause that is its own cause) or, read naively, exponential (each
    member's context is the group itself), so that the whole has a budget, and no error is read twice.
    """

    __slots__ = ("_above", "_converter", "_done", "_left")

    def __init__(self, converter: PayloadConverter) -> None:
        self._converter = converter
        self._left = FAILURE_LIMIT - 1  # how many more the tree may get
        self._above: set[int] = set()  # ids of the errors that are being read
        self._done: dict[
            int, tuple[BaseException, Failure]
        ] = {}  # with the error, so that its id stays its own

    def convert(self, error: BaseException, kind: str, depth: int) -> Failure:
        number = id(error)
        if number in self._done:
            return self._fit(self._done[number][1], depth)
        self._above.add(number)
        try:
            failure = self._read(error, kind, depth)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001  (properties and classes of the user may do anything)
            failure = plain_failure(error, kind)
        finally:
            self._above.discard(number)
        self._done[number] = error, failure
        return failure

    def _read(self, error: BaseException, kind: str, depth: int) -> Failure:
        stored = _attribute(error, "failure", None) if isinstance(error, FailureError) else None
        if isinstance(stored, Failure) and not kind:  # a user's subclass may use the name for something else
            if not stored.trace:  # where it left the workflow
                stored = msgspec.structs.replace(stored, trace=format_trace(error))
            return self._fit(stored, depth)
        members: Sequence[BaseException] = ()
        details: Sequence[Any] = ()
        non_retryable = False
        next_delay = -1
        name = clean(type(error).__name__)
        if isinstance(error, BaseExceptionGroup):
            message = safe_message(Exception(error.message))
            members = [one for one in error.exceptions[:GROUP_LIMIT] if id(one) not in self._above]
        elif isinstance(error, ApplicationError):
            if type(error) is ApplicationError:
                name = safe_message(Exception(_attribute(error, "type", name)))
            message = _application_message(error)
            details = _attribute(error, "details", ())
            details = details if isinstance(details, tuple | list) else (details,)
            non_retryable = bool(_attribute(error, "non_retryable", False))
            next_delay = _next_delay(error)
        else:
            message = safe_message(error) or raised_at(error)
            if isinstance(error, NondeterminismError):
                details = error.args
            elif isinstance(error, SagaCompensationError):
                details = (error.saga, *([step, why] for step, why in error.failures))
        cause = error.__cause__
        if cause is None and not error.__suppress_context__:
            cause = error.__context__
        if cause is not None and (id(cause) in self._above or not self._take(1, depth)):
            cause = None
        members = members[: self._take(len(members), depth)]
        return Failure(
            type=name,
            bases=class_names(type(error)),
            message=message,
            trace=format_trace(error),
            details=tuple(_encode_detail(value, self._converter) for value in details),
            cause=None if cause is None else self.convert(cause, "", depth + 1),
            kind=kind or _kind_of(error),
            non_retryable=non_retryable,
            next_delay=next_delay,
            group=tuple(self.convert(member, "", depth + 1) for member in members),
        )

    def _take(self, wanted: int, depth: int) -> int:
        """How many of the errors below one at ``depth`` are kept; they are paid for before any is read."""
        taken = min(wanted, self._left) if depth < CAUSE_LIMIT else 0
        self._left -= taken
        return taken

    def _fit(self, failure: Failure, depth: int) -> Failure:
        """Put a tree that is data already into this one: whole, or what there is room for."""
        size, height = _measure(failure)
        if size - 1 <= self._left and depth + height <= CAUSE_LIMIT:
            self._left -= size - 1
            return failure
        cause = failure.cause
        if cause is not None and not self._take(1, depth):
            cause = None
        group = failure.group[: self._take(len(failure.group), depth)]
        return msgspec.structs.replace(
            failure,
            cause=None if cause is None else self._fit(cause, depth + 1),
            group=tuple(self._fit(member, depth + 1) for member in group),
        )


def _measure(failure: Failure) -> tuple[int, int]:
    """How many failures a tree has, and how many are below its top on the longest way down."""
    size, height = 1, 0
    for inner in failure.inner():
        more, below = _measure(inner)
        size += more
        height = max(height, below + 1)
    return size, height


def _attribute(error: BaseException, name: str, default: Any) -> Any:
    """What a subclass may lack, having not called ``super().__init__()``, or may have made a property."""
    try:
        return getattr(error, name)
    except Exception:  # noqa: BLE001  (a user's property may do anything)
        return default


def _application_message(error: ApplicationError) -> str:
    message = _attribute(error, "__dict__", {}).get("message")
    if message is None:  # its constructor has not called ours
        own = type(error).__str__ is not ApplicationError.__str__
        return safe_message(error if own else Exception(*error.args))
    return safe_message(Exception(message))


def _next_delay(error: ApplicationError) -> int:
    delay = _attribute(error, "next_retry_delay", None)
    try:
        return -1 if delay is None else microseconds("next_retry_delay", delay)
    except (TypeError, ValueError):  # it was set after the error was made
        return -1


def _kind_of(error: BaseException) -> str:
    if isinstance(error, builtins.TimeoutError):
        return "timeout"
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "application"


def _encode_detail(value: Any, converter: PayloadConverter) -> Payload:
    try:
        return converter.encode(value, where="a detail of the error")
    except Exception:  # noqa: BLE001  (no stored form, or code of its class that raises)
        return converter.encode(clean(glimpse(value, 1000)))


def error_of(failure: Failure, converter: PayloadConverter) -> Exception:
    """Turn data into the error that workflow code and callers catch.

    Args:
        failure: As stored.
        converter: Decodes the details; a detail that does not decode comes back as its ``Payload``.

    Raises:
        PayloadDecodeError: Its message is as a payload codec has left it.
    """
    error: Exception
    if failure.coded is not None:
        raise PayloadDecodeError(
            f"its message has the unknown encoding {failure.coded.encoding!r}: if a payload codec wrote it, pass that "
            f"to Runtime(codecs=[...])",
            f"failure {failure.type}",
        )
    if failure.group:
        error = FailureGroupError(failure.message, [error_of(member, converter) for member in failure.group])
    elif failure.kind == "activity" and failure.source is not None:
        activity_type, command, attempt = failure.source
        error = ActivityError(failure.message, activity_type, command, attempt, failure.retry_state)
    elif failure.kind == "timeout" and failure.source is not None:
        error = ActivityTimeoutError(failure.message, failure.retry_state or "start_to_close_timeout")
    elif failure.kind == "timeout" and failure.type == WorkflowTimeoutError.__name__:
        option = failure.retry_state.partition("=")[0]
        error = WorkflowTimeoutError(with_limit_told(failure).message, option)
    elif failure.kind == "lost" and failure.source is not None:
        error = AttemptLostError(failure.message)
    elif failure.kind == "cancelled" and failure.source is not None:
        error = ActivityCancelledError(failure.message or "the activity was cancelled")
    elif failure.run is not None:
        error = run_error(failure)
    elif failure.kind == "refused":
        error = refused_error(failure, [decode_detail(payload, converter) for payload in failure.details])
    elif failure.type == "NondeterminismError" and len(failure.details) in _NONDETERMINISM_ARGS:
        error = NondeterminismError(*(decode_detail(payload, converter) for payload in failure.details))
    elif failure.type == "SagaCompensationError" and len(failure.details) > 1:
        saga, *failures = (decode_detail(payload, converter) for payload in failure.details)
        error = SagaCompensationError(saga, [tuple(one) for one in failures])
    else:
        error = ApplicationError(
            failure.message,
            *(decode_detail(payload, converter) for payload in failure.details),
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


def decode_detail(payload: Payload, converter: PayloadConverter) -> Any:
    """A detail as a value; one that does not decode comes back as it is stored."""
    try:
        return converter.decode(payload)
    except Exception:  # noqa: BLE001  (as stored, whatever building it has raised)
        return payload


def activity_failure(
    cause: Failure, activity_type: str, command: int, attempt: int, retry_state: str
) -> Failure:
    """Wrap the last attempt's failure as what the workflow catches: an ``ActivityError``."""
    attempts = "1 attempt" if attempt == 1 else f"{attempt} attempts"
    return Failure(
        type="ActivityError",
        bases=class_names(ActivityError),
        message=f"activity {activity_type!r} failed after {attempts} ({retry_state}): {shorten(one_line(cause), 300)}",
        cause=cause,
        kind="activity",
        source=(activity_type, command, attempt),
        retry_state=retry_state,
    )


def with_source(failure: Failure, activity_type: str, command: int, attempt: int) -> Failure:
    """The same failure, saying which attempt it comes from."""
    return msgspec.structs.replace(failure, source=(activity_type, command, attempt))
