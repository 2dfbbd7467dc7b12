"""What a start carries: limits of a run and of its chain, retries, a schedule, a delay."""

import asyncio
import builtins
import sys
from datetime import UTC, datetime, timedelta

import pytest
from support.clock import SECOND, START, ManualClock
from support.codecs import Wrapping, encrypted
from support.hosting import gate, hosted, kinds, settled, tick, until

from everact import ApplicationError, RetryPolicy, activity, workflow
from everact.actors import workflow_actor
from everact.exceptions import (
    JournalAccessError,
    UpdateCutError,
    WorkflowAlreadyStartedError,
    WorkflowCancelledError,
    WorkflowClosedError,
    WorkflowFailedError,
    WorkflowQuarantinedError,
    WorkflowTerminatedError,
    WorkflowTimeoutError,
)
from everact.journal.memory_store import MemoryJournal

MINUTE = 60


@workflow.defn
class Waits:
    """Waits until it is told to go; or fails, if it was started so."""

    def __init__(self) -> None:
        self.gone = False
        self.noted: list[str] = []

    @workflow.run
    async def run(self, how: str) -> list[str]:
        if how == "bug":
            raise ValueError("a bug")
        await workflow.wait_condition(lambda: self.gone)
        if how == "fail":
            raise ApplicationError("no", workflow.info().attempt)
        if how == "never again":
            raise ApplicationError("no", non_retryable=True)
        return self.noted

    @workflow.signal
    def go(self) -> None:
        self.gone = True

    @workflow.signal
    def note(self, text: str) -> None:
        self.noted.append(text)

    @workflow.update
    async def wait(self) -> str:
        await workflow.wait_condition(lambda: self.gone)
        return "gone"

    @workflow.query
    def all(self) -> list[str]:
        return self.noted


async def chain(runtime, workflow_id):
    found = [one for one in await runtime.list_workflows() if one.workflow_id == workflow_id]
    return [
        await runtime.ref(f"everact://local/{workflow_id}/{one.run_id}").describe() for one in reversed(found)
    ]


def at(seconds):
    return datetime.fromtimestamp(START / SECOND + seconds, UTC)


# --- limits


@pytest.mark.parametrize("codecs", [[], [encrypted]])
@pytest.mark.parametrize("option", ["run_timeout", "execution_timeout"])
async def test_a_run_that_takes_too_long_is_closed_at_once(option, codecs):
    """R1: what it has not handled are dead letters, callers of updates get an error; none of its code runs."""
    clock = ManualClock()
    async with hosted(MemoryJournal(), Waits, clock=clock, codecs=[one() for one in codecs]) as runtime:
        handle = await runtime.spawn(Waits, "x", id="a", **{option: timedelta(minutes=1)})
        assert (await handle.describe()).deadline == at(MINUTE)
        waiting = asyncio.create_task(handle.execute_update(Waits.wait))
        await settled(runtime)
        await handle.pause()
        await handle.signal(Waits.note, "late")
        unread = asyncio.create_task(handle.execute_update(Waits.wait))
        await settled(runtime)
        await tick(runtime, clock, 59)
        assert (await handle.describe()).status == "paused"
        await tick(runtime, clock, 1)
        for update in (waiting, unread):
            with pytest.raises(
                UpdateCutError, match="'a' is timed_out: it ended before update 'wait' was done"
            ):
                await update
        with pytest.raises(WorkflowFailedError, match=f"took longer than {option}=60 s") as caught:
            await handle.result()
        cause = caught.value.__cause__
        assert isinstance(cause, WorkflowTimeoutError) and isinstance(cause, builtins.TimeoutError)
        assert cause.option == option
        assert cause.caused_by(TimeoutError)
        seen = await handle.describe()
        assert (seen.status, seen.deadline, seen.continued_to) == ("timed_out", None, None)
        assert [letter.name for letter in seen.dead_letters] == ["note", "wait"]
        assert "took longer than" in seen.failure
        assert kinds(await handle.fetch_history())[-1] == "WorkflowTimedOut"
        with pytest.raises(WorkflowClosedError, match="timed_out"):
            await handle.signal(Waits.go)
        assert await runtime.count_workflows(status="timed_out") == 1
        again = await runtime.spawn(Waits, "x", id="a", if_closed="allow_if_failed")
        assert again.run_id != handle.run_id


