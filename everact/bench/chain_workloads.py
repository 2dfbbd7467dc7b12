"""Runs that continue as new, many in a row; and whether a run costs more when there have been many before."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter

from .bed import Bed, Measured, check_completed, measured
from .report import Limit, Line
from .user_code import Hops
from .workloads import LMDB

#: Runs of the one chain, and rounds of a tenth of them.
RUNS = 10_000
ROUNDS = 5

# Targets, for two processors and durable commits.
RUNS_PER_S = 5_000
GROWTH = 1.5  # a run of all of them, beside one of a tenth


def continue_as_new(bed: Bed) -> list[Line]:
    """One workflow that continues as new 10,000 times in a row."""
    return bed.run(_continue_as_new(bed))


async def _continue_as_new(bed: Bed) -> list[Line]:
    n = bed.count(RUNS, least=50)
    few = max(5, n // 10)
    async with measured(bed, "continue") as it:
        await _one(it, few)
        small = statistics.median([(await _one(it, few))[0] for _ in range(ROUNDS)]) / few
        seconds, records = await _one(it, n)
    check_completed(it, ROUNDS + 2)
    with bed.bare_log() as log:
        lmdb = statistics.median(log.replay(records) for _ in range(3))
    rate, growth = n / seconds, seconds / n / small
    detail = {"n": n, "seconds": seconds, "lmdb_seconds": lmdb, "growth": growth, **it.proof}
    return [
        Line(
            "continue.speed",
            "continue",
            f"continue-as-new, {n:,} in a row",
            rate,
            "/s",
            (Limit(LMDB, n / lmdb, seconds / lmdb),),
            f"{RUNS_PER_S:,}/s",
            rate >= RUNS_PER_S,
            f"{seconds:.2f} s, {len(records):,} commits",
            detail,
        ),
        Line(
            "continue.growth",
            "continue",
            f"a run of {n:,} in a row, beside one of {few:,}",
            growth,
            "x",
            (),
            f"at most {GROWTH:g} x",
            growth <= GROWTH,
            f"{seconds / n * 1e6:.0f} us and {small * 1e6:.0f} us a run",
            detail,
        ),
    ]


async def _one(it: Measured, count: int) -> tuple[float, list[int]]:
    """Seconds of a chain of so many runs, and the sizes of its commit records."""
    mark = len(it.store.sizes)
    began = perf_counter()
    await it.runtime.execute(Hops, count - 1)
    return perf_counter() - began, it.store.sizes[mark:].tolist()


CHAINS: dict[str, Callable[[Bed], list[Line]]] = {"CONTINUE": continue_as_new}
