"""Random messages through random restarts: what was acknowledged counts once; the journal knows all of it."""

import asyncio
import random
from contextlib import suppress
from datetime import timedelta

import pytest
from support.crashes import folded
from support.hosting import hosted, settled
from support.rounds import rounds

from everact import ApplicationError, RetryPolicy, activity, workflow
from everact.actors import restarts
from everact.actors.event_loop import TurnAborted
from everact.exceptions import RuntimeClosedError, UpdateFailedError, UpdateRejectedError
from everact.journal.loading import load
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.supervision.backoff import Backoff
from everact.supervision.strategies import RestartLimit

QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=0)


@activity.defn(retry_policy=QUICK)
async def price(n: int) -> int:
    for _ in range(n % 4):
        await asyncio.sleep(0)
    if (n + activity.info().attempt) % 3 == 0:
        raise ApplicationError("try again")
    return n


@activity.defn(retry_policy=QUICK)
def price_in_thread(n: int) -> int:
    return n


@workflow.defn
class Ledger:
    def __init__(self) -> None:
        self.total = 0
        self.count = 0
        self.order: list[int] = []
        self.over = False

    @workflow.signal
    def add(self, n: int) -> None:
        self.count += 1
        self.order.append(n)
        self.total += n

    @workflow.signal
    async def add_later(self, n: int) -> None:
        priced = await price(n)
        self.total += priced
        self.count += 1

    @workflow.signal
    async def add_in_thread(self, n: int) -> None:
        async with asyncio.timeout(3600):
            priced = await workflow.execute_activity(price_in_thread, n)
        self.total += priced
        self.count += 1

    @workflow.update
    async def take(self, n: int) -> int:
        await workflow.sleep(0.0005 * (n % 3))
        if n % 5 == 0:
            raise ApplicationError("not a multiple of five")
        self.count += 1
        self.total -= n
        return n

    @take.validator
    def check(self, n: int) -> None:
        if n > 50:
            raise ValueError("too much")

    @workflow.signal
    def end(self) -> None:
        self.over = True

    @workflow.query
    def look(self) -> list[int]:
        return [self.total, self.count, *self.order]

    @workflow.run
    async def run(self) -> list[int]:
        while not (self.over and workflow.all_handlers_finished()):
            await workflow.wait_condition(lambda: self.over and workflow.all_handlers_finished(), timeout=60)
        return [self.total, self.count]


class Chance:
    """Decides when a shaky run crashes."""

    rng = random.Random(0)
    crashes = 0


@workflow.defn(name="Ledger")
class ShakyLedger(Ledger):
    """Crashes at first and now and then, live and in replay, never for a reason that is in its history."""

    @workflow.signal
    def add(self, n: int) -> None:
        if not Chance.crashes or Chance.rng.random() < 0.08:
            Chance.crashes += 1
            raise TurnAborted(f"crash {Chance.crashes}")
        super().add(n)


async def meddle(runtime, rng):
    """Pause and resume, again and again, until the runtime is left."""
    ref = runtime.ref("a", Ledger)
    with suppress(RuntimeClosedError):
        while True:
            await ref.pause()
            for _ in range(rng.randrange(20)):
                await asyncio.sleep(0)
            await ref.resume()
            for _ in range(rng.randrange(40)):
                await asyncio.sleep(0)


@pytest.mark.parametrize("seed", rounds(range(12), 8))
@pytest.mark.parametrize("is_shaky", [False, True])
async def test_acknowledged_messages_count_once(seed, is_shaky, monkeypatch):
    rng = random.Random(seed)
    kind_of_ledger = ShakyLedger if is_shaky else Ledger
    Chance.rng, Chance.crashes = random.Random(seed), 0
    often = RestartLimit(most=10_000, backoff=Backoff(first=0.0, longest=0.0))
    monkeypatch.setattr(restarts, "LIMIT", often)
    journal = MemoryJournal()
    sent = {"total": 0, "count": 0}
    left = [
        (number, rng.choice(["add", "add_later", "add_in_thread", "take"]), rng.randrange(70))
        for number in range(60)
    ]
    done = set()

    async def send(runtime, number, kind, n):
        for _ in range(rng.randrange(6)):
            await asyncio.sleep(0)
        ref = runtime.ref("a", Ledger)
        try:
            if kind == "take":
                assert await ref.execute_update("take", n, request_id=f"q{number}") == n
                sent["total"] -= n
            else:
                await ref.signal(kind, n, request_id=f"q{number}")
                if rng.random() < 0.2:
                    await ref.signal(kind, n, request_id=f"q{number}")
                sent["total"] += n
            sent["count"] += 1
        except UpdateRejectedError:
            assert n > 50
        except UpdateFailedError:
            assert n % 5 == 0
        except RuntimeClosedError:
            return  # unknown: sent again in the next life
        done.add(number)

    for life in range(4):
        async with hosted(journal, kind_of_ledger, activities=[price, price_in_thread]) as runtime:
            await runtime.spawn("Ledger", id="a", if_running="attach")
            meddler = asyncio.create_task(meddle(runtime, rng)) if is_shaky else None
            batch = [entry for entry in left if entry[0] not in done][: 20 if life < 3 else None]
            tasks = [asyncio.create_task(send(runtime, *entry)) for entry in batch]
            if life < 3:
                for _ in range(rng.randrange(150)):
                    await asyncio.sleep(0)
                if rng.random() < 0.5:
                    await runtime.ref("a", Ledger).query("look")
            else:
                await asyncio.gather(*tasks)
        await asyncio.gather(*tasks)
        if meddler is not None:
            await meddler
    assert len(done) == 60
    assert not is_shaky or Chance.crashes
    async with hosted(journal, Ledger, activities=[price, price_in_thread]) as runtime:
        await runtime.ref("a").resume()
        await settled(runtime)
        live = runtime._shard.find("a").state
        loaded = load(MemoryStoreReader(journal))
        stored = loaded.states.get(1) or loaded.runs.state(loaded.runs.row(1))
        assert folded(stored) == folded(live)
        handle = runtime.ref("a", Ledger)
        await handle.signal(Ledger.end)
        assert await handle.result() == [sent["total"], sent["count"]]
        instance_view = await handle.query(Ledger.look)
        runtime._shard.find("a").drop_instance()
        assert await handle.query(Ledger.look) == instance_view


class MemoryStoreReader(MemoryStore):
    """Reads a journal without taking it over."""

    def _take_over(self):
        return None
