"""Chapter A where runs have children (A03, A05, A11): every combination ends, and asks whom it should, nobody else."""

import asyncio

import pytest
from support.hosting import gate, hosted, kinds, settled, until

from everact import activity, workflow
from everact.exceptions import WorkflowCancelledError
from everact.journal import events as ev
from everact.journal.memory_store import MemoryJournal

CANCELLATION = ["try_cancel", "wait_cancellation_completed", "abandon"]
POLICIES = ["terminate", "request_cancel", "abandon"]


@activity.defn
async def long(beats: bool) -> None:
    if beats:
        activity.heartbeat("on the way")
    began.append(activity.info().workflow_id)
    await asyncio.Event().wait()


@activity.defn
async def tidy() -> None:
    pass


began: list[str] = []


@workflow.defn
class Child:
    @workflow.run
    async def run(self) -> None:
        try:
            await workflow.wait_condition(lambda: False)
        finally:
            await tidy()


@workflow.defn
class Parent:
    def __init__(self) -> None:
        self.go = False

    async def one(self, beats: bool, kind: str) -> None:
        await workflow.execute_activity(long, beats, cancellation_type=kind)

    async def two(self, kind: str) -> None:
        await workflow.execute_child_workflow(Child, id="child", cancellation_type=kind)

    @workflow.run
    async def run(self, join: str, beats: bool, kinds: list[str]) -> None:
        await workflow.wait_condition(lambda: self.go)
        branches = [self.one(beats, kinds[0]), self.two(kinds[1])]
        match join:
            case "gather":
                await asyncio.gather(*branches)
            case "group":
                async with asyncio.TaskGroup() as group:
                    for branch in branches:
                        group.create_task(branch)
            case "wait":
                await asyncio.wait([asyncio.create_task(branch) for branch in branches])

    @workflow.signal
    def begin(self) -> None:
        self.go = True


@workflow.defn
class Blocker:
    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(long, False)


async def status(runtime, workflow_id):
    return (await runtime.ref(workflow_id).describe()).status


def asked(history):
    return "CancelRequested" in kinds(history)


@pytest.mark.parametrize("kind", CANCELLATION)
@pytest.mark.parametrize("child", ["requested", "running", "restarted"])
@pytest.mark.parametrize("step", ["scheduled", "started", "heartbeating"])
@pytest.mark.parametrize("join", ["gather", "group", "wait"])
async def test_a05_every_combination_of_an_activity_and_a_child_under_way_ends(join, step, child, kind):
    journal = MemoryJournal()
    began.clear()
    options = {"activities": [long, tidy]}
    if step == "scheduled":
        options["max_concurrent_activities"] = 2  # one is taken, the other is for the child's clean-up
    async with hosted(journal, Parent, Child, Blocker, **options) as runtime:
        if step == "scheduled":
            for number in range(1 + (join == "gather")):
                await runtime.spawn(Blocker.run, id=f"blocker{number}")
        handle = await runtime.spawn(Parent.run, join, step == "heartbeating", [kind, kind], id="parent")
        actor = runtime._shard.find("parent")
        if child == "requested":  # both in one turn of the host's loop: the child's start has not left yet
            actor.put(ev.SignalReceived("begin"))
            actor.put(ev.CancelRequested("stop"))
        else:
            await handle.signal(Parent.begin)
            await until(lambda: "child" in runtime._shard.newest)
            if step != "scheduled":
                await until(lambda: "parent" in began)
            if child == "running":
                await handle.cancel("stop")
        if step == "scheduled":  # what waits for a slot ends at once, what cleans up needs one
            for number in range(1 + (join == "gather")):
                await runtime.ref(f"blocker{number}").terminate()
        if child != "restarted":
            await self_ends(runtime, handle)
    if child == "restarted":
        async with hosted(journal, Parent, Child, Blocker, activities=[long, tidy]) as runtime:
            handle = runtime.ref("parent", Parent)
            await handle.cancel("stop")
            await self_ends(runtime, handle)


