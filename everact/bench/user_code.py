"""The workflows that are measured. Called outside a runtime, the same code is the bare loop beside them."""

from __future__ import annotations

from time import perf_counter

from .. import activity, workflow

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


WORKFLOWS = (Steps, Blocks)
ACTIVITIES = (step, stamped_step)
