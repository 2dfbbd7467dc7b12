"""Lists say which runs follow each other, wherever the runs are kept; the commands show it."""

import msgspec
import pytest
from support.clock import ManualClock
from support.hosting import hosted, settled, tick
from support.stores import TroubledStore

from everact import ApplicationError, Client, RetryPolicy, Runtime, workflow
from everact.actors.journal_reader import JournalReader
from everact.exceptions import CommitUnknownError
from everact.journal.errors import JournalCorruptError
from everact.journal.export import export_runs
from everact.journal.importing import import_runs
from everact.journal.lmdb_store import LmdbStore
from everact.journal.loading import load
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.row_checksum import sealed
from everact.journal.run_repair import remade_row
from everact.journal.stored_runs import read_row
from everact.journal.verify import verify


@workflow.defn
class Hops:
    """Goes on as often as it is told to, and fails when it is told to."""

    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.signal
    def hop(self, word: str) -> None:
        self.words.append(word)

    @workflow.run
    async def run(self, left: int) -> int:
        if left:
            workflow.continue_as_new(left - 1)
        await workflow.wait_condition(lambda: self.words)
        if self.words[0] == "fail":
            raise ApplicationError("no")
        return left


def links(found, workflow_id):
    """``(first, before, next)`` of each run of an id, the oldest first; run ids as their places in that list."""
    runs = [one for one in reversed(found) if one.workflow_id == workflow_id]
    places = {one.run_id: place for place, one in enumerate(runs)} | {None: None}
    return [(places[one.first_run_id], places[one.continued_from], places[one.continued_to]) for one in runs]


CHAIN = [(0, None, 1), (0, 0, 2), (0, 1, 3), (0, 2, None)]


async def all_kinds(runtime):
    """A chain of each kind; one run that is alone."""
    await runtime.spawn(Hops, 3, id="renewed")
    await runtime.spawn(Hops, 0, id="alone")
    policy = RetryPolicy(initial_interval=0.01, maximum_interval=0.01, maximum_attempts=4)
    await runtime.spawn(Hops, 0, id="tried", retry_policy=policy)
    await runtime.spawn(Hops, 0, id="nightly", cron_schedule="@hourly")


async def end_each(runtime, clock):
    for _ in range(3):
        await tick(runtime, clock, 3600)
        await runtime.ref("tried", Hops).signal(Hops.hop, "fail")
        await runtime.ref("nightly", Hops).signal(Hops.hop, "end")
        await settled(runtime)


def check(found):
    assert links(found, "renewed") == links(found, "tried") == links(found, "nightly") == CHAIN
    assert links(found, "alone") == [(0, None, None)]


async def test_a_list_knows_the_chains_in_each_life_and_each_process(tmp_journal):
    clock = ManualClock()
    async with hosted(tmp_journal, Hops, clock=clock) as runtime:
        await all_kinds(runtime)
        await end_each(runtime, clock)
        check(await runtime.list_workflows())
        for one in await runtime.list_workflows():  # as the description of each has it
            seen = await runtime.ref(f"everact://local/{one.workflow_id}/{one.run_id}").describe()
            assert (seen.first_run_id, seen.continued_from, seen.continued_to) == (
                one.first_run_id,
                one.continued_from,
                one.continued_to,
            )
        async with await Client.connect(f"unix:{tmp_journal}") as client:
            check(await client.list_workflows())
    with JournalReader(tmp_journal) as reader:
        check(reader.list_workflows(limit=100).workflows)
    async with Runtime(tmp_journal, workflows=[Hops], clock=clock, grace=0.0) as runtime:
        check(await runtime.list_workflows())
        await runtime.ref("renewed", Hops).signal(Hops.hop, "end")
        await settled(runtime)
        check(await runtime.list_workflows())
    store = LmdbStore(tmp_journal, read_only=True)
    try:
        assert verify(store).problems == []
    finally:
        store.close()


async def test_a_row_that_is_made_again_from_the_history_has_the_same():
    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Hops, clock=clock) as runtime:
        await all_kinds(runtime)
        await end_each(runtime, clock)
    store = MemoryStore(journal)
    index = load(store).runs
    stored = [row for row in index.newest_first() if not len(row)]  # all of it is in the tables
    assert {row.workflow_id for row in stored} >= {"renewed", "tried", "nightly"}
    with store.view() as tables:
        for row in stored:
            assert remade_row(tables, index.codec, row.key, JournalCorruptError("a test")).links == row.links
    store.close()


async def test_a_next_run_whose_commit_failed_is_not_listed():
    store = TroubledStore(MemoryStore(MemoryJournal()))
    policy = RetryPolicy(initial_interval=3600, maximum_interval=3600)
    async with hosted(store, Hops, clock=ManualClock()) as runtime:
        handle = await runtime.spawn(Hops, 0, id="a", retry_policy=policy)
        await settled(runtime)
        store.failures = ["before"]
        with pytest.raises(CommitUnknownError):
            await handle.signal(Hops.hop, "fail")
        await settled(runtime)
        assert links(await runtime.list_workflows(), "a") == [(0, None, None)]
        await handle.signal(Hops.hop, "fail")
        assert links(await runtime.list_workflows(), "a") == [(0, None, 1), (0, 0, None)]


@pytest.mark.parametrize("at_once", [True, False])
async def test_imported_runs_are_linked_where_both_are_there(at_once, tmp_path):
    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Hops, clock=clock) as runtime:
        await runtime.spawn(Hops, 3, id="renewed")
        await runtime.ref("renewed", Hops).signal(Hops.hop, "end")
        await settled(runtime)
    store = MemoryStore(journal)
    documents = list(
        export_runs(store, None, left_out=lambda _: None, damaged=lambda _: None, moved=lambda: None)
    )
    store.close()
    parts = [documents] if at_once else [documents[:2], documents[2:]]
    copy = MemoryJournal()
    for part in parts:
        store = MemoryStore(copy)
        import_runs(store, part)
        store.close()
    async with hosted(copy, Hops, clock=clock) as runtime:
        assert links(await runtime.list_workflows(), "renewed") == CHAIN
    store = MemoryStore(copy)
    assert verify(store).problems == []
    store.close()


def test_a_row_of_before_there_were_links_decodes():
    before = sealed(msgspec.msgpack.encode(["w", "r", "T", "running", 1, 0, 0, ""]))
    assert (read_row(1, before).run_id, read_row(1, before).links) == ("r", None)
