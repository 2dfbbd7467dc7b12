"""Which steps a saga's news keep from being checkpoints: all between what says it and the saga's block."""

from contextvars import ContextVar

from support.steps import add, run_alike, steps_of

from everact import ApplicationError, workflow

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
