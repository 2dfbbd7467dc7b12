"""Workflows that tests call through a door, and a program that runs them."""

import asyncio
import os
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from everact import ApplicationError, RetryPolicy, Runtime, activity, workflow


@dataclass
class Order:
    item: str
    count: int = 1


@workflow.defn
class Waits:
    """Waits until it is told a word, and gives back what it has heard."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.end: str | None = None

    @workflow.run
    async def run(self, order: Order | None = None) -> Order:
        await workflow.wait_condition(lambda: self.end is not None)
        if self.end == "fail":
            raise ApplicationError("no stock", {"item": "tea"}, type="NoStock")
        return Order(",".join([*self.heard, self.end or ""]), order.count if order else 0)

    @workflow.signal
    def hear(self, word: str) -> None:
        self.heard.append(word)

    @workflow.signal
    def finish(self, word: str) -> None:
        self.end = word

    @workflow.signal
    def take(self, order: Order) -> None:
        self.heard.append(order.item)

    @workflow.query
    def holds(self, order: Order) -> bool:
        return order.item in self.heard

    @workflow.query
    def words(self) -> list[str]:
        return self.heard

    @workflow.query
    def raw(self) -> bytes:
        return b"\0raw"

    @workflow.query
    def breaks(self) -> str:
        raise KeyError("nothing")

    @workflow.update
    def add(self, order: Order) -> int:
        if not order.item:
            raise ApplicationError("no item", order.count, type="NoItem")
        self.heard.append(order.item)
        return len(self.heard)

    @add.validator
    def check_add(self, order: Order) -> None:
        if order.count < 0:
            raise ValueError("count is negative")

    @workflow.update
    async def until(self, word: str) -> int:
        await workflow.wait_condition(lambda: word in self.heard)
        return self.heard.index(word)


@workflow.defn
class Free:
    """Has no hints at all."""

    @workflow.run
    async def run(self, *values: Any) -> Any:
        return list(values)


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), jitter=0))
async def asks(question: str) -> Order:
    """Is completed by somebody outside."""
    activity.raise_complete_async()


@workflow.defn
class Asks:
    """Asks somebody outside."""

    @workflow.run
    async def run(self) -> Order:
        return await workflow.execute_activity(
            asks, "how many?", cancellation_type="wait_cancellation_completed"
        )


@workflow.defn
class Blocks:
    """Holds the event loop when it is asked to."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def hold(self, path: str) -> None:
        """Let nothing else run until there is a file with this name."""
        until(path)

    @workflow.query
    def held(self, path: str) -> str:
        until(path)
        return "no longer"


def until(path: str) -> None:
    while not os.path.exists(path):  # noqa: PTH110  (pathlib is what the guards look for)
        time.sleep(0.001)


@workflow.defn
class Last:
    """Says how its chain has come to it; its result is of another type than that of the others."""

    @workflow.run
    async def run(self, order: Order) -> Order:
        return order


@workflow.defn
class Hops:
    """Continues as new at each word; at the end as a ``Last``."""

    def __init__(self) -> None:
        self.word = ""

    @workflow.run
    async def run(self, said: list[str]) -> str:
        self.said = said
        await workflow.wait_condition(lambda: self.word)
        if self.word == "fail" and workflow.info().attempt == 1:
            raise ApplicationError("once")
        if self.word == "end":
            workflow.continue_as_new(Order(",".join(said)), workflow=Last)
        workflow.continue_as_new([*said, self.word])

    @workflow.signal
    def hop(self, word: str) -> None:
        self.word = word

    @workflow.query
    def all(self) -> list[str]:
        return self.said


WORKFLOWS = [Waits, Free, Asks]
CHAINED = [Hops, Last]


async def program(path: str) -> None:
    workflows = [*WORKFLOWS, Blocks, *(CHAINED if os.environ.get("CHAINED") else [])]
    async with Runtime(path, workflows=workflows, activities=[asks], grace=0.1, guard="off", watchdog=None):
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(program(os.fspath(sys.argv[1])))
