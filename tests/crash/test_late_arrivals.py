"""What comes when nobody waits for it any more is neither handled nor written."""

import asyncio

import pytest

from everact import Runtime, activity, workflow
from everact.journal.clock import SystemClock
from everact.journal.memory_store import MemoryStore

opened: asyncio.Event


@activity.defn
async def wait() -> str:
    await opened.wait()
    return "late"


@workflow.defn
class Impatient:
    """Gives up its timer or its activity when it is told to."""

    def __init__(self) -> None:
        self.told = ""

    @workflow.run
    async def run(self) -> str:
        waited = workflow.start_activity(wait)
        await workflow.wait_condition(lambda: self.told == "go", timeout=60)
        waited.cancel()
        await workflow.wait_condition(lambda: self.told == "end")
        return "early"

    @workflow.signal
    def tell(self, word: str) -> None:
        self.told = word


class ManualClock(SystemClock):
    def __init__(self):
        self.now = super().wall()

    def wall(self):
        return self.now


@pytest.mark.parametrize("late", ["TimerFired", "ActivityCompleted"])
async def test_what_arrives_behind_the_message_that_gave_it_up_is_dropped(late):
    global opened
    opened = asyncio.Event()
    clock = ManualClock()
    async with (
        asyncio.timeout(10),
        Runtime(MemoryStore(), workflows=[Impatient], activities=[wait], clock=clock) as runtime,
    ):
        handle = await runtime.spawn(Impatient)
        (actor,) = runtime._shard.actors.values()
        telling = asyncio.create_task(handle.tell(Impatient.tell, "go"))
        if late == "ActivityCompleted":
            opened.set()  # the activity returns behind the message, before either is handled
        await asyncio.sleep(0)
        if late == "TimerFired":
            clock.now += 3_600_000_000
            runtime._shard.timers.check()
        assert [type(event).__name__ for event, _reply in actor.mailbox] == ["SignalReceived", late]
        await telling
        await handle.tell(Impatient.tell, "end")
        assert await handle.result() == "early"
        kinds = [event.kind for event in await handle.fetch_history()]
        assert late not in kinds
        assert kinds.count("TimerCancelled") == kinds.count("ActivityCancelRequested") == 1
