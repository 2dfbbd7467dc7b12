"""Pause and resume: nothing is handled meanwhile, and nothing is lost (R1, R2, R10, R13)."""

import asyncio
from datetime import timedelta

import pytest
from support.clock import ManualClock
from support.codecs import Wrapping
from support.hosting import gate, hosted, kinds, settled, tick, until

from everact import RetryPolicy, activity, workflow
from everact.actors import controls
from everact.exceptions import (
    RequestIdReusedError,
    UpdateRejectedError,
    WorkflowBacklogFullError,
    WorkflowCancelledError,
    WorkflowClosedError,
    WorkflowNotFoundError,
    WorkflowQuarantinedError,
    WorkflowTerminatedError,
)
from everact.journal.memory_store import MemoryJournal


@workflow.defn(name="Log")
class Log:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.is_over = False

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: self.is_over)
        return self.seen

    @workflow.signal
    def add(self, text: str) -> None:
        self.seen.append(text)

    @workflow.signal
    def end(self) -> None:
        self.is_over = True

    @workflow.update
    def change(self, text: str) -> int:
        self.seen.append(text)
        return len(self.seen)

    @change.validator
    def check(self, text: str) -> None:
        if text in self.seen:
            raise ValueError(f"{text} is there")

    @workflow.query
    def look(self) -> list[str]:
        return self.seen


@workflow.defn(name="Log")
class BrokenLog(Log):
    def __init__(self) -> None:
        raise ValueError("not yet")

    @workflow.run
    async def run(self) -> list[str]:
        return []


@pytest.fixture(params=["plain", "codecs"])
def options(request):
    return {"codecs": [Wrapping()]} if request.param == "codecs" else {}


async def test_messages_to_a_paused_run_wait_and_are_handled_in_order_when_it_is_resumed(options):
    async with hosted(MemoryJournal(), Log, **options) as runtime:
        handle = await runtime.spawn(Log.run, id="a")
        await handle.signal(Log.add, "1")
        await handle.pause("to have a look")
        for text in "234":
            await handle.signal(Log.add, text)
        described = await handle.describe()
        assert (described.status, described.backlog) == ("paused", 3)
        assert described.pause_reason == "to have a look"
        assert described.waiting_on.startswith("resume; condition at ")
        assert [line.status for line in await runtime.list_workflows(status="paused")] == ["paused"]
        assert await runtime.count_workflows(status="paused") == 1
        assert await runtime.count_workflows(status="running") == 0
        assert await handle.query(Log.look) == ["1"]  # from the last turn
        update = asyncio.create_task(handle.execute_update(Log.change, "5"))
        await settled(runtime)
        assert not update.done()
        await handle.resume()
        assert await update == 5
        assert (await handle.describe()).pause_reason is None
        assert [line.status for line in await runtime.list_workflows()] == ["running"]
        await handle.signal(Log.end)
        assert await handle.result() == list("12345")


async def test_a_paused_run_stays_paused_through_further_starts(tmp_journal):
    async with hosted(tmp_journal, Log) as runtime:
        handle = await runtime.spawn(Log.run, id="a")
        await handle.pause()
        for number in range(5):
            await runtime.spawn(Log.run, id=f"other-{number}")
    for number in range(3):
        async with hosted(tmp_journal, Log) as runtime:
            handle = runtime.ref("a", Log)
            await handle.signal(Log.add, str(number))
            described = await handle.describe()
            assert (described.status, described.backlog) == ("paused", number + 1)
            assert await runtime.count_workflows(status="paused") == 1
    async with hosted(tmp_journal, Log) as runtime:
        handle = runtime.ref("a", Log)
        await handle.resume()
        await handle.signal(Log.end)
        assert await handle.result() == ["0", "1", "2"]


async def test_pause_and_resume_are_idempotent_and_a_late_repeat_does_nothing():
    async with hosted(MemoryJournal(), Log) as runtime:
        handle = await runtime.spawn(Log.run)
        await handle.resume()  # it is not paused
        await handle.pause("look", request_id="p")
        await handle.pause("look", request_id="p")
        await handle.pause("another")
        assert (await handle.describe()).pause_reason == "look"
        await handle.resume(request_id="r")
        await handle.pause("look", request_id="p")  # arrives late
        await handle.resume(request_id="r")
        assert (await handle.describe()).status == "running"
        assert kinds(await handle.fetch_history())[2:] == ["RunPaused", "RunResumed"]
        with pytest.raises(RequestIdReusedError):
            await handle.pause("something else", request_id="p")
        with pytest.raises(RequestIdReusedError):
            await handle.signal(Log.add, "x", request_id="p")
        await handle.signal(Log.end)
        await handle.result()
        for verb in (handle.pause, handle.resume):
            with pytest.raises(WorkflowClosedError):
                await verb()
        with pytest.raises(WorkflowNotFoundError):
            await runtime.ref("nobody").pause()


