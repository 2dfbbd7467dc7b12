"""The same workloads on DBOS with SQLite, through its public API, where it is installed."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any

from .bare import in_lanes
from .bed import Bed
from .report import Line, quantile
from .workloads import AT_ONCE, LANES, STEPS

Run = Callable[[int], Awaitable[object]]


def measure_dbos(bed: Bed, names: Sequence[str]) -> list[Line] | None:
    """Run these workloads on DBOS; None where it is not installed."""
    try:
        dbos: Any = importlib.import_module("dbos")
    except ImportError:
        return None
    return bed.run(_measure(bed, dbos.DBOS, f"DBOS {importlib.metadata.version('dbos')}, SQLite", names))


async def _measure(bed: Bed, dbos: Any, title: str, names: Sequence[str]) -> list[Line]:
    async def noop(i: int) -> int:
        return i

    step = dbos.step()(noop)

    async def steps(n: int) -> int:
        for i in range(n):
            await step(i)
        return n

    workflow = dbos.workflow()(steps)
    path = bed.path("dbos")
    path.mkdir()
    dbos(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{path / 'dbos.sqlite'}",
            "log_level": "ERROR",
        }
    )
    await asyncio.to_thread(dbos.launch)

    async def run(n: int) -> object:
        handle = await dbos.start_workflow_async(workflow, n)
        return await handle.get_result()

    try:
        await in_lanes(20, 10, lambda: run(1))
        lines: list[Line] = []
        for name in names:
            lines += await _WORKLOADS[name](bed, title, run)
        return lines
    finally:
        await asyncio.to_thread(dbos.destroy)


async def _start_to_result(bed: Bed, title: str, run: Run) -> list[Line]:
    latencies: list[float] = []
    for _ in range(bed.count(200, least=20)):
        began = perf_counter()
        await run(1)
        latencies.append(perf_counter() - began)
    p50, p90 = quantile(latencies, 0.5) * 1e3, quantile(latencies, 0.9) * 1e3
    what = f"{title}: start to result, p50"
    return [
        Line("dbos.W1.latency", "W1", what, p50, "ms", note=f"p90 {p90:.3f} ms", detail={"n": len(latencies)})
    ]


async def _loaded(bed: Bed, title: str, run: Run) -> list[Line]:
    n = bed.count(1_000, least=50)
    began = perf_counter()
    await in_lanes(n, LANES, lambda: run(1))
    rate = n / (perf_counter() - began)
    what = f"{title}: workflows, {LANES} in flight"
    return [Line("dbos.W2.speed", "W2", what, rate, "/s", note=f"{n:,} workflows", detail={"n": n})]


async def _steps(bed: Bed, title: str, run: Run) -> list[Line]:
    n = bed.count(AT_ONCE, least=10)
    began = perf_counter()
    await in_lanes(n, n, lambda: run(STEPS))
    rate = n * STEPS / (perf_counter() - began)
    alone = bed.count(200, least=20)
    began = perf_counter()
    await run(alone)
    each = (perf_counter() - began) / alone * 1e3
    return [
        Line(
            "dbos.W3.speed",
            "W3",
            f"{title}: steps, {n} workflows x {STEPS}",
            rate,
            "/s",
            note=f"{n * STEPS:,} steps",
        ),
        Line(
            "dbos.W3.alone",
            "W3 alone",
            f"{title}: a step of one run alone",
            each,
            "ms",
            note=f"{alone} steps",
        ),
    ]


_WORKLOADS: dict[str, Callable[[Bed, str, Run], Awaitable[list[Line]]]] = {
    "W1": _start_to_result,
    "W2": _loaded,
    "W3": _steps,
}
