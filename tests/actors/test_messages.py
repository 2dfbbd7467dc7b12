"""R1 and R2: what was acknowledged is delivered, in order, or is a dead letter that says so."""

import asyncio
import contextlib
from datetime import timedelta

import pytest
from support.hosting import gate, hosted, kinds, settled, until

from everact import ApplicationError, workflow
from everact.actors.event_loop import TurnAborted
from everact.exceptions import (
    QueryFailedError,
    RequestIdReusedError,
    UpdateCutError,
    UpdateFailedError,
    UpdateRejectedError,
    WorkflowClosedError,
    WorkflowHeldError,
    WorkflowQuarantinedError,
    WorkflowTerminatedError,
)
from everact.journal import events as ev
from everact.journal.memory_store import MemoryJournal


def counter(fails=False, loops=False):
    @workflow.defn(name="Counter")
    class Counter:
        @workflow.init
        def __init__(self, start: int) -> None:
            if fails:
                raise ValueError("not set up yet")
            self.start = start
            self.log: list[str] = ["init"]
            self.go = False

        @workflow.run
        async def run(self, start: int) -> str:
            self.log.append("main")
            if not loops:
                return " ".join(self.log)
            await workflow.wait_condition(lambda: self.go)
            return " ".join(self.log)

        @workflow.signal
        def add(self, n: int) -> None:
            self.log.append(str(self.start + n))

        @workflow.signal
        async def add_later(self, n: int) -> None:
            await asyncio.sleep(0)
            self.log.append(str(self.start + n))

        @workflow.signal
        def stop(self) -> None:
            self.go = True

        @workflow.update
        def grow(self, n: int) -> int:
            self.log.append(f"u{n}")
            return n

        @grow.validator
        def check(self, n: int) -> None:
            if n < 0:
                raise ValueError("negative")

        @workflow.query
        def show(self) -> str:
            return " ".join(self.log)

    return Counter


async def test_messages_before_the_first_turn_find_the_set_up_done_and_main_sees_them_all():
    """R1 (a), D01: __init__, then each message's handler, then main."""
    journal = MemoryJournal()
    Broken, Fixed = counter(fails=True), counter()
    async with hosted(journal, Broken) as runtime:
        handle = await runtime.spawn(Broken.run, 100, id="a")
        with pytest.raises(WorkflowQuarantinedError, match="not set up yet"):
            await handle.result()
        for n in (1, 2, 3):
            await handle.signal(Broken.add_later if n == 2 else Broken.add, n)
        description = await handle.describe()
        assert (description.status, description.backlog) == ("quarantined", 4)
    async with hosted(journal, Fixed) as runtime:
        handle = runtime.ref("a", Fixed)
        await handle.release()
        assert await handle.result() == "init 101 102 103 main"
        # replayed for a query after the end
        assert await handle.query(Fixed.show) == "init 101 102 103 main"


@pytest.mark.parametrize("store", ["memory", "lmdb"])
async def test_the_backlog_survives_further_starts(store, tmp_journal):
    journal = MemoryJournal() if store == "memory" else tmp_journal
    Broken, Fixed = counter(fails=True), counter(loops=True)
    async with hosted(journal, Broken) as runtime:
        await runtime.spawn(Broken.run, 0, id="a")
    for n in range(3):
        async with hosted(journal, Broken) as runtime:
            await runtime.ref("a", Broken).signal(Broken.add, n)
    async with hosted(journal, Fixed) as runtime:
        handle = runtime.ref("a", Fixed)
        assert await handle.query(Fixed.show) == "init 0 1 2 main"
        await handle.signal(Fixed.stop)
        assert await handle.result() == "init 0 1 2 main"


