"""Runs that leave memory: their code ends at once, on the loop's thread, and nothing of what it tries happens (B10)."""

import asyncio
import gc
import sys
import threading

import pytest
from support.hosting import commands, hosted, kinds, settled, until

from everact import activity, workflow
from everact.actors.asyncio_discard import CLOSE_TRIES, REFUSALS
from everact.actors.event_loop import RunDiscarded
from everact.journal.memory_store import MemoryJournal

pytestmark = pytest.mark.usefixtures("keeps_code")


class Seen:
    """What the ``finally`` blocks of all runs have seen and tried."""

    def __init__(self):
        self.where = set()
        self.closed = 0
        self.tries = 0
        self.acted = []

    def here(self):
        loop = asyncio.get_running_loop()
        self.where.add((threading.get_ident(), loop.discarded))
        self.closed += 1
        return loop


seen = Seen()


@activity.defn
async def work(n: int) -> int:
    await asyncio.sleep(0)
    return n


@activity.defn
async def undo(n: int) -> int:
    seen.acted.append(n)  # everact: allow
    return n


def tries_of(n):
    """All that a ``finally`` block may want to do; each as a function that makes an awaitable or a value."""
    return [
        lambda: undo(n),
        lambda: workflow.start_activity(undo, n),
        lambda: workflow.sleep(1),
        lambda: asyncio.sleep(1),
        lambda: asyncio.create_task(nothing()),
        lambda: asyncio.gather(nothing(), nothing()),
        lambda: asyncio.wait_for(nothing(), 1),
        lambda: workflow.wait_condition(lambda: False),
        lambda: asyncio.Event().wait(),
        lambda: asyncio.get_running_loop().call_soon(print),
    ]


async def nothing():
    pass


async def attempt_all(n):
    for attempt in tries_of(n):
        coroutine = None
        try:
            coroutine = attempt()
            if asyncio.iscoroutine(coroutine) or asyncio.isfuture(coroutine):
                await coroutine
            seen.acted.append("went through")
        except (RunDiscarded, RuntimeError):  # asyncio.timeout() finds that it is in no task
            seen.tries += 1
        finally:
            if asyncio.iscoroutine(coroutine):
                coroutine.close()


class Base:
    def __init__(self) -> None:
        self.rounds = 0
        self.log: list[int] = []

    async def rest(self, n: int) -> None:
        await workflow.wait_condition(lambda: self.rounds > len(self.log))
        self.log.append(await work(n))


def make(kind):
    @workflow.defn(name=kind)
    class Evicted(Base):
        @workflow.run
        async def run(self, n: int, rounds: int) -> list[int]:
            while len(self.log) < rounds:
                await getattr(self, kind)(n)
            return self.log

        @workflow.signal
        def go(self) -> None:
            self.rounds += 1

        async def acts_in_finally(self, n: int) -> None:
            try:
                await self.rest(n)
            finally:
                if seen.here().discarded:
                    await attempt_all(n)

        async def catches_all(self, n: int) -> None:
            try:
                await self.rest(n)
            except BaseException:
                seen.here()
                await attempt_all(n)
                raise

        async def in_tasks(self, n: int) -> None:
            async def child() -> None:
                try:
                    await self.rest(n)
                finally:
                    if seen.here().discarded:
                        await attempt_all(n)

            async with asyncio.TaskGroup() as group:
                group.create_task(child())

        async def in_a_generator(self, n: int) -> None:
            async def waits():
                try:
                    await self.rest(n)
                    yield 1
                finally:
                    if seen.here().discarded:
                        seen.acted += [] if not tries_of(n) else []

            async for _ in waits():
                pass

        async def swallows(self, n: int) -> None:
            while True:
                try:
                    await self.rest(n)
                except BaseException:
                    seen.here()
                    seen.tries += 1
                else:
                    return

    return Evicted


KINDS = ["acts_in_finally", "catches_all", "in_tasks", "in_a_generator", "swallows"]


