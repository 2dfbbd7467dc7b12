"""Leaving the runtime while attempts run: they finish within the grace time, or run again uncounted."""

import asyncio
import threading
from datetime import timedelta

import pytest
from support.stores import turns

from everact import RetryPolicy, Runtime, activity, workflow
from everact.exceptions import RuntimeClosedError
from everact.journal.memory_store import MemoryJournal, MemoryStore

LIMIT = 10
LONG = timedelta(seconds=LIMIT)
CUT = timedelta(0)


class World:
    """What the activities of a test do and have done."""

    def __init__(self):
        self.calls = []
        self.ends = []
        self.fails = False
        self.runs = asyncio.Event()
        self.open = threading.Event()
        self.async_open = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def begin(self, word):
        self.calls.append((word, activity.info().attempt))
        self.loop.call_soon_threadsafe(self.runs.set)

    def release(self):
        self.open.set()
        self.async_open.set()


world: World
ONCE_MORE = RetryPolicy(initial_interval=timedelta(milliseconds=1), jitter=0.0)


@activity.defn(retry_policy=ONCE_MORE)
async def work(word: str) -> str:
    here = world
    here.begin(word)
    try:
        await here.async_open.wait()
    except asyncio.CancelledError:
        here.ends.append("cancelled")
        raise
    if here.fails:
        raise OSError("not this time")
    return word


@activity.defn(retry_policy=ONCE_MORE)
def work_in_thread(word: str) -> str:
    here = world
    here.begin(word)
    assert here.open.wait(LIMIT)
    here.ends.append("returned")
    if here.fails:
        raise OSError("not this time")
    return word


@workflow.defn
class Worker:
    @workflow.run
    async def run(self, kind: str) -> str:
        return await workflow.execute_activity(work if kind == "async" else work_in_thread, kind)


@workflow.defn
class Two:
    @workflow.run
    async def run(self) -> list[str]:
        return await asyncio.gather(work("first"), work("second"))


@workflow.defn
class Chain:
    @workflow.run
    async def run(self) -> list[str]:
        first = await work("first")
        await workflow.sleep(0.001)
        return [first, await work("second")]


@pytest.fixture(autouse=True)
async def new_world():
    global world
    world = World()
    async with asyncio.timeout(LIMIT):
        yield
    world.release()


@pytest.fixture
def backing():
    return MemoryJournal()


def runtime_on(backing, grace, **options):
    return Runtime(
        MemoryStore(backing),
        workflows=[Worker, Two, Chain],
        activities=[work, work_in_thread],
        grace=grace,
        **options,
    )


def leave(runtime):
    return asyncio.create_task(runtime.__aexit__(None, None, None))


KINDS = pytest.mark.parametrize("kind", ["async", "thread"])


@KINDS
async def test_an_attempt_that_ends_within_the_grace_time_is_recorded(backing, kind):
    runtime = await runtime_on(backing, LONG).__aenter__()
    await runtime.spawn(Worker, kind, id="w")
    await world.runs.wait()
    leaving = leave(runtime)
    await turns()
    assert not leaving.done()
    world.release()
    await leaving
    async with runtime_on(backing, CUT) as runtime:
        assert await runtime.list_workflows(status="running") == []
        assert await runtime.ref("w", Worker).result() == kind
    assert world.calls == [(kind, 1)]


@KINDS
async def test_an_attempt_that_is_cut_runs_again_under_the_same_number(backing, kind):
    async with runtime_on(backing, CUT) as runtime:
        handle = await runtime.spawn(Worker, kind, id="w")
        result = asyncio.create_task(handle.result())
        await world.runs.wait()
        before = await handle.fetch_history()
    with pytest.raises(RuntimeClosedError):
        await result
    assert world.ends == (["cancelled"] if kind == "async" else [])
    world.release()
    async with runtime_on(backing, LONG) as runtime:
        handle = runtime.ref("w", Worker)
        assert await handle.result() == kind
        history = await handle.fetch_history()
    assert world.calls == [(kind, 1), (kind, 1)]
    assert history.records[: len(before.records)] == before.records
    kinds = [e.kind for e in history][len(before) :]
    assert kinds == ["AttemptNoted", "ActivityCompleted", "WorkflowCompleted"], (
        "it is known that it had begun"
    )


@KINDS
async def test_a_cut_attempt_that_is_not_the_first_is_not_counted_either(backing, kind):
    world.fails = True
    runtime = await runtime_on(backing, LONG).__aenter__()
    await runtime.spawn(Worker, kind, id="w")
    await world.runs.wait()
    leaving = leave(runtime)
    world.release()
    await leaving
    assert world.calls == [(kind, 1)], "the retry waits for the next start"
    world.open.clear()
    world.async_open.clear()
    world.runs.clear()
    world.fails = False
    async with runtime_on(backing, CUT) as runtime:
        await world.runs.wait()
    assert world.calls == [(kind, 1), (kind, 2)]
    world.release()
    async with runtime_on(backing, LONG) as runtime:
        assert await runtime.ref("w", Worker).result() == kind
    assert world.calls == [(kind, 1), (kind, 2), (kind, 2)]


async def test_an_attempt_that_waits_for_a_slot_starts_at_the_next_start(backing):
    runtime = await runtime_on(backing, LONG, max_concurrent_activities=1).__aenter__()
    await runtime.spawn(Two, id="w")
    await world.runs.wait()
    leaving = leave(runtime)
    await turns()
    world.release()
    await leaving
    assert world.calls == [("first", 1)]
    async with runtime_on(backing, LONG) as runtime:
        assert await runtime.ref("w", Two).result() == ["first", "second"]
    assert world.calls == [("first", 1), ("second", 1)]


async def test_what_a_result_within_the_grace_time_begins_waits_for_the_next_start(backing):
    runtime = await runtime_on(backing, LONG).__aenter__()
    await runtime.spawn(Chain, id="w")
    await world.runs.wait()
    shard = runtime._shard
    leaving = leave(runtime)
    world.release()
    await leaving
    assert shard.timers._handle is None, "a timer of the runtime that was left is still armed"
    assert world.calls == [("first", 1)]
    async with runtime_on(backing, LONG) as runtime:
        assert await runtime.ref("w", Chain).result() == ["first", "second"]
    assert world.calls == [("first", 1), ("second", 1)]


@KINDS
async def test_a_result_that_comes_after_the_end_is_ignored(backing, kind):
    async with runtime_on(backing, CUT) as runtime:
        await runtime.spawn(Worker, kind, id="w")
        await world.runs.wait()
    size = len(backing.records)
    world.release()
    for thread in threading.enumerate():
        if thread.name.startswith("everact-activity"):
            await asyncio.to_thread(thread.join, LIMIT)
    await turns()
    assert len(backing.records) == size


async def test_leaving_at_once_keeps_all_that_was_acknowledged(backing):
    async with runtime_on(backing, CUT) as runtime:
        for number in range(20):
            await runtime.spawn(Worker, "async", id=f"w{number}")
    async with runtime_on(backing, CUT) as runtime:
        assert await runtime.count_workflows(status="running") == 20
    world.release()
    async with runtime_on(backing, LONG) as runtime:
        refs = [runtime.ref(f"w{number}", Worker) for number in range(20)]
        assert await asyncio.gather(*(ref.result() for ref in refs)) == ["async"] * 20
    assert {attempt for _word, attempt in world.calls} == {1}
