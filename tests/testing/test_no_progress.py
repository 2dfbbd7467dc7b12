"""What can never come fails at once, and the text says what each run waits for."""

import asyncio
import logging
import pickle
from contextlib import suppress

import pytest

from everact import activity, workflow
from everact.exceptions import PayloadCodecError, ResultTimeoutError, WorkflowTerminatedError
from everact.journal.memory_store import MemoryJournal
from everact.payloads import PayloadCodec
from everact.testing import ActivityNotMockedError, EndlessScheduleError, NoProgressError, TestEnvironment
from everact.testing import driver as driving


@workflow.defn
class Waits:
    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self, how: str) -> str:
        match how:
            case "signal":
                await workflow.wait_for_signal("go")
            case "condition":
                await workflow.wait_condition(lambda: "go" in self.words)
            case "child":
                await workflow.execute_child_workflow(Waits, "signal", id="kid")
            case "outside":
                await workflow.execute_activity(hands_over, start_to_close_timeout=86400)
            case "crash":
                raise ValueError("a bug")
            case "handler":
                await workflow.wait_condition(lambda: len(self.words) == 2)
            case "sleep":
                await workflow.sleep(3600)
            case "activity":
                await workflow.execute_activity("missing")
        return "well"

    @workflow.update
    async def answer(self) -> str:
        await workflow.wait_condition(lambda: "go" in self.words)
        return "answered"

    @workflow.query
    def heard(self) -> list[str]:
        return self.words


@activity.defn
async def hands_over() -> None:
    activity.raise_complete_async()


async def stuck(env, call):
    with pytest.raises(NoProgressError) as caught:
        await call
    del env
    return str(caught.value)


async def test_a_signal_a_condition_and_a_child():
    async with TestEnvironment(workflows=[Waits]) as env:
        text = await stuck(env, env.execute(Waits, "signal", id="w"))
        assert text == (
            "the result of workflow 'w' can never come: nothing runs, and nothing is due.\n"
            "time: 2026-01-01 00:00:00 UTC, jumps to what is due next while somebody waits for the environment\n"
            "workflow 'w' (Waits) waits for signal 'go'"
        )
        text = await stuck(env, env.execute(Waits, "condition", id="c"))
        lines = text.splitlines()[2:]
        assert lines[0].startswith("workflow 'c' (Waits) waits for condition at ")
        assert lines[0].endswith("test_no_progress.py:29")
        assert lines[1] == "workflow 'w' (Waits) waits for signal 'go'"
        text = await stuck(env, env.execute(Waits, "child", id="p"))
        assert "workflow 'p' (Waits) waits for child kid\n" in text
        assert "workflow 'kid' (Waits) waits for signal 'go'" in text


async def test_updates_and_their_handles():
    async with TestEnvironment(workflows=[Waits]) as env:
        handle = await env.spawn(Waits, "signal", id="w")
        text = await stuck(env, handle.execute_update(Waits.answer))
        assert text.startswith("the answer to update 'answer' of workflow 'w' can never come: ")
        accepted = await handle.start_update(Waits.answer)
        assert (await stuck(env, accepted.result())).startswith(
            "the answer to update 'answer' of workflow 'w' can never"
        )
        assert not accepted.done()


async def test_a_paused_run_and_its_backlog():
    async with TestEnvironment(workflows=[Waits]) as env:
        handle = await env.spawn(Waits, "signal", id="w")
        await handle.pause("lunch")
        await handle.signal("go")
        text = await stuck(env, handle.result())
        assert "workflow 'w' (Waits, paused (lunch)) waits for resume; signal 'go'\n" in text
        assert text.endswith("\n    1 received inputs are not handled")
        await handle.resume()
        assert await handle.result() == "well"


async def test_a_quarantined_run():
    async with TestEnvironment(workflows=[Waits]) as env:
        handle = await env.spawn(Waits, "crash", id="w")
        text = await stuck(env, handle.result(on_stall="wait"))
        assert "workflow 'w' (Waits, quarantined) waits for release\n    ValueError: a bug" in text


async def test_a_run_whose_type_is_not_registered():
    journal = MemoryJournal()
    async with TestEnvironment(workflows=[Waits], journal=journal) as env:
        await env.spawn(Waits, "signal", id="w")
    async with TestEnvironment(journal=journal) as env:
        text = await stuck(env, env.ref("w").result(on_stall="wait"))
        assert "workflow type 'Waits' is not registered: pass it in workflows=[...]" in text
        assert "workflow 'w' (Waits, held) waits for release" in text


