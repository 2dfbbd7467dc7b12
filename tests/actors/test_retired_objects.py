"""Mail that comes to an object of a run which a rebuild has made anew, or which has left memory, reaches the run."""

import asyncio

import pytest
from support.hosting import hosted, settled

from everact import workflow
from everact.actors.mailbox import Inspection, Query, UpdateReply
from everact.actors.recovery import rebuild
from everact.exceptions import RuntimeClosedError, WorkflowNotFoundError, WorkflowTerminatedError
from everact.journal import events as ev
from everact.journal.memory_store import MemoryJournal
from everact.journal.payloads import PayloadConverter

LIMIT = 10
CONVERTER = PayloadConverter()


@workflow.defn
class Counter:
    def __init__(self) -> None:
        self.seen: list[int] = []

    @workflow.run
    async def run(self) -> list[int]:
        await workflow.wait_condition(lambda: 0 in self.seen)
        return self.seen

    @workflow.signal
    def add(self, n: int) -> None:
        self.seen.append(n)

    @workflow.update
    def push(self, n: int) -> int:
        self.seen.append(n)
        return len(self.seen)

    @workflow.query
    def sum(self) -> int:
        return sum(self.seen)


def made_anew(runtime, actor):
    """A failed commit: every run is made anew from the journal."""
    runtime._shard.writer.error = OSError("the disk is on fire")
    for _ in rebuild(runtime._shard):
        pass


def made_anew_before_its_turn(runtime, actor):
    """The same, when the object has been given a turn that it will never have."""
    runtime._shard.enqueue(actor)
    made_anew(runtime, actor)


def out_of_memory(runtime, actor):
    """It waits for nothing here, and others need the room."""
    actor.drop_instance()
    assert runtime._shard.passivation._leave(actor)


WAYS = pytest.mark.parametrize("retire", [made_anew, made_anew_before_its_turn, out_of_memory])


async def retired(runtime, retire):
    """A run, and an object of it that is no longer the run."""
    handle = await runtime.spawn(Counter, id="c")
    await handle.signal(Counter.add, 1)
    await settled(runtime)
    actor = runtime._shard.find("c")
    retire(runtime, actor)
    assert runtime._shard.actors.get(actor.key) is not actor
    return handle, actor


async def answer(actor, event, put="put", reply=None):
    reply = reply or asyncio.get_running_loop().create_future()
    getattr(actor, put)(event, reply)
    async with asyncio.timeout(LIMIT):
        return await reply


@WAYS
async def test_messages_and_questions_are_handled_by_the_run_as_it_is_now(retire):
    async with hosted(MemoryJournal(), Counter) as runtime:
        handle, old = await retired(runtime, retire)
        await answer(old, ev.SignalReceived("add", (CONVERTER.encode(2),)))
        update = ev.UpdateReceived("push", (CONVERTER.encode(3),))
        done = await answer(old, update, reply=UpdateReply(asyncio.get_running_loop()))
        assert CONVERTER.decode(done.result) == 3
        assert CONVERTER.decode(await answer(old, Query("sum", ()))) == 6
        seen = await answer(old, Inspection(lambda state: state.last_event))
        assert seen == (await handle.describe()).history_length
        old.put(ev.SignalReceived("add", (CONVERTER.encode(0),)))  # nobody waits for this one
        async with asyncio.timeout(LIMIT):
            assert await handle.result() == [1, 2, 3, 0]
        assert not old.mailbox
        assert old.instance is None, "an object that is not the run never has a turn"


@WAYS
async def test_what_acts_at_receipt_does(retire):
    async with hosted(MemoryJournal(), Counter) as runtime:
        handle, old = await retired(runtime, retire)
        await answer(old, ev.RunPaused("a look"), "put_first")
        assert (await handle.describe()).status == "paused"
        await answer(old, ev.WorkflowTerminated("enough"), "put_first")
        with pytest.raises(WorkflowTerminatedError):
            await handle.result()
        assert await answer(old, Inspection(lambda state: state.status)) == "terminated"


@WAYS
async def test_a_retired_object_is_given_no_turn(retire):
    async with hosted(MemoryJournal(), Counter) as runtime:
        _, old = await retired(runtime, retire)
        old.queued = False
        runtime._shard.enqueue(old)
        assert not old.queued
        assert old not in runtime._shard._ready


async def test_of_a_start_that_was_lost_the_caller_hears_that_there_is_no_such_run():
    async with hosted(MemoryJournal(), Counter) as runtime:
        start = asyncio.ensure_future(runtime.spawn(Counter, id="lost"))
        await asyncio.sleep(0)
        lost = runtime._shard.find("lost")
        made_anew(runtime, lost)
        await asyncio.gather(start, return_exceptions=True)
        await runtime.spawn(Counter, id="lost")  # another run, perhaps under the same number
        with pytest.raises(WorkflowNotFoundError):
            await answer(lost, Inspection(lambda state: state.last_event))
        lost.put(ev.SignalReceived("add", (CONVERTER.encode(0),)))
        await settled(runtime)
        assert await runtime.ref("lost", Counter).query(Counter.sum) == 0
        assert (await runtime.ref("lost").describe()).status == "running"


@WAYS
async def test_a_shard_that_has_stopped_says_so(retire):
    async with hosted(MemoryJournal(), Counter) as runtime:
        _, old = await retired(runtime, retire)
    for put in ("put", "put_first"):
        with pytest.raises(RuntimeClosedError):
            await answer(old, ev.RunPaused("too late"), put)
