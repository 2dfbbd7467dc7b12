"""Chapter B: the same code decides the same, however it is replayed."""

import asyncio
from datetime import timedelta

import pytest

from everact import activity, workflow
from everact.exceptions import DeterminismWarning, ReplayFailedError, WorkflowHeldError
from everact.journal.memory_store import MemoryJournal
from everact.testing import TestEnvironment


@activity.defn
async def work(name: str, seconds: float = 0.0) -> str:
    raise NotImplementedError


@activity.defn
async def other(name: str) -> str:
    raise NotImplementedError


@workflow.defn
class Waits:
    @workflow.run
    async def run(self, how: str) -> list[str]:
        told: list[str] = []

        async def branch(name: str) -> None:
            told.append(await work(name))
            await workflow.sleep(len(told))

        for round_ in range(2):
            tasks = [asyncio.create_task(branch(f"{round_}{number}")) for number in range(3)]
            match how:
                case "wait":
                    await asyncio.wait(set(tasks))
                case "as_completed":
                    for task in asyncio.as_completed(set(tasks)):
                        await task
                case "gather":
                    await asyncio.gather(*tasks)
                case "group":
                    async with asyncio.TaskGroup() as group:
                        for number in range(3):
                            group.create_task(branch(f"{round_}more{number}"))
                    await asyncio.wait(tasks)
        return told


@pytest.mark.parametrize("how", ["wait", "as_completed", "gather", "group"])
async def test_b01_standard_waits_are_in_one_order_under_every_hash_seed(how):
    async with TestEnvironment(workflows=[Waits], max_cached_workflows=1, replay_hash_seeds=[0, 1, 2]) as env:
        env.mock_activity(work, side_effect=lambda name, seconds=0.0: name, delay=1)
        await env.spawn(Waits, "gather")  # the cache has room for one: the others are replayed each time
        told = await env.execute(Waits, how)
        assert told == sorted(told, key=lambda name: (name[0], "more" in name and how != "group"))


@workflow.defn
class Kid:
    @workflow.run
    async def run(self) -> None:
        await workflow.sleep(3600)


@pytest.mark.parametrize("explicit", [True, False])
async def test_b04_one_more_draw_changes_no_id_that_the_runtime_makes(explicit):
    """The stream of ids is another one than that of numbers; and default ids come from the journal's position."""

    def declared(draws):
        @workflow.defn(name="Draws")
        class Draws:
            @workflow.run
            async def run(self) -> str:
                await workflow.sleep(3600)
                if draws:
                    workflow.random().random()
                options = {"id": f"kid-{workflow.uuid4()}"} if explicit else {}
                handle = await workflow.start_child_workflow(Kid, **options)
                await workflow.sleep(3600)
                return handle.id

        return Draws

    journal = MemoryJournal()
    async with TestEnvironment(workflows=[declared(False), Kid], journal=journal, replay=False) as env:
        handle = await env.spawn("Draws", id="draws")
        await env.sleep(3700)
        (kid,) = [run.workflow_id for run in await env.runtime.list_workflows() if run.workflow_type == "Kid"]
    async with TestEnvironment(
        workflows=[declared(True), Kid], journal=journal, start_time=env.now(), replay=False
    ) as again:
        handle = again.ref("draws")
        assert await handle.result() == kid


async def test_b04_the_mismatch_says_which_draw_has_moved():
    def declared(draws):
        @workflow.defn(name="Draws")
        class Draws:
            @workflow.run
            async def run(self) -> None:
                for _ in range(draws):
                    workflow.random().random()
                await workflow.sleep(1 + workflow.random().random())
                await workflow.wait_condition(lambda: False)

        return Draws

    journal = MemoryJournal()
    async with TestEnvironment(workflows=[declared(0)], journal=journal, replay=False) as env:
        await env.spawn("Draws", id="draws")
        await env.sleep(10)
    with pytest.raises(WorkflowHeldError, match=r"random|draw"):
        async with TestEnvironment(
            workflows=[declared(1)], journal=journal, start_time=env.now(), replay=False
        ) as again:
            await again.ref("draws").cancel()
            await again.ref("draws").result()


@workflow.defn
class Gathers:
    @workflow.run
    async def run(self) -> list[str]:
        return list(await asyncio.gather(work("a", 3.0), other("b"), work("c", 1.0)))


@pytest.mark.crash_everywhere(limit=60)
async def test_b06_steps_of_a_gather_have_the_numbers_of_their_calls_wherever_it_is_killed():
    async with TestEnvironment(workflows=[Gathers]) as env:
        env.mock_activity(work, side_effect=lambda name, seconds=0.0: name, delay=2)
        env.mock_activity(other, side_effect=lambda name: name, delay=1)
        handle = await env.spawn(Gathers)
        assert await handle.result() == ["a", "b", "c"]
        scheduled = [e.event for e in await handle.fetch_history() if e.kind == "ActivityScheduled"]
        assert [(e.command, e.activity_type) for e in scheduled] == [(1, "work"), (2, "other"), (3, "work")]


cache: dict[str, str] = {}


@workflow.defn
class Cached:
    @workflow.run
    async def run(self) -> str:
        if "tools" not in cache:
            cache["tools"] = await work("tools")
        await other("use")
        return cache["tools"]


@pytest.mark.filterwarnings("ignore:changing cache")
async def test_b08_a_cache_of_the_process_is_found_out_by_the_replay_and_the_missing_step_named():
    cache.clear()
    with pytest.warns(DeterminismWarning, match="all runs of the process share it"):
        env = TestEnvironment(workflows=[Cached])
    with pytest.raises(ReplayFailedError, match="'work'"):
        async with env:
            env.mock_activity(work, returns="x")
            env.mock_activity(other, returns="y")
            await env.execute(Cached, id="cold")
            await env.execute(Cached, id="warm")


async def test_b10_code_that_leaves_memory_cannot_act_and_swallows_nothing():
    acted: list[str] = []

    @workflow.defn
    class Tries:
        def __init__(self) -> None:
            self.go = False

        @workflow.run
        async def run(self) -> str:
            try:
                try:
                    await workflow.wait_condition(lambda: self.go)
                except BaseException:
                    await work("swallowed")
                    raise
            finally:
                if not self.go:
                    await work("finally")
            return "went on"

        @workflow.signal
        def proceed(self) -> None:
            self.go = True

    async with TestEnvironment(workflows=[Tries], max_cached_workflows=10, guard="off") as env:
        env.mock_activity(work, side_effect=lambda name, seconds=0.0: acted.append(name) or name)
        handles = [await env.spawn(Tries) for _ in range(1000)]
        assert env.runtime._shard.passivation.evicted >= 900
        for handle in handles[::50]:
            await handle.signal(Tries.proceed)
            assert await handle.result() == "went on"
    assert acted == []


@workflow.defn
class First:
    @workflow.run
    async def run(self, kind: str) -> tuple[int, float]:
        begun = workflow.time()

        async def step(seconds: float) -> float:
            await (workflow.sleep(seconds) if kind == "local" else work("step", seconds))
            return seconds

        tasks = [asyncio.create_task(step(seconds)) for seconds in (5.0, 1.0, 3.0)]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return len(done), workflow.time() - begun


@pytest.mark.parametrize("kind", ["local", "activity"])
async def test_b12_the_first_of_several_steps_is_not_kept_by_the_others(kind):
    async with TestEnvironment(workflows=[First]) as env:

        @env.mock_activity(work)
        async def _(name: str, seconds: float = 0.0) -> str:
            await env.sleep(timedelta(seconds=seconds))
            return name

        assert await env.execute(First, kind) == (1, pytest.approx(1.0, abs=0.01))
