"""Passivation against everything that may happen at the same moment."""

import asyncio

import pytest
from support.codecs import Wrapping, holding
from support.hosting import hosted, settled

from everact import workflow
from everact.actors import shard
from everact.journal.memory_store import MemoryJournal

pytestmark = pytest.mark.usefixtures("keeps_code")


@workflow.defn
class Waits:
    @workflow.run
    async def run(self, word: str = "") -> str:
        await workflow.wait_condition(lambda: False)
        return word

    @workflow.query
    def look(self) -> int:
        return 1


async def statuses(runtime, workflow_id):
    return sorted(run.status for run in await runtime.list_workflows() if run.workflow_id == workflow_id)


@pytest.mark.parametrize("asks", [False, True])
async def test_a_run_that_is_being_replaced_stays_until_it_is(asks):
    codec = Wrapping()
    async with hosted(MemoryJournal(), Waits, codecs=[codec], max_cached_workflows=1) as runtime:
        first = await runtime.spawn(Waits, "first", id="a")
        codec.holds = holding("second")
        second = asyncio.ensure_future(runtime.spawn(Waits, "second", id="a", if_running="replace"))
        await codec.at_work.wait()
        for n in range(4):  # others need the room
            await runtime.spawn(Waits, id=str(n))
        if asks:
            assert (await first.describe()).status == "running"
            third = asyncio.ensure_future(runtime.spawn(Waits, "third", id="a", if_running="replace"))
        codec.gate.set()
        assert (await second).run_id != first.run_id
        if asks:
            await third
        await settled(runtime)
        assert await statuses(runtime, "a") == ["running"] + ["terminated"] * (1 + asks)


async def test_who_has_left_leaves_nothing_behind_once_the_log_was_moved():
    async with hosted(MemoryJournal(), Waits, max_cached_workflows=1) as runtime:
        for n in range(60):
            await runtime.spawn(Waits, id=str(n))
        for _ in range(20):  # what moves the log on
            await runtime.ref("0", Waits).terminate()
            await runtime.spawn(Waits, id="0")
        await settled(runtime)
        assert len(runtime._shard.index.rows) < 10


async def test_ended_runs_that_were_asked_are_not_kept_beyond_their_number(monkeypatch):
    monkeypatch.setattr(shard, "CLOSED_KEPT", 2)
    async with hosted(MemoryJournal(), Waits, max_cached_workflows=50) as runtime:
        for n in range(10):
            await runtime.spawn(Waits, id=str(n))
            await runtime.ref(str(n)).terminate()
            assert (await runtime.ref(str(n)).describe()).status == "terminated"
        await settled(runtime)
        kept = runtime._shard._recently_closed.keys()
        assert len(kept) == 2 and not runtime._shard.passivation._used.keys() - kept
