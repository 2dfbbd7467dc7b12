"""Continue-as-new, and what a run knows of those before it: the calls that workflow code makes."""

# The implementations below their overloads take `*args: *Ts`, or mypy refuses the overloads.
# pyright: reportInvalidTypeVarUse=false

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, overload

import msgspec

from ..journal import events as ev
from ..journal.run_chain import NextRun
from .asyncio_discard import RunDiscarded, TurnAborted
from .asyncio_forbidden import read_only
from .chains import CONTINUE_AS_NEW, next_run_id
from .context import current_instance
from .definitions import WorkflowDefinition, workflow_definition
from .errors import WorkflowNotRegisteredError
from .failure_conversion import error_of
from .interceptors import ContinueAsNewInput
from .memos import encode_memo
from .options import RetryPolicy, microseconds
from .start_options import changed
from .typing import R, Ts, W, WorkflowClass
from .workflow_types import named_type

if TYPE_CHECKING:
    from .workflow_instance import Delivery, WorkflowInstance

#: From so many events on ``info().continue_as_new_suggested`` is true.
SUGGESTED_EVENTS = 10_000


class ContinueAsNewError(BaseException):
    """Raised by ``continue_as_new``; when it leaves ``run`` or a handler, the run ends and goes on as a new one.

    Derives from BaseException so that ``except Exception`` does not swallow it. Do not raise it yourself.
    """

    def __init__(self, outcome: ev.WorkflowContinuedAsNew, wait: int) -> None:
        super().__init__(f"the run goes on as a new {outcome.workflow_type}")
        self._outcome = outcome
        self._wait = wait


class RunEnds(TurnAborted):
    """The run ends here and now, whatever else of it is ready: a handler has said so.

    Attributes:
        error: What it has raised.
        at: The delivery at which that was; None for the last one of the turn.
    """

    def __init__(self, error: ContinueAsNewError, at: Delivery | None = None) -> None:
        super().__init__()
        self.error = error
        self.at = at


@overload
def continue_as_new(
    *args: Any,
    workflow: None = None,
    memo: Mapping[str, Any] | None = None,
    run_timeout: timedelta | float | None = None,
    retry_policy: RetryPolicy | None = None,
    backoff_start_interval: timedelta | float | None = None,
) -> NoReturn: ...
@overload
def continue_as_new(
    *args: *Ts,
    workflow: Callable[[W, *Ts], Awaitable[R]],
    memo: Mapping[str, Any] | None = None,
    run_timeout: timedelta | float | None = None,
    retry_policy: RetryPolicy | None = None,
    backoff_start_interval: timedelta | float | None = None,
) -> NoReturn: ...
@overload
def continue_as_new(
    *args: *Ts,
    workflow: WorkflowClass[W, *Ts, R],
    memo: Mapping[str, Any] | None = None,
    run_timeout: timedelta | float | None = None,
    retry_policy: RetryPolicy | None = None,
    backoff_start_interval: timedelta | float | None = None,
) -> NoReturn: ...
@overload
def continue_as_new(
    *args: Any,
    workflow: str,
    memo: Mapping[str, Any] | None = None,
    run_timeout: timedelta | float | None = None,
    retry_policy: RetryPolicy | None = None,
    backoff_start_interval: timedelta | float | None = None,
) -> NoReturn: ...
def continue_as_new(
    *args: *Ts,
    workflow: Any = None,
    memo: Mapping[str, Any] | None = None,
    run_timeout: timedelta | float | None = None,
    retry_policy: RetryPolicy | None = None,
    backoff_start_interval: timedelta | float | None = None,
) -> NoReturn:
    """End this run and go on as a new one with the same workflow id and an empty history.

    One transaction ends the one and begins the other. What the run has received and not handled goes with it, as do a
    pause, a request to cancel that it has not seen, its memo and its limits. Activities and timers that it waits for
    are cancelled, and callers of updates whose handlers still run get ``UpdateCutError``.

    In ``run``, and in tasks that it awaits, this is an exception on its way out: ``finally`` blocks run. From a handler
    it ends the run at once.

    Args:
        *args: Arguments of the new run.
        workflow: Its class, its run method, or its type name; None is the same type.
        memo: Its memo; None is the present one.
        run_timeout: Its limit; None is the present one.
        retry_policy: None is the present one.
        backoff_start_interval: The new run begins so much later, a timedelta or seconds.

    Raises:
        ContinueAsNewError: Always, unless one of those below.
        TypeError: Wrong number of arguments, or a value of the wrong type.
        ValueError: A duration is out of its range.
        PayloadEncodeError: An argument does not fit its hint, or has no stored form.
        WorkflowNotRegisteredError: The runtime does not have that workflow type.
        ReadOnlyError: It is called in a query or a validator.
    """
    instance = current_instance("continue_as_new()")
    if instance.read_only:
        raise read_only("continue_as_new()")
    if instance.loop.discarded:
        raise RunDiscarded
    options = {
        "memo": memo,
        "run_timeout": run_timeout,
        "retry_policy": retry_policy,
        "backoff_start_interval": backoff_start_interval,
    }
    if instance.outbound is None:
        end_as_new(instance, args, workflow, options)
    headers = {one.name: one.value for one in instance.started.headers}
    instance.outbound.continue_as_new(ContinueAsNewInput(list(args), workflow, options, headers))


