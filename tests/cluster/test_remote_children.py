"""Children, as clients, the JSON API and commands show them: as the runtime does."""

import asyncio
import json
import sys

import pytest
from support.door_calls import ask
from support.hosting import settled, until

from everact import ApplicationError, Client, Runtime, workflow
from everact.actors.journal_reader import JournalReader
from everact.cli import main
from everact.exceptions import WorkflowFailedError


@workflow.defn
class Child:
    def __init__(self) -> None:
        self.end: str | None = None

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.end is not None)
        if self.end == "fail":
            raise ApplicationError("no stock", type="NoStock")
        return self.end or ""

    @workflow.signal
    def finish(self, word: str) -> None:
        self.end = word


@workflow.defn
class Parent:
    @workflow.run
    async def run(self) -> str:
        first = await workflow.start_child_workflow(Child, id="child-1")
        second = await workflow.start_child_workflow(Child, id="child-2")
        return await first + await second


async def started(side):
    handle = await side.spawn(Parent, id="parent")

    async def are_open():
        return {run.workflow_id for run in await side.list_workflows()} >= {"child-1", "child-2"}

    while not await are_open():
        pass
    return handle


async def test_clients_see_children_as_the_runtime_does(tmp_journal, monkeypatch, capsys):
    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["everact", *arguments, "--journal", str(tmp_journal)])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 0
        return capsys.readouterr().out

    async with (
        Runtime(tmp_journal, workflows=[Parent, Child], grace=0.0) as runtime,
        await Client.connect(f"unix:{tmp_journal}") as client,
    ):
        handle = await started(client)
        here = runtime.ref("parent", Parent)
        await until(lambda: len(runtime._shard.find("parent").state.children) == 2)
        seen = await handle.describe()
        assert seen == await here.describe()
        assert [child.workflow_id for child in seen.children] == ["child-1", "child-2"]
        assert "child child-1" in seen.waiting_on
        child = await client.ref("child-1").describe()
        assert child == await runtime.ref("child-1").describe()
        assert child.parent.workflow_id == "parent"
        listed = await client.list_workflows()
        assert listed == await runtime.list_workflows()
        assert {run.workflow_id: run.parent_id for run in listed} == {
            "parent": None,
            "child-1": "parent",
            "child-2": "parent",
        }
        assert (await handle.fetch_history()).records == (await here.fetch_history()).records
        _, document = await ask(tmp_journal, "GET", "/v1/workflows/parent")
        assert [one["workflow_id"] for one in document["children"]] == ["child-1", "child-2"]
        _, document = await ask(tmp_journal, "GET", "/v1/workflows")
        assert {one["parent_id"] for one in document["workflows"]} == {None, "parent"}
        await client.ref("child-1", Child).signal(Child.finish, "a")
        await client.ref("child-2", Child).signal(Child.finish, "fail")
        texts = []
        for side in (runtime, client):
            with pytest.raises(WorkflowFailedError) as caught:
                await side.ref("parent").result()
            cause = caught.value.__cause__
            texts.append((str(caught.value), type(cause), str(cause), cause.caused_by("NoStock")))
        assert texts[0] == texts[1]
        after = await runtime.list_workflows()
    with JournalReader(tmp_journal) as reader:
        assert reader.list_workflows() == (after, None)
    shown = await asyncio.to_thread(command, "list")
    assert "parent" in shown.splitlines()[0]
    assert (
        json.loads(await asyncio.to_thread(command, "describe", "child-1", "--json"))["parent"]["workflow_id"]
        == "parent"
    )


@workflow.defn
class Leaves:
    @workflow.run
    async def run(self, end: bool) -> None:
        await workflow.start_child_workflow(Child, id="child-1")
        await workflow.wait_condition(lambda: end)


@pytest.mark.parametrize(("end", "says"), [(False, "1 open"), (True, "1 open at its end")])
async def test_children_of_a_run_that_has_ended_are_not_called_open(
    tmp_journal, monkeypatch, capsys, end, says
):
    async with Runtime(tmp_journal, workflows=[Leaves, Child], grace=0.0) as runtime:
        handle = await runtime.spawn(Leaves, end, id="parent")
        await until(lambda: runtime._shard.find("child-1") is not None)
        await settled(runtime)
        assert ((await handle.describe()).status == "completed") == end
    monkeypatch.setattr(sys, "argv", ["everact", "describe", "parent", "--journal", str(tmp_journal)])
    with pytest.raises(SystemExit):
        await asyncio.to_thread(main)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("children:"))
    assert line.partition(":")[2].strip() == says
