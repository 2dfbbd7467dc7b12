"""Crashes, pauses, blame, limits and sliced replays, two or three of them at once (R1, R7, R10, R12, R13)."""

import asyncio
from datetime import timedelta

import pytest
from support.clock import ManualClock
from support.codecs import InThreads
from support.deaths import TURN, Grave
from support.hosting import gate, hosted, settled, until
from support.stores import TroubledStore

from everact import ActivityError, RetryPolicy, activity, workflow
from everact.actors import restarts
from everact.actors.dispatcher import Dispatcher
from everact.actors.event_loop import TurnAborted
from everact.exceptions import (
    ActivityCancelledError,
    ActivityNotPendingError,
    CommitUnknownError,
    JournalAccessError,
    QueryFailedError,
    WorkflowFailedError,
    WorkflowHeldError,
    WorkflowTerminatedError,
)
from everact.journal import compaction
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.supervision.backoff import Backoff
from everact.supervision.strategies import RestartLimit

#: What the next turns raise, one after the other.
TROUBLE: list[BaseException] = []


@pytest.fixture(autouse=True)
def no_trouble():
    TROUBLE.clear()


@pytest.fixture(params=[(), (InThreads,)], ids=["plain", "coded"])
def codecs(request):
    return [codec() for codec in request.param]


