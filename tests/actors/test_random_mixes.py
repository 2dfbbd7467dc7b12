"""Random programs of all that a run can do, with messages, cancels and pauses at random moments."""

import asyncio
import random
from contextlib import suppress

import pytest
from support.hosting import hosted, settled, until
from support.codecs import encrypted
from support.stores import TroubledStore
from support.mixed_workflows import ACTIVITIES, add, Kid, Mixed, program
from support.steps import replayed_alike

from everact import RetryPolicy, workflow
from everact.actors import loading, restarts
from everact.actors.event_loop import TurnAborted
from everact.actors.intercepted_runs import InterceptedInstance
from everact.actors.run_end import WorkflowCrashedError
from everact.actors.workflow_instance import WorkflowInstance
from everact.exceptions import CommitUnknownError, EveractError
from everact.interceptors import Interceptor, WorkflowInboundInterceptor
from everact.journal import events as ev
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.supervision.backoff import Backoff
from everact.supervision.strategies import RestartLimit

import os

SEEDS = range(int(os.environ.get("RVA_FROM", 0)), int(os.environ.get("RVA_TO", 60)))


async def meddle(runtime, handle, rng):
    """Send it something, or do something to it."""
    match rng.choice(
        ["poke", "slow", "stop", "ask", "ask_step", "unknown", "settle", "settle", "cancel", "pause", "restart", "terminate"]
    ):
        case "poke":
            await handle.signal(Mixed.poke, rng.randint(0, 9))
        case "slow":
            await handle.signal(Mixed.slow, rng.randint(0, 9))
        case "stop":
            if rng.random() < 0.3:
                await handle.signal(Mixed.stop, rng.randint(0, 9))
        case "ask":
            await handle.execute_update(Mixed.ask, rng.randint(0, 9))
        case "ask_step":
            await handle.execute_update(Mixed.ask_step, rng.randint(0, 9))
        case "unknown":
            await handle.signal(f"s{rng.randint(0, 2)}", rng.randint(0, 9))
        case "cancel":
            if rng.random() < 0.4:
                await handle.cancel("enough")
        case "terminate":
            if rng.random() < 0.1:
                await handle.terminate("enough")
        case "pause":
            await handle.pause()
            await settled(runtime)
            with suppress(EveractError):
                await handle.signal(Mixed.poke, 5)
            await handle.resume()
        case "settle":
            await settled(runtime)
        case "restart":
            for _ in range(rng.randint(0, 10)):
                await asyncio.sleep(0)


async def whole(runtime):
    """All runs have ended, none stands still; each one's history replays, with jumps and without, up to each record."""
    for _ in range(400):
        await settled(runtime)
        stalled = [
            run
            for status in ("held", "quarantined")
            for run in await runtime.list_workflows(status=status, limit=100)
        ]
        for run in stalled:
            info = await runtime.ref(run.workflow_id).describe()
            if "it stays" in info.failure or "Saga" in info.failure:
                with suppress(EveractError):
                    await runtime.ref(run.workflow_id).release()
                continue
            raise AssertionError(f"{run.workflow_id} {info.status} {info.failure}")
        if not await runtime.count_workflows(status="running"):
            break
        await asyncio.sleep(0.005)
    else:
        for run in await runtime.list_workflows(status="running"):
            print(await runtime.ref(run.workflow_id).describe())
        raise AssertionError("they never end")
    await until(lambda: not runtime._shard.outbox.pending(0))
    for run in await runtime.list_workflows(limit=1000):
        history = await runtime.ref(f"everact://local/{run.workflow_id}/{run.run_id}").fetch_history()
        cls = Mixed if run.workflow_type == "Mixed" else Kid
        try:
            if history.records:
                replays(cls, history)
        except BaseException as e:
            for it in history:
                print(it.number, it.event)
            raise
        undone = [(e.event.saga, e.event.step) for e in history if e.kind == "CompensationCompleted"]
        assert len(undone) == len(set(undone)), "undone twice"


