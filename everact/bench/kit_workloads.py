"""The test kit: three days of a workflow with a hundred timers, on virtual time."""

from __future__ import annotations

import asyncio
import statistics
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter

from ..testing.environment import TestEnvironment
from .bed import Bed, LostRunsError
from .report import Limit, Line
from .user_code import Naps

#: Timers of the run, how long it takes by its clock, in seconds, and how often that is measured.
TIMERS = 100
DAYS = 3
ROUNDS = 20
TARGET_MS = 50.0


def virtual_days(bed: Bed) -> list[Line]:
    """A run that sleeps a hundred times, three days in all, in a test environment of its own each time."""
    return bed.run(_virtual_days(bed))


async def _virtual_days(bed: Bed) -> list[Line]:
    rounds = bed.count(ROUNDS, least=3)
    found = [await _one() for _ in range(rounds)]
    bare = statistics.median([await _hops(TIMERS) for _ in range(rounds)])
    value = statistics.median(found) * 1e3
    return [
        Line(
            "kit.virtual-days",
            "kit",
            f"{DAYS} days with {TIMERS} timers in a TestEnvironment, its start and end included",
            value,
            "ms",
            (Limit("a thread and back, as often", bare * 1e3, value / bare / 1e3),),
            f"{TARGET_MS:g} ms",
            value <= TARGET_MS,
            f"from {min(found) * 1e3:.1f} to {max(found) * 1e3:.1f} ms",
            {"timers": TIMERS, "rounds": rounds},
        )
    ]


async def _one() -> float:
    began = perf_counter()
    async with TestEnvironment(workflows=[Naps]) as env:
        start = env.now()
        await env.execute(Naps, TIMERS, DAYS * 86400 / TIMERS)
        passed = (env.now() - start).days
    if passed != DAYS:
        raise LostRunsError(f"{passed} days have passed in the test environment, not {DAYS}")
    return perf_counter() - began


async def _hops(count: int) -> float:
    """Seconds that so many hops take to a thread and back, one after the other: each commit is one."""
    loop = asyncio.get_running_loop()
    queue: SimpleQueue[asyncio.Future[None] | None] = SimpleQueue()

    def work() -> None:
        while (future := queue.get()) is not None:
            loop.call_soon_threadsafe(future.set_result, None)

    thread = threading.Thread(target=work)
    thread.start()
    began = perf_counter()
    for _ in range(count):
        future: asyncio.Future[None] = loop.create_future()
        queue.put(future)
        await future
    seconds = perf_counter() - began
    queue.put(None)
    thread.join()
    return seconds


KIT: dict[str, Callable[[Bed], list[Line]]] = {"KIT": virtual_days}
