"""The program that the tests of purges kill: the same few workflow ids end, are purged, and are started again.

Started as ``python purge_program.py <journal> <number of the life>``. It prints one line of JSON for each thing known:

    ["started", workflow id, run id]       the start is durable
    ["ended", run id, result]              the result is known
    ["purging"]                            a purge of all closed runs begins
    ["purged"]                             it has returned
    ["compacted"]                          the data file was written anew
    ["done"]                               the runtime was left
"""

import asyncio
import json
import os
import sys
from datetime import timedelta

from everact import Runtime, workflow
from everact.actors import housekeeping
from everact.journal import compaction, new_history, run_index

# Small pieces of everything, so that a life ends somewhere in the middle of it.
compaction.WINDOW = 40
compaction.WINDOW_PER_RUN = 1
new_history.VALUE_ENTRIES = 2
new_history.MERGE_BELOW = 0
compaction.PURGE_LEAST = 8
compaction.PURGE_PER_ENTRY = 1
run_index.CROWD = compaction.CROWD = 10
housekeeping.SPARE = 12
housekeeping.PAUSE = 0.0
housekeeping.LOOK_EVERY = 0

IDS = 4
ROUNDS = 4


def tell(*line):
    os.write(1, json.dumps(line).encode() + b"\n")


@workflow.defn
class Counter:
    def __init__(self) -> None:
        self.seen = 0

    @workflow.run
    async def run(self, label: str, count: int) -> str:
        await workflow.wait_condition(lambda: self.seen >= count)
        return f"{label}: {self.seen}"

    @workflow.signal
    def count(self) -> None:
        self.seen += 1


@workflow.defn(retention=timedelta(milliseconds=1))
class Brief(Counter):
    """Purged without being asked for."""


async def one(runtime, kind, workflow_id, label, count):
    run = await runtime.spawn(kind, label, count, id=workflow_id, if_running="replace")
    tell("started", workflow_id, run.run_id)
    for _ in range(count):
        await run.signal(kind.count)
    result = await run.result() if kind is Counter else f"{label}: {count}"
    tell("ended", run.run_id, result)


async def main(path, life):
    async with Runtime(path, workflows=[Counter, Brief]) as runtime:
        await runtime.spawn(Counter, "open", 1_000, id=f"open-{life}", if_running="attach")
        tell("started", f"open-{life}", runtime.ref(f"open-{life}").run_id)
        for number in range(ROUNDS):
            runs = [
                one(runtime, kind, f"{kind.__name__}-{n}", f"{life}/{number}/{n}", 25 if n == 0 else 2)
                for n in range(IDS)
                for kind in (Counter, Brief)
            ]
            await asyncio.gather(*runs)
            tell("purging")
            await runtime.purge(workflow_type="Counter", older_than=0)
            tell("purged")
            if number % 2:
                await runtime.compact_journal()
                tell("compacted")
    tell("done")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
