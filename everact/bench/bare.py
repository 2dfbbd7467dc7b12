"""The bare limits of the machine: LMDB without a journal, asyncio without a runtime."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter

from ..journal.lmdb_open import Options, open_environment
from ..journal.lmdb_store import MAP_SIZE
from ..journal.tables import NUMBER


class BareLog:
    """Puts and commits in an LMDB environment that is opened as the journal's is, and nothing else.

    Args:
        path: A directory that does not exist yet.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self._opened = open_environment(
            str(path), Options(writable=True, map_size=MAP_SIZE, durability="fsync")
        )
        self._sequence = 0
        # What zstd has packed does not shrink again; LMDB would not notice anyway.
        self._noise = os.urandom(1 << 16)

    def value(self, size: int) -> bytes:
        """Bytes to write."""
        return (self._noise * (size // len(self._noise) + 1))[:size]

    def commit(self, value: bytes) -> None:
        """Append one value and sync it to the disk."""
        env, log = self._opened.env, self._opened.logs[0]
        self._sequence += 1
        txn = env.begin(write=True)
        txn.put(NUMBER.pack(self._sequence), value, db=log, append=True)
        txn.commit()

    def replay(self, sizes: Sequence[int]) -> float:
        """Commit values of these sizes, one after the other; returns the seconds."""
        values = [self.value(size) for size in sizes]
        commit = self.commit
        began = perf_counter()
        for value in values:
            commit(value)
        return perf_counter() - began

    def latencies(self, size: int, count: int) -> list[float]:
        """Seconds of each of so many commits."""
        value = self.value(size)
        return [self._timed(value) for _ in range(count)]

    def _timed(self, value: bytes) -> float:
        began = perf_counter()
        self.commit(value)
        return perf_counter() - began

    @property
    def flags(self) -> dict[str, bool]:
        """Flags of the environment that decide on durability, as LMDB reports them."""
        return durability_flags(self._opened.env.flags())

    def close(self) -> None:
        """Release the environment."""
        self._opened.env.close()


def durability_flags(flags: Mapping[str, object]) -> dict[str, bool]:
    """Those of an environment's flags that decide what a power cut leaves."""
    return {
        name: bool(flags[name]) for name in ("sync", "metasync", "writemap", "map_async") if name in flags
    }


async def in_lanes(n: int, lanes: int, call: Callable[[], Awaitable[object]]) -> None:
    """Await ``call()`` ``n`` times, at most ``lanes`` at a time."""
    numbers = iter(range(n))

    async def lane() -> None:
        for _ in numbers:
            await call()

    await asyncio.gather(*(lane() for _ in range(min(n, lanes))))
