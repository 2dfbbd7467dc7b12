"""Compensating: a saga's completed steps are undone, each under its policy, and each of it is in the journal."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..journal.failures import one_line
from ..journal.saga_events import (
    CompensationCompleted,
    CompensationEscalated,
    CompensationFailed,
    CompensationStarted,
)
from .asyncio_discard import TurnAborted, TurnCrashed
from .context import in_main
from .continuation import continuing
from .failure_conversion import failure_of, is_failure
from .places import suspended_at
from .retries import decide
from .saga_steps import Compensation

if TYPE_CHECKING:
    from .saga_block import SagaBlock
    from .workflow_instance import WorkflowInstance

#: What leaves code without being an end of it: it leaves memory, or the turn is broken off.
BROKEN_OFF = (GeneratorExit, TurnAborted, KeyboardInterrupt, SystemExit)


class RunSagas:
    """What the sagas of one live run have in common.

    Attributes:
        count: How many have begun to compensate.
        completed: How many steps of them were completed.
        escalations: Compensations that wait for a release of the run, by command number.
        blocks: Sagas whose blocks are being run, or undone.
        is_ending: Main is over; the run ends once they have undone what they did.
        end_error: What main was over with then, or why it must not be; a later cancel does not change that.
        is_cancelled: The cancel of the run has come, then or since.
    """

    __slots__ = ("blocks", "completed", "count", "end_error", "escalations", "is_cancelled", "is_ending")

    def __init__(self) -> None:
        self.count = 0
        self.completed = 0
        self.escalations: dict[int, asyncio.Future[None]] = {}
        self.blocks: dict[SagaBlock, None] = {}
        self.is_ending = False
        self.end_error: BaseException | None = None
        self.is_cancelled = False

    def refusal_to_lose(self, where: str, error: BaseException) -> RuntimeError | None:
        """Why the run must not end where it was told to go on as a new one, which could not undo what is done."""
        for block in self.blocks:
            if block.owes:
                refusal = RuntimeError(
                    f"{type(error).__name__} must not leave {where} while saga {block._name!r} has completed steps, or "
                    f"undoes them: what undoes them would be lost; let the block end first"
                )
                refusal.__cause__ = error
                return refusal.with_traceback(error.__traceback__)
        return None

    def released(self) -> None:
        """The run was released: what has failed begins again."""
        waiting, self.escalations = self.escalations, {}
        for future in waiting.values():
            if not future.done():
                future.set_result(None)


def sagas_of(run: WorkflowInstance) -> RunSagas:
    """What the sagas of a run have in common."""
    if run.sagas is None:
        run.sagas = RunSagas()
    return run.sagas


def is_bug(run: WorkflowInstance, error: BaseException) -> bool:
    """Whether an error is no failure but a fault of the code of ``run``, and the run waits for better code."""
    if isinstance(error, asyncio.CancelledError) or not in_main.get():
        return False
    return run._definition.on_crash == "quarantine" and not is_failure(error)


class Compensator:
    """One saga that undoes its steps.

    Attributes:
        failures: Name of the step, its failure in one line and the error, of each compensation that failed.
    """

    def __init__(self, run: WorkflowInstance, sagas: RunSagas, saga_name: str, total: int) -> None:
        sagas.count += 1
        self._run = run
        self._sagas = sagas
        self._number = sagas.count
        self._name = saga_name
        self._total = total
        self.failures: list[tuple[str, str, Exception]] = []

    async def undo(self, groups: Sequence[Sequence[Compensation]]) -> None:
        """Undo all of it: one group after the other, the members of a group side by side.

        Raises:
            TurnCrashed: A function has a bug.
        """
        step = 0
        failed: dict[int, tuple[str, str, Exception]] = {}
        for group in groups:
            numbered = list(enumerate(group, step + 1))
            step += len(group)
            if len(group) == 1:
                await self._undo_one(*numbered[0], failed)
                continue
            loop = self._run.loop
            await asyncio.wait(
                [loop.create_task(self._undo_one(number, one, failed)) for number, one in numbered]
            )
        self.failures = [failed[number] for number in sorted(failed)]

    async def _undo_one(
        self, number: int, one: Compensation, failed: dict[int, tuple[str, str, Exception]]
    ) -> None:
        run = self._run
        first = 0
        while True:
            command = run.next_command if one.definition is not None else 0
            run._outputs.append(
                CompensationStarted(
                    self._number, number, one.step, one.label, self._name, self._total, command
                )
            )
            try:
                await self._call(one, command, first)
            except BROKEN_OFF:
                raise
            except BaseException as raised:  # noqa: BLE001  (whatever it is: the others are undone)
                error = self._refused(raised)
                if is_bug(run, error):
                    raise TurnCrashed(error) from error
                failure = failure_of(error, run._converter)
                run._outputs.append(CompensationFailed(self._number, number, one.step, failure))
                if not one.policy.escalates:
                    kept = error if isinstance(error, Exception) else RuntimeError(str(error))
                    failed[number] = (one.step, one_line(failure), kept)
                    return
                escalation = run.next_command
                run.next_command = escalation + 1
                run._outputs.append(
                    CompensationEscalated(escalation, self._number, number, one.step, failure)
                )
            else:
                run._outputs.append(CompensationCompleted(self._number, number, one.step))
                return
            first = first or command
            future = self._sagas.escalations[escalation] = run.loop.create_future()
            await future

    def _refused(self, error: BaseException) -> BaseException:
        """The error itself; or why the run does not go on as a new one from inside of a compensation."""
        continued = continuing(error)
        if continued is None:
            return error
        return self._sagas.refusal_to_lose("a compensation", continued) or error

    async def _call(self, one: Compensation, command: int, repeats: int) -> None:
        """Call it; an activity is repeated by its pool, with one idempotency key, a function here."""
        run = self._run
        if isinstance(one.encoded, Exception):
            raise one.encoded
        if one.definition is not None:
            options = one.options
            if one.policy.retry is not None and "retry_policy" not in options:
                options = {**options, "retry_policy": one.policy.retry}
            activity = run.schedule_activity(
                one.definition, (), None, options, encoded=one.encoded, repeats=repeats
            )
            if run.replaying:  # no line of the user's has called it: the block that main stands in has
                run.places[command] = suspended_at(run.main)
            await activity
            return
        assert one.fn is not None
        attempt = 0
        while True:
            attempt += 1
            try:
                result = one.fn(*one.args)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                if one.policy.retry is None or is_bug(run, error):
                    raise
                failure = failure_of(error, run._converter)
                delay, _why = decide(one.policy.retry.to_record(), attempt, failure, run.random("saga"))
                if delay < 0:
                    raise
                what = f"attempt {attempt} of compensation {one.label!r} (step {one.step!r} of saga {self._name!r})"
                text = f"{what} failed, the next one starts in {delay / 1_000_000:.1f} s"
                run._log(logging.WARNING, text, error)
            else:
                return
            await asyncio.sleep(delay / 1_000_000)
