"""Uses of the test kit that both type checkers accept, and the types that they give."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from everact import Runtime, WorkflowHandle, activity, workflow
from everact.testing import ActivityEnvironment, ActivityMock, MockCall, TestEnvironment, WorkflowMock


@activity.defn
async def charge(order: str, cents: int) -> str:
    return f"{order} {cents}"


@activity.defn
def weigh(order: str) -> float:
    return float(len(order))


class Shop:
    @activity.defn
    async def refund(self, order: str) -> bool:
        return bool(order)


@workflow.defn
class Orders:
    @workflow.run
    async def run(self, order: str) -> int:
        return len(order)


def make() -> TestEnvironment:
    return TestEnvironment(
        workflows=[Orders],
        activities=[charge, weigh],
        start_time=datetime(2026, 2, 1, tzinfo=UTC),
        time="manual",
        seed=7,
        strict=False,
        store="lmdb",
        guard="warn",
        grace=timedelta(seconds=1),
        watchdog=None,
    )


async def runs() -> None:
    async with make() as env:
        assert_type(env, TestEnvironment)
        assert_type(env.runtime, Runtime)
        assert_type(env.now(), datetime)
        assert_type(await env.spawn(Orders, "o-1", id="x"), WorkflowHandle[Orders, int])
        assert_type(await env.execute(Orders.run, "o-1"), int)
        assert_type(env.ref("x", Orders), WorkflowHandle[Orders, int])
        assert_type(await env.execute("Orders", "o-1"), Any)
        await env.sleep(timedelta(days=1))
        await env.advance(5, past_running=True)
        await env.until(lambda: True)
        with env.time_held():
            assert_type(env.report(), str)
        await env.restart()


async def mocks() -> None:
    async with make() as env:
        charged = env.mock_activity(charge, returns="r")
        assert_type(charged, ActivityMock[str])
        assert_type(charged.calls, list[MockCall])
        assert_type(charged.was_called, bool)
        assert_type(charged.call_count, int)
        assert_type(env.mock_activity(weigh, raises=ValueError), ActivityMock[float])
        assert_type(
            env.mock_activity(weigh, side_effect=[1.0, ValueError("x")], delay=1), ActivityMock[float]
        )
        env.mock_activity(charge, side_effect=charge, heartbeats=[1, (2, 3)])
        env.mock_activity(Shop.refund, returns=True)
        env.mock_activity("pack", returns=5, delay=timedelta(days=1))
        with env.mock_activity(charge, raises=ConnectionError("busy")) as busy:
            assert_type(busy, ActivityMock[str])

        @env.mock_activity(charge)
        async def bank(order: str, cents: int) -> str:
            return f"{order} {cents}"

        assert_type(bank, ActivityMock[str])
        assert_type(env.mock_workflow(Orders, returns=5), WorkflowMock[int])
        assert_type(env.mock_workflow(Orders.run, side_effect=lambda order: 5), WorkflowMock[int])
        env.mock_workflow("Orders", raises=ValueError)


async def alone() -> None:
    env = ActivityEnvironment()
    env.info = replace(env.info, attempt=2)
    assert_type(await env.run(charge, "o-1", 5), str)
    assert_type(await env.run(charge, "o-1", cents=5), str)
    assert_type(await env.run(weigh, "o-1"), float)
    assert_type(await env.run(Shop().refund, "o-1"), bool)
    assert_type(env.heartbeats, list[tuple[Any, ...]])
    env.cancel()
    env.shutdown()
