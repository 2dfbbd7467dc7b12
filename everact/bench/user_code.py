"""The workflows that are measured. Called outside a runtime, the same code is the bare loop beside them."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from time import perf_counter

from .. import ActivityError, ApplicationError, activity, workflow

#: When each ``stamped_step`` began, in seconds of ``perf_counter``; the driver clears it.
stamps: list[float] = []


@activity.defn
async def step(i: int) -> int:
    """Do nothing; returns its argument."""
    return i


@activity.defn
async def stamped_step(i: int) -> int:
    """Note the time; returns its argument."""
    stamps.append(perf_counter())
    return i


@workflow.defn
class Steps:
    """A number of steps, one after the other."""

    @workflow.run
    async def run(self, n: int) -> int:
        """Run ``n`` steps."""
        for i in range(n):
            await step(i)
        return n


@workflow.defn
class Blocks:
    """One long run that does a block of steps each time it is asked to."""

    def __init__(self) -> None:
        self.stopped = False

    @workflow.run
    async def run(self) -> None:
        """Wait for the end."""
        await workflow.wait_condition(lambda: self.stopped)

    @workflow.update
    async def block(self, n: int) -> int:
        """Run ``n`` steps that note when they begin."""
        for i in range(n):
            await stamped_step(i)
        return n

    @workflow.signal
    def stop(self) -> None:
        """Let the run end."""
        self.stopped = True


@workflow.defn
class Fan:
    """A number of steps at once."""

    @workflow.run
    async def run(self, n: int) -> int:
        """Run ``n`` steps and wait for all."""
        return len(await asyncio.gather(*(step(i) for i in range(n))))


@workflow.defn
class Nap:
    """A durable sleep."""

    @workflow.run
    async def run(self, seconds: float) -> float:
        """Sleep; returns by how much that was too long, in seconds of the wall clock."""
        began = workflow.time()
        await workflow.sleep(timedelta(seconds=seconds))
        return workflow.time() - began - seconds


@workflow.defn
class SleepUntil:
    """A durable sleep until a moment."""

    @workflow.run
    async def run(self, moment: datetime) -> float:
        """Sleep; returns by how much it ended too late, in seconds of the wall clock."""
        await workflow.sleep_until(moment)
        return workflow.time() - moment.timestamp()


@workflow.defn
class Naps:
    """Durable sleeps, one after the other."""

    @workflow.run
    async def run(self, count: int, seconds: float) -> None:
        """Sleep so many times for so long."""
        for _ in range(count):
            await workflow.sleep(seconds)


@workflow.defn
class Hops:
    """Continues as new a number of times."""

    @workflow.run
    async def run(self, left: int) -> int:
        """Continue as new ``left`` times."""
        if left:
            workflow.continue_as_new(left - 1)
        return left


@workflow.defn
class Counter:
    """Does some steps, then counts what it is told."""

    def __init__(self) -> None:
        self.count = 0
        self.is_ready = False

    @workflow.run
    async def run(self, steps: int, until: int) -> int:
        """Run ``steps`` steps, then wait until it was told ``until`` times."""
        for i in range(steps):
            await step(i)
        self.is_ready = True
        await workflow.wait_condition(lambda: self.count >= until)
        return self.count

    @workflow.signal
    def add(self) -> None:
        """Count one more."""
        self.count += 1

    @workflow.update
    async def when_ready(self) -> None:
        """Wait for the end of the steps."""
        await workflow.wait_condition(lambda: self.is_ready)

    @workflow.query
    def total(self) -> int:
        """How often it was told."""
        return self.count

    @workflow.update
    def add_and_tell(self) -> int:
        """Count one more; returns how many there are."""
        self.count += 1
        return self.count


@workflow.defn
class Leaf:
    """A child that is done at once."""

    @workflow.run
    async def run(self, i: int) -> int:
        """Returns its argument."""
        return i


@workflow.defn
class Tree:
    """A parent of many children."""

    @workflow.run
    async def run(self, n: int) -> int:
        """Start ``n`` children and wait for all."""
        return len(await asyncio.gather(*(workflow.execute_child_workflow(Leaf, i) for i in range(n))))


@activity.defn
async def fails() -> None:
    """Fail for good."""
    raise ApplicationError("no", non_retryable=True)


#: How many steps of a ``FailingSaga`` are undone.
UNDONE = 4


@workflow.defn
class FailingSaga:
    """A saga whose last step fails."""

    @workflow.run
    async def run(self) -> int:
        """Do four steps, and undo them; returns how many."""
        undone: list[int] = []

        async def undo(i: int) -> None:
            undone.append(await step(i))

        try:
            async with workflow.saga() as saga:
                for i in range(UNDONE):
                    await saga.run(step, i, compensate=undo)
                await saga.run(fails)
        except ActivityError:
            pass
        return len(undone)


WORKFLOWS = (Steps, Blocks, Fan, Nap, SleepUntil, Naps, Hops, Counter, Leaf, Tree, FailingSaga)
ACTIVITIES = (step, stamped_step, fails)
