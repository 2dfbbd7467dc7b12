"""Passivation against everything that may happen at the same moment."""

import asyncio
from datetime import timedelta

import pytest
from support.clock import ManualClock
from support.codecs import Wrapping, holding
from support.hosting import hosted, settled, tick
from support.stores import DelegatingStore, TroubledStore

from everact import workflow
from everact.actors import closed_runs, horizon
from everact.actors.rebuilding import Rebuilding
from everact.exceptions import CommitUnknownError, JournalAccessError
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.tables import Table

pytestmark = pytest.mark.usefixtures("keeps_code")


@workflow.defn
class Waits:
    @workflow.run
    async def run(self, word: str = "") -> str:
        await workflow.wait_condition(lambda: False)
        return word

    @workflow.update
    async def never(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def look(self) -> int:
        return 1


@workflow.defn
class Sleeps:
    @workflow.run
    async def run(self, seconds: float) -> None:
        await workflow.sleep(seconds)


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
    monkeypatch.setattr(closed_runs, "CLOSED_KEPT", 2)
    async with hosted(MemoryJournal(), Waits, max_cached_workflows=50) as runtime:
        for n in range(10):
            await runtime.spawn(Waits, id=str(n))
            await runtime.ref(str(n)).terminate()
            assert (await runtime.ref(str(n)).describe()).status == "terminated"
        await settled(runtime)
        kept = runtime._shard.closed_runs._kept.keys()
        assert len(kept) == 2 and not runtime._shard.passivation._used.keys() - kept


class HiddenDue(DelegatingStore):
    """The next readings of what falls due fail: ``failures`` says by what; None is none."""

    def __init__(self, inner):
        super().__init__(inner)
        self.failures = []

    def rows(self, table, start=b"", stop=None, *, reverse=False):
        if table is Table.DUE and self.failures and (error := self.failures.pop(0)) is not None:
            raise error
        return super().rows(table, start, stop, reverse=reverse)


@pytest.mark.parametrize(
    "error", [JournalAccessError("not now"), OSError("not now")], ids=["ours", "another"]
)
@pytest.mark.parametrize("good", [0, 1])
async def test_what_falls_due_is_looked_up_once_again_after_an_error(error, good):
    clock = ManualClock()
    store = HiddenDue(MemoryStore(MemoryJournal()))
    far = horizon.HORIZON / 1_000_000
    async with hosted(store, Sleeps, Waits, clock=clock, max_cached_workflows=1) as runtime:
        shard = runtime._shard
        sleepers = [await runtime.spawn(Sleeps, 3 * far, id=f"nap{n}") for n in range(3)]

        async def others():
            for n in range(8):
                await runtime.spawn(Waits, id=str(n), if_running="replace")
            await settled(runtime)

        await others()
        assert not [name for name in shard.newest if name.startswith("nap")]
        store.failures += [None] * good + [error]
        await tick(runtime, clock, far / 2 + 1)
        assert not any(store.failures)
        late = await runtime.spawn(Sleeps, 3 * far, id="nap3")
        await others()
        for _ in range(10):
            assert sum(entry[2] is horizon._next for entry in shard.timers._heap) <= 1
            await tick(runtime, clock, far / 3)
        for sleeper in [*sleepers, late]:
            assert await sleeper.result(timeout=timedelta(seconds=5)) is None


async def test_what_falls_due_is_read_a_little_at_a_time(monkeypatch):
    monkeypatch.setattr(horizon, "SLICE", 2)
    clock = ManualClock()
    read = []

    class Counted(DelegatingStore):
        def rows(self, table, start=b"", stop=None, *, reverse=False):
            for row in super().rows(table, start, stop, reverse=reverse):
                read.extend([row] * (table is Table.DUE))
                yield row

    far = horizon.HORIZON / 1_000_000
    async with hosted(
        Counted(MemoryStore(MemoryJournal())), Sleeps, Waits, clock=clock, max_cached_workflows=1
    ) as runtime:
        sleepers = [await runtime.spawn(Sleeps, 2 * far) for _ in range(9)]
        for n in range(8):
            await runtime.spawn(Waits, id=str(n), if_running="replace")
        await settled(runtime)
        clock.advance(3 * far)
        read.clear()
        runtime._shard.timers.check()
        assert len(read) == 2
        for sleeper in sleepers:
            await sleeper.result(timeout=timedelta(seconds=5))


async def test_callers_that_have_gone_away_keep_no_run_in_memory():
    async with hosted(MemoryJournal(), Waits, max_cached_workflows=1) as runtime:
        a = await runtime.spawn(Waits, id="a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await a.ask(Waits.never)
        await runtime.spawn(Waits, id="b")
        await settled(runtime)
        assert "a" not in runtime._shard.newest


class StepClock(ManualClock):
    """Each look at it costs time."""

    def steady(self):
        self._steady += 0.002
        return self._steady


async def test_others_have_their_turn_while_a_rebuild_looks_for_runs_with_something_to_do(monkeypatch):
    calls = []
    rebuild = Rebuilding._rebuild
    monkeypatch.setattr(Rebuilding, "_rebuild", lambda *args: (calls.append(args), rebuild(*args)))
    store = TroubledStore(MemoryStore(MemoryJournal()))
    async with hosted(store, Sleeps, Waits, clock=StepClock(), max_cached_workflows=1) as runtime:
        sleeper = await runtime.spawn(Sleeps, 10)
        for n in range(60):
            await runtime.spawn(Waits, id=str(n))
        for _ in range(8):
            await runtime.spawn(Waits, id="0", if_running="replace")
        await settled(runtime)
        assert len(runtime._shard.actors) < 5
        store.failures.append("before")
        with pytest.raises(CommitUnknownError):
            await runtime.spawn(Waits, id="0", if_running="replace")
        await settled(runtime)
        assert len(calls) > 20
        assert sleeper.workflow_id in runtime._shard.newest
