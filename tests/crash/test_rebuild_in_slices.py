"""A rebuild of many runs lets the host's loop have its turns, and no half of it is seen."""

import asyncio
import logging

import pytest
from support.clock import ManualClock
from support.hosting import hosted, settled, until
from support.stores import TroubledStore

from everact import workflow
from everact.actors import recovery
from everact.exceptions import CommitUnknownError
from everact.journal import compaction
from everact.journal.memory_store import MemoryJournal, MemoryStore

RUNS = 12


@workflow.defn
class Adds:
    def __init__(self) -> None:
        self.sum = 0

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: self.sum >= 6)
        return self.sum

    @workflow.signal
    def add(self, number: int) -> None:
        self.sum += number

    @workflow.update
    def added(self, number: int) -> int:
        self.sum += number
        return self.sum


class Slices(ManualClock):
    """While ``running`` each look at the steady clock finds that a slice is over."""

    running = False

    def steady(self):
        if self.running:
            self._steady += 1
        return super().steady()


@pytest.fixture(params=["in the log", "in the tables"])
def window(request, monkeypatch):
    monkeypatch.setattr(compaction, "WINDOW", 2 if request.param == "in the tables" else 10_000)


async def rebuilding(runtime, store, clock):
    """Fail a commit, and let the rebuild begin."""
    store.failures = ["before"]
    clock.running = True
    with pytest.raises(CommitUnknownError):
        await runtime.ref("a-0").signal(Adds.add, 100)
    assert runtime._shard.rebuilding.is_running


async def test_the_loop_has_turns_and_messages_wait(window):
    clock, store = Slices(), TroubledStore(MemoryStore(MemoryJournal()))
    async with hosted(store, Adds, clock=clock) as runtime:
        refs = [await runtime.spawn(Adds, id=f"a-{number}") for number in range(RUNS)]
        for ref in refs:
            await ref.signal(Adds.add, 1)
        await settled(runtime)
        shard = runtime._shard
        await rebuilding(runtime, store, clock)
        before = dict(shard.actors)
        sent = [asyncio.ensure_future(ref.signal(Adds.add, 2)) for ref in refs]
        asked = asyncio.ensure_future(refs[3].execute_update(Adds.added, 1))
        turns = 0
        while shard.rebuilding.is_running:
            assert shard.actors == before  # all of the old ones, and none of the new
            assert not any(task.done() for task in sent)
            turns += 1
            await asyncio.sleep(0)
        assert turns >= RUNS
        assert not set(map(id, shard.actors.values())) & set(map(id, before.values()))
        clock.running = False
        await asyncio.gather(*sent)
        assert await asked == 4
        for ref in refs:
            await ref.signal(Adds.add, 3)
        assert [await ref.result() for ref in refs] == [6, 6, 6, 7, 6, 6, 6, 6, 6, 6, 6, 6]


async def test_a_run_that_comes_into_memory_meanwhile_is_rebuilt_too(window):
    clock, journal = Slices(), MemoryJournal()
    async with hosted(journal, Adds, clock=clock) as runtime:
        for number in range(RUNS):
            await runtime.spawn(Adds, id=f"a-{number}")
        shard = runtime._shard
        await settled(runtime)
        shard.compactor.hurry()
        shard.housekeeping.wake()
        await until(lambda: not any(map(len, shard.index.rows.values())))
    store = TroubledStore(MemoryStore(journal))
    async with hosted(store, Adds, clock=clock) as runtime:
        assert runtime._shard.actors == {}
        for number in range(5):
            await runtime.ref(f"a-{number}").signal(Adds.add, 1)
        await rebuilding(runtime, store, clock)
        late = runtime.ref("a-9")
        sent = asyncio.ensure_future(late.signal(Adds.add, 6))
        await asyncio.sleep(0)
        assert runtime._shard.rebuilding.is_running
        (old,) = [actor for actor in runtime._shard.actors.values() if actor.workflow_id == "a-9"]
        await until(lambda: not runtime._shard.rebuilding.is_running)
        clock.running = False
        assert runtime._shard.actors[old.key] is not old
        await sent
        assert await late.result() == 6


async def test_who_leaves_meanwhile_waits_for_it(window):
    clock, journal = Slices(), MemoryJournal()
    store = TroubledStore(MemoryStore(journal))
    async with hosted(store, Adds, clock=clock) as runtime:
        refs = [await runtime.spawn(Adds, id=f"a-{number}") for number in range(RUNS)]
        await rebuilding(runtime, store, clock)
        sent = asyncio.ensure_future(refs[1].signal(Adds.add, 2))
        await asyncio.sleep(0)
        assert runtime._shard.rebuilding.is_running
    await sent
    async with hosted(journal, Adds, clock=clock) as runtime:
        await runtime.ref("a-1").signal(Adds.add, 4)
        assert await runtime.ref("a-1").result() == 6


async def test_a_run_that_cannot_be_read_again_does_not_stop_the_others(window, monkeypatch, caplog):
    clock, store = ManualClock(), TroubledStore(MemoryStore(MemoryJournal()))
    async with hosted(store, Adds, clock=clock) as runtime:
        refs = [await runtime.spawn(Adds, id=f"a-{number}") for number in range(3)]
        await settled(runtime)
        shard = runtime._shard
        shard.compactor.hurry()
        shard.housekeeping.wake()
        await until(lambda: not any(map(len, shard.index.rows.values())))
        broken = shard.newest["a-1"].key
        read = recovery.load_in_steps

        def damaged(opened):
            loaded = yield from read(opened)
            find = loaded.runs.state

            def state(row):
                if row.key == broken:
                    raise recovery.JournalCorruptError("a history is damaged")
                return find(row)

            loaded.runs.state = state
            return loaded

        monkeypatch.setattr(recovery, "load_in_steps", damaged)
        store.failures = ["before"]
        with pytest.raises(CommitUnknownError):
            await refs[0].signal(Adds.add, 100)
        assert shard.error is None
        await refs[0].signal(Adds.add, 6)
        assert await refs[0].result() == 6
    assert f"run {broken} stays as it is, the journal is damaged" in caplog.text
    assert [r.levelno for r in caplog.records if "stays as it is" in r.message] == [logging.ERROR]