@workflow.defn
class Counts:
    """Ends with its activity, and returns all that it was told by then."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.execute_activity("gated", "once", result_type=str)
        return self.seen

    @workflow.signal
    def note(self, text: str) -> None:
        if TROUBLE:
            raise TurnAborted from TROUBLE.pop(0)  # everact: allow
        self.seen.append(text)


async def test_a_message_received_between_two_tries_of_the_last_turn_is_delivered_in_it(codecs, monkeypatch):
    """R1 b: the turn that ends the run crashes when it is done again; what comes before the restart goes with it."""
    pauses = Backoff(first=0.0, longest=0.0)
    monkeypatch.setattr(restarts, "LIMIT", RestartLimit(backoff=pauses))
    gated = gate()
    async with hosted(MemoryJournal(), Counts, activities=[gated.fn], codecs=codecs) as runtime:
        handle = await runtime.spawn(Counts.run, id="a")
        await until(lambda: gated.calls)
        await handle.pause()
        gated.open.set()
        await until(lambda: runtime._shard.find("a").state.unread)  # the result came first
        await handle.signal(Counts.note, "one")
        TROUBLE.append(ValueError("once"))
        monkeypatch.setattr(
            restarts, "LIMIT", RestartLimit(backoff=Backoff(first=0.3, longest=0.3, jitter=0))
        )
        await handle.resume()
        actor = runtime._shard.find("a")
        await until(lambda: actor.restarts is not None and actor.restarts.is_waiting)
        await handle.signal(Counts.note, "two")
        assert await handle.result() == ["one", "two"]
        assert (await handle.describe()).dead_letters == ()


@pytest.fixture
def grave(tmp_path):
    directory = tmp_path / "grave"
    directory.mkdir()
    return Grave(MemoryJournal(), directory)


@workflow.defn(name="Changed")
class Before:
    @workflow.run
    async def run(self) -> None:
        await workflow.sleep(100_000)

    @workflow.update
    def ask(self) -> int:
        return 1


@workflow.defn(name="Changed")
class After:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.update
    def ask(self) -> int:
        return 1


async def test_an_update_of_a_blamed_run_whose_code_no_longer_fits_holds_it(grave, codecs):
    async with hosted(grave.store(), Before, codecs=codecs) as runtime:
        await runtime.spawn(Before.run, id="a")
    grave.die((TURN, 1))
    async with hosted(grave.store(), After, codecs=codecs) as runtime:
        handle = runtime.ref("a", After)
        with pytest.raises(WorkflowHeldError):
            await handle.execute_update(After.ask, request_id="r")
        assert (await handle.describe()).status == "held"
    async with hosted(grave.store(), Before, codecs=codecs) as runtime:
        assert await runtime.ref("a", Before).execute_update(Before.ask, request_id="r") == 1


@pytest.mark.parametrize("retries", [False, True], ids=["first", "retry"])
async def test_no_attempt_begins_behind_the_limit_of_the_whole_in_a_later_start(retries):
    clock = ManualClock()
    journal = MemoryJournal()
    calls = []

    @activity.defn(
        schedule_to_close_timeout=60,
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=5), jitter=0),
    )
    async def fn() -> None:
        calls.append(clock.wall())
        if retries:
            raise ValueError("again")
        await asyncio.Event().wait()

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await fn()

    async with hosted(journal, W, activities=[fn], clock=clock) as runtime:
        await runtime.spawn(W.run, id="a")
        await until(lambda: calls)
        if retries:
            await until(lambda: runtime._shard.find("a").state.activities[1].attempt == 2)
        await settled(runtime)
    clock.advance(3600)
    async with hosted(journal, W, activities=[fn], clock=clock) as runtime:
        with pytest.raises(WorkflowFailedError) as caught:
            await runtime.ref("a", W).result()
    assert isinstance(caught.value.__cause__, ActivityError)
    assert len(calls) == 1


@workflow.defn
class Asked:
    """Its replay crashes while there is trouble."""

    def __init__(self) -> None:
        if TROUBLE:
            raise TurnAborted from TROUBLE.pop(0)  # everact: allow

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def look(self) -> int:
        return 1


async def test_a_run_whose_query_waits_for_a_restart_is_terminated_at_once(monkeypatch):
    monkeypatch.setattr(restarts, "LIMIT", RestartLimit(backoff=Backoff(first=3600, longest=3600)))
    async with hosted(MemoryJournal(), Asked) as runtime:
        handle = await runtime.spawn(Asked.run, id="a")
        await settled(runtime)
        runtime._shard.find("a").drop_instance()
        TROUBLE.append(ValueError("once"))
        asking = asyncio.create_task(handle.query(Asked.look))
        await until(lambda: not TROUBLE)
        async with asyncio.timeout(10):
            await handle.terminate("now")
            with pytest.raises(WorkflowTerminatedError):
                await handle.result()
        asking.cancel()


async def test_an_activity_that_was_asked_to_stop_between_its_attempts_is_over_at_the_next_start(monkeypatch):
    """A10, R10: the process dies right behind the commit of the cancel; the next attempt is far beyond the horizon."""
    clock = ManualClock()
    journal = MemoryJournal()
    monkeypatch.setattr(compaction, "WINDOW", 1)
    monkeypatch.setattr(compaction, "WINDOW_PER_RUN", 0)

    @activity.defn(
        retry_policy=RetryPolicy(
            initial_interval=timedelta(days=1), maximum_interval=timedelta(days=9), jitter=0
        ),
        cancellation_type="wait_cancellation_completed",
    )
    async def fails() -> None:
        raise ValueError("no")

    @workflow.defn
    class Waits:
        @workflow.run
        async def run(self) -> None:
            await fails()

    @workflow.defn
    class Noise:
        @workflow.run
        async def run(self) -> None:
            return None

    options = {"activities": [fails], "clock": clock}
    with monkeypatch.context() as dead:
        dead.setattr(Dispatcher, "_stop", lambda *_args: None)  # the process died before it came to that
        async with hosted(journal, Waits, Noise, **options) as runtime:
            handle = await runtime.spawn(Waits.run, id="a")
            await until(lambda: runtime._shard.find("a").state.activities[1].attempt == 2)
            await handle.cancel()
            await settled(runtime)
            for _ in range(8):  # the log is moved
                await runtime.execute(Noise.run)
    async with hosted(journal, Waits, Noise, **options) as runtime:
        await settled(runtime)
        assert await runtime.count_workflows(status="cancelled") == 1


async def test_what_a_heartbeat_said_in_a_commit_that_failed_goes_with_the_failure():
    store = TroubledStore(MemoryStore(MemoryJournal()))
    found: list[object] = []
    go_on = asyncio.Event()

    @activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), jitter=0))
    async def fn() -> None:
        found.append(list(activity.info().heartbeat_details))
        if activity.info().attempt == 1:
            activity.heartbeat("half")
            await go_on.wait()
            raise ValueError("again")

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await fn()

    async with hosted(store, W, activities=[fn]) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        store.failures.append("before")
        writer = runtime._shard.writer
        await until(lambda: runtime._shard.writer is not writer)
        await settled(runtime)
        go_on.set()
        await handle.result()
    assert found == [[], ["half"]]


async def test_nobody_outside_learns_of_an_end_or_a_cancel_that_is_not_durable():
    """R5: a second completion, and a heartbeat of what the run has cancelled, wait for what they have read."""
    store = TroubledStore(MemoryStore(MemoryJournal()))
    tokens: list[str] = []

    @activity.defn(cancellation_type="wait_cancellation_completed")
    async def outside() -> str:
        tokens.append(activity.info().task_token)
        activity.raise_complete_async()

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            return await outside()

    async with hosted(store, W, activities=[outside]) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        await until(lambda: tokens and runtime._shard.find("a").state.activities[1].deadline)
        await settled(runtime)
        token = runtime.activity_handle(tokens[0])
        store.hold()
        calls = [asyncio.create_task(handle.cancel())]
        await store.held()
        calls.append(asyncio.create_task(token.heartbeat()))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(call.done() for call in calls)
        store.release()
        with pytest.raises(ActivityCancelledError):
            await calls[1]
        await calls[0]
        await settled(runtime)
        store.hold()
        calls = [asyncio.create_task(token.complete(word)) for word in ("one", "two")]
        await store.held()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(call.done() for call in calls)
        store.release()
        await calls[0]
        with pytest.raises(ActivityNotPendingError):
            await calls[1]


async def test_a_completion_that_waits_while_the_journal_cannot_be_opened_is_unknown_and_kept(codecs):
    """It is paid for and cannot be taken back: "nothing was written" would be wrong once the journal is back."""
    store = TroubledStore(MemoryStore(MemoryJournal()))
    tokens: list[str] = []

    @activity.defn
    async def outside() -> str:
        tokens.append(activity.info().task_token)
        activity.raise_complete_async()

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            return await outside()

        @workflow.signal
        def note(self) -> None:
            pass

    async with hosted(store, W, activities=[outside], codecs=codecs) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        await until(lambda: tokens and runtime._shard.find("a").state.activities[1].deadline)
        await settled(runtime)
        for _ in range(2):  # the second rebuild in a row comes after a pause
            store.failures.append("before")
            with pytest.raises(CommitUnknownError):
                await handle.signal(W.note)
        assert runtime._shard.writer.error is not None
        store.reopen_errors.append(JournalAccessError("not just now"))
        token = runtime.activity_handle(tokens[0])
        with pytest.raises(CommitUnknownError):
            await token.complete("paid")
        await until(lambda: runtime._shard.outage.cause is None and runtime._shard.writer.error is None)
        with pytest.raises(ActivityNotPendingError):
            await token.complete("paid")
        assert await handle.result() == "paid"


async def test_a_query_that_waits_for_a_run_hears_at_once_that_it_was_replaced(monkeypatch):
    monkeypatch.setattr(restarts, "LIMIT", RestartLimit(backoff=Backoff(first=3600, longest=3600)))
    async with hosted(MemoryJournal(), Asked) as runtime:
        TROUBLE.append(ValueError("once"))
        handle = await runtime.spawn(Asked.run, id="a")
        asking = asyncio.create_task(handle.query(Asked.look, timeout=3600))
        await settled(runtime)
        await runtime.spawn(Asked.run, id="a", if_running="replace")
        async with asyncio.timeout(10):
            with pytest.raises(QueryFailedError):
                await asking
