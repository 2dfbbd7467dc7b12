"""What a running runtime lists, counts and finds is what the journal would give it if it started at that moment."""

import asyncio
import random
from collections import Counter
from contextlib import ExitStack

import pytest
from support.blocking import Blocked
from support.hosting import LIMIT, hosted, settled
from support.journal_model import make_tiny
from support.stores import TroubledStore

from everact import workflow
from everact.exceptions import (
    CommitUnknownError,
    WorkflowClosedError,
    WorkflowNotFoundError,
    WorkflowTypeError,
)
from everact.journal import events as ev
from everact.journal.fault_points import armed
from everact.journal.lmdb_store import LmdbStore
from everact.journal.loading import load
from everact.journal.run_status import STATUSES

#: Where a commit stands still: the first that it passes of each.
PLACES = {
    "before it": ["journal.commit.before"],
    "in its compaction": ["compaction.before", "journal.commit.written"],
    "behind its compaction": ["compaction.written", "journal.commit.written"],
    "behind it": ["journal.commit.after"],
}


@workflow.defn
class Adds:
    def __init__(self) -> None:
        self.numbers: list[int] = []

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: -1 in self.numbers)
        return len(self.numbers)

    @workflow.signal
    def add(self, n: int) -> None:
        self.numbers.append(n)

    @workflow.update
    def take(self, n: int) -> int:
        self.numbers.append(n)
        return n


@workflow.defn
class Sleeps(Adds):
    @workflow.run
    async def run(self) -> int:
        await workflow.sleep(3600)
        return 0


class Clients:
    """Calls at random, each repeated with its request id until it is answered."""

    def __init__(self, runtime, rng):
        self.runtime = runtime
        self.rng = rng
        self.number = 0

    async def call_once(self):
        self.number += 1
        number = self.number
        name = f"w-{self.rng.randrange(12)}"
        kind = self.rng.choice([Adds, Adds, Sleeps])
        verb = self.rng.choice(["spawn", "spawn", "tell", "tell", "tell", "ask", "ask", "end", "terminate"])
        async with asyncio.timeout(LIMIT):
            while True:
                try:
                    return await self.call(verb, name, kind, number)
                except CommitUnknownError:
                    await asyncio.sleep(0.0005)  # the runtime pauses before it begins again
                except (WorkflowNotFoundError, WorkflowClosedError, WorkflowTypeError):
                    return None

    async def call(self, verb, name, kind, number):
        request = f"r{number}"
        ref = self.runtime.ref(name)
        match verb:
            case "spawn":
                how = self.rng.choice(["replace", "attach"])
                await self.runtime.spawn(kind, id=name, if_running=how, request_id=request)
            case "tell":
                await ref.tell("add", number, request_id=request)
            case "ask":
                assert await ref.ask("take", 7, request_id=request) == 7
            case "end":
                await ref.tell("add", -1, request_id=request)
            case "terminate":
                await ref.terminate("enough")


def known(index):
    """Everything that an index answers."""
    rows = list(index.newest_first())
    requests = {}
    entries = {row.key: index.entries(row) for row in rows}
    for row in rows:
        for entry in entries[row.key]:
            for number, event in enumerate(ev.decode_record(entry.body).inputs, entry.first_event):
                if isinstance(event, ev.WITH_DIGEST) and event.request_id:
                    requests[row.workflow_id, event.request_id] = (row.key, number, event.digest)
    return {
        "rows": [
            (r.key, r.workflow_id, r.run_id, r.workflow_type, r.status, r.started_at, r.closed_at)
            for r in rows
        ],
        "entries": entries,
        "newest": {row.workflow_id: index.find(row.workflow_id).key for row in rows},
        "runs": {row.run_id: index.find(row.workflow_id, row.run_id).key for row in rows},
        "keys": {row.key: index.row(row.key).status for row in rows},
        "requests": {name: tuple(index.requests.find(*name) or ()) for name in requests},
        "counts": {
            (kind, status): index.count(kind, status)
            for kind in (None, "Adds", "Sleeps")
            for status in (None, *STATUSES)
        },
    } | {"right requests": requests}


async def check(runtime, expected):
    """The index, and what callers see of it."""
    mine = known(runtime._shard.index)
    for name, right in expected.items():
        assert mine[name] == right, name
    assert mine["requests"] == mine["right requests"]
    listed = await runtime.list_workflows()
    assert [(s.workflow_id, s.run_id, s.status) for s in listed] == [
        (workflow_id, run_id, status) for _, workflow_id, run_id, _, status, _, _ in expected["rows"]
    ]
    by_status = Counter(s.status for s in listed)
    for status in STATUSES:
        assert await runtime.count_workflows(status=status) == by_status[status]


async def commit_that_waits(store, clients, tasks):
    """Let the next commit wait before it begins; calls come until there is one."""
    store.hold()
    while not store._waiting.is_set():
        tasks.add(asyncio.create_task(clients.call_once()))
        for _ in range(5):
            await asyncio.sleep(0)
    await store.held()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
async def test_lists_agree_with_the_journal_whatever_is_held_or_fails(tmp_journal, monkeypatch, seed):
    make_tiny(monkeypatch, WINDOW=25)
    monkeypatch.setattr("everact.actors.rebuilding.FIRST_PAUSE", 0.001)
    rng = random.Random(seed)
    store = TroubledStore(LmdbStore(tmp_journal, durability="os"))
    async with hosted(store, Adds, Sleeps) as runtime:
        clients, tasks = Clients(runtime, rng), set()
        for _ in range(30):
            for _ in range(rng.randrange(8)):
                await clients.call_once()
            if rng.random() < 0.25:
                store.failures.append(rng.choice(["before", "after"]))
            await commit_that_waits(store, clients, tasks)
            reader = LmdbStore(tmp_journal, read_only=True)
            expected = known(load(reader).runs)
            await check(runtime, expected)
            if not store.failures:
                blocked = Blocked()
                with ExitStack() as stack:
                    for point in PLACES[rng.choice(list(PLACES))]:
                        stack.enter_context(armed(point, blocked))
                    store.release()
                    assert await asyncio.to_thread(blocked.reached.wait, 20)
                    await check(runtime, expected)
                    blocked.go.set()
            store.release()
            reader.close()
            await asyncio.gather(*tasks)
            tasks.clear()
        await settled(runtime)
        assert runtime._shard.compactor.error is None
        reader = LmdbStore(tmp_journal, read_only=True)
        with reader.view() as tables:
            assert tables.segments.first > 1
        expected = known(load(reader).runs)
        await check(runtime, expected)
        for summary in await runtime.list_workflows():
            described = await runtime.ref(summary.workflow_id).describe()
            if described.run_id == summary.run_id:
                assert described.status == summary.status
        reader.close()
