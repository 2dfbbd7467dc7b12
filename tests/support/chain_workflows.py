"""For the corpus of committed histories, and for tests of replay: runs of a chain, and how each followed another."""

import asyncio
import contextlib

from everact import ApplicationError, RetryPolicy, activity, workflow
from everact.exceptions import EveractError
from everact.journal.memory_store import MemoryJournal
from support.clock import ManualClock
from support.hosting import hosted, settled, tick


@activity.defn
async def cleans(n: int) -> int:
    return n


@workflow.defn
class Chained:
    """Goes through ``steps``, a run for each, with what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.go = False

    @workflow.run
    async def run(self, steps: list[str], told: list[str]) -> list[str]:
        self.told = told + self.told
        self.steps = steps
        await workflow.sleep(1)
        match steps:
            case ["main", *rest]:
                try:
                    workflow.continue_as_new(rest, self.told, memo={"steps": len(rest)})
                finally:
                    await cleans(len(rest))
            case ["later", *rest]:
                workflow.continue_as_new(rest, self.told, backoff_start_interval=5)
            case ["fails", *_rest] if workflow.info().attempt == 1:
                raise ApplicationError("once", self.told)
            case ["handler" | "paused", *_rest]:
                await asyncio.gather(workflow.sleep(3600), cleans(1))
        info = workflow.info()
        return [*self.told, f"{info.attempt} {info.history_length} {workflow.last_failure()}"]

    @workflow.signal
    def tell(self, text: str) -> None:
        self.told.append(text)

    @workflow.signal
    async def next(self) -> None:
        await asyncio.sleep(0)
        workflow.continue_as_new(self.steps[1:], self.told)

    @workflow.update
    async def ask(self, text: str) -> str:
        await workflow.wait_condition(lambda: self.go)
        return text


async def runs_of(runtime, workflow_id):
    """Handles of the runs of an id, oldest first."""
    found = [one for one in await runtime.list_workflows() if one.workflow_id == workflow_id]
    return [runtime.ref(f"everact://local/{workflow_id}/{one.run_id}", Chained) for one in reversed(found)]


async def live(journal, clock):
    """One chain with everything: from main, from a handler with messages left behind, later, failed, timed out."""
    policy = RetryPolicy(initial_interval=2, jitter=0, maximum_attempts=2)
    async with hosted(journal, Chained, activities=[cleans], clock=clock) as runtime:
        steps = ["main", "handler", "later", "fails"]
        handle = await runtime.spawn(
            Chained, steps, [], id="chained", retry_policy=policy, execution_timeout=3600
        )
        await handle.signal(Chained.tell, "one")
        await tick(runtime, clock, 1.5)
        await tick(runtime, clock, 1.5)
        asking = asyncio.create_task(handle.execute_update(Chained.ask, "x", request_id="cut"))
        await settled(runtime)
        await handle.pause()
        await handle.signal(Chained.next)
        await handle.signal(Chained.tell, "two", request_id="two")
        await handle.resume()
        with contextlib.suppress(EveractError):
            await asking
        for _ in range(8):
            await tick(runtime, clock, 1.5)
        await handle.signal(Chained.tell, "three")
        for _ in range(6):
            await tick(runtime, clock, 1.5)
        result = await handle.result()
        slow = await runtime.spawn(Chained, ["paused"], [], id="slow", run_timeout=60)
        await tick(runtime, clock, 1.5)
        await slow.pause()
        await slow.signal(Chained.tell, "never")
        await tick(runtime, clock, 60)
        histories = [await run.fetch_history() for run in await runs_of(runtime, "chained")]
        return result, [*histories, await slow.fetch_history()]


async def record(write):
    _result, histories = await live(MemoryJournal(), ManualClock())
    for number, history in enumerate(histories, 1):
        write(history, f"chained-{number}")
