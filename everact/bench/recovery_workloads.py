"""What comes after a kill, and what waiting costs: W7, W8, replay and restart."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any

from ..actors.definitions import activity_definition, workflow_definition
from ..actors.replay import replay
from ..actors.workflow_instance import WorkflowInstance
from ..journal import events as ev
from ..journal.lmdb_store import LmdbStore
from ..journal.loading import load
from ..journal.payloads import PayloadConverter
from .bed import Bed, LostRunsError
from .report import Limit, Line
from .user_code import ACTIVITIES, Counter

#: Steps of the run that a killed process leaves; runs whose memory is measured, and that a restart finds.
HISTORY = 2_000
WAITING = 100_000
TIMEOUT = 300.0

# Targets, for two processors.
ANSWER_S = 0.3  # beyond the start of a process
EVENTS_PER_S = 100_000
ACTIVE_KIB = 8.0
PASSIVE_KIB = 1.0
RESTART_S = 5.0


class Child:
    """A process of ``child.py``, and what it says."""

    def __init__(self, mode: str, journal: Path, n: int) -> None:
        self.began = time.time()
        command = [sys.executable, "-m", "everact.bench.child", mode, str(journal), str(n)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603

    def says(self) -> dict[str, Any]:
        """Its next line.

        Raises:
            LostRunsError: It has ended instead.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise LostRunsError(f"a child process ended with code {self._process.wait(TIMEOUT)}")
        found: dict[str, Any] = json.loads(line)
        return found

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait(TIMEOUT)

    def end(self) -> None:
        """Wait for its end.

        Raises:
            LostRunsError: It has failed.
        """
        if self._process.wait(TIMEOUT) != 0:
            raise LostRunsError(f"a child process ended with code {self._process.returncode}")

    def close(self) -> None:
        """Let go of it."""
        if self._process.poll() is None:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _answer(mode: str, journal: Path) -> float:
    """Seconds from the start of a process to its answer."""
    with closing(Child(mode, journal, 0)) as child:
        found = child.says()
        while "answered" not in found:
            found = child.says()
        child.end()
    return float(found["at"]) - child.began


def after_kill(bed: Bed) -> list[Line]:
    """W7: a process with a long run is killed; how long until the next one answers for it."""
    steps = bed.count(HISTORY, least=50)
    rounds = bed.count(5, least=1)
    ours: list[float] = []
    start: list[float] = []
    journal = bed.place
    for number in range(rounds):
        journal = bed.path(f"W7-{number}")
        with closing(Child("history", journal, steps)) as child:
            child.says()
            child.kill()
        start.append(_answer("nothing", journal))
        ours.append(_answer("answer", journal))
    value, limit = statistics.median(ours), statistics.median(start)
    goal = limit + ANSWER_S
    return [
        Line(
            "W7.answer",
            "W7",
            f"kill -9 with a run of {steps:,} steps: from the new process to its answer",
            value * 1e3,
            "ms",
            (Limit("a process that imports it and begins", limit * 1e3, value / limit),),
            f"{goal * 1e3:.0f} ms (start + {ANSWER_S * 1e3:.0f})",
            value <= goal,
            f"median of {rounds}, {(value - limit) * 1e3:+.0f} ms",
            {"steps": steps, "rounds": rounds, "difference_ms": (value - limit) * 1e3},
        ),
        _replay(bed, journal, steps),
    ]


def _replay(bed: Bed, journal: Path, steps: int) -> Line:
    """Events a second of the replay of that run."""
    with closing(LmdbStore(journal, read_only=True)) as store:
        runs = load(store).runs
        row = runs.find("the-run")
        if row is None:
            raise LostRunsError(f"the journal {journal} does not hold the run of {steps:,} steps")
        entries = runs.entries(row)
    definition = workflow_definition(Counter)
    activities = {it.name: it for it in map(activity_definition, ACTIVITIES)}
    seconds: list[float] = []
    decoding: list[float] = []
    events = 0
    for _ in range(bed.count(7, least=2)):
        began = perf_counter()
        records = [(entry.at, ev.decode_record(entry.body)) for entry in entries]
        decoding.append(perf_counter() - began)
        events = sum(len(ev.events_of(record)) for _, record in records)
        instance = WorkflowInstance(definition, activities, PayloadConverter())
        began = perf_counter()
        replay(instance, records)
        seconds.append(perf_counter() - began)
    value, limit = statistics.median(seconds), statistics.median(decoding)
    rate = events / value
    return Line(
        "W7.replay",
        "W7",
        f"replay of {events:,} events",
        rate,
        "events/s",
        (Limit("decoding them", events / limit, value / limit),),
        f"{EVENTS_PER_S:,}/s",
        rate >= EVENTS_PER_S,
        f"{value * 1e3:.1f} ms",
        {"events": events},
    )


def memory(bed: Bed) -> list[Line]:
    """W8: what a waiting run takes of memory, with its code and without; and a start that finds all of them."""
    n = bed.count(WAITING, least=1_000)
    lines: list[Line] = []
    for mode, what, goal in (
        ("waiting", "with its code", ACTIVE_KIB),
        ("passive", "without its code", PASSIVE_KIB),
    ):
        journal = bed.path(f"W8-{mode}")
        with closing(Child(mode, journal, n)) as child:
            value = child.says()["kib"] / n
            child.end()
        lines.append(
            Line(
                f"W8.{mode}",
                "W8",
                f"memory of a waiting run {what}",
                value,
                "KiB",
                target=f"{goal:g} KiB",
                reached=value <= goal,
                note=f"RssAnon of {n:,}",
                detail={"n": n},
            )
        )
    with closing(Child("restart", journal, n)) as child:
        found = child.says()
        child.end()
    if found["running"] != n:
        raise LostRunsError(f"the journal {journal} holds {found['running']} waiting runs, not {n}")
    with closing(LmdbStore(journal, read_only=True)) as store:
        began = perf_counter()
        records = sum(1 for _ in store.scan())
        scan = perf_counter() - began
    lines.append(
        Line(
            "W8.restart",
            "W8",
            f"start with {n:,} waiting runs",
            found["seconds"] * 1e3,
            "ms",
            (Limit("reading the log that is left", scan * 1e3, found["seconds"] / scan),),
            f"{RESTART_S:g} s",
            found["seconds"] <= RESTART_S,
            f"{records:,} commit records in the log, {found['kib'] / 1024:.0f} MiB RssAnon afterwards",
            {"n": n},
        )
    )
    return lines


RECOVERY: dict[str, Callable[[Bed], list[Line]]] = {"W7": after_kill, "W8": memory}
