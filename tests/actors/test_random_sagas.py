"""Random sagas through random restarts, cancels and releases: what was done is undone once, and in its order."""

import asyncio
import random
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count

import pytest
from support.hosting import hosted
from support.rounds import rounds

from everact import ApplicationError, RetryPolicy, activity, workflow
from everact.actors.definitions import activity_definition, workflow_definition
from everact.actors.replay import replay
from everact.actors.workflow_instance import WorkflowInstance
from everact.exceptions import (
    ResultTimeoutError,
    RuntimeClosedError,
    WorkflowClosedError,
    WorkflowFailedError,
    WorkflowQuarantinedError,
    WorkflowStatusError,
)
from everact.journal.memory_store import MemoryJournal
from everact.journal.payloads import PayloadConverter

QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=0, jitter=0)


@dataclass
class Step:
    """One step of a plan.

    Attributes:
        name: Its own.
        fails: For good.
        optional: May fail.
        undo: ``activity``, ``function`` or nothing.
        undo_fails: So many times.
        priority: Of its compensation.
        slowness: So many turns of the event loop.
    """

    name: str
    fails: bool
    optional: bool
    undo: str
    undo_fails: int
    priority: int
    slowness: int


@dataclass
class Plan:
    """A saga: groups of steps that run side by side, each perhaps in a saga of its own."""

    groups: list[list[Step]]
    nested: list[bool]
    policy: str
    parallel: bool
    raises: bool


failures: dict[str, int] = defaultdict(int)
keys: dict[str, set[str]] = defaultdict(set)


@activity.defn(retry_policy=QUICK)
async def do(step: Step) -> Step:
    for _ in range(step.slowness):
        await asyncio.sleep(0)
    if step.fails:
        raise ApplicationError(f"{step.name} fails", non_retryable=True)
    return step


@activity.defn
async def undo(step: Step, policy: str) -> None:
    keys[step.name].add(activity.info().idempotency_key)
    await asyncio.sleep(0)
    failures[step.name] += 1
    if failures[step.name] <= step.undo_fails:
        raise ApplicationError(f"{step.name} stays", non_retryable=policy == "escalate")


@workflow.defn
class Random:
    @workflow.run
    async def run(self, plan: Plan) -> str:
        async with workflow.saga(
            "outer",
            on_compensation_failure=plan.policy,
            compensation_retry=QUICK,
            parallel=plan.parallel,
        ) as outer:
            for group, is_nested in zip(plan.groups, plan.nested, strict=True):
                if is_nested:
                    async with workflow.saga(
                        "inner", on_compensation_failure=plan.policy, compensation_retry=QUICK
                    ) as inner:
                        await self.group(inner, group, plan)
                else:
                    await self.group(outer, group, plan)
            if plan.raises:
                raise ApplicationError("in the end")
        return "went well"

    async def group(self, saga: workflow.Saga, group: list[Step], plan: Plan) -> None:
        if len(group) == 1:
            await self.step(saga, group[0], plan)
            return
        async with asyncio.TaskGroup() as tasks:
            for step in group:
                tasks.create_task(self.step(saga, step, plan))

    async def step(self, saga: workflow.Saga, step: Step, plan: Plan) -> None:
        about = {"name": step.name, "optional": step.optional}
        if not step.undo:
            await saga.run(do, step, **about)
        elif step.undo == "activity":
            await saga.run(
                do,
                step,
                **about,
                compensate=undo,
                compensate_args=(step, plan.policy),
                priority=step.priority,
            )
        else:
            await saga.run(
                do,
                step,
                **about,
                compensate=lambda done: undo(done, plan.policy),
                priority=step.priority,
            )