@pytest.mark.slow
async def test_a_thousand_evictions_under_load(caplog, monkeypatch):
    """Each run is dropped four times, amid the turns of others; each goes on from its journal as if it had stayed."""
    seen.__init__()
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    classes = [make(kind) for kind in KINDS]
    rounds, each = 4, 50
    async with hosted(MemoryJournal(), *classes, activities=[work, undo]) as runtime:
        handles = [
            await runtime.spawn(cls, n, rounds, id=f"{cls.__name__}-{kind}-{n}")
            for kind, cls in zip(KINDS, classes)
            for n in range(each)
        ]
        evicted = 0
        for number in range(rounds):
            await settled(runtime)
            sending = [asyncio.ensure_future(handle.signal("go")) for handle in handles]
            for count, handle in enumerate(handles):
                actor = runtime._shard.find(handle.workflow_id)
                if actor.instance is None:
                    await handle.describe()
                await until(lambda actor=actor: actor.instance is not None)
                actor.drop_instance()
                evicted += 1
                if count % 50 == 0:
                    gc.collect()
                    await asyncio.sleep(0)
            await asyncio.gather(*sending)
        results = await asyncio.gather(*(handle.result() for handle in handles))
        histories = [await handle.fetch_history() for handle in handles[:: each // 5]]
        refused = runtime._shard.detached
    assert evicted == 1000
    assert results == [[n] * rounds for _ in KINDS for n in range(each)]
    assert seen.acted == []
    assert {where for where in seen.where if where[1]} == {(threading.get_ident(), True)}
    assert {thread for thread, _ in seen.where} == {threading.get_ident()}
    for history in histories:
        assert [name for _, name in commands(history)] == ["work"] * rounds
        assert kinds(history).count("TimerStarted") == 0
    assert refused == {"swallows": rounds * each}
    said = [record.getMessage() for record in caplog.records if "refused to end" in record.getMessage()]
    assert len(said) == 1
    gc.collect()
    assert unraisable == []


@pytest.mark.parametrize("kind", KINDS)
async def test_one_eviction(kind, caplog):
    seen.__init__()
    cls = make(kind)
    async with hosted(MemoryJournal(), cls, activities=[work, undo]) as runtime:
        handle = await runtime.spawn(cls, 7, 1, id="a")
        await settled(runtime)
        before = kinds(await handle.fetch_history())
        runtime._shard.find("a").drop_instance()
        # A generator that waits inside an await of its own ends without a word before Python 3.13.
        assert seen.closed or kind == "in_a_generator"
        assert seen.where <= {(threading.get_ident(), True)}
        assert seen.tries == len(tries_of(7)) if kind in KINDS[:3] else seen.tries <= REFUSALS + CLOSE_TRIES
        assert kinds(await handle.fetch_history()) == before
        await handle.signal("go")
        assert await handle.result() == [7]
        assert seen.acted == []
        assert runtime._shard.detached == ({"swallows": 1} if kind == "swallows" else {})
    said = [record.getMessage() for record in caplog.records if "refused to end" in record.getMessage()]
    text = (
        "workflow 'a' (swallows) left memory, but 1 of its coroutines refused to end: they catch GeneratorExit "
        "in a loop. They are cut off, and may stay in memory. Let it pass: 'except Exception' does."
    )
    assert said == ([text] if kind == "swallows" else [])


async def test_generators_that_a_run_leaves_open_are_closed_in_its_last_turn():
    journal = MemoryJournal()
    log: list[str] = []

    @workflow.defn
    class Leaves:
        @workflow.run
        async def run(self) -> str:
            async for one in self.numbers():
                return f"{one}"
            return "none"

        async def numbers(self):
            try:
                yield 1
            finally:
                log.append("closing")
                workflow.logger.warning("closing")
                await undo(1)
                log.append("never")

    seen.__init__()
    async with hosted(journal, Leaves, activities=[undo]) as runtime:
        handle = await runtime.spawn(Leaves)
        assert await handle.result() == "1"
        history = await handle.fetch_history()
        await settled(runtime)
    assert log == ["closing"]
    assert kinds(history)[-2:] == ["ActivityScheduled", "WorkflowCompleted"]
    assert seen.acted == []  # the run is over: nobody waits for it
