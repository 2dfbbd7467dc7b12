"""Sagas: steps that are undone, the last one first, when what they belong to does not come to a good end."""

# The implementations below their overloads take `*args: *Ts`, or mypy refuses the overloads.
# pyright: reportInvalidTypeVarUse=false

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeVarTuple, Unpack, get_args, overload

from .commands import Decode, result_decoder
from .context import current_instance
from .definitions import activity_definition
from .options import ActivityOptions, RetryPolicy, check_option_names, check_text
from .saga_block import SagaBlock, active_saga
from .saga_order import Order, checked_order
from .saga_steps import (
    COMPENSATION_RETRY,
    FailurePolicy,
    OnCompensationFailure,
    SagaStepOptions,
    StepFuture,
    check_step_name,
)
from .step_context import outlives_step
from .typing import R, Ts

Cs = TypeVarTuple("Cs")


def saga(
    name: str = "saga",
    *,
    on_compensation_failure: OnCompensationFailure = "retry",
    compensation_retry: RetryPolicy | None = None,
    parallel: bool = False,
    order: Order | None = None,
) -> Saga:
    """A saga, for ``async with workflow.saga() as saga:``.

    When an error leaves the block (a failure, a cancel, a time limit), what its completed steps did is undone by their
    compensations, in the reverse order of their completion; then the error goes on its way. Meanwhile neither a cancel
    nor a time limit disturbs.

    Args:
        name: For people: it is in the history, in ``describe`` and in errors.
        on_compensation_failure: ``retry`` (default) repeats it by ``compensation_retry``; what has failed for good is
            collected in a ``SagaCompensationError``, and the others are undone. ``continue`` is the same without
            repeating more than the activity's own policy says. ``escalate`` quarantines the run; ``release`` lets
            all begin again that have failed until then.
        compensation_retry: When a failed compensation is repeated; default, under ``retry``, without end, after 1 s at
            first and 60 s at most.
        parallel: Compensations of the same priority run side by side.
        order: Names of steps whose compensations go first, in this order; or such a list by the name of the step that
            failed. For data: names that no completed step has are passed over.

    Raises:
        NotInWorkflowError: The caller is not workflow code.
        TypeError: An argument is of the wrong type.
        ValueError: A word is unknown, or ``order`` and ``parallel`` are both given.
    """
    run = current_instance("saga()")
    check_text("the name of a saga", name)
    words = get_args(OnCompensationFailure)
    if on_compensation_failure not in words:
        known = ", ".join(map(repr, words))
        raise ValueError(f"on_compensation_failure must be one of {known}, not {on_compensation_failure!r}")
    if compensation_retry is not None and not isinstance(compensation_retry, RetryPolicy):
        raise TypeError(f"compensation_retry must be a RetryPolicy, not {compensation_retry!r}")
    if not isinstance(parallel, bool):
        raise TypeError(f"parallel must be True or False, not {parallel!r}")
    if order is not None and parallel:
        raise ValueError(
            "order= says what comes first, and parallel=True that nothing does: give one of them"
        )
    retry = compensation_retry
    if retry is None and on_compensation_failure == "retry":
        retry = COMPENSATION_RETRY
    policy = FailurePolicy(on_compensation_failure == "escalate", retry)
    return Saga(run, name, policy, is_parallel=parallel, order=checked_order(order))


