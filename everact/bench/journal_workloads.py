"""The journal alone: how fast it takes turns, what it writes for them, and what stays flat as it grows."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from time import perf_counter, sleep

from ..journal import compaction
from ..journal.lmdb_store import LmdbStore
from ..journal.loading import load
from .bed import Bed
from .journal_load import BATCH, JournalLoad, file_bytes, written_bytes
from .report import Limit, Line, quantile

#: Active runs, and events written with each.
ACTIVE = (100, 10_000, 200_000)
EVENTS = 1_000_000
#: No segment gets so large: nothing is moved.
NEVER = 1 << 60

#: The load of J2.
TURNS_A_SECOND = 20_000

# Targets.
LATENCY_RATIO = 2.0
FLAT_RATIO = 1.2
FILE_RATIO = 3.0


def _drain(commits: Iterable[int]) -> None:
    for _ in commits:
        pass


def appends(bed: Bed) -> list[Line]:
    """J1: events a second and bytes written per event byte, with and without compaction."""
    lines: list[Line] = []
    window = compaction.WINDOW
    for active in ACTIVE:
        figures = {}
        for name, size in (("without", NEVER), ("with", window)):
            compaction.WINDOW = size
            try:
                figures[name] = _appends(bed, active)
            finally:
                compaction.WINDOW = window
        (rate, amplification, bare), (plain_rate, plain_amplification, _) = (
            figures["with"],
            figures["without"],
        )
        lines.append(
            Line(
                f"J1.{active}",
                "J1",
                f"appends, {active:,} active runs",
                rate,
                "events/s",
                (
                    Limit("LMDB appends, same bytes", bare, bare / rate),
                    Limit("without compaction", plain_rate, plain_rate / rate),
                ),
                note=f"{amplification:.2f} bytes written per event byte; without compaction {plain_amplification:.2f}",
                detail={"written_per_byte": amplification, "written_per_byte_without": plain_amplification},
            )
        )
    return lines


def _appends(bed: Bed, active: int) -> tuple[float, float, float]:
    """Events a second, bytes written per event byte, and events a second of bare commits of the same records."""
    it = JournalLoad(bed.path(f"J1-{active}"), active)
    try:
        events = bed.count(EVENTS, least=20_000)
        if compaction.WINDOW != NEVER:  # into the steady state: every run was moved before
            _drain(it.run(min(events, 100_000) if active < 50_000 else bed.count(14 * active, least=1)))
        seconds, before, at, disk = it.seconds, it.events, it.event_bytes, written_bytes()
        gc.collect()
        _drain(it.run(events))
        written = written_bytes()
        spent, done, size = it.seconds - seconds, it.events - before, it.event_bytes - at
        amplification = (written - disk) / size if written is not None and disk is not None else 0.0
        record = size // (done // (2 * min(BATCH, active)))
        with bed.bare_log() as log:
            bare = log.replay([record // 3] * 200) / 200  # zstd makes a third of them
        return done / spent, amplification, 2 * min(BATCH, active) / bare
    finally:
        it.close()


def latency(bed: Bed) -> list[Line]:
    """J2: commits of 50 turns while the log is moved, and while it is not; as many turns as a busy runtime makes."""
    it = JournalLoad(bed.path("J2"), 10_000)
    try:
        due = perf_counter()
        for _ in it.run(bed.count(EVENTS, least=20_000), 50):
            now = perf_counter()
            due = max(due + 50 / TURNS_A_SECOND, now)
            sleep(due - now)
        moving = [seconds * 1e3 for seconds, moves in it.latencies[200:] if moves]
        idle = [seconds * 1e3 for seconds, moves in it.latencies[200:] if not moves]
    finally:
        it.close()
    if not moving or not idle:
        return []
    lines: list[Line] = []
    for q in (0.5, 0.99):
        ours, limit = quantile(moving, q), quantile(idle, q)
        lines.append(
            Line(
                f"J2.p{round(q * 100)}",
                "J2",
                f"commit of 50 turns, {TURNS_A_SECOND:,} a second, while compacting, p{round(q * 100)}",
                ours,
                "ms",
                (Limit("the same while not compacting", limit, ours / limit),),
                f"ratio {LATENCY_RATIO}" if q > 0.9 else "",
                ours / limit <= LATENCY_RATIO if q > 0.9 else None,
                f"{len(moving)} commits, {len(idle)} idle ones",
            )
        )
    return lines


def start_up(bed: Bed) -> list[Line]:
    """J3: what start-up reads takes as long as the log that is left, not as the journal."""
    lines: list[Line] = []
    for events in (20_000, 200_000, 1_000_000):
        path = bed.path(f"J3-{events}")
        it = JournalLoad(path, 1_000)
        _drain(it.run(bed.count(events, least=2_000)))
        left = sum(len(row) for row in it.index.rows.values())
        total = it.events
        it.close()
        best = min(_load_seconds(path) for _ in range(3))
        lines.append(
            Line(
                f"J3.{events}",
                "J3",
                f"start-up, journal of {total:,} events",
                best * 1e3,
                "ms",
                note=f"{left:,} turns left in the log, {left / best:,.0f} turns/s",
                detail={"turns_in_log": left, "events": total},
            )
        )
    return lines


def _load_seconds(path: object) -> float:
    store = LmdbStore(str(path))
    try:
        began = perf_counter()
        load(store)
        return perf_counter() - began
    finally:
        store.close()


def reading(bed: Bed) -> list[Line]:
    """J4: reading the history of a run of 2,000 events, from the log and from the histories."""
    it = JournalLoad(bed.path("J4"), 1_000)
    window = compaction.WINDOW
    try:
        key = it.keys[0]
        compaction.WINDOW = NEVER
        it.index.crowded = _Never()
        for _ in range(1_000):
            it.commit([it.turn(key), *it.batch(20)] if key not in it.keys[1:21] else [it.turn(key)])
        row = it.index.rows[key]
        scattered = _read_seconds(it, key)
        it.index.crowded = [key]
        it.compactor.reads_here = True
        while len(row):  # until it was moved
            it.commit([it.turn(it.keys[5])])
        histories = _read_seconds(it, key)
    finally:
        compaction.WINDOW = window
        it.close()
    return [
        Line(
            "J4.history",
            "J4",
            "history of 2,000 events, read",
            histories * 1e3,
            "ms",
            (Limit("from 1,000 records of the log", scattered * 1e3, histories / scattered),),
        )
    ]


class _Never(list[int]):
    """Takes no note of crowded runs."""

    def append(self, key: int) -> None:
        pass


def _read_seconds(it: JournalLoad, key: int) -> float:
    best = 1e9
    for _ in range(5):
        it.store._cache.clear()
        began = perf_counter()
        entries = it.index.entries(it.index.rows[key])
        best = min(best, perf_counter() - began)
        assert len(entries) >= 1_000
    return best


def growth(bed: Bed) -> list[Line]:
    """J5: a commit of one turn costs the same at 50 thousand and at 5 million events; the file stays in bounds."""
    it = JournalLoad(bed.path("J5"), 2_000)
    first, last = bed.count(50_000, least=5_000), bed.count(5_000_000, least=50_000)
    worst = 0.0
    try:
        small = _grown(it, first)
        while it.events < last:
            # Runs end and others begin: five turns each.
            turns = [it.end(it._rng.randrange(len(it.keys))) for _ in range(20)]
            started = [it.start() for _ in range(20)]
            it.commit([*turns, *started, *it.batch(100)])
            if len(it.latencies) % 500 == 0:
                worst = max(worst, file_bytes(it.path) / it.store.space().used)
        large = _grown(it, it.events)
        size, live, events = file_bytes(it.path), it.store.space().used, it.events
    finally:
        it.close()
    return [
        Line(
            "J5.step",
            "J5",
            f"commit of one turn at {events:,} events, p50",
            large,
            "ms",
            (Limit(f"at {first:,} events", small, large / small),),
            f"ratio {FLAT_RATIO}",
            large / small <= FLAT_RATIO,
        ),
        Line(
            "J5.file",
            "J5",
            f"data file after {events:,} events",
            size / 2**20,
            "MiB",
            (Limit("pages in use", live / 2**20, size / live),),
            f"ratio {FILE_RATIO} at every moment",
            worst <= FILE_RATIO,
            f"largest ratio on the way {worst:.2f}",
        ),
    ]


def _grown(it: JournalLoad, events: int) -> float:
    if it.events < events:
        _drain(it.run(events - it.events))
    while it.compactor.is_moving:  # what that costs is J2's
        it.commit(it.batch(BATCH))
    mark = len(it.latencies)
    for _ in range(500):
        it.commit(it.batch(1))
    return quantile([seconds * 1e3 for seconds, _ in it.latencies[mark:]], 0.5)


#: By name.
JOURNAL: dict[str, Callable[[Bed], list[Line]]] = {
    "J1": appends,
    "J2": latency,
    "J3": start_up,
    "J4": reading,
    "J5": growth,
}
