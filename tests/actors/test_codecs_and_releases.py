"""A release of a run that the payload codecs have stopped: no failure from before it is applied behind it."""

import asyncio

import pytest
from support.codecs import Wrapping
from support.hosting import hosted, kinds, settled, until
from support.stores import TroubledStore, turns

from everact import workflow
from everact.activity import defn
from everact.actors.actor_coding import ActorCoding
from everact.exceptions import WorkflowHeldError
from everact.journal import events as ev
from everact.journal.memory_store import MemoryJournal, MemoryStore

LIMIT = 10


class Slow(Wrapping):
    """What it is to break is decided when it begins, and happens when the gate opens."""

    async def _look(self, payloads, way):
        broken = self.breaks
        if any(self.holds(payload, way) for payload in payloads):
            self.at_work.set()
            await self.gate.wait()
        for payload in payloads:
            if broken(payload, way):
                raise OSError(f"cannot {way} {payload.data!r}")


def on(way, *words):
    """For ``holds`` and ``breaks``: these values as a whole."""
    return lambda payload, going: going == way and payload.data in [f'"{word}"'.encode() for word in words]


def nothing(payload, way):
    return False


ran: list[str] = []
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def nothing_has_run():
    ran.clear()
    gates.clear()


@defn
async def say(word: str) -> str:
    if word in gates:
        await gates[word].wait()
    ran.append(word)
    return f"{word} said"


@workflow.defn
class Two:
    @workflow.run
    async def run(self) -> list[str]:
        return await asyncio.gather(say("one"), say("two"))


@workflow.defn
class OneByOne:
    @workflow.run
    async def run(self) -> list[str]:
        return [await say("one"), await say("two")]


async def held(handle, text):
    with pytest.raises(WorkflowHeldError, match=text):
        await handle.result(timeout=LIMIT)


async def stalls(handle):
    return kinds(await handle.fetch_history()).count("RunStalled")


async def test_what_is_scheduled_behind_a_release_is_not_started_before_that_is_durable():
    """Under load the turn behind a release has been executed when the release comes onto the disk."""
    codec = Wrapping()
    codec.breaks = on("encode", "one said")
    store = TroubledStore(MemoryStore(MemoryJournal()))
    async with hosted(store, OneByOne, activities=[say], codecs=[codec]) as runtime:
        handle = await runtime.spawn(OneByOne, id="w")
        await held(handle, "result of activity say")
        await settled(runtime)
        codec.breaks = on("decode", "two")
        store.hold()
        release = asyncio.ensure_future(handle.release("the codec is back"))
        await store.held()
        actor = runtime._shard.find("w")
        await until(lambda: 2 in actor.state.activities)  # the turn behind it
        store.release()
        store.hold()  # the next commit
        await release
        await store.held()
        await turns()
        assert not actor.attempts, "the journal does not know of it yet"
        assert actor.state.stall is None
        store.release()
        await held(handle, "argument 'word' of activity say")
        await settled(runtime)
        codec.breaks = nothing
        await handle.release("and so is its other half")
        assert await handle.result(timeout=LIMIT) == ["one said", "two said"]
        assert await stalls(handle) == 2
    assert ran == ["one", "two"]


async def test_nothing_else_is_started_before_it_is_durable_either():
    is_fixed = False

    @workflow.defn
    class Buggy:
        def __init__(self) -> None:
            self.words: list[str] = []

        @workflow.signal
        def add(self, word: str) -> None:
            self.words.append(word)

        @workflow.run
        async def run(self) -> str:
            if not is_fixed:
                raise ZeroDivisionError
            await workflow.wait_condition(lambda: self.words)
            return await say(self.words[0])

    store = TroubledStore(MemoryStore(MemoryJournal()))
    async with hosted(store, Buggy, activities=[say]) as runtime:
        handle = await runtime.spawn(Buggy, id="w")
        with pytest.raises(Exception, match="ZeroDivisionError"):
            await handle.result(timeout=LIMIT)
        is_fixed = True
        store.hold()
        release = asyncio.ensure_future(handle.release("fixed"))
        await store.held()
        signal = asyncio.ensure_future(handle.signal("add", "one"))
        actor = runtime._shard.find("w")
        await until(lambda: actor.state.activities)
        store.release()
        store.hold()
        await release
        await store.held()
        await turns()
        assert (ran, actor.attempts) == ([], {})
        store.release()
        await signal
        assert await handle.result(timeout=LIMIT) == "one said"


async def test_a_failure_that_waits_in_the_mailbox_is_over_when_the_run_is_released(monkeypatch):
    codec = Slow()
    codec.breaks = on("encode", "one said", "two said")
    codec.holds = on("encode", "two said")
    gates["two"] = asyncio.Event()
    async with hosted(MemoryJournal(), Two, activities=[say], codecs=[codec]) as runtime:
        handle = await runtime.spawn(Two, id="w")
        await held(handle, "result of activity say")
        gates["two"].set()
        await codec.at_work.wait()
        codec.breaks = nothing
        released = asyncio.get_running_loop().create_future()
        refused = ActorCoding._refused

        def then_release(coding, incoming, error):
            goes_on = refused(coding, incoming, error)
            coding._actor.put_first(ev.RunReleased("just now"), released)
            return goes_on

        monkeypatch.setattr(ActorCoding, "_refused", then_release)
        codec.gate.set()
        await released
        assert await handle.result(timeout=LIMIT) == ["one said", "two said"]
        assert await stalls(handle) == 1
    assert sorted(ran) == ["one", "two"]


@pytest.mark.parametrize(("way", "words"), [("encode", ("one said", "two said")), ("decode", ("one", "two"))])
async def test_what_the_codecs_began_before_the_release_and_fail_at_behind_it_is_tried_again(way, words):
    codec = Slow()
    codec.breaks = on(way, *words)
    codec.holds = on(way, words[1])
    if way == "encode":
        gates["two"] = asyncio.Event()
    async with hosted(MemoryJournal(), Two, activities=[say], codecs=[codec]) as runtime:
        handle = await runtime.spawn(Two, id="w")
        await held(handle, "activity say")
        if way == "encode":
            gates["two"].set()
        await codec.at_work.wait()
        codec.breaks = nothing
        await handle.release("the codec is back")
        if way == "decode":
            await until(lambda: "one" in ran)
        codec.gate.set()
        assert await handle.result(timeout=LIMIT) == ["one said", "two said"]
        assert await stalls(handle) == 1
    assert sorted(ran) == ["one", "two"], "each was paid for once"


async def test_what_fails_again_holds_the_run_again():
    codec = Slow()
    codec.breaks = on("encode", "one said", "two said")
    codec.holds = on("encode", "two said")
    gates["two"] = asyncio.Event()
    async with hosted(MemoryJournal(), Two, activities=[say], codecs=[codec]) as runtime:
        handle = await runtime.spawn(Two, id="w")
        await held(handle, "result of activity say")
        gates["two"].set()
        await codec.at_work.wait()
        codec.breaks = on("encode", "two said")
        await handle.release("one half of it is back")
        codec.gate.set()
        await held(handle, "result of activity say")
        await settled(runtime)
        codec.breaks = nothing
        await handle.release("now all of it")
        assert await handle.result(timeout=LIMIT) == ["one said", "two said"]
        assert await stalls(handle) == 2
    assert sorted(ran) == ["one", "two"]
