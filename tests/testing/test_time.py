"""All that waits in the engine waits by the environment's time, and by nobody else's (J01)."""

import asyncio
import logging
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from everact import ApplicationError, RetryPolicy, WatchdogLimits, activity, workflow
from everact.exceptions import ActivityTimeoutError, WorkflowFailedError, WorkflowTimeoutError
from everact.testing import NoProgressError, TestEnvironment
from everact.testing import driver as driving

DAY = timedelta(days=1)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@workflow.defn
class Sleeps:
    @workflow.run
    async def run(self, seconds: float) -> float:
        begun = workflow.time()
        await workflow.sleep(seconds)
        return workflow.time() - begun


class Gate:
    """An activity that really waits until the test opens it."""

    def __init__(self):
        self.open = asyncio.Event()
        self.entered = asyncio.Event()

        @activity.defn
        async def gated() -> str:
            self.entered.set()
            await self.open.wait()
            return "through"

        self.fn = gated


@workflow.defn
class Gated:
    @workflow.run
    async def run(self, limit: float = 300) -> str:
        return await workflow.execute_activity(
            "gated",
            result_type=str,
            start_to_close_timeout=limit,
            retry_policy=RetryPolicy(maximum_attempts=1),
        )


async def test_j01_a_pending_activity_of_one_environment_does_not_hold_another():
    gate = Gate()
    async with (
        TestEnvironment(workflows=[Gated], activities=[gate.fn]) as one,
        TestEnvironment(workflows=[Sleeps]) as other,
    ):
        pending = await one.spawn(Gated)
        await gate.entered.wait()
        assert await other.execute(Sleeps, 30 * 86400.0) == 30 * 86400
        assert one.now() == BEGIN
        assert "time is held by activity 'gated', attempt 1 of workflow" in one.report()
        gate.open.set()
        assert await pending.result() == "through"
        assert one.now() == BEGIN


async def test_j01_in_one_environment_a_pending_activity_holds_time_and_the_report_says_so(
    caplog, monkeypatch
):
    monkeypatch.setattr(driving, "PATIENCE", 0.01)
    gate = Gate()
    async with TestEnvironment(workflows=[Gated, Sleeps], activities=[gate.fn]) as env:
        pending = await env.spawn(Gated, id="g")
        sleeping = asyncio.create_task(env.execute(Sleeps, 30 * 86400.0))
        with caplog.at_level(logging.WARNING, "everact.testing"):
            while not caplog.records:
                await asyncio.sleep(0.001)
        text = caplog.records[0].getMessage()
        assert text.startswith(
            "virtual time stands still since 0.01 s.\ntime: 2026-01-01 00:00:00 UTC, jumps"
        )
        assert (
            "time is held by activity 'gated', attempt 1 of workflow 'g': its code runs, and does not" in text
        )
        assert "next due: 2026-01-" in text
        assert not sleeping.done()
        gate.open.set()
        assert await pending.result() == "through"
        assert await sleeping == 30 * 86400


