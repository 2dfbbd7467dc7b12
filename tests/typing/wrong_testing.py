"""Wrong uses of the test kit: each is an error for both type checkers."""

from datetime import timedelta

from everact import activity, workflow
from everact.testing import ActivityEnvironment, TestEnvironment


@activity.defn
async def charge(order: str, cents: int) -> str:
    return f"{order} {cents}"


@workflow.defn
class Orders:
    @workflow.run
    async def run(self, order: str) -> int:
        return len(order)


async def runs(env: TestEnvironment) -> None:
    TestEnvironment(time="now")  # type: ignore[arg-type]
    TestEnvironment(store="disk")  # type: ignore[arg-type]
    TestEnvironment(start_time=5)  # type: ignore[arg-type]
    TestEnvironment(gaurd="strict")  # type: ignore[call-arg]
    TestEnvironment([Orders])  # type: ignore[call-arg]
    await env.spawn(Orders, 5)  # type: ignore[arg-type]
    await env.execute(Orders)  # type: ignore[arg-type, call-arg]
    await env.sleep("1 day")  # type: ignore[arg-type]
    await env.advance(timedelta(days=1), 5)  # type: ignore[arg-type, call-arg]
    await env.until(True)  # type: ignore[arg-type]


async def mocks(env: TestEnvironment) -> None:
    env.mock_activity(charge, raises=5)  # type: ignore[call-overload]
    env.mock_activity(charge, side_effect=5)  # type: ignore[call-overload]
    env.mock_activity(charge, delay="5")  # type: ignore[call-overload]
    env.mock_activity(charge, retruns="x")  # type: ignore[call-overload]
    env.mock_activity(5)  # type: ignore[call-overload]
    env.mock_workflow(Orders, heartbeats=[1])  # type: ignore[call-overload]
    env.mock_workflow(5)  # type: ignore[call-overload]


async def alone() -> None:
    env = ActivityEnvironment()
    await env.run(charge, "o-1")  # type: ignore[call-overload]
    await env.run(charge, "o-1", "5")  # type: ignore[call-overload]
    ActivityEnvironment(info=5)  # type: ignore[arg-type]
