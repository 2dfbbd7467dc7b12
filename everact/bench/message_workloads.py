"""Many steps at once, messages, and timers: W4 to W6 of the comparison of engines."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from time import perf_counter

from .bare import in_lanes
from .bed import Bed, check_completed, measured
from .report import Limit, Line, quantile
from .user_code import Counter, Fan, Nap
from .workloads import LMDB

#: Steps at once in W4; lanes that send signals to one run in W5; runs that sleep in W6.
WIDTH = 500
SENDERS = 100
SLEEPERS = 2_000

# Targets, for two processors and durable commits.
FAN_MS = 30.0
SIGNAL_MS = 0.3  # beyond one bare commit
SIGNALS_PER_S = 20_000
LATE_MS = 50.0


def parallel(bed: Bed) -> list[Line]:
    """W4: one workflow that waits for 500 steps at once."""
    return bed.run(_parallel(bed))


async def _parallel(bed: Bed) -> list[Line]:
    rounds = bed.count(15, least=3)
    ours: list[float] = []
    ratios: list[float] = []
    async with measured(bed, "W4") as it:
        await it.runtime.execute(Fan, WIDTH)
        with bed.bare_log() as log:
            for _ in range(rounds):
                mark = len(it.store.sizes)
                began = perf_counter()
                await it.runtime.execute(Fan, WIDTH)
                ours.append(perf_counter() - began)
                ratios.append(ours[-1] / log.replay(it.store.sizes[mark:].tolist()))
    check_completed(it, rounds + 1)
    value, ratio = statistics.median(ours) * 1e3, statistics.median(ratios)
    return [
        Line(
            "W4.parallel",
            "W4",
            f"{WIDTH} parallel steps of one run",
            value,
            "ms",
            (Limit(LMDB, value / ratio, ratio),),
            f"{FAN_MS:g} ms",
            value <= FAN_MS,
            f"median of {rounds}, p90 {quantile(ours, 0.9) * 1e3:.1f} ms",
            {"n": WIDTH, "rounds": rounds, **it.proof},
        )
    ]


def messages(bed: Bed) -> list[Line]:
    """W5: a signal until a query shows it, an update, and many signals into one run."""
    return [*bed.run(_one_by_one(bed)), bed.run(_signals(bed))]


async def _one_by_one(bed: Bed) -> list[Line]:
    n = bed.count(400, least=20)
    seen: list[float] = []
    answered: list[float] = []
    bare: list[float] = []
    async with measured(bed, "W5") as it:
        run = await it.runtime.spawn(Counter, 0, 2 * n)
        with bed.bare_log() as log:
            for number in range(n):
                began = perf_counter()
                await run.signal(Counter.add)
                while await run.query(Counter.total) <= 2 * number:
                    pass
                seen.append(perf_counter() - began)
                bare.append(log.replay(it.store.sizes[-1:].tolist()))
                began = perf_counter()
                await run.execute_update(Counter.add_and_tell)
                answered.append(perf_counter() - began)
        await run.result()
    check_completed(it, 1)
    limit = statistics.median(bare) * 1e3
    lines: list[Line] = []
    for key, what, seconds in (
        ("signal", "a signal, until a query shows it, p50", seen),
        ("update", "an update, p50", answered),
    ):
        value = statistics.median(seconds) * 1e3
        goal = limit + SIGNAL_MS
        lines.append(
            Line(
                f"W5.{key}",
                "W5",
                what,
                value,
                "ms",
                (Limit("LMDB commit, same bytes", limit, value / limit),),
                f"{goal:.3f} ms (bare + {SIGNAL_MS})",
                value <= goal,
                f"p90 {quantile(seconds, 0.9) * 1e3:.3f} ms",
                {"n": n, "difference_ms": value - limit, **it.proof},
            )
        )
    return lines


async def _signals(bed: Bed) -> Line:
    n = bed.count(40_000, least=500)
    async with measured(bed, "W5-many") as it:
        run = await it.runtime.spawn(Counter, 0, n)
        mark = len(it.store.sizes)
        began = perf_counter()
        await in_lanes(n, SENDERS, lambda: run.signal(Counter.add))
        await run.result()
        seconds = perf_counter() - began
        records = it.store.sizes[mark:].tolist()
    check_completed(it, 1)
    with bed.bare_log() as log:
        lmdb = statistics.median(log.replay(records) for _ in range(3))
    rate = n / seconds
    return Line(
        "W5.signals",
        "W5",
        f"signals into one run from {SENDERS} lanes, until it has ended",
        rate,
        "/s",
        (Limit(LMDB, n / lmdb, seconds / lmdb),),
        f"{SIGNALS_PER_S:,}/s",
        rate >= SIGNALS_PER_S,
        f"{n:,} in {seconds:.2f} s, {len(records):,} commits",
        {"n": n, "lanes": SENDERS, "seconds": seconds, **it.proof},
    )


def timers(bed: Bed) -> list[Line]:
    """W6: many runs that sleep a second."""
    return bed.run(_timers(bed))


async def _timers(bed: Bed) -> list[Line]:
    n = bed.count(SLEEPERS, least=100)
    late: list[float] = []

    async with measured(bed, "W6") as it:

        async def nap() -> None:
            late.append(await it.runtime.execute(Nap, 1.0))

        await in_lanes(n, n, nap)
    check_completed(it, n)
    loop = asyncio.get_running_loop()
    bare: list[float] = []

    async def plain() -> None:
        began = loop.time()
        await asyncio.sleep(1.0)
        bare.append(loop.time() - began - 1.0)

    await in_lanes(n, n, plain)
    value, limit = quantile(late, 0.99) * 1e3, max(quantile(bare, 0.99) * 1e3, 1e-3)
    return [
        Line(
            "W6.lateness",
            "W6",
            f"{n:,} runs sleep 1 s: lateness, p99",
            value,
            "ms",
            (Limit("asyncio.sleep, as many", limit, value / limit),),
            f"{LATE_MS:g} ms",
            value <= LATE_MS,
            f"p50 {quantile(late, 0.5) * 1e3:.1f} ms, from {min(late) * 1e3:.1f} to {max(late) * 1e3:.1f} ms",
            {"n": n, **it.proof},
        )
    ]


MESSAGES: dict[str, Callable[[Bed], list[Line]]] = {"W4": parallel, "W5": messages, "W6": timers}
