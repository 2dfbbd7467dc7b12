"""Runs that are moved out of the log early, since it holds much of them, are all there at the next start."""

import asyncio

import pytest
from support.clock import ManualClock
from support.hosting import hosted, settled, tick, until
from support.purges import check_tables

from everact import workflow
from everact.journal import compaction, run_index
from everact.journal.memory_store import MemoryJournal

NAP = 30.0


@workflow.defn
class Order:
    def __init__(self):
        self.events = []

    @workflow.run
    async def run(self, count: int, nap: float) -> int:
        await workflow.wait_condition(lambda: len(self.events) >= count)
        if nap:
            await asyncio.sleep(nap)
        return count

    @workflow.signal
    def happen(self, what: str) -> None:
        self.events.append(what)


@workflow.defn
class Quick:
    @workflow.run
    async def run(self) -> None:
        pass


@pytest.fixture(autouse=True)
def crowd(monkeypatch):
    monkeypatch.setattr(compaction, "WINDOW", 1000)
    monkeypatch.setattr(compaction, "CROWD", 6)
    monkeypatch.setattr(run_index, "CROWD", 6)


async def empty_log(runtime):
    """Move all that the log holds into the tables."""
    shard = runtime._shard
    await settled(runtime)
    shard.compactor.hurry()
    shard.housekeeping.wake()
    await until(lambda: not any(map(len, shard.index.rows.values())))


async def move_early(runtime):
    """The next commit takes what there is of a crowded run."""
    await runtime.execute(Quick)
    await settled(runtime)


async def test_a_timer_whose_run_is_in_the_log_as_repeats_only_fires_after_a_restart():
    journal, clock = MemoryJournal(), ManualClock()
    async with hosted(journal, Order, Quick, clock=clock) as runtime:
        order = await runtime.spawn(Order, 6, NAP, id="order")
        await empty_log(runtime)  # the log then has none of its beginning
        for number in range(6):
            await order.signal(Order.happen, str(number))
        await move_early(runtime)
        row = runtime._shard.index.find("order")
        assert row is not None
        assert not len(row)
    async with hosted(journal, Order, Quick, clock=clock) as runtime:
        await tick(runtime, clock, NAP)
        # Not asked for: that would bring it into memory.
        assert [row.status for row in await runtime.list_workflows(workflow_type="Order")] == ["completed"]


@pytest.mark.parametrize("is_old", [True, False], ids=["its start in the tables", "its start in the log"])
async def test_a_closed_run_that_the_log_only_repeats_can_be_purged_after_a_restart(is_old, monkeypatch):
    journal, clock = MemoryJournal(), ManualClock()
    async with hosted(journal, Order, Quick, clock=clock) as runtime:
        order = await runtime.spawn(Order, 8, 0.0, id="order")
        if is_old:
            await empty_log(runtime)
        shard = runtime._shard
        for number in range(8):
            await order.signal(Order.happen, str(number), request_id=str(number))
        await order.result()
        monkeypatch.setattr(compaction, "CROWD", 1)
        shard.index.crowded.append(1)  # it has ended by the time it is moved
        await move_early(runtime)
        assert 1 not in shard.index.rows
    async with hosted(journal, Order, Quick, clock=clock) as runtime:
        assert not runtime._shard.index.requests._requests
        assert await runtime.purge(workflow_id="order") == 1
        await settled(runtime)
        check_tables(runtime._store)