async def test_limits_hold_for_runs_that_stand_still_and_across_restarts():
    """R13: held, quarantined; and of a run that is in no memory, brought in in time."""
    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Waits, clock=clock) as runtime:
        bug = await runtime.spawn(Waits, "bug", id="bug", run_timeout=60 * MINUTE)
        with pytest.raises(WorkflowQuarantinedError):
            await bug.result()
        held = await runtime.spawn(Waits, "x", id="held", run_timeout=60 * MINUTE)
        for _ in range(8):  # until its start has been moved into the tables
            await runtime.spawn(Waits, "x")
            await settled(runtime)
        assert "held" not in runtime._shard.newest
    async with hosted(journal, clock=clock) as runtime:
        await settled(runtime)
        assert (await runtime.ref("held").describe()).status == "held"
        await tick(runtime, clock, 30 * MINUTE)
        assert (await runtime.ref("held").describe()).status == "held"
    clock.advance(40 * MINUTE)
    async with hosted(journal, clock=clock) as runtime:
        await settled(runtime)
        assert {(await runtime.ref(name).describe()).status for name in ("bug", "held")} == {"timed_out"}
        del held


async def test_the_wall_clock_may_be_set():
    """R11: the limit is a time of the wall clock, as recorded; a clock that goes back makes it no sooner."""
    clock = ManualClock()
    async with hosted(MemoryJournal(), Waits, clock=clock) as runtime:
        handle = await runtime.spawn(Waits, "x", run_timeout=MINUTE)
        clock.set_back(3600)
        await tick(runtime, clock, 59)
        assert (await handle.describe()).status == "running"
        clock.set_back(-3600)
        await tick(runtime, clock, 2)
        assert (await handle.describe()).status == "timed_out"


async def test_the_limit_of_a_run_begins_anew_with_each_and_that_of_the_chain_does_not():
    clock = ManualClock()

    @workflow.defn
    class Goes:
        @workflow.run
        async def run(self) -> None:
            info = workflow.info()
            assert (info.run_timeout, info.execution_timeout) == (
                timedelta(seconds=60),
                timedelta(seconds=150),
            )
            await workflow.sleep(50)
            workflow.continue_as_new()

    async with hosted(MemoryJournal(), Goes, clock=clock) as runtime:
        handle = await runtime.spawn(Goes, id="a", run_timeout=60, execution_timeout=150)
        for _ in range(15):
            await tick(runtime, clock, 10)
        with pytest.raises(WorkflowFailedError, match="execution_timeout=150 s"):
            await handle.result()
        assert [one.status for one in await chain(runtime, "a")] == ["continued_as_new"] * 2 + ["timed_out"]


async def test_a_run_without_limits_arms_nothing():
    async with hosted(MemoryJournal(), Waits) as runtime:
        handle = await runtime.spawn(Waits, "x")
        await settled(runtime)
        assert not runtime._shard.timers._heap
        assert (await handle.describe()).deadline is None
        assert (await handle.fetch_history()).events[0].event.options is None


# --- retries


async def test_a_failed_run_is_followed_by_another_after_the_backoff():
    clock = ManualClock()
    journal = MemoryJournal()
    policy = RetryPolicy(initial_interval=10, maximum_attempts=3, jitter=0)
    async with hosted(journal, Waits, clock=clock) as runtime:
        handle = await runtime.spawn(Waits, "fail", id="a", retry_policy=policy, memo={"m": 1})
        waiting = asyncio.create_task(handle.result())
        await handle.signal(Waits.go)
        await settled(runtime)
        one, two = await chain(runtime, "a")
        assert (one.status, two.status, two.attempt) == ("failed", "running", 2)
        assert two.begins_at == at(10)
        assert two.memo == {"m": 1}
        assert one.continued_to == two.run_id
        with pytest.raises(WorkflowFailedError, match="ApplicationError: no"):
            await handle.result(follow_runs=False)
        with pytest.raises(WorkflowAlreadyStartedError):
            await runtime.spawn(Waits, "x", id="a")
        await handle.signal(Waits.go)  # received, handled when it begins
        assert not waiting.done()
        await tick(runtime, clock, 9.9)
        assert (await runtime.ref("a").describe()).history_length == 2
        await tick(runtime, clock, 0.2)
        assert (await runtime.ref("a").describe()).attempt == 3
        waiting.cancel()
    async with hosted(journal, Waits, clock=clock) as runtime:
        await tick(runtime, clock, 21)
        await runtime.ref("a", Waits).signal(Waits.go)
        with pytest.raises(WorkflowFailedError, match="ApplicationError: no") as caught:
            await runtime.ref("a", Waits).result()
        assert caught.value.__cause__.details == (3,)
        assert [one.attempt for one in await chain(runtime, "a")] == [1, 2, 3]


