"""Steps: methods of a workflow class that are checkpoints, with retry, a time limit and what follows from a failure."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from ..journal.errors import PayloadEncodeError
from ..journal.failures import Failure
from ..journal.payloads import NULL
from ..journal.step_events import (
    StepAttemptFailed,
    StepCancelled,
    StepCompleted,
    StepFailed,
    StepStarted,
)
from . import checkpoints
from .asyncio_forbidden import read_only
from .checkpoints import RETRY_STREAM, Before
from .context import running_instance
from .definitions import put_mark
from .event_loop import TurnAborted
from .failure_conversion import error_of, failure_of, is_failure
from .places import user_place
from .retries import decide
from .saga import step_completed
from .saga_block import active_saga
from .step_arguments import StepArguments
from .step_context import RunningStep, current_step, outlives_step
from .step_definitions import STEP, UNSET, StepDefinition, StepOptions
from .typing import F
from .unawaited import Unawaited

if TYPE_CHECKING:
    from .workflow_instance import WorkflowInstance

#: ``StepCompleted.handled`` of an optional step that failed.
OPTIONAL = "optional"


@overload
def step(fn: F, /) -> F: ...
@overload
def step(**options: Unpack[StepOptions]) -> Callable[[F], F]: ...
def step(fn: Any = None, /, **options: Any) -> Any:
    """Declare an ``async def`` method as a step: it is seen from outside, and its end is a checkpoint.

    Called and awaited as the method it is. Outside workflows it is just that.

    Args:
        fn: The method, when used without parentheses.
        **options: See ``StepOptions``.

    Raises:
        RegistrationError: It is no ``async def`` method, or an option does not fit.
    """

    def declare(method: Any) -> Any:
        mark = put_mark(method, "step", options.get("name"), "workflow.step")
        definition = StepDefinition(method, mark.name, options)

        @functools.wraps(method)
        def call(obj: Any, /, *args: Any, **kwargs: Any) -> Any:
            instance = running_instance()
            if instance is None:
                return method(obj, *args, **kwargs)
            return _call(instance, definition, obj, args, kwargs)

        setattr(call, STEP, definition)
        # The way asyncio marks functions that return coroutines; inspect's mark came with Python 3.12.
        call._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
        marked = getattr(inspect, "markcoroutinefunction", None)
        return marked(call) if marked else call

    return declare(fn) if fn is not None else declare


def _call(
    instance: WorkflowInstance,
    definition: StepDefinition,
    obj: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    if instance.read_only:
        raise read_only(f"step {definition.name!r}")
    if instance.loop.discarded:
        return instance.loop.refuse()
    if obj is not instance._object:
        raise TypeError(
            f"step {definition.name!r} was called on an object of {type(obj).__name__} that is not this run's workflow "
            f"object: a step is called on self, from run on, as its checkpoint holds the fields of that object"
        )
    return StepCall(instance, definition, obj, StepArguments(instance, definition, args, kwargs))


class StepCall(Unawaited):
    """A call of a step, numbered; a coroutine for whoever awaits it or makes a task of it (R9).

    Its body runs in the caller's task, in a copy of the caller's context: what it sets there stays inside, as it would
    be lost when a replay skips it.

    Attributes:
        command: Its number in the run.
        definition: The step.
        parent: The step around it.
        place: Code and line of the call.
        is_outlived: It has told a saga around it something, so that it is no checkpoint.
        is_undone: A saga around it undoes it, should it be completed.
        owes_cancel: An activity of its body has gone on to its end although it was cancelled.
        has_done: An activity of its body is done.
    """

    __slots__ = (
        "__weakref__",
        "_arguments",
        "_context",
        "_coroutine",
        "_instance",
        "_object",
        "command",
        "definition",
        "has_done",
        "is_outlived",
        "is_undone",
        "owes_cancel",
        "parent",
        "place",
    )

    def __init__(
        self, instance: WorkflowInstance, definition: StepDefinition, obj: Any, arguments: StepArguments
    ) -> None:
        self._instance = instance
        self._object = obj
        self._coroutine: Coroutine[Any, Any, Any] | None = None
        self._context: Context | None = None
        self.parent: RunningStep | None = None
        self.is_outlived = False
        self.is_undone = False
        self.owes_cancel = False
        self.has_done = False
        self.definition = definition
        self._arguments = arguments
        self.command = instance.next_command
        instance.next_command += 1
        if instance.replaying:
            instance.places[self.command] = user_place()
        frame = sys._getframe(3)
        self.place: tuple[CodeType, int] = (frame.f_code, frame.f_lineno)

    def _called(self) -> tuple[str, tuple[CodeType, int], bool]:
        return f"step {self.definition.name!r}", self.place, self._coroutine is not None

    @property
    def _everact_number(self) -> int:
        """By which ``asyncio.wait`` and ``as_completed`` bring a set of commands into order."""
        return self.command

    # --- the coroutine

    def __await__(self) -> Self:
        return self

    __iter__ = __await__

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Go on."""
        if self._coroutine is None:
            self._context = copy_context()
            self._coroutine = self._run()
        assert self._context is not None
        return self._context.run(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        """Raise inside it; a step that has not begun never does."""
        if self._coroutine is None:
            self._coroutine = self._run()
            self._context = copy_context()
        assert self._context is not None
        return self._context.run(self._coroutine.throw, *error)

    def close(self) -> None:
        """End it."""
        if self._coroutine is None:
            self._coroutine = self._run()
            self._context = copy_context()
        assert self._context is not None
        self._context.run(self._coroutine.close)

    @property
    def cr_await(self) -> Any:
        """What it runs inside, for those who look where a task waits."""
        return self._coroutine

    @property
    def cr_frame(self) -> None:
        """None: its frames are those of ``cr_await``."""

    def __del__(self) -> None:
        if self._coroutine is None and not self._instance.loop.discarded:
            code, line = self.place
            warnings.warn_explicit(
                f"step {self.definition.name!r} was called and never awaited; it did not run",
                RuntimeWarning,
                code.co_filename,
                line,
            )

    # --- what it does

    async def _run(self) -> Any:
        instance = self._instance
        self.parent = current_step.get()
        saga = active_saga.get()
        self.is_undone = self.definition.compensate is not None and saga is not None
        if saga is None or not self.is_undone:
            return await self._recorded()
        task: asyncio.Task[Any] | None = asyncio.current_task()
        assert task is not None
        cancels = task.cancelling()
        saga.under_way[self] = None
        try:
            result = await self._recorded()
        except asyncio.CancelledError:
            if self.has_done:
                saga.warn_of_half(self.definition.name)
            raise
        finally:
            del saga.under_way[self]
        if self.owes_cancel and task.cancelling() > cancels:
            if task is instance.main:
                instance.cancel_seen = instance.cancel_requested
            raise asyncio.CancelledError
        return result

    async def _recorded(self) -> Any:
        instance = self._instance
        current_step.set(self)
        replay = instance.steps
        recorded = None if replay is None else replay.starts.get(self.command)
        before = self._enter(recorded)
        instance._outputs.append(
            StepStarted(
                self.command,
                self.definition.name,
                0 if self.parent is None else self.parent.command,
                is_alone=before is not None,
            )
        )
        if replay is not None and self.command in replay.jumpable:
            end = await replay.jump(self.command)
            checkpoints.go_there(instance, end)
            return self._ended(end)
        try:
            result, handled, failure = await self._outcome(before)
        except Exception as error:  # noqa: BLE001  (whatever the body raises ends the step)
            caught = error
        except (TurnAborted, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException:  # cancelled, or the run continues as new
            instance._outputs.append(StepCancelled(self.command))
            raise
        else:
            return self._complete(before, result, handled, failure)
        # Here and not above, so that the caller's error has the same context as in a replay that skips the body.
        return self._fail(before, caught)

    def _enter(self, recorded: StepStarted | None) -> Before | None:
        """Find out whether it begins alone; what the journal says counts."""
        instance = self._instance
        if recorded is not None:
            return checkpoints.reenter(instance) if recorded.is_alone else None
        if self._arguments.error is not None:
            checkpoints.warn_of_value(instance, self.definition, "an argument", self._arguments.error)
            return None
        return checkpoints.enter(instance, self.definition)

    async def _outcome(self, before: Before | None) -> tuple[Any, str, Failure | None]:
        """The result, and what has given it instead of the body, with the body's failure.

        Raises:
            BaseException: What leaves the step.
        """
        definition = self.definition
        is_over = False
        try:
            if not definition.timeout:
                return await self._attempts(before), "", None
            limit = asyncio.timeout(definition.timeout / 1_000_000)
            try:
                async with limit:
                    return await self._attempts(before), "", None
            except TimeoutError:
                if not limit.expired():
                    raise
                is_over = True
                text = f"step {definition.name!r} did not end within {definition.timeout / 1_000_000:g} s"
                raise TimeoutError(text) from None
        except Exception as error:
            if not is_failure(error):
                raise
            failure = failure_of(error, self._instance._converter)
            try:
                if is_over and definition.on_timeout is not UNSET:
                    method = definition.on_timeout
                    return await self._ask(method) if callable(method) else method, "on_timeout", failure
                if definition.on_error is not None:
                    return await self._ask(definition.on_error, error), "on_error", failure
            except Exception as again:
                if not definition.optional or not is_failure(again):
                    raise
            if not definition.optional:
                raise
            return None, OPTIONAL, failure

    async def _ask(self, method: Callable[..., Any], *first: Any) -> Any:
        """Let a method of the class say what the step gives."""
        args, kwargs = self._arguments.take()
        value = method(self._object, *first, *args, **kwargs)
        return await value if inspect.isawaitable(value) else value

    async def _attempts(self, before: Before | None) -> Any:
        definition = self.definition
        instance = self._instance
        attempt = 1
        while True:
            args, kwargs = self._arguments.take()
            try:
                return await definition.fn(self._object, *args, **kwargs)
            except Exception as error:
                if not definition.has_retry or not is_failure(error) or self.owes_cancel:
                    raise
                failure = failure_of(error, instance._converter)
                delay, _why = decide(definition.retry, attempt, failure, instance.stream(RETRY_STREAM))
                if delay < 0:
                    raise
                self._note_attempt(before, attempt, failure, delay)
            attempt += 1
            if delay:
                await asyncio.sleep(delay / 1_000_000)

    def _note_attempt(self, before: Before | None, attempt: int, failure: Failure, delay: int) -> None:
        """An attempt failed: take back what it alone has done to the fields."""
        instance = self._instance
        recorded = None if instance.steps is None else instance.steps.attempts.get((self.command, attempt))
        if recorded is not None:
            is_restored = recorded.is_restored
        else:
            is_restored = before is not None and before.is_untouched(
                instance, 1 if self.definition.timeout else 0
            )
        if is_restored:
            assert before is not None
            instance._definition.fields.restore(self._object, instance._converter, before.fields)
        instance._outputs.append(
            StepAttemptFailed(self.command, attempt, failure, instance.now + delay, is_restored)
        )

    def _complete(self, before: Before | None, result: Any, handled: str, failure: Failure | None) -> Any:
        """Note the result; where it is a checkpoint the caller gets it as the journal holds it."""
        instance = self._instance
        recorded = None if instance.steps is None else instance.steps.ends.get(self.command)
        if isinstance(recorded, StepCompleted) and recorded.checkpoint is not None:
            checkpoints.rebind(instance, recorded)
            return self._ended(recorded)
        if before is not None and recorded is None and not self.is_outlived:
            try:
                codec = self.definition.codec
                payload = NULL if handled == OPTIONAL else codec.encode_result(instance._converter, result)
            except PayloadEncodeError as error:
                checkpoints.warn_of_value(instance, self.definition, "its result", error)
            else:
                taken = checkpoints.take(instance, self.definition, before)
                if taken is not None:
                    stored = (payload, taken.changes.names, taken.changes.payloads)
                    return self._ended(
                        StepCompleted(self.command, handled, failure, taken.checkpoint, *stored)
                    )
        instance._outputs.append(StepCompleted(self.command, handled, failure))
        self._tell_saga(result, handled)
        return result

    def _fail(self, before: Before | None, error: Exception) -> Any:
        """Note a failure.

        Raises:
            Exception: The error; where it is a checkpoint, as the journal holds it.
        """
        instance = self._instance
        recorded = None if instance.steps is None else instance.steps.ends.get(self.command)
        if isinstance(recorded, StepFailed) and recorded.checkpoint is not None:
            checkpoints.rebind(instance, recorded)
            return self._ended(recorded)
        kind = "" if is_failure(error) else "crash"
        failure = failure_of(error, instance._converter, kind=kind)
        is_same = not kind and type(_stored(failure, instance)) is type(error)
        if before is not None and recorded is None and is_same and not self.is_outlived:
            taken = checkpoints.take(instance, self.definition, before)
            if taken is not None:
                changes = (taken.changes.names, taken.changes.payloads)
                event = StepFailed(self.command, failure, taken.checkpoint, *changes)
                return self._ended(event, error.__traceback__)
        instance._outputs.append(StepFailed(self.command, failure))
        raise error

    def _ended(self, event: StepCompleted | StepFailed, trace: TracebackType | None = None) -> Any:
        """The step has ended at a checkpoint: its caller gets what the event holds, live as in replay.

        Raises:
            Exception: It failed.
        """
        instance = self._instance
        instance._outputs.append(event)
        if isinstance(event, StepFailed):
            raise _stored(event.failure, instance).with_traceback(trace)
        assert event.result is not None
        result = None
        if event.handled != OPTIONAL:
            result = self.definition.codec.decode_result(instance._converter, event.result)
        self._tell_saga(result, event.handled)
        return result

    def _tell_saga(self, result: Any, handled: str) -> None:
        """The one place where a saga learns of a completed step, live, in replay, and when its body is skipped.

        An optional step that has failed is not completed: there is nothing to undo.
        """
        saga = active_saga.get()
        if saga is None or self.definition.compensate is None or handled == OPTIONAL:
            return
        compensation, args = self.definition.compensation(self._object, result)
        token = current_step.set(self.parent)  # it is no hindrance to its own checkpoint
        try:
            outlives_step(saga.entered_in)
            step_completed(self.definition.name, compensation, args)
        finally:
            current_step.reset(token)


def _stored(failure: Failure, instance: WorkflowInstance) -> Exception:
    """The error that a failure of a step is for its caller."""
    if failure.type == "TimeoutError" and failure.kind == "timeout" and failure.source is None:
        return TimeoutError(failure.message)
    return error_of(failure, instance._converter)
