"""The program that the tests of followed activities kill: heartbeats, a cancel that waits, an answer from outside.

Started as ``python expedition.py <journal>``. It prints one line of JSON for each thing that has left the runtime:

    ["used", workflow id, seed]               an activity has got the result of a side effect
    ["climbs", workflow id, attempt, places]  an attempt begins, with what the ones before have said
    ["answered", workflow id]                 somebody outside has completed the attempt
    ["end", workflow id, result]              the result of the run
    ["done"]                                  all have ended and the runtime was left
"""

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from datetime import timedelta

from everact import RetryPolicy, Runtime, activity, workflow
from everact.actors import heartbeats
from everact.exceptions import ActivityNotPendingError
from everact.journal import blob_table, blobs, compaction, run_index, snapshots

RUNS = 12
WAIT = "wait_cancellation_completed"
QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=2), jitter=0.0, maximum_attempts=50)

#: The log is moved all the time, nearly every payload becomes a blob, the journal hears of nearly every heartbeat.
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


def tell(*line):
    os.write(1, json.dumps(line).encode() + b"\n")


@activity.defn(retry_policy=QUICK)
async def use(seed: str) -> str:
    tell("used", activity.info().workflow_id, seed)
    return seed


@activity.defn(
    retry_policy=QUICK, heartbeat_timeout=30, schedule_to_start_timeout=60, schedule_to_close_timeout=600
)
async def climb() -> int:
    info = activity.info()
    tell("climbs", info.workflow_id, info.attempt, info.heartbeat_details)
    place = activity.heartbeat_details(int) or 0
    for _ in range(3):
        place += 1
        activity.heartbeat(place, "a detail that is a blob")
        await asyncio.sleep(0)
    if place < 9:
        raise OSError("down")
    return place


@activity.defn
def rest() -> None:
    while True:
        time.sleep(0.0005)


@activity.defn
async def ask() -> int:
    activity.raise_complete_async()


@workflow.defn
class Expedition:
    @workflow.run
    async def run(self) -> list[object]:
        seed = workflow.side_effect(lambda: os.urandom(4).hex())
        used = await use(seed)
        place = await climb()
        workflow.upsert_memo({"place": place, "plan": None})
        resting = workflow.start_activity(rest, cancellation_type=WAIT)
        await workflow.sleep(0.002)
        resting.cancel()
        try:
            await resting
        except asyncio.CancelledError:
            rested = "told to stop"
        answer = await ask()
        return [used == seed, place, rested, answer, workflow.memo()]


async def answers(runtime, handle):
    """Look for what is to be answered, as somebody who has the ids and nothing else."""
    while True:
        described = await handle.describe()
        for pending in described.pending_activities:
            if pending.completed_outside:
                with suppress(ActivityNotPendingError):
                    asked = runtime.activity_handle(workflow_id=handle.workflow_id, command=pending.command)
                    await asked.heartbeat("on its way")
                    await asked.complete(42)
                    tell("answered", handle.workflow_id)
        if described.closed_at is not None:
            return
        await asyncio.sleep(0.001)


async def one(runtime, number):
    handle = await runtime.spawn(
        Expedition,
        id=f"x-{number}",
        if_running="attach",
        if_closed="attach",
        memo={"plan": [number], "n": number},
    )
    asking = asyncio.create_task(answers(runtime, handle))
    tell("end", handle.workflow_id, await handle.result())
    await asking


async def main(path):
    heartbeats.NOTE_INTERVAL = 0.0
    from everact.actors import activity_pool

    activity_pool.NOTE_INTERVAL = 0.0
    activities = [use, climb, rest, ask]
    async with Runtime(
        path,
        workflows=[Expedition],
        activities=activities,
        max_concurrent_activities=3,
        max_activity_threads=2,
    ) as runtime:
        async with asyncio.TaskGroup() as group:
            for number in range(RUNS):
                group.create_task(one(runtime, number))
    tell("done")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
