"""Chapter G: deadlines are moments that were recorded; losers of races and long histories hold nothing up."""

import asyncio
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from support.clock import ManualClock
from support.hosting import hosted, kinds, tick

from everact import RetryPolicy, activity, workflow
from everact.journal.memory_store import MemoryJournal
from everact.testing import TestEnvironment

HOUR = 3600
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    "steps",
    [[-2 * HOUR, 3 * HOUR], [2 * HOUR, -3 * HOUR], [-86_400], [30 * 86_400], [0.5 * HOUR, -0.5 * HOUR]],
)
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("wait", ["sleep", "condition"])
async def test_g01_timers_fire_once_not_before_their_recorded_moment_and_in_due_order(steps, restarts, wait):
    clock, journal = ManualClock(), MemoryJournal()
    fired: list[tuple[int, int]] = []

    @workflow.defn
    class Timer:
        @workflow.run
        async def run(self, number: int) -> None:
            seconds = HOUR + (number * 37) % 100
            try:
                if wait == "sleep":
                    await workflow.sleep(seconds)
                else:
                    await workflow.wait_condition(lambda: False, timeout=seconds)
            except TimeoutError:
                pass
            fired.append((seconds, clock.wall()))

    began = clock.wall()
    async with hosted(journal, Timer, clock=clock) as runtime:
        for number in range(100):
            await runtime.spawn(Timer, number, id=str(number))
    for step in steps:
        if not restarts:
            break
        clock.set_back(-step)
        async with hosted(journal, Timer, clock=clock) as runtime:
            await tick(runtime, clock, 1)
    async with hosted(journal, Timer, clock=clock) as runtime:
        for step in steps if not restarts else ():
            clock.set_back(-step)
            await tick(runtime, clock, 1)
        for _ in range(30):  # whatever the steps were, this goes past the last of them
            await tick(runtime, clock, HOUR)
        for number in range(100):
            await runtime.ref(str(number), Timer).result()
        history = await runtime.ref("7", Timer).fetch_history()
    assert [seconds for seconds, _at in fired] == sorted({seconds for seconds, _at in fired})
    assert len(fired) == 100
    assert all(at >= began + seconds * 1_000_000 for seconds, at in fired)
    assert kinds(history).count("TimerFired") == 1


@activity.defn
async def never() -> None:
    raise NotImplementedError


@workflow.defn
class Child:
    @workflow.run
    async def run(self) -> None:
        await workflow.sleep(86_400)


@workflow.defn
class Waits:
    def __init__(self) -> None:
        self.asked_at: float | None = None

    @workflow.run
    async def run(self, what: str) -> float:
        begun = workflow.time()
        try:
            match what:
                case "receive":
                    await workflow.wait_for_signal("mail", timeout=60)
                case "condition":
                    await workflow.wait_condition(lambda: False, timeout=60)
                case "child":
                    async with asyncio.timeout(60):
                        await workflow.execute_child_workflow(Child)
                case "activity":
                    await workflow.execute_activity(never, schedule_to_close_timeout=60)
                case "retries":
                    policy = RetryPolicy(
                        initial_interval=13, backoff_coefficient=1, maximum_attempts=0, jitter=0
                    )
                    await workflow.execute_activity(
                        "fails", schedule_to_close_timeout=60, retry_policy=policy
                    )
                case "wait_for":
                    await asyncio.wait_for(asyncio.Event().wait(), 60)
                case "gathered":
                    await asyncio.gather(
                        workflow.wait_condition(lambda: False, timeout=60), workflow.sleep(86_400)
                    )
        except Exception:  # noqa: BLE001 - the time is the point
            return workflow.time() - begun
        raise AssertionError("no limit")


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize(
    "what", ["receive", "condition", "child", "activity", "retries", "wait_for", "gathered"]
)
async def test_g03_a_limit_counts_from_the_first_call_over_restarts(what, dies):
    async with TestEnvironment(workflows=[Waits, Child]) as env:

        @env.mock_activity(never)
        async def _() -> None:
            await env.sleep(86_400)

        env.mock_activity("fails", raises=ConnectionError)
        handle = await env.spawn(Waits, what)
        for _ in range(2):
            await env.sleep(20)
            await (env.crash() if dies else env.restart())
        spent = await handle.result()
        history = await handle.fetch_history()
    # No further attempt is waited for that would begin behind the limit: 4 x 13 s.
    assert (spent == 60) if what != "retries" else (52 <= spent <= 60)
    assert kinds(history).count("TimerStarted") <= 2


@workflow.defn
class Nightly:
    @workflow.run
    async def run(self) -> str:
        begins = workflow.now().astimezone(BERLIN).replace(fold=0)
        started.append(begins.isoformat())  # everact: allow
        return ""


started: list[str] = []


