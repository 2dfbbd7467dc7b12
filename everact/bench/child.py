"""What runs in a process of its own: one that is killed and comes back, one whose memory is looked at.

``python -m everact.bench.child WHAT JOURNAL N``; answers are lines of JSON on standard output.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ..actors.runtime import Runtime
from .bare import in_lanes
from .user_code import ACTIVITIES, WORKFLOWS, Counter

#: The run that is asked after the kill.
ID = "the-run"
LANES = 500


def _say(**found: object) -> None:
    sys.stdout.write(json.dumps({"at": time.time(), **found}) + "\n")
    sys.stdout.flush()


def _runtime(journal: Path, **options: Any) -> Runtime:
    return Runtime(journal, workflows=WORKFLOWS, activities=ACTIVITIES, **options)


def anonymous_kib() -> int:
    """Memory of this process that is not a file's, KiB (pages of the map that were touched are not its own)."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise OSError("/proc/self/status has no RssAnon")


async def history(journal: Path, steps: int) -> None:
    """Run so many steps, say so, and wait to be killed."""
    async with _runtime(journal) as runtime:
        run = await runtime.spawn(Counter, steps, 1, id=ID)
        await run.execute_update(Counter.when_ready)
        _say(done=True)
        await asyncio.Event().wait()


async def answer(journal: Path, _n: int) -> None:
    """Come back after the kill, signal the run, and say when a query has shown it."""
    async with _runtime(journal) as runtime:
        _say(opened=True)
        run = runtime.ref(ID, Counter)
        await run.signal(Counter.add)
        while await run.query(Counter.total) < 1:
            pass
        _say(answered=True)
        await run.result()


async def nothing(_journal: Path, _n: int) -> None:
    """Begin, as every process does."""
    _say(answered=True)


async def waiting(journal: Path, n: int) -> None:
    """Let so many runs wait with their code in memory; say what that takes."""
    await _memory(journal, n, max_cached_workflows=n + 10)


async def passive(journal: Path, n: int) -> None:
    """The same with hardly any code in memory."""
    await _memory(journal, n, max_cached_workflows=10)


async def _memory(journal: Path, n: int, *, max_cached_workflows: int) -> None:
    async with _runtime(journal, max_cached_workflows=max_cached_workflows) as runtime:
        await in_lanes(500, LANES, lambda: runtime.execute(Counter, 0, 0))  # what any runtime needs
        gc.collect()
        before = anonymous_kib()
        await in_lanes(n, LANES, lambda: runtime.spawn(Counter, 0, 1))
        await asyncio.sleep(0.5)  # what was begun behind the last start, as moving the log
        gc.collect()
        _say(kib=anonymous_kib() - before)


async def restart(journal: Path, n: int) -> None:
    """Open a journal with waiting runs; say how long that took, and that the last one answers."""
    began = time.perf_counter()
    async with _runtime(journal) as runtime:
        opened = time.perf_counter() - began
        found = await runtime.count_workflows(status="running")
        _say(seconds=opened, running=found, kib=anonymous_kib(), expected=n)


MODES: dict[str, Callable[[Path, int], Awaitable[None]]] = {
    mode.__name__: mode for mode in (history, answer, nothing, waiting, passive, restart)
}


def main() -> None:
    """Do what the arguments say, on the fastest loop that there is."""
    mode, journal, n = sys.argv[1:]
    try:
        import uvloop  # noqa: PLC0415  (not everywhere)

        factory: Any = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(MODES[mode](Path(journal), int(n)))  # type: ignore[arg-type]  # all are coroutines


if __name__ == "__main__":
    main()
