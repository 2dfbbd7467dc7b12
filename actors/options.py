"""Options of activities and of starts: their defaults, their checks, their stored form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypedDict

from ..journal.events import ABANDON, TRY_CANCEL, WAIT_CANCELLED, WAIT_COMPLETED, LimitsRecord, RetryRecord
from ..journal.purging import Selection
from ..journal.run_status import CLOSED, STATUSES

#: An activity attempt may take this long unless its options say otherwise.
START_TO_CLOSE_TIMEOUT = timedelta(minutes=5)
#: A query waits this long for its answer.
QUERY_TIMEOUT = timedelta(seconds=10)
#: Leaving the runtime lets running attempts go on for this long.
GRACE = timedelta(seconds=10)
#: Longest workflow id, in bytes of UTF-8.
ID_LIMIT = 1000
#: No duration in Everact is longer than this.
LONGEST = timedelta(days=36525)

#: Options that are limits beyond that of one attempt, with their stored names.
_LIMITS = {
    "schedule_to_start_timeout": "schedule_to_start",
    "schedule_to_close_timeout": "schedule_to_close",
    "heartbeat_timeout": "heartbeat",
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

IfRunning = Literal["fail", "attach", "replace"]
IfClosed = Literal["allow", "allow_if_failed", "refuse", "attach"]
CancellationType = Literal["try_cancel", "wait_cancellation_completed", "wait_completed", "abandon"]

_CANCELLATION_MODES = {
    "try_cancel": TRY_CANCEL,
    "wait_cancellation_completed": WAIT_CANCELLED,
    "wait_completed": WAIT_COMPLETED,
    "abandon": ABANDON,
}


class ActivityOptions(TypedDict, total=False):
    """Options in ``@activity.defn(...)`` and at each call; the call's win.

    Attributes:
        start_to_close_timeout: Limit of one attempt, a timedelta or seconds, more than zero; default 5 minutes.
        retry_policy: When and how often a failed attempt is repeated; default ``RetryPolicy()``.
        schedule_to_start_timeout: Limit of the wait for a free slot, of each attempt; default none.
        schedule_to_close_timeout: Limit of the whole, all attempts and the waits between them; default none.
        heartbeat_timeout: Longest time between two calls of ``activity.heartbeat``; default none.
        cancellation_type: What cancelling it in the workflow does: ``try_cancel`` (default) asks it to stop and does
            not wait, ``wait_cancellation_completed`` waits until it is over, ``wait_completed`` waits too and does
            not break into its code, ``abandon`` lets it go on.
    """

    start_to_close_timeout: timedelta | float
    retry_policy: RetryPolicy
    schedule_to_start_timeout: timedelta | float | None
    schedule_to_close_timeout: timedelta | float | None
    heartbeat_timeout: timedelta | float | None
    cancellation_type: CancellationType


class StartOptions(TypedDict, total=False):
    """Options of ``spawn`` and ``execute``.

    Attributes:
        id: Workflow id, 1 to 1,000 bytes; default a random one.
        if_running: When the id is running: ``fail`` (default), ``attach``, or ``replace`` (terminate it).
        if_closed: When the id has ended: ``allow`` (default), ``allow_if_failed``, ``refuse``, ``attach``.
        request_id: A repeat of a start with the same one finds the run that the first one made.
        memo: Notes that belong to the run, by name: ``describe`` and ``workflow.memo`` have them.
        run_timeout: How long a run may take, a timedelta or seconds, more than zero; default no limit.
        execution_timeout: How long all runs of the chain together may take, the waits between them included.
        retry_policy: A run that fails is followed by another one; default never.
        cron_schedule: When runs begin: five fields, such as ``0 6 * * mon-fri``; needs ``everact[schedules]``.
        time_zone: Of the schedule, such as ``Europe/Berlin``; default ``UTC``.
        start_delay: The run begins so much later, a timedelta or seconds.
    """

    id: str
    if_running: IfRunning
    if_closed: IfClosed
    request_id: str
    memo: Mapping[str, Any]
    run_timeout: timedelta | float | None
    execution_timeout: timedelta | float | None
    retry_policy: RetryPolicy | None
    cron_schedule: str | None
    time_zone: str
    start_delay: timedelta | float | None


@dataclass(frozen=True, kw_only=True)
class WatchdogLimits:
    """How long code may block the event loop's thread.

    Attributes:
        warn_after: Then the code is named in the log, with its run and its stack; a timedelta or seconds, more than
            zero.
        break_after: Then a turn, query or validator is broken off and discarded; None is never. Async activities are
            named only.
    """

    warn_after: timedelta | float = timedelta(seconds=2)
    break_after: timedelta | float | None = timedelta(seconds=10)

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: A limit is zero or negative, or the second one is shorter than the first.
            TypeError: A limit is no duration.
        """
        warn = positive_microseconds("WatchdogLimits.warn_after", self.warn_after)
        if self.break_after is not None:
            least = positive_microseconds("WatchdogLimits.break_after", self.break_after)
            if least < warn:
                raise ValueError("WatchdogLimits.break_after is shorter than warn_after")


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """When a failed attempt is repeated.

    Attributes:
        initial_interval: Wait before the second attempt, a timedelta or seconds; more than zero.
        backoff_coefficient: The wait is multiplied by this for each further attempt; 1 or more. 1 keeps it as it is.
        increment: So much is added to the wait for each further attempt, likewise, zero or more.
        maximum_interval: Longest wait, likewise.
        maximum_attempts: Attempts in all; 0 is no limit.
        jitter: The wait varies by this share both ways, 0 to 1.
        retry_on: Only errors of these classes are repeated; None is all. Classes match their subclasses;
            strings match a class's bare or full dotted name.
        non_retryable_error_types: Errors of these classes are not repeated.
    """

    initial_interval: timedelta | float = timedelta(seconds=1)
    backoff_coefficient: float = 2.0
    maximum_interval: timedelta | float = timedelta(seconds=60)
    maximum_attempts: int = 10
    jitter: float = 0.1
    retry_on: Sequence[type[BaseException] | str] | None = None
    non_retryable_error_types: Sequence[type[BaseException] | str] = ()
    increment: timedelta | float = 0

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: A value is out of its range.
            TypeError: A value is of the wrong type.
        """
        initial = positive_microseconds("RetryPolicy.initial_interval", self.initial_interval)
        if positive_microseconds("RetryPolicy.maximum_interval", self.maximum_interval) < initial:
            raise ValueError("RetryPolicy.maximum_interval is shorter than initial_interval")
        microseconds("RetryPolicy.increment", self.increment)
        for name in ("backoff_coefficient", "jitter"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise TypeError(f"RetryPolicy.{name} must be a number, not {number!r}")
        if not 1 <= self.backoff_coefficient < math.inf:
            raise ValueError(
                f"RetryPolicy.backoff_coefficient must be 1 or more, not {self.backoff_coefficient!r}"
            )
        if isinstance(self.maximum_attempts, bool) or not isinstance(self.maximum_attempts, int):
            raise TypeError(f"RetryPolicy.maximum_attempts must be an int, not {self.maximum_attempts!r}")
        if self.maximum_attempts < 0:
            raise ValueError(f"RetryPolicy.maximum_attempts must be 0 or more, not {self.maximum_attempts!r}")
        if self.maximum_attempts >= 2**31:
            raise ValueError("RetryPolicy.maximum_attempts must be less than 2**31; 0 is no limit")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"RetryPolicy.jitter must be between 0 and 1, not {self.jitter!r}")
        for name in ("retry_on", "non_retryable_error_types"):
            kinds: Any = getattr(self, name)
            if isinstance(kinds, str) or not isinstance(kinds, Sequence | None):
                raise TypeError(f"RetryPolicy.{name} must be a list of classes or names, not {kinds!r}")
            listed: tuple[Any, ...] = tuple(getattr(self, name) or ())
            for kind in listed:
                _class_name(kind)

    def to_record(self) -> RetryRecord | None:
        """The stored form; None for the default policy."""
        record = RetryRecord(
            initial_interval=positive_microseconds("initial_interval", self.initial_interval),
            backoff_coefficient=float(self.backoff_coefficient),
            maximum_interval=positive_microseconds("maximum_interval", self.maximum_interval),
            maximum_attempts=self.maximum_attempts,
            jitter=float(self.jitter),
            retry_on=None if self.retry_on is None else tuple(map(_class_name, self.retry_on)),
            non_retryable=tuple(map(_class_name, self.non_retryable_error_types)),
            increment=microseconds("increment", self.increment),
        )
        return None if record == RetryRecord() else record


def _class_name(kind: type[BaseException] | str) -> str:
    if isinstance(kind, str):
        return kind
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return f"{kind.__module__}.{kind.__qualname__}"
    raise TypeError(f"a retry policy names exception classes or their names, not {kind!r}")


def microseconds(name: str, value: timedelta | float) -> int:
    """Check a duration and return it in microseconds.

    Args:
        name: What it is, for the error.
        value: A timedelta, or a number of seconds.

    Raises:
        TypeError: It is neither.
        ValueError: It is negative, not finite, or longer than a century.
    """
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
        raise TypeError(f"{name} must be a timedelta or a number of seconds, not {value!r}")
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not 0 <= seconds <= LONGEST.total_seconds():
        raise ValueError(
            f"{name} must be between 0 and 100 years, not {value!r}: pass a number of seconds or a timedelta"
        )
    return round(seconds * 1_000_000)


def in_seconds(value: timedelta | float) -> str:
    """A duration as texts have it, with its unit."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return f"{seconds:,.15g} s" if seconds >= 1 else f"{seconds:g} s"


