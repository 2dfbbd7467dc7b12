"""What users of workflows meet: names that nobody registered, outcomes of runs, and failures inside workflow code.

``args`` of each error are its constructor's arguments, so all of them can be pickled.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from ..journal.errors import EveractError
from ..journal.failures import Failure, class_names
from .options import microseconds


def known_names(names: Sequence[str]) -> str:
    """List the names a user may have meant, for error texts."""
    return ", ".join(sorted(names)) if names else "none"


class DeterminismWarning(UserWarning):
    """Workflow code has what replays differently; said once for each place, when a runtime is made."""


class RegistrationError(EveractError):
    """A class or function is no proper workflow or activity; raised where it is declared or registered."""


class WorkflowNotRegisteredError(EveractError):
    """The runtime was not given this workflow type.

    Attributes:
        name: The type asked for.
        known: The types that the runtime has.
    """

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(name, known)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        return (
            f"workflow type {self.name!r} is not registered with this runtime; known: {known_names(self.known)}. "
            f"Pass it in Runtime(..., workflows=[...])."
        )


class PublishLimitError(EveractError, ValueError):
    """``workflow.publish`` was given more keys or bytes than a run may have; nothing was published.

    Attributes:
        key: What was to be published.
        keys: How many keys the run would have.
        size: How many bytes their values would have together.
    """

    def __init__(self, key: str, keys: int, size: int) -> None:
        super().__init__(key, keys, size)
        self.key = key
        self.keys = keys
        self.size = size

    def __str__(self) -> str:
        return (
            f"workflow.publish({self.key!r}, ...): the run would have {self.keys} published keys with {self.size:,} "
            f"bytes; it may have up to 100 keys with 262,144 bytes together. Take keys out with publish(key, None), or "
            f"publish less: a summary, or where the value is kept."
        )


class ActivityNotRegisteredError(EveractError):
    """The runtime was not given this activity; raised in the workflow at the call."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(name, known)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        return (
            f"activity {self.name!r} is not registered with this runtime; known: {known_names(self.known)}. "
            f"Pass it in Runtime(..., activities=[...])."
        )


class UnknownHandlerError(EveractError):
    """The workflow has no signal, query or update of this name; nothing was written."""

    def __init__(self, kind: str, name: str, workflow_type: str, known: Sequence[str]) -> None:
        super().__init__(kind, name, workflow_type, known)
        self.kind = kind
        self.name = name
        self.workflow_type = workflow_type
        self.known = known

    def __str__(self) -> str:
        return (
            f"workflow {self.workflow_type} has no {self.kind} {self.name!r}; "
            f"it has: {known_names(self.known)}"
        )


class RuntimeClosedError(EveractError):
    """The ``Runtime`` was left, or is not entered yet."""


class ResultTimeoutError(EveractError, builtins.TimeoutError):
    """The run had no result within the time given; nothing is done to it."""


class QueryFailedError(EveractError):
    """The query's handler raised; the run is untouched."""


class UpdateRejectedError(EveractError):
    """The update's validator refused it; nothing was written."""


class UpdateFailedError(EveractError):
    """The update's handler raised; ``__cause__`` says what. The run goes on."""


class UpdateCutError(EveractError):
    """The run closed before the update's handler was done."""


class WorkflowFailedError(EveractError):
    """The run failed; ``__cause__`` is what left its code."""

    def __init__(self, workflow_id: str, run_id: str, message: str = "") -> None:
        super().__init__(workflow_id, run_id, message)
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.message = message

    _verb = "failed"

    def __str__(self) -> str:
        return f"workflow {self.workflow_id!r} (run {self.run_id}) {self._verb}: {self.message}"


class WorkflowCancelledError(WorkflowFailedError):
    """The run was cancelled."""

    _verb = "was cancelled"


class WorkflowTerminatedError(WorkflowFailedError):
    """The run was terminated from outside."""

    _verb = "was terminated"


class WorkflowContinuedAsNewError(WorkflowFailedError):
    """The run goes on as another one, and ``follow_runs=False`` asked for this one alone.

    Attributes:
        new_run_id: Run id of the run that follows.
    """

    def __init__(self, workflow_id: str, run_id: str, new_run_id: str) -> None:
        super().__init__(workflow_id, run_id, new_run_id)
        self.new_run_id = new_run_id

    def __str__(self) -> str:
        return f"workflow {self.workflow_id!r} (run {self.run_id}) goes on as run {self.new_run_id}"


class WorkflowQuarantinedError(WorkflowFailedError):
    """The run's code raised what is no failure (a bug), again and again; with fixed code ``release`` lets it go on."""

    _verb = "is quarantined"

    def __str__(self) -> str:
        return f"{super().__str__()} (once its code is fixed, release() lets it go on)"


