"""Random activities of every kind through crashes, pauses, failed commits and starts: each has one end."""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from datetime import timedelta

import pytest
from support.codecs import InThreads
from support.hosting import hosted
from support.stores import TroubledStore

from everact import ActivityError, RetryPolicy, activity, workflow
from everact.actors import rebuilding, restarts
from everact.actors.event_loop import TurnAborted
from everact.exceptions import (
    ActivityCancelledError,
    ActivityNotPendingError,
    CommitUnknownError,
    RuntimeClosedError,
)
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.verify import verify
from everact.supervision.backoff import Backoff
from everact.supervision.strategies import RestartLimit

QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=1), jitter=0, maximum_attempts=0)
JOBS = 25


class World:
    """What the activities act on.

    Attributes:
        tokens: Of attempts that are to be completed from outside.
        crashes: Whether now and then a turn crashes.
        carried: What attempts that nobody breaks into have done.
    """

    rng = random.Random(0)
    tokens: asyncio.Queue[str]
    crashes = True
    carried: set[int]
    count = 0


@activity.defn(retry_policy=QUICK)
async def flaky(n: int) -> int:
    await asyncio.sleep(0)
    activity.heartbeat(n)
    if World.rng.random() < 0.5:
        raise ValueError("again")
    return n


@activity.defn(retry_policy=QUICK, cancellation_type="wait_cancellation_completed")
async def slow(n: int) -> int:
    if World.rng.random() < 0.3:
        raise ValueError("again")
    for _ in range(World.rng.randrange(200)):
        await asyncio.sleep(0)
    return n


@activity.defn(retry_policy=QUICK, cancellation_type="wait_completed")
async def carried(n: int) -> int:
    if n in World.carried:  # idempotent: what was done is said again
        return n
    if World.rng.random() < 0.3:
        raise ValueError("again")
    for _ in range(World.rng.randrange(200)):
        await asyncio.sleep(0)
        if World.rng.random() < 0.01 and activity.is_cancelled():
            raise asyncio.CancelledError
    World.carried.add(n)
    return n


@activity.defn(retry_policy=QUICK, cancellation_type="wait_cancellation_completed")
async def outside(n: int) -> int:
    World.tokens.put_nowait(activity.info().task_token)
    await asyncio.sleep(0)
    activity.raise_complete_async()


def shake():
    if World.crashes and World.rng.random() < 0.05:
        World.count += 1
        raise TurnAborted(f"crash {World.count}")


@workflow.defn
class Jobs:
    def __init__(self) -> None:
        self.tasks: dict[int, asyncio.Task[int]] = {}
        self.ends: list[list[object]] = []
        self.effects: list[int] = []
        self.over = False

    @workflow.run
    async def run(self) -> list[list[object]]:
        await workflow.wait_condition(lambda: self.over and workflow.all_handlers_finished())
        return self.ends

    @workflow.signal
    async def start(self, n: int, kind: str) -> None:
        self.effects.append(workflow.side_effect(lambda: n))
        if n % 3 == 0:
            workflow.upsert_memo({"newest": n})
        call = workflow.execute_activity(kind, n, result_type=int)
        task = self.tasks[n] = asyncio.create_task(self.follow(call))
        try:
            result = await task
        except (asyncio.CancelledError, ActivityError):  # it failed when it was asked to stop
            result = "cancelled"
        shake()
        self.ends.append([n, result])

    async def follow(self, call):
        return await call

    @workflow.signal
    def stop(self, n: int) -> None:
        shake()
        if n in self.tasks:
            self.tasks[n].cancel()

    @workflow.signal
    def end(self) -> None:
        self.over = True

    @workflow.query
    def look(self) -> int:
        return len(self.ends)


