"""What of the journal is damaged keeps nothing out that is whole, neither other runs nor what can do without it."""

import asyncio
import itertools

import msgspec
import pytest
from support.clock import ManualClock
from support.hosting import hosted, settled, tick, until

from everact import workflow
from everact.actors import horizon
from everact.actors.timers import TimerQueue
from everact.exceptions import JournalAccessError, JournalCorruptError, WorkflowNotFoundError
from everact.journal import compaction, run_index
from everact.journal.loading import load
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.store import HAS_REQUEST, Entry
from everact.journal.tables import NUMBER, Table
from everact.journal.verify import verify

FAR = 5.0 * horizon.HORIZON / 1_000_000


@workflow.defn
class Order:
    def __init__(self):
        self.events = []

    @workflow.run
    async def run(self, count: int, nap: float = 0.0) -> int:
        await workflow.wait_condition(lambda: len(self.events) >= count)
        if nap:
            await asyncio.sleep(nap)
        return count

    @workflow.signal
    def happen(self, what: str) -> None:
        self.events.append(what)


@pytest.fixture(autouse=True)
def one_segment(monkeypatch):
    monkeypatch.setattr(compaction, "WINDOW", 1000)


async def empty_log(runtime):
    """Move all that the log holds into the tables."""
    shard = runtime._shard
    await settled(runtime)
    shard.compactor.hurry()
    shard.housekeeping.wake()
    await until(lambda: not any(map(len, shard.index.rows.values())))


def damage(journal, table, run_key):
    """Change a byte of a run's row."""
    store = MemoryStore(journal)

    def change(changes):
        key, value = changes.last(table, NUMBER.pack(run_key), NUMBER.pack(run_key + 1))
        changes.put(table, [(key, value[:-1] + bytes([value[-1] ^ 0xFF]))])

    store.append(store.position, [], change)


async def statuses(runtime):
    return {row.workflow_id: row.status for row in await runtime.list_workflows()}


async def two_orders(journal, clock, *args):
    async with hosted(journal, Order, clock=clock) as runtime:
        await runtime.spawn(Order, *args, id="first")
        await runtime.spawn(Order, *args, id="second")
        await empty_log(runtime)


async def test_a_run_whose_snapshot_is_damaged_goes_on_from_its_history(caplog):
    journal, clock = MemoryJournal(), ManualClock()
    await two_orders(journal, clock, 0, 30.0)
    damage(journal, Table.OPEN, 1)
    async with hosted(journal, Order, clock=clock) as runtime:
        await tick(runtime, clock, 30)
        assert await statuses(runtime) == {"first": "completed", "second": "completed"}
    assert "run 1 in the table of open runs cannot be read, its history is read instead: " in caplog.text


@pytest.mark.parametrize("nap", [30.0, FAR], ids=["at start", "when its timer comes near"])
@pytest.mark.parametrize("row", [True, False], ids=["its row", "its history"])
async def test_a_run_that_cannot_be_brought_in_does_not_keep_the_others_out(nap, row, caplog):
    journal, clock = MemoryJournal(), ManualClock()
    await two_orders(journal, clock, 0, nap)
    if row:
        damage(journal, Table.RUNS, 1)
    else:
        damage(journal, Table.OPEN, 1)
        damage(journal, Table.HISTORIES, 1)
    async with hosted(journal, Order, clock=clock) as runtime:
        for _ in range(20):
            await tick(runtime, clock, nap / 20)
        found = runtime._shard.index.find("second")
        assert found is not None
        assert found.status == "completed"
        if row:  # its snapshot and its history say the same
            assert await statuses(runtime) == {"first": "completed", "second": "completed"}
            assert "run 1 in the table of runs cannot be read: " in caplog.text
        else:
            with pytest.raises(
                JournalCorruptError, match="the history of run 1 from event 1 on cannot be read"
            ):
                await runtime.ref("first").describe()
            text = "run 1 stays as it is, the journal is damaged (`everact journal verify` names all of it): "
            assert text in caplog.text