def time_until(name: str, moment: datetime, now: int) -> int:
    """Microseconds from now to a moment; 0 when it has passed.

    Args:
        name: What it is for, for the error.
        moment: With a time zone.
        now: Microseconds.

    Raises:
        TypeError: It is no datetime.
        ValueError: It has no time zone, or is more than a century away.
    """
    if not isinstance(moment, datetime):
        raise TypeError(f"{name} needs a datetime with a time zone, not {moment!r}")
    if moment.tzinfo is None:
        raise ValueError(f"{name} needs a datetime with a time zone, not {moment!r}")
    left = (moment - _EPOCH) // timedelta(microseconds=1) - now
    if left > LONGEST // timedelta(microseconds=1):
        raise ValueError(f"{name} must be within 100 years, and {moment!r} is not")
    return max(0, left)


def positive_microseconds(name: str, value: timedelta | float) -> int:
    """Like ``microseconds``, and zero is refused too."""
    result = microseconds(name, value)
    if result == 0:
        raise ValueError(
            f"{name} must be more than 0, not {value!r}: pass a number of seconds or a timedelta"
        )
    return result


def selection_of(
    now: int,
    *,
    closed_before: datetime | None,
    older_than: timedelta | float | None,
    workflow_type: str | None,
    status: str | None,
    workflow_id: str | None,
) -> Selection:
    """Check which closed runs are meant; arguments as of ``Runtime.purge``, ``now`` in microseconds.

    Raises:
        TypeError: One is of the wrong type, or all are None.
        ValueError: One has an impossible value.
    """
    if all(given is None for given in (closed_before, older_than, workflow_type, status, workflow_id)):
        raise TypeError(
            "nothing says which runs to purge: give closed_before, older_than, workflow_type, status or workflow_id "
            "(older_than=0 is every closed run)"
        )
    moments = []
    if closed_before is not None:
        if not isinstance(closed_before, datetime):
            raise TypeError(f"closed_before must be a datetime, not {closed_before!r}")
        if closed_before.tzinfo is None:
            raise ValueError(
                f"closed_before must have a time zone, as in datetime.now(UTC), not {closed_before!r}"
            )
        moments.append((closed_before - _EPOCH) // timedelta(microseconds=1))
    if older_than is not None:
        moments.append(now - microseconds("older_than", older_than) + 1)
    if status is not None and status not in CLOSED:
        known = ", ".join(map(repr, sorted(CLOSED)))
        raise ValueError(f"status must be that of a closed run, one of {known}, not {status!r}")
    for name, text in (("workflow_type", workflow_type), ("workflow_id", workflow_id)):
        if text is not None:
            check_text(name, text)
    return Selection(min(moments, default=None), workflow_type, status, workflow_id)


def check_status(status: str | None) -> None:
    """Refuse what is no status of a run; None is any.

    Raises:
        ValueError: Names the statuses.
    """
    if status is not None and status not in STATUSES:
        raise ValueError(f"status must be one of {', '.join(map(repr, STATUSES))}, not {status!r}")


def byte_count(name: str, value: int, least: int) -> int:
    """Check a number of bytes.

    Raises:
        TypeError: It is no int.
        ValueError: It is less than ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int (bytes), not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be {least:,} bytes or more, not {value!r}")
    return value


def positive_count(name: str, value: int) -> int:
    """Check a number of things, 1 or more.

    Raises:
        TypeError: It is no int.
        ValueError: It is less than 1.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be 1 or more, not {value!r}")
    return value


#: What the watchdog allows unless the runtime's options say otherwise.
WATCHDOG = WatchdogLimits()


class ResolvedActivityOptions:
    """Checked options in their stored form: microseconds and a retry record; ``cancellation`` None is the default."""

    __slots__ = ("cancellation", "limits", "retry", "start_to_close")

    def __init__(
        self,
        start_to_close: int,
        retry: RetryRecord | None,
        limits: LimitsRecord | None = None,
        cancellation: int | None = None,
    ) -> None:
        self.start_to_close = start_to_close
        self.retry = retry
        self.limits = limits
        self.cancellation = cancellation

    def overridden(self, options: dict[str, Any]) -> ResolvedActivityOptions:
        """These options with a call's own put over them.

        Raises:
            TypeError: An option is unknown, or of the wrong type.
            ValueError: A duration is zero or negative, or a word is unknown.
        """
        check_option_names("activity", options, ActivityOptions)
        start_to_close, retry = self.start_to_close, self.retry
        if "start_to_close_timeout" in options:
            start_to_close = positive_microseconds(
                "start_to_close_timeout", options["start_to_close_timeout"]
            )
        if "retry_policy" in options:
            policy = options["retry_policy"]
            if not isinstance(policy, RetryPolicy):
                raise TypeError(f"retry_policy must be a RetryPolicy, not {policy!r}")
            retry = policy.to_record()
        cancellation = self.cancellation
        if "cancellation_type" in options:
            word = options["cancellation_type"]
            if not isinstance(word, str) or word not in _CANCELLATION_MODES:
                known = ", ".join(map(repr, _CANCELLATION_MODES))
                raise ValueError(f"cancellation_type must be one of {known}, not {word!r}")
            cancellation = _CANCELLATION_MODES[word]
        return ResolvedActivityOptions(start_to_close, retry, _limits(self.limits, options), cancellation)


def _limits(known: LimitsRecord | None, options: dict[str, Any]) -> LimitsRecord | None:
    """The limits of a call beyond that of one attempt; None when there are none."""
    if not options.keys() & _LIMITS.keys():
        return known
    found = {name: 0 if known is None else getattr(known, name) for name in _LIMITS.values()}
    for option, name in _LIMITS.items():
        if option in options:
            given = options[option]
            found[name] = 0 if given is None else positive_microseconds(option, given)
    return LimitsRecord(**found) if any(found.values()) else None


DEFAULT_ACTIVITY_OPTIONS = ResolvedActivityOptions(
    positive_microseconds("start_to_close_timeout", START_TO_CLOSE_TIMEOUT), None
)


def each_of(option: str, given: Iterable[Any]) -> Iterable[Any]:
    """Refuse what is no list of things.

    Raises:
        TypeError: It is a text, a class, or nothing that can be gone through.
    """
    if isinstance(given, str) or not hasattr(given, "__iter__") or isinstance(given, type):
        name = getattr(given, "__name__", None)  # a class or function, where a list of them is wanted
        raise TypeError(
            f"{option} must be a list, not {given!r}{f': write {option}=[{name}]' if name else ''}"
        )
    return given


def check_option_names(what: str, options: Mapping[str, Any], kind: type, *more: str) -> None:
    """Refuse options that neither a TypedDict has nor the signature, whose names are ``more``.

    Raises:
        TypeError: One is unknown.
    """
    unknown = options and options.keys() - kind.__annotations__.keys()
    if not unknown:
        return
    if "args" in unknown:
        raise TypeError(f"unknown {what} option 'args': arguments are given one by one, before the options")
    known = ", ".join(sorted({*kind.__annotations__, *more}))
    raise TypeError(f"unknown {what} option {min(unknown)!r}; known: {known}")


def check_text(what: str, value: object, *, may_be_empty: bool = False) -> str:
    """Return a proper text: valid Unicode, and not empty.

    Raises:
        TypeError: It is no string.
        ValueError: It is empty, or not valid Unicode.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {value!r}")
    if not value and not may_be_empty:
        raise ValueError(f"{what} must not be empty: {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} has characters that are not valid Unicode: {value[:50]!r}") from None
    return value


def check_workflow_id(workflow_id: object) -> str:
    """Return a proper workflow id.

    Raises:
        TypeError: It is no string.
        ValueError: It is empty, over 1,000 bytes, or not valid Unicode.
    """
    if workflow_id == "":
        raise ValueError("a workflow id must not be empty: give it a name of your domain, such as 'order-42'")
    return _check_id("a workflow id", workflow_id)


def check_request_id(request_id: object) -> str:
    """Return a proper request id, or an empty text for None.

    Raises:
        TypeError: It is no string.
        ValueError: It is empty, over 1,000 bytes, or not valid Unicode.
    """
    return "" if request_id is None else _check_id("a request id", request_id)


def _check_id(what: str, value: object) -> str:
    text = check_text(what, value)
    size = len(text.encode())
    if size > ID_LIMIT:
        raise ValueError(f"{what} may have up to {ID_LIMIT} bytes, {text[:30]!r}... has {size}")
    return text