class Jockey:
    """Does things to the present runtime until they are acknowledged."""

    def __init__(self):
        self.runtime = None
        self.opened = asyncio.Event()

    async def until_done(self, call):
        while True:
            await self.opened.wait()
            runtime = self.runtime
            try:
                return await call(runtime)
            except CommitUnknownError:
                await asyncio.sleep(0)
            except RuntimeClosedError:
                await asyncio.sleep(0)

    async def complete(self):
        """Whoever completes from outside: each token some time, and a second time now and then."""
        while True:
            token = await World.tokens.get()
            with suppress(ActivityNotPendingError, ActivityCancelledError):
                if World.rng.random() < 0.5:
                    await self.until_done(lambda r, t=token: r.activity_handle(t).heartbeat("on my way"))
            with suppress(ActivityNotPendingError):
                ways = ["complete", "complete", "fail", "report_cancelled"]
                way = World.rng.choice(ways)
                if way == "complete":
                    await self.until_done(lambda r, t=token: r.activity_handle(t).complete(-1))
                else:  # it fails, and there is another attempt
                    await self.until_done(lambda r, t=token: r.activity_handle(t).fail(ValueError("again")))

    async def meddle(self):
        ref = lambda r: r.ref("a", Jobs)  # noqa: E731
        for number in range(10_000):
            await self.until_done(lambda r: ref(r).pause())
            for _ in range(World.rng.randrange(30)):
                await asyncio.sleep(0)
            if number % 3 == 0:
                await self.until_done(lambda r: ref(r).query(Jobs.look))
            await self.until_done(lambda r: ref(r).resume())
            for _ in range(World.rng.randrange(60)):
                await asyncio.sleep(0)

    async def work(self, number):
        for _ in range(World.rng.randrange(200)):
            await asyncio.sleep(0)
        kind = World.rng.choice(["flaky", "slow", "outside", "carried", "carried"])
        await self.until_done(
            lambda r: r.ref("a", Jobs).signal(Jobs.start, number, kind, request_id=f"s{number}")
        )
        if World.rng.random() < 0.5:
            for _ in range(World.rng.randrange(60)):
                await asyncio.sleep(0)
            await self.until_done(
                lambda r: r.ref("a", Jobs).signal(Jobs.stop, number, request_id=f"x{number}")
            )


@pytest.mark.parametrize("coded", [False, True], ids=["plain", "coded"])
@pytest.mark.parametrize("seed", range(4))
async def test_random_jobs(seed, coded, monkeypatch):
    World.rng, World.tokens, World.crashes = random.Random(seed), asyncio.Queue(), True
    World.carried = set()
    monkeypatch.setattr(rebuilding, "FIRST_PAUSE", 0.0005)
    monkeypatch.setattr(rebuilding, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(restarts, "LIMIT", RestartLimit(most=10_000, backoff=Backoff(first=0.0, longest=0.0)))
    journal = MemoryJournal()
    jockey = Jockey()
    meddlers = [asyncio.create_task(jockey.complete()), asyncio.create_task(jockey.meddle())]
    tasks = [asyncio.create_task(jockey.work(number)) for number in range(JOBS)]
    rng = random.Random(seed)
    for last in [False, False, False, True]:
        store = TroubledStore(MemoryStore(journal))
        codecs = [InThreads()] if coded else []
        async with hosted(
            store,
            Jobs,
            activities=[flaky, slow, outside, carried],
            codecs=codecs,
            max_cached_workflows=1,
            grace=rng.choice([0, 0.01]),
        ) as runtime:
            await runtime.spawn(Jobs, id="a", if_running="attach")
            jockey.runtime = runtime
            jockey.opened.set()
            for _ in range(rng.randrange(2, 5)):
                for _ in range(rng.randrange(150)):
                    await asyncio.sleep(0)
                store.failures.append(rng.choice(["before", "after"]))
            if last:
                async with asyncio.timeout(20):
                    await asyncio.gather(*tasks)
                    store.failures.clear()
                    meddlers[1].cancel()
                    await asyncio.gather(meddlers[1], return_exceptions=True)
                    ref = runtime.ref("a", Jobs)
                    await jockey.until_done(lambda r: ref.resume())
                    World.crashes = False
                    await jockey.until_done(lambda r: ref.signal(Jobs.end, request_id="end"))
                    ends = await ref.result()
                meddlers[0].cancel()
                await asyncio.gather(*meddlers, return_exceptions=True)
            jockey.opened.clear()
            jockey.runtime = None
    assert Counter(n for n, _ in ends) == Counter(range(JOBS))
    assert {result for _, result in ends} <= {"cancelled", -1, *range(JOBS)}
    assert World.carried
    assert not World.carried & {n for n, result in ends if result == "cancelled"}, "done, and nobody knows"
    store = MemoryStore(journal)
    assert not verify(store).problems
    store.close()
