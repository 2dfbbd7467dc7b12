"""Runs that continue as new, as clients, the JSON API and commands show them: as the runtime does."""

import asyncio
import json
import sys

import pytest
from support.door_calls import ask
from support.hosting import until

from everact import Client, Runtime, workflow
from everact.actors.journal_reader import JournalReader
from everact.cli import main
from everact.exceptions import UpdateCutError


@workflow.defn
class Counts:
    def __init__(self) -> None:
        self.go = 0

    @workflow.run
    async def run(self, left: int) -> str:
        await workflow.wait_condition(lambda: self.go > 0)
        if left:
            workflow.continue_as_new(left - 1)
        return "over"

    @workflow.signal
    def on(self) -> None:
        self.go += 1

    @workflow.update
    async def never(self) -> int:
        await workflow.wait_condition(lambda: False)
        return 0

    @workflow.update
    def twice(self, number: int) -> int:
        return 2 * number


async def test_clients_follow_chains_as_the_runtime_does(tmp_journal, monkeypatch, capsys):
    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["everact", *arguments, "--journal", str(tmp_journal)])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 0
        return capsys.readouterr().out

    async with (
        Runtime(tmp_journal, workflows=[Counts], grace=0.0) as runtime,
        await Client.connect(f"unix:{tmp_journal}") as client,
    ):
        handle = await client.spawn(Counts, 2, id="c")
        waiting = asyncio.create_task(handle.result())
        answered = await handle.start_update(Counts.twice, 21)
        cut = [await side.ref("c", Counts).start_update(Counts.never) for side in (runtime, client)]
        for _ in range(3):
            before = runtime._shard.find("c").run_id
            await client.ref("c", Counts).signal(Counts.on)
            await until(
                lambda before=before: (actor := runtime._shard.find("c")).is_closed or actor.run_id != before
            )
        assert await waiting == await client.ref("c").result() == "over"
        assert await answered.result() == 42
        texts = []
        for update in cut:
            with pytest.raises(UpdateCutError) as caught:
                await update.result()
            texts.append(str(caught.value))
        assert texts[0] == texts[1]
        runs = await client.list_workflows()
        assert runs == await runtime.list_workflows()
        assert [run.status for run in runs] == ["completed", "continued_as_new", "continued_as_new"]
        for run in runs:
            address = f"everact://local/c/{run.run_id}"
            assert await client.ref(address).describe() == await runtime.ref(address).describe()
            there, same = (
                await client.ref(address).fetch_history(),
                await runtime.ref(address).fetch_history(),
            )
            assert there.records == same.records
            assert await client.ref(address).result() == await runtime.ref(address).result() == "over"
        _, answer = await ask(tmp_journal, "GET", f"/v1/workflows/c/result?run_id={handle.run_id}")
        assert answer["result"] == "over"
        _, listed = await ask(tmp_journal, "GET", "/v1/workflows?status=continued_as_new&page_size=1")
        assert (len(listed["workflows"]), listed["next_page_token"] is None) == (1, False)
        shown = await asyncio.to_thread(command, "result", "c", "--run-id", handle.run_id)
        assert json.loads(shown) == "over"
    with JournalReader(tmp_journal) as reader:
        assert reader.list_workflows() == (runs, None)
    assert json.loads(await asyncio.to_thread(command, "result", "c", "--run-id", handle.run_id)) == "over"
    listed = json.loads(await asyncio.to_thread(command, "list", "--json", "--status", "continued_as_new"))
    assert len(listed["workflows"]) == 2


async def test_a_schedule_without_its_package_is_no_fault_of_the_program(tmp_journal, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "cronsim", None)
    async with (
        Runtime(tmp_journal, workflows=[Counts]),
        await Client.connect(f"unix:{tmp_journal}") as client,
    ):
        with pytest.raises(ImportError, match="in the environment of the runtime: pip install 'everact"):
            await client.spawn(Counts, 1, cron_schedule="@daily")
    assert caplog.text == ""
