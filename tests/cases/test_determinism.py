"""Chapter B: a run decides the same again, wherever and however its code is run once more."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.case_workflows import WAYS, WaitsForThree, fetch, follow
from support.crashes import read_journal

from everact import activity, workflow
from everact.exceptions import DeterminismWarning, ReplayFailedError
from everact.journal import events as ev
from everact.testing import Replayer, TestEnvironment


def decided(history):
    """What a run has decided, in its order."""
    return [
        (event.kind, event.event.command, event.event.activity_type)
        for event in history
        if event.kind == "ActivityScheduled"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_b01_every_standard_wait_gives_one_order_in_all_processes(way):
    """Without a cache: the process is begun anew in the middle, and others have other hash seeds."""
    async with TestEnvironment(workflows=[WaitsForThree], activities=[fetch, follow]) as env:
        handle = await env.spawn(WaitsForThree, way)
        await env.sleep(1)
        before = await handle.fetch_history()
        await env.restart()
        await handle.signal(WaitsForThree.proceed)
        log = await handle.result()
        history = await handle.fetch_history()
    assert sorted(log) == ["ant", "bee", "cat", "dog", "eel", "fox"]
    assert len(decided(history)) == 12
    replayer = Replayer(
        workflows=[WaitsForThree], activities=[fetch, follow], guard="strict", hash_seeds=[0, 1, 2]
    )
    report = replayer.replay_many([before, history])
    assert len(report.results) == 8


def test_b01_a_loop_of_ones_own_over_a_set_is_warned_of():
    """What no standard wait is, and no runtime can put in order."""

    @workflow.defn
    class LoopsOverASet:
        @workflow.run
        async def run(self) -> None:
            names = {"ant", "bee", "cat"}
            for name in names:
                await fetch(name)

    with pytest.warns(DeterminismWarning, match="awaiting in a loop over a set .* use a list or a dict"):
        TestEnvironment(workflows=[LoopsOverASet], activities=[fetch])


# --- B04


@activity.defn
async def work(what: str) -> str:
    return what


@workflow.defn
class Child:
    @workflow.run
    async def run(self) -> str:
        return workflow.info().workflow_id


def makes_a_child(change, id_from):
    """A deploy of one workflow: a child with an id, after a sleep."""

    @workflow.defn(name="MakesAChild")
    class MakesAChild:
        @workflow.run
        async def run(self) -> str:
            await workflow.sleep(3600)
            match change:
                case "a draw":
                    workflow.random().uniform(0, 1)
                case "a draw of another stream":
                    workflow.random("jitter").uniform(0, 1)
                case "an id":
                    workflow.uuid4()
            match id_from:
                case "the runtime":
                    child = await workflow.start_child_workflow(Child)
                case "uuid4":
                    child = await workflow.start_child_workflow(Child, id=str(workflow.uuid4()))
                case "the shared stream":
                    child = await workflow.start_child_workflow(Child, id=f"{workflow.random().random()}")
                case "its own stream":
                    child = await workflow.start_child_workflow(
                        Child, id=f"{workflow.random('ids').random()}"
                    )
            return await child

    return MakesAChild


async def ids_of_children(old, new):
    """The id that the first deploy gives, and what replaying its history with the second one says."""
    async with TestEnvironment(workflows=[old, Child]) as env:
        handle = await env.spawn("MakesAChild")
        await handle.result()
        history = await handle.fetch_history()
    return Replayer(workflows=[new, Child]).replay(history, raise_on_failure=False)


@pytest.mark.parametrize("id_from", ["the runtime", "uuid4", "the shared stream", "its own stream"])
@pytest.mark.parametrize("change", ["a draw", "a draw of another stream", "an id"])
async def test_b04_a_draw_more_shifts_only_what_comes_of_the_same_stream(change, id_from):
    shifts = (change, id_from) in {("a draw", "the shared stream"), ("an id", "uuid4")}
    report = await ids_of_children(makes_a_child("", id_from), makes_a_child(change, id_from))
    assert report.passed is not shifts, report.as_text()
    if shifts:  # and it says which draw
        line = "workflow.random()" if change == "a draw" else "workflow.uuid4()"
        assert line in report.as_text()
        assert Path(__file__).name in report.as_text()


async def test_b04_a_sleeping_run_wakes_under_a_deploy_that_draws_more(tmp_path):
    """As it was met: it slept, the deploy came, it woke."""
    journal = tmp_path / "journal"
    async with TestEnvironment(workflows=[makes_a_child("", "uuid4"), Child], journal=journal) as env:
        await env.spawn("MakesAChild", id="sleeps")
        await env.sleep(1)
    async with TestEnvironment(workflows=[makes_a_child("a draw", "uuid4"), Child], journal=journal) as env:
        await env.advance(3600)
        assert await env.ref("sleeps").result()


# --- B06


async def test_b06_numbers_are_given_at_the_call_and_a_real_change_is_held_and_shown():
    @activity.defn
    async def charge(number: int) -> int:
        raise NotImplementedError

    @activity.defn
    async def pack(number: int) -> int:
        raise NotImplementedError

    @activity.defn
    async def mail(number: int) -> int:
        raise NotImplementedError

    def version(*steps):
        @workflow.defn(name="Gathers")
        class Gathers:
            @workflow.run
            async def run(self) -> list[int]:
                return await asyncio.gather(*(step(number) for number, step in enumerate(steps)))

            @workflow.query
            def look(self) -> bool:
                return True

        return Gathers

    steps = (charge, pack, mail)
    for delays in [(1, 2, 3), (3, 2, 1), (2, 3, 1)]:
        async with TestEnvironment(workflows=[version(*steps)]) as env:
            for step, delay in zip(steps, delays, strict=True):
                env.mock_activity(step, returns=delay, delay=delay)
            handle = await env.spawn("Gathers")
            await env.sleep(1.5)
            await env.restart()
            await env.sleep(1)
            await env.restart()
            assert await handle.result() == list(delays)
            history = await handle.fetch_history()
            assert [name for _, _, name in decided(history)] == ["charge", "pack", "mail"]
            assert [number for _, number, _ in decided(history)] == [1, 2, 3]
            with pytest.raises(ReplayFailedError, match="charge"):
                Replayer(workflows=[version(pack, charge, mail)]).replay(history)


B06_PROGRAM = '''
import asyncio, os, sys
from datetime import timedelta
from everact import Runtime, activity, workflow

life = sys.argv[2]

async def done(name):
    print(name, flush=True)
    return name

@activity.defn
async def one() -> str:
    return await done("one")

@activity.defn
async def two() -> str:
    await asyncio.sleep(0.01)
    if life == "dies":
        os.kill(os.getpid(), 9)
    return await done("two")

@activity.defn
async def three() -> str:
    if life == "dies":
        await asyncio.Event().wait()
    return await done("three")

@workflow.defn
class Gathers:
    @workflow.run
    async def run(self) -> list[str]:
        return list(await asyncio.gather(one(), two(), three()))

class LastFirst(asyncio.SelectorEventLoop):
    """What is ready runs the other way round, where it may."""

    def _run_once(self):
        self._ready = type(self._ready)(reversed(self._ready))
        super()._run_once()

async def main():
    async with Runtime(sys.argv[1], workflows=[Gathers], activities=[one, two, three], door=False) as runtime:
        handle = await runtime.spawn(Gathers, id="gathers", if_running="attach")
        print(*await handle.result(), flush=True)

with asyncio.Runner(loop_factory=None if life == "dies" else LastFirst) as runner:
    runner.run(main())
'''


@pytest.mark.slow
def test_b06_another_process_with_another_loop_goes_on_where_the_killed_one_was(tmp_path):
    program = tmp_path / "gathers.py"
    program.write_text(B06_PROGRAM)

    def live(life):
        return subprocess.run(
            [sys.executable, program, tmp_path / "journal", life],
            capture_output=True,
            text=True,
            timeout=30,
            env={**os.environ, "PYTHONHASHSEED": str(len(life))},
        )

    dead = live("dies")
    assert dead.returncode == -9, dead.stderr
    assert dead.stdout.split() == ["one"]
    second = live("again")
    assert second.returncode == 0, second.stderr
    assert second.stdout.split()[-3:] == ["one", "two", "three"]
    (run,) = read_journal(tmp_path / "journal").values()
    scheduled = [event for event in run.events if isinstance(event, ev.ActivityScheduled)]
    assert [event.activity_type for event in scheduled] == ["one", "two", "three"]


# --- B08

TOOLS: dict[str, str] = {}


@activity.defn
async def load_tools() -> str:
    return "tools"


@workflow.defn
class UsesSharedTools:
    def __init__(self) -> None:
        self.over = False

    @workflow.run
    async def run(self) -> str:
        if "tools" not in TOOLS:
            TOOLS["tools"] = await load_tools()  # the fault of the case
        await workflow.wait_condition(lambda: self.over)
        return TOOLS["tools"]

    @workflow.signal
    def end(self) -> None:
        self.over = True


async def test_b08_a_run_that_found_the_shared_cache_warm_names_the_missing_step_in_a_cold_process():
    TOOLS.clear()
    async with TestEnvironment(
        workflows=[UsesSharedTools], activities=[load_tools], guard="off", watchdog=None, replay=False
    ) as env:
        cold, warm = [await env.spawn(UsesSharedTools, id=name) for name in ("cold", "warm")]
        for handle in (cold, warm):
            await handle.signal(UsesSharedTools.end)
        assert [await cold.result(), await warm.result()] == ["tools", "tools"]
        histories = [await cold.fetch_history(), await warm.fetch_history()]
    TOOLS.clear()
    replayer = Replayer(workflows=[UsesSharedTools], guard="off")
    assert replayer.replay(histories[0]).passed
    TOOLS.clear()
    with pytest.raises(ReplayFailedError, match="(?s)load_tools.*shared module state") as caught:
        replayer.replay(histories[1])
    assert "shared module state" in caught.value.report.results[0].failure.message


def test_b08_the_strict_mode_names_the_line_that_changes_the_shared_cache():
    with pytest.warns(Warning, match="changing TOOLS in workflow code: all runs of the process share it"):
        TestEnvironment(workflows=[UsesSharedTools], activities=[load_tools])


# --- B10


class Cleaned:
    """What the clean-up code of dropped runs did."""

    def __init__(self):
        self.threads = set()
        self.count = 0
        self.undone = []
        self.swallowed = 0


@pytest.mark.parametrize("catches", [False, True])
async def test_b10_a_thousand_dropped_runs_clean_up_on_the_loops_thread_and_do_nothing(catches):
    """Each has an activity in its finally block, and some catch everything and go on."""
    cleaned = Cleaned()

    @activity.defn
    async def undo(number: int) -> int:
        cleaned.undone.append(number)  # everact: allow
        return number

    @workflow.defn
    class Holds:
        def __init__(self) -> None:
            self.go = False

        @workflow.run
        async def run(self, number: int) -> int:
            try:
                try:
                    await workflow.wait_condition(lambda: self.go)
                except BaseException:
                    cleaned.swallowed += 1  # everact: allow
                    if not catches:
                        raise
            finally:
                cleaned.threads.add(threading.get_ident())  # everact: allow
                cleaned.count += 1  # everact: allow
                await undo(number)
            return number

        @workflow.signal
        def proceed(self) -> None:
            self.go = True

    async with TestEnvironment(
        workflows=[Holds], activities=[undo, work], max_cached_workflows=10, watchdog=None
    ) as env:
        handles = [await env.spawn(Holds, number) for number in range(1000)]
        await env.sleep(1)
        gc.collect()
        assert cleaned.threads == {threading.get_ident()}
        assert cleaned.count >= 990
        assert cleaned.undone == []
        assert [event.kind for event in await handles[0].fetch_history()] == [
            "WorkflowStarted",
            "ConditionAwaited",
        ]
        for number in (0, 500, 999):  # they were dropped, not harmed
            await handles[number].signal(Holds.proceed)
            assert await handles[number].result() == number
        assert cleaned.undone == [0, 500, 999]
        assert await env.runtime.count_workflows(status="running") == 997


# --- B12


@pytest.mark.parametrize("kind", ["activities", "steps"])
async def test_b12_the_first_of_three_returns_after_a_second_and_the_others_are_cancelled(kind):
    @activity.defn
    async def wait(seconds: int) -> int:
        raise NotImplementedError

    @workflow.defn
    class First:
        @workflow.step
        async def waits(self, seconds: int) -> int:
            await workflow.sleep(seconds)
            return seconds

        @workflow.run
        async def run(self) -> list[float]:
            begun = workflow.time()
            call = wait if kind == "activities" else self.waits
            tasks = [asyncio.create_task(self.one(call, seconds)) for seconds in (5, 1, 3)]
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            first = workflow.time() - begun
            for task in pending:
                task.cancel()
            await asyncio.wait(pending)
            assert all(task.cancelled() for task in pending)
            return [task.result() for task in done] + [first, workflow.time() - begun]

        async def one(self, call, seconds: int) -> int:
            return await call(seconds)

    async with TestEnvironment(workflows=[First]) as env:
        if kind == "activities":

            @env.mock_activity(wait)
            async def _(seconds: int) -> int:
                await env.sleep(seconds)
                return seconds

        handle = await env.spawn(First)
        assert await handle.result() == [1, 1.0, 1.0]
        history = await handle.fetch_history()
        kinds = [event.kind for event in history]
        if kind == "activities":
            assert kinds.count("ActivityCancelRequested") == 2
        else:
            assert kinds.count("TimerCancelled") == 2
        assert Replayer(workflows=[First]).replay(history).passed
