"""R10, R13: a run that stands still keeps a request until it goes on, and sees it once; terminate waits for nothing."""

import asyncio

import pytest
from support.hosting import hosted, kinds, settled, until

from everact import activity, workflow
from everact.actors import restarts
from everact.exceptions import WorkflowCancelledError, WorkflowClosedError, WorkflowTerminatedError
from everact.journal.memory_store import MemoryJournal
from everact.supervision.backoff import Backoff
from everact.supervision.strategies import RestartLimit

STATES = ["paused", "held", "unregistered", "quarantined", "not begun", "restarting"]
done: list[str] = []


@activity.defn
async def tidy(what: str) -> None:
    done.append(what)


@workflow.defn
class Bystander:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)


def version(fault=""):
    """The run's code, with a fault or without one."""

    @workflow.defn(name="W")
    class W:
        def __init__(self) -> None:
            self.poked = False
            if fault == "not begun":
                raise ValueError("the first version")

        @workflow.run
        async def run(self) -> None:
            try:
                if fault == "held":
                    await workflow.sleep(5)
                await workflow.wait_condition(lambda: self.poked, timeout=3600)
                if fault in ("quarantined", "restarting"):
                    raise ValueError("the first version")
                await workflow.wait_condition(lambda: False)
            finally:
                if not fault:
                    await tidy("a")
                    await tidy("b")

        @workflow.signal
        def poke(self) -> None:
            self.poked = True

    return W


async def stand_still(state, journal):
    """Bring the run into the state; the code that is registered at the end of it."""
    first = version("" if state in ("paused", "held", "unregistered") else state)
    async with hosted(journal, first, activities=[tidy]) as runtime:
        handle = await runtime.spawn("W", id="w")
        if state in ("quarantined", "restarting"):
            await handle.signal("poke")
        if state in ("quarantined", "not begun"):
            await until(lambda: runtime._shard.find("w").is_stalled)
        await settled(runtime)
    return {"held": [version("held")], "unregistered": [Bystander]}.get(state, [first])


@pytest.fixture
def slow_restarts(monkeypatch):
    """A run that has crashed waits for its restart, for as long as a test lasts."""
    monkeypatch.setattr(restarts, "LIMIT", RestartLimit(backoff=Backoff(first=3600.0, longest=3600.0)))


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("state", STATES)
async def test_a_request_is_kept_while_the_run_stands_still_and_seen_once_when_it_goes_on(
    state, times, request
):
    if state == "restarting":
        request.getfixturevalue("slow_restarts")
    done.clear()
    journal = MemoryJournal()
    classes = await stand_still(state, journal)
    async with hosted(journal, *classes, activities=[tidy]) as runtime:
        handle = runtime.ref("w")
        if state == "paused":
            await handle.pause()
        if state == "held":
            await handle.signal("poke")
        await settled(runtime)
        for number in range(times):
            await handle.cancel(f"stop {number}")
        await settled(runtime)
        seen = await handle.describe()
        assert (seen.cancel_requested, seen.cancel_reason) == (True, "stop 0")
        assert seen.status in ("paused", "held", "quarantined", "running")
        assert (seen.status == "running") == (state == "restarting")
        assert done == []
    async with hosted(journal, version(), activities=[tidy]) as runtime:
        handle = runtime.ref("w")
        if state == "paused":
            await handle.resume()
        if state in ("quarantined", "not begun"):
            await handle.release("mended")
        with pytest.raises(WorkflowCancelledError, match="stop 0"):
            await handle.result(timeout=20)
        seen = kinds(await handle.fetch_history())
        assert seen.count("CancelRequested") == 1
        assert done == ["a", "b"], "clean-up is done once, and in full"
        with pytest.raises(WorkflowClosedError):
            await handle.cancel()
        assert not runtime._shard.actors


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("state", STATES)
async def test_terminate_ends_a_run_that_stands_still_at_once_and_without_its_code(state, asked, request):
    if state == "restarting":
        request.getfixturevalue("slow_restarts")
    done.clear()
    journal = MemoryJournal()
    classes = await stand_still(state, journal)
    async with hosted(journal, *classes, activities=[tidy]) as runtime:
        handle = runtime.ref("w")
        if state == "paused":
            await handle.pause()
        if state == "held":
            await handle.signal("poke")
        await settled(runtime)
        if asked:
            await handle.cancel("stop")
        waiting = asyncio.create_task(handle.result(on_stall="wait"))
        await settled(runtime)
        await handle.terminate("enough")
        with pytest.raises(WorkflowTerminatedError, match="enough"):
            await waiting
        await settled(runtime)
        shard = runtime._shard
        assert not shard.actors
        shard.timers.sweep()
        assert shard.timers._heap == []
    async with hosted(journal, version(), activities=[tidy]) as runtime:
        await settled(runtime)
        assert (await runtime.ref("w").describe()).status == "terminated"
        assert not runtime._shard.actors
    assert done == []
