"""Random programs of all that a run can do, with messages, cancels, limits, crashes and failed commits in between.

Each run comes to an end, and its history replays to the same, with jumps and without, up to each of its records.
"""

import asyncio
import random
from contextlib import suppress

import pytest
from support.codecs import encrypted
from support.hosting import hosted, settled, until
from support.mixed_workflows import ACTIVITIES, Kid, Mixed, add, program
from support.steps import Replayed
from support.stores import TroubledStore

from everact import RetryPolicy, workflow
from everact.actors import loading, restarts
from everact.actors.event_loop import TurnAborted
from everact.actors.run_end import WorkflowCrashedError
from everact.actors.workflow_instance import WorkflowInstance
from everact.exceptions import CommitUnknownError, EveractError
from everact.interceptors import Interceptor, WorkflowInboundInterceptor
from everact.journal import events as ev
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.supervision.backoff import Backoff
from everact.supervision.strategies import RestartLimit

SEEDS = range(30)
DEEDS = (
    "poke",
    "slow",
    "stop",
    "ask",
    "ask_step",
    "unknown",
    "settle",
    "settle",
    "cancel",
    "pause",
    "pass",
    "terminate",
)


class Busy(WorkflowInboundInterceptor):
    """Issues commands of its own."""

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
        return Busy(next)


class Crashing(WorkflowInstance):
    """Code whose live turns crash now and then."""

    __slots__ = ()
    rng = random.Random(0)
    chance = 0.0

    def turn(self, at, deliveries):
        outputs = super().turn(at, deliveries)
        if not self.replaying and Crashing.rng.random() < Crashing.chance:
            raise WorkflowCrashedError("quarantined", TurnAborted(f"crash {Crashing.rng.random()}"))
        return outputs


@pytest.fixture(autouse=True)
def crashes(monkeypatch):
    limit = RestartLimit(most=10_000, backoff=Backoff(first=0.0, longest=0.0))
    monkeypatch.setattr(restarts, "LIMIT", limit)
    monkeypatch.setattr(loading, "WorkflowInstance", Crashing)


async def meddle(runtime, handle, rng):
    """Send it something, or do something to it."""
    n = rng.randint(0, 9)
    match rng.choice(DEEDS):
        case "poke":
            await handle.signal(Mixed.poke, n)
        case "slow":
            await handle.signal(Mixed.slow, n)
        case "stop" if n < 3:
            await handle.signal(Mixed.stop, rng.randint(0, 9))
        case "ask":
            await handle.execute_update(Mixed.ask, n)
        case "ask_step":
            await handle.execute_update(Mixed.ask_step, n)
        case "unknown":
            await handle.signal(f"s{n % 3}", n)
        case "cancel" if n < 4:
            await handle.cancel("enough")
        case "terminate" if n < 1:
            await handle.terminate("enough")
        case "pause":
            await handle.pause()
            await settled(runtime)
            with suppress(EveractError):
                await handle.signal(Mixed.poke, 5)
            await handle.resume()
        case "settle":
            await settled(runtime)
        case _:
            for _ in range(n):
                await asyncio.sleep(0)


async def all_over(runtime):
    """Wait until all runs have ended; none may stand still, but for a saga that has escalated, which is released."""
    for _ in range(400):
        await settled(runtime)
        for run in [
            *await runtime.list_workflows(status="held", limit=100),
            *await runtime.list_workflows(status="quarantined", limit=100),
        ]:
            handle = runtime.ref(run.workflow_id)
            seen = await handle.describe()
            assert "it stays" in (seen.failure or "it stays"), seen.failure
            with suppress(EveractError):
                await handle.release()
        if not await runtime.count_workflows(status="running"):
            await until(lambda: not runtime._shard.outbox.pending(0))
            return
        await asyncio.sleep(0.005)
    raise AssertionError("they never end")


async def check(runtime, interceptors):
    for run in await runtime.list_workflows(limit=1000):
        history = await runtime.ref(f"everact://local/{run.workflow_id}/{run.run_id}").fetch_history()
        undone = [(e.event.saga, e.event.step) for e in history if e.kind == "CompensationCompleted"]
        assert len(undone) == len(set(undone)), "undone twice"
        cls, other = (Mixed, Kid) if run.workflow_type == "Mixed" else (Kid, Mixed)
        about = {"workflows": [other], "interceptors": interceptors or None}
        for cut in range(1, len(history.records) + 1):
            records = history.records[:cut]
            if not has_begun(records):
                continue
            whole = Replayed(cls, ACTIVITIES, records, jump=False, **about)
            jumped = Replayed(cls, ACTIVITIES, records, **about)
            assert vars(jumped) | {"delivered": 0} == vars(whole) | {"delivered": 0}


def has_begun(records):
    """Whether there is a first turn: a run may end before it."""
    return any(
        type(record) is ev.Turn
        and (1 in record.delivers or any(type(event) is ev.WorkflowStarted for event in record.inputs))
        for _at, record in records
    )


@pytest.mark.parametrize("seed", SEEDS)
async def test_everything_at_once_ends_and_replays_as_it_was(seed, request):
    if seed % 2:
        request.getfixturevalue("keeps_code")
    rng = random.Random(seed)
    ops = program(rng)
    if rng.random() < 0.3:
        ops = [["saga", ops], ["act", 1]]
    Crashing.rng, Crashing.chance = random.Random(seed), rng.choice([0, 0, 0.05, 0.15])
    interceptors = [Everywhere()] if rng.random() < 0.25 else []
    about = {"interceptors": interceptors, "codecs": [encrypted()] if rng.random() < 0.2 else []}
    options = {}
    if rng.random() < 0.2:
        options["run_timeout"] = rng.choice([0.002, 0.008, 0.02])
    if rng.random() < 0.2:
        options["execution_timeout"] = rng.choice([0.01, 0.03])
    if rng.random() < 0.3:
        options["retry_policy"] = RetryPolicy(initial_interval=0.0001, maximum_attempts=3, jitter=0)
    if rng.random() < 0.3:
        options["start_delay"] = 0.003
    trouble = rng.choice([0, 0, 0.1, 0.3])
    journal = MemoryJournal()
    for lives_left in reversed(range(rng.choice([1, 1, 2, 3]))):
        store = TroubledStore(MemoryStore(journal))
        async with hosted(store, Mixed, Kid, activities=ACTIVITIES, **about) as runtime:
            handle = None
            while handle is None:
                with suppress(CommitUnknownError):
                    handle = await runtime.spawn(
                        Mixed.run, ops, id="m", if_running="attach", if_closed="attach", **options
                    )
            for _ in range(rng.randint(0, 8)):
                if rng.random() < trouble:
                    store.failures.append(rng.choice(["before", "after"]))
                with suppress(EveractError):
                    await asyncio.wait_for(meddle(runtime, handle, rng), 20)
            if not lives_left:
                Crashing.chance = 0.0
                await all_over(runtime)
                await check(runtime, interceptors)
