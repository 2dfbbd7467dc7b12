"""The deterministic event loop that workflow code runs on: one light object per run.

The host (the workflow instance) runs *turns*: it makes the loop the running one, delivers an event, and lets
the loop call what is ready, first in, first out, until nothing is left. Time and timers are the host's.

Turns run from plain callbacks of the process's own loop, never inside one of its tasks.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import _get_running_loop, _set_running_loop
from collections.abc import AsyncGenerator, Callable, Iterator
from contextvars import Context, copy_context
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Protocol, Self

from .asyncio_discard import REFUSALS, RunDiscarded, TurnAborted, close_coroutines, detached_count
from .asyncio_forbidden import ForbiddenInWorkflowError, ReadOnlyError, read_only, refusals
from .asyncio_generators import close_generator, give_back_generators, take_generators

__all__ = [
    "ForbiddenInWorkflowError",
    "Handle",
    "LoopHost",
    "ReadOnlyError",
    "RunDiscarded",
    "TimerHandle",
    "TurnAborted",
    "WorkflowLoop",
    "detached_count",
]

_Task, _Future = asyncio.Task, asyncio.Future
_EMPTY_CONTEXT = Context()
_NOTHING_LEFT: Iterator[Handle] = iter(())
_NO_TASKS: list[asyncio.Task[Any]] = []  # of most loops; it stays empty


class TimerHandle(Protocol):
    """What ``start_timer`` gives back."""

    def cancel(self) -> None:
        """Stop the timer; harmless when it has fired."""
        ...


class LoopHost(Protocol):
    """What a workflow instance provides to its loop.

    Attributes:
        read_only: True inside queries and validators.
        guard: ``warn``, ``strict`` or ``off``: what turns are guarded against, see ``turn_guard``.
    """

    read_only: bool
    guard: str

    def loop_time(self) -> float:
        """Seconds, deterministic: the time of the event being delivered."""
        ...

    def start_timer(
        self, delay: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> TimerHandle:
        """Start a durable timer; when it falls due, ``call_soon(callback, *args, context=context)``.

        Args:
            delay: Seconds, above zero and finite.
            callback: What to call.
            args: Its arguments.
            context: The context to call it in.

        Returns:
            A handle. Its ``cancel()`` is also called while the run is discarded, and must then do nothing.
        """
        ...

    def loop_exception(self, context: dict[str, Any]) -> None:
        """Take note of what ``loop.call_exception_handler`` gets; may come from the garbage collector."""
        ...


class Handle:
    """A callback that waits for its turn."""

    __slots__ = ("args", "callback", "context")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context) -> None:
        self.callback = callback
        self.args = args
        self.context = context

    def __repr__(self) -> str:
        return f"<Handle {getattr(self.callback, '__qualname__', self.callback)!s}>"

    def cancel(self) -> None:
        """Do not call it."""
        self.callback = _nothing
        self.args = ()

    def cancelled(self) -> bool:
        """Whether ``cancel()`` was called."""
        return self.callback is _nothing

    def get_context(self) -> Context:
        """The context it runs in."""
        return self.context


def _nothing() -> None:
    """What a cancelled handle calls."""


def _task_ended(_task: asyncio.Future[Any]) -> None:
    """The first done callback of every task; the loop handles it at once instead of queueing it."""


class WorkflowLoop(asyncio.AbstractEventLoop):
    """An event loop for one run of a workflow.

    Attributes:
        host: The run's instance.
        discarded: Whether ``discard()`` was called.
    """

    __slots__ = (
        "_created",
        "_failed",
        "_generators",
        "_outer",
        "_ready",
        "_refusals",
        "_rest",
        "_tasks",
        "host",
    )

    discarded: ClassVar[bool] = False

    def __init__(self, host: LoopHost) -> None:
        self.host = host
        # A list, emptied by turns: an empty deque takes 760 bytes.
        self._ready: list[Handle] = []
        self._rest = _NOTHING_LEFT  # of the handles that are being called
        # Every task that is not done, with its number, oldest first. Strong references: asyncio's are weak,
        # and a task that waits for a future nobody else holds would be collected.
        self._tasks: dict[asyncio.Task[Any], int] = {}
        # Those that ended with an error, oldest first: kept until somebody has looked at it, or the run ends.
        self._failed = _NO_TASKS
        self._created = 0
        self._generators: list[AsyncGenerator[Any, Any]] | None = None
        self._outer: tuple[Any, Any] | None = None
        self._refusals = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} tasks={len(self._tasks)} ready={len(self._ready)}>"

    # --- turns

    def __enter__(self) -> Self:
        """Begin a turn: this loop is the running one until the block ends."""
        if self._outer is not None:
            raise RuntimeError("a turn of this workflow loop is already running")
        self._outer = (_get_running_loop(), take_generators())
        _set_running_loop(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outer = self._outer
        if outer is not None:
            self._outer = None
            give_back_generators(outer[1])
            _set_running_loop(outer[0])

    def leave_turn(self) -> None:
        """The turn was broken off, perhaps in the very lines that end it; the host has the thread again."""
        self._outer = None

    def run_until_idle(self) -> None:
        """Run ready callbacks in order until none is left; only inside a turn.

        Raises:
            TurnAborted: One was raised by a callback or a task. The callbacks behind it stay queued.
            KeyboardInterrupt: Likewise, as all that is not an Exception and leaves a callback.
        """
        if self._outer is None:
            raise RuntimeError("run_until_idle() is called inside a turn: use 'with loop:'")
        while self._ready:
            rest = self._rest = iter(self._ready)
            self._ready = []
            for handle in rest:
                try:
                    handle.context.run(handle.callback, *handle.args)
                except Exception as error:  # noqa: BLE001 - as asyncio does
                    message = f"Exception in callback {handle!r}"
                    self.host.loop_exception({"message": message, "exception": error, "handle": handle})
                except BaseException:
                    self._ready[:0] = rest
                    raise
        self._rest = _NOTHING_LEFT

    def has_ready(self) -> bool:
        """Whether callbacks wait to be called; after a query this means that the query woke something."""
        return bool(self._ready)

    def live_tasks(self) -> list[asyncio.Task[Any]]:
        """The tasks that are not done, oldest first."""
        return list(self._tasks)

    # --- what tasks and futures call

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle | None:
        """Call ``callback(*args)`` after all that is ready now."""
        if callback is _task_ended:
            self._end_task(args[0])
            return None
        handle = Handle(callback, args, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        # The number stays with the task, so that sets of tasks can be put in order of creation.
        task._everact_number = self._tasks.pop(task)  # type: ignore[attr-defined]
        error = task._exception
        if isinstance(error, TurnAborted):
            # The C task keeps a BaseException as its result; only this makes it leave the loop.
            task._log_traceback = False
            raise error
        if error is not None:
            if len(self._failed) & (len(self._failed) + 1) == 0:
                # At 0 and one less than each power of two, forget those that are of no interest any more.
                self._failed = self.unseen_failures()
            self._failed.append(task)

    def unseen_failures(self) -> list[asyncio.Task[Any]]:
        """The tasks that ended with an error which nobody has looked at, oldest first."""
        return [task for task in self._failed if task._log_traceback]

    def keep_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Hold an async generator that begins; called by its hook."""
        kept = self._generators
        if kept is None:
            kept = self._generators = []
        elif len(kept) & (len(kept) - 1) == 0:  # at each power of two, forget those that have ended
            kept[:] = [one for one in kept if getattr(one, "ag_frame", None) is not None]
        kept.append(generator)

    def close_generators(self) -> None:
        """At the end of a run: close the async generators that wait at a ``yield``, the newest first.

        Only inside a turn. What their ``finally`` blocks wait for does not come any more. Generators that wait
        inside an ``await`` of theirs are left as they are, as the tasks that wait for them.
        """
        kept, self._generators = self._generators, None
        for generator in reversed(kept or ()):
            if getattr(generator, "ag_frame", None) is not None and not getattr(
                generator, "ag_running", False
            ):
                self.create_task(
                    close_generator(generator), name=f"aclose of {generator!r}".partition(" at 0x")[0]
                )
        if kept:
            self.run_until_idle()

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle | None:
        """Call ``callback(*args)`` after ``delay`` seconds, by a durable timer; at once if not above zero.

        Raises:
            ValueError: ``delay`` is not a finite number.
            ReadOnlyError: In a query or a validator.
        """
        if not isinstance(delay, (int, float)) or not math.isfinite(delay):
            raise ValueError(f"a delay is a finite number of seconds, not {delay!r}")
        if self.host.read_only:
            raise read_only("loop.call_later")
        if context is None:
            context = copy_context()
        if delay <= 0:
            return self.call_soon(callback, *args, context=context)
        return self.host.start_timer(delay, callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle | None:
        """Call ``callback(*args)`` when ``time()`` is ``when``; see ``call_later``."""
        if not isinstance(when, (int, float)) or not math.isfinite(when):
            raise ValueError(f"a time is a finite number of seconds, not {when!r}")
        # Seconds since the epoch leave about 0.2 us of a float: timeout(10) would ask for 10.000000238.
        return self.call_later(round(when - self.time(), 6), callback, *args, context=context)

    def time(self) -> float:
        """Seconds on the host's clock: the time of the event being delivered."""
        return self.host.loop_time()

    def create_future(self) -> asyncio.Future[Any]:
        """A new future of this loop.

        Raises:
            ReadOnlyError: In a query or a validator.
        """
        if self.host.read_only:
            raise read_only("loop.create_future")
        return _Future(loop=self)

    def create_task(
        self, coro: Any, *, name: object = None, context: Context | None = None, **_newer: Any
    ) -> asyncio.Task[Any]:
        """Start a task.

        Args:
            coro: The coroutine.
            name: Its name; ``Task-1``, ``Task-2``, ... in each run when None.
            context: The context it runs in; a copy of the current one when None.
            _newer: What newer Pythons pass. ``eager_start`` is not followed: order would depend on it.

        Raises:
            ReadOnlyError: In a query or a validator.
        """
        if self.host.read_only:
            _close_unstarted(coro)
            raise read_only("asyncio.create_task")
        self._created = number = self._created + 1
        task: asyncio.Task[Any] = _Task(
            coro, loop=self, name=f"Task-{number}" if name is None else str(name), context=context
        )
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks[task] = number
        task.add_done_callback(_task_ended, context=_EMPTY_CONTEXT)
        return task

    # --- the rest of the interface

    def is_running(self) -> bool:
        """Whether a turn is running."""
        return self._outer is not None

    def is_closed(self) -> bool:
        """Whether the run was discarded."""
        return self.discarded

    def get_debug(self) -> bool:
        """Never: debug mode changes what is called when."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Ignored."""

    def get_task_factory(self) -> None:
        """There is none."""

    def set_task_factory(self, factory: Any) -> None:
        """Only None is accepted: eager tasks would run in another order."""
        if factory is not None:
            raise ForbiddenInWorkflowError(
                "loop.set_task_factory", "tasks are always started in order, by asyncio.create_task()"
            )

    def get_exception_handler(self) -> None:
        """There is none: the host takes note of exceptions."""

    def set_exception_handler(self, handler: Any) -> None:
        """Only None is accepted: handlers are called when the garbage collector runs."""
        if handler is not None:
            raise ForbiddenInWorkflowError(
                "loop.set_exception_handler", "await the tasks you start and catch what they raise"
            )

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Tell the host."""
        self.host.loop_exception(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tell the host."""
        self.host.loop_exception(context)

    # --- the end

    def refuse(self) -> NoReturn:
        """For hosts: a discarded run's call that must do nothing; see ``discard()``."""
        raise RuntimeError("the run is not discarded")

    @property
    def has_tasks(self) -> bool:
        """Whether anything of the run's code is in flight."""
        return bool(self._tasks)

    def discard(self) -> int:
        """Drop all that this run's code has in flight, here and now, outside its turns.

        Coroutines are closed (GeneratorExit), the newest first; whatever they still try on this loop raises
        RunDiscarded. One that does not end after CLOSE_TRIES is detached: kept, never run again. Async
        generators are dropped without running any code. Nothing is cancelled, no warning comes out. A host
        checks ``discarded`` in all that workflow code may call, and then returns ``loop.refuse()``.

        Returns:
            How many coroutines refused to end.
        """
        if self._outer is not None:
            raise RuntimeError("a run cannot be discarded inside its own turn")
        tasks = list(reversed(self._tasks))
        self.__class__ = _DiscardedLoop  # type: ignore[type-abstract]
        self._ready = []
        refused = 0
        try:
            if tasks:
                with self:
                    refused = close_coroutines(task.get_coro() for task in tasks)
        finally:
            self._detach(tasks)
        return refused

    def _detach(self, tasks: list[asyncio.Task[Any]]) -> None:
        # Future's own cancel() marks a task or command as done without running anything, and breaks the
        # reference cycle of a task and what it waits for.
        self._refusals = REFUSALS
        for task in tasks:
            waiter = task._fut_waiter  # type: ignore[attr-defined]
            if waiter is not None:
                _Future.cancel(waiter)
            _Future.cancel(task)
        self._tasks.clear()
        self._failed = _NO_TASKS
        self._generators = None


class _DiscardedLoop(WorkflowLoop):
    """What a loop turns into when its run is dropped: a class of its own costs the live ones no test."""

    __slots__ = ()

    discarded: ClassVar[bool] = True

    def _refuse(self) -> None:
        self._refusals += 1
        if self._refusals <= REFUSALS:
            raise RunDiscarded("this run was dropped from memory; its code cannot act any more")

    def refuse(self) -> Any:
        """Raise RunDiscarded.

        Returns:
            After REFUSALS, a future that never ends: code that catches all in an endless loop is then
            suspended instead of spinning.
        """
        self._refuse()
        return _Future(loop=self)

    def create_future(self) -> Any:
        return self.refuse()

    def create_task(self, coro: Any, **_: Any) -> Any:
        _close_unstarted(coro)
        return self.refuse()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *_args: Any, **_kwargs: Any
    ) -> Handle:
        if callback is not _task_ended:
            self._refuse()
        return Handle(_nothing, (), _EMPTY_CONTEXT)

    def call_later(  # type: ignore[override]
        self, _delay: float, callback: Any, *_args: Any, **_kwargs: Any
    ) -> Handle:
        return self.call_soon(callback)

    def call_at(  # type: ignore[override]
        self, _when: float, callback: Any, *_args: Any, **_kwargs: Any
    ) -> Handle:
        return self.call_soon(callback)

    def run_until_idle(self) -> None:
        raise RuntimeError("this run was discarded")

    def keep_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """It is dropped with the rest."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What a dropped run's tasks leave behind is of no interest: its code runs again."""

    def discard(self) -> int:
        return 0


def _close_unstarted(coro: Any) -> None:
    # Otherwise "was never awaited" would follow the error.
    if asyncio.iscoroutine(coro) and not asyncio.isfuture(coro):
        coro.close()


for _name, _method in refusals().items():
    setattr(WorkflowLoop, _name, _method)
