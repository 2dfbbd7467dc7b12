"""A journal that fails for a while: nothing paid for is asked for again, nothing hangs, nothing spins."""

import asyncio
import contextvars
from contextlib import contextmanager
from datetime import timedelta

import pytest
from support.clock import SECOND, START, ManualClock
from support.hosting import hosted, settled, until

from everact import RetryPolicy, Runtime, activity, workflow
from everact.exceptions import (
    AppendRefusedError,
    CommitUnknownError,
    QueryFailedError,
    ResultTimeoutError,
    RuntimeClosedError,
    WorkflowHeldError,
    WorkflowQuarantinedError,
)
from everact.journal.errors import JournalCorruptError
from everact.journal.memory_store import MemoryJournal, MemoryStore


class FailingStore(MemoryStore):
    """Appends fail while ``failing``; reads fail while ``unreadable``."""

    def __init__(self, backing):
        super().__init__(backing)
        self.failing = False
        self.unreadable = None
        self.refused = 0
        self.failed = 0

    def append(self, expected, entries, work=None):
        if self.failing:
            self.failed += 1
            raise OSError(28, "No space left on device")
        return super().append(expected, entries, work)

    @contextmanager
    def view(self):
        with super().view() as tables:
            if self.unreadable is not None:
                tables.read = self._refuse
            yield tables

    def _refuse(self, locations):
        self.refused += 1
        raise self.unreadable


def charging():
    calls = []

    @activity.defn
    async def charge(n: int) -> int:
        calls.append(n)
        return n

    @workflow.defn
    class Buys:
        def __init__(self) -> None:
            self.go = False

        @workflow.run
        async def run(self) -> int:
            await workflow.wait_condition(lambda: self.go)
            return await charge(1) + await charge(2)

        @workflow.signal
        def start(self) -> None:
            self.go = True

        @workflow.query
        def look(self) -> bool:
            return self.go

        @workflow.update
        async def wait(self) -> int:
            await workflow.wait_condition(lambda: False)
            return 1

    return Buys, charge, calls


async def test_a_paid_activity_is_not_asked_for_again_while_the_journal_fails(monkeypatch):
    monkeypatch.setattr("everact.actors.rebuilding.FIRST_PAUSE", 0.002)
    Buys, charge, calls = charging()
    store = FailingStore(MemoryJournal())
    async with Runtime(store, workflows=[Buys], activities=[charge]) as runtime:
        handle = await runtime.spawn(Buys)
        await handle.signal(Buys.start, request_id="go")
        await until(lambda: calls)
        store.failing = True
        await until(lambda: store.failed > 4)
        assert calls == [1]
        store.failing = False
        await until(lambda: runtime._shard.actors == {})
        assert await handle.result() == 3
    assert calls == [1, 2]


async def test_the_pauses_between_rebuilds_grow(caplog, monkeypatch):
    monkeypatch.setattr("everact.actors.rebuilding.FIRST_PAUSE", 0.002)
    Buys, charge, _calls = charging()
    store = FailingStore(MemoryJournal())
    async with Runtime(store, workflows=[Buys], activities=[charge]) as runtime:
        handle = await runtime.spawn(Buys)
        store.failing = True
        for _ in range(4):
            with pytest.raises(CommitUnknownError):
                await handle.signal(Buys.start)
        store.failing = False
        await handle.signal(Buys.start)
        assert await handle.result() == 3
    pauses = [r.args[0] for r in caplog.records if r.msg.startswith("a commit failed")]
    assert pauses == [0.0, 0.002, 0.004, 0.008]


@pytest.mark.parametrize("kind", ["unregistered", "quarantined"])
async def test_the_one_try_of_a_stalled_run_outlives_a_failed_commit(kind):
    @workflow.defn(name="Buys")
    class Bug:
        @workflow.run
        async def run(self) -> int:
            raise KeyError("bug")

    @workflow.defn(name="Buys")
    class Fixed:
        @workflow.run
        async def run(self) -> int:
            return 5

    journal = MemoryJournal()
    async with hosted(journal, Bug) as runtime:
        await runtime.spawn(Bug, id="w")
        await settled(runtime)
    store = FailingStore(journal)
    store.failing = True
    runtime = Runtime(store, workflows=[Fixed] if kind == "quarantined" else [])
    async with runtime:
        await until(lambda: store.failed)
        store.failing = False
        await until(lambda: runtime._shard.writer.error is None and runtime._shard.writer.is_idle)
        await settled(runtime)
        if kind == "quarantined":
            assert await runtime.ref("w").result() == 5
        else:
            with pytest.raises(WorkflowHeldError, match="'Buys' is not registered"):
                await runtime.ref("w").result()


