"""R11: deadlines are wall-clock times that were recorded; waiting is on the steady clock; time never goes back."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from support.clock import SECOND, START, ManualClock
from support.hosting import gate, hosted, kinds, tick, until

from everact import workflow
from everact.actors.timers import RECHECK, TimerQueue
from everact.exceptions import WorkflowFailedError
from everact.journal.memory_store import MemoryJournal

HOUR = 3600


@workflow.defn
class Nap:
    @workflow.run
    async def run(self, seconds: float) -> list[float]:
        before = workflow.time()
        await workflow.sleep(seconds)
        return [before, workflow.time()]


async def test_hundred_timers_through_a_set_back_and_a_jump_fire_once_in_due_order(tmp_journal):
    """G01: 100 timers of about an hour; the wall clock is set back 2 h, then forward 3 h; a restart in between."""
    clock = ManualClock()
    fired = []

    @workflow.defn
    class W:
        @workflow.run
        async def run(self, n: int) -> int:
            await workflow.sleep(HOUR + n)
            fired.append(n)
            return n

    numbers = [(n * 37) % 100 for n in range(100)]
    async with hosted(str(tmp_journal), W, clock=clock) as runtime:
        for n in numbers:
            await runtime.spawn(W.run, n, id=str(n))
        clock.set_back(2 * HOUR)
        await tick(runtime, clock, HOUR + 200)
        assert fired == [], "a timer fired before the wall time that it has recorded"
    async with hosted(str(tmp_journal), W, clock=clock) as runtime:
        await tick(runtime, clock, 10)
        assert fired == []
        clock.set_back(-3 * HOUR)
        await tick(runtime, clock, 0)
        await asyncio.gather(*(runtime.ref(str(n), W).result() for n in numbers))
        assert fired == list(range(100))
        await tick(runtime, clock, 10 * HOUR)
        assert len(fired) == 100
        history = await runtime.ref("5", W).fetch_history()
    assert kinds(history).count("TimerFired") == 1


async def test_a_sleep_that_begins_after_the_clock_was_set_back_lasts_as_long_as_it_says():
    clock = ManualClock()

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.go = False
            self.seen: list[float] = []

        @workflow.run
        async def run(self) -> list[float]:
            self.seen.append(workflow.time())
            await workflow.wait_condition(lambda: self.go)
            self.seen.append(workflow.time())
            await workflow.sleep(1)
            self.seen.append(workflow.time())
            return self.seen

        @workflow.signal
        def proceed(self) -> None:
            self.go = True

    async with hosted(MemoryJournal(), W, clock=clock) as runtime:
        handle = await runtime.spawn(W.run)
        clock.set_back(2 * HOUR)
        await handle.signal(W.proceed)
        (deadline,) = (await handle.describe()).timers
        assert deadline == datetime.fromtimestamp(START / SECOND - 2 * HOUR + 1, UTC)
        await tick(runtime, clock, 0.99)
        assert (await handle.describe()).status == "running"
        await tick(runtime, clock, 0.02)
        seen = await handle.result()
    assert seen == sorted(seen), "now() went back"
    assert seen[0] == seen[1] == seen[2] == START / SECOND


async def test_now_is_the_time_of_the_event_and_never_goes_back():
    clock = ManualClock()

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.seen: list[datetime] = []

        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.signal
        def note(self) -> None:
            self.seen += [workflow.now(), workflow.now()]

        @workflow.query
        def look(self) -> list[datetime]:
            return self.seen

    journal = MemoryJournal()
    async with hosted(journal, W, clock=clock) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        for move in (10, -HOUR, 5, 2 * HOUR, -1):
            clock.set_back(-move)
            await handle.signal(W.note)
        live = await handle.query(W.look)
    start = datetime.fromtimestamp(START / SECOND, UTC)
    later = timedelta(seconds=10 - HOUR + 5 + 2 * HOUR)
    assert live == [start + timedelta(seconds=10)] * 6 + [start + later] * 4
    assert all(moment.tzinfo is UTC for moment in live)
    async with hosted(journal, W, clock=clock) as runtime:
        assert await runtime.ref("a", W).query(W.look) == live


@pytest.mark.parametrize("restarts", [0, 3])
async def test_the_limit_of_a_wait_counts_from_its_first_call_however_often_the_host_restarts(restarts):
    """G03: 60 s, a restart every 20 s."""
    clock = ManualClock()

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False, timeout=timedelta(seconds=60))

    journal = MemoryJournal()
    async with hosted(journal, W, clock=clock) as runtime:
        await runtime.spawn(W.run, id="a")
    for _ in range(restarts):
        async with hosted(journal, W, clock=clock) as runtime:
            handle = runtime.ref("a", W)
            await tick(runtime, clock, 19.9)
            assert (await handle.describe()).status == "running"
            assert (await handle.describe()).timers == (datetime.fromtimestamp(START / SECOND + 60, UTC),)
    async with hosted(journal, W, clock=clock) as runtime:
        handle = runtime.ref("a", W)
        await tick(runtime, clock, 60 - 19.9 * restarts - 0.01)
        assert (await handle.describe()).status == "running"
        await tick(runtime, clock, 0.02)
        with pytest.raises(WorkflowFailedError, match="did not hold within"):
            await handle.result()
        assert kinds(await handle.fetch_history()).count("TimerStarted") == 1


async def test_a_timer_that_came_due_while_nobody_was_there_fires_at_the_start():
    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Nap, clock=clock) as runtime:
        await runtime.spawn(Nap.run, 100.0, id="a")
    clock.advance(5000)
    async with hosted(journal, Nap, clock=clock) as runtime:
        before, after = await runtime.ref("a", Nap).result()
    assert after - before == 5000


@pytest.mark.parametrize("how", ["wait", "timeout", "condition"])
async def test_a_timer_that_lost_its_race_holds_nothing_open(how):
    """G05"""
    clock = ManualClock()
    quick = gate("quick")

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            task = asyncio.ensure_future(workflow.execute_activity(quick.fn, "x"))
            match how:
                case "wait":
                    nap = asyncio.ensure_future(workflow.sleep(300))
                    await asyncio.wait([task, nap], return_when=asyncio.FIRST_COMPLETED)
                case "timeout":
                    async with asyncio.timeout(300):
                        await task
                case "condition":
                    await workflow.wait_condition(task.done, timeout=300)
            return await task

    async with hosted(MemoryJournal(), W, activities=[quick.fn], clock=clock) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: quick.calls)
        clock.advance(1)
        quick.open.set()
        assert await handle.result() == "through"
        assert (await handle.describe()).timers == ()
        await tick(runtime, clock, 400)
        assert not runtime._shard.actors
        assert "TimerFired" not in kinds(await handle.fetch_history())


async def test_sleep_until_waits_for_the_moment_and_not_for_one_that_has_passed():
    clock = ManualClock()

    @workflow.defn
    class W:
        @workflow.run
        async def run(self, moment: datetime) -> float:
            await workflow.sleep_until(moment)
            return workflow.time()

    start = datetime.fromtimestamp(START / SECOND, UTC)
    async with hosted(MemoryJournal(), W, clock=clock) as runtime:
        assert await runtime.execute(W.run, start - timedelta(days=1)) == START / SECOND
        handle = await runtime.spawn(W.run, start + timedelta(hours=1))
        await tick(runtime, clock, HOUR - 1)
        assert (await handle.describe()).status == "running"
        await tick(runtime, clock, 1)
        assert await handle.result() == START / SECOND + HOUR


async def test_a_sleep_of_nothing_makes_no_timer():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await workflow.sleep(0)
            await asyncio.sleep(0)
            await asyncio.sleep(-1)

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        await handle.result()
        assert kinds(await handle.fetch_history()) == ["WorkflowStarted", "WorkflowCompleted"]


@pytest.mark.parametrize("seconds", [1e11, 1e15, 1e300])
@pytest.mark.parametrize("spelling", ["asyncio", "workflow", "timeout"])
async def test_a_wait_of_more_than_a_century_is_refused_at_the_call(seconds, spelling):
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            with pytest.raises(ValueError, match="century|100 years"):
                match spelling:
                    case "asyncio":
                        await asyncio.sleep(seconds)
                    case "workflow":
                        await workflow.sleep(seconds)
                    case "timeout":
                        async with asyncio.timeout(seconds):
                            await workflow.wait_condition(lambda: False)
            return "refused"

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        assert await handle.result(timeout=5) == "refused"


class TestTheQueueOfTimers:
    """Driven without a runtime."""

    def queue(self, clock):
        return TimerQueue(asyncio.get_running_loop(), clock)

    async def test_equal_deadlines_fire_in_the_order_in_which_they_were_added(self):
        clock = ManualClock()
        queue = self.queue(clock)
        fired = []
        for n in range(5):
            queue.add(START + 5, lambda a, c: fired.append(c), lambda a, c: True, None, n)
        queue.check()
        assert fired == []
        clock.advance(1)
        queue.check()
        assert fired == [0, 1, 2, 3, 4]
        queue.close()

    async def test_the_wall_clock_is_looked_at_again_at_least_each_second(self):
        """However far the deadline: somebody may set the clock."""
        clock = ManualClock()
        queue = self.queue(clock)
        queue.add(START + 10 * HOUR * SECOND, print, lambda a, c: True, None, 1)
        assert queue._handle.when() - asyncio.get_running_loop().time() <= RECHECK
        queue.close()
        assert queue._handle is None

    async def test_entries_that_have_lost_their_purpose_are_swept(self):
        clock = ManualClock()
        queue = self.queue(clock)
        alive = set()
        for n in range(5000):
            if n % 100 == 0:
                alive.add(n)
            queue.add(START + 5, lambda a, c: None, lambda a, c: c in alive, None, n)
            if n % 100:
                queue.note_dead(1)
        assert len(queue._heap) < 1200
        clock.advance(1)
        queue.check()
        assert queue._heap == []

    async def test_an_earlier_deadline_wakes_earlier(self):
        clock = ManualClock()
        queue = self.queue(clock)
        loop = asyncio.get_running_loop()
        queue.add(START + SECOND // 2, print, lambda a, c: True, None, 1)
        late = queue._handle.when()
        queue.add(START + SECOND // 10, print, lambda a, c: True, None, 2)
        assert queue._handle.when() < late
        assert queue._handle.when() <= loop.time() + 0.1
        queue.close()
