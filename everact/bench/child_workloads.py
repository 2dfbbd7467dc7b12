"""One parent of many children, and whether a child costs more when there are more of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter

from .bare import in_lanes
from .bed import Bed, Measured, check_completed, measured
from .report import Limit, Line
from .user_code import Tree
from .workloads import LMDB

#: Children of the one parent, and rounds with a tenth of them.
CHILDREN = 10_000
ROUNDS = 5

# Targets, for two processors and durable commits.
CHILDREN_PER_S = 5_000
GROWTH = 1.5  # a child among all of them, beside one among a tenth


def children(bed: Bed) -> list[Line]:
    """One parent that starts 10,000 children at once and waits for all of them."""
    return bed.run(_children(bed))


async def _children(bed: Bed) -> list[Line]:
    n = bed.count(CHILDREN, least=50)
    few = max(5, n // 10)
    async with measured(bed, "children") as it:
        await in_lanes(2, 1, lambda: it.runtime.execute(Tree, few))
        small = statistics.median([(await _one(it, few))[0] for _ in range(ROUNDS)]) / few
        seconds, records = await _one(it, n)
    check_completed(it, (2 + ROUNDS) * (few + 1) + n + 1)
    with bed.bare_log() as log:
        lmdb = statistics.median(log.replay(records) for _ in range(3))
    rate = n / seconds
    growth = seconds / n / small
    detail = {"n": n, "seconds": seconds, "lmdb_seconds": lmdb, "growth": growth, **it.proof}
    return [
        Line(
            "children.speed",
            "children",
            f"children of one parent, {n:,} at once",
            rate,
            "/s",
            (Limit(LMDB, n / lmdb, seconds / lmdb),),
            f"{CHILDREN_PER_S:,}/s",
            rate >= CHILDREN_PER_S,
            f"{seconds:.2f} s, {len(records):,} commits",
            detail,
        ),
        Line(
            "children.growth",
            "children",
            f"a child among {n:,}, beside one among {few:,}",
            growth,
            "x",
            (),
            f"at most {GROWTH:g} x",
            growth <= GROWTH,
            f"{seconds / n * 1e6:.0f} us and {small * 1e6:.0f} us a child",
            detail,
        ),
    ]


async def _one(it: Measured, count: int) -> tuple[float, list[int]]:
    """Seconds of a parent with so many children, and the sizes of its commit records."""
    mark = len(it.store.sizes)
    began = perf_counter()
    await it.runtime.execute(Tree, count)
    return perf_counter() - began, it.store.sizes[mark:].tolist()


CHILD_WORKLOADS: dict[str, Callable[[Bed], list[Line]]] = {"children": children}
