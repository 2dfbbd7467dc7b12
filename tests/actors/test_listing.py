"""Lists in pages: each run once, whatever starts, ends, is moved or purged between two pages."""

import gc
import random

import pytest
from support.hosting import hosted, settled

from everact import Client, WorkflowSummary, workflow
from everact.actors.journal_reader import JournalReader
from everact.actors.listing import PAGE_SIZE, key_of, token_of
from everact.journal.run_row import RunRow


@workflow.defn
class Waits:
    def __init__(self) -> None:
        self.over = False

    @workflow.signal
    def end(self) -> None:
        self.over = True

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self.over)


async def pages_of(listing):
    """Page by page, as lists of ids; a turn of others between two pages."""
    async for page in listing.pages():
        yield [run.workflow_id for run in page.workflows], page


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("by", ["runtime", "client"])
async def test_each_run_is_listed_once_while_others_start_and_end(tmp_journal, seed, by):
    rng = random.Random(seed)
    async with (
        hosted(tmp_journal, Waits) as runtime,
        await Client.connect(f"unix:{tmp_journal}") as client,
    ):
        side = runtime if by == "runtime" else client
        begun = [await runtime.spawn(Waits, id=f"w-{number}") for number in range(60)]
        await begun[5].signal(Waits.end)
        await begun[5].result()
        found, number = [], 100
        listing = side.list_workflows(page_size=rng.randint(1, 20))
        async for ids, page in pages_of(listing):
            found += ids
            assert [run.status for run in page.workflows if run.workflow_id == "w-5"] in ([], ["completed"])
            for _ in range(rng.randint(0, 8)):
                match rng.randrange(3):
                    case 0:
                        number += 1
                        begun.append(await runtime.spawn(Waits, id=f"w-{number}"))
                    case 1:
                        await rng.choice(begun[6:]).signal(Waits.end, request_id="once")
                    case 2:
                        await runtime.spawn(Waits, id=f"w-{rng.randrange(60)}", if_running="attach")
            await settled(runtime)
        assert found == [f"w-{number}" for number in reversed(range(60))]
        assert listing.next_page_token is None


async def test_a_filter_sees_each_run_as_it_is_when_its_page_is_read(tmp_journal):
    async with hosted(tmp_journal, Waits) as runtime:
        begun = [await runtime.spawn(Waits, id=f"w-{number}") for number in range(10)]
        found = []
        async for ids, _page in pages_of(runtime.list_workflows(status="running", page_size=4)):
            found.append(ids)
            await begun[0].signal(Waits.end, request_id="once")
            await begun[0].result()
        assert found == [["w-9", "w-8", "w-7", "w-6"], ["w-5", "w-4", "w-3", "w-2"], ["w-1"]]


async def test_what_is_purged_meanwhile_is_not_missed_and_hides_nothing(tmp_journal):
    async with hosted(tmp_journal, Waits) as runtime:
        for number in range(9):
            handle = await runtime.spawn(Waits, id=f"w-{number}")
            await handle.signal(Waits.end)
            await handle.result()
        found = []
        async for ids, _page in pages_of(runtime.list_workflows(page_size=3)):
            found += ids
            if len(found) == 3:  # the last one listed, behind which it goes on, too
                await runtime.purge(workflow_id="w-6")
                await runtime.purge(workflow_id="w-4")
        assert found == ["w-8", "w-7", "w-6", "w-5", "w-3", "w-2", "w-1", "w-0"]


async def test_a_token_is_good_later_and_elsewhere(tmp_journal):
    async with hosted(tmp_journal, Waits) as runtime:
        for number in range(7):
            await runtime.spawn(Waits, id=f"w-{number}")
        listing = runtime.list_workflows(limit=3)
        assert [run.workflow_id for run in await listing] == ["w-6", "w-5", "w-4"]
        token = listing.next_page_token
        await runtime.spawn(Waits, id="new")
    with JournalReader(tmp_journal) as reader:
        page = reader.list_workflows(limit=2, next_page_token=token)
        assert [run.workflow_id for run in page.workflows] == ["w-3", "w-2"]
    async with hosted(tmp_journal, Waits) as runtime:
        rest = await runtime.list_workflows(next_page_token=page.next_page_token)
        assert [run.workflow_id for run in rest] == ["w-1", "w-0"]


async def test_all_ways_through_a_list_agree(tmp_journal):
    async with hosted(tmp_journal, Waits) as runtime:
        for number in range(5):
            await runtime.spawn(Waits, id=f"w-{number}")
        whole = await runtime.list_workflows()
        assert [run async for run in runtime.list_workflows(page_size=2)] == whole
        assert await runtime.list_workflows(page_size=1) == whole
        for limit in range(1, 7):
            listing = runtime.list_workflows(limit=limit, page_size=2)
            assert [run async for run in listing] == whole[:limit]
            assert (listing.next_page_token is None) == (limit > 5)
        assert await runtime.list_workflows(limit=5) == whole


def test_wrong_tokens_and_sizes_are_refused_at_the_call():
    runtime = hosted("nowhere", Waits)
    for given, error, says in (
        ({"page_size": 0}, ValueError, "page_size must be 1 or more, not 0"),
        ({"page_size": 1001}, ValueError, "page_size must be at most 1,000, not 1,001"),
        ({"page_size": True}, TypeError, "page_size must be an int, not True"),
        ({"limit": 0}, ValueError, "limit must be 1 or more, not 0"),
        ({"next_page_token": ""}, ValueError, "'' is no next_page_token: pass one as an earlier list had it"),
        ({"next_page_token": "é"}, ValueError, "'é' is no next_page_token"),
        ({"next_page_token": 7}, TypeError, "next_page_token must be a str, not 7"),
        ({"status": "dead"}, ValueError, "status must be one of"),
    ):
        with pytest.raises(error, match=says):
            runtime.list_workflows(**given)
    for key in (1, 255, 256, 2**64 - 1):
        assert key_of(token_of(key)) == key


@pytest.mark.slow
async def test_a_hundred_thousand_runs_are_listed_in_little_memory(tmp_journal, monkeypatch):
    count = 100_000
    async with (
        hosted(tmp_journal, Waits) as runtime,
        await Client.connect(f"unix:{tmp_journal}") as client,
    ):

        def newest_first(before=0):
            for key in range((before or count + 1) - 1, 0, -1):
                yield RunRow(key, f"workflow-{key}", f"{key:032x}", "Waits", 1_700_000_000_000_000)

        monkeypatch.setattr(runtime._shard.index, "newest_first", newest_first)
        found, most = 0, 0
        async for run in client.list_workflows():
            assert run.workflow_id == f"workflow-{count - found}"
            found += 1
            if not found % 9_999:  # on both sides, which are in this process
                rows = sum(type(one) in (WorkflowSummary, RunRow) for one in gc.get_objects())
                most = max(most, rows)
        assert found == count
        assert most <= 3 * PAGE_SIZE