async def test_many_environments_in_one_loop_and_in_many_threads():
    async def one(days):
        async with TestEnvironment(workflows=[Sleeps], seed=days) as env:
            slept = [await env.execute(Sleeps, 86400.0 * days) for _ in range(3)]
            return slept, env.now() - BEGIN

    found = await asyncio.gather(*map(one, range(1, 30)))
    assert found == [([86400.0 * n] * 3, 3 * n * DAY) for n in range(1, 30)]
    results = []
    threads = [threading.Thread(target=lambda n=n: results.append(asyncio.run(one(n)))) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert len(results) == 4


async def test_time_stands_still_while_nobody_waits():
    async with TestEnvironment(workflows=[Sleeps]) as env:
        handle = await env.spawn(Sleeps, 60.0)
        for _ in range(50):
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert env.now() == BEGIN
        assert (await handle.describe()).status == "running"
        await env.sleep(59)
        assert (await handle.describe()).status == "running"
        await env.sleep(1)
        assert await handle.result() == 60


async def test_threads_hold_time_as_well():
    inside, release = threading.Event(), threading.Event()

    @activity.defn
    def gated() -> str:
        inside.set()
        release.wait(20)
        return "through"

    async with TestEnvironment(workflows=[Gated, Sleeps], activities=[gated]) as env:
        handle = await env.spawn(Gated)
        await asyncio.to_thread(inside.wait, 20)
        sleeping = asyncio.create_task(env.sleep(DAY))
        for _ in range(50):
            await asyncio.sleep(0)
        assert env.now() == BEGIN
        release.set()
        assert await handle.result() == "through"
        await sleeping


async def test_an_activity_that_sleeps_by_the_environment_does_not_hold_it_and_meets_its_limit():
    @activity.defn(name="gated")
    async def naps() -> str:
        await env.sleep(timedelta(minutes=4))
        return "slept"

    async with TestEnvironment(workflows=[Gated], activities=[naps]) as env:
        assert await env.execute(Gated, 300.0) == "slept"
        assert env.now() == BEGIN + timedelta(minutes=4)
        with pytest.raises(WorkflowFailedError) as caught:
            await env.execute(Gated, 60.0)
        assert isinstance(caught.value.__cause__.__cause__, ActivityTimeoutError)
        assert env.now() == BEGIN + timedelta(minutes=5)


async def test_an_activity_that_waits_for_a_run_does_not_hold_time():
    @activity.defn(name="gated")
    async def starts_another() -> str:
        return str(await activity.client().execute(Sleeps, 120.0))

    async with TestEnvironment(workflows=[Gated, Sleeps], activities=[starts_another]) as env:
        assert await env.execute(Gated) == "120.0"


async def test_advance_goes_past_running_activities_only_when_it_is_told_to():
    gate = Gate()
    async with TestEnvironment(workflows=[Gated], activities=[gate.fn], time="manual") as env:
        handle = await env.spawn(Gated, 60.0)
        await gate.entered.wait()
        moving = asyncio.create_task(env.advance(90))
        for _ in range(50):
            await asyncio.sleep(0)
        assert env.now() == BEGIN
        moving.cancel()
        await env.advance(90, past_running=True)
        assert env.now() == BEGIN + timedelta(seconds=90)
        with pytest.raises(WorkflowFailedError) as caught:
            await handle.result()
        assert isinstance(caught.value.__cause__.__cause__, ActivityTimeoutError)


async def test_advance_stops_wherever_something_is_due():
    seen = []

    @activity.defn
    async def note() -> None:
        seen.append(env.now() - BEGIN)

    @workflow.defn
    class Notes:
        @workflow.run
        async def run(self) -> None:
            for _ in range(3):
                await workflow.sleep(86400)
                await workflow.execute_activity(note)

    async with TestEnvironment(workflows=[Notes], activities=[note], time="manual") as env:
        handle = await env.spawn(Notes)
        await env.advance(5 * DAY)
        await handle.result()
        assert seen == [DAY, 2 * DAY, 3 * DAY]
        assert env.now() == BEGIN + 5 * DAY
        await asyncio.gather(env.advance(1), env.advance(2))
        assert env.now() == BEGIN + 5 * DAY + timedelta(seconds=3)


async def test_run_limits_delays_schedules_and_retries_of_runs_are_virtual():
    @workflow.defn
    class Ticks:
        @workflow.run
        async def run(self) -> str:
            ticked.append(workflow.now())
            if len(ticked) == 3:
                raise ApplicationError("enough", non_retryable=True)
            return "tick"

    ticked = []
    async with TestEnvironment(workflows=[Sleeps, Ticks], replay=False) as env:
        handle = await env.spawn(Sleeps, 7200.0, run_timeout=3600)
        with pytest.raises(WorkflowFailedError) as caught:
            await handle.result()
        assert isinstance(caught.value.__cause__, WorkflowTimeoutError)
        assert env.now() == BEGIN + timedelta(hours=1)
        assert await env.execute(Sleeps, 1.0, start_delay=3599) == 1
        assert env.now() == BEGIN + timedelta(hours=2)
        await env.spawn(Ticks, cron_schedule="0 6 * * *", id="cron")
        await env.sleep(3 * DAY)
        assert ticked[:3] == [BEGIN + timedelta(days=n, hours=6) for n in range(3)]


async def test_a_run_that_crashes_is_restarted_by_virtual_time():
    tries = []

    @workflow.defn
    class Shaky:
        @workflow.run
        async def run(self) -> str:
            tries.append(env.now())
            if len(tries) < 3:
                raise ValueError(str(len(tries)))
            return "well"

    async with TestEnvironment(workflows=[Shaky]) as env:
        assert await env.execute(Shaky) == "well"
        assert tries[0] < tries[1] < tries[2]


@pytest.mark.parametrize("store", ["memory", "lmdb"])
async def test_runs_that_are_out_of_memory_are_brought_in(store):
    async with TestEnvironment(workflows=[Sleeps], store=store) as env:
        year = await env.spawn(Sleeps, 365 * 86400.0)
        day = await env.spawn(Sleeps, 86400.0)
        await env.restart()
        begun = time.perf_counter()
        assert await year.result() == 365 * 86400
        assert await day.result() == 86400
        assert time.perf_counter() - begun < 2
        assert env.now() == BEGIN + 365 * DAY


@pytest.mark.parametrize("store", ["memory", "lmdb"])
async def test_runs_past_their_retention_are_purged_and_nobody_waits_for_that(store):
    @workflow.defn(retention=7 * DAY)
    class Brief:
        @workflow.run
        async def run(self) -> None:
            await workflow.sleep(5)

    async with TestEnvironment(workflows=[Brief, Sleeps], store=store) as env:
        for _ in range(10):
            await env.execute(Brief)
        await env.advance(6 * DAY)
        assert await env.runtime.count_workflows() == 10
        await env.advance(2 * DAY)
        assert await env.runtime.count_workflows() == 0
        with pytest.raises(NoProgressError):
            await env.until(lambda: False)


@pytest.mark.parametrize("store", ["memory", "lmdb"])
async def test_what_is_purged_at_the_end_of_a_sleep_is_gone_behind_it(store):
    @workflow.defn(retention=DAY)
    class Brief:
        @workflow.run
        async def run(self) -> None: ...

    async with TestEnvironment(workflows=[Brief], store=store) as env:
        for _ in range(5):
            await env.execute(Brief)
            await env.sleep(DAY)
            assert await env.runtime.count_workflows() == 0


async def test_a_condition_of_the_test_is_awaited_while_time_passes():
    async with TestEnvironment(workflows=[Gated]) as env:
        called = env.mock_activity("gated", side_effect=[ValueError("x"), "ok"])
        await env.spawn(Gated, id="g")
        await env.until(lambda: called.was_called)
        with pytest.raises(NoProgressError, match=r"what env.until\(<lambda>\) waits for can never come"):
            await env.until(lambda: called.call_count == 7)

        def broken():
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await env.until(broken)


async def test_the_watchdog_looks_at_real_time():
    @workflow.defn
    class Blocks:
        @workflow.run
        async def run(self) -> None:
            end = time.perf_counter() + 5
            while time.perf_counter() < end:
                pass

    async with TestEnvironment(
        workflows=[Blocks], guard="off", watchdog=WatchdogLimits(warn_after=0.05, break_after=0.1)
    ) as env:
        with pytest.raises(Exception, match="blocked the event loop"):
            await env.execute(Blocks)


async def test_seeds_decide_ids_random_numbers_and_jitter():
    @workflow.defn
    class Draws:
        @workflow.run
        async def run(self) -> float:
            return workflow.random().random()

    async def life(seed):
        async with TestEnvironment(workflows=[Draws, Gated], seed=seed) as env:
            called = env.mock_activity("gated", side_effect=[ValueError("x")] * 5 + ["ok"])
            handle = await env.spawn(Draws)
            await env.restart()
            second = await env.spawn(Draws)
            assert second.run_id != handle.run_id
            ids = (handle.workflow_id, handle.run_id, second.run_id)
            await env.spawn(Gated, id="g")
            return ids, await handle.result(), [call.at for call in called.calls]

    assert await life(1) == await life(1)
    assert (await life(1))[:2] != (await life(2))[:2]
