"""What workflow code waits for: one awaitable a command, numbered at the call (R9)."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Generator
from contextvars import Context
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any

from ..journal.events import TRY_CANCEL, WAIT_COMPLETED, WAITING
from ..journal.payloads import Payload, PayloadConverter
from .step_context import RunningStep, note_done, put_off_cancel
from .unawaited import Unawaited

if TYPE_CHECKING:
    from .workflow_instance import WorkflowInstance

Decode = Callable[[Payload], Any]


def result_decoder(converter: PayloadConverter, hint: Any, what: str) -> Decode:
    """A decoder of a result by an explicit type; ``what`` gives it: ``activity charge``, ``workflow Order``."""
    decode = converter.decoder_for(hint)
    where = f"result of {what}"
    return lambda payload: decode(payload, where)


class CommandFuture(Unawaited, asyncio.Future[Any]):
    """The result of a command to come.

    A future, so that ``gather`` and ``wait`` take it as it is; and coroutine-like, so that
    ``asyncio.create_task`` and ``TaskGroup.create_task`` take it too.

    Attributes:
        command: Its number in the run.
        cancellation: What cancelling it does: a mode as of ``ActivityCancelRequested``.
        decode: Turns the stored result into a value.
        label: What it is, for people: ``"activity charge"``.
        place: Code and line of the call.
        step: The step that it belongs to, if a saga undoes that or one around it.
    """

    __slots__ = (
        "_awaited",
        "_host",
        "_is_waiting",
        "_steps",
        "cancellation",
        "command",
        "decode",
        "label",
        "place",
        "step",
    )

    def __init__(
        self,
        host: WorkflowInstance,
        command: int,
        label: str,
        decode: Decode,
        place: tuple[CodeType, int],
        *,
        cancellation: int = TRY_CANCEL,
    ) -> None:
        super().__init__(loop=host.loop)
        self._host = host
        self._awaited = False
        self._is_waiting = False
        self.cancellation = cancellation
        self._steps: Generator[Any, None, Any] | None = None
        self.command = command
        self.label = label
        self.decode = decode
        self.place = place
        self.step: RunningStep | None = None

    def _called(self) -> tuple[str, tuple[CodeType, int], bool]:
        return self.label, self.place, self._awaited

    @property
    def _everact_number(self) -> int:
        """By which ``asyncio.wait`` and ``as_completed`` bring a set of commands into order."""
        return self.command

    def cancel(self, msg: Any | None = None) -> bool:
        """Withdraw the command; a second time does nothing.

        With ``wait_cancellation_completed`` this asks the activity to stop, and the future is done once it is over:
        cancelled, or with the result or error that the activity had all the same; a task that was cancelled, and goes
        on with that, is cancelled at its next await. ``wait_completed`` is the same but does not break into the
        activity's code.
        """
        if self.done():
            return False
        self._awaited = True
        if self.cancellation in WAITING and not self._host.loop.discarded:
            if not self._is_waiting:
                self._host.cancel_activity(self.command, self.cancellation)
                self._is_waiting = True
            if self.step is None or self.cancellation != WAIT_COMPLETED:
                self._put_off()
            return True
        self._host.cancel_activity(self.command, self.cancellation)
        return super().cancel(msg)

    def _put_off(self) -> None:
        """Let the cancel that it does not end by come to the tasks that wait for it, at their next await (A07)."""
        for callback, _context in self._callbacks or ():
            task = getattr(callback, "__self__", None)
            if isinstance(task, asyncio.Task):
                self.add_done_callback(partial(self._cancel_again, task))

    def _cancel_again(self, task: asyncio.Task[Any], _self: asyncio.Future[Any]) -> None:
        # Called after the task's own step, which this future has woken. The cancel of the run itself comes by itself.
        host = self._host
        comes = task is host.main and host.cancel_requested and not host.cancel_seen
        if not self.cancelled() and not task.done() and task.cancelling() and not comes:
            task.uncancel()
            task.cancel()

    def tell_step(self, step: RunningStep, *, is_done: bool) -> None:
        """The activity of an undone step has ended; a cancel that did not break into it comes with the step's end."""
        if self._is_waiting and self.cancellation == WAIT_COMPLETED:
            put_off_cancel(step)
        if is_done:
            note_done(step)

    def end_cancelled(self, attempt: int = 1) -> None:  # noqa: ARG002  (for those that have to know)
        """The activity that was asked to stop is over, in or before this attempt."""
        super().cancel()

    def __await__(self) -> Generator[Any, None, Any]:
        self._awaited = True
        return super().__await__()

    __iter__ = __await__

    def add_done_callback(self, fn: Callable[..., object], /, *, context: Context | None = None) -> None:
        """As for any future; whoever adds one has taken notice of the command."""
        self._awaited = True
        super().add_done_callback(fn, context=context)

    # --- the side that makes it look like a coroutine

    def send(self, value: Any) -> Any:
        """Go on, as a coroutine that awaits this future would."""
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise inside that coroutine."""
        if self._steps is None:
            self._steps = self.__await__()
            if isinstance(error[0], asyncio.CancelledError):  # its task was cancelled before it began
                self.cancel()
                if not self.done():
                    return self._steps.send(None)
        return self._steps.throw(*error)

    def close(self) -> None:
        """End that coroutine."""
        if self._steps is not None:
            self._steps.close()

    def __del__(self) -> None:
        if not self._awaited and not self._host.loop.discarded:
            code, line = self.place
            warnings.warn_explicit(
                f"{self.label} was started and never awaited; its result is lost",
                RuntimeWarning,
                code.co_filename,
                line,
            )


class DurableTimer:
    """A timer of the run; what ``loop.call_later`` gives back."""

    __slots__ = ("_args", "_callback", "_context", "_host", "command")

    def __init__(
        self,
        host: WorkflowInstance,
        command: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        self._host = host
        self.command = command
        self._callback = callback
        self._args = args
        self._context = context

    def cancel(self) -> None:
        """Withdraw it; nothing stays behind."""
        self._host.cancel_timer(self.command)

    def cancelled(self) -> bool:
        """Whether it is gone."""
        return self.command not in self._host.timers

    def fire(self) -> None:
        """Call what waits for it, in this turn."""
        self._host.loop.call_soon(self._callback, *self._args, context=self._context)
