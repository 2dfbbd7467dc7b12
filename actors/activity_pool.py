"""The activity pool: starts attempts when a slot is free, and reports how each one ended.

``async def`` activities run on the loop, plain ``def`` ones in threads. An attempt's time limit begins when it
really starts, not while it waits for a slot.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..journal import events as ev
from ..journal.clock import Clock
from ..journal.errors import PayloadCodecError
from ..journal.failures import Failure, class_names
from ..journal.fault_points import fault_point
from ..journal.fold import LOST
from ..journal.payloads import Payload, PayloadConverter, total_size
from .activity_info import attempt_failure, info_of, timeout_failure
from .attempts import Attempt, AttemptDeadlines
from .context import DETACHED, ActivityContext, CompleteAsyncError, current_activity
from .event_coder import EventCoder
from .heartbeats import NOTE_INTERVAL, HeartbeatWatch
from .intercepted_activities import intercepted
from .interceptors import Interceptor
from .marks import Marks
from .notices import Notice
from .thread_attempts import ThreadAttempts
from .timing import Timing, real_timing
from .unwanted_attempts import UnwantedAttempts, name_of

if TYPE_CHECKING:
    from .activity import ActivityInfo
    from .runtime import Runtime

log = logging.getLogger("everact.runtime")

#: Leaving waits this long, in seconds, before it says what it waits for.
QUIET_GRACE = 1.0

#: How long what is cut has for its ``finally`` blocks, in seconds.
CUT_PATIENCE = 1.0

#: An attempt was asked to stop before its code had begun.
CANCELLED = Failure("CancelledError", class_names(asyncio.CancelledError), kind="cancelled")
#: What an attempt comes to; a PayloadCodecError is that its arguments could not be decoded.
AttemptOutcome = Payload | Failure | PayloadCodecError | CompleteAsyncError
#: ``(attempt, outcome)``; called on the loop, once for each attempt that was not withdrawn.
Ended = Callable[[Attempt, Payload | Failure | PayloadCodecError], None]


class ActivityPoolInfo(NamedTuple):
    """What a runtime's activities do just now.

    Attributes:
        running: Attempts of ``async def`` activities.
        waiting: Those that wait for a slot.
        running_threads: Attempts of plain ``def`` activities.
        waiting_threads: Those that wait for a slot.
        lost_threads: Names of threads that were given up: their attempts are closed, their code still runs.
        lost_tasks: Cancelled ``async def`` attempts that go on for so long that their slots were given to others.
        unwanted: Attempts that have a slot although no run waits for them: cancelled, abandoned, or too late.
    """

    running: int
    waiting: int
    running_threads: int
    waiting_threads: int
    lost_threads: tuple[str, ...]
    lost_tasks: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()


class ActivityPool:
    """Runs attempts for one shard; methods belong to the loop's thread unless they say otherwise.

    Attributes:
        runtime: The runtime that it belongs to.
        leaving: Tells running code that the runtime is being left.
        converter: How values are stored.
        interceptors: Around each attempt.
        deadlines: Of those that run.
        heartbeats: What is known of theirs.
        threads: The attempts that run in threads, or wait for one.
        unwanted: Cancelled tasks that have not ended.
        slot_freed: Called when code of an attempt has ended, if somebody wants to know.
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
        interceptors: Sequence[Interceptor] = (),
        timing: Timing | None = None,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self.converter = converter
        self.ended = ended
        self.runtime = runtime
        self.leaving = Notice(loop)
        self._coder = coder
        self.interceptors = interceptors
        self._marks = marks
        self._free_async = max_async
        self._waiting_async: deque[Attempt] = deque()
        timing = timing or real_timing(loop, clock)
        self.deadlines = AttemptDeadlines(timing.looks, clock, self._expired)
        self.heartbeats = HeartbeatWatch(timing.looks, clock, self._silent)
        self.threads = ThreadAttempts(self, max_threads)
        self.unwanted = UnwantedAttempts(loop, timing.machine, self._free_slot)
        # Every attempt begins with what the program had set when it entered the runtime, and with nothing of
        # the attempt or message that happened to start it.
        self._context = contextvars.copy_context()
        self._running: set[Attempt] = set()
        self._all_done: asyncio.Future[None] | None = None
        self._all_gone: asyncio.Future[None] | None = None
        self._cut: set[Attempt] = set()
        self._accepting = True
        self.slot_freed: Callable[[], None] | None = None

    def submit(self, attempt: Attempt) -> None:
        """Start an attempt, now or as soon as a slot is free."""
        if not self._accepting:
            return  # it stays pending in the journal, and runs at the next start
        if attempt.definition.is_async:
            if self._free_async:
                self._start_async(attempt)
            else:
                self._waiting_async.append(attempt)
        else:
            self.threads.submit(attempt)

    def withdraw(self, attempt: Attempt) -> None:
        """Nobody wants the result any more: stop the attempt if it can be stopped."""
        attempt.ended = True
        if attempt.worker is None:  # a thread may go on: its limit stays, and then it is replaced
            self.deadlines.stop(attempt)
        self._push_cancel(attempt)
        self._check_drained()

    def release(self, attempt: Attempt) -> None:
        """Nobody wants the result any more, but the attempt may go on to its end or its limit."""
        attempt.ended = True
        self._check_drained()

    def cancel(self, attempt: Attempt, *, breaks_in: bool, goes_on: bool = False) -> bool:
        """Ask an attempt to stop; returns whether it runs, or will, and so reports its end.

        Args:
            attempt: One in hand.
            breaks_in: Throw the cancel into its code; else it goes on unless it asks.
            goes_on: Let it run although it only waits for a slot: it was begun before.
        """
        if attempt in self._running:
            if not breaks_in:
                self._tell(attempt)
            elif not attempt.is_broken_into:
                self._push_cancel(attempt)
        if attempt in self._running:
            return True
        if goes_on or attempt.ended:  # what has ended, or was cut, was not never begun
            self._tell(attempt)
            return True
        attempt.ended = True  # it waited for a slot, or its code had not begun
        return False

    def _push_cancel(self, attempt: Attempt) -> None:
        """Break into the attempt's code, without waiting for a heartbeat."""
        self._tell(attempt)
        attempt.is_broken_into = True
        if attempt.task is not None:
            self._cancel_task(attempt, attempt.task)
        elif attempt.interrupt is not None:
            attempt.interrupt.send()

    @staticmethod
    def _tell(attempt: Attempt) -> None:
        """Let the attempt's code see that it is to stop, should it look."""
        attempt.is_cancelled = True
        if attempt.cancelled is not None:
            attempt.cancelled.set()

    def cancel_notice(self, attempt: Attempt) -> Notice:
        """What tells the attempt's code that it is to stop; also for its thread."""
        notice = attempt.cancelled
        if notice is None:
            notice = attempt.cancelled = Notice(self._loop)
            if attempt.is_cancelled:
                notice.set()
        return notice

    def info(self, attempt: Attempt) -> ActivityInfo:
        """What an attempt knows of itself; also for its thread."""
        return info_of(attempt, self.converter)

    def decode(self, payload: Payload, hint: Any) -> Any:
        """A stored value by its type; also for threads."""
        return self.converter.decoder_for(hint)(payload, "heartbeat detail")

    def beat(self, attempt: Attempt, details: tuple[Any, ...]) -> None:
        """Take a heartbeat; also from the attempt's thread.

        Raises:
            PayloadEncodeError: A detail has no stored form.
            PayloadTooLargeError: They are over the limit.
        """
        actor = attempt.actor
        encode = self.converter.encode
        payloads = tuple(
            [encode(detail, where=f"heartbeat detail {number}") for number, detail in enumerate(details, 1)]
        )
        if payloads and self._coder is None and total_size(payloads) > actor.shard.sizes.quick:
            event = ev.AttemptNoted(attempt.scheduled.command, attempt.number, payloads)
            actor.shard.sizes.check_event(event, actor.about)
        now = attempt.last_beat = self._clock.steady()
        if not payloads:
            return
        attempt.details = payloads
        if now >= attempt.note_after and not attempt.ended:
            attempt.note_after = now + NOTE_INTERVAL
            self._call(self._note_beat, attempt)

    def _note_beat(self, attempt: Attempt) -> None:
        # One that has ended took them along; without room they wait for that (R22).
        if not attempt.ended and attempt.actor.shard.intake.full is None:
            self.note(attempt)

    def note(self, attempt: Attempt, deadline: int = 0) -> None:
        """Tell the journal that an attempt has begun, and what its heartbeats say."""
        fault_point("activity.note.before", self)
        attempt.noted = attempt.details
        event = ev.AttemptNoted(attempt.scheduled.command, attempt.number, attempt.details, deadline)
        attempt.actor.put(event)

    def describe(self) -> ActivityPoolInfo:
        """What goes on just now."""
        threads = sum(not attempt.definition.is_async for attempt in self._running)
        return ActivityPoolInfo(
            len(self._running) - threads,
            _count(self._waiting_async),
            threads,
            _count(self.threads.waiting),
            tuple(self.threads.lost),
            tuple(map(name_of, self.unwanted.lost)),
            tuple(sorted(name_of(attempt) for attempt in self._running if attempt.ended)),
        )

    def accept_no_more(self) -> None:
        """Start nothing from now on; what waits for a slot stays pending in the journal."""
        self._accepting = False
        self._waiting_async.clear()
        self.threads.waiting.clear()

    async def drain(self, grace: float) -> int:
        """Start nothing more, and let what runs go on for ``grace`` seconds.

        Returns:
            How many attempts were cut; they are not counted and run again at the next start.
        """
        self.accept_no_more()
        self.leaving.set()
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
        told = [*cut, *(one for one in self._running if one.is_abandoned and one.ended)]
        for attempt in told:
            self.withdraw(attempt)
        self._cut = {one for one in self._running if one.task is not None}.union(told) & self._running
        if self._cut:  # let their finally blocks run, but wait for nobody who refuses to end
            self._all_gone = self._loop.create_future()
            await asyncio.wait([self._all_gone], timeout=CUT_PATIENCE)
            for attempt in self._cut & self._running:
                if attempt.task is not None:
                    self._close_coroutine(attempt, attempt.task)
        # What they have said goes to the next attempt, and that they had begun: they may be done.
        for attempt in sorted(cut, key=lambda one: (one.actor.key, one.scheduled.command)):
            self.note(attempt)
        return len(cut)

    @staticmethod
    def _close_coroutine(attempt: Attempt, task: asyncio.Task[None]) -> None:
        """End code that goes on when it is cancelled: else ``asyncio.run`` waits for its task for ever."""
        log.error(
            "leaving: activity %r of workflow %r goes on although it was cancelled, and is closed where it waits: let "
            "CancelledError pass",
            attempt.definition.name,
            attempt.actor.workflow_id,
        )
        coroutine: Any = task.get_coro()
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        with suppress(RuntimeError):  # it awaits even then
            coroutine.close()
        task.cancel()

    def close(self) -> None:
        """Let go of threads and deadlines."""
        self.deadlines.close()
        self.heartbeats.close()
        self.unwanted.close()
        self.threads.close()

    # --- on the loop

    def _start_async(self, attempt: Attempt) -> None:
        self._free_async -= 1
        self._running.add(attempt)
        attempt.started_at = self._clock.wall()
        self._decode(attempt, self._begin_async, self._async_done)

    def _begin_async(self, attempt: Attempt) -> None:
        self.deadlines.start(attempt)
        self.heartbeats.start(attempt)
        attempt.task = self._loop.create_task(self._run_async(attempt), context=self._context.copy())

    async def _run_async(self, attempt: Attempt) -> None:
        outcome: Payload | Failure | CompleteAsyncError
        current_activity.set(ActivityContext(attempt, self))
        try:
            fault_point("activity.start.before", self)
            self._marks.begin_on_loop(attempt)
            definition = attempt.definition
            args, kwargs = definition.codec.decode_args(
                self.converter, attempt.scheduled.args, attempt.scheduled.keywords
            )
            fn = definition.fn
            running = (
                intercepted(self.interceptors, fn, args, kwargs) if self.interceptors else fn(*args, **kwargs)
            )
            coroutine = running if type(running) is CoroutineType else _awaited(running)
            try:
                waits = coroutine.send(None)
            except StopIteration as end:
                result = end.value
            else:
                result = await self._marks.follow(attempt, coroutine, waits)
            outcome = definition.codec.encode_result(self.converter, result)
        except KeyboardInterrupt:
            raise
        except CompleteAsyncError:
            outcome = DETACHED
        except BaseException as error:
            if isinstance(error, GeneratorExit) and attempt.task not in (None, asyncio.current_task()):
                raise  # not the code's own: whoever drops the task closes it
            outcome = attempt_failure(error, attempt, self.converter)
        finally:
            self._marks.rest_on_loop(attempt)
            self._async_done(attempt)
        self._report(attempt, outcome)

    def _async_done(self, attempt: Attempt) -> None:
        attempt.task = None
        self._marks.over(attempt)
        if not (attempt.is_cancelled and self.unwanted.end(attempt)):
            self._free_slot(attempt)

    def _free_slot(self, attempt: Attempt) -> None:
        self._running.discard(attempt)
        self._free_async += 1
        self._next()

    def _cancel_task(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        """Cancel an attempt's task; of one that is cancelled before its first step, no ``finally`` ever runs."""
        coroutine: Any = task.get_coro()
        if not task.cancel() or getcoroutinestate(coroutine) == CORO_CREATED:
            self._async_done(attempt)
        elif attempt.ended and attempt in self._running:
            self.unwanted.add(attempt)

    def _report(self, attempt: Attempt, outcome: AttemptOutcome) -> None:
        if attempt.ended:
            return
        if isinstance(outcome, CompleteAsyncError):
            self.deadlines.stop(attempt)
            attempt.is_detached = True
            self.note(attempt, attempt.started_at + attempt.scheduled.start_to_close)
            self._check_drained()
            return
        attempt.ended = True
        self.deadlines.stop(attempt)
        fault_point("activity.result.before", self)
        self.ended(attempt, outcome)

    def _next(self) -> None:
        """Slots have become free."""
        while self._waiting_async and self._free_async:
            attempt = self._waiting_async.popleft()
            if not attempt.ended:
                self._start_async(attempt)
        self.threads.start_waiting()
        self._check_drained()
        if self.slot_freed is not None:
            self.slot_freed()

    def _wanted(self) -> bool:
        """Whether somebody still waits for an attempt that runs."""
        return any(not attempt.ended for attempt in self._running)

    def _check_drained(self) -> None:
        if self._all_done is not None and not self._all_done.done() and not self._wanted():
            self._all_done.set_result(None)
        if self._all_gone is not None and not self._all_gone.done() and not self._cut & self._running:
            self._all_gone.set_result(None)

    def _expired(self, attempt: Attempt) -> None:
        """The attempt took too long: its outcome is the timeout, whatever it still does."""
        self._time_out(attempt, "start_to_close_timeout", attempt.scheduled.start_to_close)

    def _silent(self, attempt: Attempt) -> None:
        """The attempt's heartbeats have stayed away."""
        assert attempt.scheduled.limits is not None
        self._time_out(attempt, "heartbeat_timeout", attempt.scheduled.limits.heartbeat)

    def _time_out(self, attempt: Attempt, option: str, limit: int) -> None:
        if attempt.ended and attempt.worker is None and not attempt.is_abandoned:
            return
        source = (attempt.definition.name, attempt.scheduled.command, attempt.number)
        failure = timeout_failure(source, option, limit)
        self._report(attempt, failure)
        self._push_cancel(attempt)
        self.threads.give_up(attempt, failure.message)

    # --- both

    def _call(self, method: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(method, *args)
        except RuntimeError:  # the loop is closed: the attempt was cut and runs again at the next start
            return

    def _decode(
        self, attempt: Attempt, begin: Callable[[Attempt], None], release: Callable[[Attempt], None]
    ) -> None:
        """Begin an attempt once its arguments are decoded; the codecs' time is not the activity's."""
        if self._coder is None:
            begin(attempt)
            return
        command = attempt.scheduled.command

        def decoded(result: list[Any] | PayloadCodecError) -> None:
            if isinstance(result, PayloadCodecError):
                self._loop.call_soon(self._unreadable, attempt, release, result)
            elif attempt.ended or not self._accepting:
                release(attempt)
            elif attempt.is_broken_into:  # before there was anything to be cancelled
                self._loop.call_soon(self._unreadable, attempt, release, CANCELLED)
            else:
                attempt.scheduled = result[0]
                attempt.details = attempt.noted = attempt.earlier = result[1].details
                if failure is not None:
                    attempt.last_failure = result[1].failure
                begin(attempt)

        failure = attempt.last_failure
        if failure is not None and failure.type == LOST:  # our own words, which are stored as they are
            failure = None
        known = ev.AttemptFailed(command, attempt.number, failure or Failure(""), 0, attempt.details)
        self._coder.start("decode", [attempt.scheduled, known], decoded, attempt.actor.about)

    def _unreadable(
        self, attempt: Attempt, release: Callable[[Attempt], None], outcome: PayloadCodecError | Failure
    ) -> None:
        release(attempt)
        self._report(attempt, outcome)


def _count(waiting: Iterable[Attempt]) -> int:
    return sum(not attempt.ended for attempt in waiting)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
