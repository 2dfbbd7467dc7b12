"""Retention and purge in a running program: counted from the close, on time, and nothing is left to be found."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from support.clock import START, ManualClock
from support.hosting import hosted, settled, tick, until
from support.purges import check_tables
from support.stores import TroubledStore

from everact import workflow
from everact.actors import housekeeping
from everact.actors.mailbox import Query
from everact.exceptions import (
    CommitUnknownError,
    JournalAccessError,
    RequestIdReusedError,
    RuntimeClosedError,
    WorkflowNotFoundError,
    WorkflowPurgedError,
)
from everact.journal import compaction, new_history, purging
from everact.journal.fault_points import armed
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.space import Space
from everact.journal.tables import Table

HOUR = 3600.0


@pytest.fixture
def journal():
    return MemoryJournal()


@pytest.fixture
def clock():
    return ManualClock()


def order_type(retention):
    """The same type as other versions of the code declare it."""

    @workflow.defn(name="Order", retention=retention)
    class Order:
        def __init__(self):
            self.events = []

        @workflow.run
        async def run(self, count: int) -> int:
            await workflow.wait_condition(lambda: len(self.events) >= count)
            return count

        @workflow.signal
        def happen(self, what: str) -> None:
            self.events.append(what)

        @workflow.update
        def ask(self, what: str) -> str:
            self.events.append(what)
            return f"{what} done"

        @workflow.query
        def seen(self) -> int:
            return len(self.events)

    return Order


HourOrder = order_type(timedelta(hours=1))


@workflow.defn
class Kept:
    @workflow.run
    async def run(self, value: int) -> int:
        return value


def in_order(runtime):
    """Nothing is to be moved or purged any more."""
    shard = runtime._shard
    return not shard.compactor.is_pressed and shard.writer.is_idle


async def pass_time(runtime, clock, seconds):
    """Let time pass, and what is past its retention be purged."""
    await tick(runtime, clock, seconds)
    await until(lambda: in_order(runtime))
    await settled(runtime)


async def ids(runtime):
    return sorted(run.workflow_id for run in await runtime.list_workflows())


# --- retention ----------------------------------------------------------------------------------------------------


async def test_retention_counts_from_the_close(journal, clock):
    async with hosted(journal, HourOrder, clock=clock) as runtime:
        order = await runtime.spawn(HourOrder, 1, id="slow")
        await pass_time(runtime, clock, 2 * HOUR)  # longer than its retention, and it has not ended
        await order.signal(HourOrder.happen, "end")
        assert await order.result() == 1
        await pass_time(runtime, clock, 60)
        assert await runtime.ref("slow").result() == 1
        await pass_time(runtime, clock, HOUR - 61)
        assert await runtime.ref("slow").result() == 1
        await pass_time(runtime, clock, 61)
        with pytest.raises(WorkflowNotFoundError):
            await runtime.ref("slow").result()
        with pytest.raises(WorkflowNotFoundError):
            await order.result()
        assert await runtime.count_workflows() == 0


async def test_open_runs_and_other_types_stay(journal, clock):
    async with hosted(journal, HourOrder, Kept, clock=clock) as runtime:
        await runtime.spawn(HourOrder, 1, id="open")
        await runtime.execute(HourOrder, 0, id="ended")
        await runtime.execute(Kept, 1, id="kept")
        await pass_time(runtime, clock, 100 * HOUR)
        assert await ids(runtime) == ["kept", "open"]
        await runtime.ref("open").signal(HourOrder.happen, "end")
        assert await runtime.ref("open").result() == 1
        check_tables(runtime._shard.store)


async def test_runs_are_purged_as_they_expire(journal, clock):
    async with hosted(journal, HourOrder, clock=clock) as runtime:
        for number in range(4):
            await runtime.execute(HourOrder, 0, id=f"o{number}")
            await pass_time(runtime, clock, HOUR / 4)
        assert await ids(runtime) == ["o1", "o2", "o3"]
        for left in (["o2", "o3"], ["o3"], []):
            await pass_time(runtime, clock, HOUR / 8)
            await pass_time(runtime, clock, HOUR / 8)
            assert await ids(runtime) == left


async def test_what_expired_while_nothing_ran_goes_at_the_start(journal, clock):
    async with hosted(journal, HourOrder, clock=clock) as runtime:
        for number in range(3):
            await runtime.execute(HourOrder, 0, id=f"o{number}")
    clock.advance(2 * HOUR)
    async with hosted(journal, HourOrder, clock=clock) as runtime:
        await until(lambda: in_order(runtime))
        assert await ids(runtime) == []
        check_tables(runtime._shard.store)


@pytest.mark.parametrize(
    ("now_kept", "left"),
    [(timedelta(hours=10), ["a"]), (None, ["a"]), (timedelta(minutes=30), []), (1800.0, [])],
    ids=["longer", "for ever", "shorter", "seconds"],
)
async def test_what_is_declared_at_the_start_holds_for_runs_of_any_age(journal, clock, now_kept, left):
    async with hosted(journal, HourOrder, clock=clock) as runtime:
        await runtime.execute(HourOrder, 0, id="a")
        await runtime.purge(workflow_id="another", older_than=0)
    changed = order_type(now_kept)
    clock.advance(HOUR / 2 + 60 if not left else 9 * HOUR)
    async with hosted(journal, changed, clock=clock) as runtime:
        await until(lambda: in_order(runtime))
        assert await ids(runtime) == left


async def test_a_type_that_gets_a_retention_later_loses_its_old_runs(journal, clock):
    for_ever = order_type(None)
    async with hosted(journal, for_ever, clock=clock) as runtime:
        await runtime.execute(for_ever, 0, id="old")
        await pass_time(runtime, clock, 100 * HOUR)
        assert await ids(runtime) == ["old"]
    async with hosted(journal, HourOrder, clock=clock) as runtime:
        await until(lambda: in_order(runtime))
        assert await ids(runtime) == []


async def test_runs_whose_type_is_not_registered_stay(journal, clock):
    async with hosted(journal, HourOrder, clock=clock) as runtime:
        await runtime.execute(HourOrder, 0, id="a")
    clock.advance(100 * HOUR)
    async with hosted(journal, Kept, clock=clock) as runtime:
        await pass_time(runtime, clock, HOUR)
        assert await ids(runtime) == ["a"]


async def test_nothing_is_committed_while_nothing_expires(journal, clock):
    commits = []
    store = MemoryStore(journal)
    append = store.append
    store.append = lambda *given: commits.append(given) or append(*given)
    async with hosted(store, HourOrder, clock=clock) as runtime:
        await runtime.execute(HourOrder, 0, id="a")
        await pass_time(runtime, clock, 2 * HOUR)
        assert await ids(runtime) == []
        before = len(commits)
        for _ in range(50):
            await pass_time(runtime, clock, HOUR)
        await runtime.spawn(HourOrder, 1, id="open")
        assert len(commits) == before + 1


async def test_expired_runs_go_a_few_with_each_commit(journal, clock, monkeypatch):
    monkeypatch.setattr(housekeeping, "SPARE", 20)
    monkeypatch.setattr(housekeeping, "PAUSE", 0.0)
    monkeypatch.setattr(compaction, "PURGE_LEAST", 20)
    sizes = []
    planned = purging.Purge.__call__
    monkeypatch.setattr(
        purging.Purge,
        "__call__",
        lambda self, changes: sizes.append(len(self.runs)) or planned(self, changes),
    )
    async with hosted(journal, HourOrder, clock=clock) as runtime:
        await asyncio.gather(*(runtime.execute(HourOrder, 0, id=f"o{n}") for n in range(100)))
        await pass_time(runtime, clock, 2 * HOUR)
        assert await runtime.count_workflows() == 0
    assert sum(sizes) == 100
    assert max(sizes) <= 4


async def test_a_long_history_goes_in_pieces_but_its_run_at_once(journal, clock, monkeypatch):
    monkeypatch.setattr(new_history, "VALUE_ENTRIES", 2)
    monkeypatch.setattr(new_history, "MERGE_BELOW", 0)
    monkeypatch.setattr(housekeeping, "SPARE", 10)
    monkeypatch.setattr(compaction, "PURGE_LEAST", 10)
    seen = []

    async with hosted(journal, HourOrder, clock=clock) as runtime:
        order = await runtime.spawn(HourOrder, 80, id="long")
        for number in range(80):
            await order.signal(HourOrder.happen, str(number))
        await order.result()
        shard = runtime._shard

        def look():
            with shard.store.view() as tables:
                rows = sum(1 for _ in tables.scan(Table.HISTORIES))
            seen.append((rows, shard.index.find("long") is not None))

        with armed("purge.before", look):
            await pass_time(runtime, clock, 2 * HOUR)
        look()
        assert seen[0][1] is True
        assert len(seen) >= 4
        assert not any(found for _rows, found in seen[1:])
        assert [rows for rows, _found in seen] == sorted((rows for rows, _found in seen), reverse=True)
        assert seen[-1][0] == 0
        assert check_tables(shard.store).purging == []


async def test_a_purge_that_was_cut_off_goes_on_without_any_retention(journal, clock, monkeypatch):
    monkeypatch.setattr(new_history, "VALUE_ENTRIES", 2)
    monkeypatch.setattr(new_history, "MERGE_BELOW", 0)
    monkeypatch.setattr(housekeeping, "SPARE", 10)
    monkeypatch.setattr(compaction, "PURGE_LEAST", 10)
    monkeypatch.setattr(housekeeping, "PAUSE", 3600.0)
    for_ever = order_type(None)
    async with hosted(journal, for_ever, clock=clock) as runtime:
        order = await runtime.spawn(for_ever, 80, id="long")
        for number in range(80):
            await order.signal(for_ever.happen, str(number))
        await order.result()
        shard = runtime._shard
        asking = asyncio.create_task(runtime.purge(older_than=0))
        await settled(runtime)
        while not shard.compactor._facts.purging:
            shard.housekeeping._work()
            await settled(runtime)
        assert await asking == 1
        assert await ids(runtime) == []
        await runtime.spawn(for_ever, 1, id="long")
    monkeypatch.setattr(housekeeping, "PAUSE", 0.0)
    async with hosted(journal, for_ever, clock=clock) as runtime:
        await until(lambda: in_order(runtime))
        assert check_tables(runtime._shard.store).purging == []
        assert len(await runtime.ref("long").fetch_history()) == 2  # nothing of the run before


# --- what others see ----------------------------------------------------------------------------------------------


async def test_a_new_start_of_a_purged_id_is_a_new_run(journal, clock):
    async with hosted(journal, HourOrder, clock=clock) as runtime:
        first = await runtime.spawn(HourOrder, 1, id="order")
        await first.signal(HourOrder.happen, "first")
        await first.result()
        await pass_time(runtime, clock, 2 * HOUR)
        second = await runtime.spawn(HourOrder, 1, id="order", if_closed="refuse")
        assert second.run_id != first.run_id
        assert await second.query(HourOrder.seen) == 0
        with pytest.raises(WorkflowNotFoundError):
            await first.describe()
        await second.signal(HourOrder.happen, "second")
        await second.result()
        assert [
            event.event.args[0].data
            for event in await second.fetch_history()
            if event.kind == "SignalReceived"
        ] == [b'"second"']


@pytest.mark.parametrize("again", [False, True], ids=["at once", "after a start"])
async def test_what_a_repeated_request_gets(journal, clock, again):
    """What was asked for once is not done twice, although the run that did it is gone."""
    async with hosted(journal, HourOrder, clock=clock) as runtime:
        order = await runtime.spawn(HourOrder, 2, id="order", request_id="start")
        await order.signal(HourOrder.happen, "a", request_id="signal")
        assert await order.execute_update(HourOrder.ask, "b", request_id="update") == "b done"
        await order.result()
        await pass_time(runtime, clock, 2 * HOUR)
        if not again:
            await check_repeats(runtime)
    if again:
        async with hosted(journal, HourOrder, clock=clock) as runtime:
            await check_repeats(runtime)


async def check_repeats(runtime):
    with pytest.raises(WorkflowPurgedError, match="request 'start' was handled by a run of workflow 'order'"):
        await runtime.spawn(HourOrder, 2, id="order", request_id="start")
    with pytest.raises(RequestIdReusedError):
        await runtime.spawn(HourOrder, 3, id="order", request_id="start")
    with pytest.raises(WorkflowNotFoundError):
        await runtime.ref("order").signal(HourOrder.happen, "a", request_id="signal")
    fresh = await runtime.spawn(HourOrder, 2, id="order", request_id="another")
    await fresh.signal(HourOrder.happen, "a", request_id="signal")  # the purged run had it
    assert await fresh.query(HourOrder.seen) == 0
    with pytest.raises(WorkflowPurgedError, match="use another request id to ask again"):
        await fresh.execute_update(HourOrder.ask, "b", request_id="update")
    assert await fresh.query(HourOrder.seen) == 0


async def test_a_run_that_is_purged_under_a_question(journal, clock):
    """The purge is durable, and the loop does not know it yet."""
    store = TroubledStore(MemoryStore(journal))
    async with hosted(store, HourOrder, clock=clock) as runtime:
        order = await runtime.spawn(HourOrder, 0, id="order")
        await order.result()
        shard = runtime._shard
        shard.closed_runs.clear()
        asking = asyncio.create_task(runtime.purge(older_than=0))
        await until(lambda: not shard.compactor._hurries and shard.compactor.purger.is_asked)
        row = shard.index.find("order")
        actor = shard.actor_of(row)
        shard.purged(actor.key)
        await asking
        with pytest.raises(WorkflowNotFoundError):
            shard.actor_of(row)
        with pytest.raises(WorkflowNotFoundError):
            shard.durable_records(actor)
        with pytest.raises(WorkflowNotFoundError):
            await order.query(HourOrder.seen)
        reply = asyncio.get_running_loop().create_future()
        actor.put(Query("seen", ()), reply)
        with pytest.raises(WorkflowNotFoundError):
            await reply


async def test_a_result_in_the_window_comes_from_the_journal_too(journal, clock):
    async with hosted(journal, HourOrder, clock=clock) as runtime:
        await runtime.execute(HourOrder, 0, id="order")
    clock.advance(HOUR - 1)
    async with hosted(journal, HourOrder, clock=clock) as runtime:
        await until(lambda: in_order(runtime))
        assert await runtime.ref("order", HourOrder).result() == 0


# --- purge by hand ------------------------------------------------------------------------------------------------


async def fill(runtime, clock):
    """Closed runs a second apart: two types, two ends."""
    for number in range(3):
        await runtime.execute(Kept, number, id=f"k{number}")
        clock.advance(1)
    for number in range(3):
        order = await runtime.spawn(HourOrder, 1, id=f"o{number}")
        await order.terminate("enough")
        clock.advance(1)
    await runtime.spawn(HourOrder, 1, id="open")


@pytest.mark.parametrize(
    ("choice", "gone"),
    [
        ({"older_than": 0}, "k0 k1 k2 o0 o1 o2"),
        ({"older_than": timedelta(seconds=4)}, "k0 k1 k2"),
        ({"closed_before": datetime.fromtimestamp(START // 1_000_000 + 2, UTC)}, "k0 k1"),
        ({"closed_before": datetime.fromtimestamp(START // 1_000_000 + 2, UTC), "older_than": 6}, "k0"),
        ({"workflow_type": "Kept"}, "k0 k1 k2"),
        ({"status": "terminated"}, "o0 o1 o2"),
        ({"workflow_id": "o1"}, "o1"),
        ({"workflow_id": "open"}, ""),
        ({"workflow_type": "Order", "status": "completed"}, ""),
    ],
)
async def test_purge_takes_what_was_chosen(journal, clock, choice, gone):
    gone = set(gone.split())
    async with hosted(journal, HourOrder, Kept, clock=clock) as runtime:
        await fill(runtime, clock)
        before = await ids(runtime)
        assert await runtime.purge(**choice, dry_run=True) == len(gone)
        assert await ids(runtime) == before
        assert await runtime.purge(**choice) == len(gone)
        assert await ids(runtime) == [name for name in before if name not in gone]
        assert await runtime.count_workflows() == len(before) - len(gone)
        assert await runtime.purge(**choice) == 0
    async with hosted(journal, HourOrder, Kept, clock=clock) as runtime:
        assert await ids(runtime) == [name for name in before if name not in gone]
        check_tables(runtime._shard.store)


async def test_purge_on_a_journal_on_disk_while_others_run(tmp_journal):
    async with hosted(tmp_journal, HourOrder, Kept) as runtime:
        stop = False
        started = 0

        async def load():
            nonlocal started
            while not stop:
                await runtime.execute(Kept, started, id=f"k{started}")
                started += 1

        await asyncio.gather(*(runtime.execute(HourOrder, 0, id=f"o{n}") for n in range(300)))
        loading = asyncio.create_task(load())
        assert await runtime.purge(workflow_type="Order") == 300
        stop = True
        await loading
        assert await runtime.count_workflows() == started
        assert await runtime.count_workflows(workflow_type="Order") == 0
    async with hosted(tmp_journal, HourOrder, Kept) as runtime:
        assert await runtime.count_workflows(workflow_type="Kept", status="completed") == started


@pytest.mark.parametrize(
    ("choice", "error", "text"),
    [
        ({}, TypeError, "nothing says which runs to purge"),
        ({"closed_before": "2026-01-01"}, TypeError, "closed_before must be a datetime, not '2026-01-01'"),
        ({"closed_before": datetime(2026, 1, 1)}, ValueError, "closed_before must have a time zone"),  # noqa: DTZ001
        ({"older_than": -1}, ValueError, "older_than must be between 0 and 100 years, not -1"),
        ({"status": "running"}, ValueError, "status must be that of a closed run, one of 'cancelled'"),
        ({"workflow_id": 7}, TypeError, "workflow_id must be a str, not 7"),
    ],
)
async def test_purge_refuses(journal, choice, error, text):
    async with hosted(journal, Kept) as runtime:
        with pytest.raises(error, match=text):
            await runtime.purge(**choice)


class FailsAtPurges(TroubledStore):
    """The first commit that purges something fails."""

    def __init__(self, inner, failure):
        super().__init__(inner)
        self.failure = failure

    def append(self, expected, entries, work=None):
        if work is not None and work.purge is not None and self.failure:
            self.failures.append(self.failure)
            self.failure = None
        return super().append(expected, entries, work)


@pytest.mark.parametrize(("failure", "left"), [("before", 3), ("after", 0)])
async def test_a_commit_that_fails_under_a_purge(journal, clock, failure, left):
    store = FailsAtPurges(MemoryStore(journal), failure)
    async with hosted(store, Kept, clock=clock) as runtime:
        for number in range(3):
            await runtime.execute(Kept, number, id=f"k{number}")
        with pytest.raises(CommitUnknownError, match="the disk is on fire"):
            await runtime.purge(older_than=0)
        assert await runtime.count_workflows() == left
        assert await runtime.purge(older_than=0) == left
        assert await runtime.count_workflows() == 0
        check_tables(store)


async def test_leaving_the_runtime_answers_who_waits_for_a_purge(journal, clock, monkeypatch):
    monkeypatch.setattr(housekeeping, "PAUSE", 3600.0)
    async with hosted(journal, Kept, clock=clock) as runtime:
        await runtime.execute(Kept, 1, id="k")
        asking = asyncio.create_task(runtime.purge(older_than=0))
        await settled(runtime)
    with pytest.raises(RuntimeClosedError, match="what was asked for was not finished"):
        await asking


async def test_what_has_expired_is_purged_although_the_journal_could_not_be_read_once(
    journal, clock, monkeypatch, caplog
):
    def unreadable(*_args):
        raise JournalAccessError("too many readers")

    async with hosted(journal, HourOrder, clock=clock) as runtime:
        await runtime.execute(HourOrder, 0, id="first")
        with monkeypatch.context() as patch:
            patch.setattr(housekeeping, "next_expiry", unreadable)
            await pass_time(runtime, clock, HOUR)
            await pass_time(runtime, clock, 61)
        assert "what is past its retention cannot be looked up just now: too many readers" in caplog.text
        assert await ids(runtime) == []
        await runtime.execute(HourOrder, 0, id="second")
        await pass_time(runtime, clock, HOUR)
        await pass_time(runtime, clock, 61)
        assert await ids(runtime) == []


async def test_who_wants_room_after_a_commit_has_failed_for_want_of_it_is_served(journal, clock, monkeypatch):
    store = TroubledStore(MemoryStore(journal))
    async with hosted(store, Kept, HourOrder, clock=clock) as runtime:
        for number in range(3):
            await runtime.execute(Kept, number)
        order = await runtime.spawn(HourOrder, 1)
        monkeypatch.setattr(store, "space", lambda: Space(1000, 1000, 1000))
        runtime._shard.intake.check()
        store.failures.append("before")
        with pytest.raises(CommitUnknownError):
            await order.cancel()
        assert await runtime.purge(older_than=0) == 3
