"""What is undone after its block was left holds the end of the run, whatever becomes of the task that does it."""

import asyncio

import pytest

from everact import ApplicationError, activity, workflow
from everact.exceptions import WorkflowFailedError, WorkflowQuarantinedError
from everact.testing import TestEnvironment


@activity.defn
async def undo(number: int = 0) -> None:
    raise NotImplementedError


@workflow.defn
class Late:
    @workflow.step(compensate=undo)
    async def slow(self) -> int:
        await workflow.sleep(3)
        return 2

    async def beside(self, kills: bool) -> None:
        await self.slow()
        if kills:
            for task in asyncio.all_tasks():
                if task is not asyncio.current_task() and task.get_name() != "main":
                    task.cancel()

    @workflow.run
    async def run(self, has_other: bool, kills: bool, fails: bool) -> None:
        try:
            async with workflow.saga("s") as saga:
                if has_other:
                    saga.add_compensation(undo, 1)
                task = asyncio.create_task(self.beside(kills))
                await workflow.sleep(1)
                raise ApplicationError("x")
        except ApplicationError:
            pass
        await asyncio.wait([task])
        if fails:
            raise ApplicationError("end")


@pytest.mark.parametrize("has_other", [False, True])
@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_late_compensation_is_done_before_the_run_ends(has_other, kills, fails):
    async with TestEnvironment(workflows=[Late]) as env:
        undone = env.mock_activity(undo, delay=1)
        handle = await env.spawn(Late, has_other, kills, fails)
        if fails:
            with pytest.raises(WorkflowFailedError, match="end"):
                await handle.result()
            expected = [(1,), (2,)] if has_other else [(2,)]
            assert [call.args for call in undone.calls] == expected
        else:  # it says that all is well while something is being undone
            with pytest.raises(WorkflowQuarantinedError, match="run must not return while saga 's'"):
                await handle.result()
