"""A worker with one slot that kills itself in the middle of its first attempt; then it is started again."""

import asyncio
import json
import os
import signal
import sys

from everact import RetryPolicy, Runtime, activity, workflow


@activity.defn(retry_policy=RetryPolicy(initial_interval=0.001, maximum_attempts=3))
async def deadly(life: int) -> list[int]:
    if life == 1 and LIFE == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return [LIFE, activity.info().attempt]


@activity.defn(name="deadly_thread", retry_policy=RetryPolicy(initial_interval=0.001, maximum_attempts=3))
def deadly_thread(life: int) -> list[int]:
    if life == 1 and LIFE == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return [LIFE, activity.info().attempt]


@workflow.defn
class Calls:
    @workflow.run
    async def run(self, name: str, life: int) -> list[int]:
        return await workflow.execute_activity(name, life, result_type=list[int])


async def main(journal: str, name: str) -> None:
    runtime = Runtime(
        journal, workflows=[Calls], activities=[deadly, deadly_thread], max_concurrent_activities=1
    )
    async with runtime:
        first = await runtime.spawn(Calls, name, 1, id="first", if_running="attach", if_closed="attach")
        before = await first.result()
        new = await runtime.execute(Calls, name, 2)
    print(json.dumps([before, new]))


LIFE = int(sys.argv[3])
asyncio.run(main(sys.argv[1], sys.argv[2]))
