"""Attempts of plain ``def`` activities: each has a thread of its own while it runs."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..journal.failures import Failure
from ..journal.fault_points import fault_point
from ..journal.payloads import Payload
from .activity_info import attempt_failure
from .attempts import Attempt
from .context import DETACHED, ActivityContext, CompleteAsyncError, current_activity
from .failure_conversion import plain_failure
from .intercepted_activities import intercepted, run_in_thread
from .thread_interrupts import ThreadInterrupt
from .thread_pool import ThreadPool, Worker

if TYPE_CHECKING:
    from .activity_pool import ActivityPool

log = logging.getLogger("everact.runtime")


class ThreadAttempts:
    """The attempts of a pool that run in threads; methods belong to the loop's thread unless they say otherwise.

    Args:
        pool: The pool.
        slots: How many run at a time.

    Attributes:
        waiting: Attempts that wait for a slot.
        lost: Names of threads that did not end after their attempt's limit.
    """

    def __init__(self, pool: ActivityPool, slots: int) -> None:
        self._pool = pool
        self._free = slots
        self.waiting: deque[Attempt] = deque()
        self._threads = ThreadPool()
        self.lost: list[str] = []

    def submit(self, attempt: Attempt) -> None:
        """Start an attempt, now or as soon as a slot is free."""
        if self._free:
            self._start(attempt)
        else:
            self.waiting.append(attempt)

    def start_waiting(self) -> None:
        """Start what waits, as far as there are slots."""
        while self.waiting and self._free:
            attempt = self.waiting.popleft()
            if not attempt.ended:
                self._start(attempt)

    def give_up(self, attempt: Attempt, why: str) -> None:
        """Replace the thread of an attempt that has taken too long, if it has one that still runs it."""
        if not isinstance(attempt.worker, Worker):
            return
        name = self._threads.give_up(attempt.worker, attempt)
        if name:
            self.lost.append(name)
            log.warning("%s; its thread %s did not end and was replaced", why, name)
            self._done(attempt)

    def close(self) -> None:
        """Let go of the threads."""
        self._threads.close()

    def _start(self, attempt: Attempt) -> None:
        pool = self._pool
        self._free -= 1
        pool._running.add(attempt)
        attempt.started_at = pool._clock.wall()
        pool._decode(attempt, self._begin, self._done)

    def _begin(self, attempt: Attempt) -> None:
        pool = self._pool
        pool._marks.take(attempt)
        context = pool._context.copy()
        context.run(current_activity.set, ActivityContext(attempt, pool))
        interrupt = attempt.interrupt = ThreadInterrupt()

        def work(worker: Worker) -> Callable[[], None]:
            worker.doing = attempt
            pool._call(self._started, attempt, worker)
            outcome: Payload | Failure | CompleteAsyncError | None = None
            try:  # twice, for the interrupt that comes at any place; there is one at most
                try:
                    outcome = context.run(self._run_sync, attempt, interrupt)
                except BaseException as error:  # noqa: BLE001  (a thread must not die of it)
                    outcome = plain_failure(error)
                interrupt.leave()
            except BaseException as error:  # noqa: BLE001
                interrupt.leave()
                outcome = outcome or plain_failure(error)
            return partial(pool._call, self._ended, attempt, worker, outcome)

        try:
            self._threads.submit(work)
        except Exception as error:  # noqa: BLE001  (the system gives no more threads: this attempt has failed)
            # Later, as any outcome: the slot is taken until then, so that nothing spins.
            failure = attempt_failure(error, attempt, pool.converter)
            pool._loop.call_soon(self._refused, attempt, failure)

    def _run_sync(
        self, attempt: Attempt, interrupt: ThreadInterrupt
    ) -> Payload | Failure | CompleteAsyncError:
        pool = self._pool
        try:
            fault_point("activity.start.before", pool)
            pool._marks.begin_in_thread(attempt)
            definition = attempt.definition
            args, kwargs = definition.codec.decode_args(
                pool.converter, attempt.scheduled.args, attempt.scheduled.keywords
            )
            interrupt.enter()
            try:
                if pool.interceptors:
                    result = run_in_thread(intercepted(pool.interceptors, definition.fn, args, kwargs))
                else:
                    result = definition.fn(*args, **kwargs)
            finally:
                interrupt.leave()
            return definition.codec.encode_result(pool.converter, result)
        except CompleteAsyncError:
            return DETACHED
        except BaseException as error:  # noqa: BLE001  (data for the workflow)
            return attempt_failure(error, attempt, pool.converter)
        finally:
            pool._marks.rest(attempt)

    def _started(self, attempt: Attempt, worker: Worker) -> None:
        pool = self._pool
        if attempt in pool._running:
            attempt.worker = worker
            pool.deadlines.start(attempt)
            if not attempt.ended:
                pool.heartbeats.start(attempt)

    def _ended(
        self, attempt: Attempt, worker: Worker, outcome: Payload | Failure | CompleteAsyncError
    ) -> None:
        pool = self._pool
        pool.deadlines.stop(attempt)
        pool._marks.over(attempt)
        if worker.lost:
            self.lost.remove(worker.thread.name if worker.thread else "")
            return
        self._done(attempt)
        pool._report(attempt, outcome)

    def _refused(self, attempt: Attempt, outcome: Failure) -> None:
        pool = self._pool
        pool._marks.over(attempt)
        self._done(attempt)
        pool._report(attempt, outcome)

    def _done(self, attempt: Attempt) -> None:
        pool = self._pool
        pool._running.discard(attempt)
        self._free += 1
        pool._next()
