"""Thousands of timers that fall due at once: each fires once, in order, and everybody else goes on meanwhile."""

import asyncio
import random

import pytest
from support.clock import SECOND, START, ManualClock
from support.hosting import hosted, kinds, settled, until

from everact import workflow
from everact.actors import run_timers, timers
from everact.actors.timers import SLICE, TimerQueue
from everact.journal.memory_store import MemoryJournal

N = 2_000

fired: list[int] = []


@workflow.defn
class Nap:
    @workflow.run
    async def run(self, n: int) -> None:
        await asyncio.sleep(60 + n / 1000)
        fired.append(n)  # everact: allow


@workflow.defn
class Naps:
    def __init__(self) -> None:
        self.fired: list[int] = []

    async def nap(self, n: int) -> None:
        await asyncio.sleep(60 + n / 1000)
        self.fired.append(n)

    @workflow.run
    async def run(self, numbers: list[int]) -> list[int]:
        await asyncio.gather(*map(self.nap, numbers))
        return self.fired

    @workflow.query
    def count(self) -> int:
        return len(self.fired)


@workflow.defn
class Other:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.update
    def ask(self) -> int:
        return len(fired)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """The queue looks at the clock all the time; nobody has fired yet."""
    monkeypatch.setattr(timers, "RECHECK", 0.001)
    fired.clear()


def shuffled():
    numbers = list(range(N))
    random.Random(3).shuffle(numbers)
    return numbers


@pytest.mark.usefixtures("keeps_code")
async def test_timers_of_many_runs_fire_once_in_order_of_deadline_and_messages_find_their_way_between_them():
    clock = ManualClock()
    async with hosted(MemoryJournal(), Nap, Other, clock=clock) as runtime:
        other = await runtime.spawn(Other.run)
        handles = [await runtime.spawn(Nap.run, n) for n in shuffled()]
        clock.advance(3600)
        await until(lambda: fired)
        seen = await other.ask(Other.ask)
        assert 0 < seen < N / 2, "the message was answered behind the timers of all other runs"
        await asyncio.gather(*(handle.result() for handle in handles))
        assert fired == list(range(N))
        clock.advance(3600)
        runtime._shard.timers.check()
        assert len(fired) == N
        for handle in handles[:20]:
            assert kinds(await handle.fetch_history()).count("TimerFired") == 1


@pytest.mark.usefixtures("keeps_code")
async def test_timers_of_one_run_fire_once_in_order_of_deadline_and_others_go_on(monkeypatch):
    clock = ManualClock()
    sent = []
    fire = run_timers._due

    def fire_and_ask(actor, command):
        """The messages are sent while the first timer falls due, however long everything takes."""
        if not sent:
            sent.append(asyncio.create_task(other.ask(Other.ask)))
            sent.append(asyncio.create_task(handle.query(Naps.count)))
        fire(actor, command)

    monkeypatch.setattr(run_timers, "_due", fire_and_ask)
    async with hosted(MemoryJournal(), Naps, Other, clock=clock) as runtime:
        other = await runtime.spawn(Other.run)
        handle = await runtime.spawn(Naps.run, shuffled(), id="naps")
        await settled(runtime)
        clock.advance(3600)
        await until(lambda: sent)
        await sent[0]
        assert await sent[1] < N / 2, "the query was answered behind all timers of the run"
        assert await handle.result() == list(range(N))
        assert kinds(await handle.fetch_history()).count("TimerFired") == N


@pytest.mark.usefixtures("keeps_code")
async def test_a_start_that_finds_thousands_overdue_answers_before_they_have_all_fired():
    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Nap, Other, clock=clock) as runtime:
        await runtime.spawn(Other.run, id="other")
        for n in shuffled():
            await runtime.spawn(Nap.run, n, id=f"nap {n}")
    clock.advance(3600)
    async with hosted(journal, Nap, Other, clock=clock) as runtime:
        assert await runtime.ref("other", Other).ask(Other.ask) < N / 2
        await until(lambda: len(fired) == N)
        assert fired == list(range(N))


@pytest.mark.usefixtures("keeps_code")
async def test_what_loses_its_purpose_is_looked_at_a_bounded_number_of_times(monkeypatch):
    """Timeouts that were not needed: the queue must not go through all of them for each that goes."""
    looks = 0
    is_alive = run_timers._is_alive

    def look(actor, command):
        nonlocal looks
        looks += 1
        return is_alive(actor, command)

    monkeypatch.setattr(run_timers, "_is_alive", look)

    @workflow.defn
    class W:
        @workflow.run
        async def run(self, n: int) -> None:
            events = [asyncio.Event() for _ in range(n)]

            async def wait(i: int) -> None:
                async with asyncio.timeout(1000):
                    await events[i].wait()

            async with asyncio.TaskGroup() as group:
                for i in range(n):
                    group.create_task(wait(i))
                await asyncio.sleep(1)
                for i in range(n):
                    events[i].set()
                    await asyncio.sleep(0)

    clock = ManualClock()
    async with hosted(MemoryJournal(), W, clock=clock) as runtime:
        handle = await runtime.spawn(W.run, 4 * N)
        clock.advance(2)
        await handle.result()
        assert looks <= 3 * 4 * N
        assert len(runtime._shard.timers._heap) < N


class TestTheQueue:
    async def test_a_few_fall_due_before_the_loop_goes_on_and_none_while_their_runs_wait(self):
        clock = ManualClock()
        queue = TimerQueue(asyncio.get_running_loop(), clock, lambda: is_crowded)
        is_crowded = False
        found: list[int] = []
        for n in range(5 * SLICE):
            queue.add(START + SECOND + n, lambda _owner, n: found.append(n), lambda _o, _n: True, None, n)
        clock.advance(10)
        queue._wake()
        assert found == list(range(SLICE))
        is_crowded = True
        for _ in range(5):
            queue._wake()
        assert len(found) == SLICE
        is_crowded = False
        await until(lambda: len(found) == 5 * SLICE)
        assert found == list(range(5 * SLICE))
        queue.close()

    async def test_a_sweep_that_something_due_asks_for_lets_nothing_fall_due_twice(self):
        clock = ManualClock()
        queue = TimerQueue(asyncio.get_running_loop(), clock)
        found: list[int] = []

        def due(_owner, n):
            found.append(n)
            queue.sweep()

        for n in range(10):
            queue.add(START + n, due, lambda _o, _n: True, None, n)
        clock.advance(1)
        queue.check()
        assert found == list(range(10))
        queue.close()
