"""The workloads W1 to W3, as in the comparison of engines, each beside its bare limits."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter, process_time

from .bare import in_lanes
from .bed import Bed, Measured, check_completed, measured
from .report import Limit, Line, quantile
from .user_code import Blocks, Steps, stamps

#: Workflows in flight in W2, and at once in W3.
LANES = 200
AT_ONCE = 100
#: Sequential steps of each workflow in W3, and of a block of the run that is alone.
STEPS = 20

# Targets, for two processors and durable commits.
START_TO_RESULT_MS = 0.2  # beyond each of two bare commits
WORKFLOWS_PER_S = 10_000
STEPS_PER_S = 15_000
STEP_ALONE_MS = 0.15  # beyond one bare commit
COMMITS = {"W1": 2, "W2": 0.05}  # per workflow: one at a time, and loaded

LMDB = "LMDB appends, same bytes"
LOOP = "asyncio, same code"


def start_to_result(bed: Bed) -> list[Line]:
    """W1: start to result, one step, one workflow at a time."""
    return bed.run(_start_to_result(bed))


async def _start_to_result(bed: Bed) -> list[Line]:
    blocks = bed.count(20, least=2)
    each, warm = 10, 20
    n = blocks * each
    ours: list[float] = []
    bare: list[float] = []
    async with measured(bed, "W1") as it:
        runtime, sizes = it.runtime, it.store.sizes
        await in_lanes(warm, 1, lambda: runtime.execute(Steps, 1))
        with bed.bare_log() as log:
            log.replay(sizes)
            mark = len(sizes)
            for number in range(blocks):
                pair = sizes[-2:].tolist()
                if number % 2:
                    bare += [log.replay(pair) for _ in range(each)]
                for _ in range(each):
                    began = perf_counter()
                    await runtime.execute(Steps, 1)
                    ours.append(perf_counter() - began)
                if not number % 2:
                    bare += [log.replay(pair) for _ in range(each)]
        records = sizes[mark:].tolist()
    check_completed(it, n + warm)
    p50, p90 = quantile(ours, 0.5) * 1e3, quantile(ours, 0.9) * 1e3
    limit, limit_p90 = quantile(bare, 0.5) * 1e3, quantile(bare, 0.9) * 1e3
    goal = limit + 2 * START_TO_RESULT_MS
    latency = Line(
        "W1.latency",
        "W1",
        "start to result, 1 step, p50",
        p50,
        "ms",
        (Limit("2 LMDB commits, same bytes", limit, p50 / limit),),
        f"{goal:.3f} ms (bare + 2 x {START_TO_RESULT_MS})",
        p50 <= goal,
        f"p90 {p90:.3f} ms, bare p90 {limit_p90:.3f} ms, difference {p50 - limit:+.3f} ms",
        {
            "n": n,
            "p90": p90,
            "bare_p90": limit_p90,
            "difference_ms": p50 - limit,
            **it.proof,
        },
    )
    return [latency, _commits("W1", "one at a time", n, records, it)]


def _commits(workload: str, how: str, n: int, records: list[int], it: Measured) -> Line:
    """Commits, each of them synced, and bytes for each of ``n`` workflows."""
    most = COMMITS[workload]
    commits = len(records) / n
    size = sum(records) / n
    return Line(
        f"{workload}.commits",
        workload,
        f"commits per workflow, {how}",
        commits,
        "",
        target=f"at most {most:g}",
        reached=commits <= most,
        note=f"{size:,.0f} bytes of records per workflow, {sum(records) / len(records):,.0f} per commit",
        detail={
            "n": n,
            "commits": len(records),
            "record_bytes": sum(records),
            "record_bytes_per_workflow": size,
            "file_bytes": it.file_bytes,
        },
    )


class _Section:
    """Times a section: wall clock, processor time, commits."""

    def __init__(self, it: Measured) -> None:
        self._it = it
        self._mark = len(it.store.sizes)
        self._busy = it.store.busy
        self._cpu = process_time()
        self._began = perf_counter()

    def end(self) -> None:
        """Stop the clocks."""
        self.seconds = perf_counter() - self._began
        self.cores = (process_time() - self._cpu) / self.seconds
        self.writing = (self._it.store.busy - self._busy) / self.seconds
        self.records = self._it.store.sizes[self._mark :].tolist()


async def _plain(n: int, lanes: int, each: int) -> float:
    """Seconds of the same calls without a runtime."""
    began = perf_counter()
    await in_lanes(n, lanes, lambda: Steps().run(each))
    return perf_counter() - began


def loaded(bed: Bed) -> list[Line]:
    """W2: workflows of one step, 200 in flight."""
    return bed.run(_loaded(bed))


async def _loaded(bed: Bed) -> list[Line]:
    n = bed.count(20_000, least=200)
    warm = min(n, 2 * LANES)
    async with measured(bed, "W2") as it:
        runtime = it.runtime
        await in_lanes(warm, LANES, lambda: runtime.execute(Steps, 1))
        with bed.profiled():
            section = _Section(it)
            await in_lanes(n, LANES, lambda: runtime.execute(Steps, 1))
            section.end()
    check_completed(it, n + warm)
    with bed.bare_log() as log:
        lmdb = statistics.median(log.replay(section.records) for _ in range(3))
    loop = statistics.median([await _plain(n, LANES, 1) for _ in range(3)])
    rate = n / section.seconds
    speed = Line(
        "W2.speed",
        "W2",
        f"workflows, 1 step, {LANES} in flight",
        rate,
        "/s",
        (Limit(LMDB, n / lmdb, section.seconds / lmdb), Limit(LOOP, n / loop, section.seconds / loop)),
        f"{WORKFLOWS_PER_S:,}/s",
        rate >= WORKFLOWS_PER_S,
        f"{n:,} in {section.seconds:.2f} s, {section.cores:.2f} cores, "
        f"writer busy {section.writing:.0%}; LMDB {lmdb:.3f} s, asyncio {loop:.3f} s",
        {
            "n": n,
            "in_flight": LANES,
            "seconds": section.seconds,
            "lmdb_seconds": lmdb,
            "asyncio_seconds": loop,
            "cores": section.cores,
            "writer_busy": section.writing,
            **it.proof,
        },
    )
    return [speed, _commits("W2", f"{LANES} in flight", n, section.records, it)]


def steps(bed: Bed) -> list[Line]:
    """W3: steps of 100 workflows at once; then those of one workflow alone."""
    return [bed.run(_steps_at_once(bed)), bed.run(_steps_alone(bed))]


async def _steps_at_once(bed: Bed) -> Line:
    rounds = bed.count(15, least=3)
    each = AT_ONCE * STEPS
    rates: list[float] = []
    against_lmdb: list[float] = []
    against_loop: list[float] = []
    cores: list[float] = []
    writing: list[float] = []
    commits = 0
    async with measured(bed, "W3") as it:
        runtime = it.runtime
        await in_lanes(AT_ONCE, AT_ONCE, lambda: runtime.execute(Steps, 1))
        with bed.bare_log() as log:
            for _ in range(rounds):
                with bed.profiled():
                    section = _Section(it)
                    await in_lanes(AT_ONCE, AT_ONCE, lambda: runtime.execute(Steps, STEPS))
                    section.end()
                lmdb = log.replay(section.records)
                loop = await _plain(AT_ONCE, AT_ONCE, STEPS)
                rates.append(each / section.seconds)
                against_lmdb.append(section.seconds / lmdb)
                against_loop.append(section.seconds / loop)
                cores.append(section.cores)
                writing.append(section.writing)
                commits += len(section.records)
    check_completed(it, AT_ONCE * (rounds + 1))
    rate = statistics.median(rates)
    lmdb_ratio, loop_ratio = statistics.median(against_lmdb), statistics.median(against_loop)
    return Line(
        "W3.speed",
        "W3",
        f"steps, {AT_ONCE} workflows x {STEPS}",
        rate,
        "/s",
        (Limit(LMDB, rate * lmdb_ratio, lmdb_ratio), Limit(LOOP, rate * loop_ratio, loop_ratio)),
        f"{STEPS_PER_S:,}/s",
        rate >= STEPS_PER_S,
        f"median of {rounds} rounds, p10 {quantile(rates, 0.1):,.0f}, p90 {quantile(rates, 0.9):,.0f}; "
        f"{statistics.median(cores):.2f} cores, writer busy {statistics.median(writing):.0%}, "
        f"{commits / rounds:.1f} commits a round",
        {
            "rounds": rounds,
            "n": AT_ONCE,
            "steps": STEPS,
            "rates": rates,
            "cores": statistics.median(cores),
            "writer_busy": statistics.median(writing),
            "commits_per_round": commits / rounds,
            **it.proof,
        },
    )


async def _steps_alone(bed: Bed) -> Line:
    pairs = bed.count(60, least=5)
    records: list[int] = []
    ours: list[float] = []
    bare: list[float] = []
    async with measured(bed, "W3-alone") as it:
        runtime, written = it.runtime, it.store.sizes
        run = await runtime.spawn(Blocks)

        async def block() -> tuple[float, list[int]]:
            """Seconds a step, and the records of these steps: from the first step's begin to the last one's."""
            stamps.clear()
            mark = len(written)
            await run.ask(Blocks.block, STEPS + 1)
            # The first record is the request with the first call; the last one is the end of the request.
            return (stamps[-1] - stamps[0]) / STEPS, written[mark + 1 : -1].tolist()

        with bed.bare_log() as log:
            for _ in range(3):
                _, records = await block()
                log.replay(records)
            mark = len(written)
            for number in range(pairs):
                if number % 2:
                    bare.append(log.replay(records) / len(records))
                seconds, records = await block()
                ours.append(seconds)
                if not number % 2:
                    bare.append(log.replay(records) / len(records))
            commits = (len(written) - mark - pairs) / (pairs * (STEPS + 1))
        await run.signal(Blocks.stop)
        await run.result()
    check_completed(it, 1)
    differences = [(a - b) * 1e3 for a, b in zip(ours, bare, strict=True)]
    difference = statistics.median(differences)
    value, limit = statistics.median(ours) * 1e3, statistics.median(bare) * 1e3
    low, high = quantile(differences, 0.1), quantile(differences, 0.9)
    return Line(
        "W3.alone",
        "W3 alone",
        "a step of one run alone",
        value,
        "ms",
        (Limit("LMDB commit, same bytes", limit, value / limit),),
        f"bare + {STEP_ALONE_MS} ms",
        difference <= STEP_ALONE_MS,
        f"paired difference {difference:+.3f} ms, p10 {low:+.3f}, p90 {high:+.3f}; {commits:.2f} commits a step, "
        f"{statistics.mean(records):,.0f} bytes each",
        {
            "pairs": pairs,
            "steps": STEPS,
            "difference_ms": difference,
            "difference_p10_ms": low,
            "difference_p90_ms": high,
            "commits_per_step": commits,
            "record_bytes": statistics.mean(records),
            "ours_ms": [x * 1e3 for x in ours],
            "bare_ms": [x * 1e3 for x in bare],
            **it.proof,
        },
    )


WORKLOADS: dict[str, Callable[[Bed], list[Line]]] = {"W1": start_to_result, "W2": loaded, "W3": steps}