async def test_messages_that_wait_when_main_ends_are_handled_before_it_does():
    """R1 (b): main would end at the first of them; all are handled."""
    journal = MemoryJournal()
    blocked = gate("blocked")

    def version(broken):
        @workflow.defn(name="W")
        class W:
            def __init__(self) -> None:
                self.log: list[str] = []

            @workflow.run
            async def run(self) -> str:
                await workflow.execute_activity(blocked.fn, "x")
                if broken:
                    raise ValueError("bug")
                return " ".join(self.log)

            @workflow.signal
            def add(self, n: int) -> None:
                self.log.append(str(n))

            @workflow.update
            async def grow(self, n: int) -> str:
                await asyncio.sleep(0)
                self.log.append(f"u{n}")
                return "grown"

        return W

    Broken, Fixed = version(True), version(False)
    blocked.open.set()
    async with hosted(journal, Broken, activities=[blocked.fn]) as runtime:
        handle = await runtime.spawn(Broken.run, id="a")
        with pytest.raises(WorkflowQuarantinedError):
            await handle.result()
        for n in range(4):
            await handle.signal(Broken.add, n)
    async with hosted(journal, Fixed, activities=[blocked.fn]) as runtime:
        handle = runtime.ref("a", Fixed)
        await handle.release()
        assert await handle.result() == "0 1 2 3"
        history = await handle.fetch_history()
        turn = history.records[-1][1]
        assert turn.inputs == () and len(turn.delivers) == 5
        assert [type(history.events[n - 1].event) for n in turn.delivers] == [
            *[ev.SignalReceived] * 4,
            ev.ActivityCompleted,
        ]
        description = await handle.describe()
        assert (description.backlog, description.dead_letters) == (0, ())


@pytest.mark.parametrize("store", ["memory", "lmdb"])
async def test_every_message_that_was_acknowledged_is_counted(store, tmp_journal):
    """D02: the sender sends as fast as it can until it is refused."""

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.count = 0

        @workflow.run
        async def run(self) -> int:
            await workflow.sleep(0.03)
            return self.count

        @workflow.signal
        def hit(self) -> None:
            self.count += 1

    async def sender(handle):
        acknowledged = 0
        with contextlib.suppress(WorkflowClosedError):
            while True:
                await handle.signal(W.hit)
                acknowledged += 1
        return acknowledged

    async with hosted(MemoryJournal() if store == "memory" else tmp_journal, W) as runtime:
        handle = await runtime.spawn(W.run)
        counts = await asyncio.gather(*(sender(handle) for _ in range(5)))
        assert await handle.result() == sum(counts) >= 5


async def test_messages_are_handled_in_the_order_in_which_they_were_sent():
    Counter = counter(loops=True)
    async with hosted(MemoryJournal(), Counter) as runtime:
        handle = await runtime.spawn(Counter.run, 0)
        await asyncio.gather(*(handle.signal(Counter.add, n) for n in range(300)))
        await handle.signal(Counter.stop)
        assert await handle.result() == "init main " + " ".join(map(str, range(300)))


async def test_messages_that_nobody_handled_are_dead_letters_when_the_run_is_terminated():
    journal = MemoryJournal()
    Broken = counter(fails=True)
    async with hosted(journal, Broken) as runtime:
        handle = await runtime.spawn(Broken.run, 0, id="a")
        with pytest.raises(WorkflowQuarantinedError):
            await handle.result()
        await handle.signal(Broken.add, 1)
        await handle.terminate()
        letters = (await handle.describe()).dead_letters
        assert (
            len(letters) == 1
            and str(letters[0]) == "event 3 (add): it was not delivered before the run ended"
        )
    async with hosted(journal, Broken) as runtime:
        assert (await runtime.ref("a").describe()).dead_letters == letters


# --- updates -------------------------------------------------------------------------------------------------------


async def test_a_rejected_update_writes_nothing_and_an_accepted_one_answers():
    Counter = counter(loops=True)
    async with hosted(MemoryJournal(), Counter) as runtime:
        handle = await runtime.spawn(Counter.run, 0)
        before = len(await handle.fetch_history())
        with pytest.raises(UpdateRejectedError, match="negative") as caught:
            await handle.execute_update(Counter.grow, -1)
        assert isinstance(caught.value.__cause__, ValueError)
        assert len(await handle.fetch_history()) == before
        assert await handle.execute_update(Counter.grow, 5) == 5
        assert kinds(await handle.fetch_history())[-2:] == ["UpdateReceived", "UpdateCompleted"]


