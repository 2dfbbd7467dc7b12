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
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from ..actors.errors import RuntimeClosedError
from ..actors.shard import Shard
from ..journal.errors import CommitUnknownError
from ..journal.fault_points import FAULT_POINTS, watched
from ..journal.writer import settle

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


class Plan:
    """Where the environments of one run of a test die, and where they could have.

    Attributes:
        passes: How often each point was passed.
        at: The point and its pass, from 1; None only counts.
        has_happened: The environment has died there.
    """

    def __init__(self, at: tuple[str, int] | None = None) -> None:
        self.passes: Counter[str] = Counter()
        self.at = at
        self.has_happened = False
        self._failing: set[tuple[str, int]] = set()
        self._fails = False

    @property
    def is_expected(self) -> bool:
        """Whether calls are made so that they can be repeated."""
        return self.at is not None or self._fails

    def fail(self, count: int, *, is_written: bool) -> None:
        """Let the ``count``-th commit from now on fail, before it is written or behind that."""
        point = "journal.commit.after" if is_written else "journal.commit.before"
        self._failing.add((point, self.passes[point] + count))
        self._fails = True

    def check(self, point: str) -> None:
        """Count a pass.

        Raises:
            OSError: A commit fails here.
        """
        self.passes[point] += 1
        if (point, self.passes[point]) in self._failing:
            raise OSError(errno.EIO, "the test lets this commit fail")

    def choices(self, patterns: tuple[str, ...], limit: int) -> list[tuple[str, int]]:
        """Every pass of the points that a pattern names; ``limit`` of them at most, evenly spread."""
        found = [
            (point, number)
            for point in CRASH_POINTS
            if any(fnmatchcase(point, pattern) for pattern in patterns)
            for number in range(1, self.passes[point] + 1)
        ]
        if len(found) <= limit:
            return found
        return [found[index * len(found) // limit] for index in range(limit)]


#: Of the test that runs; ``crash_everywhere`` sets it.
_plan: list[Plan] = []


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
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        """Begin.

        Args:
            shard: Of the present life.
            bury: Leaves the dead runtime.
            come_back: Opens another one.
            pause: Waits for a moment by the environment's clock.
        """
        self._shard = shard
        self._bury = bury
        self._come_back = come_back
        self._pause = pause
        self._is_buried = True
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._is_dead = False
        self._death: asyncio.Future[None] = self._loop.create_future()
        self._back: asyncio.Task[None] | None = None
        self._watch = watched(self._passes)
        self._outer: Any = None
        self.crashes = 0
        self.plan = _plan[-1] if _plan else Plan()

    def begin(self) -> None:
        """The first life has begun: fault points count from here."""
        self._outer = self._loop.get_exception_handler()
        self._loop.set_exception_handler(self._exception)
        self._watch.__enter__()

    async def end(self) -> None:
        """The environment is left."""
        try:
            if self._back is not None:
                await self._back
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

    def _passes(self, point: str) -> None:
        """A point is passed, on the loop or in the writer's thread."""
        if self._is_dead:
            if not self._is_buried and point.startswith("journal.commit."):
                raise SimulatedCrashError(point)  # it writes no more
            return
        if point in _OPENING:
            return
        plan = self.plan
        plan.check(point)
        if plan.at is not None and not plan.has_happened and plan.at == (point, plan.passes[point]):
            plan.has_happened = True
            self.die()
            raise SimulatedCrashError(point)

    def die(self) -> None:
        """End this life here; the next one begins as soon as the loop gets to it."""
        self._is_dead = True
        self._is_buried = False
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
        try:
            await self._bury()
        finally:
            self._is_buried = True
            await self._come_back()
        self.crashes += 1
        self._death = self._loop.create_future()
        self._is_dead = False

    # --- calls that outlive a life

    async def through(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call, and again in the next life when this one ends before there is an answer."""
        while True:
            life = self.crashes
            try:
                return await (self._unless_dead(call) if self.plan.is_expected else call())
            except CommitUnknownError:
                if not self.plan.is_expected:
                    raise
                await self._pause()  # the runtime does not take it before its next try
            except BaseException:
                task = asyncio.current_task()
                if (life == self.crashes and not self._is_dead) or (task is not None and task.cancelling()):
                    raise
            await self.alive()

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