class Saga(SagaBlock):
    """A saga; see ``workflow.saga``."""

    __slots__ = ()

    # --- steps: the compensation gets the result, or other arguments; a step that is optional may give None

    @overload
    async def run(
        self,
        activity: Callable[[*Ts], Awaitable[R]],
        /,
        *args: *Ts,
        compensate: Callable[[R], object] | str | None = None,
        optional: Literal[False] = False,
        **options: Unpack[SagaStepOptions],
    ) -> R: ...
    @overload
    async def run(
        self,
        activity: Callable[[*Ts], Awaitable[R]],
        /,
        *args: *Ts,
        compensate: Callable[[*Cs], object] | str,
        compensate_args: tuple[*Cs],
        compensate_unknown: bool = False,
        optional: Literal[False] = False,
        **options: Unpack[SagaStepOptions],
    ) -> R: ...
    @overload
    async def run(
        self,
        activity: Callable[[*Ts], Awaitable[R]],
        /,
        *args: *Ts,
        compensate: Callable[[R], object] | str | None = None,
        optional: bool,
        **options: Unpack[SagaStepOptions],
    ) -> R | None: ...
    @overload
    async def run(
        self,
        activity: Callable[[*Ts], Awaitable[R]],
        /,
        *args: *Ts,
        compensate: Callable[[*Cs], object] | str,
        compensate_args: tuple[*Cs],
        compensate_unknown: bool = False,
        optional: bool,
        **options: Unpack[SagaStepOptions],
    ) -> R | None: ...
    @overload
    async def run(
        self,
        activity: Callable[[*Ts], R],
        /,
        *args: *Ts,
        compensate: Callable[[R], object] | str | None = None,
        optional: Literal[False] = False,
        **options: Unpack[SagaStepOptions],
    ) -> R: ...
    @overload
    async def run(
        self,
        activity: Callable[[*Ts], R],
        /,
        *args: *Ts,
        compensate: Callable[[*Cs], object] | str,
        compensate_args: tuple[*Cs],
        compensate_unknown: bool = False,
        optional: Literal[False] = False,
        **options: Unpack[SagaStepOptions],
    ) -> R: ...
    @overload
    async def run(
        self,
        activity: Callable[[*Ts], R],
        /,
        *args: *Ts,
        compensate: Callable[[R], object] | str | None = None,
        optional: bool,
        **options: Unpack[SagaStepOptions],
    ) -> R | None: ...
    @overload
    async def run(
        self,
        activity: Callable[[*Ts], R],
        /,
        *args: *Ts,
        compensate: Callable[[*Cs], object] | str,
        compensate_args: tuple[*Cs],
        compensate_unknown: bool = False,
        optional: bool,
        **options: Unpack[SagaStepOptions],
    ) -> R | None: ...
    @overload
    async def run(
        self,
        activity: str,
        /,
        *args: Any,
        result_type: type[R],
        compensate: Callable[..., object] | str | None = None,
        compensate_args: tuple[Any, ...] | None = None,
        compensate_unknown: bool = False,
        optional: Literal[False] = False,
        **options: Unpack[SagaStepOptions],
    ) -> R: ...
    @overload
    async def run(
        self,
        activity: str,
        /,
        *args: Any,
        compensate: Callable[..., object] | str | None = None,
        compensate_args: tuple[Any, ...] | None = None,
        compensate_unknown: bool = False,
        optional: bool = False,
        **options: Unpack[SagaStepOptions],
    ) -> Any: ...
    def run(
        self,
        activity: Any,
        /,
        *args: *Ts,
        compensate: Any = None,
        compensate_args: tuple[Any, ...] | None = None,
        compensate_unknown: bool = False,
        optional: bool = False,
        **options: Any,
    ) -> Any:
        """Schedule an activity as a step; awaiting what it returns gives the activity's result.

        Numbered at the call, as ``execute_activity``; several at once run side by side. A step that has a compensation
        and is cancelled goes on to its end and is waited for, so that it is known whether it was done; one with
        ``compensate_unknown`` is asked to stop (``cancellation_type`` says otherwise).

        Args:
            activity: The activity function, or its name.
            *args: Its arguments.
            compensate: What undoes the step: an activity, the name of one, or a function, plain or async; None when
                there is nothing to undo. It gets the step's result.
            compensate_args: Its arguments instead; those of an activity are converted here.
            compensate_unknown: Undo it also when it failed and may have been done all the same (a time limit, a lost or
                repeated attempt, a cancel); needs ``compensate_args``, and a compensation that finds nothing to undo
                must be content.
            optional: When it fails the saga goes on, with None as its result.
            **options: See ``SagaStepOptions`` and ``ActivityOptions``; with a name also ``result_type``.

        Raises:
            TypeError: As ``execute_activity``; or the compensation does not fit.
            ValueError: An option has an impossible value.
            PayloadEncodeError: An argument does not fit its hint, or has no stored form.
            ActivityNotRegisteredError: The runtime was not given this activity.
            RuntimeError: The saga's block is not entered yet, or left.
            ActivityError: (when awaited) The activity failed for good.
        """
        run = self._run
        if run.loop.discarded:
            return run.loop.refuse()
        self._check_open("run()")
        outlives_step(self.entered_in)
        decode: Decode | None = None
        if isinstance(activity, str):
            definition = run.activity_named(activity)
            if "result_type" in options:
                decode = result_decoder(run._converter, options.pop("result_type"), f"activity {activity}")
        else:
            definition = activity_definition(activity)
        check_option_names(
            "saga step",
            options,
            SagaStepOptions,
            "compensate",
            "compensate_args",
            "compensate_unknown",
            "optional",
        )
        name = check_step_name(options.pop("name", definition.name))
        compensation = self._compensation(compensate, compensate_args, name, options)
        if not isinstance(optional, bool):
            raise TypeError(f"step {name!r}: optional must be True or False, not {optional!r}")
        if compensate_unknown and (compensation is None or compensate_args is None):
            raise ValueError(
                f"step {name!r}: compensate_unknown=True needs compensate= and compensate_args=: a step whose end is "
                f"not known has no result that the compensation could get"
            )
        if compensation is not None:
            # What can be undone only when it is known to be done is not broken into half-way.
            options.setdefault(
                "cancellation_type", "wait_cancellation_completed" if compensate_unknown else "wait_completed"
            )

        def make(
            *about: Any, **cancellation: Any
        ) -> StepFuture:  # whatever interceptors make of it, the saga knows it
            step = StepFuture(*about, **cancellation)
            step.saga = self
            step.name = name
            step.compensation = compensation
            step.is_optional = optional
            step.compensates_unknown = compensate_unknown
            self._pending[step] = None
            return step

        return run.schedule_activity(definition, args, None, options, decode, make=make)

    def add_compensation(
        self,
        compensation: Callable[[*Ts], object] | str,
        /,
        *args: *Ts,
        name: str | None = None,
        priority: int = 0,
        options: ActivityOptions | None = None,
    ) -> None:
        """Add what undoes something that the block itself has done: a child workflow, several calls together.

        It counts as completed now.

        Args:
            compensation: An activity, the name of one, or a function, plain or async.
            *args: Its arguments; those of an activity are converted here.
            name: Of what is undone, in the history and in ``order``; default the name of the compensation.
            priority: As of ``run``.
            options: Of the activity.

        Raises:
            TypeError: It is neither, or does not take these arguments; or an option is unknown.
            ValueError: An option has an impossible value.
            PayloadEncodeError: An argument does not fit its hint, or has no stored form.
            ActivityNotRegisteredError: The runtime was not given this activity.
            RuntimeError: The saga's block is not entered yet, or left.
        """
        self._check_open("add_compensation()")
        outlives_step(self.entered_in)
        if name is None:
            name = (
                compensation
                if isinstance(compensation, str)
                else getattr(compensation, "__name__", "a function")
            )
        given: dict[str, Any] = {"priority": priority}
        if options is not None:
            given["compensate_options"] = options
        made: Any = self._compensation(compensation, args, check_step_name(name), given)
        if made is None:
            raise TypeError("add_compensation() needs an activity, the name of one, or a function, not None")
        self._completed(made)


def step_completed(name: str, compensate: Any, args: Sequence[Any], *, priority: int = 0) -> None:
    """For steps of other kinds: one was completed; the saga in whose block it ran, if any, undoes it when it fails.

    One that ends when the block has been left with an error is undone at once.

    Args:
        name: Of the step.
        compensate: An activity, the name of one, or a function.
        args: Its arguments.
        priority: As of ``Saga.run``.
    """
    inside = active_saga.get()
    while inside is not None and inside.has_ended_well:
        inside = inside._outer
    if isinstance(inside, Saga) and inside.is_open:
        inside.add_compensation(compensate, *args, name=name, priority=priority)
    elif inside is not None:
        late = inside._compensation(compensate, tuple(args), name, {"priority": priority})
        assert late is not None
        inside._completed_late(late)
