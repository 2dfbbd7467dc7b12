"""Steps of handlers and tasks that are alone for a moment, as ``run`` has not begun or is over: no checkpoints."""

import asyncio

from support.hosting import hosted
from support.steps import ACTIVITIES, add, replayed_alike, steps_of

from everact import workflow
from everact.journal.memory_store import MemoryJournal


@workflow.defn
class Early:
    def __init__(self) -> None:
        self.log: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        self.log.append("run")
        await add(1)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.log

    @workflow.signal
    async def tell(self, n: int) -> None:
        await self.step(n)
        self.log.append(f"told {n}")

    @workflow.step
    async def step(self, n: int) -> None:
        self.log.append(f"step {n}")


async def test_a_message_before_the_first_turn_may_call_a_step():
    async with hosted(MemoryJournal(), Early, activities=ACTIVITIES) as runtime:
        handle = await runtime.spawn(Early, start_delay=0.05)
        await handle.signal(Early.tell, 1)
        await handle.signal(Early.tell, 2)
        assert await handle.result() == ["step 1", "told 1", "step 2", "told 2", "run"]
        history = await handle.fetch_history()
    assert steps_of(history) == [("step", "completed", False)] * 2
    replayed_alike(Early, ACTIVITIES, history)


@workflow.defn
class Late:
    def __init__(self) -> None:
        self.log: list[str] = []

    @workflow.run
    async def run(self) -> str:
        await add(1)
        asyncio.create_task(self.follow())  # noqa: RUF006  (the loop keeps it)
        return "over"

    async def follow(self) -> None:
        await asyncio.sleep(0)
        await self.step()
        self.log.append("followed")

    @workflow.step
    async def step(self) -> None:
        self.log.append("step")

    @workflow.query
    def look(self) -> list[str]:
        return self.log


async def test_a_task_may_call_a_step_when_run_is_over():
    async with hosted(MemoryJournal(), Late, activities=ACTIVITIES) as runtime:
        handle = await runtime.spawn(Late)
        assert await handle.result() == "over"
        assert await handle.query(Late.look) == ["step", "followed"]
        history = await handle.fetch_history()
    assert steps_of(history) == [("step", "completed", False)]