@pytest.mark.parametrize("flags", [0, HAS_REQUEST])
async def test_a_record_that_this_version_does_not_know_keeps_no_other_run_from_going_on(flags, caplog):
    journal, clock = MemoryJournal(), ManualClock()
    await two_orders(journal, clock, 1)
    store = MemoryStore(journal)
    index = load(store).runs
    first = index.state(index.row(1)).last_event + 1
    store.append(store.position, [Entry(1, first, flags, clock.wall(), msgspec.msgpack.encode(["Strange"]))])
    async with hosted(journal, Order, clock=clock) as runtime:
        await runtime.ref("second").signal(Order.happen, "once")
        assert await runtime.ref("second").result() == 1
        with pytest.raises(JournalCorruptError, match=f"event {first} of run 1 does not decode: "):
            await runtime.ref("first").describe()
    assert (
        "run 1 stays as it is, the journal is damaged (`everact journal verify` names all of it)"
        in caplog.text
    )


async def test_an_id_can_be_used_again_although_its_last_history_is_damaged():
    journal, clock = MemoryJournal(), ManualClock()
    async with hosted(journal, Order, clock=clock) as runtime:
        await runtime.execute(Order, 0, id="order")
        await empty_log(runtime)
    damage(journal, Table.HISTORIES, 1)
    async with hosted(journal, Order, clock=clock) as runtime:
        assert await runtime.execute(Order, 0, id="order") == 0


async def test_who_repeats_what_a_damaged_run_has_received_gets_the_reason_and_the_new_run_goes_on():
    journal, clock = MemoryJournal(), ManualClock()
    async with hosted(journal, Order, clock=clock) as runtime:
        order = await runtime.spawn(Order, 1, id="order")
        await order.signal(Order.happen, "once", request_id="request")
        await order.result()
        await empty_log(runtime)
    damage(journal, Table.HISTORIES, 1)
    async with hosted(journal, Order, clock=clock) as runtime:
        order = await runtime.spawn(Order, 1, id="order")
        with pytest.raises(JournalCorruptError, match="the history of run 1 from event 1 on cannot be read"):
            await order.signal(Order.happen, "once", request_id="request")
        await order.signal(Order.happen, "again")
        assert await order.result() == 1


async def test_timers_that_come_near_fire_although_the_journal_could_not_be_read_once(monkeypatch, caplog):
    journal, clock = MemoryJournal(), ManualClock()
    await two_orders(journal, clock, 0, FAR)
    async with hosted(journal, Order, clock=clock) as runtime:

        def unreadable(*_args):
            raise JournalAccessError("too many readers")

        with monkeypatch.context() as patch:
            patch.setattr(horizon, "due_runs", unreadable)
            await tick(runtime, clock, FAR / 2)
        assert "cannot be looked up, trying again in 1 s: too many readers" in caplog.text
        await tick(runtime, clock, FAR / 2)
        await tick(runtime, clock, 1)
        assert await statuses(runtime) == {"first": "completed", "second": "completed"}


async def test_many_timers_that_come_near_do_not_hold_up_the_loop(monkeypatch):
    monkeypatch.setattr(horizon, "SLICE", 2)
    journal, clock = MemoryJournal(), ManualClock()
    async with hosted(journal, Order, clock=clock) as runtime:
        for number in range(9):
            await runtime.spawn(Order, 0, FAR, id=f"order {number}")
        await empty_log(runtime)
    async with hosted(journal, Order, clock=clock) as runtime:
        actors = runtime._shard.actors
        clock.advance(FAR - 1)
        runtime._shard.timers.check()
        seen = [len(actors)]
        while len(actors) < 9:
            await asyncio.sleep(0)
            seen.append(len(actors))
        assert max(after - before for before, after in itertools.pairwise([0, *seen])) == 2
        await tick(runtime, clock, 1)
        assert set((await statuses(runtime)).values()) == {"completed"}


async def test_what_one_timer_raises_does_not_stop_the_others():
    fired, raised = [], []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: raised.append(str(context["exception"])))
    clock = ManualClock()
    timers = TimerQueue(loop, clock)

    def fire(owner, _command):
        if owner == "bad":
            raise JournalAccessError("too many readers")
        fired.append(owner)

    for owner in ("bad", "good"):
        timers.add(clock.wall(), fire, lambda *_: True, owner, 1)
    await until(lambda: fired == ["good"])
    assert raised == ["too many readers"]
    timers.close()


async def test_a_run_whose_row_is_damaged_is_named_once_and_hides_no_other(caplog):
    journal, clock = MemoryJournal(), ManualClock()
    await two_orders(journal, clock, 0)
    damage(journal, Table.RUNS, 1)
    async with hosted(journal, Order, clock=clock) as runtime:
        for _ in range(3):
            assert await statuses(runtime) == {"second": "completed"}
        assert (
            caplog.text.count("run 1 in the table of runs cannot be read: the checksum of a row differs") == 1
        )
        # Its history says the same as its row.
        assert (await runtime.ref("first").describe()).status == "completed"
        assert await runtime.purge(workflow_id="second") == 1
        assert await runtime.purge(workflow_id="second", dry_run=True) == 0


