"""Steps of a saga on their way, and what undoes them once they are done."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..journal.events import WAIT_COMPLETED
from ..journal.payloads import Payload
from .commands import CommandFuture
from .definitions import DEFINITION, ActivityDefinition, activity_definition
from .dynamic import undeclared
from .errors import ActivityCancelledError, ActivityError, ActivityTimeoutError, AttemptLostError
from .options import ActivityOptions, RetryPolicy, check_text

if TYPE_CHECKING:
    from .saga_block import SagaBlock
    from .workflow_instance import WorkflowInstance


OnCompensationFailure = Literal["retry", "continue", "escalate"]

#: Of compensations under ``retry``: without end, as what is left half done helps nobody; each failure is logged.
COMPENSATION_RETRY = RetryPolicy(maximum_attempts=0)


class SagaStepOptions(ActivityOptions, total=False):
    """Options of a saga's step: those of its activity, and these.

    Attributes:
        name: Of the step, in the history and in ``order``; default the activity's.
        priority: Compensations of a higher one go first; default 0.
        compensate_options: Options of the activity that compensates.
    """

    name: str
    priority: int
    compensate_options: ActivityOptions


@dataclass(frozen=True)
class FailurePolicy:
    """What a saga does when a compensation fails.

    Attributes:
        escalates: Quarantine the run, instead of going on with the others.
        retry: When the compensation is repeated before it counts as failed; None is as its activity says.
    """

    escalates: bool
    retry: RetryPolicy | None


class Compensation:
    """What undoes one step.

    Attributes:
        step: Name of the step.
        label: Name of the activity, or of the function.
        definition: The activity; None when it is a function.
        fn: The function.
        args: Of the function.
        encoded: Arguments of the activity, or why they have no stored form.
        options: Of the activity, beyond its own.
        priority: The higher goes first.
        policy: When it fails.
        sequence: The how manieth completed step of the run it undoes; 0 until then.
    """

    __slots__ = (
        "args",
        "definition",
        "encoded",
        "fn",
        "label",
        "options",
        "policy",
        "priority",
        "sequence",
        "step",
        "takes_result",
    )

    def __init__(
        self,
        run: WorkflowInstance,
        target: Any,
        args: Sequence[Any] | None,
        *,
        step: str,
        options: dict[str, Any],
        priority: int,
        policy: FailurePolicy,
    ) -> None:
        """Check what is to be done, and with given arguments (None: the step's result) all of it.

        Raises:
            TypeError: It is no activity and no function, or does not take these arguments.
            ValueError: An option has an impossible value.
            PayloadEncodeError: An argument has no stored form.
            ActivityNotRegisteredError: The runtime was not given this activity.
        """
        self.step = step
        self.priority = priority
        self.policy = policy
        self.options = options
        self.sequence = 0
        self.takes_result = args is None
        self.definition: ActivityDefinition | None = None
        self.fn: Callable[..., Any] | None = None
        self.encoded: tuple[tuple[Payload, ...], tuple[str, ...]] | Exception = ((), ())
        self.args: tuple[Any, ...] = () if args is None else tuple(args)
        if isinstance(target, str):
            self.definition = run.activity_named(target)
        elif isinstance(getattr(target, DEFINITION, None), ActivityDefinition):
            called = activity_definition(target)
            self.definition = run._activities.get(called.name) or undeclared(called, run._activities)
        elif callable(target) and not isinstance(target, type):
            self.fn = target
        else:
            raise TypeError(
                f"step {step!r}: a compensation is an activity, the name of one, or a function, not {target!r}"
            )
        if self.definition is None:
            self.label = getattr(target, "__qualname__", None) or type(target).__qualname__
            if options:
                raise TypeError(f"step {step!r}: options are for activities, and {self.label} is a function")
        else:
            self.label = self.definition.name
            self.definition.options.overridden(options)
        self._check_arguments(run)

    def _check_arguments(self, run: WorkflowInstance) -> None:
        given = (None,) if self.takes_result else self.args
        try:
            if self.definition is None:
                assert self.fn is not None
                _signature_of(self.fn).bind(*given)
            elif self.takes_result:
                self.definition.codec.hints.bind(given, None)
            else:
                self.encoded = self.definition.codec.encode_args(run._converter, given)
        except TypeError as error:
            if not self.takes_result:
                raise TypeError(f"step {self.step!r}: its compensation {self.label}: {error}") from None
            raise TypeError(
                f"step {self.step!r}: its compensation {self.label} gets the step's result as its only argument "
                f"({error}); say others by compensate_args=(...), and () for none"
            ) from None

    def completed(self, run: WorkflowInstance, result: Any) -> None:
        """The step is done.

        Raises:
            PayloadEncodeError: The result does not fit the compensation; then that fails too.
        """
        if self.takes_result:
            self.args = (result,)
            if self.definition is not None:
                try:
                    self.encoded = self.definition.codec.encode_args(run._converter, self.args)
                except Exception as error:
                    self.encoded = error
                    raise


def _signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(fn)
    except ValueError:  # of a built-in one it is not known
        return inspect.signature(lambda *_args: None)


class StepFuture(CommandFuture):
    """The activity of a step: its saga hears of its end before anybody else.

    Attributes:
        saga: Whose step it is.
        name: Of the step.
        compensation: What undoes it, or None.
        is_optional: Its failure is no failure of the saga.
        compensates_unknown: It is also undone when it is not known whether it was done.
    """

    __slots__ = ("compensates_unknown", "compensation", "is_optional", "name", "saga")

    saga: SagaBlock
    name: str
    compensation: Compensation | None
    is_optional: bool
    compensates_unknown: bool

    def set_result(self, result: Any, /) -> None:
        """The step is done; who has cancelled it meanwhile sees it as cancelled, and it is undone."""
        try:
            self.saga._step_completed(self, result)
        except Exception as error:  # noqa: BLE001  (who awaits the step gets it)
            super().set_exception(error)
            return
        if self._is_waiting:
            asyncio.Future.cancel(self)
        else:
            super().set_result(result)

    def set_exception(self, exception: type | BaseException, /) -> None:
        """The step has failed; an optional one gives None."""
        assert isinstance(exception, BaseException)
        self.saga._step_failed(self, exception, is_unknown=_is_unknown(exception))
        if self._is_waiting:
            asyncio.Future.cancel(self)
        elif self.is_optional:
            super().set_result(None)
        else:
            super().set_exception(exception)

    def cancel(self, msg: Any | None = None) -> bool:
        """As of any command; one that is not waited for may have been done or not."""
        if self.done():
            return False
        is_cancelled = super().cancel(msg)
        if self.done():
            self.saga._step_failed(self, None, is_unknown=True)
        return is_cancelled

    def end_cancelled(self, attempt: int = 1) -> None:
        """It was told to stop, and has: how far it had come is not known, unless nobody has broken into it."""
        self.saga._step_failed(self, None, is_unknown=self.cancellation != WAIT_COMPLETED or attempt > 1)
        super().end_cancelled(attempt)


def _is_unknown(error: BaseException) -> bool:
    """Whether a step that failed may have been done; an error of its own at the first attempt says that it was not."""
    if not isinstance(error, ActivityError):
        return False
    cause = error.__cause__
    if error.attempt > 1:
        return True
    if isinstance(cause, ActivityTimeoutError):
        return cause.option != "schedule_to_start_timeout"
    return isinstance(cause, AttemptLostError | ActivityCancelledError)


def check_step_name(name: object) -> str:
    """Return a proper name of a step.

    Raises:
        TypeError: It is no string.
        ValueError: It is empty, or not valid Unicode.
    """
    return check_text("the name of a step", name)
