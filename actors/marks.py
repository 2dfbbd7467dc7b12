"""What of the users' code runs just now: told to the flight recorder (R12, R4) and to the watchdog (R19).

One slot of the recorder is the loop's, for turns, queries and validators; each attempt of an activity has one of its
own from before its code until its outcome is durable.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
import types
from collections.abc import Awaitable, Generator
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any

from ..journal.clock import Clock
from ..supervision.flight_recorder import BEGUN, FREE, RUNNING, FlightRecorder
from ..supervision.watchdog import Watchdog
from .errors import TurnBlockedError
from .event_loop import TurnAborted
from .options import WatchdogLimits, microseconds

if TYPE_CHECKING:
    from .attempts import Attempt
    from .workflow_actor import WorkflowActor

log = logging.getLogger("everact.runtime")

#: Kinds of what runs. A start is a first turn whose run may not be in the journal yet; its label is the workflow id.
TURN, QUERY, VALIDATOR, ATTEMPT, START, REPLAY = 1, 2, 3, 4, 5, 6
#: Those that the watchdog may break.
_BREAKABLE = frozenset([TURN, QUERY, VALIDATOR, START])
#: Lines of the stack that a warning shows.
_FRAMES = 8


class TurnBroken(TurnAborted):
    """Raised by the watchdog inside a turn that has blocked the loop for too long; the turn is discarded."""


class Marks:
    """The marks of one shard. All but the marks of attempts in threads belong to the loop's thread.

    Attributes:
        recorder: In memory only until ``recover`` has read what the last process left.
        watchdog: Not started when there is none.
        wary: Ids of workflows whose start has killed the process before it was durable.
    """

    def __init__(self, clock: Clock, limits: WatchdogLimits | None, attempts: int) -> None:
        """Begin in memory.

        Args:
            clock: For the watchdog.
            limits: Of the watchdog; None is that there is none.
            attempts: How many are expected to be in hand at most.
        """
        self.recorder = FlightRecorder(attempts + 1)
        self._is_watched = limits is not None
        limits = limits or WatchdogLimits()
        until = limits.break_after
        self._break_after = None if until is None else microseconds("break_after", until) / 1_000_000
        self.watchdog = Watchdog(
            clock,
            warn_after=microseconds("warn_after", limits.warn_after) / 1_000_000,
            break_after=self._break_after,
            exception=TurnBroken,
            may_break=lambda current: current[0] in _BREAKABLE,
            named=_name,
        )
        self._loop = asyncio.get_running_loop()
        self._hooks = sys.get_asyncgen_hooks()
        self._slot = self.recorder.take()
        self._held: dict[tuple[int, int], Attempt] = {}
        self._warned = False
        self.wary: frozenset[bytes] = frozenset()

    def start(self) -> None:
        """Let the watchdog watch, if there is to be one."""
        if self._is_watched:
            self.watchdog.start()

    def close(self) -> None:
        """An orderly end: nothing is held against anybody."""
        self.watchdog.close()
        self.recorder.close()

    def forget_all(self) -> None:
        """In a forked child: the file is the parent's."""
        self.recorder.forget()

    # --- on the loop: turns, queries, validators

    def begin(self, kind: int, actor: WorkflowActor, number: int, label: bytes = b"") -> None:
        """Code of a run is about to run."""
        self.recorder.run(self._slot, kind, actor.key, number, 0, label)
        self.watchdog.current = (kind, actor, number)

    def finish(self) -> bool:
        """It has ended; safe to call twice. Returns whether the watchdog has broken it."""
        self.recorder.set_state(self._slot, FREE)
        if not self.watchdog.finish():
            return False
        # What was raised may have cut short the very lines that give the thread back to the host's loop.
        asyncio._set_running_loop(self._loop)
        sys.set_asyncgen_hooks(*self._hooks)
        return True

    def blocked(self, cause: BaseException | None) -> TurnBlockedError:
        """What has become of code that the watchdog broke."""
        error = TurnBlockedError(self._break_after or 0.0)
        error.__cause__ = cause
        return error

    # --- attempts

    def take(self, attempt: Attempt) -> None:
        """Reserve a slot for an attempt that is about to begin."""
        recorder = self.recorder
        if self._held and recorder.is_full:
            self._sweep()
        attempt.slot = recorder.take()
        if attempt.slot < 0 and not self._warned:
            self._warned = True
            log.warning(
                "there is no room to mark attempts of activities: those that are cut by a hard death of the process "
                "run again under the same number"
            )

    def begin_attempt(self, attempt: Attempt, *, on_loop: bool) -> None:
        """Its code is about to run (in its own thread, when not on the loop)."""
        slot, number = attempt.slot, attempt.number  # on the loop the slot may be given up meanwhile
        if slot >= 0:
            self.recorder.run(slot, ATTEMPT, attempt.actor.key, attempt.scheduled.command, number)
        if on_loop:
            self.watchdog.current = (ATTEMPT, attempt, number)

    def rest(self, attempt: Attempt, *, on_loop: bool) -> None:
        """Its code waits, or has ended; its outcome is not durable."""
        slot = attempt.slot
        if slot >= 0:
            self.recorder.set_state(slot, BEGUN)
        if on_loop:
            self.watchdog.finish()

    def _go_on(self, attempt: Attempt) -> None:
        if attempt.slot >= 0:
            self.recorder.set_state(attempt.slot, RUNNING)
        self.watchdog.current = (ATTEMPT, attempt, attempt.number)

    @types.coroutine
    def follow(self, attempt: Attempt, awaitable: Awaitable[Any]) -> Generator[Any, None, Any]:
        """Await an activity's coroutine, and mark each time that it runs; tasks of its own are not seen."""
        coroutine = awaitable if iscoroutine(awaitable) else _awaited(awaitable)
        error: BaseException | None = None
        while True:
            try:
                waits = coroutine.send(None) if error is None else coroutine.throw(error)
            except StopIteration as end:
                return end.value
            error = None
            self.rest(attempt, on_loop=True)
            try:
                yield waits
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as thrown:  # noqa: BLE001  (it is the coroutine's)
                error = thrown
            self._go_on(attempt)

    def over(self, attempt: Attempt) -> None:
        """Its code has ended: the mark stays until the outcome is durable, if somebody wants that."""
        if attempt.slot < 0:
            return
        command = attempt.scheduled.command
        if attempt.ended:
            outcome = attempt.actor.outcomes.get(command)
            if outcome is None or outcome.attempt != attempt.number:
                self.forget(attempt)
                return
        key = (attempt.actor.key, command)
        before = self._held.get(key)
        if before is not None:
            self.forget(before)
        self._held[key] = attempt

    def kept(self, key: int, command: int) -> None:
        """The outcome of an attempt is durable, or nobody wants it."""
        attempt = self._held.pop((key, command), None)
        if attempt is not None:
            self.forget(attempt)

    def forget(self, attempt: Attempt) -> None:
        """An attempt is not in this process any more: its death is none of the attempt's."""
        slot, attempt.slot = attempt.slot, -1
        if slot >= 0:
            self.recorder.free(slot)

    def _sweep(self) -> None:
        """Give up the marks of outcomes that will never be durable: of runs that were closed at once, and the like."""
        for (key, command), attempt in list(self._held.items()):
            if command not in attempt.actor.outcomes:
                self.kept(key, command)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _name(current: tuple[int, Any, int], seconds: float, frame: types.FrameType | None) -> None:
    """Say what blocks the loop; called in the watchdog's thread."""
    kind, what, number = current
    if kind == ATTEMPT:
        who = (
            f"async activity {what.definition.name!r} (attempt {number} of command {what.scheduled.command}) of "
            f"workflow {what.actor.workflow_id!r}"
        )
        advice = "nothing else runs meanwhile: await what takes long, or make it a plain def, which runs in a thread"
    else:
        words = {QUERY: "a query of", VALIDATOR: "an update's validator of", REPLAY: "the replay of"}
        who = f"{words.get(kind, 'a turn of')} workflow {what.workflow_id!r} (run {what.run_id}, event {number})"
        advice = "nothing else runs meanwhile: what takes long belongs in an activity"
    where = "" if frame is None else "".join(traceback.format_stack(frame)[-_FRAMES:])
    log.warning("%s has blocked the event loop for %.1f s; %s\n%s", who, seconds, advice, where)
