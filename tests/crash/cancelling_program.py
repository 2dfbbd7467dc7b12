"""The program that the tests of cancelled runs kill: scopes of every kind, clean-up in steps, requests that repeat.

Started as ``python cancelling_program.py <journal>``. It prints one line of JSON for each thing that has left it:

    ["work", workflow id, key, attempt]    an activity of the run's own work has begun
    ["undo", workflow id, n, key]          an activity of its clean-up runs
    ["asked", workflow id]                 a request to cancel was acknowledged
    ["end", workflow id, text]             how the run ended
    ["done"]                               all have ended and the runtime was left
"""

import asyncio
import json
import os
import sys
from contextlib import suppress
from datetime import timedelta

from everact import RetryPolicy, Runtime, activity, workflow
from everact.exceptions import WorkflowCancelledError, WorkflowClosedError
from everact.journal import blob_table, blobs, compaction, run_index, snapshots

RUNS = 12
UNDO = 3
KINDS = ("try_cancel", "wait_cancellation_completed", "abandon")

#: The log is moved all the time, and nearly every payload becomes a blob.
for module, name, value in [
    (compaction, "WINDOW", 30),
    (compaction, "WINDOW_PER_RUN", 1),
    (compaction, "SAMPLES", 20),
    (compaction, "CROWD", 8),
    (run_index, "CROWD", 8),
    (blobs, "SPILL", 6),
    (snapshots, "SPILL", 6),
    (blob_table, "CHUNK", 10),
]:
    setattr(module, name, value)

MANY = RetryPolicy(
    initial_interval=timedelta(milliseconds=1),
    maximum_interval=timedelta(milliseconds=2),
    maximum_attempts=50,
)
begun: dict[str, asyncio.Event] = {}


def tell(*line):
    os.write(1, json.dumps(line).encode() + b"\n")


@activity.defn(retry_policy=MANY)
async def work(n: int) -> int:
    info = activity.info()
    tell("work", info.workflow_id, info.idempotency_key, info.attempt)
    begun.setdefault(info.workflow_id, asyncio.Event()).set()
    await asyncio.Event().wait()
    return n


@activity.defn(retry_policy=MANY)
async def undo(n: int) -> int:
    info = activity.info()
    tell("undo", info.workflow_id, n, info.idempotency_key)
    if info.attempt == 1 and n == 1:
        raise ValueError("once more")
    return n


@workflow.defn
class Trip:
    async def part(self, kind: str, n: int) -> None:
        await workflow.execute_activity(work, n, cancellation_type=kind)

    async def clean(self) -> int:
        return sum([await undo(n) for n in range(UNDO)])

    @workflow.run
    async def run(self, number: int) -> None:
        kind = KINDS[number % 3]
        try:
            match number % 4:
                case 0:
                    await self.part(kind, 0)
                case 1:
                    await asyncio.gather(self.part(kind, 0), asyncio.sleep(3600), self.part(kind, 1))
                case 2:
                    async with asyncio.timeout(7200), asyncio.TaskGroup() as group:
                        for n in range(2):
                            group.create_task(self.part(kind, n))
                case 3:
                    task = asyncio.create_task(self.part(kind, 0))
                    await asyncio.wait([task, asyncio.create_task(asyncio.sleep(3600))])
        finally:
            await asyncio.shield(self.clean())


async def follow(runtime, number):
    name = f"t-{number}"
    handle = await runtime.spawn(Trip.run, number, id=name, if_running="attach", if_closed="attach")
    seen = await handle.describe()
    if seen.status == "running" and not seen.cancel_requested:
        await begun.setdefault(name, asyncio.Event()).wait()
    with suppress(WorkflowClosedError):
        for _ in range(2):  # a repeat is the same request
            await handle.cancel(f"stop {number}")
            tell("asked", name)
    try:
        await handle.result()
        tell("end", name, "completed")
    except WorkflowCancelledError as error:
        tell("end", name, str(error))


async def main(journal):
    runtime = Runtime(journal, workflows=[Trip], activities=[work, undo], grace=timedelta(0), door=False)
    async with runtime:
        await asyncio.gather(*(follow(runtime, number) for number in range(RUNS)))
    tell("done")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
