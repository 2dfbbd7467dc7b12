"""Crashes of a test environment: it dies at a fault point, as by SIGKILL, and another life goes on with its journal.

What is in memory is lost: nothing that comes after the point leaves the runtime, and its journal takes nothing more.
What was committed stays. The calls of the test go on in the next life, as those of a client that connects again and
repeats what it has no answer to, under the same request id.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..actors.errors import RuntimeClosedError
from ..actors.shard import Shard
from ..actors.workflow_actor import WorkflowActor
from ..journal.errors import CommitUnknownError
from ..journal.fault_points import FAULT_POINTS, watched
from ..journal.writer import settle

if TYPE_CHECKING:
    from .driver import TimeDriver

T = TypeVar("T")

#: Passed while a journal is opened and read: there is no runtime yet that could die.
_OPENING = frozenset(
    point for point in FAULT_POINTS if point.startswith(("journal.open.", "recovery.", "rewrite."))
)
#: Before a call is made again whose commit has failed, in seconds.
PAUSE = 0.1
#: Where an environment can die.
CRASH_POINTS = tuple(point for point in FAULT_POINTS if point not in _OPENING)


class SimulatedCrashError(BaseException):
    """Ends the code that has come to the point where its environment dies."""


def check_point(point: str) -> str:
    """Refuse what is no point to die at.

    Raises:
        ValueError: Names those that there are.
    """
    if point not in CRASH_POINTS:
        raise ValueError(f"no environment can die at {point!r}; points: {', '.join(CRASH_POINTS)}")
    return point


#: What else can go wrong: a commit that is not written, one that is and says it is not, a message that comes twice, one
#: that comes late, a result of an activity that does.
OTHER_FAULTS = ("commit.fails", "commit.unknown", "message.repeated", "message.delayed", "result.late")
#: Those that come late.
LATE = ("message.delayed", "result.late")


class Fault(NamedTuple):
    """A fault, or a point to die at.

    Attributes:
        kind: Its name.
        number: Its pass, from 1.
        delay: Of what comes late: by so many seconds.
    """

    kind: str
    number: int
    delay: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}" + (f":{self.delay:g}" if self.kind in LATE else "")


class Plan:
    """What goes wrong in one run of a test, and what could have.

    Attributes:
        passes: How often each point was passed, and each message sent, each commit made.
        faults: What goes wrong.
        happened: What has.
    """

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self.passes: Counter[str] = Counter()
        self.faults = {(fault.kind, fault.number): fault for fault in faults}
        self.happened: list[Fault] = []
        self._asked: list[Fault] = []

    @property
    def is_expected(self) -> bool:
        """Whether calls are made so that they can be repeated."""
        return bool(self.faults)

    def add(self, kind: str, count: int) -> None:
        """Let it go wrong at the ``count``-th pass from now on."""
        fault = Fault(kind, self.passes[kind] + count)
        self.faults[fault.kind, fault.number] = fault
        self._asked.append(fault)

    def check_asked(self) -> None:
        """Refuse that what a test has asked for never came.

        Raises:
            RuntimeError: Names it.
        """
        for fault in self._asked:
            if fault not in self.happened:
                raise RuntimeError(
                    f"the test has asked for a fault at pass {fault.number} of {fault.kind}, which was passed "
                    f"{self.passes[fault.kind]} times"
                )

    def passed(self, kind: str) -> Fault | None:
        """Count a pass; returns how it goes wrong, if it does."""
        self.passes[kind] += 1
        fault = self.faults.get((kind, self.passes[kind]))
        if fault is not None:
            self.happened.append(fault)
        return fault

    def start_passed(self) -> None:
        """Count a start in a run without faults, where it is not sent as a message that could be repeated."""
        self.passes.update(("message.delayed", "message.repeated"))

    def journal(self) -> Path | None:
        """Where the journal of the next environment is to be; None where that says."""
        return None

    def call_id(self, otherwise: Callable[[], str], *about: str) -> str:
        """An id for a call that has none: what ``otherwise`` gives, or one by what the call is about."""
        del about
        return otherwise()

    def choices(self, patterns: Iterable[str]) -> list[Fault]:
        """Everything that a pattern names and that could have gone wrong."""
        wanted = list(patterns)
        return [
            Fault(kind, number)
            for kind in (*CRASH_POINTS, *OTHER_FAULTS)
            if any(fnmatchcase(kind, pattern) for pattern in wanted)
            for number in range(1, self.passes[kind] + 1)
        ]


#: Of the test that runs; its mark sets it.
_plan: list[Plan] = []


def present_plan() -> Plan:
    """That of the test that runs; an empty one for a test that has none."""
    return _plan[-1] if _plan else Plan()


@contextmanager
def planned(plan: Plan) -> Generator[None]:
    """Let the environments that are entered in the block follow a plan."""
    _plan.append(plan)
    try:
        yield
    finally:
        _plan.remove(plan)


class Lives:
    """The lives of one environment.

    Attributes:
        crashes: How many have ended by a crash.
        plan: Where this environment dies.
    """

    def __init__(
        self,
        shard: Callable[[], Shard | None],
        bury: Callable[[], Awaitable[None]],
        come_back: Callable[[], Awaitable[None]],
        time: TimeDriver,
        plan: Plan,
    ) -> None:
        """Begin.

        Args:
            shard: Of the present life.
            bury: Leaves the dead runtime.
            come_back: Opens another one.
            time: The environment's.
            plan: What goes wrong.
        """
        self._shard = shard
        self._bury = bury
        self._come_back = come_back
        self._time = time
        self._is_buried = True
        self._dead: Shard | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._is_dead = False
        self._death: asyncio.Future[None] = self._loop.create_future()
        self._back: asyncio.Task[None] | None = None
        self._restart: asyncio.Task[None] | None = None
        self._watch = watched(self._passes)
        self._outer: Any = None
        self.crashes = 0
        self.plan = plan

    def begin(self) -> None:
        """The first life has begun: fault points count from here."""
        self._outer = self._loop.get_exception_handler()
        self._loop.set_exception_handler(self._exception)
        self._watch.__enter__()

    async def end(self) -> None:
        """The environment is left."""
        try:
            await self.alive()
        finally:
            self._watch.__exit__(None, None, None)
            self._loop.set_exception_handler(self._outer)

    def _exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), SimulatedCrashError):
            return
        if self._outer is not None:
            self._outer(loop, context)
        else:
            loop.default_exception_handler(context)

    # --- dying

    def _passes(self, point: str, passer: object) -> None:
        """A point is passed, by whatever runtime of the process, in whatever thread."""
        if not self._has(passer):
            return
        if self._is_dead:
            if not self._is_buried and point.startswith("journal.commit."):
                raise SimulatedCrashError(point)  # it writes no more
            return
        if point in _OPENING:
            return
        plan = self.plan
        if plan.passed(point):
            self.die()
            raise SimulatedCrashError(point)
        if (point == "journal.commit.before" and plan.passed("commit.fails")) or (
            point == "journal.commit.after" and plan.passed("commit.unknown")
        ):
            raise OSError(errno.EIO, "the test lets this commit fail")

    def _has(self, passer: object) -> bool:
        """Whether it is a part of the present life, or of the one that has just ended."""
        shard = self._shard() or self._dead
        if shard is None:
            return False
        if passer is None:  # it is inside of a commit
            return threading.current_thread() is shard.writer._thread
        if isinstance(passer, WorkflowActor):
            return passer.shard is shard
        parts = (shard.store, shard.writer, shard.courier, shard.dispatcher, shard.dispatcher.pool)
        return any(passer is part for part in parts)

    def die(self) -> None:
        """End this life here; the next one begins as soon as the loop gets to it."""
        self._back = None  # of the life before, and over: who waits for it would never yield to the loop
        self._is_dead = True
        self._is_buried = False
        self._dead = self._shard()
        if threading.get_ident() == self._thread:
            self._fall()
        else:
            self._loop.call_soon_threadsafe(self._fall)

    def _fall(self) -> None:
        settle(self._death, None)
        shard = self._shard()
        if shard is not None:
            error = RuntimeClosedError("the environment has died; its next life goes on")
            shard.marks.forget_all()  # the flight recorder stays as it is: the next life reads it
            writer = shard.writer
            flying = writer._in_flight
            writer.forsake(error)
            for batch in (flying, writer.open):
                if batch is not None:
                    batch.fail(error)
            shard.stop(error)
        self._back = self._loop.create_task(self._next_life(), name="everact-next-life")

    async def _next_life(self) -> None:
        if self._restart is not None:  # it has died on the way; what a dead runtime waits for may never come
            self._restart.cancel()
            await asyncio.wait([self._restart])
        try:
            if self._shard() is not None:
                await self._bury()
        finally:
            self._is_buried = True
            self._dead = None
            await self._come_back()
        self.crashes += 1
        self._death = self._loop.create_future()
        self._is_dead = False

    async def restart(self) -> None:
        """End this life in order, and begin the next one; dying on the way is a crash, and also ends in a next life."""
        await self.alive()
        self._restart = self._loop.create_task(self._restarted(), name="everact-restart")
        try:
            await self._restart
        except BaseException:
            task = asyncio.current_task()
            if not self._is_dead or (task is not None and task.cancelling()):
                raise
        finally:
            self._restart = None
        await self.alive()

    async def _restarted(self) -> None:
        await self._bury()
        if not self._is_dead:
            await self._come_back()

    # --- calls that outlive a life

    async def through(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call, and again in the next life when this one ends before there is an answer."""
        while True:
            life = self.crashes
            try:
                with self._time.asked():
                    return await (self._unless_dead(call) if self.plan.is_expected else call())
            except CommitUnknownError:
                if not self.plan.is_expected:
                    raise
                await self._time.sleep(PAUSE)  # the runtime does not take it before its next try
            except BaseException:
                task = asyncio.current_task()
                if (life == self.crashes and not self._is_dead) or (task is not None and task.cancelling()):
                    raise
            await self.alive()

    async def send(self, call: Callable[[], Awaitable[T]]) -> T:
        """Send a message, through crashes; perhaps later, perhaps twice."""
        if (late := self.plan.passed("message.delayed")) is not None:
            await self._time.sleep(late.delay)
        answer = await self.through(call)
        if self.plan.passed("message.repeated"):
            await self.through(call)
        return answer

    async def _unless_dead(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call; where the runtime dies before it answers, it never will.

        Raises:
            RuntimeClosedError: This life has ended.
        """
        task = asyncio.ensure_future(call())
        try:
            either: list[asyncio.Future[Any]] = [task, self._death]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
        if not task.done():
            raise RuntimeClosedError("the environment has died before it answered")
        return task.result()

    async def alive(self) -> None:
        """Wait for the next life, if this one has ended."""
        while self._is_dead:
            if self._back is None:
                await asyncio.sleep(0)
            else:
                await asyncio.shield(self._back)