def changer(action):
    held = gate("held")

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.event = asyncio.Event()
            self.queue: asyncio.Queue[int] = asyncio.Queue()
            self.done = False
            self.pending = None
            self.task = None

        @workflow.run
        async def run(self) -> str:
            self.pending = workflow.start_activity(held.fn, "x")
            self.task = asyncio.create_task(self.event.wait())
            first = asyncio.create_task(self.queue.get())
            await workflow.wait_condition(lambda: self.done)
            first.cancel()
            return f"{self.task.done()} {first.done()} {await self.pending}"

        def act(self) -> None:
            match action:
                case "activity":
                    workflow.start_activity(held.fn, "query")
                case "task":
                    asyncio.create_task(self.event.wait())
                case "event":
                    self.event.set()
                case "queue":
                    self.queue.put_nowait(1)
                case "future":
                    asyncio.get_running_loop().create_future()
                case "timer":
                    asyncio.get_running_loop().call_later(5, print)
                case "cancel activity":
                    self.pending.cancel()
                case "cancel task":
                    self.task.cancel()

        @workflow.query
        def look(self) -> str:
            self.act()
            return "?"

        @workflow.query
        def look_and_hide(self) -> str:
            with contextlib.suppress(Exception):
                self.act()
            return "?"

        @workflow.update
        def change(self) -> None:
            pass

        @change.validator
        def check(self) -> None:
            self.act()

        @workflow.signal
        def end(self) -> None:
            self.done = True

    return W, held


CHANGES = ["activity", "task", "event", "queue", "future", "timer", "cancel activity", "cancel task"]


@pytest.mark.parametrize("action", CHANGES)
async def test_a_query_that_tries_to_change_the_run_is_an_error_and_the_run_is_unharmed(action):
    W, held = changer(action)
    async with hosted(MemoryJournal(), W, activities=[held.fn]) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        await until(lambda: held.calls)
        before = len(await handle.fetch_history())
        with pytest.raises(QueryFailedError):
            await handle.query(W.look)
        with contextlib.suppress(QueryFailedError):
            await handle.query(W.look_and_hide)
        assert len(await handle.fetch_history()) == before
        await handle.signal(W.end)
        await settled(runtime)
        held.open.set()
        assert await handle.result() == "False False through"
    assert held.calls == ["x"]


@pytest.mark.parametrize("action", CHANGES)
async def test_a_validator_only_reads(action):
    W, held = changer(action)
    async with hosted(MemoryJournal(), W, activities=[held.fn]) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        await until(lambda: held.calls)
        before = len(await handle.fetch_history())
        with pytest.raises(Exception) as caught:
            await handle.execute_update(W.change)
        assert not isinstance(caught.value, UpdateFailedError)
        assert len(await handle.fetch_history()) == before
        await handle.signal(W.end)
        await settled(runtime)
        held.open.set()
        assert await handle.result() == "False False through"
    assert held.calls == ["x"]


async def test_a_stalled_run_takes_signals_and_refuses_updates_and_queries_without_a_trace():
    journal = MemoryJournal()
    Broken = counter(fails=True)
    async with hosted(journal, Broken) as runtime:
        handle = await runtime.spawn(Broken.run, 0)
        with pytest.raises(WorkflowQuarantinedError):
            await handle.result()
        before = len(await handle.fetch_history())
        with pytest.raises(WorkflowQuarantinedError):
            await handle.execute_update(Broken.grow, 1)
        with pytest.raises(WorkflowQuarantinedError):
            await handle.query(Broken.show)
        assert len(await handle.fetch_history()) == before
        await handle.signal(Broken.add, 1)
        assert kinds(await handle.fetch_history())[before:] == ["SignalReceived"]


def crashing_update(broken):
    @workflow.defn(name="W")
    class W:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.update
        def change(self, n: int) -> int:
            if broken:
                raise TurnAborted("bug")
            return n + 1

        @change.validator
        def check(self, n: int) -> None:
            if n < 0 or (n == 7 and not broken):
                raise ValueError("no")

    return W


async def test_an_update_whose_handler_crashes_its_run_is_kept_and_answered_by_the_fixed_code():
    journal = MemoryJournal()
    Broken, Fixed = crashing_update(True), crashing_update(False)
    async with hosted(journal, Broken) as runtime:
        handle = await runtime.spawn(Broken.run, id="a")
        with pytest.raises(WorkflowQuarantinedError):
            await handle.execute_update(Broken.change, 1, request_id="q")
    async with hosted(journal, Fixed) as runtime:
        handle = runtime.ref("a", Fixed)
        await handle.release()
        assert await handle.execute_update(Fixed.change, 1, request_id="q") == 2


