"""Sagas of all kinds that fail, are cancelled or run out of time; run again and again on one journal.

    python saga_program.py JOURNAL LEDGER

The ledger stands for the outside world: a line ``[workflow id, verb, step, idempotency key, attempt, outcome]`` for
each time that an activity ran. Prints ``["end", workflow id, status, error]`` for each run, then ``["done"]``.
"""

import asyncio
import json
import logging
import os
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from everact import ApplicationError, RetryPolicy, Runtime, activity, workflow
from everact.exceptions import WorkflowClosedError, WorkflowFailedError, WorkflowQuarantinedError
from everact.journal import compaction

KINDS = (
    "fails",
    "parallel",
    "siblings",
    "cancelled",
    "late",
    "escalates",
    "functions",
    "outlived",
    "goes_well",
)
STEPS = ("flight", "hotel", "car")
FOREVER = RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=0, jitter=0)


def tell(*line):
    os.write(1, json.dumps(line).encode() + b"\n")


def note(verb, step, outcome):
    info = activity.info()
    line = [info.workflow_id, verb, step, info.idempotency_key, info.attempt, outcome]
    file = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, json.dumps(line).encode() + b"\n")
    os.close(file)


def seen_before():
    key = activity.info().idempotency_key
    return any(json.loads(line)[3] == key for line in Path(sys.argv[2]).read_text().splitlines())


@activity.defn(retry_policy=FOREVER)
async def do(step: str) -> str:
    if step == "full":
        raise ApplicationError("nothing left", non_retryable=True)
    if step == "bus":  # it comes when it is told to stop, and is booked all the same
        await activity.wait_for_cancelled()
    note("do", step, "done")
    return step


@activity.defn(retry_policy=FOREVER)
def undo(step: str) -> None:
    """Fails when it is asked for the first time; for good in the sagas that escalate."""
    if not seen_before():
        note("undo", step, "failed")
        escalates = activity.info().workflow_id.startswith("escalates")
        raise ApplicationError("not at once", non_retryable=escalates)
    note("undo", step, "done")


@workflow.defn
class Trip:
    def __init__(self) -> None:
        self.go = False
        self.is_booked = False

    @workflow.run
    async def run(self, kind: str) -> str:
        if kind == "outlived":  # run fails while a task of it is inside the saga
            self.task = asyncio.create_task(self.book(kind))
            await workflow.wait_condition(lambda: self.is_booked)
            raise ApplicationError("in the middle of it")
        return await self.book(kind)

    async def book(self, kind: str) -> str:
        policy = "escalate" if kind == "escalates" else "retry"
        async with workflow.saga(
            kind, on_compensation_failure=policy, compensation_retry=FOREVER, parallel=kind == "parallel"
        ) as saga:
            if kind == "siblings":
                async with asyncio.TaskGroup() as group:
                    for step in (*STEPS, "bus"):
                        group.create_task(saga.run(do, step, name=step, compensate=undo))
                    group.create_task(saga.run(do, "full"))
            for step in STEPS:
                back = self.back if kind == "functions" else undo
                await saga.run(do, step, name=step, compensate=back)
            if kind == "goes_well":
                return "went well"
            self.is_booked = True
            if kind in ("cancelled", "outlived"):
                await workflow.wait_condition(lambda: self.go)
            if kind == "late":
                async with asyncio.timeout(0.01):
                    await workflow.wait_condition(lambda: self.go)
            await saga.run(do, "full")
        return "not reached"

    async def back(self, step: str) -> None:
        await workflow.sleep(0.001)
        await workflow.execute_activity(undo, step)


async def drive(runtime, workflow_id):
    kind = workflow_id.partition("-")[0]
    trip = await runtime.spawn(Trip.run, kind, id=workflow_id, if_running="attach", if_closed="attach")
    if kind == "cancelled":
        while not (await trip.describe()).conditions and (await trip.describe()).closed_at is None:
            await asyncio.sleep(0.001)
        with suppress(WorkflowClosedError):
            await trip.cancel("enough")
    error = ""
    while True:
        try:
            await trip.result()
        except WorkflowQuarantinedError:
            await trip.release("again")
            continue
        except WorkflowFailedError as failed:
            error = f"{type(failed).__name__} {failed.__cause__!r}"
        break
    tell("end", workflow_id, (await trip.describe()).status, error)


async def main():
    logging.disable(logging.CRITICAL)
    compaction.WINDOW = 20
    options = {"max_cached_workflows": 2, "grace": timedelta(seconds=0)}
    async with Runtime(sys.argv[1], workflows=[Trip], activities=[do, undo], **options) as runtime:
        await asyncio.gather(*(drive(runtime, f"{kind}-{n}") for kind in KINDS for n in (1, 2)))
    tell("done")


if __name__ == "__main__":
    asyncio.run(main())
