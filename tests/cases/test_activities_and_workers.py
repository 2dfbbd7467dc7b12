"""Chapter F: slots, threads, heartbeats and attempts, when workers are left, stall or die."""

import asyncio
import itertools
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from support.crashes import one_life
from support.hosting import hosted

from everact import RetryPolicy, WatchdogLimits, activity, workflow
from everact.exceptions import WorkflowCancelledError
from everact.journal.memory_store import MemoryJournal
from everact.testing import TestEnvironment

ONCE = RetryPolicy(maximum_attempts=1)
QUICK = RetryPolicy(initial_interval=0.001, maximum_attempts=5)


@workflow.defn
class Calls:
    @workflow.run
    async def run(self, name: str) -> object:
        return await workflow.execute_activity(name)


def sleep_in_thread(env, loop, seconds):
    """Virtual time for code in a thread."""
    asyncio.run_coroutine_threadsafe(env.sleep(seconds), loop).result()


@pytest.mark.parametrize("colour", ["async", "thread"])
@pytest.mark.parametrize("restarts", [1, 3])
async def test_f04_a_long_activity_survives_rolling_restarts_with_one_attempt(colour, restarts):
    """No grace at all: each life saves where it is, and none uses up the only attempt."""
    begun = threading.Event()

    def progress():
        return activity.heartbeat_details(int) or 0

    async def export() -> list[int]:
        done = progress()
        if done == restarts:
            return [done, activity.info().attempt]
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert activity.is_shutting_down()
            activity.heartbeat(done + 1)
        raise AssertionError

    def export_in_thread() -> list[int]:
        done = progress()
        if done == restarts:
            return [done, activity.info().attempt]
        begun.set()
        try:
            while True:
                time.sleep(0.001)
        finally:
            assert activity.is_shutting_down()
            activity.heartbeat(done + 1)

    work = activity.defn(name="export", retry_policy=ONCE)(export if colour == "async" else export_in_thread)
    async with TestEnvironment(workflows=[Calls], activities=[work]) as env:
        handle = await env.spawn(Calls, "export")
        for _ in range(restarts):
            await asyncio.to_thread(begun.wait, 20)
            begun.clear()
            await env.restart()
        assert await handle.result() == [restarts, 1]


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_f04_within_the_grace_time_an_activity_hears_of_the_end_and_finishes(colour):
    begun = threading.Event()

    async def export() -> str:
        begun.set()
        await activity.wait_for_shutdown()
        return "finished"

    def export_in_thread() -> str:
        begun.set()
        activity.wait_for_shutdown_sync()
        return "finished"

    work = activity.defn(name="export", retry_policy=ONCE)(export if colour == "async" else export_in_thread)
    async with TestEnvironment(workflows=[Calls], activities=[work], grace=20) as env:
        handle = await env.spawn(Calls, "export")
        await asyncio.to_thread(begun.wait, 20)
        await env.restart()
        assert await handle.result() == "finished"
        kinds = [event.kind for event in await handle.fetch_history()]
        assert kinds.count("ActivityCompleted") == 1
        assert "AttemptFailed" not in kinds


