"""R8, R9: however activities are awaited, the same run decides the same, under every hash seed and Python.

B01, B06, B08, B12.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from support import wait_workflows
from support.hosting import commands, gate, hosted, kinds, settled, until
from support.wait_workflows import KINDS, Waits, alpha, beta, gamma

from everact import activity, workflow
from everact.journal.memory_store import MemoryJournal
from everact.journal.payloads import PayloadConverter

ROOT = Path(__file__).parents[2]


def pythons():
    """This one, and what EVERACT_TEST_PYTHONS (paths of interpreters, as in PATH) and the search path have."""
    named = [path for path in os.environ.get("EVERACT_TEST_PYTHONS", "").split(os.pathsep) if path]
    found = [shutil.which(f"python3.{minor}") for minor in (11, 12, 13)]
    return dict.fromkeys([sys.executable, *named, *filter(None, found)])


@pytest.mark.slow
async def test_every_way_of_waiting_replays_alike_in_other_processes(tmp_journal):
    expected = {}
    async with hosted(str(tmp_journal), Waits, activities=[alpha, beta, gamma]) as runtime:
        handles = [await runtime.spawn(Waits.run, kind, id=kind) for kind in KINDS]
        for handle in handles:
            result = await handle.result()
            expected[handle.workflow_id] = PayloadConverter().encode(result, list[str]).data.decode()
            # also without leaving the process
            assert await handle.query(Waits.show) == result
    ran = 0
    for python in pythons():
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        environment = os.environ | {"PYTHONPATH": path}
        probe = subprocess.run(
            [python, "-c", "import everact, everact.actors, lmdb"],
            env=environment,
            capture_output=True,
            cwd=ROOT,
        )
        if probe.returncode:
            continue  # this Python has no dependencies
        for seed in ("1", "2", "3"):
            done = subprocess.run(
                [python, wait_workflows.__file__, str(tmp_journal)],
                env=environment | {"PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                cwd=ROOT,
            )
            assert done.returncode == 0, done.stderr
            assert dict(line.split("\t") for line in done.stdout.splitlines()) == expected
            ran += 1
    assert ran >= 3


@pytest.mark.parametrize("kind", KINDS)
async def test_commands_are_numbered_without_holes_in_the_order_of_the_calls(kind):
    async with hosted(MemoryJournal(), Waits, activities=[alpha, beta, gamma]) as runtime:
        handle = await runtime.spawn(Waits.run, kind)
        await handle.result()
        history = await handle.fetch_history()
    numbers = [e.event.command for e in history if e.kind in ("ActivityScheduled", "TimerStarted")]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_numbers_follow_the_calls_not_the_awaits():
    held = gate("held")

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> list[str]:
            one = workflow.execute_activity(held.fn, "one")
            two = asyncio.create_task(self.inner("four"))
            three = workflow.start_activity(held.fn, "two")
            four = workflow.with_options(held.fn)("three")
            return [await two, await four, await three, await one]

        async def inner(self, label: str) -> str:
            return await workflow.execute_activity(held.fn, label)

    async with hosted(MemoryJournal(), W, activities=[held.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: len(held.calls) == 4)
        assert held.calls == ["one", "two", "three", "four"]
        held.open.set()
        await handle.result()


async def test_first_completed_returns_at_the_first_and_the_rest_can_be_cancelled():
    """B12"""
    fast, slow = gate("fast"), gate("slow")

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> int:
            tasks = [
                asyncio.create_task(workflow.execute_activity(slow.fn, "a")),
                asyncio.create_task(workflow.execute_activity(fast.fn, "b")),
                asyncio.create_task(workflow.execute_activity(slow.fn, "c")),
            ]
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            assert list(done) == [tasks[1]]
            for task in pending:
                task.cancel()
            return len(pending)

    async with hosted(MemoryJournal(), W, activities=[fast.fn, slow.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: len(slow.calls) == 2)
        fast.open.set()
        assert await handle.result() == 2
        await until(lambda: not runtime._shard.dispatcher.pool._running)
        assert kinds(await handle.fetch_history()).count("ActivityCancelRequested") == 2


@pytest.mark.parametrize("when", ["then waits", "then ends"])
async def test_an_activity_that_is_never_awaited_is_warned_of_with_file_and_line(when):
    @activity.defn
    async def forgotten() -> None:
        pass

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            forgotten()  # the line  # everact: allow[EV203]
            if when == "then waits":
                await workflow.sleep(0.02)

    line = W.run.__code__.co_firstlineno + 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with hosted(MemoryJournal(), W, activities=[forgotten]) as runtime:
            await runtime.execute(W.run)
    (warning,) = [w for w in caught if "never awaited" in str(w.message)]
    assert issubclass(warning.category, RuntimeWarning)
    assert "activity 'forgotten' was started and never awaited" in str(warning.message)
    assert (warning.filename, warning.lineno) == (__file__, line)


async def test_a_cache_that_all_runs_share_is_named_when_it_changes_what_a_run_does():
    """B08: the second run found the cache warm; a cold process says what is missing."""
    cache = {}

    @activity.defn
    async def load_tools() -> str:
        return "tools"

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.over = False

        @workflow.run
        async def run(self) -> str:
            if "tools" not in cache:
                cache["tools"] = await load_tools()
            await workflow.wait_condition(lambda: self.over)
            return cache["tools"]

        @workflow.query
        def look(self) -> str:
            return "fine"

    journal = MemoryJournal()
    async with hosted(journal, W, activities=[load_tools]) as runtime:
        one = await runtime.spawn(W.run, id="cold")
        await until(lambda: cache)
        await runtime.spawn(W.run, id="warm")
        await settled(runtime)
        assert commands(await one.fetch_history()) == [(1, "load_tools")]
    cache.clear()
    async with hosted(journal, W, activities=[load_tools]) as runtime:
        with pytest.raises(Exception, match="(?s)activity 'load_tools'.*shared module state"):
            await runtime.ref("warm", W).query(W.look)
