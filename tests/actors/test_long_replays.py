"""A replay takes place a few milliseconds at a time; what happens in between finds the run as it should (R19, G06)."""

import asyncio

import pytest
from support.clock import ManualClock
from support.hosting import gate, hosted, settled, until
from support.stores import TroubledStore

from everact import activity, workflow
from everact.actors import replay
from everact.exceptions import CommitUnknownError, WorkflowClosedError
from everact.journal.clock import SystemClock
from everact.journal.memory_store import MemoryJournal, MemoryStore

STEPS = 40


@activity.defn
async def step(number: int) -> int:
    return number


@workflow.defn
class Long:
    def __init__(self) -> None:
        self.total = 0
        self.notes: list[str] = []

    @workflow.run
    async def run(self) -> list[object]:
        for number in range(STEPS):
            self.total += await step(number)
        await workflow.wait_condition(lambda: "end" in self.notes)
        return [self.total, self.notes]

    @workflow.signal
    def note(self, text: str) -> None:
        self.notes.append(text)

    @workflow.query
    def seen(self) -> int:
        return self.total


@workflow.defn
class Short:
    @workflow.run
    async def run(self) -> str:
        looks.append(look())  # everact: allow
        return "short"


look = bool
looks: list[bool] = []
TOTAL = sum(range(STEPS))


@pytest.fixture
async def journal():
    journal = MemoryJournal()
    async with hosted(journal, Long, activities=[step]) as runtime:
        await runtime.spawn(Long, id="long")
        await until(lambda: runtime._shard.find("long").state.waiting)
    return journal


def again(journal):
    return hosted(journal, Long, Short, activities=[step])


async def begun(runtime):
    """The replay has begun, and is far from done."""
    actor = runtime._shard.find("long")
    async with asyncio.timeout(20):
        while actor.replay is None or actor.replay.number < 10:
            await asyncio.sleep(0)
    assert actor.replay.number < STEPS
    return actor


@pytest.fixture(autouse=True)
def one_slice_at_a_time(monkeypatch):
    """The host's loop has its turn after each record."""
    monkeypatch.setattr("everact.actors.shard.PUMP_SLICE", -1.0)


async def test_others_have_their_turns_while_a_run_is_loaded(journal, monkeypatch):
    async with again(journal) as runtime:
        asking = asyncio.create_task(runtime.ref("long", Long).query(Long.seen))
        actor = await begun(runtime)
        monkeypatch.setitem(globals(), "look", lambda: actor.replay is not None)
        assert await runtime.execute(Short) == "short"
        assert looks == [True]
        assert await asking == TOTAL


async def test_messages_keep_their_order_while_a_run_is_loaded(journal):
    async with again(journal) as runtime:
        handle = runtime.ref("long", Long)
        sends = [asyncio.create_task(handle.signal(Long.note, text)) for text in ("a", "b")]
        await begun(runtime)
        sends += [asyncio.create_task(handle.signal(Long.note, text)) for text in ("c", "end")]
        assert await handle.result() == [TOTAL, ["a", "b", "c", "end"]]
        await asyncio.gather(*sends)


async def test_a_run_that_is_terminated_while_it_is_loaded(journal):
    async with again(journal) as runtime:
        handle = runtime.ref("long", Long)
        asking = asyncio.create_task(handle.signal(Long.note, "a"))
        actor = await begun(runtime)
        await handle.terminate("enough")
        with pytest.raises(WorkflowClosedError):  # it had had no turn yet
            await asking
        assert (await handle.describe()).status == "terminated"
        assert actor.replay is None


async def test_a_run_that_is_replaced_while_it_is_loaded(journal):
    async with again(journal) as runtime:
        asking = asyncio.create_task(runtime.ref("long", Long).query(Long.seen))
        await begun(runtime)
        other = await runtime.spawn(Long, id="long", if_running="replace")
        await until(lambda: runtime._shard.find("long").state.waiting)
        await asking
        assert (await other.describe()).status == "running"


async def test_leaving_while_a_run_is_loaded(journal):
    async with again(journal) as runtime:
        sending = asyncio.create_task(runtime.ref("long", Long).signal(Long.note, "kept"))
        await begun(runtime)
    await sending
    async with again(journal) as runtime:
        handle = runtime.ref("long", Long)
        await handle.signal(Long.note, "end")
        assert await handle.result() == [TOTAL, ["kept", "end"]]


async def test_a_commit_that_fails_while_a_run_is_loaded(journal):
    store = TroubledStore(MemoryStore(journal))
    async with hosted(store, Long, Short, activities=[step]) as runtime:
        handle = runtime.ref("long", Long)

        async def send():
            try:
                await handle.signal(Long.note, "a", request_id="a")
            except CommitUnknownError:  # its turn was over by then
                await handle.signal(Long.note, "a", request_id="a")

        sending = asyncio.create_task(send())
        await begun(runtime)
        store.failures = ["before"]
        starting = asyncio.create_task(runtime.spawn(Short, id="short"))
        with pytest.raises(CommitUnknownError):
            await starting
        await sending
        await handle.signal(Long.note, "end")
        assert await handle.result() == [TOTAL, ["a", "end"]]


async def test_a_run_that_ends_with_messages_unread_is_loaded_twice_and_no_more(journal):
    """R1 (b): its last turn is begun again, and needs the code a second time."""
    async with hosted(journal, Short) as runtime:  # its type is not there: what comes is received
        handle = runtime.ref("long")
        await settled(runtime)
        for text in ("a", "end", "b", "c"):
            await handle.signal("note", text)
    async with again(journal) as runtime:
        assert await runtime.ref("long", Long).result() == [TOTAL, ["a", "end", "b", "c"]]


async def test_a_slice_ends_by_the_clock(journal, monkeypatch):
    """As many records as fit into it, and a look at the clock now and then only."""
    monkeypatch.setattr(replay, "SLICE", 0.005)
    monkeypatch.setattr(replay, "LOOK", 16)

    class Passing(SystemClock):
        looks = 0

        def steady(self):
            self.looks += 1
            return self.looks * 0.002

    async with again(journal) as runtime:
        records = runtime._shard.records(runtime._shard.find("long"))
        actor = runtime._shard.find("long")
        whole = replay.Replay(_instance(runtime, actor), records)
        clock = Passing()
        slices = 1
        while not whole.go_on(clock):
            slices += 1
            assert whole.instance.replaying
        assert slices == -(-len(records) // 64) or slices == len(records) // 48 + 1
        assert whole.number == actor.state.last_event
        whole.instance.discard()


def _instance(runtime, actor):
    from everact.actors.workflow_instance import WorkflowInstance

    return WorkflowInstance(actor.definition, runtime._shard.activities, runtime._shard.converter)


async def test_activities_go_on_while_a_run_is_loaded(journal):
    one = gate()

    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self) -> str:
            return await workflow.execute_activity("gated", "x", result_type=str)

    clock = ManualClock()
    async with hosted(journal, Long, Calls, activities=[step, one.fn], clock=clock) as runtime:
        calling = asyncio.create_task(runtime.execute(Calls))
        await until(lambda: one.calls)
        asking = asyncio.create_task(runtime.ref("long", Long).query(Long.seen))
        await begun(runtime)
        one.open.set()
        assert await calling == "through"
        assert await asking == TOTAL