@pytest.mark.parametrize(
    "end", ["never again", "cancel", "terminate", "cancel and fail", "not retryable", "deadline"]
)
async def test_what_is_not_tried_again(end):
    clock = ManualClock()
    policy = RetryPolicy(
        initial_interval=10, non_retryable_error_types=["ApplicationError"] if end == "not retryable" else ()
    )
    options = {"execution_timeout": 5} if end == "deadline" else {}
    how = end if end == "never again" else "fail"
    stubborn = gate("stubborn")

    @workflow.defn
    class FailsAfterCancel:
        @workflow.run
        async def run(self, how: str) -> None:
            try:
                await workflow.sleep(1000)
            finally:
                raise ApplicationError("while it cleaned up")

    kind = FailsAfterCancel if end == "cancel and fail" else Waits
    async with hosted(
        MemoryJournal(), Waits, FailsAfterCancel, activities=[stubborn.fn], clock=clock
    ) as runtime:
        handle = await runtime.spawn(kind, how, id="a", retry_policy=policy, **options)
        await settled(runtime)
        match end:
            case "cancel" | "cancel and fail":
                await handle.cancel()
            case "terminate":
                await handle.terminate()
            case _:
                await handle.signal(Waits.go)
        with pytest.raises(WorkflowFailedError):
            await handle.result()
        assert len(await chain(runtime, "a")) == 1


async def test_a_run_that_was_too_slow_is_tried_again_its_dead_letters_stay():
    clock = ManualClock()
    policy = RetryPolicy(initial_interval=10, jitter=0)
    async with hosted(MemoryJournal(), Waits, clock=clock) as runtime:
        handle = await runtime.spawn(Waits, "x", id="a", retry_policy=policy, run_timeout=60)
        await handle.pause("look")
        await handle.signal(Waits.note, "late")
        await tick(runtime, clock, 61)
        one, two = await chain(runtime, "a")
        assert (one.status, two.status, two.pause_reason) == ("timed_out", "paused", "look")
        assert [letter.name for letter in one.dead_letters] == ["note"]
        assert two.backlog == 1  # its own start
        await handle.resume()
        await tick(runtime, clock, 11)
        assert (await runtime.ref("a").describe()).deadline == at(61 + 11 + 60)
        await handle.signal(Waits.go)
        assert await handle.result() == []


async def test_the_next_attempt_knows_why_the_last_one_failed():
    @workflow.defn
    class Knows:
        @workflow.run
        async def run(self) -> str:
            failure = workflow.last_failure()
            if failure is None:
                raise ApplicationError("first", "detail")
            assert not workflow.has_last_completion_result()
            assert workflow.last_completion_result(str) is None
            return f"{failure!r} {failure.details} {workflow.info().attempt}"

    for codecs in ([], [encrypted()]):
        async with hosted(MemoryJournal(), Knows, codecs=codecs) as runtime:
            policy = RetryPolicy(initial_interval=0.001, jitter=0)
            said = await runtime.execute(Knows, retry_policy=policy)
            assert said == "ApplicationError('first', 'detail') ('detail',) 2"


