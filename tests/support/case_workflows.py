"""Workflows of tests/cases that other processes import by name."""

import asyncio

from everact import activity, workflow

WAYS = ("all", "first", "completed", "joined", "gather", "group")


@activity.defn
async def fetch(name: str) -> str:
    return name.upper()


@activity.defn
async def follow(name: str) -> str:
    return name.lower()


@workflow.defn
class WaitsForThree:
    """Three coroutines that start an activity each, waited for in one way; then three more, by what came back."""

    def __init__(self) -> None:
        self.go = True
        self.log: list[str] = []

    @workflow.signal
    def proceed(self) -> None:
        self.go = True

    async def one(self, name: str) -> str:
        return await fetch(name)

    @workflow.run
    async def run(self, way: str) -> list[str]:
        for names in (("ant", "bee", "cat"), ("dog", "eel", "fox")):
            await workflow.wait_condition(lambda: self.go)
            self.go = False
            await self.wait(way, [asyncio.create_task(self.one(name)) for name in names])
        return self.log

    async def wait(self, way: str, tasks: list[asyncio.Task[str]]) -> None:
        match way:
            case "all":
                done, _ = await asyncio.wait(set(tasks))
                for task in done:
                    self.log.append(await follow(task.result()))
            case "first":
                pending = set(tasks)
                while pending:
                    done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        self.log.append(await follow(task.result()))
            case "completed":
                for earliest in asyncio.as_completed(set(tasks)):
                    self.log.append(await follow(await earliest))
            case "joined":
                done, pending = await asyncio.wait(set(tasks), return_when=asyncio.FIRST_COMPLETED)
                for task in pending | done:
                    self.log.append(await follow(await task))
            case "gather":
                self.log += await asyncio.gather(*(follow(name) for name in await asyncio.gather(*tasks)))
            case "group":
                async with asyncio.TaskGroup() as group:
                    for task in tasks:
                        group.create_task(self.after(task))
            case _:
                raise AssertionError(way)

    async def after(self, task: asyncio.Task[str]) -> None:
        self.log.append(await follow(await task))
