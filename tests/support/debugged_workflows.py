"""A workflow for the debugger: helpers, messages, a group of tasks, steps, a failing activity."""

import asyncio
from datetime import timedelta

from everact import ActivityError, ApplicationError, RetryPolicy, activity, workflow


@activity.defn
async def charge(amount: int) -> str:
    return f"receipt-{amount}"


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=2))
async def refuse() -> None:
    raise ApplicationError("no")


async def charged(amount: int) -> str:
    return await workflow.execute_activity(charge, amount)  # charged


@workflow.defn
class Bill:
    def __init__(self) -> None:
        self.approved = False  # first
        self.notes: list[str] = []

    @workflow.signal
    def approve(self, by: str) -> None:
        self.notes.append(by)  # signal
        self.approved = True

    @workflow.update
    async def note(self, text: str) -> int:
        self.notes.append(text)  # update
        return len(self.notes)  # answer

    @workflow.step
    async def paid(self, amount: int) -> str:
        receipt = await charged(amount)
        self.notes.append(receipt)  # in the step
        return receipt

    @workflow.run
    async def run(self, amount: int) -> str:
        receipt = await self.paid(amount)
        await workflow.wait_condition(lambda: self.approved)  # condition
        async with asyncio.TaskGroup() as group:
            plain = group.create_task(workflow.execute_activity(charge, amount + 1))  # plain
            again = group.create_task(charged(amount + 2))
        try:
            await workflow.execute_activity(refuse)  # refused
        except ActivityError:
            self.notes.append("refused")
        await workflow.sleep(0.001)
        return f"{receipt} {plain.result()} {again.result()}"  # end
