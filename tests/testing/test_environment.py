"""The test environment: virtual time that jumps, is moved, and is held; calls that can never come fail at once."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from everact import activity, workflow
from everact.exceptions import ReplayFailedError, ResultTimeoutError
from everact.interceptors import ClientOutboundInterceptor, Interceptor
from everact.testing import NoProgressError, TestEnvironment

DAY = timedelta(days=1)


@activity.defn
async def charge(amount: int) -> int:
    return amount + 1


@workflow.defn
class Sleeps:
    @workflow.run
    async def run(self, naps: int, seconds: float) -> float:
        begun = workflow.time()
        for _ in range(naps):
            await workflow.sleep(seconds)
        return workflow.time() - begun


@workflow.defn
class Approves:
    def __init__(self) -> None:
        self.approved = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.approved)
        return "approved"

    @workflow.signal
    def approve(self) -> None:
        self.approved = True


@pytest.fixture(params=["memory", "lmdb"])
def store(request):
    return request.param


async def test_three_days_and_a_hundred_timers_take_milliseconds(store):
    async with TestEnvironment(workflows=[Sleeps], store=store) as env:
        begun = time.perf_counter()
        assert await env.execute(Sleeps, 100, 2592.0) == 3 * 86400
        assert time.perf_counter() - begun < 1.0  # 12 ms; 50 are promised, a loaded machine may need more
        assert env.now() == datetime(2026, 1, 4, tzinfo=UTC)


async def test_a_result_that_can_never_come_fails_at_once_and_names_what_is_waited_for():
    async with TestEnvironment(workflows=[Approves]) as env:
        handle = await env.spawn(Approves, id="a-1")
        with pytest.raises(NoProgressError) as caught:
            await handle.result()
        text = str(caught.value)
        assert text.startswith(
            "the result of workflow 'a-1' can never come: nothing runs, and nothing is due.\n"
        )
        assert "workflow 'a-1' (Approves) waits for condition at" in text
        assert "test_environment.py:" in text
        await handle.signal(Approves.approve)
        assert await handle.result() == "approved"


async def test_manual_time_moves_by_advance_only():
    async with TestEnvironment(workflows=[Sleeps], time="manual") as env:
        handle = await env.spawn(Sleeps, 3, 86400.0)
        await env.advance(2.5 * DAY)
        assert (await handle.describe()).status == "running"
        assert env.now() == datetime(2026, 1, 3, 12, tzinfo=UTC)
        await env.advance(DAY)
        assert await handle.result() == 3 * 86400


async def test_a_result_timeout_counts_virtual_time():
    async with TestEnvironment(workflows=[Sleeps]) as env:
        handle = await env.spawn(Sleeps, 1, 86400.0)
        with pytest.raises(ResultTimeoutError):
            await handle.result(timeout=timedelta(hours=1))
        assert env.now() == datetime(2026, 1, 1, 1, tzinfo=UTC)


async def test_handles_go_on_after_a_restart(store):
    async with TestEnvironment(workflows=[Sleeps, Approves], store=store) as env:
        sleeper = await env.spawn(Sleeps, 3, 86400.0)
        approver = await env.spawn(Approves)
        await env.sleep(1.5 * DAY)
        await env.restart()
        assert await sleeper.result() == 3 * 86400
        await approver.signal(Approves.approve)
        assert await approver.result() == "approved"


async def test_time_is_held_in_the_block():
    async with TestEnvironment(workflows=[Approves]) as env:
        handle = await env.spawn(Approves)
        with env.time_held():
            waiting = asyncio.create_task(handle.result())
            for _ in range(100):
                await asyncio.sleep(0)
            assert not waiting.done()
            await handle.signal(Approves.approve)
            assert await waiting == "approved"


class Tagged(Interceptor):
    def intercept_client(self, next):
        return Tags(next)


class Tags(ClientOutboundInterceptor):
    async def query_workflow(self, input):
        seen.append("query")
        return await self.next.query_workflow(input)

    async def get_workflow_result(self, input):
        seen.append("result")
        return await self.next.get_workflow_result(input)


seen: list[str] = []


@workflow.defn
class Talks:
    def __init__(self) -> None:
        self.word = ""

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: bool(self.word))
        await workflow.sleep(3600)
        return self.word

    @workflow.update
    async def say(self, word: str) -> str:
        await workflow.sleep(60)
        self.word = word
        return word.upper()

    @workflow.query
    def said(self) -> str:
        return self.word


async def test_time_passes_for_calls_through_interceptors():
    seen.clear()
    async with TestEnvironment(workflows=[Talks], interceptors=[Tagged()]) as env:
        handle = await env.spawn(Talks)
        assert await handle.execute_update(Talks.say, "tea") == "TEA"
        started = await handle.start_update(Talks.say, "tee")
        assert await started.result() == "TEE"
        assert await handle.query(Talks.said) == "tee"
        assert await handle.result() == "tee"
    assert seen == ["query", "result"]


@workflow.defn
class Fickle:
    @workflow.run
    async def run(self) -> None:
        if not turns:
            await charge(1)
        await workflow.sleep(1)


turns: list[int] = []


async def test_code_that_does_not_repeat_its_histories_fails_the_test():
    turns.clear()
    with pytest.raises(ReplayFailedError) as caught:
        async with TestEnvironment(workflows=[Fickle, Sleeps], activities=[charge]) as env:
            await env.execute(Sleeps, 1, 1.0)
            await env.execute(Fickle, id="fickle")
            turns.append(1)
    text = str(caught.value)
    assert "fickle" in text
    assert "test_environment.py" in text
    turns.clear()
    async with TestEnvironment(workflows=[Fickle], activities=[charge], replay=False) as env:
        await env.execute(Fickle)
        turns.append(1)


@workflow.defn
class OfSets:
    @workflow.run
    async def run(self) -> None:
        names = {"one", "three", "eleven", "twenty-one"}
        for name in names:
            if "n" in name:
                await charge(1)
            else:
                await workflow.sleep(1)


async def test_histories_are_replayed_under_other_hash_seeds():
    with pytest.raises(ReplayFailedError, match="under PYTHONHASHSEED="):
        async with TestEnvironment(
            workflows=[OfSets], activities=[charge], replay_hash_seeds=range(4), guard="off"
        ) as env:
            await env.execute(OfSets)


async def test_fakes_and_open_runs_are_replayed():
    async with TestEnvironment(workflows=[Sleeps, Fickle]) as env:
        with env.mock_activity(charge, returns=1):
            await env.execute(Fickle)
        await env.spawn(Sleeps, 5, 3600.0)
        await env.sleep(2 * 3600)