async def test_a_journal_that_another_writer_took_over_stops_the_runtime():
    Buys, charge, calls = charging()
    journal = MemoryJournal()
    async with Runtime(MemoryStore(journal), workflows=[Buys], activities=[charge]) as first:
        handle = await first.spawn(Buys, id="w")
        async with Runtime(MemoryStore(journal), workflows=[Buys], activities=[charge]) as second:
            with pytest.raises(CommitUnknownError):
                await handle.signal(Buys.start)
            with pytest.raises(AppendRefusedError):
                await handle.describe()
            await second.ref("w", Buys).signal(Buys.start)
            assert await second.ref("w").result() == 3
    assert calls == [1, 2]


async def test_a_hiccup_while_a_run_is_read_does_not_stall_it(monkeypatch):
    """C06: the store failed, not the code."""
    monkeypatch.setattr("everact.actors.workflow_actor.READ_PAUSE", 0.002)
    Buys, charge, _calls = charging()
    journal = MemoryJournal()
    async with hosted(journal, Buys, activities=[charge]) as runtime:
        await runtime.spawn(Buys, id="w")
    store = FailingStore(journal)
    async with Runtime(store, workflows=[Buys], activities=[charge]) as runtime:
        runtime._shard.find("w")  # in memory, but not its code
        store.unreadable = OSError(5, "Input/output error")
        handle = runtime.ref("w", Buys)
        told = asyncio.create_task(handle.signal(Buys.start))
        asked = asyncio.create_task(handle.query(Buys.look))
        await settled(runtime)
        assert not told.done()
        store.unreadable = None
        await told
        assert await asked is True
        assert await handle.result() == 3


async def test_a_damaged_history_holds_its_run():
    Buys, charge, _calls = charging()
    journal = MemoryJournal()
    async with hosted(journal, Buys, activities=[charge]) as runtime:
        await runtime.spawn(Buys, id="w")
    store = FailingStore(journal)
    async with Runtime(store, workflows=[Buys], activities=[charge]) as runtime:
        runtime._shard.find("w")  # in memory, but not its code
        store.unreadable = JournalCorruptError("commit record 1 cannot be read")
        await runtime.ref("w", Buys).signal(Buys.start)
        with pytest.raises(WorkflowHeldError, match="commit record 1"):
            await runtime.ref("w").result()


async def test_a_repeated_update_of_a_stalled_run_is_refused_at_once():
    Buys, charge, _calls = charging()

    @workflow.defn(name="Buys")
    class Breaks(Buys):
        @workflow.run
        async def run(self) -> int:
            await workflow.wait_condition(lambda: self.go)
            raise KeyError("bug")

        @workflow.update
        async def wait(self) -> int:
            self.go = True
            await workflow.wait_condition(lambda: False)
            return 1

    async with hosted(MemoryJournal(), Breaks, activities=[charge]) as runtime:
        handle = await runtime.spawn(Breaks)
        for _ in range(2):
            with pytest.raises(WorkflowQuarantinedError):
                await handle.execute_update(Breaks.wait, request_id="r")


async def test_callers_that_go_away_are_forgotten():
    Buys, charge, _calls = charging()
    async with hosted(MemoryJournal(), Buys, activities=[charge]) as runtime:
        handle = await runtime.spawn(Buys)
        for _ in range(100):
            waiting = asyncio.create_task(handle.execute_update(Buys.wait, request_id="r"))
            await settled(runtime)
            waiting.cancel()
            await asyncio.wait([waiting])
        (waiters,) = runtime._shard.find(handle.workflow_id).update_waiters.values()
        assert len(waiters) < 20


async def test_a_long_backlog_is_delivered_in_linear_time():
    @workflow.defn(name="Counts")
    class Broken:
        @workflow.run
        async def run(self) -> int:
            raise KeyError("bug")

        @workflow.signal
        def add(self) -> None: ...

    @workflow.defn(name="Counts")
    class Counts:
        def __init__(self) -> None:
            self.n = 0

        @workflow.run
        async def run(self, most: int = 5000) -> int:
            await workflow.wait_condition(lambda: self.n == most)
            return self.n

        @workflow.signal
        def add(self) -> None:
            self.n += 1

    journal = MemoryJournal()
    async with hosted(journal, Broken) as runtime:
        handle = await runtime.spawn(Broken, id="w")
        with pytest.raises(WorkflowQuarantinedError):
            await handle.result()
        await asyncio.gather(*(handle.signal(Broken.add) for _ in range(5000)))
    async with hosted(journal, Counts) as runtime:
        await runtime.ref("w", Counts).release()
        assert await runtime.ref("w", Counts).result(timeout=20) == 5000


