"""Everact in the side-by-side harness of durable-workflow engines; README.md says how to add it there.

A library in the caller's process: default settings, one journal in the peer's folder, every commit synced.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from base import Peer

from everact import Runtime, WorkflowHandle, activity, workflow


@activity.defn
async def noop(i: int) -> int:
    return i


@workflow.defn(name="steps")
class Steps:
    """A number of steps, one after the other."""

    @workflow.run
    async def run(self, n: int) -> int:
        """Run ``n`` steps."""
        for i in range(n):
            await noop(i)
        return n


@workflow.defn(name="fan")
class Fan:
    """A number of steps, all at once."""

    @workflow.run
    async def run(self, n: int) -> int:
        """Run ``n`` steps."""
        await asyncio.gather(*(noop(i) for i in range(n)))
        return n


@workflow.defn(name="sleep")
class Sleep:
    """One durable sleep; the result is how much too long it was, in seconds of wall clock."""

    @workflow.run
    async def run(self, s: float) -> float:
        """Sleep ``s`` seconds."""
        began = workflow.time()
        await workflow.sleep(timedelta(seconds=s))
        return workflow.time() - began - s


class Counter:
    """What a signal, a query and an update have to do with a count."""

    def __init__(self) -> None:
        self.seen = 0
        self.base = 0

    @workflow.signal
    def sig(self, _value: int) -> None:
        """Count."""
        self.seen += 1

    @workflow.update
    def upd(self, _value: int) -> int:
        """Count, and answer."""
        self.seen += 1
        return self.seen

    @workflow.query
    def count(self) -> int:
        """What has been counted."""
        return self.base + self.seen


@workflow.defn(name="signals")
class Signals(Counter):
    """Counts signals until so many have come."""

    @workflow.run
    async def run(self, k: int) -> int:
        """Wait for ``k`` signals."""
        await workflow.wait_condition(lambda: self.seen >= k)
        return k


@workflow.defn(name="hist")
class Hist(Counter):
    """A history of steps, then one signal."""

    @workflow.run
    async def run(self, n: int) -> int:
        """Run ``n`` steps and wait."""
        for i in range(n):
            await noop(i)
        self.base = n
        await workflow.wait_condition(lambda: self.seen > 0)
        return n + 1


WORKFLOWS = (Steps, Fan, Sleep, Signals, Hist)


class EveractPeer(Peer):
    """The contestant; option ``durability=fsync|os``."""

    name = "everact"
    in_process = True
    runtime: Runtime

    async def setup(self) -> None:
        """Open the journal."""
        self.runtime = Runtime(
            Path(self.dir) / "journal",
            workflows=WORKFLOWS,
            activities=[noop],
            durability=self.opts.get("durability", "fsync"),
        )
        await self.runtime.__aenter__()

    async def teardown(self) -> None:
        """Close it, and remove it."""
        if hasattr(self, "runtime"):  # the parent of a killed child never opened it
            await self.runtime.__aexit__(None, None, None)
        await super().teardown()

    async def start(self, wid: str, kind: str, arg: Any) -> WorkflowHandle[Any, Any]:
        """Start a workflow durably."""
        return await self.runtime.spawn(kind, arg, id=wid)

    async def wait(self, handle: WorkflowHandle[Any, Any]) -> Any:
        """Wait for its result."""
        return await handle.result()

    async def signal(self, wid: str, value: int) -> None:
        """Send a signal."""
        await self.runtime.ref(wid).tell("sig", value)

    async def query(self, wid: str) -> int:
        """Ask for the count."""
        return await self.runtime.ref(wid).query("count")

    async def update(self, wid: str, value: int) -> int:
        """Count and get the answer in one call."""
        return await self.runtime.ref(wid).ask("upd", value)

    def pids(self) -> dict[str, list[int]]:
        """This process does everything."""
        return {"worker+driver": [os.getpid()]}

    def about(self) -> dict[str, Any]:
        """Versions and durability."""
        names = ("everact", "lmdb", "msgspec", "zstandard")
        return {
            "versions": {name: importlib.metadata.version(name) for name in names},
            "store": {
                "lmdb": "one environment",
                "durability": self.opts.get("durability", "fsync (default)"),
            },
        }


PEER = EveractPeer
