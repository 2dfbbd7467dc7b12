"""Moves virtual time: to what is due next, once nothing of the environment can run.

Time passes only while somebody waits for the environment: for a result, an update, a sleep. So what a test does between
two awaits, or while it waits for something else, never races with the clock.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..actors.context import current_activity
from ..actors.horizon import Horizon
from ..actors.housekeeping import Housekeeping
from ..journal.loading import next_due
from ..journal.writer import Raise, settle
from .clock import VirtualClock, VirtualLater
from .crashes import SimulatedCrashError
from .errors import EndlessScheduleError, NoProgressError
from .standstill import Standstill

if TYPE_CHECKING:
    from ..actors.attempts import Attempt
    from ..actors.shard import Shard

log = logging.getLogger("everact.testing")

#: The loop has nothing more to do after so many passes in which nothing else was ready: I/O is looked at between them.
CALM = 2
#: It is not waited for longer than so many passes: others share the loop, and may never be done.
PASSES = 10
#: Time that is held for so long is reported in the log, in seconds of the real clock.
PATIENCE = 2.0
#: Between two looks at what only real time moves, in seconds.
PAUSE = 0.002
#: Between two looks whether somebody may still move time by hand, in seconds.
LOOK = 0.02


class Call:
    """A call that waits for the environment, as the context of its waiting.

    Attributes:
        text: What it waits for, for messages.
        workflow_id: Of the run that it is about; empty for none.
        task: Its task.
        attempt: The attempt whose code has made it, or None.
        error: What it is given up with.
        condition: What it waits for, where that is looked at whenever nothing can run.
        met: Done once that is true; None without a condition.
        follows_runs: It waits for the end of a whole chain of runs.
        scheduled_runs: So many runs of a schedule have begun meanwhile, the first one included.
    """

    __slots__ = (
        "_cancelling",
        "_driver",
        "_run",
        "attempt",
        "condition",
        "error",
        "follows_runs",
        "met",
        "scheduled_runs",
        "task",
        "text",
        "workflow_id",
    )

    def __init__(
        self, driver: TimeDriver, text: str, workflow_id: str, attempt: Attempt | None, *, follows_runs: bool
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._driver = driver
        self.text = text
        self.workflow_id = workflow_id
        self.task = task
        self.attempt = attempt
        self.error: BaseException | None = None
        self.condition: Callable[[], object] = _never
        self.met: asyncio.Future[None] | None = None
        self.follows_runs = follows_runs
        self.scheduled_runs = 0
        self._run = 0
        self._cancelling = task.cancelling()

    def give_up(self, error: BaseException) -> None:
        """Let it raise, as ``asyncio.timeout`` does."""
        self.error = error
        self.task.cancel()

    def schedule(self, shard: Shard) -> str:
        """The schedule of the runs that it waits for, whose present run is counted; empty for none."""
        actor = shard.newest.get(self.workflow_id) if self.follows_runs else None
        if actor is None or actor.state.started.options is None:
            return ""
        schedule = actor.state.started.options.cron
        if schedule and actor.key != self._run:
            self._run = actor.key
            self.scheduled_runs += 1
        return schedule

    def ended_by_us(self) -> bool:
        """Whether a cancellation that arrives is ours."""
        return self.error is not None and self.task.uncancel() <= self._cancelling

    def __enter__(self) -> Self:
        self._driver.calls[self] = None
        self._driver.stir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._driver.calls[self]
        self._driver.stir()
        if isinstance(error, asyncio.CancelledError) and self.ended_by_us():
            assert self.error is not None
            raise self.error from None


class Advance:
    """An order to move time.

    Attributes:
        end: To here, as ``VirtualClock.elapsed`` counts.
        past_running: Activities that really run do not hold it up.
        done: Set once everything until there has happened.
    """

    __slots__ = ("done", "end", "past_running")

    def __init__(self, end: int, *, past_running: bool) -> None:
        self.end = end
        self.past_running = past_running
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class TimeDriver:
    """Moves the clock of one environment.

    Attributes:
        calls: Those that wait.
        holds: So many blocks hold time.
        is_automatic: Time jumps by itself.
        misuse: What the test does wrong, and would not hear of by the run that it happens to.
    """

    def __init__(
        self,
        clock: VirtualClock,
        later: VirtualLater,
        shard: Callable[[], Shard | None],
        report: Callable[[Call | None], str],
        *,
        fault: Callable[[], BaseException | None],
        is_automatic: bool,
        patience: float,
        max_scheduled_runs: int,
    ) -> None:
        self._clock = clock
        self._later = later
        self._shard_now = shard
        self._report = report
        self._fault = fault
        self._patience = patience
        self._max_scheduled_runs = max_scheduled_runs
        self._advances: deque[Advance] = deque()
        self._stirred = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._asked = 0
        later.stir = self.stir
        self.calls: dict[Call, None] = {}
        self.holds = 0
        self.misuse: RuntimeError | None = None
        self.is_automatic = is_automatic

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._drive(), name="everact-virtual-time")

    async def stop(self) -> None:
        """End; nobody moves time any more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                with suppress(SimulatedCrashError):  # a timer that fell due was where the environment died
                    task.result()

    def stir(self) -> None:
        """Something has changed that decides whether time moves."""
        self._stirred.set()

    # --- who waits

    def waiting(self, text: str, workflow_id: str = "", *, follows_runs: bool = False) -> Call:
        """Let time pass while the body of a ``with`` waits for the environment.

        The body raises NoProgressError when what it waits for can never come.

        Raises:
            RuntimeError: A payload codec waits, or has waited.
        """
        shard = self._shard_now()
        if shard is not None and shard.coder is not None and shard.coder.runs(asyncio.current_task()):
            self.misuse = RuntimeError(
                f"a payload codec waits for {text} of its test environment, whose time stands still until the codec "
                f"has ended: let it wait for something of its own"
            )
        if self.misuse is not None:
            raise self.misuse
        context = current_activity.get(None)
        attempt = None if context is None else context.attempt
        return Call(self, text, workflow_id, attempt, follows_runs=follows_runs)

    @contextmanager
    def asked(self) -> Generator[None]:
        """Make a call that the engine answers at once; only its pauses after failed commits take time."""
        self._asked += 1
        self.stir()
        try:
            yield
        finally:
            self._asked -= 1

    async def sleep(self, seconds: float) -> None:
        """Wait until so much virtual time has passed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self.waiting(f"a sleep of {seconds:g} s"):
            timer = self._later.call_later(seconds, settle, future, None)
            try:
                await future
            finally:
                timer.cancel()

    async def until(self, condition: Callable[[], object], text: str) -> None:
        """Wait until a condition holds; it is looked at whenever nothing can run."""
        with self.waiting(text) as call:
            call.condition = condition
            call.met = asyncio.get_running_loop().create_future()
            await call.met

    async def advance(self, microseconds: int, *, past_running: bool) -> None:
        """Move time by so much, stopping wherever something is due."""
        self._drop_cancelled()
        start = self._advances[-1].end if self._advances else self._clock.elapsed
        advance = Advance(start + microseconds, past_running=past_running)
        self._advances.append(advance)
        self.stir()
        await advance.done

    def _drop_cancelled(self) -> None:
        if any(advance.done.cancelled() for advance in self._advances):
            self._advances = deque(one for one in self._advances if not one.done.cancelled())

    def holding(self) -> list[Attempt]:
        """Attempts whose code really runs, and does not wait for the environment."""
        shard = self._shard_now()
        if shard is None or not shard.dispatcher.pool._running:
            return []
        waiting = {call.attempt for call in self.calls if call.attempt is not None}
        return [attempt for attempt in shard.dispatcher.pool._running if attempt not in waiting]

    # --- moving time

    def _is_wanted(self) -> bool:
        """Whether somebody waits; activities that do are waited for themselves, or not."""
        if any(call.attempt is None and call.error is None for call in self.calls):
            return True
        shard = self._shard_now()
        return self._asked > 0 and shard is not None and shard.rebuilding.is_pausing

    async def _drive(self) -> None:
        while True:
            self._stirred.clear()
            self._drop_cancelled()
            advance = self._advances[0] if self._advances else None
            if advance is None and not self._is_wanted():
                await self._stirred.wait()
                continue
            if advance is None and self.holds:
                await self._something_else()
                continue
            shard = self._shard_now()
            if shard is None or shard.error is not None:
                await self._stirred.wait()
                continue
            past_running = advance is not None and advance.past_running
            if not past_running and self.holding():
                await self._something_else()
            elif await self._is_calm(shard, past_running=past_running):
                if advance is None and not self.is_automatic:
                    await self._stand(shard)
                else:
                    self._step(shard, advance)

    async def _something_else(self) -> None:
        """Wait until something changes."""
        with self._complaint():
            await self._stirred.wait()

    @contextmanager
    def _complaint(self) -> Generator[None]:
        """Say so when the body takes long."""
        timer = asyncio.get_running_loop().call_later(PATIENCE, self._complain)
        try:
            yield
        finally:
            timer.cancel()

    async def _stand(self, shard: Shard) -> None:
        """Nothing can run, and only the test moves time: give up the calls that wait once none of its tasks goes on."""
        standstill = Standstill(self._patience)
        timer = asyncio.get_running_loop().call_later(PATIENCE, self._complain)
        try:
            while not (self._stirred.is_set() or self._is_busy(shard) or self.holding()):
                fault = self._fault()
                if fault is not None:
                    self._give_up(partial(_always, fault))
                elif self._meet_conditions():
                    pass
                elif standstill.is_reached(self._task):
                    self._give_up(self._unmoved)
                else:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK):
                            await self._stirred.wait()
                    continue
                return
        finally:
            timer.cancel()

    def _unmoved(self, call: Call) -> NoProgressError:
        """What a call gets that waits for time that nobody moves."""
        why = (
            f'with time="manual" only env.advance(...) moves time, and no other task has gone on for '
            f"{self._patience:g} s. Start it with env.spawn(...), call env.advance(...), then wait"
        )
        return NoProgressError(call.text, self._report(call), why)

    def _complain(self) -> None:
        log.warning("virtual time stands still since %g s.\n%s", PATIENCE, self._report(None))

    async def _is_calm(self, shard: Shard, *, past_running: bool) -> bool:
        """Wait until the engine and the loop have nothing to do; False when something has changed meanwhile."""
        ready: Any = getattr(asyncio.get_running_loop(), "_ready", None)
        calm = 0
        for _ in range(PASSES):
            if self._is_busy(shard):
                with self._complaint():
                    await shard.idle()
                if self._waits_for_real_time(shard):
                    await asyncio.sleep(PAUSE)
                return False
            await asyncio.sleep(0)
            if self._stirred.is_set() or (not past_running and self.holding()):
                return False
            if ready is not None:
                calm = 0 if ready else calm + 1
                if calm >= CALM:
                    break
        return not self._is_busy(shard)

    @staticmethod
    def _waits_for_real_time(shard: Shard) -> bool:
        """Whether messages between runs are tried again, or runs past their retention are purged, in a moment."""
        housekeeping = shard.housekeeping
        return shard.courier._timer is not None or (
            housekeeping._handle is not None and shard.compactor.purger.is_asked
        )

    def _is_busy(self, shard: Shard) -> bool:
        return (
            shard._pump_scheduled
            or not shard.writer.is_idle
            or shard.rebuilding.is_running
            or (shard.coder is not None and bool(shard.coder.jobs))
            or self._waits_for_real_time(shard)
        )

    def _step(self, shard: Shard, advance: Advance | None) -> None:
        """Nothing can run: move time to what is due next, or give up the calls that wait."""
        fault = self._fault()
        if fault is not None:
            self._give_up(partial(_always, fault))
            if advance is not None:
                self._advances.popleft()
                settle(advance.done, Raise(fault))
            return
        due = self.next_due(shard)
        if advance is not None:
            if due is not None and due <= advance.end:
                self._move(shard, due)
            elif self._clock.elapsed < advance.end:
                self._move(shard, advance.end)
            else:
                self._advances.popleft()
                settle(advance.done, None)
        elif self._meet_conditions():
            pass
        elif due is not None:
            if not self._stop_schedules(shard):
                self._move(shard, due)
        else:
            self._give_up(lambda call: NoProgressError(call.text, self._report(call)))

    def _give_up(self, error_of: Callable[[Call], BaseException]) -> None:
        for call in list(self.calls):
            if call.attempt is None and call.error is None:
                call.give_up(error_of(call))

    def _stop_schedules(self, shard: Shard) -> bool:
        """Give up calls that wait for the end of a schedule, which never ends; returns whether there is one."""
        found = False
        for call in list(self.calls):
            schedule = call.schedule(shard)
            if schedule and call.scheduled_runs > self._max_scheduled_runs and call.error is None:
                runs = self._max_scheduled_runs
                call.give_up(EndlessScheduleError(call.text, self._report(call), schedule, runs))
                found = True
        return found

    def _meet_conditions(self) -> bool:
        """Let those go on whose condition holds now; returns whether there is one."""
        is_met = False
        for call in self.calls:
            if call.met is not None and not call.met.done() and call.error is None:
                try:
                    found = call.condition()
                    if inspect.iscoroutine(found):
                        found.close()
                        raise TypeError(  # noqa: TRY301
                            "env.until takes a function that returns whether it holds, not an async one"
                        )
                    if not found:
                        continue
                    call.met.set_result(None)
                except Exception as error:  # noqa: BLE001  (the test's own condition; its caller gets it)
                    call.met.set_exception(error)
                is_met = True
        return is_met

    def next_due(self, shard: Shard) -> int | None:
        """When something falls due that lets a run, an activity or a sleep go on, as ``elapsed`` counts."""
        clock = self._clock
        found = []
        horizon = shard.horizon
        walls = [shard.timers.soonest(_matters)]
        if horizon.watches:  # its own looks come every few minutes: to what they find in the end
            walls.append(next_due(shard.store, horizon.until))
        found += [clock.elapsed + max(0, wall - clock.wall()) for wall in walls if wall is not None]
        pool = shard.dispatcher.pool
        steady = [pool.deadlines.soonest, pool.heartbeats.soonest]
        later = self._later.soonest
        if later is not None:
            steady.append(later)
        found += [clock.elapsed_at(at) for at in steady if at != float("inf")]
        return min(found, default=None)

    def _move(self, shard: Shard, to: int) -> None:
        self._clock.move(max(0, to - self._clock.elapsed))
        pool = shard.dispatcher.pool
        shard.timers.check()
        pool.deadlines.check()
        pool.heartbeats.check()
        if not shard.compactor.purger.is_asked:  # sleeps end in the next step: behind what is purged now
            self._later.check()


def _matters(owner: object) -> bool:
    """Whether what a timer belongs to lets somebody go on, and that only by its timer."""
    return not (isinstance(owner, Housekeeping) or (isinstance(owner, Horizon) and owner.watches))


def _always(error: BaseException, _call: Call) -> BaseException:
    return error


def _never() -> bool:
    return False
