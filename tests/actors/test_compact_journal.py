"""The data file of a running program is written anew; its workflows notice nothing."""

import asyncio

import pytest
from support.hosting import hosted, until
from support.purges import check_journal

from everact import workflow
from everact.exceptions import JournalAccessError, JournalClosedError, JournalError
from everact.journal import compaction, rewrite
from everact.journal.fault_points import armed
from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryJournal


@workflow.defn
class Echo:
    def __init__(self):
        self.heard = []

    @workflow.run
    async def run(self, text: str, count: int) -> str:
        await workflow.wait_condition(lambda: len(self.heard) >= count)
        return text

    @workflow.signal
    def hear(self, word: str) -> None:
        self.heard.append(word)


async def load(runtime, stop, ended):
    while not stop.is_set():
        number = len(ended)
        ended.append(number)
        assert await runtime.execute(Echo, f"text {number}", 0, id=f"run-{number}") == f"text {number}"


@pytest.mark.slow
async def test_runs_go_on_while_the_file_is_written_anew(tmp_journal, monkeypatch):
    monkeypatch.setattr(compaction, "WINDOW", 50)
    monkeypatch.setattr(rewrite, "PIECE_ROWS", 20)
    ended = []
    stop = asyncio.Event()
    async with hosted(tmp_journal, Echo) as runtime:
        waiting = await runtime.spawn(Echo, "waited", 4, id="waiting")
        loading = [asyncio.create_task(load(runtime, stop, ended)) for _ in range(4)]
        for number in range(3):
            await until(lambda count=len(ended) + 60: len(ended) > count)
            await waiting.signal(Echo.hear, str(number))
            await runtime.compact_journal()
        await runtime.purge(older_than=0)
        done = await runtime.compact_journal()
        stop.set()
        await asyncio.gather(*loading)
        assert done.bytes_after < done.bytes_before
        await waiting.signal(Echo.hear, "last")
        assert await waiting.result() == "waited"
        left = await runtime.count_workflows()
        assert runtime._shard.compactor.suspended is False
    runs, _facts = check_journal(tmp_journal)
    assert len(runs) == left
    async with hosted(tmp_journal, Echo) as runtime:
        assert await runtime.ref("waiting", Echo).result() == "waited"


async def test_nothing_is_moved_meanwhile(tmp_journal):
    seen = []
    async with hosted(tmp_journal, Echo) as runtime:
        compactor = runtime._shard.compactor
        with armed("rewrite.begun", lambda: seen.append(compactor.suspended)):
            await runtime.compact_journal()
        assert seen == [True]
        await until(lambda: not compactor.suspended)


async def test_one_that_fails_is_told_and_all_goes_on(tmp_journal, monkeypatch):
    monkeypatch.setattr(rewrite, "MARGIN", 1 << 60)
    async with hosted(tmp_journal, Echo) as runtime:
        with pytest.raises(JournalAccessError, match="cannot be compacted: the copy needs"):
            await runtime.compact_journal()
        await until(lambda: not runtime._shard.compactor.suspended)
        assert await runtime.execute(Echo, "on", 0) == "on"


async def test_two_at_a_time(tmp_journal):
    async with hosted(tmp_journal, Echo) as runtime:
        both = []

        def second():
            if not both:
                future = asyncio.run_coroutine_threadsafe(runtime.compact_journal(), runtime._shard.loop)
                both.append(future)
                with pytest.raises(JournalError, match="is being compacted already: wait for that"):
                    future.result(20)

        with armed("rewrite.begun", second):
            await runtime.compact_journal()
        await until(lambda: not runtime._shard.compactor.suspended)


async def test_leaving_the_runtime_ends_it(tmp_journal):
    left = asyncio.Event()
    loop = asyncio.get_running_loop()

    def leave():
        loop.call_soon_threadsafe(left.set)
        asyncio.run_coroutine_threadsafe(closed.wait(), loop).result(20)

    closed = asyncio.Event()
    with armed("rewrite.begun", leave):
        async with hosted(tmp_journal, Echo) as runtime:
            await runtime.execute(Echo, "a", 0, id="a")
            compacting = asyncio.create_task(runtime.compact_journal())
            await left.wait()
        closed.set()
        with pytest.raises(JournalClosedError):
            await compacting
    assert {path.name for path in tmp_journal.iterdir()} == {"data.mdb", "lock.mdb", "everact.lock"}
    store = LmdbStore(tmp_journal, read_only=True)
    assert len(list(store.scan())) == 1
    store.close()


async def test_a_journal_in_memory_has_no_file():
    async with hosted(MemoryJournal(), Echo) as runtime:
        with pytest.raises(JournalError, match="the journal 'in memory' has no file that could be compacted"):
            await runtime.compact_journal()
