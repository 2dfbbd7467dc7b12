"""Steps, waits for signals, races and deadlines: calls that both type checkers accept, and the types that they give."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from everact import RetryPolicy, StepInfo, WorkflowHandle, activity, workflow


@activity.defn
async def charge(cents: int) -> str:
    return str(cents)


@workflow.defn
class Stepped:
    items: list[int]

    def __init__(self) -> None:
        self.items = []

    @workflow.signal
    def approve(self, tracking: str, days: int) -> None:
        pass

    @workflow.signal
    async def nudge(self) -> None:
        pass

    @workflow.transient
    def by_name(self) -> dict[str, int]:
        return {str(item): item for item in self.items}

    @workflow.step
    async def plain(self, cents: int, note: str = "") -> str:
        return await charge(cents) + note

    async def mend(self, error: Exception, cents: int) -> str:
        return f"{error} {cents}"

    def late(self, cents: int) -> str:
        return f"{cents}"

    async def undo(self, charged: str) -> None:
        pass

    @workflow.step(
        name="all",
        retry=RetryPolicy(maximum_attempts=3),
        timeout=timedelta(minutes=2),
        on_timeout=late,
        on_error=mend,
        compensate=undo,
    )
    async def with_options(self, cents: int) -> str:
        return await charge(cents)

    @workflow.step(retry=3, timeout=5, on_timeout=None, optional=True)
    async def optional(self, cents: int) -> str | None:
        return await charge(cents)

    @workflow.run
    async def run(self) -> None:
        assert_type(await self.plain(5, note="x"), str)
        assert_type(await self.with_options(5), str)
        assert_type(await self.optional(cents=5), str | None)
        assert_type(await asyncio.gather(self.plain(1), self.optional(2)), tuple[str, str | None])
        assert_type(self.by_name["1"], int)
        assert_type(await workflow.wait_for_signal(Stepped.approve), tuple[str, int])
        assert_type(await workflow.wait_for_signal(Stepped.nudge, timeout=5), tuple[()])
        assert_type(
            await workflow.wait_for_signal(Stepped.approve, timeout=timedelta(days=3), default=None),
            tuple[str, int] | None,
        )
        assert_type(await workflow.wait_for_signal("any"), tuple[Any, ...])
        assert_type(await workflow.wait_for_signal("any", timeout=1, default=0), tuple[Any, ...] | int)
        assert_type(await workflow.race(self.plain(1), self.optional(2)), workflow.Won[str | None])
        won = await workflow.race(one=self.plain(1), two=self.with_options(2))
        assert_type(won, workflow.Won[str])
        assert_type(won.name, str)
        assert_type(won.value, str)
        async with workflow.deadline(timedelta(hours=1)) as limit:
            assert_type(limit.expired(), bool)
        async with workflow.deadline(datetime(2030, 1, 1, tzinfo=UTC)), workflow.deadline(5.0):
            pass


async def progress(handle: WorkflowHandle[Stepped, None]) -> None:
    description = await handle.describe()
    assert_type(description.steps, tuple[StepInfo, ...])
    assert_type(description.step_counts, dict[str, int])
    assert_type(description.current_step, str | None)
    assert_type([step.ended_at for step in description.steps], list[datetime | None])
