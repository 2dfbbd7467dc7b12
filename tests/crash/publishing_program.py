"""The program that the tests of published values kill: progress, headers, runs that end or cancel themselves.

Started as ``python publishing_program.py <journal>``. It prints one line of JSON for each thing that has left it:

    ["seen", workflow id, step]      what an outsider has read of the run's progress
    ["step", workflow id, n, who]    an activity runs, and has this header
    ["answer", workflow id]          the update that ends the run was answered
    ["end", workflow id, result]     how the run ended
    ["done"]                         all have ended and the runtime was left
"""

import asyncio
import json
import os
import sys
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta

from everact import RetryPolicy, Runtime, activity, workflow
from everact.exceptions import WorkflowCancelledError, WorkflowClosedError
from everact.interceptors import (
    ActivityInboundInterceptor,
    ClientOutboundInterceptor,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)
from everact.journal import blob_table, blobs, compaction, run_index, snapshots
from everact.payloads import PayloadConverter

RUNS = 10
STEPS = 6

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

who: ContextVar[str] = ContextVar("who", default="nobody")
converter = PayloadConverter()


def tell(*line):
    os.write(1, json.dumps(line).encode() + b"\n")


def named(call):
    return replace(call, headers={"who": converter.encode(who.get())})


class Client(ClientOutboundInterceptor):
    async def start_workflow(self, input):
        return await self.next.start_workflow(named(input))


class Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input):
        return self.next.start_activity(named(input))


class Inbound(WorkflowInboundInterceptor):
    def init(self, outbound):
        self.next.init(Outbound(outbound))

    async def execute_workflow(self, input):
        who.set(converter.decode(input.headers["who"], str))
        return await self.next.execute_workflow(input)


class Attempt(ActivityInboundInterceptor):
    async def execute_activity(self, input):
        who.set(converter.decode(input.headers["who"], str))
        return await self.next.execute_activity(input)


class Who(Interceptor):
    def intercept_client(self, next):
        return Client(next)

    def intercept_workflow(self, next):
        return Inbound(next)

    def intercept_activity(self, next):
        return Attempt(next)


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=2), maximum_attempts=50))
async def step(n: int) -> int:
    tell("step", activity.info().workflow_id, n, who.get())
    return n


@workflow.defn
class Climb:
    def __init__(self) -> None:
        workflow.publish("step", 0)
        self.done = 0

    @workflow.run
    async def run(self) -> str:
        try:
            for n in range(1, STEPS + 1):
                self.done = await step(n)
                workflow.publish("step", n)
                workflow.publish("text", f"a value that is too long for its record: {n}")
            await workflow.wait_condition(lambda: False)
        finally:
            workflow.publish("step", STEPS + 1)
        return "never"

    @workflow.update
    async def finish(self, result: str) -> str:
        await workflow.wait_condition(lambda: self.done == STEPS)
        workflow.publish("step", STEPS + 1)
        workflow.complete(result)
        return result

    @workflow.update
    async def stop(self) -> str:
        await workflow.wait_condition(lambda: self.done == STEPS)
        workflow.cancel("by itself")
        return "stopping"


async def follow(runtime, number):
    name = f"c-{number}"
    who.set(f"user {number}")
    handle = await runtime.spawn(Climb.run, id=name, if_running="attach", if_closed="attach")

    async def look():
        last = -1
        while last <= STEPS:
            seen = await handle.published("step", int)
            if seen != last:
                last = seen
                tell("seen", name, last)
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    with suppress(WorkflowClosedError):
        if number % 2:
            assert await handle.execute_update(Climb.finish, "enough", request_id="end") == "enough"
        else:
            assert await handle.execute_update(Climb.stop, request_id="end") == "stopping"
        tell("answer", name)
    try:
        tell("end", name, await handle.result())
    except WorkflowCancelledError as error:
        tell("end", name, str(error).partition(": ")[2])
    await looking


async def main(journal):
    async with Runtime(
        journal, workflows=[Climb], activities=[step], interceptors=[Who()], max_cached_workflows=3
    ) as runtime:
        await asyncio.gather(*(follow(runtime, number) for number in range(RUNS)))
    tell("done")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
