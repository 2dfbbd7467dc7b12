"""Updates in two stages: accepted, and later answered."""

import asyncio

import pytest
from support.codecs import Wrapping
from support.hosting import gate, hosted, kinds, settled
from support.stores import TroubledStore, turns

from everact import Runtime, workflow
from everact.exceptions import (
    CommitUnknownError,
    RequestIdReusedError,
    RuntimeClosedError,
    UnknownHandlerError,
    UpdateCutError,
    UpdateFailedError,
    UpdateRejectedError,
    WorkflowQuarantinedError,
)
from everact.journal.memory_store import MemoryJournal, MemoryStore

slow = gate("slow")


@pytest.fixture(autouse=True)
def closed():
    slow.open = asyncio.Event()
    slow.calls.clear()


@workflow.defn
class Cart:
    def __init__(self) -> None:
        self.items: list[str] = []
        self.is_over = False

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: self.is_over)
        return self.items

    @workflow.update
    async def add(self, item: str) -> int:
        await workflow.execute_activity(slow.fn, item)
        if item == "bad":
            raise ValueError("bad item")
        self.items.append(item)
        return len(self.items)

    @add.validator
    def check(self, item: str) -> None:
        if not item:
            raise ValueError("empty")

    @workflow.update
    def quick(self, item: str) -> str:
        if item == "bad":
            raise ValueError("bad item")
        return item.upper()

    @workflow.signal
    def end(self) -> None:
        self.is_over = True


def hosting(journal=None, **options):
    return hosted(journal or MemoryJournal(), Cart, activities=[slow.fn], **options)


@pytest.fixture(params=["plain", "codecs"])
def options(request):
    return {"codecs": [Wrapping()]} if request.param == "codecs" else {}


async def test_many_updates_are_started_and_answered_at_once(options):
    async with hosting(**options) as runtime:
        handle = await runtime.spawn(Cart.run)
        updates = [await handle.start_update(Cart.add, name) for name in "abc"]
        await settled(runtime)
        assert not any(update.done() for update in updates)
        assert "accepted" in repr(updates[0]) and updates[0].name == "add"
        assert (updates[0].workflow_id, updates[0].run_id) == (handle.workflow_id, handle.run_id)
        slow.open.set()
        assert sorted([await update.result() for update in updates]) == [1, 2, 3]
        assert await updates[0].result() == await updates[0].result()  # any number of times
        assert updates[0].done() and "answered" in repr(updates[0])


async def test_accepted_means_durable():
    store = TroubledStore(MemoryStore())
    async with Runtime(store, workflows=[Cart], activities=[slow.fn]) as runtime:
        handle = await runtime.spawn(Cart.run)
        store.hold()
        starting = asyncio.create_task(handle.start_update(Cart.add, "a"))
        await store.held()
        await turns()
        assert not starting.done()
        store.release()
        update = await starting
        assert not update.done()
        slow.open.set()
        assert await update.result() == 1


@pytest.mark.parametrize("stage", ["accepted", "completed"])
async def test_a_rejected_update_is_never_accepted_and_nothing_is_written(stage):
    async with hosting() as runtime:
        handle = await runtime.spawn(Cart.run)
        before = len(await handle.fetch_history())
        with pytest.raises(UpdateRejectedError, match="empty"):
            await handle.start_update(Cart.add, "", wait_for_stage=stage)
        with pytest.raises(UnknownHandlerError):
            await handle.start_update("remove", "", wait_for_stage=stage)
        assert len(await handle.fetch_history()) == before


async def test_what_the_handler_raises_comes_from_the_result():
    async with hosting() as runtime:
        handle = await runtime.spawn(Cart.run)
        slow.open.set()
        for update in (
            await handle.start_update(Cart.add, "bad"),
            await handle.start_update(Cart.quick, "bad"),  # it fails in the turn that accepts it
            await handle.start_update(Cart.add, "bad", wait_for_stage="completed"),
        ):
            with pytest.raises(UpdateFailedError, match="bad item"):
                await update.result()


async def test_completed_waits_for_the_handler():
    async with hosting() as runtime:
        handle = await runtime.spawn(Cart.run)
        starting = asyncio.create_task(handle.start_update(Cart.add, "a", wait_for_stage="completed"))
        await settled(runtime)
        assert not starting.done()
        slow.open.set()
        update = await starting
        assert update.done() and await update.result() == 1