@pytest.mark.parametrize("early", [True, False])
async def test_an_open_run_whose_row_is_damaged_goes_on_and_the_row_is_mended(early, monkeypatch):
    journal, clock = MemoryJournal(), ManualClock()
    async with hosted(journal, Order, clock=clock) as runtime:
        order = await runtime.spawn(Order, 12, id="order")
        await empty_log(runtime)
        for module in (run_index, compaction):
            monkeypatch.setattr(module, "CROWD", 5 if early else 1000)
        for number in range(7):
            await order.signal(Order.happen, str(number))
        await settled(runtime)
        assert bool(runtime._shard.compactor._facts.early) is early
    damage(journal, Table.RUNS, 1)
    async with hosted(journal, Order, clock=clock) as runtime:
        order = runtime.ref("order")
        assert (await order.describe()).status == "running"
        for number in range(5):
            await order.signal(Order.happen, str(number))
        assert await order.result() == 12
        assert [event.number for event in await order.fetch_history()] == list(
            range(1, len(await order.fetch_history()) + 1)
        )
        await empty_log(runtime)
        assert await statuses(runtime) == {"order": "completed"}
    assert verify(MemoryStore(journal)).problems == []


@pytest.mark.parametrize("log", [True, False], ids=["and the log has some of it", "and the log has nothing"])
async def test_a_run_of_which_nothing_is_whole_keeps_no_other_out(log, caplog):
    journal, clock = MemoryJournal(), ManualClock()
    async with hosted(journal, Order, clock=clock) as runtime:
        order = await runtime.spawn(Order, 2, id="first")
        await runtime.spawn(Order, 1, id="second")
        await empty_log(runtime)
        if log:
            await order.signal(Order.happen, "once")
    for table in (Table.RUNS, Table.OPEN, Table.HISTORIES):
        damage(journal, table, 1)
    async with hosted(journal, Order, clock=clock) as runtime:
        await runtime.ref("second").signal(Order.happen, "once")
        assert await runtime.ref("second").result() == 1
        with pytest.raises(JournalCorruptError, match="run 1 in the table of runs cannot be read"):
            await runtime.ref("first").describe()
        assert await statuses(runtime) == {"second": "completed"}
    assert "run 1 stays as it is, the journal is damaged (`everact journal verify` names all of it): " in (
        caplog.text
    )
    assert ("its log is no longer moved into the tables" in caplog.text) is log


async def test_a_run_is_found_by_its_run_id_although_the_row_of_its_id_is_damaged():
    journal, clock = MemoryJournal(), ManualClock()
    async with hosted(journal, Order, clock=clock) as runtime:
        run_ids = []
        for _ in range(3):
            order = await runtime.spawn(Order, 0, id="order")
            run_ids.append(order.run_id)
            await order.result()
        await empty_log(runtime)
    store = MemoryStore(journal)
    with store.view() as tables:
        ids = [key for key, value in tables.scan(Table.IDS) if value.decode() == run_ids[1]]
    store.append(store.position, [], lambda changes: changes.put(Table.IDS, [(ids[0], b"damage")]))
    async with hosted(journal, Order, clock=clock) as runtime:
        for run_id in run_ids:
            assert (await runtime.ref(f"everact://local/order/{run_id}").describe()).run_id == run_id
        with pytest.raises(WorkflowNotFoundError):
            await runtime.ref(f"everact://local/order/{'0' * 32}").describe()


async def test_keys_that_are_none_do_not_keep_a_journal_from_opening():
    journal, clock = MemoryJournal(), ManualClock()
    await two_orders(journal, clock, 0, FAR)
    store = MemoryStore(journal)

    def change(changes):
        for table in (Table.OPEN, Table.DUE, Table.RUNS, Table.CLOSED, Table.IDS):
            first = next(changes.scan(table), (NUMBER.pack(1),))[0]
            changes.put(table, [(first[:-3], b"x"), (first + b"x", b"y")])

    store.append(store.position, [], change)
    async with hosted(journal, Order, clock=clock) as runtime:
        assert set((await statuses(runtime)).values()) == {"running"}
        for _ in range(20):
            await tick(runtime, clock, FAR / 20)
        assert set((await statuses(runtime)).values()) == {"completed"}
