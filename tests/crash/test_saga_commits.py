"""A saga whose commits fail goes on from the journal, each step undone under one key; and payload codecs agree."""

import asyncio
import contextlib
from datetime import timedelta

import pytest
from support.codecs import Wrapping, encrypted
from support.hosting import hosted, kinds, settled, until
from support.stores import TroubledStore

from everact import ApplicationError, RetryPolicy, Runtime, activity, workflow
from everact.exceptions import (
    CommitUnknownError,
    SagaCompensationError,
    WorkflowFailedError,
    WorkflowQuarantinedError,
)
from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryJournal, MemoryStore

QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=3, jitter=0)
SECRET = "Zanzibar"

done: list[tuple[str, str, str]] = []
broken: dict[str, int] = {}


@pytest.fixture(autouse=True)
def nothing_done():
    done.clear()
    broken.clear()


def note(verb, what):
    done.append((verb, what, activity.info().idempotency_key))


@activity.defn(retry_policy=QUICK)
async def do(what: str) -> str:
    note("do", what)
    return what


@activity.defn(retry_policy=QUICK)
async def undo(what: str) -> None:
    note("undo", what)
    if broken.get(what, 0):
        broken[what] -= 1
        raise ApplicationError(f"cannot undo {what}", non_retryable=True)


@workflow.defn
class Trip:
    @workflow.run
    async def run(self, policy: str, prefix: str = "") -> None:
        async with workflow.saga(on_compensation_failure=policy) as saga:
            for what in ("a", "b", "c"):
                await saga.run(do, prefix + what, compensate=undo)
            raise ApplicationError("no")


async def end_of(handle):
    while True:
        try:
            await handle.result(timeout=10)
        except WorkflowQuarantinedError:
            with contextlib.suppress(CommitUnknownError):
                await handle.release("again")
        except CommitUnknownError:
            continue
        except WorkflowFailedError as error:
            return error


@pytest.mark.parametrize("failure", ["before", "after"])
@pytest.mark.parametrize("commit", range(1, 9))
async def test_a_failed_commit_at_any_place_undoes_each_step_under_one_key(tmp_journal, failure, commit):
    broken["b"] = 1
    store = TroubledStore(LmdbStore(tmp_journal, durability="os"))
    commits = 0
    inner = store.append

    def append(expected, entries, work=None):
        nonlocal commits
        commits += 1
        if commits == commit:
            store.failures[:] = [failure]
        return inner(expected, entries, work)

    store.append = append
    async with Runtime(store, workflows=[Trip], activities=[do, undo], grace=timedelta(0)) as runtime:
        while True:
            with contextlib.suppress(CommitUnknownError):
                handle = await runtime.spawn(
                    Trip.run, "escalate", id="s", if_running="attach", if_closed="attach"
                )
                break
        error = await end_of(handle)
        assert "no" in str(error.__cause__)
        history = await handle.fetch_history()
        seen = await handle.describe()
    assert commits >= commit
    undone = {(what, key) for verb, what, key in done if verb == "undo"}
    assert sorted(what for what, _key in undone) == ["a", "b", "c"], "one key for each"
    assert kinds(history).count("CompensationCompleted") == 3
    assert str(seen.sagas[0]) == "saga: 3 of 3 compensations done"


@pytest.mark.parametrize(
    "codecs", [lambda: [encrypted()], lambda: [encrypted(), Wrapping()]], ids=["inline", "loop"]
)
async def test_with_payload_codecs_nothing_of_a_saga_is_readable_in_the_journal(codecs):
    broken[f"{SECRET} b"] = 1
    journal = MemoryJournal()
    async with hosted(journal, Trip, activities=[do, undo], codecs=codecs()) as runtime:
        handle = await runtime.spawn(Trip.run, "escalate", f"{SECRET} ", id="s")
        with pytest.raises(WorkflowQuarantinedError, match=f"cannot undo {SECRET} b"):
            await handle.result(timeout=10)
        seen = await handle.describe()
        assert f"cannot undo {SECRET} b" in seen.failure
    async with hosted(journal, Trip, activities=[do, undo], codecs=codecs()) as runtime:
        handle = runtime.ref("s", Trip)
        with pytest.raises(WorkflowQuarantinedError, match=f"cannot undo {SECRET} b"):
            await handle.result(timeout=10)
        await handle.release()
        error = await end_of(handle)
        assert "no" in str(error.__cause__)
        failed = [e.event for e in await handle.fetch_history() if e.kind == "CompensationFailed"]
        assert SECRET in failed[0].failure.message
    store = MemoryStore(journal)
    stored = [entry.body for _sequence, entries in store.scan() for entry in entries]
    store.close()
    assert stored
    assert not any(SECRET.encode() in body for body in stored)
    assert sum(verb == "undo" for verb, _what, _key in done) == 4


async def test_with_payload_codecs_what_was_collected_comes_back():
    broken[f"{SECRET} b"] = 1
    async with hosted(MemoryJournal(), Trip, activities=[do, undo], codecs=[encrypted()]) as runtime:
        handle = await runtime.spawn(Trip.run, "continue", f"{SECRET} ", id="s")
        error = await end_of(handle)
    assert type(error.__cause__) is SagaCompensationError
    assert SECRET in error.__cause__.failures[0][1]


async def test_runs_that_undo_leave_memory_between_two_turns():
    gate = asyncio.Event()
    waiting = []

    @activity.defn
    async def slow_undo(what: str) -> None:
        waiting.append(what)
        await gate.wait()
        note("undo", what)

    @workflow.defn(name="Slow")
    class Slow:
        @workflow.run
        async def run(self) -> None:
            async with workflow.saga(parallel=True) as saga:
                for what in ("a", "b", "c"):
                    await saga.run(do, what, compensate=slow_undo)
                raise ApplicationError("no")

    async with hosted(MemoryJournal(), Slow, activities=[do, slow_undo], max_cached_workflows=1) as runtime:
        handles = [await runtime.spawn(Slow.run, id=f"s{number}") for number in range(4)]
        await until(lambda: len(waiting) == 12)
        await settled(runtime)
        runtime._shard.passivation.trim()
        shard = runtime._shard
        assert sum(shard.find(handle.workflow_id).instance is not None for handle in handles) <= 1
        gate.set()
        for handle in handles:
            await end_of(handle)
    assert len({key for verb, _what, key in done if verb == "undo"}) == 12
