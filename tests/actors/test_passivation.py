"""Passivation: a bounded number of runs keep their code, and who waits for nothing here leaves memory altogether."""

import asyncio
from datetime import timedelta

import pytest
from support.clock import ManualClock
from support.hosting import gate, hosted, settled, tick, until
from support.stores import TroubledStore

from everact import workflow
from everact.actors import horizon, passivation
from everact.exceptions import CommitUnknownError, WorkflowAlreadyStartedError
from everact.journal.memory_store import MemoryJournal, MemoryStore

DAY = 24 * 3600

pytestmark = pytest.mark.usefixtures("keeps_code")


@workflow.defn
class Counter:
    def __init__(self) -> None:
        self.seen: list[int] = []
        self.done = False

    @workflow.run
    async def run(self) -> list[int]:
        await workflow.wait_condition(lambda: self.done)
        return self.seen

    @workflow.signal
    def add(self, n: int) -> None:
        self.seen.append(n)

    @workflow.signal
    def end(self) -> None:
        self.done = True

    @workflow.query
    def sum(self) -> int:
        return sum(self.seen)

    @workflow.update
    async def waits(self) -> str:
        await workflow.wait_condition(lambda: self.done)
        return "ended"


@workflow.defn
class Nap:
    @workflow.run
    async def run(self, seconds: float) -> float:
        await workflow.sleep(seconds)
        return workflow.time()


def in_memory(runtime):
    return len(runtime._shard.actors)


def with_code(runtime):
    return sum(actor.instance is not None for actor in runtime._shard.actors.values())


@pytest.mark.parametrize("limit", [1, 3, 20])
async def test_runs_beyond_the_limit_leave_and_come_back_with_all_that_they_know(limit):
    async with hosted(MemoryJournal(), Counter, max_cached_workflows=limit) as runtime:
        names = [str(n) for n in range(20)]
        for name in names:
            await runtime.spawn(Counter, id=name)
        for n in range(3):
            for name in names:
                await runtime.ref(name, Counter).signal(Counter.add, n)
        await settled(runtime)
        assert in_memory(runtime) == with_code(runtime) == limit
        assert (runtime._shard.passivation.evicted > 0) == (limit < 20)
        assert [await runtime.ref(name, Counter).query(Counter.sum) for name in names] == [3] * 20
        assert (await runtime.ref("0").describe()).status == "running"
        assert await runtime.count_workflows(status="running") == 20
        for name in names:
            await runtime.ref(name, Counter).signal(Counter.end)
            assert await runtime.ref(name, Counter).result() == [0, 1, 2]
        assert in_memory(runtime) == 0


async def test_those_used_least_go_first():
    async with hosted(MemoryJournal(), Counter, max_cached_workflows=2) as runtime:
        for name in "abc":
            await runtime.spawn(Counter, id=name)
        await runtime.ref("b", Counter).query(Counter.sum)
        await runtime.spawn(Counter, id="d")
        await settled(runtime)
        assert sorted(actor.workflow_id for actor in runtime._shard.actors.values()) == ["b", "d"]


async def test_an_id_whose_run_has_left_is_still_taken():
    async with hosted(MemoryJournal(), Counter, max_cached_workflows=1) as runtime:
        first = await runtime.spawn(Counter, id="a", request_id="q")
        await runtime.spawn(Counter, id="b")
        await settled(runtime)
        assert "a" not in runtime._shard.newest
        with pytest.raises(WorkflowAlreadyStartedError):
            await runtime.spawn(Counter, id="a")
        assert (await runtime.spawn(Counter, id="a", if_running="attach")).run_id == first.run_id
        await runtime.spawn(Counter, id="c")
        await settled(runtime)
        assert (await runtime.spawn(Counter, id="a", request_id="q")).run_id == first.run_id
        await runtime.spawn(Counter, id="d")
        await settled(runtime)
        second = await runtime.spawn(Counter, id="a", if_running="replace")
        assert second.run_id != first.run_id
        assert (await runtime.ref("a", Counter).describe()).run_id == second.run_id
        assert await runtime.count_workflows(status="terminated") == 1


async def test_who_waits_for_a_run_keeps_it_in_memory_without_its_code():
    async with hosted(MemoryJournal(), Counter, max_cached_workflows=1) as runtime:
        a = await runtime.spawn(Counter, id="a")
        result = asyncio.ensure_future(a.result())
        update = asyncio.ensure_future(a.execute_update(Counter.waits))
        await settled(runtime)
        await runtime.spawn(Counter, id="b")
        await settled(runtime)
        actor = runtime._shard.newest["a"]
        assert actor.instance is None
        await a.signal(Counter.end)
        assert (await update, await result) == ("ended", [])


async def test_a_run_with_an_activity_in_hand_stays_without_its_code():
    it = gate()

    @workflow.defn
    class Works:
        @workflow.run
        async def run(self) -> str:
            return await workflow.execute_activity(it.fn, "once")

    async with hosted(MemoryJournal(), Works, Counter, activities=[it.fn], max_cached_workflows=1) as runtime:
        await runtime.spawn(Works, id="works")
        await until(lambda: it.calls)
        await runtime.spawn(Counter, id="b")
        await settled(runtime)
        assert runtime._shard.newest["works"].instance is None
        it.open.set()
        assert await runtime.ref("works", Works).result() == "through"
        assert it.calls == ["once"]


