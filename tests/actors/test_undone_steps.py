"""Nobody breaks into what a saga undoes: whoever cancels, and whenever its runtime is left (ADR 10)."""

import asyncio

import pytest
from support.clock import ManualClock
from support.hosting import hosted, settled, tick, until

from everact import ApplicationError, RetryPolicy, activity, workflow
from everact.exceptions import WorkflowCancelledError, WorkflowFailedError
from everact.journal.memory_store import MemoryJournal
from everact.testing import TestEnvironment

ONCE = RetryPolicy(maximum_attempts=1)


class World:
    """What the activities have done."""

    def __init__(self):
        self.done = []


world: World


@pytest.fixture(autouse=True)
def fresh_world():
    global world
    world = World()


async def acts(word, what):
    world.done.append(f"{word} {what}")


@activity.defn(retry_policy=ONCE)
async def do(what: str) -> str:
    await acts("do", what)
    return what


@activity.defn(retry_policy=ONCE)
async def undo(what: str) -> None:
    await acts("undo", what)


ACTIVITIES = [do, undo]


async def failed(handle, error):
    with pytest.raises(error):
        await handle.result()


def runs(body):
    @workflow.defn(name="Saga")
    class Saga:
        @workflow.run
        async def run(self) -> None:
            await body(self)

    return Saga


@pytest.mark.parametrize("slots", [1, 2])
async def test_of_an_attempt_that_was_cut_when_the_runtime_was_left_a_cancel_finds_out_what_it_did(slots):
    """Whether it had begun is in the journal: it runs again although it waits for a slot when the cancel comes."""
    journal = MemoryJournal()
    go, busy = asyncio.Event(), asyncio.Event()

    @activity.defn(retry_policy=ONCE)
    async def books(what: str) -> str:
        await acts("do", what)
        await go.wait()
        return what

    @activity.defn
    async def blocks() -> None:
        busy.set()
        await asyncio.Event().wait()

    async def body(run):
        if run.what == "block":
            await blocks()
            return
        async with workflow.saga() as saga:
            await saga.run(books, "a", compensate=undo)

    @workflow.defn(name="W")
    class W:
        @workflow.run
        async def run(self, what: str) -> None:
            self.what = what
            await body(self)

    about = {"activities": [*ACTIVITIES, books, blocks]}
    async with hosted(journal, W, **about, grace=0) as runtime:
        await runtime.spawn(W.run, "block", id="first")
        await runtime.spawn(W.run, "book", id="s")
        await until(lambda: world.done)
    assert world.done == ["do a"]
    busy.clear()
    async with hosted(journal, W, **about, grace=0, max_concurrent_activities=slots) as runtime:
        await busy.wait()
        if slots > 1:
            await until(lambda: len(world.done) == 2)
        handle = runtime.ref("s", W)
        await handle.cancel()
        await settled(runtime)
        assert (await handle.describe()).status == "running"
        go.set()
        await runtime.ref("first", W).terminate()
        await failed(handle, WorkflowCancelledError)
    assert world.done == ["do a", "do a", "undo a"]


async def test_a_later_attempt_that_was_cancelled_and_cut_runs_again_to_find_out():
    journal = MemoryJournal()
    go, tried = asyncio.Event(), []

    @activity.defn(retry_policy=RetryPolicy(initial_interval=0.001))
    async def books(what: str) -> str:
        tried.append(activity.info().attempt)
        if len(tried) == 1:
            raise ApplicationError("once more")
        await acts("do", what)
        await go.wait()
        return what

    async def body(_run):
        async with workflow.saga() as saga:
            await saga.run(books, "a", compensate=undo)

    cls = runs(body)
    async with hosted(journal, cls, activities=[*ACTIVITIES, books], grace=0) as runtime:
        handle = await runtime.spawn(cls.run, id="s")
        await until(lambda: world.done)
        await handle.cancel()
        await settled(runtime)
    go.set()
    async with hosted(journal, cls, activities=[*ACTIVITIES, books]) as runtime:
        await failed(runtime.ref("s", cls), WorkflowCancelledError)
    assert tried == [1, 2, 2]
    assert world.done == ["do a", "do a", "undo a"]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("how", ["cancel", "limit", "group", "main"])
