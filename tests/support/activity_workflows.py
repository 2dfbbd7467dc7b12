"""For the corpus of committed histories: heartbeats, cancelling and waiting, side effects, a memo."""

import asyncio
from datetime import timedelta

from everact import RetryPolicy, activity, workflow
from everact.journal.memory_store import MemoryJournal
from support.hosting import hosted


@activity.defn(
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=2),
    heartbeat_timeout=60,
    schedule_to_start_timeout=60,
    schedule_to_close_timeout=600,
)
async def climbs(top: int) -> int:
    height = activity.heartbeat_details(int) or 0
    activity.heartbeat(height + top)
    if activity.info().attempt == 1:
        raise ValueError("slipped")
    return height


@activity.defn
async def rests() -> None:
    activity.heartbeat("resting")
    await asyncio.Event().wait()


@workflow.defn
class Patient:
    """Activities that are followed closely."""

    @workflow.run
    async def run(self) -> str:
        found = workflow.side_effect(lambda: {"seed": 7})
        workflow.upsert_memo({"seed": found["seed"], "gone": None})
        height = await climbs(300)
        waits = workflow.start_activity(rests, cancellation_type="wait_cancellation_completed")
        let_go = workflow.start_activity(rests, cancellation_type="abandon")
        await workflow.sleep(0.001)
        let_go.cancel()
        waits.cancel()
        try:
            await waits
        except asyncio.CancelledError:
            return f"{height} {workflow.memo()}"
        return "not cancelled"


async def record(write):
    async with hosted(MemoryJournal(), Patient, activities=[climbs, rests]) as runtime:
        handle = await runtime.spawn(Patient.run, id="patient", memo={"gone": 1, "kept": [1, 2]})
        await handle.result()
        write(await handle.fetch_history(), "patient")
