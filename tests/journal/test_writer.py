"""Group commit: what may leave when, and what a failed commit does."""

import asyncio
import threading

import pytest

from everact.journal import events as ev
from everact.journal.errors import CommitUnknownError
from everact.journal.fault_points import armed
from everact.journal.memory_store import MemoryStore
from everact.journal.store import STARTS_RUN, Entry
from everact.journal.writer import DURABLE, GroupCommit, Raise, settle

BODY = ev.encode_record(ev.Turn((ev.WorkflowStarted("w", "r", "T"),)))


class Blocked:
    """Holds the writer thread at the commit until it is let go."""

    def __init__(self):
        self.reached = threading.Event()
        self.go = threading.Event()

    def __call__(self):
        self.reached.set()
        assert self.go.wait(20)


class Host:
    def __init__(self):
        self.store = MemoryStore()
        self.log = []
        self.writer = GroupCommit(
            self.store,
            asyncio.get_running_loop(),
            lambda sequence, batch: self.log.append(("committed", sequence, len(batch.entries))),
            lambda error: self.log.append(("failed", type(error).__name__)),
            lambda appended: None,
        )

    def add(self, key=1):
        batch = self.writer.open
        batch.entries.append(Entry(key, 1, STARTS_RUN, 5, BODY))
        return batch


@pytest.fixture
async def host():
    host = Host()
    yield host
    host.writer.close()


async def test_effects_and_answers_come_after_the_commit_in_this_order(host):
    batch = host.add()
    batch.effects.append((host.log.append, ("first effect",)))
    batch.effects.append((host.log.append, ("second effect",)))
    waiter = asyncio.get_running_loop().create_future()
    waiter.add_done_callback(
        lambda f: host.log.append(("answer", f.result(), len(host.store.backing.records)))
    )
    batch.waiters.append((waiter, "done"))
    host.writer.flush()
    assert host.log == []
    await host.writer.drain()
    await asyncio.sleep(0)
    assert host.log == [("committed", 1, 1), "first effect", "second effect", ("answer", "done", 1)]


async def test_what_is_added_while_a_commit_is_on_its_way_goes_out_as_one_batch(host):
    blocked = Blocked()
    with armed("journal.commit.before", blocked):
        host.add()
        host.writer.flush()
        await asyncio.to_thread(blocked.reached.wait)
        for key in range(2, 12):
            host.add(key)
            host.writer.flush()
        assert not host.writer.is_idle
        assert [entry.run_key for entry in host.writer.undurable(2)] == [2]
        assert [entry.run_key for entry in host.writer.undurable(1)] == [1]
        blocked.go.set()
        await host.writer.drain()
    assert host.log == [("committed", 1, 1), ("committed", 2, 10)]
    assert host.writer.is_idle
    assert host.writer.undurable(2) == []


async def test_an_answer_waits_for_the_batch_that_it_could_have_read(host):
    loop = asyncio.get_running_loop()
    now, flying, waiting = loop.create_future(), loop.create_future(), loop.create_future()
    blocked = Blocked()
    with armed("journal.commit.before", blocked):
        first = host.add()
        host.writer.flush()
        await asyncio.to_thread(blocked.reached.wait)
        second = host.add()
        DURABLE.answer(now, "old")
        first.answer(flying, "flying")
        second.answer(waiting, Raise(KeyError("no")))
        assert now.result() == "old"
        assert not flying.done() and not waiting.done()
        blocked.go.set()
        await host.writer.drain()
    assert flying.result() == "flying"
    with pytest.raises(KeyError):
        waiting.result()
    late = loop.create_future()
    first.answer(late, "late")
    assert late.result() == "late"


async def test_an_effect_that_raises_does_not_stop_the_others(host):
    reports = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reports.append(context))
    batch = host.add()
    batch.effects.append((lambda: 1 / 0, ()))
    batch.effects.append((host.log.append, ("still",)))
    waiter = asyncio.get_running_loop().create_future()
    batch.waiters.append((waiter, 1))
    host.writer.flush()
    await host.writer.drain()
    assert "still" in host.log
    assert waiter.result() == 1
    assert isinstance(reports[0]["exception"], ZeroDivisionError)


async def test_after_a_failed_commit_everything_queued_is_refused_and_no_effect_leaves(host):
    loop = asyncio.get_running_loop()
    blocked = Blocked()

    def fail():
        blocked()
        raise OSError("disk on fire")

    with armed("journal.commit.written", fail):
        waiters = [loop.create_future() for _ in range(3)]
        batch = host.add()
        batch.waiters.append((waiters[0], 1))
        batch.effects.append((host.log.append, ("effect",)))
        host.writer.flush()
        await asyncio.to_thread(blocked.reached.wait)
        queued = host.add(2)
        queued.effects.append((host.log.append, ("effect",)))
        queued.waiters.append((waiters[1], 2))
        queued.answer(waiters[2], 3)
        blocked.go.set()
        await host.writer.drain()
    for waiter in waiters:
        with pytest.raises(CommitUnknownError, match="request_id"):
            waiter.result()
    assert host.log == [("failed", "CommitUnknownError")]
    late = loop.create_future()
    queued.answer(late, 4)
    with pytest.raises(CommitUnknownError):
        late.result()
    host.writer.flush()
    assert host.store.backing.records == []


async def test_a_waiter_that_has_gone_away_is_left_alone():
    gone = asyncio.get_running_loop().create_future()
    gone.cancel()
    settle(gone, 1)
    settle(gone, Raise(KeyError()))
    assert gone.cancelled()


async def test_drain_returns_at_once_when_nothing_is_on_its_way(host):
    await host.writer.drain()
    assert host.writer.is_idle
