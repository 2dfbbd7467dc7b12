"""A run does not go on as a new one while a saga of it has something to undo: the next run could not."""

import asyncio

import pytest

from everact import ApplicationError, activity, workflow
from everact.exceptions import UpdateFailedError, WorkflowFailedError, WorkflowQuarantinedError
from everact.testing import TestEnvironment, assert_compensated

undone: list[int] = []


@activity.defn
async def do(n: int) -> int:
    return n


@activity.defn
async def undo(n: int) -> None:
    if n not in undone:  # a crash may have cut the attempt before
        undone.append(n)


def environment(*workflows):
    undone.clear()
    return TestEnvironment(workflows=workflows, activities=[do, undo])


@workflow.defn
class Waits:
    def __init__(self) -> None:
        self.is_over = False

    @workflow.run
    async def run(self, generation: int) -> str:
        if generation:
            return "a new one"
        async with workflow.saga() as saga:
            await saga.run(do, 1, compensate=undo)
            workflow.publish("done", 1)
            await workflow.wait_condition(lambda: self.is_over)
            raise ApplicationError("in the end")

    @workflow.signal
    def renew(self) -> None:
        workflow.continue_as_new(1)

    @workflow.signal
    async def renew_later(self) -> None:
        await asyncio.sleep(0)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew())

    async def _renew(self) -> None:
        workflow.continue_as_new(1)

    @workflow.update
    async def ask_for_another(self) -> None:
        await self._renew()

    @workflow.signal
    def end(self) -> None:
        self.is_over = True


async def has_done(env, cls):
    handle = await env.spawn(cls, 0)
    await env.sleep(0)  # all that can be done is done
    assert (await handle.describe()).published == {"done": 1}
    return handle


@pytest.mark.parametrize("handler", ["renew", "renew_later"])
async def test_a_handler_does_not_lose_what_a_saga_is_to_undo(handler):
    async with environment(Waits) as env:
        handle = await has_done(env, Waits)
        await handle.signal(handler)
        await handle.signal(Waits.end)
        with pytest.raises(WorkflowFailedError, match="in the end"):
            await handle.result()
        (letter,) = (await handle.describe()).dead_letters
        assert "saga 'saga' has completed steps" in letter.reason
        assert_compensated(await handle.fetch_history(), ["undo"])
        assert undone == [1]


async def test_the_caller_of_an_update_hears_why_the_run_does_not_go_on_as_a_new_one():
    async with environment(Waits) as env:
        handle = await has_done(env, Waits)
        with pytest.raises(UpdateFailedError, match="must not leave a handler"):
            await handle.execute_update(Waits.ask_for_another)
        await handle.terminate()


@workflow.defn
class Quiet:
    """Its sagas have nothing to undo when it is told to go on."""

    @workflow.run
    async def run(self, generation: int) -> str:
        if generation:
            return "a new one"
        async with workflow.saga() as saga:
            await saga.run(do, 1, compensate=undo)
        async with workflow.saga() as saga:
            await saga.run(do, 1)
            workflow.publish("done", 1)
            await workflow.wait_condition(lambda: False)
        return "the old one"

    @workflow.signal
    async def renew(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew())

    async def _renew(self) -> None:
        workflow.continue_as_new(1)


async def test_a_handler_s_task_group_ends_the_run_as_the_handler_itself_does():
    async with environment(Quiet) as env:
        handle = await has_done(env, Quiet)
        await handle.signal(Quiet.renew)
        assert await handle.result() == "a new one"


@workflow.defn
class Renewing:
    @workflow.run
    async def run(self, kind: str) -> None:
        await self.all_of_it(kind)

    async def all_of_it(self, kind: str) -> None:
        async with workflow.saga(parallel=kind == "parallel") as saga:
            await saga.run(do, 1, compensate=undo)
            saga.add_compensation(self.renew)
            await saga.run(do, 2, compensate=undo)
            raise ApplicationError("in the end")

    async def renew(self) -> None:
        workflow.continue_as_new("again")


@workflow.defn(on_crash="fail")
class Failing(Renewing):
    @workflow.run
    async def run(self, kind: str) -> None:
        await self.all_of_it(kind)


async def test_a_compensation_that_continues_as_new_is_a_bug():
    async with environment(Renewing) as env:
        handle = await env.spawn(Renewing, "serial")
        with pytest.raises(WorkflowQuarantinedError, match="must not leave a compensation"):
            await handle.result()
        assert undone == [2]


@pytest.mark.parametrize("kind", ["serial", "parallel"])
async def test_the_other_compensations_follow_one_that_continues_as_new(kind):
    async with environment(Failing) as env:
        handle = await env.spawn(Failing, kind)
        with pytest.raises(WorkflowFailedError, match="renew"):
            await handle.result()
        assert undone == [2, 1]
