"""The program that the tests of children kill: parents, children, signals, cancels, detached starts.

Started as ``python family.py <journal>``. It prints one line of JSON for each thing that has left the runtime:

    ["worked", workflow id]         an activity of a child has begun
    ["end", workflow id, result]    the result of a parent
    ["done"]                        all have ended and the runtime was left
"""

import asyncio
import json
import os
import sys
from contextlib import suppress
from datetime import timedelta

from everact import RetryPolicy, Runtime, activity, workflow
from everact.exceptions import ApplicationError, ChildWorkflowError, ExternalWorkflowError
from everact.journal import blob_table, blobs, compaction, run_index, snapshots

FAMILIES = 4
CHILDREN = 4
QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=2), jitter=0.0, maximum_attempts=50)

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
async def work(n: int) -> int:
    tell("worked", activity.info().workflow_id)
    return n * n


@workflow.defn
class Square:
    @workflow.run
    async def run(self, n: int) -> int:
        return await work(n)


@workflow.defn
class Fails:
    @workflow.run
    async def run(self, n: int) -> None:
        await work(n)
        raise ApplicationError(f"no {n}", type="Broken")


@workflow.defn
class Listens:
    def __init__(self) -> None:
        self.words: list[str] = []
        self.stopped = False

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: self.stopped)
        return self.words

    @workflow.signal
    def hear(self, word: str) -> None:
        self.words.append(word)

    @workflow.signal
    def stop(self) -> None:
        self.stopped = True


@workflow.defn
class Family:
    @workflow.run
    async def run(self, n: int) -> list[object]:
        me = workflow.info().workflow_id
        found: list[object] = []
        squares = await asyncio.gather(
            *(workflow.execute_child_workflow(Square, i, id=f"{me}/square-{i}") for i in range(CHILDREN))
        )
        found.append(sum(squares))
        try:
            await workflow.execute_child_workflow(Fails, n, id=f"{me}/fails")
        except ChildWorkflowError as error:
            found.append([error.status, str(error.__cause__)])
        ear = await workflow.start_child_workflow(Listens, id=f"{me}/ear")
        for word in ("one", "two", "three"):
            await ear.signal(Listens.hear, word)
        try:
            await workflow.start_child_workflow(Listens, id=f"{me}/ear")
        except ChildWorkflowError as error:
            found.append(error.status)
        await ear.signal(Listens.stop)
        found.append(await ear)
        lost = await workflow.start_child_workflow(Listens, id=f"{me}/lost")
        lost.cancel("enough")
        try:
            await lost
        except ChildWorkflowError as error:
            found.append(error.status)
        alone = await workflow.start_detached(Listens, id=f"{me}/alone")
        await alone.signal(Listens.hear, "hello")
        await alone.signal(Listens.stop)
        try:
            await workflow.get_external_workflow_handle(f"{me}/nobody").signal("hello")
        except ExternalWorkflowError as error:
            found.append(type(error.__cause__).__name__)
        for policy in ("terminate", "request_cancel", "abandon"):
            await workflow.start_child_workflow(Listens, id=f"{me}/{policy}", parent_close_policy=policy)
        return found


async def main(journal):
    async with Runtime(
        journal, workflows=[Family, Square, Fails, Listens], activities=[work], grace=timedelta(0)
    ) as runtime:

        async def family(number):
            name = f"family-{number}"
            result = await runtime.execute(Family, number, id=name, if_running="attach", if_closed="attach")
            tell("end", name, result)
            for policy, status in (("terminate", "terminated"), ("request_cancel", "cancelled")):
                with suppress(Exception):
                    await runtime.ref(f"{name}/{policy}").result()
                assert (await runtime.ref(f"{name}/{policy}").describe()).status == status
            assert await runtime.ref(f"{name}/alone").result() == ["hello"]
            spared = runtime.ref(f"{name}/abandon", Listens)
            if not (await spared.describe()).closed_at:
                await spared.signal(Listens.stop)
            assert await spared.result() == []

        await asyncio.gather(*(family(number) for number in range(FAMILIES)))
        while runtime._shard.outbox.pending(0):
            await asyncio.sleep(0.001)
    tell("done")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
