"""Workflows with steps, for the corpus of histories."""

import asyncio
import contextlib

from everact import ApplicationError, RetryPolicy, activity, workflow
from everact.exceptions import WorkflowFailedError
from support.hosting import settled

AT_ONCE = RetryPolicy(initial_interval=0.001, maximum_interval=0.001, maximum_attempts=0, jitter=0)


@activity.defn
async def climb(n: int) -> int:
    return n + 1


@activity.defn
async def numbered() -> int:
    return activity.info().command


@workflow.defn
class Stepping:
    """Steps of every kind and end."""

    words: list[str]

    def __init__(self) -> None:
        self.words = []

    @workflow.run
    async def run(self, ending: str) -> list[str]:
        rng = workflow.random("dice")
        await self.plain(1)
        self.words.append(f"{rng.random()} {workflow.uuid4()}")
        await self.outer()
        self.words.append(f"{await self.retried()} {rng.random()}")
        for step in (self.mended, self.skipped, self.late):
            self.words.append(f"{await step(5)}")
        try:
            await self.fails()
        except ApplicationError as error:
            self.words.append(f"{error.type} {error.message}")
        await asyncio.gather(self.plain(2), self.plain(3))
        task = asyncio.create_task(self.waits())
        await workflow.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
        (word,) = await workflow.wait_for_signal(Stepping.say)
        won = await workflow.race(signal=workflow.wait_for_signal("never"), timer=workflow.sleep(0.001))
        self.words.append(f"{word} {won.name} {rng.random()}")
        await self.end(ending)
        return self.words

    @workflow.signal
    def say(self, word: str) -> None:
        self.words.append(f"said {word}")

    @workflow.query
    def look(self) -> list[str]:
        return self.words

    @workflow.step
    async def plain(self, n: int) -> int:
        for _ in range(3):
            n = await climb(n)
        self.words.append(f"plain {n} {workflow.random('dice').random()} {workflow.uuid4()}")
        return n

    @workflow.step(name="around")
    async def outer(self) -> None:
        workflow.upsert_memo({"where": "around"})
        for n in range(2):
            await self.plain(10 * n)
        self.words.append(f"effect {workflow.side_effect(lambda: 7)}")

    @workflow.step(retry=AT_ONCE)
    async def retried(self) -> int:
        self.words.append("lost with its attempt")
        n = await workflow.execute_activity(numbered)
        if n < 26:
            raise ApplicationError("again", type="Again")
        return n

    async def mend(self, error: Exception, n: int) -> str:
        return f"mended {await climb(n)} {error}"

    @workflow.step(on_error=mend)
    async def mended(self, n: int) -> str:
        raise ApplicationError(f"broken {await climb(n)}")

    @workflow.step(optional=True)
    async def skipped(self, n: int) -> None:
        raise ApplicationError(f"skipped {await climb(n)}")

    @workflow.step(timeout=0.002, on_timeout="too late")
    async def late(self, n: int) -> str:
        await asyncio.Event().wait()
        return ""

    @workflow.step
    async def fails(self) -> None:
        raise ApplicationError(f"no {await climb(1)}", type="Never")

    @workflow.step
    async def waits(self) -> None:
        await workflow.sleep(1000)

    @workflow.step
    async def end(self, ending: str) -> None:
        (word,) = await workflow.wait_for_signal("end")
        self.words.append(word)
        if ending == "failed":
            raise ApplicationError("the end", type="Over")


async def record(runtime, write):
    """Runs that end, fail and stay open."""
    for ending in ("completed", "failed", "open"):
        handle = await runtime.spawn(Stepping.run, ending, id=f"steps-{ending}")
        await handle.signal(Stepping.say, "a word")
        if ending == "open":
            while (await handle.describe()).current_step != "end":
                await settled(runtime)
        else:
            await handle.signal("end", "early")
            with contextlib.suppress(WorkflowFailedError):
                await handle.result()
        write(await handle.fetch_history(), f"steps-{ending}")
        if ending == "open":
            await handle.terminate()