async def test_an_update_that_the_fixed_codes_validator_refuses_is_rejected_for_its_caller():
    journal = MemoryJournal()
    Broken, Fixed = crashing_update(True), crashing_update(False)
    async with hosted(journal, Broken) as runtime:
        handle = await runtime.spawn(Broken.run, id="a")
        with pytest.raises(WorkflowQuarantinedError):
            await handle.execute_update(Broken.change, 7, request_id="q")
    async with hosted(journal, Fixed) as runtime:
        handle = runtime.ref("a", Fixed)
        await handle.release()
        with pytest.raises(UpdateRejectedError, match="no"):
            await handle.execute_update(Fixed.change, 7, request_id="q")
        assert (await handle.describe()).status == "running"


async def test_the_callers_of_updates_in_flight_hear_how_the_run_ended():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.update
        async def forever(self) -> None:
            await workflow.wait_condition(lambda: False)

    async with hosted(MemoryJournal(), W) as runtime:
        for end in ("cancel", "terminate"):
            handle = await runtime.spawn(W.run)
            waiter = asyncio.create_task(handle.execute_update(W.forever))
            await settled(runtime)
            await getattr(handle, end)()
            with pytest.raises(UpdateCutError, match="cancelled|terminated"):
                await waiter


async def test_a_run_that_ends_while_handlers_run_says_so(caplog):
    """D08"""

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.began = False

        @workflow.run
        async def run(self, wait: bool) -> str:
            await workflow.wait_condition(lambda: self.began)
            if wait:
                await workflow.wait_condition(workflow.all_handlers_finished)
            return "end"

        @workflow.signal
        async def slow(self) -> None:
            self.began = True
            await workflow.sleep(0.01)

    async with hosted(MemoryJournal(), W) as runtime:
        for wait in (True, False):
            handle = await runtime.spawn(W.run, wait)
            await handle.signal(W.slow)
            assert await handle.result() == "end"
            assert ("1 of its handlers were running" in caplog.text) is not wait


# --- request ids ---------------------------------------------------------------------------------------------------


async def test_a_repeat_with_the_same_request_id_is_applied_once_and_answered_alike():
    journal = MemoryJournal()
    Counter = counter(loops=True)
    async with hosted(journal, Counter) as runtime:
        handle = await runtime.spawn(Counter.run, 0, id="a")
        for _ in range(3):
            await handle.signal(Counter.add, 1, request_id="s1")
            assert await handle.execute_update(Counter.grow, 2, request_id="u1") == 2
        with pytest.raises(RequestIdReusedError):
            await handle.signal(Counter.add, 2, request_id="s1")
        with pytest.raises(RequestIdReusedError):
            await handle.execute_update(Counter.grow, 3, request_id="u1")
        with pytest.raises(RequestIdReusedError):
            await handle.signal(Counter.add_later, 1, request_id="s1")
    async with hosted(journal, Counter) as runtime:
        handle = runtime.ref("a", Counter)
        await handle.signal(Counter.add, 1, request_id="s1")
        assert await handle.execute_update(Counter.grow, 2, request_id="u1") == 2
        await handle.signal(Counter.stop)
        assert await handle.result() == "init main 1 u2"
        # also after the end
        await handle.signal(Counter.add, 1, request_id="s1")
        assert await handle.execute_update(Counter.grow, 2, request_id="u1") == 2
        with pytest.raises(WorkflowClosedError):
            await handle.signal(Counter.add, 1, request_id="s2")


async def test_two_equal_messages_with_different_request_ids_both_count():
    """D10"""
    Counter = counter(loops=True)
    async with hosted(MemoryJournal(), Counter) as runtime:
        handle = await runtime.spawn(Counter.run, 0)
        await handle.signal(Counter.add, 1, request_id="job-1")
        await handle.signal(Counter.add, 1, request_id="job-2")
        other = await runtime.spawn(Counter.run, 0)
        await other.signal(Counter.add, 1, request_id="job-1")  # scoped to its receiver
        assert await handle.query(Counter.show) == "init main 1 1"
        assert await other.query(Counter.show) == "init main 1"