@pytest.mark.parametrize("codecs", [[], [encrypted]])
async def test_the_next_attempt_knows_that_the_last_one_took_too_long(codecs):
    @workflow.defn
    class Knows:
        @workflow.run
        async def run(self) -> str:
            failure = workflow.last_failure()
            if failure is None:
                await workflow.sleep(1000)
            assert isinstance(failure, WorkflowTimeoutError)
            return f"{failure} {failure.option}"

    clock = ManualClock()
    journal = MemoryJournal()
    options = {"clock": clock, "codecs": [one() for one in codecs]}
    policy = RetryPolicy(initial_interval=1, jitter=0, retry_on=[TimeoutError])
    async with hosted(journal, Knows, **options) as runtime:
        await runtime.spawn(Knows, id="a", retry_policy=policy, run_timeout=60)
        await settled(runtime)
        await tick(runtime, clock, 61)
    async with hosted(journal, Knows, **options) as runtime:
        await tick(runtime, clock, 2)
        assert await runtime.ref("a").result() == "the run took longer than run_timeout=60 s run_timeout"


async def test_the_error_may_say_when_the_next_attempt_is_due():
    clock = ManualClock()

    @workflow.defn
    class Says:
        @workflow.run
        async def run(self) -> int:
            if workflow.info().attempt == 1:
                raise ApplicationError("busy", next_retry_delay=timedelta(hours=1))
            return workflow.info().attempt

    async with hosted(MemoryJournal(), Says, clock=clock) as runtime:
        handle = await runtime.spawn(Says, id="a", retry_policy=RetryPolicy())
        await settled(runtime)
        assert (await runtime.ref("a").describe()).begins_at == at(3600)
        await tick(runtime, clock, 3601)
        assert await handle.result() == 2


# --- runs that begin later


@pytest.mark.parametrize("restart", [False, True])
async def test_a_delayed_run_begins_at_its_time(restart):
    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Waits, clock=clock) as runtime:
        handle = await runtime.spawn(Waits, "x", id="a", start_delay=timedelta(hours=1))
        seen = await handle.describe()
        assert (seen.begins_at, seen.status, seen.backlog) == (at(3600), "running", 1)
        assert seen.waiting_on == "its time to begin, 2023-11-14 23:13:20"
        await handle.signal(Waits.note, "early")
        with pytest.raises(TimeoutError):
            await handle.query(Waits.all, timeout=0.01)
        await tick(runtime, clock, 3590)
        if not restart:
            assert (await handle.describe()).history_length == 2
            await tick(runtime, clock, 11)
            assert await handle.query(Waits.all) == ["early"]
            assert (await handle.describe()).begins_at is None
    if restart:
        clock.advance(7200)
        async with hosted(journal, Waits, clock=clock) as runtime:
            await settled(runtime)
            assert await runtime.ref("a", Waits).query(Waits.all) == ["early"]


async def test_a_delayed_run_leaves_memory_and_comes_back_in_time():
    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Waits, clock=clock) as runtime:
        await runtime.spawn(Waits, "x", id="a", start_delay=timedelta(days=1))
        for _ in range(8):  # until its start has been moved into the tables
            await runtime.spawn(Waits, "x")
            await settled(runtime)
        assert "a" not in runtime._shard.newest
        for _ in range(25):
            await tick(runtime, clock, 3600)
        assert (await runtime.ref("a").describe()).begins_at is None


@pytest.mark.parametrize("verb", ["cancel", "terminate"])
@pytest.mark.parametrize("restart", [False, True])
async def test_a_delayed_run_can_be_cancelled_and_terminated(verb, restart):
    """A10: nothing of it stays behind."""
    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Waits, clock=clock) as runtime:
        handle = await runtime.spawn(Waits, "x", id="a", start_delay=3600, execution_timeout=7200)
        if not restart:
            await end(runtime, clock, verb)
        del handle
    if restart:
        async with hosted(journal, Waits, clock=clock) as runtime:
            await end(runtime, clock, verb)


async def end(runtime, clock, verb):
    handle = runtime.ref("a", Waits)
    updating = asyncio.create_task(handle.execute_update(Waits.wait))
    await until(lambda: len(runtime._shard.find("a").state.unread) == 2)
    await getattr(handle, verb)("no more")
    with pytest.raises(
        WorkflowCancelledError if verb == "cancel" else WorkflowTerminatedError, match="no more"
    ):
        await handle.result()
    with pytest.raises(UpdateCutError):
        await updating
    runtime._shard.timers.sweep()
    assert not runtime._shard.timers._heap
    await tick(runtime, clock, 8000)
    assert len(await chain(runtime, "a")) == 1
    assert "the run ended before its code had begun" in str(
        await asyncio.gather(handle.query(Waits.all), return_exceptions=True)
    )


