"""Messages between runs that come to runs in unusual states: not begun, in the middle of a chain, purged, damaged."""

import asyncio

import pytest
from support.clock import ManualClock
from support.codecs import InThreads
from support.hosting import hosted, settled, tick, until

from everact import workflow
from everact.actors import courier as courier_module
from everact.exceptions import ChildWorkflowError, ExternalWorkflowError
from everact.journal import compaction
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.tables import NUMBER, Table


@pytest.fixture(autouse=True)
def one_segment(monkeypatch):
    monkeypatch.setattr(compaction, "WINDOW", 1000)


LATER = {"delay": {"start_delay": 1000}, "schedule": {"cron_schedule": "0 6 * * *"}}


@workflow.defn
class Patient:
    """Continues as new ``left`` times at once, then waits for ``count`` words."""

    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self, left: int, count: int, words: list[str]) -> list[str]:
        self.words = words + self.words
        if left:
            workflow.continue_as_new(left - 1, count, self.words)
        await workflow.wait_condition(lambda: len(self.words) >= count)
        return self.words

    @workflow.signal
    def hear(self, word: str) -> None:
        self.words.append(word)


@workflow.defn
class Parent:
    @workflow.run
    async def run(self, option: str, asks: bool) -> str:
        child = await workflow.start_child_workflow(
            Patient, 0, 1, [], id="child", parent_close_policy="request_cancel", **LATER[option]
        )
        await workflow.sleep(5)
        if not asks:
            return "left"
        child.cancel("enough")
        try:
            await child
        except ChildWorkflowError as error:
            return error.status
        return "?"


@workflow.defn
class Canceller:
    @workflow.run
    async def run(self, workflow_id: str, run_id: str) -> str:
        try:
            await workflow.get_external_workflow_handle(workflow_id, run_id=run_id or None).cancel()
        except ExternalWorkflowError as error:
            return type(error.__cause__).__name__
        return "delivered"


def parent_of(runtime, handle):
    return runtime._shard.find(handle.workflow_id)


@pytest.mark.parametrize("codecs", [[], [InThreads]], ids=["plain", "codecs"])
@pytest.mark.parametrize("asks", [True, False], ids=["cancel", "close-policy"])
@pytest.mark.parametrize("option", LATER)
async def test_a_child_that_has_yet_to_begin_is_cancelled_at_once(option, asks, codecs):
    clock = ManualClock()
    made = [codec() for codec in codecs]
    async with hosted(MemoryJournal(), Parent, Patient, clock=clock, codecs=made) as runtime:
        parent = await runtime.spawn(Parent, option, asks)
        await until(lambda: parent_of(runtime, parent).state.timers)
        await tick(runtime, clock, 6)
        assert await parent.result() == ("cancelled" if asks else "left")
        await settled(runtime)
        assert (await runtime.ref("child").describe()).status == "cancelled"


async def test_another_run_that_has_yet_to_begin_is_cancelled_at_once():
    async with hosted(MemoryJournal(), Canceller, Patient, clock=ManualClock()) as runtime:
        late = await runtime.spawn(Patient, 0, 1, [], id="late", start_delay=1000)
        assert await runtime.execute(Canceller, "late", late.run_id) == "delivered"
        assert (await late.describe()).status == "cancelled"


async def test_a_message_to_a_chain_arrives_when_its_first_run_is_purged():
    async with hosted(MemoryJournal(), Canceller, Patient) as runtime:
        patient = await runtime.spawn(Patient, 2, 1, [], id="patient")
        await settled(runtime)
        assert await runtime.purge(workflow_id="patient", older_than=0) == 2
        assert await runtime.execute(Canceller, "patient", patient.run_id) == "delivered"
        assert (await runtime.ref("patient").describe()).cancel_requested


@workflow.defn
class Speaker:
    def __init__(self) -> None:
        self.is_to_go_on = False

    @workflow.run
    async def run(self) -> None:
        patient = workflow.get_external_workflow_handle("patient", Patient)
        first = asyncio.create_task(patient.signal(Patient.hear, "one"))
        await workflow.wait_condition(lambda: self.is_to_go_on)
        await patient.signal(Patient.hear, "two")
        await first

    @workflow.signal
    def go_on(self) -> None:
        self.is_to_go_on = True


async def test_messages_keep_their_order_when_the_run_that_holds_one_up_continues_as_new(monkeypatch):
    monkeypatch.setattr(courier_module, "PAUSE", 0.2)
    async with hosted(MemoryJournal(), Speaker, Patient) as runtime:
        courier = runtime._shard.courier
        courier._is_blocked = True
        speaker = await runtime.spawn(Speaker)
        await until(lambda: courier._waiting)
        starting = asyncio.ensure_future(runtime.spawn(Patient, 1, 2, [], id="patient"))
        await asyncio.sleep(0)
        courier._is_blocked = False
        await starting
        assert courier._kept
        await speaker.signal(Speaker.go_on)
        await speaker.result()
        assert await runtime.ref("patient").result() == ["one", "two"]


@workflow.defn
class Starter:
    @workflow.run
    async def run(self, workflow_id: str) -> list[str]:
        return await workflow.execute_child_workflow(Patient, 0, 0, [], id=workflow_id)


async def moved(runtime):
    """Move all that the log holds into the tables."""
    shard = runtime._shard
    await settled(runtime)
    shard.compactor.hurry()
    shard.housekeeping.wake()
    await until(lambda: not any(map(len, shard.index.rows.values())))


def damage(journal, run_key, *tables):
    store = MemoryStore(journal)

    def change(changes):
        for table in tables:
            key, value = changes.last(table, NUMBER.pack(run_key), NUMBER.pack(run_key + 1))
            changes.put(table, [(key, value[:-1] + bytes([value[-1] ^ 0xFF]))])

    store.append(store.position, [], change)


async def test_a_damaged_run_holds_up_no_messages_but_its_own(caplog):
    journal = MemoryJournal()
    async with hosted(journal, Patient) as runtime:
        await runtime.spawn(Patient, 0, 1, [], id="damaged")
        await runtime.spawn(Patient, 0, 1, [], id="whole")
        await moved(runtime)
    damage(journal, 1, Table.RUNS, Table.OPEN, Table.HISTORIES)
    async with hosted(journal, Patient, Canceller, Starter) as runtime:
        waits = [await runtime.spawn(kind, "damaged", *more) for kind, *more in ((Canceller, ""), (Starter,))]
        await until(lambda: runtime._shard.courier._kept)
        assert await runtime.execute(Canceller, "whole", "") == "delivered"
        seen = [await one.describe() for one in waits]
        assert [one.status for one in seen] == ["running"] * 2
        assert [child.status for one in seen for child in one.children] == ["damaged"]
        assert len(runtime._shard.courier._kept["damaged"]) == 2
        runtime._shard.courier._try_again()
        assert await runtime.execute(Canceller, "nobody", "") == "WorkflowNotFoundError"
    assert sum("messages to workflow 'damaged' wait, it is damaged" in text for text in caplog.messages) == 1


async def test_a_child_gets_the_id_of_an_ended_run_that_is_damaged():
    journal = MemoryJournal()
    async with hosted(journal, Patient) as runtime:
        await runtime.execute(Patient, 0, 0, [], id="damaged")
        await moved(runtime)
    damage(journal, 1, Table.HISTORIES)
    async with hosted(journal, Patient, Starter) as runtime:
        assert await runtime.execute(Starter, "damaged") == []