def replays(cls, history):
    workflows = [Kid] if cls is Mixed else [Mixed]
    for cut in range(1, len(history.records) + 1):
        part = type(history)("w", "r", history.records[:cut])
        if not has_begun(part.records):
            continue
        both(cls, part, workflows)


def has_begun(records):
    return any(type(r) is ev.Turn and (1 in r.delivers or (not r.delivers and r.inputs and type(r.inputs[0]) is ev.WorkflowStarted)) for _, r in records)


def both(cls, history, workflows):
    from support.steps import Replayed
    about = {"workflows": workflows, "interceptors": [Everywhere()] if INTERCEPTED else None}
    one = Replayed(cls, ACTIVITIES, history.records, jump=False, **about)
    two = Replayed(cls, ACTIVITIES, history.records, **about)
    assert two.fields == one.fields
    assert two.counters == one.counters
    assert two.outcome == one.outcome



class Interceptors(WorkflowInboundInterceptor):
    """Do as the code does: activities, timers and tasks of their own."""

    async def execute_workflow(self, input):
        if workflow.info().workflow_type == "Mixed":
            await workflow.execute_activity(add, 1)
        return await self.next.execute_workflow(input)

    async def handle_update_handler(self, input):
        await asyncio.sleep(0.0001)
        return await self.next.handle_update_handler(input)

    async def handle_signal(self, input):
        workflow.random("signals").random()
        return await self.next.handle_signal(input)


class Everywhere(Interceptor):
    def intercept_workflow(self, next):
        return Interceptors(next)


class Shaky:
    rng = random.Random(0)
    chance = 0.0


class Crashing(WorkflowInstance):
    __slots__ = ()

    def turn(self, at, deliveries):
        outputs = super().turn(at, deliveries)
        if not self.replaying and Shaky.rng.random() < Shaky.chance:
            raise WorkflowCrashedError("quarantined", TurnAborted(f"crash {Shaky.rng.random()}"))
        return outputs


@pytest.mark.parametrize("seed", SEEDS)
async def test_everything_at_once_replays_as_it_was(seed, request, monkeypatch):
    if seed % 2:
        request.getfixturevalue("keeps_code")
    rng = random.Random(seed)
    ops = program(rng)
    if rng.random() < 0.3:
        ops = [["saga", ops], ["act", 1]]
    monkeypatch.setattr(restarts, "LIMIT", RestartLimit(most=10_000, backoff=Backoff(first=0.0, longest=0.0)))
    monkeypatch.setattr(loading, "WorkflowInstance", Crashing)
    Shaky.rng = random.Random(seed)
    Shaky.chance = rng.choice([0, 0, 0.05, 0.15])
    options, about = {}, {}
    global INTERCEPTED
    INTERCEPTED = rng.random() < 0.25
    if INTERCEPTED:
        about["interceptors"] = [Everywhere()]
    if rng.random() < 0.2:
        about["codecs"] = [encrypted()]
    if rng.random() < 0.2:
        options["run_timeout"] = rng.choice([0.002, 0.008, 0.02])
    if rng.random() < 0.2:
        options["execution_timeout"] = rng.choice([0.01, 0.03])
    if rng.random() < 0.3:
        options["retry_policy"] = RetryPolicy(initial_interval=0.0001, maximum_attempts=3, jitter=0)
    trouble = rng.choice([0, 0, 0.05, 0.15])
    journal = MemoryJournal()
    for life in range(rng.choice([1, 1, 2, 3]), 0, -1):
        store = TroubledStore(MemoryStore(journal))
        async with hosted(store, Mixed, Kid, activities=ACTIVITIES, **about) as runtime:
            while True:
                try:
                    handle = await runtime.spawn(Mixed.run, ops, id="m", if_running="attach", if_closed="attach", request_id="s", **options)
                    break
                except CommitUnknownError:
                    pass
            for _ in range(rng.randint(0, 8)):
                if rng.random() < 2 * trouble:
                    store.failures += [rng.choice(["before", "after"])]
                with suppress(EveractError):
                    await asyncio.wait_for(meddle(runtime, handle, rng), 20)
            if life == 1:
                Shaky.chance = 0
                await whole(runtime)