async def test_an_execution_timeout_counts_the_delay_and_a_run_timeout_does_not():
    clock = ManualClock()
    async with hosted(MemoryJournal(), Waits, clock=clock) as runtime:
        whole = await runtime.spawn(Waits, "x", start_delay=100, execution_timeout=60)
        single = await runtime.spawn(Waits, "x", start_delay=100, run_timeout=60)
        assert (await whole.describe()).deadline == at(60)
        assert (await single.describe()).deadline is None
        await tick(runtime, clock, 61)
        assert (await whole.describe()).status == "timed_out"
        await tick(runtime, clock, 50)
        assert (await single.describe()).deadline == at(111 + 60)
        await tick(runtime, clock, 59)
        assert (await single.describe()).status == "running"
        await tick(runtime, clock, 2)
        assert (await single.describe()).status == "timed_out"


async def test_a_delayed_start_is_found_by_its_request_and_can_be_replaced():
    async with hosted(MemoryJournal(), Waits) as runtime:
        first = await runtime.spawn(Waits, "x", id="a", start_delay=3600, request_id="q")
        again = await runtime.spawn(Waits, "x", id="a", start_delay=3600, request_id="q")
        assert again.run_id == first.run_id
        new = await runtime.spawn(Waits, "x", id="a", if_running="replace")
        assert (await first.describe()).status == "terminated"
        await new.signal(Waits.go)
        assert await new.result() == []


# --- schedules


@workflow.defn
class Nightly:
    @workflow.run
    async def run(self) -> int:
        count = workflow.last_completion_result(int) or 0
        if count == 1 and workflow.last_failure() is None:
            raise ApplicationError("this time not")
        return count + 1


async def test_a_schedule_starts_a_run_each_time():
    """START is a Tuesday, 22:13:20 UTC."""
    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Nightly, clock=clock) as runtime:
        handle = await runtime.spawn(Nightly, id="a", cron_schedule="0 6 * * *", time_zone="Europe/Berlin")
        seen = await handle.describe()
        assert seen.begins_at == datetime(2023, 11, 15, 5, tzinfo=UTC)
        assert seen.cron_schedule == "0 6 * * *"
        await tick(runtime, clock, 8 * 3600)
        one, two = await chain(runtime, "a")
        assert (one.status, two.begins_at) == ("completed", datetime(2023, 11, 16, 5, tzinfo=UTC))
        assert await handle.result(follow_runs=False) == 1
    async with hosted(journal, Nightly, clock=clock) as runtime:
        await tick(runtime, clock, 24 * 3600)
        await tick(runtime, clock, 24 * 3600)
        assert [one.status for one in await chain(runtime, "a")] == [
            "completed", "failed", "completed", "running",
        ]  # fmt: skip
        ran = (await chain(runtime, "a"))[2]
        assert await runtime.ref(f"everact://local/a/{ran.run_id}").result(follow_runs=False) == 2
        assert ran.attempt == 1
        await runtime.ref("a").cancel("enough")
        await tick(runtime, clock, 48 * 3600)
        assert (await chain(runtime, "a"))[-1].status == "cancelled"
        assert len(await chain(runtime, "a")) == 4


async def test_times_that_pass_while_a_run_goes_on_are_left_out():
    clock = ManualClock()
    async with hosted(MemoryJournal(), Waits, clock=clock) as runtime:
        handle = await runtime.spawn(Waits, "x", id="a", cron_schedule="@hourly")
        await tick(runtime, clock, 3600)
        await tick(runtime, clock, 10 * 3600)
        assert len(await chain(runtime, "a")) == 1
        await handle.signal(Waits.go)
        await settled(runtime)
        _one, two = await chain(runtime, "a")
        assert two.begins_at > at(11 * 3600)
        assert two.begins_at <= at(12 * 3600)