async def self_ends(runtime, handle):
    with pytest.raises(WorkflowCancelledError, match="stop"):
        await handle.result(timeout=20)
    await until(lambda: not runtime._shard.actors)
    seen = kinds(await handle.fetch_history())
    assert seen.count("CancelRequested") == 1
    assert seen[-1] == "WorkflowCancelled"
    runs = {run.workflow_id: run.status for run in await runtime.list_workflows()}
    assert runs["parent"] == "cancelled"
    assert runs.get("child", "cancelled") in ("cancelled", "terminated")


@workflow.defn
class Chain:
    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity("gated", "a", result_type=str)
        await workflow.execute_child_workflow(Child, id="child")


@pytest.mark.parametrize("how", ["mailbox", "paused"])
async def test_a03_a_child_that_would_follow_a_result_that_came_with_the_request_is_never_started(how):
    one = gate()
    async with hosted(MemoryJournal(), Chain, Child, activities=[one.fn, tidy]) as runtime:
        handle = await runtime.spawn(Chain.run, id="w")
        await until(lambda: one.calls)
        if how == "paused":
            await handle.pause()
        actor = runtime._shard.find("w")
        attempt = actor.attempts[1]
        runtime._shard.dispatcher.pool._report(attempt, runtime._converter.encode("x", str))
        attempt.task.cancel()
        actor.put(ev.CancelRequested("stop"))
        if how == "paused":
            await handle.resume()
        with pytest.raises(WorkflowCancelledError):
            await handle.result(timeout=20)
        await settled(runtime)
        seen = kinds(await handle.fetch_history())
        assert seen.index("ActivityCompleted") < seen.index("CancelRequested")
        child = [run for run in await runtime.list_workflows() if run.workflow_id == "child"]
        assert [run.status for run in child] in ([], ["cancelled"])
        assert not runtime._shard.actors


@workflow.defn
class Family:
    """Two children, each with its own word for the parent's cancel and for its end."""

    @workflow.run
    async def run(self, options: list[list[str]]) -> None:
        async with asyncio.TaskGroup() as group:  # unlike gather, it waits for all that it has cancelled
            for n, (kind, policy) in enumerate(options):
                group.create_task(
                    workflow.execute_child_workflow(
                        Child, id=f"child{n}", cancellation_type=kind, parent_close_policy=policy
                    )
                )


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", CANCELLATION)
async def test_a11_a_child_that_is_to_live_on_is_not_asked_with_the_others(kind, policy, restart):
    """The first is to be left alone in both ways; of the second, each way is taken by itself."""
    journal = MemoryJournal()
    options = [["abandon", "abandon"], [kind, policy]]
    async with hosted(journal, Family, Child, activities=[tidy]) as runtime:
        handle = await runtime.spawn(Family.run, options, id="parent")
        await until(lambda: {"child0", "child1"} <= runtime._shard.newest.keys())
        await handle.cancel("stop")
        if not restart:
            await family_ends(runtime, kind, policy)
    if restart:
        async with hosted(journal, Family, Child, activities=[tidy]) as runtime:
            await family_ends(runtime, kind, policy)


async def family_ends(runtime, kind, policy):
    with pytest.raises(WorkflowCancelledError):
        await runtime.ref("parent").result(timeout=20)
    lives_on = kind == policy == "abandon"
    async with asyncio.timeout(20):
        while await runtime.count_workflows(status="running") != 1 + lives_on:
            await asyncio.sleep(0)
    assert await status(runtime, "child0") == "running"
    assert not asked(await runtime.ref("child0").fetch_history())
    second = await runtime.ref("child1").fetch_history()
    now = await status(runtime, "child1")
    if lives_on:
        assert (now, asked(second)) == ("running", False)
    elif kind == "wait_cancellation_completed":
        assert (now, asked(second)) == ("cancelled", True)
    elif kind == "try_cancel":
        # Asked first; its clean-up takes a turn more, in which the parent's end may find it open.
        assert now == "terminated" if policy == "terminate" else now == "cancelled"
        assert asked(second) or policy == "terminate"
    else:
        assert now == ("terminated" if policy == "terminate" else "cancelled")
        assert asked(second) == (policy == "request_cancel")
    for name in ("child0", "child1"):
        if await status(runtime, name) == "running":
            await runtime.ref(name).terminate()
