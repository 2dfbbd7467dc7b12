"""Which steps a saga's news keep from being checkpoints: all between what says it and the saga's block."""

import asyncio
from contextvars import ContextVar

import pytest
from support.steps import add, run_alike, steps_of

from everact import ApplicationError, activity, workflow
from everact.exceptions import WorkflowFailedError
from everact.testing import TestEnvironment

outermost: ContextVar = ContextVar("outermost")


@workflow.defn
class Nested:
    def __init__(self) -> None:
        self.log: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        try:
            async with workflow.saga("outer") as outer:
                outermost.set(outer)
                await self.around()
                await add(1)
                raise ApplicationError("in the end")
        except ApplicationError:
            return self.log

    @workflow.step
    async def around(self) -> None:
        async with workflow.saga("inner"):
            await self.within()

    @workflow.step
    async def within(self) -> None:
        await add(2)
        outermost.get().add_compensation(self.undo)

    def undo(self) -> None:
        self.log.append("undone")


async def test_a_step_deep_inside_tells_the_outermost_saga():
    result, history = await run_alike(Nested)
    assert result == ["undone"]
    assert steps_of(history) == [("within", "completed", False), ("around", "completed", False)]


async def test_an_optional_step_of_the_class_that_failed_is_not_undone():
    undone: list[str] = []

    @activity.defn
    async def take_back(what: str) -> None:
        undone.append(what)

    @workflow.defn
    class Optional:
        def __init__(self) -> None:
            self.begun = 0

        @workflow.run
        async def run(self) -> None:
            async with workflow.saga():
                await self.give("a")
                await self.give("")
                await asyncio.gather(self.give("b"), self.give(""))  # these are no checkpoints
                raise ApplicationError("late")

        @workflow.step(compensate=take_back, optional=True)
        async def give(self, what: str) -> str:
            if not what:
                raise ApplicationError("nothing to give")
            return what

    async with TestEnvironment(workflows=[Optional], activities=[take_back]) as env:
        handle = await env.spawn(Optional)
        with pytest.raises(WorkflowFailedError, match="late"):
            await handle.result()
        seen = await handle.describe()
    assert undone == ["b", "a"]
    assert [str(saga).rpartition(": ")[2] for saga in seen.sagas] == ["2 of 2 compensations done"]
