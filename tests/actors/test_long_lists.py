"""A list of many runs does not hold up what else the loop has to do."""

import asyncio

import pytest
from support.hosting import hosted

from everact import workflow
from everact.actors import journal_access
from everact.exceptions import RuntimeClosedError
from everact.journal.memory_store import MemoryJournal


@workflow.defn
class Quick:
    @workflow.run
    async def run(self) -> None:
        pass


@pytest.fixture(autouse=True)
def short_slices(monkeypatch):
    monkeypatch.setattr(journal_access, "SLICE", 3)


async def test_others_have_their_turns_meanwhile():
    async with hosted(MemoryJournal(), Quick) as runtime:
        for number in range(20):
            await runtime.execute(Quick, id=f"w{number}")
        listing = asyncio.ensure_future(runtime.list_workflows())
        turns = 0
        while not listing.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 20 // 3
        assert [row.workflow_id for row in listing.result()] == [f"w{number}" for number in range(19, -1, -1)]


async def test_a_runtime_that_is_left_meanwhile_says_so():
    async with hosted(MemoryJournal(), Quick) as runtime:
        for _ in range(4):
            await runtime.execute(Quick)
        listing = asyncio.ensure_future(runtime.list_workflows())
        await asyncio.sleep(0)
        assert not listing.done()
        shard, runtime._shard = runtime._shard, None
        with pytest.raises(RuntimeClosedError):
            await listing
        runtime._shard = shard