async def test_a_failed_run_is_first_tried_again_then_its_schedule_goes_on():
    clock = ManualClock()
    policy = RetryPolicy(initial_interval=1, maximum_attempts=2, jitter=0)
    async with hosted(MemoryJournal(), Waits, clock=clock) as runtime:
        handle = await runtime.spawn(Waits, "fail", id="a", cron_schedule="@hourly", retry_policy=policy)
        await tick(runtime, clock, 3600)
        for _ in range(2):
            await handle.signal(Waits.go)
            await tick(runtime, clock, 2)
        assert [one.attempt for one in await chain(runtime, "a")] == [1, 2, 1]


async def test_a_bug_ends_no_chain_and_begins_no_run():
    clock = ManualClock()
    async with hosted(MemoryJournal(), Waits, clock=clock) as runtime:
        handle = await runtime.spawn(
            Waits, "bug", id="a", cron_schedule="@hourly", retry_policy=RetryPolicy()
        )
        await tick(runtime, clock, 3600)
        with pytest.raises(WorkflowQuarantinedError):
            await handle.result()
        assert len(await chain(runtime, "a")) == 1


# --- what is refused


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"run_timeout": 0}, ValueError, "run_timeout must be more than 0"),
        ({"execution_timeout": -1}, ValueError, "execution_timeout must be between 0 and 100 years, not -1"),
        ({"run_timeout": "1m"}, TypeError, "run_timeout must be a timedelta or a number of seconds, not '1m'"),
        ({"retry_policy": 3}, TypeError, "retry_policy must be a RetryPolicy, not 3"),
        ({"start_delay": -1}, ValueError, "start_delay must be between"),
        ({"start_delay": 1, "cron_schedule": "@daily"}, ValueError, "start_delay and cron_schedule do not go together"),
        ({"cron_schedule": "every day"}, ValueError, "cron_schedule must be five fields such as"),
        ({"cron_schedule": "99 * * * *"}, ValueError, "not '99 \\* \\* \\* \\*': Bad minute"),
        ({"cron_schedule": 5}, TypeError, "cron_schedule must be a str, not 5"),
        ({"cron_schedule": "@daily", "time_zone": "Mars/Base"}, ValueError, "time_zone 'Mars/Base' is not known here"),
        ({"time_zone": "UTC"}, ValueError, "time_zone is that of a cron_schedule, and there is none"),
    ],
)  # fmt: skip
async def test_options_that_cannot_be_are_refused_at_the_call(options, error, text):
    async with hosted(MemoryJournal(), Waits) as runtime:
        with pytest.raises(error, match=text):
            await runtime.spawn(Waits, "x", **options)
        assert await runtime.count_workflows() == 0
        assert (await runtime.spawn(Waits, "x", run_timeout=None, start_delay=0)).run_id


async def test_without_its_package_a_schedule_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cronsim", None)
    async with hosted(MemoryJournal(), Waits) as runtime:
        with pytest.raises(ImportError, match=r"pip install 'everact\[schedules\]'"):
            await runtime.spawn(Waits, "x", cron_schedule="@daily")
        assert activity is not None


@pytest.mark.parametrize("codecs", [[], [encrypted], [Wrapping]])
async def test_an_end_whose_arguments_cannot_be_read_just_now_is_tried_again(codecs, monkeypatch, caplog):
    """The next run starts with the arguments of this one, which only the journal has."""
    clock = ManualClock()
    policy = RetryPolicy(initial_interval=1, jitter=0, maximum_attempts=2)
    monkeypatch.setattr(workflow_actor, "READ_PAUSE", 0.001)
    async with hosted(MemoryJournal(), Waits, clock=clock, codecs=[codec() for codec in codecs]) as runtime:
        handle = await runtime.spawn(Waits, "fail", id="a", retry_policy=policy)
        await settled(runtime)
        shard, troubles = runtime._shard, [JournalAccessError("not now"), OSError("nor now")]
        first_event = shard.first_event

        def hiccup(actor):
            if troubles:
                raise troubles.pop()
            return first_event(actor)

        monkeypatch.setattr(shard, "first_event", hiccup)
        await handle.signal(Waits.go)
        await until(lambda: shard.find("a").state.started.chain is not None)
        assert not troubles
        await settled(runtime)
        one, two = await chain(runtime, "a")
        assert (one.status, two.attempt, two.status) == ("failed", 2, "running")
        assert kinds(await handle.fetch_history()).count("SignalReceived") == 1
        assert "cannot be read, trying again" in caplog.text
