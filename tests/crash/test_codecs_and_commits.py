"""A commit that fails while payloads of other runs are on their way through the codecs (R5)."""

import asyncio

import pytest
from support.codecs import Wrapping, holding
from support.hosting import hosted, kinds, until
from support.stores import TroubledStore

from everact import activity, workflow
from everact.exceptions import (
    CommitUnknownError,
    JournalAccessError,
    WorkflowClosedError,
    WorkflowTerminatedError,
)
from everact.journal.memory_store import MemoryJournal, MemoryStore

PLACES = pytest.mark.parametrize("place", ["before", "after"])

ran: list[str] = []


@activity.defn
async def work(word: str) -> str:
    ran.append(word)
    return f"{word} done"


@workflow.defn
class Keeper:
    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: "end" in self.words)
        return self.words

    @workflow.signal
    async def add(self, word: str) -> None:
        self.words.append(word)

    @workflow.update
    async def do(self, word: str) -> str:
        self.words.append(word)
        return await workflow.execute_activity(work, f"activity {word}")


@pytest.fixture(autouse=True)
def _nothing_has_run():
    ran.clear()


@pytest.fixture
def codec():
    return Wrapping()


@pytest.fixture
async def store():
    return TroubledStore(MemoryStore(MemoryJournal()))


@pytest.fixture
async def runtime(store, codec):
    async with hosted(store, Keeper, activities=[work], codecs=[codec]) as runtime:
        yield runtime


async def fail_a_commit(store, place, other):
    store.failures[:] = [place]
    with pytest.raises(CommitUnknownError):
        await other.signal(Keeper.add, "lost")
    assert store.failures == []


@PLACES
async def test_a_turn_at_the_codecs_is_done_again_once(runtime, store, codec, place):
    """Its outputs are being encoded: an activity that nobody must start yet."""
    kept = await runtime.spawn(Keeper, id="k")
    other = await runtime.spawn(Keeper, id="o")
    codec.holds = holding("activity slow")
    done = asyncio.create_task(kept.execute_update(Keeper.do, "slow"))
    await codec.at_work.wait()
    await fail_a_commit(store, place, other)
    assert not done.done() and ran == []
    codec.gate.set()
    assert await done == "activity slow done"
    assert ran == ["activity slow"]
    assert await kept.execute_update(Keeper.do, "next") == "activity next done"
    seen = kinds(await kept.fetch_history())
    assert seen.count("UpdateReceived") == seen.count("ActivityScheduled") == 2


@PLACES
async def test_mail_at_the_codecs_keeps_its_place(runtime, store, codec, place):
    kept = await runtime.spawn(Keeper, id="k")
    other = await runtime.spawn(Keeper, id="o")
    codec.holds = holding("first")
    words = ["first", "second", "end"]
    told = [asyncio.create_task(kept.signal(Keeper.add, word)) for word in words]
    await codec.at_work.wait()
    await fail_a_commit(store, place, other)
    codec.gate.set()
    assert await asyncio.gather(*told) == [None] * 3
    assert await kept.result() == words


@PLACES
async def test_a_result_at_the_codecs_is_not_asked_for_again(runtime, store, codec, place):
    kept = await runtime.spawn(Keeper, id="k")
    other = await runtime.spawn(Keeper, id="o")
    codec.holds = holding("slow done")
    done = asyncio.create_task(kept.execute_update(Keeper.do, "slow"))
    await codec.at_work.wait()
    await fail_a_commit(store, place, other)
    codec.gate.set()
    assert await done == "activity slow done"
    assert ran == ["activity slow"]


@workflow.defn
class Named:
    @workflow.run
    async def run(self, word: str) -> str:
        return word


@PLACES
async def test_a_start_at_the_codecs_is_told_that_nothing_is_known_and_a_repeat_starts_it(
    store, codec, place
):
    async with hosted(store, Keeper, Named, codecs=[codec]) as runtime:
        other = await runtime.spawn(Keeper, id="o")
        codec.holds = holding("slow")
        started = asyncio.create_task(runtime.spawn(Named, "slow", id="n", request_id="r"))
        await codec.at_work.wait()
        await fail_a_commit(store, place, other)
        with pytest.raises(CommitUnknownError):
            await started
        codec.gate.set()
        assert await (await runtime.spawn(Named, "slow", id="n", request_id="r")).result() == "slow"
        assert await runtime.count_workflows() == 2


@PLACES
async def test_history_at_the_codecs_is_read_again(runtime, store, codec, place):
    kept = await runtime.spawn(Keeper, id="k")
    other = await runtime.spawn(Keeper, id="o")
    await kept.signal(Keeper.add, "slow")
    runtime._shard.find("k").drop_instance()
    codec.holds = holding("slow", "decode")
    told = asyncio.create_task(kept.signal(Keeper.add, "end"))
    await codec.at_work.wait()
    await fail_a_commit(store, place, other)
    codec.gate.set()
    await told
    assert await kept.result() == ["slow", "end"]


async def test_a_run_at_the_codecs_is_replaced_at_once(runtime, codec):
    kept = await runtime.spawn(Keeper, id="k")
    codec.holds = holding("activity slow")
    done = asyncio.create_task(kept.execute_update(Keeper.do, "slow"))
    await codec.at_work.wait()
    new = await runtime.spawn(Keeper, id="k", if_running="replace")
    with pytest.raises(WorkflowTerminatedError, match="replaced by a new start"):
        await kept.result()
    codec.gate.set()
    with pytest.raises(WorkflowClosedError):
        await done
    assert ran == []
    await new.signal(Keeper.add, "end")
    assert await new.result() == ["end"]


async def test_callers_at_the_codecs_get_the_error_of_a_journal_that_cannot_be_opened_again(
    runtime, store, codec
):
    kept = await runtime.spawn(Keeper, id="k")
    other = await runtime.spawn(Keeper, id="o")
    codec.holds = holding("slow")
    told = asyncio.create_task(kept.signal(Keeper.add, "slow"))
    await codec.at_work.wait()
    store.reopen_errors = [JournalAccessError("no such device")]
    store.failures[:] = ["before"]
    with pytest.raises(CommitUnknownError):
        await other.signal(Keeper.add, "lost")
    with pytest.raises(JournalAccessError, match="cannot be opened just now; nothing was written"):
        await told
    codec.gate.set()
    await until(lambda: runtime._shard.outage.cause is None)
    await kept.signal(Keeper.add, "end")
    assert await kept.result() == ["end"]


@pytest.mark.parametrize("refused", [False, True])
async def test_a_replacing_start_comes_behind_the_one_that_it_replaces(codec, refused):
    """The first start is still at the codecs when the second one has passed them."""
    async with hosted(MemoryJournal(), Named, Keeper, codecs=[codec]) as runtime:
        codec.holds = holding("slow")
        codec.breaks = lambda payload, way: False
        first = asyncio.create_task(runtime.spawn(Named, "slow", id="n"))
        await codec.at_work.wait()
        second = asyncio.create_task(runtime.spawn(Named, "quick", id="n", if_running="replace"))
        other = await runtime.spawn(Keeper, id="other")
        await other.signal(Keeper.add, "end")
        assert await other.result() == ["end"]
        assert not second.done()
        if refused:
            runtime._shard.find("n").replaces.let_go(CommitUnknownError("gone"))
        codec.gate.set()
        if refused:
            with pytest.raises(CommitUnknownError):
                await first
        else:
            await (await first).describe()
        assert await (await second).result() == "quick"
        assert await runtime.count_workflows() == (2 if refused else 3)