async def test_timers_of_ended_runs_are_let_go():
    @workflow.defn
    class Sleeps:
        @workflow.run
        async def run(self) -> None:
            await asyncio.wait([asyncio.ensure_future(asyncio.sleep(86400)) for _ in range(100)])

    async with hosted(MemoryJournal(), Sleeps) as runtime:
        for _ in range(30):
            handle = await runtime.spawn(Sleeps)
            await handle.terminate()
        await settled(runtime)
        assert len(runtime._shard.timers._heap) < 1500


async def test_sleep_until_keeps_its_moment_when_the_clock_was_set_back():
    clock = ManualClock()
    moments = []

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.go = False

        @workflow.run
        async def run(self) -> float:
            moment = workflow.now() + timedelta(hours=1)
            moments.append(moment.timestamp())
            await workflow.wait_condition(lambda: self.go)
            await workflow.sleep_until(moment)
            return workflow.time()

        @workflow.signal
        def start(self) -> None:
            self.go = True

    async with hosted(MemoryJournal(), W, clock=clock) as runtime:
        handle = await runtime.spawn(W)
        clock.advance(-7200)
        await handle.signal(W.start)
        (deadline,) = (await handle.describe()).timers
        assert deadline.timestamp() == moments[0] == START / SECOND + 3600
        await handle.terminate()


async def test_a_condition_sees_the_context_of_the_task_that_waits():
    limit = contextvars.ContextVar("limit")

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.n = 0

        @workflow.run
        async def run(self) -> int:
            limit.set(2)
            await workflow.wait_condition(lambda: self.n >= limit.get())
            return self.n

        @workflow.signal
        def add(self) -> None:
            self.n += 1

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W)
        await handle.signal(W.add)
        await handle.signal(W.add)
        assert await handle.result() == 2


async def test_a_query_of_a_run_that_never_began_says_so():
    @workflow.defn
    class W:
        def __init__(self) -> None:
            raise KeyError("bug")

        @workflow.run
        async def run(self) -> None: ...

        @workflow.query
        def look(self) -> int:
            return 1

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W)
        await settled(runtime)
        await handle.terminate()
        with pytest.raises(QueryFailedError, match="ended before its code had begun"):
            await handle.query(W.look)


async def test_a_result_timeout_tells_nothing_that_may_still_be_lost():
    Buys, charge, _calls = charging()
    async with hosted(MemoryJournal(), Buys, activities=[charge]) as runtime:
        handle = await runtime.spawn(Buys)
        with pytest.raises(ResultTimeoutError, match="waiting on: condition at"):
            await handle.result(timeout=0.001)


async def test_a_retry_whose_failure_waits_in_the_mailbox_goes_on_after_a_failed_commit():
    gate = asyncio.Event()
    attempts = []

    @activity.defn(retry_policy=RetryPolicy(initial_interval=0.001))
    async def act() -> str:
        attempts.append(activity.info().attempt)
        if len(attempts) == 1:
            await gate.wait()
            raise ValueError("first")
        return "ok"

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            return await act()

        @workflow.signal
        def note(self) -> None: ...

    store = FailingStore(MemoryJournal())
    async with Runtime(store, workflows=[W], activities=[act]) as runtime:
        handle = await runtime.spawn(W)
        await until(lambda: attempts)
        store.failing = True
        note = asyncio.create_task(handle.signal(W.note))
        gate.set()
        with pytest.raises(CommitUnknownError):
            await note
        store.failing = False
        assert await handle.result(timeout=10) == "ok"
    assert attempts == [1, 2]


# --- mail of runs that could not be read -------------------------------------------------------------------------


def counting():
    @workflow.defn
    class Counts:
        def __init__(self) -> None:
            self.seen: list[int] = []

        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.signal
        def add(self, n: int) -> None:
            self.seen.append(n)

        @workflow.update
        def put(self, n: int) -> int:
            self.seen.append(n)
            return len(self.seen)

        @workflow.query
        def look(self) -> list[int]:
            workflow.logger.warning("looked at %s", self.seen)
            return self.seen

    return Counts


@pytest.fixture
async def unreadable(monkeypatch):
    """A waiting run in a runtime that cannot read its journal just now."""
    monkeypatch.setattr("everact.actors.workflow_actor.READ_PAUSE", 0.002)
    Counts = counting()
    journal = MemoryJournal()
    async with hosted(journal, Counts) as runtime:
        await runtime.spawn(Counts, id="w")
    store = FailingStore(journal)
    async with Runtime(store, workflows=[Counts]) as runtime:
        runtime._shard.find("w")  # in memory, but not its code
        store.unreadable = OSError(5, "Input/output error")
        yield runtime, store, runtime.ref("w", Counts), Counts


