"""One activity alone: info, heartbeats, cancel, shutdown; async, in threads, methods."""

import asyncio
import threading
from dataclasses import dataclass, replace

import pytest

from everact import activity
from everact.exceptions import PayloadEncodeError, RegistrationError
from everact.interceptors import ActivityInboundInterceptor, Interceptor
from everact.testing import ActivityEnvironment, TestEnvironment


@dataclass
class Parcel:
    name: str
    items: list[str]


@activity.defn
async def pack(parcel: Parcel, *, extra: str = "") -> Parcel:
    parcel.items.append(extra or activity.info().activity_type)
    return parcel


@activity.defn
def pack_in_thread(name: str) -> str:
    return f"{name} in {threading.current_thread() is threading.main_thread()}, attempt {activity.info().attempt}"


class Shop:
    label = "class"

    def __init__(self) -> None:
        self.name = "shop"

    @activity.defn
    async def greet(self, who: str) -> str:
        return f"{self.name} greets {who}"

    @classmethod
    @activity.defn
    def names(cls, who: str) -> str:
        return f"{cls.label} names {who}"


@activity.defn
async def waits() -> str:
    try:
        await activity.wait_for_cancelled()
        await asyncio.sleep(3600)
    finally:
        activity.heartbeat("over", activity.is_cancelled())
    return "never"


@activity.defn
def waits_in_thread() -> str:
    try:
        activity.wait_for_cancelled_sync(20)
        return "never"
    finally:
        activity.heartbeat("over", activity.is_cancelled())


@activity.defn
async def counts(upto: int) -> int:
    begun = activity.heartbeat_details(int) or 0
    for n in range(begun, upto):
        activity.heartbeat(n + 1)
        await asyncio.sleep(0)
    return begun


async def test_arguments_and_results_are_copies():
    parcel = Parcel("a", ["x"])
    packed = await ActivityEnvironment().run(pack, parcel)
    assert packed == Parcel("a", ["x", "pack"])
    assert parcel.items == ["x"]
    assert (await ActivityEnvironment().run(pack, parcel, extra="y")).items == ["x", "y"]


async def test_threads_and_methods():
    env = ActivityEnvironment()
    env.info = replace(env.info, attempt=3)
    assert await env.run(pack_in_thread, "n") == "n in False, attempt 3"
    assert await env.run(Shop().greet, "you") == "shop greets you"
    assert await env.run(Shop.names, "you") == "class names you"


@pytest.mark.parametrize("fn", [waits, waits_in_thread])
async def test_cancel_reaches_the_code(fn):
    env = ActivityEnvironment()
    running = asyncio.create_task(env.run(fn))
    while not env._running:
        await asyncio.sleep(0)
    env.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert env.heartbeats == [("over", True)]


async def test_what_is_run_after_a_cancel_is_entered_and_cancelled():
    env = ActivityEnvironment()
    env.cancel()
    with pytest.raises(asyncio.CancelledError):
        await env.run(waits)
    assert env.heartbeats == [("over", True)]


async def test_heartbeats_are_captured_and_details_given():
    env = ActivityEnvironment(info=replace(ActivityEnvironment().info, heartbeat_details=(2,)))
    assert await env.run(counts, 4) == 2
    assert env.heartbeats == [(3,), (4,)]
    env = ActivityEnvironment()
    env.on_heartbeat = lambda n: env.cancel() if n == 3 else None
    with pytest.raises(asyncio.CancelledError):
        await env.run(counts, 10)
    assert env.heartbeats == [(1,), (2,), (3,)]


async def test_shutdown_is_a_notice():
    @activity.defn
    async def leaves() -> bool:
        before = activity.is_shutting_down()
        env.shutdown()
        await activity.wait_for_shutdown()
        return not before and activity.is_shutting_down()

    @activity.defn
    def knows() -> bool:
        return activity.wait_for_shutdown_sync(20)

    env = ActivityEnvironment()
    assert await env.run(leaves)
    assert await env.run(knows)


async def test_errors_come_out_as_they_are():
    @activity.defn
    async def breaks() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        await ActivityEnvironment().run(breaks)


async def test_completion_from_outside():
    @activity.defn
    async def hands_over() -> str:
        activity.raise_complete_async()

    env = ActivityEnvironment()
    assert await env.run(hands_over) is None
    assert env.completes_outside


async def test_client():
    @activity.defn
    async def asks() -> str:
        return activity.client().name

    with pytest.raises(
        RuntimeError, match=r"pass it to ActivityEnvironment\(client=...\), such as the runtime of a"
    ):
        await ActivityEnvironment().run(asks)
    async with TestEnvironment(name="here") as env:
        assert await ActivityEnvironment(client=env.runtime).run(asks) == "here"


async def test_interceptors_are_around_it():
    class Inbound(ActivityInboundInterceptor):
        async def execute_activity(self, input):
            return await self.next.execute_activity(input) + 1

    class Adds(Interceptor):
        def intercept_activity(self, next):
            return Inbound(next)

    @activity.defn
    def one() -> int:
        return 1

    assert await ActivityEnvironment(interceptors=[Adds()]).run(one) == 2


async def test_wrong_calls_are_refused():
    env = ActivityEnvironment()
    with pytest.raises(PayloadEncodeError, match="argument 'parcel' of activity pack"):
        await env.run(pack, 5)
    with pytest.raises(TypeError, match="pack"):
        await env.run(pack)
    with pytest.raises(RegistrationError, match="is not an activity"):
        await env.run(lambda: None)
    with pytest.raises(RegistrationError, match="pass a bound method"):
        await env.run(Shop.greet, "you")
    with pytest.raises(TypeError, match="info must be an ActivityInfo, not 5"):
        ActivityEnvironment(info=5)

    @activity.defn
    async def lies() -> int:
        return "x"

    with pytest.raises(PayloadEncodeError, match="result of activity lies"):
        await env.run(lies)
