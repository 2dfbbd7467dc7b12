"""The activity pool: starts attempts when a slot is free, and reports how each one ended.

``async def`` activities run on the loop, plain ``def`` ones in threads. An attempt's time limit begins when it
really starts, not while it waits for a slot.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import msgspec

from ..journal.clock import Clock
from ..journal.errors import PayloadCodecError, PayloadError
from ..journal.failures import Failure, class_names
from ..journal.fault_points import fault_point
from ..journal.payloads import Payload, PayloadConverter
from .activity import ActivityInfo
from .attempts import Attempt, AttemptDeadlines
from .context import ActivityContext, current_activity
from .errors import ActivityTimeoutError
from .event_coder import EventCoder
from .failure_conversion import failure_of, plain_failure, with_source
from .marks import Marks
from .thread_pool import ThreadPool, Worker

if TYPE_CHECKING:
    from .runtime import Runtime

log = logging.getLogger("everact.runtime")

#: Leaving waits this long, in seconds, before it says what it waits for.
QUIET_GRACE = 1.0

#: ``(attempt, outcome)``; called on the loop, once for each attempt that was not withdrawn. A PayloadCodecError is that
#: its arguments could not be decoded.
Ended = Callable[[Attempt, Payload | Failure | PayloadCodecError], None]


class ActivityPool:
    """Runs attempts for one shard; all methods belong to the loop's thread.

    Attributes:
        lost_threads: Names of threads that did not end after their attempt's limit.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        converter: PayloadConverter,
        ended: Ended,
        *,
        runtime: Runtime,
        coder: EventCoder | None,
        marks: Marks,
        max_async: int,
        max_threads: int,
    ) -> None:
        self._loop = loop
        self._converter = converter
        self._ended = ended
        self._runtime = runtime
        self._coder = coder
        self._marks = marks
        self._free_async = max_async
        self._free_threads = max_threads
        self._waiting_async: deque[Attempt] = deque()
        self._waiting_threads: deque[Attempt] = deque()
        self._deadlines = AttemptDeadlines(loop, clock, self._expired)
        self._threads = ThreadPool()
        # Every attempt begins with what the program had set when it entered the runtime, and with nothing of
        # the attempt or message that happened to start it.
        self._context = contextvars.copy_context()
        self._running: set[Attempt] = set()
        self._all_done: asyncio.Future[None] | None = None
        self._accepting = True
        self.lost_threads: list[str] = []

    def submit(self, attempt: Attempt) -> None:
        """Start an attempt, now or as soon as a slot is free."""
        if not self._accepting:
            return  # it stays pending in the journal, and runs at the next start
        if attempt.definition.is_async:
            if self._free_async:
                self._start_async(attempt)
            else:
                self._waiting_async.append(attempt)
        elif self._free_threads:
            self._start_thread(attempt)
        else:
            self._waiting_threads.append(attempt)

    def withdraw(self, attempt: Attempt) -> None:
        """Nobody wants the result any more: stop the attempt if it can be stopped."""
        attempt.ended = True
        if attempt.worker is None:  # a thread goes on: its limit stays, and then it is replaced
            self._deadlines.stop(attempt)
        if attempt.task is not None:
            self._cancel_task(attempt, attempt.task)
        self._check_drained()

    def accept_no_more(self) -> None:
        """Start nothing from now on; what waits for a slot stays pending in the journal."""
        self._accepting = False
        self._waiting_async.clear()
        self._waiting_threads.clear()

    async def drain(self, grace: float) -> int:
        """Start nothing more, and let what runs go on for ``grace`` seconds.

        Returns:
            How many attempts were cut; they are not counted and run again at the next start.
        """
        self.accept_no_more()
        if grace > 0 and self._wanted():
            self._all_done = self._loop.create_future()
            done, _ = await asyncio.wait([self._all_done], timeout=min(grace, QUIET_GRACE))
            if not done and grace > QUIET_GRACE:
                waiting = sorted({attempt.definition.name for attempt in self._running if not attempt.ended})
                log.warning(
                    "leaving: waiting up to %g s for activities that run: %s", grace, ", ".join(waiting)
                )
                await asyncio.wait([self._all_done], timeout=grace - QUIET_GRACE)
        cut = [attempt for attempt in self._running if not attempt.ended]
        for attempt in cut:
            self._marks.forget(attempt)  # it is not counted, whatever happens from here on
            self.withdraw(attempt)
        tasks = [attempt.task for attempt in self._running if attempt.task is not None]
        if tasks:  # let their finally blocks run, but wait for nobody who refuses to end
            await asyncio.wait(tasks, timeout=1.0)
        return len(cut)

    def close(self) -> None:
        """Let go of threads and deadlines."""
        self._deadlines.close()
        self._threads.close()

    # --- on the loop

    def _start_async(self, attempt: Attempt) -> None:
        self._free_async -= 1
        self._running.add(attempt)
        self._decode(attempt, self._begin_async, self._async_done)

    def _begin_async(self, attempt: Attempt) -> None:
        self._deadlines.start(attempt)
        attempt.task = self._loop.create_task(self._run_async(attempt), context=self._context.copy())

    async def _run_async(self, attempt: Attempt) -> None:
        outcome: Payload | Failure
        current_activity.set(ActivityContext(partial(self._info, attempt), self._runtime))
        try:
            fault_point("activity.start.before")
            self._marks.begin_on_loop(attempt)
            definition = attempt.definition
            args, kwargs = definition.codec.decode_args(
                self._converter, attempt.scheduled.args, attempt.scheduled.keywords
            )
            running = definition.fn(*args, **kwargs)
            coroutine = running if type(running) is CoroutineType else _awaited(running)
            try:
                waits = coroutine.send(None)
            except StopIteration as end:
                result = end.value
            else:
                result = await self._marks.follow(attempt, coroutine, waits)
            outcome = definition.codec.encode_result(self._converter, result)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001  (data for the workflow)
            outcome = self._failure(error, attempt)
        finally:
            self._marks.rest_on_loop(attempt)
            self._async_done(attempt)
        self._report(attempt, outcome)

    def _async_done(self, attempt: Attempt) -> None:
        attempt.task = None
        self._marks.over(attempt)
        self._running.discard(attempt)
        self._free_async += 1
        self._next()

    def _cancel_task(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        """Cancel an attempt's task; of one that is cancelled before its first step, no ``finally`` ever runs."""
        coroutine: Any = task.get_coro()
        if not task.cancel() or getcoroutinestate(coroutine) == CORO_CREATED:
            self._async_done(attempt)

    def _report(self, attempt: Attempt, outcome: Payload | Failure | PayloadCodecError) -> None:
        if attempt.ended:
            return
        attempt.ended = True
        self._deadlines.stop(attempt)
        fault_point("activity.result.before")
        self._ended(attempt, outcome)

    def _next(self) -> None:
        """Slots have become free."""
        while self._waiting_async and self._free_async:
            attempt = self._waiting_async.popleft()
            if not attempt.ended:
                self._start_async(attempt)
        while self._waiting_threads and self._free_threads:
            attempt = self._waiting_threads.popleft()
            if not attempt.ended:
                self._start_thread(attempt)
        self._check_drained()

    def _wanted(self) -> bool:
        """Whether somebody still waits for an attempt that runs."""
        return any(not attempt.ended for attempt in self._running)

    def _check_drained(self) -> None:
        if self._all_done is not None and not self._all_done.done() and not self._wanted():
            self._all_done.set_result(None)

    def _expired(self, attempt: Attempt) -> None:
        """The attempt took too long: its outcome is the timeout, whatever it still does."""
        if attempt.ended and attempt.worker is None:
            return
        seconds = attempt.scheduled.start_to_close / 1_000_000
        message = (
            f"attempt {attempt.number} of activity {attempt.definition.name!r} took longer than "
            f"start_to_close_timeout={seconds:g} s"
        )
        failure = Failure(
            type="ActivityTimeoutError",
            bases=class_names(ActivityTimeoutError),
            message=message,
            kind="timeout",
            source=self._source(attempt),
        )
        task = attempt.task
        self._report(attempt, failure)
        if task is not None:
            self._cancel_task(attempt, task)
        elif isinstance(attempt.worker, Worker):
            name = self._threads.give_up(attempt.worker, attempt)
            if name:
                self.lost_threads.append(name)
                log.warning("%s; its thread %s did not end and was replaced", message, name)
                self._thread_done(attempt)

    # --- in threads

    def _start_thread(self, attempt: Attempt) -> None:
        self._free_threads -= 1
        self._running.add(attempt)
        self._decode(attempt, self._begin_thread, self._thread_done)

    def _begin_thread(self, attempt: Attempt) -> None:
        self._marks.take(attempt)
        context = self._context.copy()
        about = ActivityContext(partial(self._info, attempt), self._runtime)
        context.run(current_activity.set, about)

        def work(worker: Worker) -> Callable[[], None]:
            worker.doing = attempt
            self._call(self._thread_started, attempt, worker)
            try:
                outcome = context.run(self._run_sync, attempt)
            except BaseException as error:  # noqa: BLE001  (a thread must not die of it)
                outcome = plain_failure(error)
            return partial(self._call, self._thread_ended, attempt, worker, outcome)

        try:
            self._threads.submit(work)
        except Exception as error:  # noqa: BLE001  (the system gives no more threads: this attempt has failed)
            # Later, as any outcome: the slot is taken until then, so that nothing spins.
            self._loop.call_soon(self._thread_refused, attempt, self._failure(error, attempt))

    def _call(self, method: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(method, *args)
        except RuntimeError:  # the loop is closed: the attempt was cut and runs again at the next start
            return

    def _run_sync(self, attempt: Attempt) -> Payload | Failure:
        try:
            fault_point("activity.start.before")
            self._marks.begin_in_thread(attempt)
            definition = attempt.definition
            args, kwargs = definition.codec.decode_args(
                self._converter, attempt.scheduled.args, attempt.scheduled.keywords
            )
            return definition.codec.encode_result(self._converter, definition.fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  (data for the workflow)
            return self._failure(error, attempt)
        finally:
            self._marks.rest(attempt)

    def _thread_started(self, attempt: Attempt, worker: Worker) -> None:
        if attempt in self._running:
            attempt.worker = worker
            self._deadlines.start(attempt)

    def _thread_ended(self, attempt: Attempt, worker: Worker, outcome: Payload | Failure) -> None:
        self._deadlines.stop(attempt)
        self._marks.over(attempt)
        if worker.lost:
            self.lost_threads.remove(worker.thread.name if worker.thread else "")
            return
        self._thread_done(attempt)
        self._report(attempt, outcome)

    def _thread_refused(self, attempt: Attempt, outcome: Failure) -> None:
        self._marks.over(attempt)
        self._thread_done(attempt)
        self._report(attempt, outcome)

    def _thread_done(self, attempt: Attempt) -> None:
        self._running.discard(attempt)
        self._free_threads += 1
        self._next()

    # --- both

    def _decode(
        self, attempt: Attempt, begin: Callable[[Attempt], None], release: Callable[[Attempt], None]
    ) -> None:
        """Begin an attempt once its arguments are decoded; the codecs' time is not the activity's."""
        if self._coder is None:
            begin(attempt)
            return

        def decoded(result: list[Any] | PayloadCodecError) -> None:
            if isinstance(result, PayloadCodecError):
                self._loop.call_soon(self._unreadable, attempt, release, result)
            elif attempt.ended or not self._accepting:
                release(attempt)
            else:
                attempt.scheduled = result[0]
                begin(attempt)

        self._coder.start("decode", [attempt.scheduled], decoded, attempt.actor.about)

    def _unreadable(
        self, attempt: Attempt, release: Callable[[Attempt], None], error: PayloadCodecError
    ) -> None:
        release(attempt)
        self._report(attempt, error)

    def _info(self, attempt: Attempt) -> ActivityInfo:
        started = attempt.actor.state.started
        command = attempt.scheduled.command
        return ActivityInfo(
            activity_type=attempt.definition.name,
            workflow_id=started.workflow_id,
            run_id=started.run_id,
            workflow_type=started.workflow_type,
            command=command,
            attempt=attempt.number,
            idempotency_key=f"{started.run_id}/{command}",
            scheduled_at=datetime.fromtimestamp(attempt.scheduled_at / 1_000_000, UTC),
        )

    def _source(self, attempt: Attempt) -> tuple[str, int, int]:
        return attempt.definition.name, attempt.scheduled.command, attempt.number

    def _failure(self, error: BaseException, attempt: Attempt) -> Failure:
        failure = failure_of(error, self._converter)
        if isinstance(error, PayloadError):  # the same value fails the same way each time
            failure = msgspec.structs.replace(failure, non_retryable=True)
        if failure.kind == "timeout":  # the activity's own; with a source it would be the limit's
            return failure
        return with_source(failure, *self._source(attempt))


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