async def test_mail_that_waited_for_a_readable_journal_is_handled_once_and_in_order(unreadable):
    runtime, store, handle, Counts = unreadable
    sent = [
        asyncio.create_task(handle.signal(Counts.add, 1)),
        asyncio.create_task(handle.signal(Counts.add, 2)),
        asyncio.create_task(handle.execute_update(Counts.put, 3)),
    ]
    actor = runtime._shard.find("w")
    await until(lambda: actor.unreadable and len(actor.mailbox) == 3)
    for _ in range(20):
        await asyncio.sleep(0.001)
    store.unreadable = None
    await asyncio.gather(*sent)
    assert await handle.query(Counts.look) == [1, 2, 3]
    assert [e.kind for e in await handle.fetch_history()].count("SignalReceived") == 2


async def test_an_unreadable_run_is_tried_at_one_pace_however_much_mail_it_gets(unreadable, caplog):
    runtime, store, handle, Counts = unreadable
    asked = [asyncio.create_task(handle.query(Counts.look)) for _ in range(100)]
    await until(lambda: store.refused >= 10)
    assert caplog.text.count("cannot be read, trying again") == 1
    assert len(runtime._shard.find("w").mailbox) == 100
    store.unreadable = None
    assert await asyncio.gather(*asked) == [[]] * 100


async def test_the_old_object_of_a_run_does_nothing_after_a_rebuild(unreadable, monkeypatch):
    runtime, store, handle, Counts = unreadable
    told = asyncio.create_task(handle.signal(Counts.add, 1))
    old = runtime._shard.find("w")
    await until(lambda: old.unreadable)
    monkeypatch.setattr("everact.actors.workflow_actor.READ_PAUSE", 60)
    store.failing = True
    with pytest.raises(CommitUnknownError):
        await runtime.spawn(Counts, id="other")
    store.failing = False
    await until(lambda: runtime._shard.find("w") is not old)
    store.unreadable = None
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert old.mailbox == type(old.mailbox)()
    new = runtime._shard.find("w")
    runtime._shard._enqueue_again(old)
    runtime._shard._enqueue_again(new)
    await told
    assert await handle.query(Counts.look) == [1]
    assert [e.kind for e in await handle.fetch_history()].count("SignalReceived") == 1


async def test_a_query_of_an_ended_run_that_cannot_be_read_is_let_go_when_the_runtime_is_left(unreadable):
    runtime, _store, handle, Counts = unreadable
    await handle.terminate()
    asked = asyncio.create_task(handle.query(Counts.look))
    actor = runtime._shard.find("w")
    await until(lambda: actor.unreadable)
    runtime._shard.stop(RuntimeClosedError("left"))
    with pytest.raises(RuntimeClosedError):
        await asked


# --- other parts of a rebuild ------------------------------------------------------------------------------------


async def test_a_querys_log_records_wait_for_what_it_has_read(caplog):
    Counts = counting()
    store = FailingStore(MemoryJournal())
    async with Runtime(store, workflows=[Counts]) as runtime:
        handle = await runtime.spawn(Counts)
        store.failing = True
        told, asked = await asyncio.gather(
            handle.signal(Counts.add, 1), handle.query(Counts.look), return_exceptions=True
        )
        assert (type(told), type(asked)) == (CommitUnknownError, CommitUnknownError)
        store.failing = False
        assert "looked at [1]" not in caplog.text
        assert await handle.query(Counts.look) == []
    assert "looked at []" in caplog.text


async def test_a_run_that_stalled_in_this_start_is_not_tried_again_by_a_rebuild():
    @workflow.defn
    class Bug:
        @workflow.run
        async def run(self) -> None:
            raise KeyError("bug")

    Counts = counting()
    store = FailingStore(MemoryJournal())
    async with Runtime(store, workflows=[Bug, Counts]) as runtime:
        bug = await runtime.spawn(Bug)
        with pytest.raises(WorkflowQuarantinedError):
            await bug.result()
        other = await runtime.spawn(Counts)
        store.failing = True
        with pytest.raises(CommitUnknownError):
            await other.signal(Counts.add, 1)
        store.failing = False
        await other.signal(Counts.add, 2)
        kinds = [event.kind for event in await bug.fetch_history()]
    assert kinds == ["WorkflowStarted", "RunStalled"]


async def test_ctrl_c_in_the_first_turn_of_a_replacing_run_leaves_the_old_one_running():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self, interrupts: bool) -> None:
            if interrupts:
                raise KeyboardInterrupt
            await workflow.wait_condition(lambda: False)

    journal = MemoryJournal()
    runtime = hosted(journal, W)
    async with runtime:
        old = await runtime.spawn(W, False, id="w")
        shard = runtime._shard
        pump = shard._pump

        def guarded():
            try:
                pump()
            except KeyboardInterrupt:
                pass

        shard._pump = guarded
        with pytest.raises(RuntimeClosedError):
            await runtime.spawn(W, True, id="w", if_running="replace")
    async with hosted(journal, W) as runtime:
        (only,) = await runtime.list_workflows()
        assert (only.run_id, only.status) == (old.run_id, "running")
