"""A journal without a running program tells the same as a runtime on it; and one that is written meanwhile, too."""

from contextlib import closing

import pytest
from support.door_workflows import WORKFLOWS, Order, Waits
from support.histories import read
from support.hosting import settled
from support.journals import HISTORIES, entries_of, fill, make_journal

from everact import Runtime
from everact.actors import journal_reader
from everact.actors.journal_reader import JournalReader
from everact.exceptions import (
    JournalCorruptError,
    NotAJournalError,
    PayloadDecodeError,
    WorkflowFailedError,
    WorkflowNotFoundError,
)
from everact.journal.lmdb_store import LmdbStore
from everact.journal.loading import load
from everact.payloads import ZstdCodec


def hosted(path, **options):
    return Runtime(path, workflows=WORKFLOWS, grace=0.0, **options)


async def filled(runtime):
    for number in range(6):
        handle = await runtime.spawn(Waits, Order("tea", number), id=f"w-{number}")
        await handle.signal(Waits.hear, "a" * 2000)
        if number % 3:
            await handle.signal(Waits.finish, "fail" if number % 3 == 2 else "end")
    await settled(runtime)


async def test_it_tells_what_a_runtime_tells(tmp_journal):
    async with hosted(tmp_journal) as runtime:
        await filled(runtime)
        listed = await runtime.list_workflows()
        described = [await runtime.ref(run.workflow_id).describe() for run in listed]
        histories = [(await runtime.ref(run.workflow_id).fetch_history()).records for run in listed]
    with JournalReader(tmp_journal) as reader:
        assert reader.list_workflows() == (listed, None)
        assert (
            reader.list_workflows(limit=2, status="failed").workflows
            == [run for run in listed if run.status == "failed"][:2]
        )
        assert reader.count_workflows(workflow_type="Waits", status="completed") == 2
        assert [reader.describe(run.workflow_id) for run in listed] == described
        assert [reader.history(run.workflow_id, run.run_id).records for run in listed] == histories
        assert reader.result("w-0") == ("running", None)
        status, payload = reader.result("w-1")
        assert status == "completed"
        assert payload.data.endswith(b',end","count":1}')
        with pytest.raises(
            WorkflowFailedError, match="workflow 'w-2' .* failed: NoStock: no stock"
        ) as caught:
            reader.result("w-2")
        assert caught.value.__cause__.details == ({"item": "tea"},)
        with pytest.raises(WorkflowNotFoundError, match="no workflow 'none'"):
            reader.history("none")
        with pytest.raises(WorkflowNotFoundError, match="with run id 'x'"):
            reader.describe("w-1", "x")
        with pytest.raises(ValueError, match="status must be one of"):
            reader.count_workflows(status="dead")
        with pytest.raises(ValueError, match="limit must be 1 or more"):
            reader.list_workflows(limit=0)


async def test_what_a_writer_has_moved_on_is_read_anew(tmp_journal):
    async with hosted(tmp_journal) as runtime:
        await filled(runtime)
        with JournalReader(tmp_journal) as reader:
            before = reader.history("w-0").records
            handle = runtime.ref("w-0", Waits)
            for number in range(60):  # the log that the reader knows is moved away, and dropped
                await runtime.execute("Free", number)
                await handle.signal(Waits.hear, "b" * 2000)
            await settled(runtime)
            assert reader.history("w-0").records[: len(before)] == before
            assert reader.describe("w-0").status == "running"
            assert reader.count_workflows(status="running") == 2


def test_a_look_that_a_writer_has_spoilt_is_repeated(tmp_journal, monkeypatch):
    make_journal(tmp_journal)
    looks = []

    def spoilt(store):
        looks.append(store)
        if len(looks) == 1:
            with closing(LmdbStore(tmp_journal)) as writer:
                fill(writer, [entries_of(read(HISTORIES[0])[1], 99, run_id="late")])
            raise JournalCorruptError("half of it is from before")
        return load(store)

    monkeypatch.setattr(journal_reader, "load", spoilt)
    with JournalReader(tmp_journal) as reader:
        assert reader.describe("w-late").run_id == "late"
        assert reader.count_workflows() == len(HISTORIES) + 1
    assert len(looks) == 2


async def test_damage_is_said(tmp_journal, monkeypatch):
    async with hosted(tmp_journal) as runtime:
        await filled(runtime)
    with JournalReader(tmp_journal) as reader:
        reader.list_workflows()

        def damaged(*_args):
            raise JournalCorruptError("commit record 7 cannot be read")

        monkeypatch.setattr("everact.journal.run_index.RunIndex.records", damaged)
        with pytest.raises(JournalCorruptError, match="commit record 7"):
            reader.history("w-0")
        assert reader.describe("w-0").status == "running"


async def test_what_payload_codecs_have_coded_stays_coded(tmp_journal):
    async with hosted(tmp_journal, codecs=[ZstdCodec(smallest=0)]) as runtime:
        await filled(runtime)
    with JournalReader(tmp_journal) as reader:
        assert reader.describe("w-2").failure == "NoStock"
        assert reader.result("w-1")[1].encoding not in ("json", "tagged", "raw", "null")
        with pytest.raises(PayloadDecodeError, match="its message has the unknown encoding"):
            reader.result("w-2")


def test_there_must_be_a_journal(tmp_path):
    with pytest.raises(NotAJournalError, match="there is no journal at"):
        JournalReader(tmp_path / "none")