@pytest.mark.parametrize("reason", [7, None, b"x"])
async def test_the_reason_is_a_text(reason):
    async with hosted(MemoryJournal(), Log) as runtime:
        handle = await runtime.spawn(Log.run)
        for verb in (handle.pause, handle.resume, handle.release):
            with pytest.raises(TypeError, match="the reason must be a str"):
                await verb(reason)


async def test_timers_run_on_and_what_fell_due_is_handled_after_the_pause():
    clock = ManualClock()

    @workflow.defn
    class Naps:
        @workflow.run
        async def run(self) -> list[float]:
            start = workflow.time()
            times = []
            for _ in range(2):
                await workflow.sleep(10)
                times.append(workflow.time() - start)
            return times

    async with hosted(MemoryJournal(), Naps, clock=clock) as runtime:
        handle = await runtime.spawn(Naps.run)
        await handle.pause()
        await tick(runtime, clock, 100)
        described = await handle.describe()
        assert (described.status, described.backlog, described.timers) == ("paused", 1, ())
        await handle.resume()
        await settled(runtime)
        await tick(runtime, clock, 10)
        assert await handle.result() == [100.0, 110.0]


async def test_activities_go_on_with_their_retries_and_their_results_are_kept():
    slow = gate("slow")
    tries = []

    @activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=3))
    async def flaky() -> int:
        tries.append(activity.info().attempt)
        await slow.open.wait()
        if len(tries) < 3:
            raise OSError("not yet")
        return len(tries)

    @workflow.defn
    class Works:
        @workflow.run
        async def run(self) -> list[object]:
            return [
                *await asyncio.gather(
                    workflow.execute_activity(slow.fn, "x"), workflow.execute_activity(flaky)
                )
            ]

        @workflow.query
        def look(self) -> None: ...

    async with hosted(MemoryJournal(), Works, activities=[slow.fn, flaky]) as runtime:
        handle = await runtime.spawn(Works.run)
        await until(lambda: slow.calls and tries)
        await handle.pause()
        slow.open.set()
        await until(lambda: len(runtime._shard.find(handle.workflow_id).state.unread) == 2)
        assert (await handle.describe()).backlog == 2
        await handle.resume()
        assert await handle.result() == ["through", 3]
    assert (slow.calls, tries) == (["x"], [1, 2, 3])


async def test_a_pause_acts_at_receipt():
    """R2: before messages that have had no turn, sent in the same moment."""
    async with hosted(MemoryJournal(), Log) as runtime:
        handle = await runtime.spawn(Log.run)
        calls = [
            handle.signal(Log.add, "1"),
            handle.signal(Log.add, "2"),
            handle.pause(),
            handle.resume(),
            handle.pause(),
            handle.signal(Log.add, "3"),
        ]
        await asyncio.gather(*calls)
        assert await handle.query(Log.look) == []
        assert kinds(await handle.fetch_history())[2:] == [
            *["RunPaused", "RunResumed", "RunPaused"],
            *["SignalReceived"] * 3,
        ]
        await handle.resume()
        assert await handle.query(Log.look) == ["1", "2", "3"]


async def test_a_pause_stops_the_delivery_of_a_long_backlog():
    async with hosted(MemoryJournal(), Log) as runtime:
        handle = await runtime.spawn(Log.run)
        await handle.pause()
        for number in range(300):
            await handle.signal(Log.add, str(number))
        await asyncio.gather(handle.resume(), handle.pause())
        assert (await handle.describe()).backlog == 300
        await handle.resume()
        await handle.signal(Log.end)
        assert await handle.result() == [str(number) for number in range(300)]


async def test_a_cancel_is_kept_and_thrown_once_after_the_pause():
    async with hosted(MemoryJournal(), Log) as runtime:
        handle = await runtime.spawn(Log.run)
        await handle.pause()
        await handle.cancel("first")
        await handle.cancel("second")
        described = await handle.describe()
        assert described.cancel_requested and described.status == "paused"
        await handle.resume()
        with pytest.raises(WorkflowCancelledError, match="first"):
            await handle.result()
        assert kinds(await handle.fetch_history()).count("CancelRequested") == 1


