"""Messages between runs that come to runs in unusual states: not begun, in the middle of a chain, purged, damaged."""

import asyncio
import itertools
from contextlib import nullcontext, suppress

import pytest
from support.clock import ManualClock
from support.codecs import InThreads
from support.hosting import hosted, settled, tick, until

from everact import workflow
from everact.actors import courier as courier_module
from everact.exceptions import (
    ChildWorkflowError,
    CommitUnknownError,
    ExternalWorkflowError,
    JournalCorruptError,
    WorkflowClosedError,
)
from everact.journal import compaction
from everact.journal.fault_points import armed
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.outbox import put_aside
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
    what = "messages to workflow 'damaged' are put aside in the journal, it is damaged (`everact journal verify` names"
    assert sum(what in text for text in caplog.messages) == 1


async def test_messages_to_a_damaged_run_are_put_aside_and_arrive_in_order_once_it_is_mended():
    journal = MemoryJournal()
    async with hosted(journal, Patient) as runtime:
        await runtime.spawn(Patient, 0, 4, [], id="damaged")
        await moved(runtime)
    tables = (Table.RUNS, Table.OPEN, Table.HISTORIES)
    damage(journal, 1, *tables)
    async with hosted(journal, Patient, Talker) as runtime:
        talker = await runtime.spawn(Talker, ["one", "two"], id="first")
        await until(lambda: len(aside(runtime)) == 2)
        assert waiting(runtime) == []
        await talker.terminate()
        await settled(runtime)
        assert await runtime.purge(workflow_id="first") == 1  # what it has sent is safe without it
    async with hosted(journal, Patient, Talker) as runtime:  # still damaged
        await runtime.spawn(Talker, ["three"], id="second")
        await until(lambda: len(aside(runtime)) == 3)
        assert waiting(runtime) == []
        assert [message.sequence for message in aside(runtime)] == [1, 2, 3]
    damage(journal, 1, *tables)  # the same bytes again: mended
    async with hosted(journal, Patient, Talker) as runtime:
        assert await runtime.execute(Talker, ["four"], id="third") == 1
        assert await runtime.ref("damaged").result() == ["one", "two", "three", "four"]
        assert await runtime.ref("second").result() == 1
        await settled(runtime)
        assert (aside(runtime), waiting(runtime)) == ([], [])


async def test_messages_that_were_put_aside_arrive_while_the_runtime_is_open_when_the_run_can_be_read_again():
    journal = MemoryJournal()
    async with hosted(journal, Patient) as runtime:
        await runtime.spawn(Patient, 0, 2, [], id="damaged")
        await moved(runtime)
    async with hosted(journal, Patient, Talker) as runtime:
        shard = runtime._shard
        courier, find = shard.courier, shard.index.find
        shard.newest.clear()
        shard.actors.clear()

        def damaged(workflow_id, run_id=None):
            if workflow_id == "damaged":
                raise JournalCorruptError("a row")
            return find(workflow_id, run_id)

        shard.index.find = damaged
        talker = await runtime.spawn(Talker, ["one", "two"])
        await until(lambda: len(aside(runtime)) == 2)
        assert courier._timer is not None
        shard.index.find = find
        courier._cancel_timer()
        courier._try_again()
        assert await talker.result() == 2
        assert await runtime.ref("damaged").result() == ["one", "two"]
        await settled(runtime)
        assert (aside(runtime), waiting(runtime), courier._damaged) == ([], [], set())


@pytest.mark.parametrize("mended", [False, True], ids=["putting aside", "taking in"])
@pytest.mark.parametrize("point", ["outbox.apply.before", "outbox.written", "journal.commit.after"])
async def test_after_a_failed_commit_what_was_put_aside_arrives_once(point, mended):
    class Broken(Exception):
        pass

    tables = (Table.RUNS, Table.OPEN, Table.HISTORIES)
    has_failed = []
    for at in range(1, 7):
        passes = itertools.count(1)

        def fail(passes=passes, at=at):
            if next(passes) == at:
                has_failed.append(at)
                raise Broken

        journal = MemoryJournal()
        async with hosted(journal, Patient) as runtime:
            await runtime.spawn(Patient, 0, 3, [], id="damaged")
            await moved(runtime)
        damage(journal, 1, *tables)
        with nullcontext() if mended else armed(point, fail):
            async with hosted(journal, Patient, Talker) as runtime:
                for _ in range(2):  # once more, if the first one failed
                    with suppress(CommitUnknownError):
                        await runtime.spawn(Talker, ["one", "two"], id="talker", if_running="attach")
                await until(lambda: len(aside(runtime)) == 2 and not waiting(runtime))
        damage(journal, 1, *tables)
        with armed(point, fail) if mended else nullcontext():
            async with hosted(journal, Patient, Talker) as runtime:
                await until(lambda: not aside(runtime))
                while True:
                    with suppress(CommitUnknownError):
                        assert await runtime.ref("talker").result() == 2
                        break
                with suppress(CommitUnknownError):
                    await runtime.ref("damaged", Patient).signal(Patient.hear, "three", request_id="three")
                with suppress(CommitUnknownError, WorkflowClosedError):
                    await runtime.ref("damaged", Patient).signal(Patient.hear, "three", request_id="three")
                while True:
                    with suppress(CommitUnknownError):
                        assert await runtime.ref("damaged").result() == ["one", "two", "three"]
                        break
                await settled(runtime)
                assert (aside(runtime), waiting(runtime)) == ([], [])
    assert has_failed


async def test_news_for_an_ended_run_whose_history_is_damaged_holds_up_nothing():
    journal = MemoryJournal()
    async with hosted(journal, Patient, Parting) as runtime:
        await runtime.execute(Parting, id="parting")
        await moved(runtime)
    key = 1
    damage(journal, key, Table.HISTORIES)
    async with hosted(journal, Patient, Parting) as runtime:
        await runtime.ref("child", Patient).signal(Patient.hear, "go")
        assert await runtime.ref("child").result() == ["go"]
        await settled(runtime)
        assert (aside(runtime), waiting(runtime)) == ([], [])


def aside(runtime):
    with runtime._shard.store.view() as tables:
        return put_aside(tables)


def waiting(runtime):
    return runtime._shard.outbox.pending(0)


@workflow.defn
class Talker:
    @workflow.run
    async def run(self, words: list[str]) -> int:
        patient = workflow.get_external_workflow_handle("damaged", Patient)
        await asyncio.gather(*(patient.signal(Patient.hear, word) for word in words))
        return len(words)


@workflow.defn
class Parting:
    @workflow.run
    async def run(self) -> None:
        await workflow.start_child_workflow(Patient, 0, 1, [], id="child", parent_close_policy="abandon")


async def test_a_child_gets_the_id_of_an_ended_run_that_is_damaged():
    journal = MemoryJournal()
    async with hosted(journal, Patient) as runtime:
        await runtime.execute(Patient, 0, 0, [], id="damaged")
        await moved(runtime)
    damage(journal, 1, Table.HISTORIES)
    async with hosted(journal, Patient, Starter) as runtime:
        assert await runtime.execute(Starter, "damaged") == []
