"""An error of our own in moving the log costs a few commits at most, and nothing that was acknowledged."""

import threading

import pytest
from support.hosting import hosted, settled, until

from everact import ApplicationError, workflow
from everact.exceptions import CommitUnknownError, EveractError, JournalAccessError
from everact.journal import compaction, compaction_step
from everact.journal.blobs import Spiller
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.verify import verify


@workflow.defn
class Adds:
    def __init__(self) -> None:
        self.sum = 0

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: self.sum >= 10)
        return self.sum

    @workflow.signal
    def note(self, text: str) -> None:
        raise ApplicationError("not noted", text)

    @workflow.update
    def add(self, number: int) -> int:
        self.sum += number
        return self.sum


async def adds(ref, number):
    """Whatever fails is repeated, as a caller does."""
    failed = 0
    while True:
        try:
            return await ref.ask(Adds.add, 1, request_id=str(number)), failed
        except CommitUnknownError:
            failed += 1


@pytest.fixture(autouse=True)
def one_entry_a_segment(monkeypatch):
    monkeypatch.setattr(compaction, "WINDOW", 1)


async def test_a_step_that_always_raises_is_given_up(monkeypatch, caplog):
    journal = MemoryJournal()
    with monkeypatch.context() as patch:

        def broken(*_args):
            raise RuntimeError("a bug of ours")

        async with hosted(journal, Adds) as runtime:
            ref = await runtime.spawn(Adds, id="a")
            patch.setattr(compaction_step, "facts_row", broken)
            failures = 0
            for number in range(1, 10):
                found, failed = await adds(ref, number)
                assert found == number
                failures += failed
            assert failures == compaction.MOST_FAILURES
            assert await adds(ref, 10) == (10, 0)
            assert await ref.result() == 10
            with pytest.raises(
                EveractError,
                match="nothing is purged, since the log is no longer moved into the tables: a bug of ours",
            ):
                await runtime.purge(workflow_id="a")
    text = "the log is no longer moved into the tables until the next start, turns go on; last error:"
    assert caplog.text.count(text) == 1
    async with hosted(journal, Adds) as runtime:  # mended
        assert await runtime.purge(workflow_id="a") == 1
    assert verify(MemoryStore(journal)).problems == []


async def test_a_plan_that_fails_now_and_then_is_made_again(monkeypatch, caplog):
    journal = MemoryJournal()
    draft, calls = compaction.draft_open, []

    def sometimes(state):
        calls.append(state)
        if len(calls) in {1, 2, 3, 4, 5, 8, 15}:
            raise JournalAccessError("too many readers")
        return draft(state)

    monkeypatch.setattr(compaction, "draft_open", sometimes)
    async with hosted(journal, Adds) as runtime:
        refs = [await runtime.spawn(Adds, id=f"a-{number}") for number in range(4)]
        for number in range(1, 10):
            for ref in refs:
                assert await adds(ref, number) == (number, 0)
        assert runtime._shard.compactor.error is None
        await settled(runtime)
        runtime._shard.compactor.hurry()
        runtime._shard.housekeeping.wake()
        await until(lambda: not any(map(len, runtime._shard.index.rows.values())))
    assert len(calls) > 15
    assert "moving the log into the tables has failed, it is tried again: " in caplog.text
    assert verify(MemoryStore(journal)).problems == []


async def test_a_plan_that_always_fails_is_given_up(monkeypatch):
    async with hosted(MemoryJournal(), Adds) as runtime:
        ref = await runtime.spawn(Adds, id="a")

        def broken(*_args):
            raise RuntimeError("a bug of ours")

        monkeypatch.setattr(compaction, "draft_open", broken)
        for number in range(1, 11):
            assert await adds(ref, number) == (number, 0)
        assert await ref.result() == 10
        assert runtime._shard.compactor.failures == compaction.MOST_FAILURES
        assert str(runtime._shard.compactor.error) == "a bug of ours"


async def test_large_payloads_are_hashed_by_the_writer(monkeypatch):
    address, threads = Spiller.address, set()

    def noted(self, payload):
        threads.add(threading.current_thread())
        return address(self, payload)

    monkeypatch.setattr(Spiller, "address", noted)
    async with hosted(MemoryJournal(), Adds) as runtime:
        ref = await runtime.spawn(Adds, id="a")
        await ref.signal(Adds.note, "x" * 200_000)
        for number in range(1, 11):
            await adds(ref, number)
        assert await ref.result() == 10
    assert {thread.name for thread in threads} == {"everact-writer"}