class WorkflowHeldError(WorkflowFailedError):
    """The run's code does not fit its history, or is not registered; it goes on when fitting code arrives."""

    _verb = "is held"


class TurnBlockedError(EveractError):
    """The run's code blocked the event loop for too long, and the watchdog broke it; the turn was discarded.

    Attributes:
        seconds: The limit that it went over.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return (
            f"the code blocked the event loop for more than {self.seconds:g} s and was broken off, and the turn was "
            f"discarded: put what takes long into an activity, or raise the limit by "
            f"Runtime(watchdog=WatchdogLimits(break_after=...))"
        )


class ProcessDiedError(EveractError):
    """The process died while this code ran; it does not run again by itself.

    Attributes:
        what: ``turn``, ``query NAME`` or ``validator NAME``.
        deaths: How often.
    """

    def __init__(self, what: str, deaths: int) -> None:
        super().__init__(what, deaths)
        self.what = what
        self.deaths = deaths

    def __str__(self) -> str:
        code = "a turn of the workflow" if self.what == "turn" else f"its {self.what}"
        return (
            f"the process died {self.deaths} times while {code} ran, and nothing else (killed, out of memory, or "
            f"os._exit): see what that code does"
        )


#: A command with a name that its declaration may keep.
_NAMED = re.compile(r"(?P<what>command \d+: (activity|step)) (?P<name>'[^']+')")
#: What code may read, and should not, that is another time something else.
UNREPEATABLE = "clock, randomness, the order of a set, shared module state, files"


class NondeterminismError(EveractError):
    """Replay did not repeat what the journal holds; the run is held until fitting code arrives.

    Attributes:
        expected: What the journal holds at this place.
        actual: What the code did.
        place: ``file:line`` of the code that differs, as far as known.
        last_common: The last command that both agree on.
        event: Number of the event whose delivery differs.
        moved: The first random draw that the code makes elsewhere than the journal says; empty when there is none.
        number: Of the event that the code does not repeat; 0 when it does more than the journal holds, or of old.
    """

    def __init__(  # noqa: PLR0917  (made by replay, and from its own ``args``)
        self,
        expected: str,
        actual: str,
        place: str,
        last_common: str,
        event: int,
        moved: str = "",
        number: int = 0,
    ) -> None:
        super().__init__(expected, actual, place, last_common, event, moved, number)
        self.expected = expected
        self.actual = actual
        self.place = place
        self.last_common = last_common
        self.event = event
        self.moved = moved
        self.number = number

    def __str__(self) -> str:
        moved = f" Random draws have moved: {self.moved}." if self.moved else ""
        return (
            f"replay differs from the journal at event {self.number or self.event}: the journal has "
            f"{self.expected}, the code did {self.actual} ({self.place}); last in common: {self.last_common}."
            f"{moved} The run's code was changed under it, or reads something that replay cannot repeat "
            f"({UNREPEATABLE}).{self._renamed()} What may change, and how: docs/changing-code.md."
        )

    def _renamed(self) -> str:
        """What to do if the code has only another name for what the journal holds."""
        stored, new = _NAMED.fullmatch(self.expected), _NAMED.fullmatch(self.actual)
        if stored is None or new is None or stored["what"] != new["what"]:
            return ""
        return f" If {new['name']} is only a new name, give it the stored one: name={stored['name']}."


# --- inside workflow code ---------------------------------------------------------------------------------------


class FailureError(EveractError):
    """Root of the errors that end a run as failed when they leave its ``run``.

    Attributes:
        failure: The stored form, when the error came out of the journal.
    """

    failure: Failure | None = None

    def caused_by(self, kind: type[BaseException] | str) -> bool:
        """Whether this error, or one in its chain of causes, is of a class or a subclass of it.

        Works by recorded names, so it holds after a restart and across processes.

        Args:
            kind: The class, or its bare or dotted name.
        """
        return _caused_by(self, kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}")


def _caused_by(error: BaseException, wanted: str) -> bool:
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        error_now = todo.pop()
        if error_now is None or id(error_now) in seen:
            continue
        seen.add(id(error_now))
        failure = getattr(error_now, "failure", None)
        if isinstance(failure, Failure):
            if any(wanted in inner.names() for inner in failure.tree()):
                return True
            continue
        if wanted in Failure(type(error_now).__name__, class_names(type(error_now))).names():
            return True
        if isinstance(error_now, BaseExceptionGroup):
            todo.extend(error_now.exceptions)
        todo.append(error_now.__cause__)
    return False


class FailureGroupError(ExceptionGroup[Exception], FailureError):
    """An exception group that came out of the journal; ``except*`` sees its members."""

    def derive(self, excs: Sequence[Exception], /) -> FailureGroupError:  # type: ignore[override]
        """A group of some of its members."""
        return FailureGroupError(self.message, excs)


class ApplicationError(FailureError):
    """A failure that workflow or activity code raises on purpose; also how other errors come back.

    Attributes:
        message: For people.
        details: Values that travel with it.
        type: Class name of the original error; ``ApplicationError`` when raised as such.
        non_retryable: No further attempt is made.
        next_retry_delay: Wait before the next attempt, instead of the policy's; a timedelta or seconds.

    Raises:
        TypeError: The type is no string, or the delay no duration.
        ValueError: The delay is negative, or longer than a century.
    """

    def __init__(
        self,
        message: str = "",
        *details: Any,
        type: str | None = None,  # noqa: A002  (Temporal's word)
        non_retryable: bool = False,
        next_retry_delay: timedelta | float | None = None,
    ) -> None:
        super().__init__(message, *details)
        if type is not None and not isinstance(type, str):
            raise TypeError(f"the type of an ApplicationError must be a str, not {type!r}")
        if next_retry_delay is not None:
            microseconds("next_retry_delay", next_retry_delay)
        self.message = message
        self.details = details
        self.type = type or "ApplicationError"
        self.non_retryable = bool(non_retryable)
        self.next_retry_delay = next_retry_delay

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_application_error, (self.args, self.__dict__))

    def __str__(self) -> str:
        return self.message if self.type == "ApplicationError" else f"{self.type}: {self.message}"


def _rebuild_application_error(args: tuple[Any, ...], state: dict[str, Any]) -> ApplicationError:
    error = ApplicationError(*args)
    error.__dict__.update(state)
    return error


class ActivityError(FailureError):
    """An activity failed for good; ``__cause__`` is the last attempt's error.

    Attributes:
        activity_type: Name of the activity.
        command: Its command number in the run.
        attempt: The last attempt, from 1.
        retry_state: Why there is no further attempt.
    """

    def __init__(
        self, message: str, activity_type: str, command: int, attempt: int, retry_state: str = ""
    ) -> None:
        super().__init__(message, activity_type, command, attempt, retry_state)
        self.message = message
        self.activity_type = activity_type
        self.command = command
        self.attempt = attempt
        self.retry_state = retry_state

    def __str__(self) -> str:
        return self.message


class ActivityTimeoutError(FailureError, builtins.TimeoutError):
    """An activity took longer than one of its limits; the message says what to do.

    Attributes:
        message: For people.
        option: The limit's name: ``start_to_close_timeout``, ``heartbeat_timeout``, ``schedule_to_start_timeout`` or
            ``schedule_to_close_timeout``.
    """

    def __init__(self, message: str, option: str) -> None:
        super().__init__(message, option)
        self.message = message
        self.option = option

    def __str__(self) -> str:
        return self.message


class WorkflowTimeoutError(FailureError, builtins.TimeoutError):
    """A run, or all runs of its chain together, took longer than a limit; the cause of a ``WorkflowFailedError``.

    Attributes:
        message: For people.
        option: The limit's name: ``run_timeout`` or ``execution_timeout``.
    """

    def __init__(self, message: str, option: str) -> None:
        super().__init__(message, option)
        self.message = message
        self.option = option

    def __str__(self) -> str:
        return self.message


def with_limit_told(failure: Failure) -> Failure:
    """The same failure; that of a workflow's limit with its message, which is not stored."""
    if failure.type != WorkflowTimeoutError.__name__ or failure.message:
        return failure
    limit = failure.retry_state  # such as run_timeout=60 s
    what = "the run" if limit.startswith("run_timeout") else "the workflow, all its runs together,"
    return msgspec.structs.replace(failure, message=f"{what} took longer than {limit}")


class AttemptLostError(FailureError):
    """The process died while an attempt of the activity was in hand: what it has done is not known."""


class SagaCompensationError(FailureError):
    """A saga could not undo all that it had done; ``__cause__`` is the error that has left its block.

    Attributes:
        saga: Name of the saga.
        failures: Name of the step and why its compensation failed, for each of them.
        errors: The errors of the compensations, in that order; empty when this error came out of the journal.
    """

    def __init__(self, saga: str, failures: Sequence[tuple[str, str]]) -> None:
        super().__init__(saga, failures)
        self.saga = saga
        self.failures = failures
        self.errors: tuple[Exception, ...] = ()

    def __str__(self) -> str:
        told = "; ".join(f"step {step!r}: {why}" for step, why in self.failures)
        return f"saga {self.saga!r} could not undo all of its steps, look after these by hand: {told}"


class ActivityCancelledError(FailureError):
    """The activity ended because it was told to stop."""