@pytest.mark.parametrize(("grace", "expected"), [(20, ["finished", 0, 1]), (0, ["went on", 7, 1])])
def test_f04_a_process_that_leaves_on_sigterm_loses_no_attempt(grace, expected, tmp_journal):
    program = Path(__file__).with_name("leaving_program.py")
    command = [sys.executable, "-W", "error", program, tmp_journal, str(grace)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == '"begun"\n'
        first.send_signal(signal.SIGTERM)
        said, _ = first.communicate(timeout=50)
    assert first.returncode == 0
    assert said == ""
    ended, lines, errors = one_life(program, tmp_journal, "20", limit=50)
    assert ended, errors
    assert lines == [expected]


async def test_f05_a_cancel_reaches_the_function_behind_a_helper_that_sends_heartbeats():
    told = []
    async with TestEnvironment(workflows=[Calls]) as env:

        async def beats() -> None:
            while True:
                await env.sleep(1)
                activity.heartbeat()

        @env.mock_activity("export")
        async def _() -> None:
            helper = asyncio.create_task(beats())
            try:
                await env.sleep(600)
            except asyncio.CancelledError:
                told.append(env.now() - begun)
                raise
            finally:
                helper.cancel()

        begun = env.now()
        handle = await env.spawn(Calls, "export")
        await env.sleep(5)
        await handle.cancel()
        with pytest.raises(WorkflowCancelledError):
            await handle.result()
        await env.sleep(1)
    assert told == [timedelta(seconds=5)]


@workflow.defn
class Limited:
    @workflow.run
    async def run(self) -> object:
        return await workflow.execute_activity("export", heartbeat_timeout=20, retry_policy=QUICK)


@pytest.mark.parametrize("beats", [0, 1, 30])
async def test_f05_when_the_helper_dies_the_function_is_told_within_the_limit(beats):
    told = []
    async with TestEnvironment(workflows=[Limited]) as env:

        @env.mock_activity("export")
        async def _() -> int:
            if activity.info().attempt > 1:
                return activity.info().attempt

            async def helper() -> None:
                for _ in range(beats):
                    await env.sleep(1)
                    activity.heartbeat()

            asyncio.create_task(helper())  # noqa: RUF006 - it dies, and nobody looks
            try:
                await env.sleep(600)
            except asyncio.CancelledError:
                told.append(round((env.now() - begun).total_seconds()))
                raise
            raise AssertionError("never told")

        begun = env.now()
        assert await env.execute(Limited) == 2
    assert told == [beats + 20]


@workflow.defn
class TwoSteps:
    @workflow.run
    async def run(self) -> list[object]:
        first = await workflow.execute_activity("export", heartbeat_timeout=20, retry_policy=QUICK)
        return [first, await workflow.execute_activity("next_step", first)]


@pytest.mark.parametrize("late", ["result", "error", "heartbeat"])
@pytest.mark.parametrize("when", ["beside attempt 2", "after attempt 2", "after the run"])
async def test_f06_what_a_given_up_attempt_says_too_late_changes_nothing(late, when):
    waits = {"beside attempt 2": 5, "after attempt 2": 15, "after the run": 200}[when]
    answered = []
    async with TestEnvironment(workflows=[TwoSteps]) as env:

        async def stalls() -> str:
            try:
                await env.sleep(600)
            except asyncio.CancelledError:
                await env.sleep(waits)
            answered.append(env.now())
            if late == "error":
                raise ValueError("late")
            if late == "heartbeat":
                activity.heartbeat("late")
            return "late"

        @env.mock_activity("export")
        async def _() -> str:
            if activity.info().attempt == 1:
                return await stalls()
            await env.sleep(10)
            return "second"

        following = env.mock_activity("next_step", returns="next", delay=60)
        handle = await env.spawn(TwoSteps)
        assert await handle.result() == ["second", "next"]
        await env.sleep(600)
        history = await handle.fetch_history()
    assert len(answered) == 1
    assert [call.args for call in following.calls] == [("second",)]
    kinds = [event.kind for event in history]
    assert (kinds.count("AttemptFailed"), kinds.count("ActivityCompleted")) == (1, 2)
    assert "late" not in [event.event.details for event in history if event.kind == "AttemptNoted"]


@workflow.defn
class Many:
    @workflow.run
    async def run(self, count: int) -> list[int]:
        calls = [
            workflow.execute_activity(
                "copies", n, result_type=int, start_to_close_timeout=5, retry_policy=ONCE
            )
            for n in range(count)
        ]
        return await asyncio.gather(*calls)


@pytest.mark.parametrize(("slots", "threads"), [(50, 4), (50, 1), (1, 7)])
async def test_f08_waiting_for_a_thread_does_not_count_as_the_time_of_an_attempt(slots, threads):
    loop = asyncio.get_running_loop()
    beside, most = itertools.count(), []
    running: set[int] = set()

    @activity.defn
    def copies(number: int) -> int:
        next(beside)
        running.add(number)
        most.append(len(running))
        sleep_in_thread(env, loop, 2)
        running.discard(number)
        return number

    async with TestEnvironment(
        workflows=[Many],
        activities=[copies],
        max_concurrent_activities=slots,
        max_activity_threads=threads,
    ) as env:
        assert await env.execute(Many, 50) == list(range(50))
    assert next(beside) == 50
    assert max(most) <= threads


async def test_f08_a_blocking_call_on_the_loop_is_named_and_harms_no_heartbeats_of_others(caplog):
    blocked, over = threading.Event(), threading.Event()

    @activity.defn(heartbeat_timeout=1, retry_policy=ONCE)
    def beats() -> str:
        while not over.is_set():
            activity.heartbeat()
            over.wait(0.01)
        return "alive"

    @activity.defn(heartbeat_timeout=1, retry_policy=ONCE)
    async def beats_on_the_loop() -> str:
        while not over.is_set():
            activity.heartbeat()
            await asyncio.sleep(0.01)
        return "alive"

    @activity.defn
    async def blocks() -> None:
        began = time.monotonic()
        while not caplog.records or time.monotonic() < began + 1.15:  # longer than the others' limit
            time.sleep(0.01)
        blocked.set()

    @workflow.defn
    class Beside:
        @workflow.run
        async def run(self) -> list[object]:
            names = ["beats", "beats_on_the_loop", "blocks"]
            return await asyncio.gather(*map(workflow.execute_activity, names))

    limits = WatchdogLimits(warn_after=0.05)
    async with hosted(
        MemoryJournal(), Beside, activities=[beats, beats_on_the_loop, blocks], watchdog=limits
    ) as runtime:
        handle = await runtime.spawn(Beside, id="beside")
        await asyncio.to_thread(blocked.wait, 20)
        over.set()
        assert await handle.result() == ["alive", "alive", None]
    named = caplog.records[0].getMessage()
    assert "'blocks'" in named
    assert "beside" in named


@pytest.mark.parametrize("name", ["deadly", "deadly_thread"])
def test_f11_a_slot_of_a_killed_worker_is_free_after_its_restart(name, tmp_journal):
    program = Path(__file__).with_name("killed_worker_program.py")
    assert one_life(program, tmp_journal, name, "1", limit=60)[0] is False
    ended, lines, said = one_life(program, tmp_journal, name, "2", limit=60)
    assert ended, said
    assert lines == [[[2, 2], [2, 1]]]


@workflow.defn
class ThreeSteps:
    @workflow.run
    async def run(self) -> list[object]:
        return [await workflow.execute_activity("one_step", number) for number in range(3)]


@pytest.mark.crash_everywhere(points=["journal.commit.before", "journal.commit.after"])
async def test_f10_no_crash_leaves_a_run_between_two_steps_in_a_single_file_queue():
    """At every commit of the life of two runs that share one slot."""
    async with TestEnvironment(workflows=[ThreeSteps], max_concurrent_activities=1) as env:
        env.mock_activity("one_step", side_effect=lambda number: number)
        handles = [await env.spawn(ThreeSteps, id=name) for name in ("first", "second")]
        for handle in handles:
            assert await handle.result() == [0, 1, 2]