def plan_of(rng):
    names = count()

    def step():
        optional = rng.random() < 0.2
        return Step(
            f"s{next(names)}",
            rng.random() < (0.5 if optional else 0.06),
            optional,
            rng.choice(["activity", "activity", "function", ""]),
            rng.choice([0, 0, 1, 2]),
            rng.choice([0, 0, 0, 1]),
            rng.randrange(12),
        )

    groups = [[step() for _ in range(rng.choice([1, 1, 2, 3]))] for _ in range(rng.randrange(1, 5))]
    return Plan(
        groups,
        [rng.random() < 0.25 for _ in groups],
        rng.choice(["retry", "escalate"]),
        rng.random() < 0.3,
        rng.random() < 0.5,
    )


async def end_of(handle, rng):
    """Wait for the end, or for so long; release what is quarantined."""
    while True:
        try:
            await handle.result(timeout=10)
        except WorkflowQuarantinedError:
            for _ in range(rng.randrange(20)):
                await asyncio.sleep(0)
            with suppress(WorkflowStatusError, WorkflowClosedError):
                await handle.release()
            continue
        except WorkflowFailedError:
            pass
        return


async def live_through(journal, plan, rng):
    """Lives of a runtime, each perhaps cut short; the last one is not."""
    cancels = rng.random() < 0.3
    for lives_left in reversed(range(rng.randrange(1, 5))):
        async with hosted(journal, Random, activities=[do, undo]) as runtime:
            handle = await runtime.spawn(Random.run, plan, id="s", if_running="attach", if_closed="attach")
            ending = asyncio.create_task(end_of(handle, rng))
            ticks = rng.randrange(150) if lives_left else 10**9
            for tick in range(ticks):
                if ending.done():
                    break
                if cancels and tick == 20:
                    with suppress(WorkflowClosedError):
                        await handle.cancel("enough")
                await asyncio.sleep(0)
            if not lives_left:
                await ending
                return await handle.fetch_history(), (await handle.describe())
        with suppress(RuntimeClosedError, ResultTimeoutError):
            await ending
    raise AssertionError("the last life has not ended")


def check(plan, history, seen):
    """Against the history itself: what its activities have done, in which order, and what has undone them."""
    steps = {step.name: step for group in plan.groups for step in group}
    scheduled, completed, started, undone = {}, [], [], []
    converter = PayloadConverter()
    for item in history:
        event = item.event
        if item.kind == "ActivityScheduled" and event.activity_type == "do":
            scheduled[event.command] = converter.decode(event.args[0], Step).name
        elif item.kind == "ActivityCompleted" and event.command in scheduled:
            completed.append(scheduled[event.command])
        elif item.kind == "CompensationStarted" and (event.saga, event.name) not in started:
            started.append((event.saga, event.name))
        elif item.kind == "CompensationCompleted":
            undone.append(event.name)
    due = [name for name in completed if steps[name].undo]
    assert len(undone) == len(set(undone)), "undone twice"
    if seen.status == "completed":
        inner = {
            step.name
            for group, nested in zip(plan.groups, plan.nested, strict=True)
            if nested
            for step in group
        }
        assert set(undone) <= inner
        assert not undone
        return
    assert set(undone) == set(due)
    for name in undone:
        assert len(keys[name]) == 1 or steps[name].undo == "function", "one key for one compensation"
    places = {name: place for place, name in enumerate(completed)}
    for saga in {saga for saga, _name in started}:
        names = [name for number, name in started if number == saga]
        order = sorted(names, key=lambda name: (-steps[name].priority, -places[name]))
        if plan.parallel:
            assert [steps[name].priority for name in names] == [steps[name].priority for name in order]
        else:
            assert names == order
    assert all(saga.completed == saga.total and not saga.running and not saga.failed for saga in seen.sagas)


@pytest.mark.slow
@pytest.mark.parametrize("seed", rounds(range(30), 12))
async def test_what_was_done_is_undone_once_in_its_order(seed):
    failures.clear()
    keys.clear()
    rng = random.Random(seed)
    plan = plan_of(rng)
    history, seen = await live_through(MemoryJournal(), plan, rng)
    check(plan, history, seen)
    activities = {fn.__name__: activity_definition(fn) for fn in (do, undo)}
    instance = WorkflowInstance(workflow_definition(Random), activities, PayloadConverter())
    replay(instance, history.records)
    instance.discard()
