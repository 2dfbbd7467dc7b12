"""A hundred thousand timers that fall due within a minute; on request only, as it takes minutes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from time import perf_counter

from ..actors.handles import WorkflowHandle
from .bare import in_lanes
from .bed import Bed, check_completed, measured
from .report import Limit, Line, quantile
from .user_code import SleepUntil

#: Runs that sleep, how many of them fall due a second, and how many are started at a time.
SLEEPERS = 100_000
PER_S = SLEEPERS / 60
LANES = 200
#: Starts that are timed first, to know how long all of them take.
WARM = 200
LATE_MS = 100.0


def many_timers(bed: Bed) -> list[Line]:
    """Runs that sleep until moments of their own, one after the other, 100,000 in a minute."""
    return bed.run(_many_timers(bed))


async def _many_timers(bed: Bed) -> list[Line]:
    n = bed.count(SLEEPERS, least=200)
    handles: list[WorkflowHandle[SleepUntil, float]] = []
    late: list[float] = []
    async with measured(bed, "timers-100k") as it:
        past = datetime.fromtimestamp(0, UTC)
        began = perf_counter()
        await in_lanes(WARM, LANES, lambda: it.runtime.execute(SleepUntil, past))
        first = time.time() + 1 + 2 * n * (perf_counter() - began) / WARM
        moments = (datetime.fromtimestamp(first + i / PER_S, UTC) for i in range(n))

        async def start() -> None:
            handles.append(await it.runtime.spawn(SleepUntil, next(moments)))

        await in_lanes(n, LANES, start)
        spare = first - time.time()
        late += await asyncio.gather(*(handle.result() for handle in handles))
    check_completed(it, n + WARM)
    bare = await _plain(n)
    value, limit = quantile(late, 0.99) * 1e3, max(quantile(bare, 0.99) * 1e3, 1e-3)
    return [
        Line(
            "timers-100k.lateness",
            "timers",
            f"{n:,} runs sleep, {PER_S:,.0f} fall due a second: lateness, p99",
            value,
            "ms",
            (Limit("loop.call_at, as many", limit, value / limit),),
            f"{LATE_MS:g} ms",
            value <= LATE_MS,
            f"p50 {quantile(late, 0.5) * 1e3:.1f} ms, from {min(late) * 1e3:.1f} to {max(late) * 1e3:.1f} ms; all were "
            f"started {spare:.1f} s before the first fell due",
            {"n": n, "per_second": PER_S, "spare_seconds": spare, **it.proof},
        )
    ]


async def _plain(n: int) -> list[float]:
    """By how much as many timers of the bare loop are late, in seconds."""
    loop = asyncio.get_running_loop()
    late: list[float] = []
    done = loop.create_future()

    def due(moment: float) -> None:
        late.append(loop.time() - moment)
        if len(late) == n:
            done.set_result(None)

    first = loop.time() + 1
    for i in range(n):
        loop.call_at(first + i / PER_S, due, first + i / PER_S)
    await done
    return late


TIMERS: dict[str, Callable[[Bed], list[Line]]] = {"TIMERS-100K": many_timers}