def end_as_new(
    instance: WorkflowInstance,
    args: Sequence[Any],
    workflow: Any,
    options: Mapping[str, Any],
    headers: tuple[ev.Header, ...] | None = None,
) -> NoReturn:
    """Check what the new run is to be, and raise; arguments as of ``ContinueAsNewInput``, headers None as they are."""
    definition = _definition_of(instance, workflow)
    payloads, _ = definition.codec.encode_args(instance._converter, args)
    memo = options["memo"]
    names, values = encode_memo(instance._converter, memo)
    wait = 0
    if options["backoff_start_interval"] is not None:
        wait = microseconds("backoff_start_interval", options["backoff_start_interval"])
    outcome = ev.WorkflowContinuedAsNew(
        definition.name,
        payloads,
        changed(instance.started.options, options),
        None,
        memo is not None,
        names,
        values,
        headers=headers,
    )
    raise ContinueAsNewError(outcome, wait)


def _definition_of(instance: WorkflowInstance, workflow: Any) -> WorkflowDefinition:
    if workflow is None:
        return instance._definition
    known = instance.workflows
    if isinstance(workflow, type):  # a dynamic class has no name, and may be this run's
        name = workflow_definition(workflow).name
    else:
        name, _ = named_type(workflow, known)
    if name == instance._definition.name:
        return instance._definition
    definition = known.get(name)
    if definition is None:
        raise WorkflowNotRegisteredError(name, list(known))
    return definition


def continuing(error: BaseException | None) -> ContinueAsNewError | None:
    """The ``ContinueAsNewError`` that has left the code, alone or in a group with others."""
    if isinstance(error, ContinueAsNewError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := continuing(one)) is not None), None)
    return None


def continued_outcome(run: WorkflowInstance, error: ContinueAsNewError) -> ev.WorkflowContinuedAsNew:
    """The outcome of a run that its code has ended so."""
    begins_at = run._wall + error._wait if error._wait else 0
    return msgspec.structs.replace(
        error._outcome,
        next=NextRun(next_run_id(run.started.run_id), CONTINUE_AS_NEW, begins_at),
        carries_cancel=run.cancel_requested and not run.cancel_seen,
    )


# --- what the runs before have left


def has_last_completion_result() -> bool:
    """Whether a run before this one has completed: that of a schedule's last time."""
    return current_instance("has_last_completion_result()").started.last_result is not None


@overload
def last_completion_result() -> Any: ...
@overload
def last_completion_result(result_type: type[R], /) -> R | None: ...
def last_completion_result(result_type: Any = Any, /) -> Any:
    """What the last run that has completed has returned; None when there is none.

    Args:
        result_type: Its type.

    Raises:
        PayloadDecodeError: It is not of this type.
    """
    instance = current_instance("last_completion_result()")
    payload = instance.started.last_result
    if payload is None:
        return None
    if result_type is Any:
        return instance._converter.decode(payload, where="the last completion result")
    return instance._converter.decode(payload, result_type, where="the last completion result")


def last_failure() -> Exception | None:
    """Why the run before has failed, or None: of a run that is tried again, or of a schedule's last time."""
    instance = current_instance("last_failure()")
    failure = instance.started.last_failure
    return None if failure is None else error_of(failure, instance._converter)
