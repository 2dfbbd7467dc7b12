"""A program with code that kills its process, among code that does not; run again and again on one journal.

    python poison_program.py JOURNAL KIND...

It starts one run of each kind beside a few good ones, waits for all of them, and prints a JSON line for what it sees:
``["ran", idempotency key, attempt]`` before an activity does anything, ``["end", workflow id, outcome]``, ``["done"]``.
"""

import asyncio
import json
import logging
import os
import sys
from datetime import timedelta

from everact import ApplicationError, RetryPolicy, Runtime, activity, workflow
from everact.exceptions import (
    ActivityError,
    AttemptLostError,
    EveractError,
    QueryFailedError,
    UpdateRejectedError,
)

FOREVER = RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=0)
GOOD = 4


def tell(*line):
    os.write(1, json.dumps(line).encode() + b"\n")


def ran():
    info = activity.info()
    tell("ran", info.idempotency_key, info.attempt)


def eat():
    """More memory than the parent allows."""
    kept = []
    while True:
        kept.append(bytearray(b"x") * (16 << 20))


@activity.defn(retry_policy=FOREVER)
async def step(number: int) -> int:
    ran()
    await asyncio.sleep(0.001)
    return number


@activity.defn(retry_policy=FOREVER)
def thread_step(number: int) -> int:
    ran()
    return number


@activity.defn(retry_policy=FOREVER)
async def exits() -> None:
    ran()
    await asyncio.sleep(0)
    os._exit(7)


@activity.defn(retry_policy=FOREVER)
def eats() -> None:
    ran()
    eat()


@activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
def exits_once() -> None:
    ran()
    os._exit(7)


@workflow.defn
class Good:
    @workflow.run
    async def run(self, number: int) -> int:
        total = 0
        for n in range(5):
            total += await step(n)
            total += await workflow.execute_activity(thread_step, n)
        return total


@workflow.defn
class Exits:
    """Ends the process in a turn, after a step that was paid for."""

    @workflow.run
    async def run(self) -> None:
        await step(1)
        os._exit(7)


@workflow.defn
class ExitsAtOnce:
    @workflow.run
    async def run(self) -> None:
        os._exit(7)


@workflow.defn
class Eats:
    @workflow.run
    async def run(self) -> None:
        await step(1)
        eat()


class Calls:
    """Calls an activity that ends the process, and says what came of it."""

    async def call(self, name: str) -> str:
        try:
            await workflow.execute_activity(name, result_type=type(None))
        except ActivityError as error:
            if not error.caused_by(AttemptLostError):
                raise ApplicationError("something else") from error
            return error.retry_state
        return "returned"


@workflow.defn
class ActivityExits(Calls):
    @workflow.run
    async def run(self) -> str:
        return await self.call("exits")


@workflow.defn
class ActivityEats(Calls):
    @workflow.run
    async def run(self) -> str:
        return await self.call("eats")


@workflow.defn
class ActivityExitsOnce(Calls):
    @workflow.run
    async def run(self) -> str:
        return await self.call("exits_once")


@workflow.defn
class Asked:
    """A query and a validator that end the process; the run itself is well."""

    def __init__(self) -> None:
        self.go = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.go)
        return "well"

    @workflow.query
    def look(self) -> None:
        os._exit(7)

    @workflow.update
    def change(self) -> None:
        raise ApplicationError("it was not validated")

    @change.validator
    def check(self) -> None:
        os._exit(7)

    @workflow.signal
    def end(self) -> None:
        self.go = True


@workflow.defn
class Told:
    """A signal ends the process; it comes in the same moment as the start."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def end(self) -> None:
        os._exit(7)


KINDS = {
    cls.__name__: cls
    for cls in (Exits, ExitsAtOnce, Eats, ActivityExits, ActivityEats, ActivityExitsOnce, Asked, Told)
}


async def ask(handle):
    """Ask what kills the process until that is refused."""
    for call in (handle.query, handle.execute_update):
        handler = Asked.look if call == handle.query else Asked.change
        try:
            await call(handler)
        except (QueryFailedError, UpdateRejectedError) as error:
            tell("refused", type(error).__name__, f"{error} {error.__cause__}")
    await handle.signal(Asked.end)


async def outcome(handle):
    try:
        tell("end", handle.workflow_id, await handle.result())
    except EveractError as error:
        tell("end", handle.workflow_id, f"{type(error).__name__}: {error}")


async def main(journal, kinds):
    activities = [step, thread_step, exits, eats, exits_once]
    async with Runtime(journal, workflows=[Good, *KINDS.values()], activities=activities) as runtime:
        handles = [
            await runtime.spawn(Good, n, id=f"good-{n}", if_running="attach", if_closed="attach")
            for n in range(GOOD)
        ]
        waiting = [asyncio.create_task(outcome(handle)) for handle in handles]
        for kind in kinds:
            try:
                starting = asyncio.create_task(
                    runtime.spawn(KINDS[kind], id=kind, if_running="attach", if_closed="attach")
                )
                if kind == "Told":
                    await asyncio.sleep(0)
                    await runtime.ref(kind).signal("end", request_id="once")
                handle = await starting
            except EveractError as error:
                tell("end", kind, f"{type(error).__name__}: {error}")
                continue
            if kind == "Asked" and (await handle.describe()).status == "running":
                await ask(handle)
            waiting.append(asyncio.create_task(outcome(handle)))
        await asyncio.gather(*waiting)
    tell("done")


if __name__ == "__main__":
    logging.getLogger("everact").setLevel(logging.CRITICAL)
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