async def test_a_request_id_of_a_signal_is_not_that_of_an_update():
    """R14: kind, name and arguments make the request; a clash is refused, never left without an answer."""

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.signal(name="same")
        def one(self, n: int) -> None:
            pass

        @workflow.update(name="same")
        def two(self, n: int) -> int:
            return n

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        await handle.signal(W.one, 1, request_id="q")
        with pytest.raises(RequestIdReusedError):
            async with asyncio.timeout(5):
                await handle.execute_update(W.two, 1, request_id="q")


async def test_a_repeat_of_an_update_in_flight_waits_for_the_same_answer():
    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.go = False

        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.update
        async def slow(self) -> str:
            await workflow.wait_condition(lambda: self.go)
            if self.go:
                raise ApplicationError("answer")
            return ""

        @workflow.signal
        def proceed(self) -> None:
            self.go = True

    journal = MemoryJournal()
    async with hosted(journal, W) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        first = asyncio.create_task(handle.execute_update(W.slow, request_id="q"))
        await settled(runtime)
        first.cancel()
    async with hosted(journal, W) as runtime:
        handle = runtime.ref("a", W)
        again = [asyncio.create_task(handle.execute_update(W.slow, request_id="q")) for _ in range(2)]
        await settled(runtime)
        await handle.signal(W.proceed)
        for task in again:
            with pytest.raises(UpdateFailedError, match="answer"):
                await task


async def test_a_bad_message_is_a_dead_letter_and_the_good_one_after_it_is_handled():
    """D05, H07: the journal holds a signal that the handler's new hint does not fit."""
    journal = MemoryJournal()
    Broken = counter(fails=True)

    @workflow.defn(name="Counter")
    class Newer:
        @workflow.init
        def __init__(self, start: int) -> None:
            self.log: list[str] = []

        @workflow.run
        async def run(self, start: int) -> str:
            return " ".join(self.log)

        @workflow.signal
        def add(self, n: list[str]) -> None:
            self.log.append(str(n))

        @workflow.signal
        def add_later(self, n: int) -> None:
            self.log.append(str(n))

    async with hosted(journal, Broken) as runtime:
        handle = await runtime.spawn(Broken.run, 0, id="a")
        with pytest.raises(WorkflowQuarantinedError):
            await handle.result()
        await handle.signal(Broken.add, 1)
        await handle.signal(Broken.add_later, 2)
    async with hosted(journal, Newer) as runtime:
        handle = runtime.ref("a", Newer)
        await handle.release()
        assert await handle.result() == "2"
        (letter,) = (await handle.describe()).dead_letters
        assert "PayloadDecodeError" in letter.reason and letter.name == "add"


async def test_a_query_has_a_time_limit():
    from support.blocking import Blocked

    from everact.journal.fault_points import armed

    Counter = counter(loops=True)
    blocked = Blocked()
    async with hosted(MemoryJournal(), Counter) as runtime:
        handle = await runtime.spawn(Counter.run, 0)
        with armed("journal.commit.before", blocked):
            sent = asyncio.create_task(handle.signal(Counter.add, 1))
            await asyncio.to_thread(blocked.reached.wait)
            with pytest.raises(TimeoutError, match=r"show.*0\.02 s"):
                await handle.query(Counter.show, timeout=timedelta(seconds=0.02))
            waiting = asyncio.create_task(handle.query(Counter.show))
            await asyncio.sleep(0)
            blocked.go.set()
            await sent
            assert await waiting == "init main 1"


async def test_waiters_of_a_held_run_and_of_a_terminated_one_get_their_own_errors():
    journal = MemoryJournal()
    Counter = counter(loops=True)
    async with hosted(journal, Counter) as runtime:
        await runtime.spawn(Counter.run, 0, id="a")
    async with hosted(journal) as runtime:
        handle = runtime.ref("a")
        with pytest.raises(WorkflowHeldError, match="not registered"):
            await handle.result()
        await handle.terminate()
        with pytest.raises(WorkflowTerminatedError):
            await handle.result()