async def test_terminate_ends_a_paused_run_and_what_it_had_received_are_dead_letters():
    async with hosted(MemoryJournal(), Log) as runtime:
        handle = await runtime.spawn(Log.run)
        await handle.pause()
        await handle.signal(Log.add, "lost")
        await handle.terminate("over")
        with pytest.raises(WorkflowTerminatedError):
            await handle.result()
        described = await handle.describe()
        assert [str(letter) for letter in described.dead_letters] == [
            "event 4 (add): it was not delivered before the run ended"
        ]
        assert (described.status, described.backlog, described.dead_letter_count) == ("terminated", 0, 1)


async def test_an_update_that_its_validator_refuses_after_the_pause_is_an_output():
    async with hosted(MemoryJournal(), Log) as runtime:
        handle = await runtime.spawn(Log.run)
        await handle.pause()
        updates = [asyncio.create_task(handle.execute_update(Log.change, "same")) for _ in range(2)]
        await settled(runtime)
        await handle.resume()
        first, second = await asyncio.gather(*updates, return_exceptions=True)
        assert first == 1
        assert isinstance(second, UpdateRejectedError)
        assert "same is there" in str(second)
        assert kinds(await handle.fetch_history()).count("UpdateFailed") == 1


async def test_a_run_that_has_not_begun_is_paused_and_begins_with_all_messages_when_resumed():
    """R1 (a): set-up, the messages in order, then main; a query waits for the first turn."""
    journal = MemoryJournal()
    async with hosted(journal, BrokenLog) as runtime:
        handle = await runtime.spawn(BrokenLog.run, id="a")
        with pytest.raises(WorkflowQuarantinedError):
            await handle.result()
    async with hosted(journal, Log) as runtime:
        handle = runtime.ref("a", Log)
        await handle.pause()
        await handle.release()
        for text in "123":
            await handle.signal(Log.add, text)
        query = asyncio.create_task(handle.query(Log.look))
        update = asyncio.create_task(handle.execute_update(Log.change, "4"))
        with pytest.raises(TimeoutError, match="query 'look' .* had no answer within 0.01 s"):
            await handle.query(Log.look, timeout=0.01)
        assert not query.done() and not update.done()
        assert (await handle.describe()).backlog == 5
        await handle.resume()
        assert await query == ["1", "2", "3", "4"]
        assert await update == 4
        history = await handle.fetch_history()
        turns = [record for _, record in history.records if getattr(record, "delivers", ())]
        assert [turn.delivers for turn in turns] == [(1, *turns[0].delivers[1:])]


@pytest.mark.parametrize("end", ["terminate", "leave"])
async def test_a_query_that_waits_for_the_first_turn_hears_that_there_is_none(end):
    journal = MemoryJournal()
    async with hosted(journal, BrokenLog) as runtime:
        handle = await runtime.spawn(BrokenLog.run, id="a")
        with pytest.raises(WorkflowQuarantinedError):
            await handle.result()
    async with hosted(journal, Log) as runtime:
        handle = runtime.ref("a", Log)
        await handle.pause()
        await handle.release()
        query = asyncio.create_task(handle.query(Log.look))
        await settled(runtime)
        assert not query.done()
        if end == "terminate":
            await handle.terminate()
            with pytest.raises(Exception, match="the run ended before its code had begun"):
                await query
    if end == "leave":
        with pytest.raises(Exception, match="the Runtime was left"):
            await query


async def test_the_backlog_of_a_paused_run_is_capped_by_refusal(monkeypatch):
    monkeypatch.setattr(controls, "BACKLOG", 2)
    async with hosted(MemoryJournal(), Log) as runtime:
        handle = await runtime.spawn(Log.run)
        await handle.pause()
        await handle.signal(Log.add, "1")
        update = asyncio.create_task(handle.execute_update(Log.change, "2"))
        await settled(runtime)
        for call in (handle.signal(Log.add, "3"), handle.execute_update(Log.change, "3")):
            with pytest.raises(WorkflowBacklogFullError, match="paused.*2 wait until the run goes on"):
                await call
        await handle.resume()
        assert await update == 2
        assert await handle.query(Log.look) == ["1", "2"]


async def test_starting_sees_a_paused_run_as_running():
    async with hosted(MemoryJournal(), Log) as runtime:
        handle = await runtime.spawn(Log.run, id="a")
        await handle.pause()
        with pytest.raises(Exception, match=r"already exists \(run .*, paused\) and if_running refuses"):
            await runtime.spawn(Log.run, id="a")
        again = await runtime.spawn(Log.run, id="a", if_running="attach")
        assert again.run_id == handle.run_id
        new = await runtime.spawn(Log.run, id="a", if_running="replace")
        assert (await new.describe()).status == "running"