@pytest.mark.parametrize("item", ["a", ""])
async def test_by_a_paused_run_it_is_accepted_once_that_goes_on(item, options):
    async with hosting(**options) as runtime:
        handle = await runtime.spawn(Cart.run)
        await handle.pause()
        starting = asyncio.create_task(handle.start_update(Cart.add, item))
        await settled(runtime)
        assert not starting.done()
        assert kinds(await handle.fetch_history())[-1] == "UpdateReceived"
        await handle.resume()
        if item:
            update = await starting
            assert not update.done()
            slow.open.set()
            assert await update.result() == 1
        else:
            with pytest.raises(UpdateRejectedError, match="empty"):
                await starting


async def test_a_repeat_with_the_request_id_gets_the_same_update_in_the_same_life_and_the_next():
    journal = MemoryJournal()
    async with hosting(journal) as runtime:
        handle = await runtime.spawn(Cart.run, id="cart")
        first = await handle.start_update(Cart.add, "a", request_id="r")
        again = await handle.start_update(Cart.add, "a", request_id="r")
        assert first.request_id == again.request_id == "r"
        with pytest.raises(RequestIdReusedError):
            await handle.start_update(Cart.add, "b", request_id="r")
    for update in (first, again):
        with pytest.raises(RuntimeClosedError):
            await update.result()
    async with hosting(journal) as runtime:
        handle = runtime.ref("cart", Cart)
        update = await handle.start_update(Cart.add, "a", request_id="r")
        assert not update.done()
        slow.open.set()
        assert await update.result() == 1
        done = await handle.start_update(Cart.add, "a", request_id="r")
        assert done.done() and await done.result() == 1


@pytest.mark.parametrize("end", ["complete", "terminate", "cancel"])
async def test_an_update_that_the_end_cuts_says_so(end, caplog):
    """D08."""
    async with hosting() as runtime:
        handle = await runtime.spawn(Cart.run)
        update = await handle.start_update(Cart.add, "a")
        if end == "complete":
            await handle.signal(Cart.end)
        elif end == "terminate":
            await handle.terminate()
        else:
            await handle.cancel()
        status = {"complete": "completed", "terminate": "terminated", "cancel": "cancelled"}[end]
        with pytest.raises(UpdateCutError) as caught:
            await update.result()
        assert str(caught.value) == (
            f"workflow {handle.workflow_id!r} is {status}: it ended before update 'add' was done"
        )
    assert ("ended while 1 of its handlers were running" in caplog.text) == (end != "terminate")


async def test_a_crash_of_the_run_is_told_by_the_result():
    @workflow.defn
    class Crashes(Cart):
        @workflow.run
        async def crash(self) -> None:
            await workflow.wait_condition(lambda: self.is_over)
            raise ValueError("bug")

        run = None

    async with hosted(MemoryJournal(), Crashes, activities=[slow.fn]) as runtime:
        handle = await runtime.spawn(Crashes.crash)
        update = await handle.start_update("add", "a")
        await handle.signal("end")
        with pytest.raises(WorkflowQuarantinedError):
            await update.result()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failed_commit_leaves_it_unknown_and_a_repeat_is_applied_once(when):
    store = TroubledStore(MemoryStore())
    async with Runtime(store, workflows=[Cart], activities=[slow.fn]) as runtime:
        handle = await runtime.spawn(Cart.run)
        store.failures.append(when)
        with pytest.raises(CommitUnknownError):
            await handle.start_update(Cart.quick, "a", request_id="r")
        update = await handle.start_update(Cart.quick, "a", request_id="r")
        assert await update.result() == "A"
        assert kinds(await handle.fetch_history()).count("UpdateReceived") == 1


async def test_the_stage_is_one_of_two_words():
    async with hosting() as runtime:
        handle = await runtime.spawn(Cart.run)
        with pytest.raises(
            ValueError, match="wait_for_stage must be 'accepted' or 'completed', not 'admitted'"
        ):
            await handle.start_update(Cart.add, "a", wait_for_stage="admitted")


async def test_an_update_that_nobody_asks_after_leaves_no_trace():
    """Neither its failure nor that of a lost commit is an exception that was never retrieved."""
    async with hosting() as runtime:
        handle = await runtime.spawn(Cart.run)
        await handle.start_update(Cart.quick, "bad")
        await handle.start_update(Cart.add, "a")