async def test_an_activity_that_is_completed_outside_is_named_until_its_limit():
    async with TestEnvironment(workflows=[Waits], activities=[hands_over]) as env:
        handle = await env.spawn(Waits, "outside", id="w")
        with pytest.raises(ResultTimeoutError):
            await handle.result(timeout=60)
        assert (
            "activity 'hands_over' is completed from outside: env.runtime.activity_handle(...)"
            in env.report()
        )


async def test_many_runs_are_counted_and_the_one_that_is_asked_for_comes_first():
    async with TestEnvironment(workflows=[Waits]) as env:
        for n in range(30):
            await env.spawn(Waits, "signal", id=f"w-{n}")
        text = await stuck(env, env.ref("w-29").result())
        lines = text.splitlines()
        assert lines[2] == "workflow 'w-29' (Waits) waits for signal 'go'"
        assert lines[-1] == "and 10 more open workflows"


async def test_all_calls_that_wait_fail_and_later_ones_go_on():
    async with TestEnvironment(workflows=[Waits]) as env:
        handle = await env.spawn(Waits, "signal")
        errors = await asyncio.gather(handle.result(), handle.result(), return_exceptions=True)
        assert [type(error) for error in errors] == [NoProgressError, NoProgressError]
        await handle.signal("go")
        assert await handle.result() == "well"


@workflow.defn
class Ticks:
    @workflow.run
    async def run(self) -> str:
        return "tick"


async def test_the_end_of_a_schedule_never_comes():
    async with TestEnvironment(workflows=[Ticks], max_scheduled_runs=3) as env:
        text = await stuck(env, env.execute(Ticks, id="t", cron_schedule="0 6 * * *"))
        assert text.startswith(
            "the result of workflow 't' has not come after 3 runs: they follow each other by the schedule "
            "'0 6 * * *', until the workflow is cancelled or terminated. Wait for the first run alone by "
            "handle.result(follow_runs=False), or let time pass by env.sleep() or env.until(); more runs: "
            "TestEnvironment(max_scheduled_runs=...)\ntime: 2026-01-03 06:00:00 UTC"
        )
        with pytest.raises(EndlessScheduleError) as caught:
            await env.ref("t").result()
        assert (caught.value.schedule, caught.value.runs) == ("0 6 * * *", 3)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.args) == (str(caught.value), caught.value.args)
        hourly = await env.spawn(Ticks, id="h", cron_schedule="0 * * * *")
        assert await hourly.result(follow_runs=False) == "tick"
        await env.sleep(5 * 3600)
        waiting = asyncio.create_task(hourly.result())
        await env.sleep(3600)
        await hourly.terminate()
        with pytest.raises(WorkflowTerminatedError):
            await waiting
    with pytest.raises(ValueError, match="max_scheduled_runs"):
        TestEnvironment(max_scheduled_runs=0)


class Sleepy(PayloadCodec):
    def __init__(self, way):
        self.way = way
        self.sleep = asyncio.sleep

    async def encode(self, payloads):
        if self.way == "encode":
            await self.sleep(1)
        return payloads

    async def decode(self, payloads):
        if self.way == "decode":
            await self.sleep(1)
        return payloads


@pytest.mark.parametrize("way", ["encode", "decode"])
async def test_a_codec_cannot_sleep_by_the_time_that_it_holds(way):
    codec = Sleepy(way)
    with pytest.raises(
        RuntimeError,
        match="^a payload codec waits for a sleep of 1 s of its test environment, whose time stands still until the "
        "codec has ended: let it wait for something of its own$",
    ):
        async with TestEnvironment(workflows=[Ticks], codecs=[codec], replay=False) as env:
            codec.sleep = env.sleep
            with suppress(PayloadCodecError):
                await env.execute(Ticks)


async def test_a_codec_that_does_not_end_is_reported(caplog, monkeypatch):
    monkeypatch.setattr(driving, "PATIENCE", 0.01)
    codec, gate = Sleepy("encode"), asyncio.Event()
    gate.set()
    codec.sleep = lambda _seconds: gate.wait()
    async with TestEnvironment(workflows=[Waits], codecs=[codec]) as env:
        handle = await env.spawn(Waits, "signal")
        gate.clear()
        with caplog.at_level(logging.WARNING, "everact.testing"):
            waiting = asyncio.create_task(handle.result())
            signalled = asyncio.create_task(handle.signal("go"))
            while not caplog.records:
                await asyncio.sleep(0.001)
        assert "\ntime is held by payload codecs: calls that run: 1\n" in caplog.records[0].getMessage()
        gate.set()
        await signalled
        assert await waiting == "well"


