"""Sagas of five steps, the last of which fails: four are undone. On request only."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter

from .bare import in_lanes
from .bed import Bed, LostRunsError, check_completed, measured
from .report import Limit, Line, quantile
from .user_code import UNDONE, FailingSaga

#: Sagas in flight.
LANES = 200


def sagas(bed: Bed) -> list[Line]:
    """Sagas that fail at the last of five steps: one at a time, and many at once."""
    return bed.run(_sagas(bed))


async def _sagas(bed: Bed) -> list[Line]:
    alone, n = bed.count(200, least=10), bed.count(2_000, least=20)
    warm = min(n, 2 * LANES)
    taken: list[float] = []
    bare: list[float] = []
    async with measured(bed, "saga") as it:
        runtime, sizes = it.runtime, it.store.sizes

        async def one() -> None:
            undone = await runtime.execute(FailingSaga)
            if undone != UNDONE:
                raise LostRunsError(f"a saga has undone {undone} steps, not {UNDONE}")

        await in_lanes(warm, LANES, one)
        with bed.bare_log() as log:
            for _ in range(alone):
                mark = len(sizes)
                began = perf_counter()
                await one()
                taken.append(perf_counter() - began)
                bare.append(log.replay(sizes[mark:].tolist()))
        commits = len(sizes)
        mark, began = commits, perf_counter()
        with bed.profiled():
            await in_lanes(n, LANES, one)
        seconds = perf_counter() - began
        records = sizes[mark:].tolist()
    check_completed(it, warm + alone + n)
    with bed.bare_log() as log:
        lmdb = statistics.median(log.replay(records) for _ in range(3))
    p50, limit = quantile(taken, 0.5) * 1e3, quantile(bare, 0.5) * 1e3
    return [
        Line(
            "saga.latency",
            "saga",
            "5 steps, the last one fails, 4 are undone, one at a time, p50",
            p50,
            "ms",
            (Limit("LMDB commits, same bytes", limit, p50 / limit),),
            note=f"p90 {quantile(taken, 0.9) * 1e3:.3f} ms, bare p90 {quantile(bare, 0.9) * 1e3:.3f} ms",
            detail={"n": alone, "p90": quantile(taken, 0.9) * 1e3, **it.proof},
        ),
        Line(
            "saga.speed",
            "saga",
            f"likewise, {LANES} in flight",
            n / seconds,
            "/s",
            (Limit("LMDB appends, same bytes", n / lmdb, seconds / lmdb),),
            note=f"{n:,} in {seconds:.2f} s, {len(records) / n:.2f} commits and {sum(records) / n:,.0f} bytes each",
            detail={"n": n, "seconds": seconds, "lmdb_seconds": lmdb, "commits": len(records), **it.proof},
        ),
    ]


SAGAS: dict[str, Callable[[Bed], list[Line]]] = {"SAGA": sagas}
