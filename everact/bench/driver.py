"""Runs the workloads and prints what they found."""

from __future__ import annotations

import cProfile
import dataclasses
import json
import math
import pstats
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import machine, recorded
from .bed import Bed, LostRunsError
from .chain_workloads import CHAINS
from .child_workloads import CHILD_WORKLOADS
from .journal_workloads import JOURNAL
from .kit_workloads import KIT
from .message_workloads import MESSAGES
from .peer_dbos import measure_dbos
from .recovery_workloads import RECOVERY
from .report import Line, median_lines, quantile, table
from .saga_workloads import SAGAS
from .timer_workloads import TIMERS
from .workloads import WORKLOADS as FIRST

WORKLOADS = FIRST | MESSAGES | RECOVERY | CHILD_WORKLOADS
#: What is measured when it is named.
NAMED = TIMERS | SAGAS | CHAINS | KIT | JOURNAL

#: Bytes of the commits whose latency is shown first: about what one step of one run writes.
SAMPLE_BYTES = 300

#: Bare commits that are so many times slower or faster after the run than before make it doubtful.
UNSTEADY = 1.5


def main(  # noqa: PLR0917  (the command line calls it by keyword)
    scale: float = 1.0,
    only: str | None = None,
    json_file: str | None = None,
    journal: str | None = None,
    uvloop: bool = True,
    repeat: int = 1,
    profile: str | None = None,
    *,
    record: str | None = None,
    check: str | None = None,
    peers: bool = False,
    keep: bool = False,
) -> int:
    """Measure this machine: workflows and steps, beside the bare limits of its disk and interpreter.

    Args:
        scale: Multiplies the counts.
        only: Names of workloads with commas between them, or ``journal``; default all but that.
        json_file: Where all figures are written.
        journal: A directory on the disk to measure; made if missing. Default the temporary files' disk.
        uvloop: Use uvloop where it is installed.
        repeat: How often each workload runs; the figures are those of the median run.
        profile: Where cProfile's figures of the loop's thread in W2 and W3 are written. Those slow down.
        record: Where the ratios of this run are written, for ``check``.
        check: Recorded ratios; a figure below 0.8 of its recorded one is named, and the exit code is 1.
        peers: Measure DBOS on SQLite too, if it is installed.
        keep: Leave the journals where they are.

    Returns:
        The exit code: 0, or 1 when a journal does not hold what was run, or a figure has fallen.

    Raises:
        ValueError: An argument is out of its range.
    """
    if not math.isfinite(scale) or scale <= 0:
        raise ValueError(f"scale must be a positive number, not {scale}")
    if repeat < 1:
        raise ValueError(f"repeat must be 1 or more, not {repeat}")
    names = _names(only)
    before = recorded.read(Path(check)) if check is not None else {}
    parent = Path(journal) if journal is not None else machine.default_place()
    parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="everact-bench-", dir=parent))
    profiler = cProfile.Profile() if profile is not None else None
    bed = Bed(place, scale=scale, uvloop=uvloop, profile=profiler)
    try:
        about = _about(bed)
        lines = _measure(bed, names, repeat)
        if peers:
            lines += _peers(bed, names, lines)
        _look_again(bed, about)
    except LostRunsError as error:
        _say(f"FAILED: {error}")
        return 1
    finally:
        if keep:
            _say(f"journals kept in {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)
    _say("")
    _say(table(lines))
    _say("")
    _say("ratio: our time over the time of the bare limit, measured in the same run; 1 is the limit itself")
    if json_file is not None:
        options = {
            "scale": scale,
            "only": names,
            "uvloop": uvloop,
            "repeat": repeat,
            "profiled": profile is not None,
        }
        found: dict[str, Any] = {
            "machine": about,
            "options": options,
            "lines": [dataclasses.asdict(line) for line in lines],
        }
        Path(json_file).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if record is not None:
        recorded.write(Path(record), lines)
    if profiler is not None and profile is not None:
        profiler.dump_stats(profile)
        _say("")
        _say("the profiler was on: no figure above is valid")
        pstats.Stats(profiler, stream=sys.stdout).sort_stats("tottime").print_stats(25)
    slower = recorded.fallen(lines, before)
    for text in slower:
        _say(f"FALLEN: {text}")
    return 1 if slower else 0


def _names(only: str | None) -> list[str]:
    if only is None:
        return list(WORKLOADS)
    asked = [name.strip().upper() for name in only.split(",")]
    if asked == ["JOURNAL"]:
        return list(JOURNAL)
    known = {name.upper(): name for name in (*WORKLOADS, *NAMED)}
    for name in asked:
        if name not in known:
            names = ", ".join(known.values())
            raise ValueError(f"there is no workload {name!r}; there are {names}, and 'journal' for all of J")
    return [known[name] for name in asked]


def _about(bed: Bed) -> dict[str, Any]:
    """Facts of the machine and the latency of a bare commit; printed at once."""
    with bed.bare_log() as log:
        flags = log.flags
    about = machine.facts(bed.place, bed.loop_name, flags)
    about["bare_commit"] = _bare_commit(bed)
    about["when"] = time.strftime("%Y-%m-%d %H:%M:%S %z")
    for line in machine.describe(about):
        _say(line)
    _say(_pace("bare commit", about["bare_commit"]))
    _say("")
    return about


def _bare_commit(bed: Bed) -> dict[str, float]:
    with bed.bare_log() as log:
        log.latencies(SAMPLE_BYTES, 20)
        seconds = log.latencies(SAMPLE_BYTES, bed.count(400, least=50))
    p50, p99 = quantile(seconds, 0.5) * 1e3, quantile(seconds, 0.99) * 1e3
    return {"n": len(seconds), "bytes": SAMPLE_BYTES, "p50_ms": p50, "p99_ms": p99}


def _pace(when: str, found: dict[str, float]) -> str:
    of = f"{found['n']} LMDB commits of {found['bytes']} bytes"
    return f"{when} p50 {found['p50_ms']:.3f} ms, p99 {found['p99_ms']:.3f} ms ({of})"


def _look_again(bed: Bed, about: dict[str, Any]) -> None:
    """Measure bare commits again: a disk that changes its pace makes figures that mean little."""
    before, after = about["bare_commit"]["p50_ms"], _bare_commit(bed)
    about["bare_commit_after"] = after
    about["steady"] = 1 / UNSTEADY < after["p50_ms"] / before < UNSTEADY
    _say("")
    _say(_pace("bare commit afterwards", after))
    if not about["steady"]:
        _say("WARNING: the disk has changed its pace: measure again, when nothing else runs")


def _measure(bed: Bed, names: Sequence[str], repeat: int) -> list[Line]:
    lines: list[Line] = []
    for name in names:
        found = median_lines([(WORKLOADS | NAMED)[name](bed) for _ in range(repeat)])
        for line in found:
            _say(line.text())
        lines += found
    return lines


def _peers(bed: Bed, names: Sequence[str], ours: Sequence[Line]) -> list[Line]:
    """Another engine on the same disk, each line with its distance to ours."""
    found = measure_dbos(bed, names)
    if found is None:
        _say("peers: dbos is not installed in this environment")
        return []
    by_key = {line.key: line for line in ours}
    lines: list[Line] = []
    for line in found:
        mine = by_key[line.key.removeprefix("dbos.")]
        faster = line.value / mine.value if line.unit == "ms" else mine.value / line.value
        lines.append(dataclasses.replace(line, note=f"{line.note}; everact is {faster:.1f} x as fast"))
        _say(lines[-1].text())
    return lines


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
