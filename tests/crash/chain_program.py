"""The program that the tests of chains kill: runs that continue as new, are tried again, begin later, take too long.

Started as ``python chain_program.py <journal>``. It prints one line of JSON for each thing known:

    ["ack", counter, n]                the n-th signal to it was acknowledged
    ["step", n]                        the activity of the n-th run of the loop has run
    ["end", workflow id, result]       the end of a chain is known
    ["done"]                           the runtime was left

All starts attach to what is there, so that the next life goes on.
"""

import asyncio
import json
import os
import sys

from everact import ApplicationError, RetryPolicy, Runtime, activity, workflow
from everact.exceptions import WorkflowFailedError
from everact.journal import compaction, new_history, run_index

COUNT = 200
LOOPS = 40
ATTEMPTS = 4


def tell(*line):
    os.write(1, json.dumps(line).encode() + b"\n")


@workflow.defn
class Counter:
    """D03: waits for a message, adds it, continues as new."""

    def __init__(self) -> None:
        self.new: list[int] = []

    @workflow.run
    async def run(self, seen: list[int], until: int, pause: float | None) -> list[int]:
        await workflow.wait_condition(lambda: self.new)
        if pause is not None:
            await workflow.sleep(pause)
        seen += self.new
        if len(seen) < until:
            workflow.continue_as_new(seen, until, pause)
        return seen

    @workflow.signal
    def add(self, n: int) -> None:
        self.new.append(n)


@workflow.defn
class Handled:
    """The same, by its handler."""

    @workflow.run
    async def run(self, seen: list[int], until: int) -> list[int]:
        self.seen = seen
        await workflow.wait_condition(lambda: len(self.seen) >= until)
        return self.seen

    @workflow.signal
    def add(self, n: int) -> None:
        self.seen = [*getattr(self, "seen", []), n]
        if n % 3 == 0:
            workflow.continue_as_new(self.seen, COUNT)


@activity.defn
async def step(n: int) -> int:
    tell("step", n)
    return n


@workflow.defn
class Loop:
    @workflow.run
    async def run(self, n: int) -> int:
        await step(n)
        if n < LOOPS:
            workflow.continue_as_new(n + 1)
        return n


@workflow.defn
class Shaky:
    @workflow.run
    async def run(self) -> list[int | str]:
        attempt = workflow.info().attempt
        await step(-attempt)
        if attempt < ATTEMPTS:
            raise ApplicationError(f"attempt {attempt}")
        return [attempt, str(workflow.last_failure())]


@workflow.defn
class Slow:
    @workflow.run
    async def run(self) -> None:
        await workflow.sleep(3600)


COUNTERS = {
    "plain": (Counter, None),
    "zero": (Counter, 0.0),
    "timer": (Counter, 0.001),
    "handled": (Handled, None),
}


async def count(runtime, name, acknowledged):
    kind, pause = COUNTERS[name]
    args = ([], COUNT) if kind is Handled else ([], COUNT, pause)
    handle = await runtime.spawn(kind, *args, id=name, if_running="attach", if_closed="attach")

    async def send(n):
        await handle.signal(kind.add, n, request_id=f"{name}/{n}")
        tell("ack", name, n)

    # As fast as possible, from the first on that was not acknowledged; what is durable all the same is known.
    await asyncio.gather(*(send(n) for n in range(acknowledged.get(name, 0), COUNT)))
    tell("end", name, await handle.result())


async def end(runtime, kind, *args, **options):
    name = kind.__name__.lower()
    handle = await runtime.spawn(kind, *args, id=name, if_running="attach", if_closed="attach", **options)
    try:
        tell("end", name, await handle.result())
    except WorkflowFailedError as error:
        tell("end", name, str(error.__cause__))


async def main(journal, acknowledged):
    policy = RetryPolicy(initial_interval=0.01, jitter=0)
    types = [Counter, Handled, Loop, Shaky, Slow]
    async with Runtime(journal, workflows=types, activities=[step], door=False) as runtime:
        await asyncio.gather(
            *(count(runtime, name, acknowledged) for name in COUNTERS),
            end(runtime, Loop, 1),
            end(runtime, Shaky, retry_policy=policy, start_delay=0.02),
            end(
                runtime,
                Slow,
                retry_policy=RetryPolicy(initial_interval=0.01, maximum_attempts=2),
                run_timeout=0.05,
            ),
        )
    tell("done")


if __name__ == "__main__":  # and not where the test only looks into it
    # Small pieces of everything, so that a life ends somewhere in the middle of it.
    compaction.WINDOW = 40
    compaction.WINDOW_PER_RUN = 1
    new_history.VALUE_ENTRIES = 2
    new_history.MERGE_BELOW = 0
    run_index.CROWD = compaction.CROWD = 10
    asyncio.run(main(sys.argv[1], json.loads(sys.stdin.readline())))
