"""A program with steps, run again and again on one journal, and killed somewhere in each life.

    python step_program.py JOURNAL

It starts a few runs, waits for all of them, and prints a JSON line for what it sees: ``["body", workflow id, place]``
when the body of a step runs, ``["ran", idempotency key]`` when an activity does, ``["end", workflow id, result]``.
"""

import asyncio
import json
import os
import sys

from everact import ApplicationError, RetryPolicy, Runtime, activity, workflow
from everact.exceptions import EveractError

RUNS = 6
ROUNDS = 4
FOREVER = RetryPolicy(initial_interval=0.001, maximum_interval=0.001, maximum_attempts=0)
TWICE = RetryPolicy(initial_interval=0.001, maximum_interval=0.001, maximum_attempts=0, jitter=0.5)


def tell(*line):
    os.write(1, json.dumps(line).encode() + b"\n")


@activity.defn(retry_policy=FOREVER)
async def add(n: int) -> int:
    tell("ran", activity.info().idempotency_key)
    await asyncio.sleep(0.0005)
    return n + 1


@workflow.defn
class Ledger:
    """Each step moves money between fields; what they hold together never changes between two steps."""

    accounts: dict[str, int]

    def __init__(self) -> None:
        self.accounts = {"a": 1000, "b": 0, "c": 0}
        self.log: list[str] = []
        self.total = 0

    @workflow.run
    async def run(self) -> list[str]:
        rng = workflow.random("amounts")
        for number in range(ROUNDS):
            amount = rng.randint(1, 50)
            moved = await self.move(number, amount)
            await self.settle(number, moved)
            self.log.append(f"{number} {amount} {moved} {workflow.uuid4()} {sum(self.accounts.values())}")
        await asyncio.gather(self.beside("b", 5), self.beside("c", 7))
        self.log.append(f"{self.accounts} {self.total}")
        return self.log

    @workflow.step
    async def move(self, number: int, amount: int) -> int:
        tell("body", workflow.info().workflow_id, f"move {number}")
        self.accounts["a"] -= amount
        checked = await add(amount)
        checked += workflow.random("fees").randint(0, 3)
        await workflow.sleep(0.0005)
        self.accounts["b"] += amount
        self.total += checked
        return checked

    @workflow.step(retry=TWICE)
    async def settle(self, number: int, moved: int) -> None:
        tell("body", workflow.info().workflow_id, f"settle {number}")
        self.accounts["b"] -= 1
        if await add(0) and workflow.random("luck").random() < 0.4:
            raise ApplicationError("bad luck")
        await self.finish(number)

    @workflow.step
    async def finish(self, number: int) -> None:
        tell("body", workflow.info().workflow_id, f"finish {number}")
        self.accounts["c"] += await add(0)

    @workflow.step
    async def beside(self, name: str, n: int) -> None:
        for _ in range(n):
            self.accounts[name] += await add(0)
            self.accounts["a"] -= 1


async def main(path):
    async with Runtime(path, workflows=[Ledger], activities=[add], guard="off") as runtime:
        handles = [
            await runtime.spawn(Ledger.run, id=f"l-{number}", if_running="attach", if_closed="attach")
            for number in range(RUNS)
        ]
        for handle in handles:
            tell("end", handle.workflow_id, await handle.result())


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except EveractError as error:
        sys.exit(f"{type(error).__name__}: {error}")
