"""What of the users' code runs just now: told to the flight recorder (R12, R4) and to the watchdog (R19).

One slot of the recorder is the loop's, for turns, queries and validators; each attempt of an activity has one of its
own from before its code until its outcome is durable.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
import types
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

from ..journal.clock import Clock
from ..supervision.flight_recorder import BEGUN, FREE, RUNNING, FlightRecorder, write_slot
from ..supervision.watchdog import Watchdog
from .errors import TurnBlockedError
from .event_loop import TurnAborted
from .options import WatchdogLimits, microseconds
from .places import is_user_code, suspended_at

if TYPE_CHECKING:
    from .attempts import Attempt
    from .workflow_actor import WorkflowActor
    from .workflow_instance import WorkflowInstance

log = logging.getLogger("everact.runtime")

#: Kinds of what runs. A start is a first turn whose run may not be in the journal yet; its label is the workflow id.
TURN, QUERY, VALIDATOR, ATTEMPT, START, REPLAY = 1, 2, 3, 4, 5, 6
#: Those that the watchdog may break.
_BREAKABLE = frozenset([TURN, QUERY, VALIDATOR, START])
#: Lines of the stack that a warning shows.
_FRAMES = 8
#: Modules of the loop that the runtime is on: the code around it blocks nothing.
_HOST = frozenset(["asyncio.base_events", "asyncio.events", "asyncio.runners"])


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
        recorder = self.recorder
        if label:
            recorder.run(self._slot, kind, actor.key, number, 0, label)
        else:
            write_slot(recorder.map, self._slot, RUNNING, kind, 0, actor.key, number, 0)
        self.watchdog.current = (kind, actor, number)

    def finish(self) -> bool:
        """It has ended; safe to call twice. Returns whether the watchdog has broken it."""
        self.recorder.map[self._slot] = FREE
        watchdog = self.watchdog
        watchdog.current = None
        if not watchdog.is_alert or not watchdog.finish():
            return False
        # What was raised may have cut short the very lines that give the thread back to the host's loop.
        asyncio._set_running_loop(self._loop)
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

    def begin_on_loop(self, attempt: Attempt) -> None:
        """The code of an async attempt is about to run for the first time."""
        self.take(attempt)
        number = attempt.number
        if attempt.slot >= 0:
            key, command = attempt.actor.key, attempt.scheduled.command
            write_slot(self.recorder.map, attempt.slot, RUNNING, ATTEMPT, 0, key, command, number)
        self.watchdog.current = (ATTEMPT, attempt, number)

    def begin_in_thread(self, attempt: Attempt) -> None:
        """The code of an attempt that has a slot is about to run; called in its thread."""
        slot = attempt.slot  # on the loop it may be given up meanwhile
        if slot >= 0:
            key, command = attempt.actor.key, attempt.scheduled.command
            write_slot(self.recorder.map, slot, RUNNING, ATTEMPT, 0, key, command, attempt.number)

    def rest(self, attempt: Attempt) -> None:
        """Its code waits, or has ended; its outcome is not durable. In its thread, or on the loop."""
        slot = attempt.slot
        if slot >= 0:
            self.recorder.map[slot] = BEGUN

    def rest_on_loop(self, attempt: Attempt) -> None:
        """Likewise, of an async attempt."""
        if attempt.slot >= 0:
            self.recorder.map[attempt.slot] = BEGUN
        watchdog = self.watchdog
        watchdog.current = None
        if watchdog.is_alert:
            watchdog.finish()

    def _go_on(self, attempt: Attempt) -> None:
        if attempt.slot >= 0:
            self.recorder.map[attempt.slot] = RUNNING
        self.watchdog.current = (ATTEMPT, attempt, attempt.number)

    @types.coroutine
    def follow(
        self, attempt: Attempt, coroutine: Coroutine[Any, None, Any], waits: Any
    ) -> Generator[Any, None, Any]:
        """Await an activity's coroutine that has begun to wait, and mark each time that it runs.

        Tasks of its own are not seen.

        Args:
            attempt: Whose.
            coroutine: Has run up to its first suspension.
            waits: What it has yielded there.
        """
        error: BaseException | None = None
        while True:
            self.rest_on_loop(attempt)
            try:
                yield waits
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as thrown:  # noqa: BLE001  (it is the coroutine's)
                error = thrown
            self._go_on(attempt)
            try:
                waits = coroutine.send(None) if error is None else coroutine.throw(error)
            except StopIteration as end:
                return end.value
            error = None

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
        held = self._held
        key = attempt.actor.key, command
        if key in held:
            self.forget(held[key])
        held[key] = attempt

    def kept(self, key: int, command: int) -> None:
        """The outcome of an attempt is durable, or nobody wants it."""
        attempt = self._held.pop((key, command), None)
        if attempt is not None:
            self.recorder.free(attempt.slot)
            attempt.slot = -1

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
    stack, is_of_user = ([], True) if frame is None else _stack(frame)
    where = "".join(traceback.format_list(stack))
    if not is_of_user and kind != ATTEMPT:
        where += _waits(what.instance)
    log.warning("%s has blocked the event loop for %.1f s; %s\n%s", who, seconds, advice, where)


def _waits(instance: WorkflowInstance | None) -> str:
    """Where the run's tasks are while none of their code runs: one of them never lets the turn end."""
    tasks = () if instance is None else instance.loop.live_tasks()
    places = dict.fromkeys(map(suspended_at, tasks))
    return "".join(f"  a task of the workflow is at {place}\n" for place in list(places)[:_FRAMES])


def _stack(frame: types.FrameType) -> tuple[list[traceback.FrameSummary], bool]:
    """The innermost frames: the user's and what they call; ours behind them only when there are none of a user.

    Returns:
        Them, and whether there are any of a user.
    """
    frames: list[tuple[types.FrameType, int]] = []
    has_user_code = False
    for each, line in traceback.walk_stack(frame):
        is_user = is_user_code(each)
        is_host = each.f_globals.get("__name__") in _HOST
        if len(frames) == _FRAMES or is_host or (has_user_code and not is_user):
            break
        has_user_code = has_user_code or is_user
        frames.append((each, line))
    return traceback.StackSummary.extract(reversed(frames)), has_user_code
