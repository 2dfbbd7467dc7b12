"""Whether any task of the loop still goes on: where only the test moves time, nobody else can let a call return."""

from __future__ import annotations

import asyncio
from typing import Any


class Standstill:
    """Looks at what each task of the running loop waits for; one that has gone on waits for something else."""

    def __init__(self, limit: float) -> None:
        """Begin now.

        Args:
            limit: So many seconds of real time without a change are a standstill.
        """
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._seen: dict[asyncio.Task[Any], object] = {}

    def is_reached(self, but: asyncio.Task[Any] | None) -> bool:
        """Look again; one task, that of the caller, does not count."""
        waits = {task: _waited_for(task) for task in asyncio.all_tasks(self._loop) if task is not but}
        if waits != self._seen:
            self._seen, self._since = waits, self._loop.time()
        return self._loop.time() - self._since >= self._limit


def _waited_for(task: asyncio.Task[Any]) -> object:
    """The future that a task waits for, kept by whoever compares it: so no later one has its identity."""
    return getattr(task, "_fut_waiter", None)