@pytest.mark.parametrize("seconds", [5, horizon.HORIZON / 1_000_000 + 5, 3 * DAY])
async def test_timers_of_runs_that_have_left_fire_in_time_and_once(seconds):
    clock = ManualClock()
    async with hosted(MemoryJournal(), Nap, Counter, clock=clock, max_cached_workflows=1) as runtime:
        naps = [await runtime.spawn(Nap, seconds + n, id=f"nap{n}") for n in range(6)]
        for n in range(8):  # until the log that has the naps is moved
            await runtime.spawn(Counter, id=str(n))
        await settled(runtime)
        far = seconds * 1_000_000 > horizon.HORIZON
        assert ("nap0" in runtime._shard.newest) == (not far)
        began = clock.wall()
        while clock.wall() < began + seconds * 1_000_000:
            await tick(runtime, clock, min(horizon.HORIZON / 2_000_000, seconds))
        for n, nap in enumerate(naps):
            await tick(runtime, clock, 1)
            assert await nap.result(timeout=timedelta(seconds=5)) >= seconds + n
        histories = [await nap.fetch_history() for nap in naps]
    assert [[e.kind for e in history].count("TimerFired") for history in histories] == [1] * 6


async def test_the_timers_of_a_run_that_came_back_fire_for_the_new_object_only():
    clock = ManualClock()
    seconds = horizon.HORIZON / 1_000_000 + 100
    async with hosted(MemoryJournal(), Nap, Counter, clock=clock, max_cached_workflows=1) as runtime:
        nap = await runtime.spawn(Nap, seconds, id="nap")
        for _ in range(3):
            for n in range(8):
                await runtime.spawn(Counter, id=str(n), if_running="replace")
            await settled(runtime)
            assert "nap" not in runtime._shard.newest
            assert (await nap.describe()).status == "running"  # it comes back, with timers of its own
        for _ in range(4):
            await tick(runtime, clock, seconds / 3)
        assert await nap.result(timeout=timedelta(seconds=5)) >= seconds
        history = await nap.fetch_history()
    assert [e.kind for e in history].count("TimerFired") == 1


async def test_runs_that_the_tables_did_not_know_leave_once_the_log_was_moved():
    clock = ManualClock()
    async with hosted(MemoryJournal(), Nap, Counter, clock=clock, max_cached_workflows=1) as runtime:
        shard = runtime._shard
        shard.compactor.suspended = True
        for n in range(30):
            await runtime.spawn(Nap, 3 * DAY, id=f"nap{n}")
        await settled(runtime)
        assert (in_memory(runtime), with_code(runtime)) == (30, 1)
        shard.compactor.suspended = False
        for n in range(40):
            await runtime.spawn(Counter, id=str(n), if_running="replace")
        await settled(runtime)
        assert in_memory(runtime) < 10
        assert not [row for row in shard.index.rows.values() if row.workflow_id == "nap0"]


async def test_a_sweep_looks_at_a_bounded_number_of_runs_at_a_time(monkeypatch):
    """With a million runs in memory, others must have their turns meanwhile."""
    monkeypatch.setattr(passivation, "SLICE", 10)
    clock = ManualClock()
    async with hosted(MemoryJournal(), Nap, Counter, clock=clock, max_cached_workflows=1) as runtime:
        shard = runtime._shard
        shard.compactor.suspended = True
        for n in range(55):
            await runtime.spawn(Nap, 3 * DAY, id=f"nap{n}")
        await settled(runtime)
        looks = []
        leave = shard.passivation._leave
        monkeypatch.setattr(shard.passivation, "_leave", lambda actor: looks.append(actor) or leave(actor))
        counts = []
        shard.passivation.sweep()
        for _ in range(8):
            counts.append(len(looks))
            await asyncio.sleep(0)
        assert counts == [10, 20, 30, 40, 50, 54, 54, 54]
        assert len(set(map(id, looks))) == 54
        assert in_memory(runtime) == 55, "their timers are not in the tables"
        shard.passivation.sweep()
        assert len(looks) == 64, "who has stayed is looked at the next time"


async def test_runs_that_a_start_brings_in_leave_when_they_may(monkeypatch):
    """A timer soon that then goes: nothing of it has had a turn here."""
    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Nap, clock=clock) as runtime:
        for n in range(5):
            await runtime.spawn(Nap, 3 * DAY, id=f"nap{n}")
    async with hosted(journal, Nap, Counter, clock=clock) as runtime:
        await settled(runtime)
        brought = in_memory(runtime)
        for n in range(40):
            await runtime.spawn(Counter, id=str(n), if_running="replace")
        await settled(runtime)
        assert not [
            actor for actor in runtime._shard.actors.values() if actor.workflow_id.startswith("nap")
        ], brought


async def test_a_failed_commit_finds_every_run_again():
    store = TroubledStore(MemoryStore(MemoryJournal()))
    async with hosted(store, Counter, max_cached_workflows=1) as runtime:
        for n in range(10):
            await runtime.spawn(Counter, id=str(n))
        await settled(runtime)
        store.failures.append("before")
        with pytest.raises(CommitUnknownError):
            await runtime.ref("3", Counter).signal(Counter.add, 5)
        for n in range(10):
            await runtime.ref(str(n), Counter).signal(Counter.add, 1)
            assert await runtime.ref(str(n), Counter).query(Counter.sum) == 1


async def test_the_limit_must_be_positive(tmp_journal):
    with pytest.raises(ValueError, match="max_cached_workflows must be 1 or more, not 0"):
        hosted(str(tmp_journal), Counter, max_cached_workflows=0)