async def test_a_cancel_that_waits_for_a_step_of_the_class_comes_when_that_is_completed(how, again):
    """Whoever has cancelled; and in a replay as well."""
    clock, journal = ManualClock(), MemoryJournal()
    done = asyncio.Event()

    @activity.defn(retry_policy=ONCE)
    async def slow(what: str) -> str:
        world.done.append("begins")
        await done.wait()
        await acts("do", what)
        return what

    @activity.defn
    async def last() -> None:
        world.done.append("last")

    @workflow.defn(name="W")
    class W:
        def __init__(self) -> None:
            self.may_end = False

        @workflow.signal
        def proceed(self) -> None:
            self.may_end = True

        @workflow.run
        async def run(self) -> None:
            if how == "main":
                self.task = asyncio.create_task(self.trip())
                await workflow.sleep(60)
                raise ApplicationError("main has failed")
            try:
                await self.trip()
            finally:
                await last()
                await workflow.wait_condition(lambda: self.may_end)

        async def trip(self) -> None:
            async with workflow.saga():
                if how == "limit":
                    async with asyncio.timeout(60):
                        await self.first()
                elif how == "group":
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self.first())
                        group.create_task(self.fails())
                else:
                    await self.first()

        async def first(self) -> None:
            await self.book("a")
            await do("b")  # it is not reached
            await workflow.sleep(3600)

        async def fails(self) -> None:
            await workflow.sleep(60)
            raise ApplicationError("sibling has failed")

        @workflow.step(compensate=undo)
        async def book(self, what: str) -> str:
            return await self.inside(what)

        @workflow.step
        async def inside(self, what: str) -> str:
            return await workflow.execute_activity(slow, what)

    about = {"activities": [*ACTIVITIES, slow, last], "clock": clock}
    async with hosted(journal, W, **about) as runtime:
        handle = await runtime.spawn(W.run, id="s")
        await until(lambda: world.done)
        if how == "cancel":
            await handle.cancel()
        await settled(runtime)
        await tick(runtime, clock, 61)
        assert world.done == ["begins"]
        assert (await handle.describe()).status == "running"
        if not again:
            done.set()
            await until(lambda: "undo a" in world.done)
            await settled(runtime)
    done.set()
    async with hosted(journal, W, **about) as runtime:
        handle = runtime.ref("s", W)
        if how != "main":
            await handle.signal(W.proceed)
        await failed(handle, WorkflowCancelledError if how == "cancel" else WorkflowFailedError)
    assert world.done[again:] == ["begins", "do a", "undo a", *([] if how == "main" else ["last"])]


@pytest.mark.parametrize("body", ["two", "both", "sleep"])
async def test_a_step_that_is_cancelled_behind_an_activity_that_was_done_is_named(body, caplog):
    done = asyncio.Event()

    @activity.defn(retry_policy=ONCE)
    async def slow(what: str) -> str:
        world.done.append("begins")
        await done.wait()
        await acts("do", what)
        return what

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            async with workflow.saga("trip"):
                await self.book("a")

        @workflow.step(compensate=undo)
        async def book(self, what: str) -> str:
            if body == "both":
                return str(await asyncio.gather(slow(what)))
            await slow(what)
            if body == "sleep":
                await workflow.sleep(3600)
            return await do("more")

    async with hosted(MemoryJournal(), W, activities=[*ACTIVITIES, slow]) as runtime:
        handle = await runtime.spawn(W.run, id="s")
        await until(lambda: world.done)
        if body == "sleep":
            done.set()
            await until(lambda: len(world.done) == 2)
            await settled(runtime)
        await handle.cancel()
        done.set()
        await failed(handle, WorkflowCancelledError)
    assert world.done == ["begins", "do a"]
    assert (
        "saga 'trip': step 'book' was cancelled when an activity of its body was done, and it is not undone; let its "
        "body be one activity, or each of them a saga.run(..., compensate=...)"
    ) in caplog.text


async def test_a_block_that_waits_for_a_step_that_nobody_breaks_into_is_not_warned_of(caplog):
    begun, go = asyncio.Event(), asyncio.Event()

    @activity.defn(retry_policy=ONCE)
    async def slow(what: str) -> str:
        begun.set()
        await go.wait()
        return what

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            task = asyncio.create_task(self.trip())
            await workflow.wait_condition(lambda: self.stop)
            raise ApplicationError(f"main has failed beside {task.get_name()}")

        def __init__(self) -> None:
            self.stop = False

        @workflow.signal
        def end(self) -> None:
            self.stop = True

        async def trip(self) -> None:
            async with workflow.saga("trip") as saga:
                await saga.run(slow, "a", compensate=undo)

    async with hosted(MemoryJournal(), W, activities=[*ACTIVITIES, slow]) as runtime:
        handle = await runtime.spawn(W.run)
        await begun.wait()
        await handle.signal(W.end)
        await settled(runtime)
        go.set()
        with pytest.raises(WorkflowFailedError, match="main has failed"):
            await handle.result()
    assert world.done == ["undo a"]
    assert "whose block goes on" not in caplog.text


@pytest.mark.chaos(faults=["result.late:1:0.1"])
async def test_what_has_ended_and_has_not_said_so_yet_is_waited_for():
    """A cancel finds no code that runs; that does not say that it was not begun."""

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            async with workflow.saga() as saga, asyncio.timeout(0.05):
                await saga.run(do, "a", compensate=undo)
                await workflow.sleep(3600)

    async with TestEnvironment(workflows=[W], activities=ACTIVITIES) as env:
        world.done.clear()
        await failed(await env.spawn(W.run, id="s"), WorkflowFailedError)
    assert world.done == ["do a", "undo a"]
