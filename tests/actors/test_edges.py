"""Corners that belong to no single rule: set-up code that acts, ended runs that were forgotten, stubborn groups."""

import asyncio

import pytest
from support.hosting import commands, gate, hosted, kinds, settled, until

from everact import workflow
from everact.actors import closed_runs
from everact.exceptions import WorkflowCancelledError
from everact.journal.memory_store import MemoryJournal


async def test_set_up_code_may_start_activities_and_tasks():
    held = gate("held")

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.log: list[str] = []
            self.first = workflow.start_activity(held.fn, "init")
            self.task = asyncio.create_task(self.beside())

        async def beside(self) -> None:
            self.log.append(await workflow.execute_activity(held.fn, "task"))

        @workflow.run
        async def run(self) -> list[str]:
            self.log.append(await workflow.execute_activity(held.fn, "main"))
            await self.task
            return [*self.log, await self.first]

        @workflow.query
        def look(self) -> int:
            return len(self.log)

    journal = MemoryJournal()
    async with hosted(journal, W, activities=[held.fn]) as runtime:
        await runtime.spawn(W.run, id="a")
        await until(lambda: len(held.calls) == 3)
        assert held.calls == ["init", "task", "main"]
    async with hosted(journal, W, activities=[held.fn]) as runtime:
        assert await runtime.ref("a", W).query(W.look) == 0
        held.open.set()
        handle = runtime.ref("a", W)
        assert await handle.result() == ["through"] * 3
        assert commands(await handle.fetch_history()) == [(1, "held"), (2, "held"), (3, "held")]


async def test_ended_runs_that_were_forgotten_are_read_from_the_journal(monkeypatch):
    monkeypatch.setattr(closed_runs, "CLOSED_KEPT", 2)

    @workflow.defn
    class W:
        @workflow.run
        async def run(self, n: int) -> int:
            self.n = n
            return n

        @workflow.query
        def look(self) -> int:
            return self.n

        @workflow.update
        def ask(self) -> int:
            return 0

    async with hosted(MemoryJournal(), W) as runtime:
        handles = [await runtime.spawn(W.run, n, id=f"w{n}") for n in range(8)]
        for _ in range(2):
            for n, handle in enumerate(handles):
                assert await handle.result() == n
                assert await handle.query(W.look) == n
                assert (await handle.describe()).status == "completed"
        assert len(list(runtime._shard.closed_runs)) == 2


async def test_ended_runs_with_large_answers_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(closed_runs, "CLOSED_BYTES", 5000)

    @workflow.defn
    class W:
        @workflow.run
        async def run(self, text: str) -> str:
            return text

    async with hosted(MemoryJournal(), W) as runtime:
        kept = runtime._shard.closed_runs._kept
        sizes = []
        for n in range(6):
            handle = await runtime.spawn(W.run, "x" * 2000, id=f"w{n}")
            await handle.result()
            sizes.append(len(kept))
        assert sizes == [1, 2, 2, 2, 2, 2]
        assert await runtime.purge(older_than=0) == 6
        assert (len(kept), runtime._shard.closed_runs._bytes) == (0, 0)
        await runtime.execute(W.run, "x" * 9000)  # one more than all that is allowed is kept all the same
        assert len(kept) == 1


@pytest.mark.parametrize("shape", ["gather", "group", "wait_for"])
async def test_a_cancel_ends_what_waits_for_stubborn_tasks(shape):
    """Each of them swallows the first cancel and ends by itself later."""

    @workflow.defn
    class W:
        async def stubborn(self) -> str:
            try:
                await workflow.sleep(3600)
            except asyncio.CancelledError:
                await workflow.sleep(0.001)
            return "stubborn"

        @workflow.run
        async def run(self) -> None:
            match shape:
                case "gather":
                    await asyncio.gather(self.stubborn(), self.stubborn(), return_exceptions=True)
                case "group":
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self.stubborn())
                        group.create_task(self.stubborn())
                case "wait_for":
                    await asyncio.wait_for(asyncio.create_task(self.stubborn()), 7200)
            await workflow.sleep(3600)

        @workflow.query
        def look(self) -> None:
            pass

    journal = MemoryJournal()
    async with hosted(journal, W) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        await settled(runtime)
        await handle.cancel()
        with pytest.raises(WorkflowCancelledError):
            await handle.result(timeout=10)
        history = await handle.fetch_history()
    assert kinds(history)[-1] == "WorkflowCancelled"
    async with hosted(journal, W) as runtime:
        await runtime.ref("a", W).query(W.look)  # it replays


async def test_an_activity_that_messages_its_own_workflow_is_no_deadlock():
    from everact import activity

    @activity.defn
    async def talk() -> str:
        info = activity.info()
        handle = activity.client().ref(info.workflow_id)
        await handle.signal("note", "from inside")
        return await handle.execute_update("ask")

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.notes: list[str] = []

        @workflow.run
        async def run(self) -> list[str]:
            return [await talk(), *self.notes]

        @workflow.signal
        def note(self, text: str) -> None:
            self.notes.append(text)

        @workflow.update
        def ask(self) -> str:
            return "answer"

    async with hosted(MemoryJournal(), W, activities=[talk]) as runtime:
        assert await runtime.execute(W.run) == ["answer", "from inside"]