async def test_a_cancellation_of_the_test_stays_one():
    async with TestEnvironment(workflows=[Waits]) as env:
        handle = await env.spawn(Waits, "signal")
        with env.time_held():
            waiting = asyncio.create_task(handle.result())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await handle.result()


async def test_a_report_says_how_time_moves(caplog, monkeypatch):
    monkeypatch.setattr(driving, "PATIENCE", 0.01)
    async with TestEnvironment(workflows=[Waits], time="manual") as env:
        assert (
            env.report() == "time: 2026-01-01 00:00:00 UTC, moved by env.advance() only\nno workflow is open"
        )
        with env.time_held():
            assert "\ntime is held by env.time_held()\n" in env.report()
        waiting = asyncio.create_task(env.sleep(5))
        with caplog.at_level(logging.WARNING, "everact.testing"):
            while not caplog.records:
                await asyncio.sleep(0.001)
        assert "moved by env.advance() only" in caplog.records[0].getMessage()
        await env.advance(5)
        await waiting


async def test_wrong_use_is_refused():
    env = TestEnvironment()
    for use in (env.report, lambda: env.time_held().__enter__()):
        with pytest.raises(RuntimeError, match="the TestEnvironment is not open: use it inside 'async with"):
            use()
    with pytest.raises(ValueError, match="time must be 'auto' or 'manual', not 'now'"):
        TestEnvironment(time="now")
    with pytest.raises(ValueError, match="store must be 'memory' or 'lmdb', not 'disk'"):
        TestEnvironment(store="disk")
    with pytest.raises(TypeError, match="seed must be an int, not '7'"):
        TestEnvironment(seed="7")
    with pytest.raises(TypeError, match="start_time must be a datetime, not 5"):
        TestEnvironment(start_time=5)
    with pytest.raises(ValueError, match="start_time needs a time zone"):
        TestEnvironment(start_time=__import__("datetime").datetime(2026, 1, 1))
    async with env:
        with pytest.raises(RuntimeError, match="this TestEnvironment is already entered; make another one"):
            await env.__aenter__()
        with pytest.raises(ValueError, match="advance"):
            await env.advance(-1)
        with pytest.raises(TypeError, match="sleep"):
            await env.sleep("x")


# --- time that is moved by hand


def manual(**options):
    return TestEnvironment(workflows=[Waits], time="manual", patience=0.01, **options)


async def test_with_manual_time_a_call_that_nobody_can_let_go_on_fails():
    async with manual() as env:
        with pytest.raises(NoProgressError) as caught:
            await env.execute(Waits, "sleep", id="w")
        assert str(caught.value) == (
            "the result of workflow 'w' can never come: with time=\"manual\" only env.advance(...) moves time, and no "
            "other task has gone on for 0.01 s. Start it with env.spawn(...), call env.advance(...), then wait.\n"
            "time: 2026-01-01 00:00:00 UTC, moved by env.advance() only\n"
            "next due: 2026-01-01 01:00:00 UTC\n"
            "workflow 'w' (Waits) waits for timer until 2026-01-01 01:00:00"
        )
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        with pytest.raises(NoProgressError, match="^a sleep of 5 s can never come"):
            await asyncio.wait_for(asyncio.gather(env.sleep(5)), 10)
        with pytest.raises(NoProgressError, match=r"^what env.until\(<lambda>\) waits for can never come"):
            await env.until(lambda: False)
        await env.advance(3600)


async def test_with_manual_time_a_call_waits_as_long_as_another_task_goes_on():
    async with manual() as env:
        waiting = asyncio.create_task(env.execute(Waits, "sleep"))
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while loop.time() < begun + 0.1:  # ten times its patience
            await asyncio.sleep(0.001)
        assert not waiting.done()
        await env.advance(3600)
        await waiting


async def test_with_manual_time_a_condition_is_seen_and_a_missing_activity_told():
    async with manual(strict=True) as env:
        seen = []
        waiting = asyncio.create_task(env.until(lambda: seen))
        await asyncio.sleep(0)
        seen.append(1)
        await asyncio.wait_for(waiting, 10)
        with pytest.raises(ActivityNotMockedError):
            await env.execute(Waits, "activity")
