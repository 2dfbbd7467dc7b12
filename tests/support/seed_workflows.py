"""Workflows that other processes replay, and what those need."""

import os
import sys
from dataclasses import dataclass

from everact import activity, workflow
from everact.interceptors import Interceptor, WorkflowInboundInterceptor
from everact.payloads import TypeConverter


@activity.defn
async def visit(name: str) -> str:
    return name


@workflow.defn
class Unordered:
    """Goes through a set of strings, whose order is another one under each hash seed."""

    @workflow.run
    async def run(self) -> None:
        for text in set("1234567"):  # everact: allow
            await workflow.sleep(int(text) / 1000)


@workflow.defn
class Talking:
    """Prints, where a process waits for answers."""

    @workflow.run
    async def run(self, fatal: str) -> str:
        print("this is no answer")
        sys.stdout.flush()
        os.write(1, b"nor is this\n")
        if os.environ.get("PYTHONHASHSEED") == fatal:
            os._exit(7)
        return await visit("x")


@dataclass
class Point:
    x: int


def store(point):
    return point.x


@workflow.defn
class Pointing:
    @workflow.run
    async def run(self, point: Point) -> Point:
        return point


POINT = TypeConverter(Point, store=store, load=Point)


class Waiting(WorkflowInboundInterceptor):
    async def execute_workflow(self, input):
        await workflow.sleep(0.001)
        return await self.next.execute_workflow(input)


class Waits(Interceptor):
    def intercept_workflow(self, next):
        return Waiting(next)


class Closure(Interceptor):
    """Cannot be pickled."""

    def __init__(self):
        self.held = lambda: None

    def intercept_workflow(self, next):
        return Waiting(next)