@pytest.mark.parametrize(
    ("begin", "schedule", "expected"),
    [
        # In spring 02:00 is followed by 03:00: what was due in the hour that is not there runs at once behind it.
        (
            "2026-03-27 12:00",
            "30 2 * * *",
            ["03-28T02:30:00+01:00", "03-29T03:00:00+02:00", "03-30T02:30:00+02:00"],
        ),
        # In autumn 02:30 comes twice: the fixed time runs once.
        (
            "2026-10-23 12:00",
            "30 2 * * *",
            ["10-24T02:30:00+02:00", "10-25T02:30:00+02:00", "10-26T02:30:00+01:00"],
        ),
        (
            "2026-03-27 12:00",
            "0 3 * * *",
            ["03-28T03:00:00+01:00", "03-29T03:00:00+02:00", "03-30T03:00:00+02:00"],
        ),
    ],
)
async def test_g04_each_nominal_time_of_a_schedule_is_one_run_where_clocks_change(begin, schedule, expected):
    started.clear()
    at = datetime.fromisoformat(begin).replace(tzinfo=BERLIN).astimezone(UTC)
    async with TestEnvironment(workflows=[Nightly], start_time=at, replay=False) as env:
        await env.spawn(Nightly, id="n", cron_schedule=schedule, time_zone="Europe/Berlin")
        await env.sleep(timedelta(hours=12 + 2 * 24 + 6))
        await env.ref("n").terminate()
    assert started == [f"2026-{moment}" for moment in expected]


@pytest.mark.parametrize("begin", ["2026-03-28 12:00", "2026-10-24 12:00"])
async def test_g04_a_host_that_was_down_over_the_change_makes_up_for_one_run_only(begin):
    started.clear()
    clock, journal = ManualClock(), MemoryJournal()
    at = datetime.fromisoformat(begin).replace(tzinfo=BERLIN)
    clock.set_back(clock.wall() / 1_000_000 - at.timestamp())
    async with hosted(journal, Nightly, clock=clock) as runtime:
        await runtime.spawn(Nightly, id="n", cron_schedule="30 2 * * *", time_zone="Europe/Berlin")
    clock.advance(48 * HOUR)
    for _ in range(2):  # the second start finds nothing to make up for
        async with hosted(journal, Nightly, clock=clock) as runtime:
            await tick(runtime, clock, 1)
            await tick(runtime, clock, 1)
            assert len(started) == 1


@workflow.defn
class Races:
    def __init__(self) -> None:
        self.came = asyncio.Event()

    @workflow.run
    async def run(self, how: str) -> str:
        match how:
            case "wait":
                event = asyncio.create_task(self.came.wait())
                timer = asyncio.create_task(workflow.sleep(300))
                await asyncio.wait([event, timer], return_when=asyncio.FIRST_COMPLETED)
            case "left":
                asyncio.create_task(workflow.sleep(300))  # noqa: RUF006 - nobody waits for it
                await self.came.wait()
            case "timeout":
                async with asyncio.timeout(300):
                    await self.came.wait()
            case "condition":
                await workflow.wait_condition(self.came.is_set, timeout=300)
            case "first":
                waits = [asyncio.create_task(workflow.sleep(300 + n)) for n in range(50)]
                await asyncio.wait(
                    [*waits, asyncio.create_task(self.came.wait())], return_when="FIRST_COMPLETED"
                )
        return how

    @workflow.signal
    def come(self) -> None:
        self.came.set()


@pytest.mark.parametrize("how", ["wait", "left", "timeout", "condition", "first"])
async def test_g05_the_run_completes_when_the_event_has_won_and_its_timer_is_gone(how):
    async with TestEnvironment(workflows=[Races]) as env:
        begun = env.now()
        handle = await env.spawn(Races, how)
        await env.sleep(1)
        await handle.signal(Races.come)
        assert await handle.result() == how
        assert env.now() - begun == timedelta(seconds=1)
        assert (await handle.describe()).timers == ()
        await env.sleep(600)
        assert "TimerFired" not in kinds(await handle.fetch_history())


@workflow.defn
class Polls:
    def __init__(self) -> None:
        self.done = 0

    @workflow.run
    async def run(self, rounds: int) -> list[object]:
        for number in range(rounds):
            await workflow.sleep(60)
            self.done += await workflow.execute_activity("poll", number, result_type=int)
        suggested = workflow.info().continue_as_new_suggested
        await workflow.wait_for_signal("end")
        return [self.done, suggested]

    @workflow.query
    def count(self) -> int:
        return self.done


@pytest.mark.parametrize(("rounds", "suggested"), [(300, False), (5_000, True)])
async def test_g06_a_polling_loop_of_any_length_goes_on_after_a_restart(rounds, suggested):
    """Each of its turns was short; the replay of them all is longer than a turn may be, and is not held against it."""
    async with TestEnvironment(workflows=[Polls]) as env:
        polled = env.mock_activity("poll", returns=1)
        handle = await env.spawn(Polls, rounds)
        await env.sleep(60 * rounds + 1)
        await env.restart()
        assert await handle.query(Polls.count) == rounds
        await env.crash()
        await handle.signal("end")
        assert await handle.result() == [rounds, suggested]
        assert polled.call_count == rounds
