"""The program that the tests of messages put aside kill: runs that send to a run, which is damaged at first.

Started as ``python aside_program.py <journal> <phase>``: ``send`` ends once all messages are put aside, ``mended`` when
they were taken in and the run has ended. Each prints one line of JSON at its end.
"""

import asyncio
import json
import os
import sys
from datetime import timedelta

from everact import Runtime, workflow
from everact.journal.outbox import put_aside

SENDERS = 3
WORDS = 3


@workflow.defn
class Ear:
    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self, count: int) -> list[str]:
        await workflow.wait_condition(lambda: len(self.words) >= count)
        return self.words

    @workflow.signal
    def hear(self, word: str) -> None:
        self.words.append(word)


@workflow.defn
class Mouth:
    @workflow.run
    async def run(self, name: str) -> int:
        ear = workflow.get_external_workflow_handle("ear", Ear)
        calls = [ear.signal(Ear.hear, f"{name} {number}") for number in range(WORDS)]
        for call in calls:
            await call
        return len(calls)


def aside(runtime):
    with runtime._shard.store.view() as tables:
        return put_aside(tables)


async def main(journal, phase):
    async with Runtime(journal, workflows=[Ear, Mouth], grace=timedelta(0)) as runtime:
        mouths = [
            await runtime.spawn(Mouth, str(n), id=f"mouth-{n}", if_running="attach", if_closed="attach")
            for n in range(SENDERS)
        ]
        if phase == "send":
            while len(aside(runtime)) < SENDERS * WORDS or runtime._shard.outbox.pending(0):
                await asyncio.sleep(0.001)
            line = ["aside", len(aside(runtime))]
        else:
            line = ["heard", await runtime.ref("ear", Ear).result()]
            assert [await mouth.result() for mouth in mouths] == [WORDS] * SENDERS
            while aside(runtime) or runtime._shard.outbox.pending(0):
                await asyncio.sleep(0.001)
    os.write(1, json.dumps(line).encode() + b"\n")
    os.write(1, b'["done"]\n')


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
