"""The block of a saga: entered, filled with steps, and left, well or with an error (then its steps are undone)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .async_blocks import AsyncBlock
from .asyncio_discard import TurnCrashed
from .errors import SagaCompensationError
from .saga_compensation import BROKEN_OFF, Compensator, is_bug, sagas_of
from .saga_order import Order, in_groups
from .saga_steps import Compensation, FailurePolicy, StepFuture
from .step_context import RunningStep, current_step, outlives_step

if TYPE_CHECKING:
    from .workflow_instance import WorkflowInstance

#: The saga whose block is being run.
active_saga: ContextVar[SagaBlock | None] = ContextVar("everact_saga", default=None)


class SagaBlock(AsyncBlock):
    """The block of a saga: it knows the steps on their way and those that are done.

    Attributes:
        entered_in: The step in whose body the block was entered; None when that was in none.
        under_way: Steps of the class whose bodies run, and which it undoes once they are completed.
    """

    _written = "workflow.saga(...)"

    __slots__ = (
        "_done",
        "_failures",
        "_is_stopped",
        "_late",
        "_name",
        "_order",
        "_outer",
        "_parallel",
        "_pending",
        "_policy",
        "_run",
        "_state",
        "_task",
        "entered_in",
        "under_way",
    )

    def __init__(
        self,
        run: WorkflowInstance,
        name: str,
        policy: FailurePolicy,
        *,
        is_parallel: bool,
        order: Order | None,
    ) -> None:
        """Make one that is not entered; arguments as of ``workflow.saga``."""
        self._run = run
        self._name = name
        self._policy = policy
        self._parallel = is_parallel
        self._order = order
        self._outer: SagaBlock | None = None
        self.entered_in: RunningStep | None = None
        self.under_way: dict[RunningStep, None] = {}
        self._state = "new"
        self._task: asyncio.Task[Any] | None = None
        self._is_stopped = False
        self._pending: dict[StepFuture, None] = {}
        self._done: list[Compensation] = []
        self._late: list[asyncio.Task[None]] = []
        self._failures: list[tuple[BaseException, str]] = []

    def __repr__(self) -> str:
        return f"<Saga {self._name!r} {self._state} completed={len(self._done)}>"

    @property
    def is_open(self) -> bool:
        """Whether its block is being run."""
        return self._state == "open"

    @property
    def waits_for_steps(self) -> bool:
        """Whether steps that it undoes are on their way."""
        return bool(self.under_way) or any(step.compensation is not None for step in self._pending)

    @property
    def has_ended_well(self) -> bool:
        """Whether its block has been left without an error."""
        return self._state == "closed"

    @property
    def owes(self) -> bool:
        """Whether there is, or may be, something that it is to undo."""
        return (
            (bool(self._done) and self._state != "undone")
            or (self.is_open and bool(self.under_way))
            or any(step.compensation is not None for step in self._pending)
            or any(not task.done() for task in self._late)
        )

    @property
    def is_abandoned(self) -> bool:
        """Whether nothing can leave its block any more: the task that has entered it is over."""
        return self.is_open and self._task is not None and self._task.done()

    def stop(self) -> bool:
        """Cancel the task that has entered its block, so that it undoes what it did; returns whether that is new."""
        if self._is_stopped or not self.is_open or self._task is None:
            return False
        self._is_stopped = True
        self._task.cancel()
        return True

    def may_stop_again(self) -> None:
        """Let the next ``stop`` cancel its task although an earlier one has: the task goes on all the same."""
        self._is_stopped = False

    def _check_open(self, call: str) -> None:
        if self._state == "new":
            raise RuntimeError(
                f"saga.{call} works inside the saga's block: async with workflow.saga() as saga: ..."
            )
        if not self.is_open:
            raise RuntimeError(
                f"saga.{call}: the block of saga {self._name!r} has been left; start what runs side by side in an "
                f"asyncio.TaskGroup inside the block"
            )

    # --- what becomes of the steps

    def _completed(self, compensation: Compensation) -> None:
        sagas = sagas_of(self._run)
        sagas.completed += 1
        compensation.sequence = sagas.completed
        self._done.append(compensation)

    def _step_completed(self, step: StepFuture, result: Any) -> None:
        self._pending.pop(step, None)
        compensation = step.compensation
        if compensation is not None:
            self._completed(compensation)
            compensation.completed(self._run, result)

    def _step_failed(self, step: StepFuture, error: BaseException | None, *, is_unknown: bool) -> None:
        self._pending.pop(step, None)
        if is_unknown and step.compensation is not None:
            if step.compensates_unknown:
                self._completed(step.compensation)
            else:
                self._run._log(
                    logging.WARNING,
                    f"saga {self._name!r}: whether step {step.name!r} was done is not known, and it is not undone; "
                    f"give it compensate_unknown=True and compensate_args=(...) if it must be",
                )
        if error is not None and not step.is_optional:
            self._failures.append((error, step.name))

    def warn_of_half(self, step: str) -> None:
        """A step of the class was cancelled behind an activity that was done."""
        self._run._log(
            logging.WARNING,
            f"saga {self._name!r}: step {step!r} was cancelled when an activity of its body was done, and it is not "
            f"undone; let its body be one activity, or each of them a saga.run(..., compensate=...)",
        )

    def _compensation(
        self, target: Any, args: Any, step: str, options: dict[str, Any]
    ) -> Compensation | None:
        priority = options.pop("priority", 0)
        own = options.pop("compensate_options", None)
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise TypeError(f"step {step!r}: priority must be an int, not {priority!r}")
        if target is None:
            if args or own is not None or priority:
                raise TypeError(
                    f"step {step!r}: compensate_args, compensate_options and priority are for a compensation, and it "
                    f"has none: pass compensate=..."
                )
            return None
        if args is not None and not isinstance(args, tuple | list):
            raise TypeError(
                f"step {step!r}: compensate_args must be a tuple, not {args!r}: of one argument it is (x,)"
            )
        if own is not None and not isinstance(own, Mapping):
            raise TypeError(f"step {step!r}: compensate_options must be a dict, not {own!r}")
        return Compensation(
            self._run,
            target,
            args,
            step=step,
            options=dict(own or {}),
            priority=priority,
            policy=self._policy,
        )

    def _completed_late(self, compensation: Compensation) -> None:
        """Something was done by a task that has outlived the block, which was left with an error: undo it now."""
        begun: list[bool] = []
        task = self._run.loop.create_task(self._undo_late(compensation, begun), name=f"saga {self._name}")
        self._late.append(task)
        sagas_of(self._run).blocks[self] = None  # again, until it is undone

        def ended(_task: object) -> None:
            self._late.remove(task)
            if task.cancelled() and not begun:  # by code that cancels all tasks: it is owed all the same
                self._completed_late(compensation)
            elif self._state == "undone":
                self._forget()

        task.add_done_callback(ended)

    async def _undo_late(self, compensation: Compensation, begun: list[bool]) -> None:
        begun.append(True)
        active_saga.set(None)
        work = Compensator(self._run, sagas_of(self._run), self._name, 1)
        await work.undo([[compensation]])
        for step, why, error in work.failures:
            text = f"saga {self._name!r} could not undo step {step!r}, which ended when its block had been left: {why}"
            self._run._log(logging.ERROR, text, error)

    # --- the block

    async def __aenter__(self) -> Self:
        """Begin: from here on its steps are the saga's."""
        if self._state != "new":
            raise RuntimeError(
                f"saga {self._name!r} has been entered before: make another by workflow.saga()"
            )
        self._state = "open"
        self._task = asyncio.current_task()
        self._outer = active_saga.get()
        self.entered_in = current_step.get()
        active_saga.set(self)
        sagas_of(self._run).blocks[self] = None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the steps on their way; undo what was done when one of them, or the block, has failed.

        Raises:
            SagaCompensationError: A compensation failed; ``__cause__`` is the error that has left the block.
        """
        if self._run.loop.discarded or isinstance(error, BROKEN_OFF):
            return
        active_saga.set(self._outer)
        if not isinstance(error, Exception | asyncio.CancelledError | None):
            self._refuse_to_lose(error)
            return
        found = error if error is not None else await self._finished()
        outer = self._outer
        if found is None:
            if outer is not None and outer.is_open:
                self._leave("closed")
                outer._done += self._done
                outlives_step(outer.entered_in)
                return
            if outer is None:
                self._leave("closed")
                return
            found = asyncio.CancelledError(f"the saga around saga {self._name!r} was left")
        if is_bug(self._run, found):
            raise TurnCrashed(found) from found
        self._state = "compensating"
        cancelled, failures = await self._shielded(self._unwound(found))
        self._leave("undone")
        self._failures.clear()  # with their frames, in which this saga is
        if failures:
            failed = SagaCompensationError(self._name, [(step, text) for step, text, _error in failures])
            failed.errors = tuple(one for _step, _text, one in failures)
            raise failed from found
        if cancelled is not None and not isinstance(found, asyncio.CancelledError):
            raise cancelled from found
        if found is not error:
            raise found

    def _leave(self, state: str) -> None:
        self._state = state
        self._task = None
        self._forget()

    def _forget(self) -> None:
        if not any(not task.done() for task in self._late):
            sagas_of(self._run).blocks.pop(self, None)

    def _refuse_to_lose(self, error: BaseException) -> None:
        """The run goes on as another one, which does not know what this one would have to undo.

        Raises:
            RuntimeError: There is something.
        """
        self._leave("closed")
        if self.owes:
            raise RuntimeError(
                f"{type(error).__name__} must not leave the block of saga {self._name!r}: what undoes its completed "
                f"steps ({len(self._done)}) would be lost; let the block end first, then call continue_as_new()"
            ) from error

    async def _finished(self) -> BaseException | None:
        """Wait for steps that nobody has awaited; returns why the saga fails all the same."""
        try:
            while self._pending:
                steps = list(self._pending)
                await asyncio.wait(steps)
                for step in steps:
                    if not step.cancelled() and (error := step.exception()) is not None:
                        return error
        except asyncio.CancelledError as cancelled:
            return cancelled
        return None

    async def _shielded(
        self, work: Any
    ) -> tuple[asyncio.CancelledError | None, list[tuple[str, str, Exception]]]:
        """Do all of it, whoever cancels meanwhile; returns the cancel too, for afterwards."""
        task = self._run.loop.create_task(work, name=f"saga {self._name}")
        cancelled = None
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
        return cancelled, task.result()

    async def _unwound(self, error: BaseException) -> list[tuple[str, str, Exception]]:
        """Stop the steps on their way, then undo what was done."""
        active_saga.set(None)
        while self._pending:
            steps = list(self._pending)
            for step in steps:
                step.cancel()
            left = [step for step in steps if not step.done()]
            if left:
                await asyncio.wait(left)
        failures: list[tuple[str, str, Exception]] = []
        if self._done:
            work = Compensator(self._run, sagas_of(self._run), self._name, len(self._done))
            groups = in_groups(self._done, self._order, self._failed_by(error), is_parallel=self._parallel)
            await work.undo(groups)
            failures = work.failures
        while late := [task for task in self._late if not task.done()]:
            await asyncio.wait(late)
        return failures

    def _failed_by(self, error: BaseException) -> str:
        """Name of the step whose error has left the block; empty when it was none's."""
        left = [error]
        while left:
            one = left.pop(0)
            for known, name in self._failures:
                if known is one:
                    return name
            if isinstance(one, BaseExceptionGroup):
                left.extend(one.exceptions)
        return ""
