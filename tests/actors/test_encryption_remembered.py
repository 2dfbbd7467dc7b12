"""A journal that was written with encryption is not opened without it: plain values would stand beside the others."""

import pytest
from support.bad_input import refuses
from support.codecs import KEY, Untouched, Wrapping, encrypted
from support.hosting import hosted
from support.moved_journals import flip_row

from everact import workflow
from everact.exceptions import JournalEncryptedError, JournalFullError
from everact.journal import encryption
from everact.journal.encryption import remembered
from everact.journal.errors import CommitUnknownError
from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryJournal
from everact.journal.tables import Table
from everact.journal.verify import verify
from everact.payloads import AesGcmCodec, ZstdCodec


@workflow.defn
class Echo:
    @workflow.run
    async def run(self, word: str) -> str:
        return word


async def used(journal, codecs=()):
    async with hosted(journal, Echo, codecs=codecs) as runtime:
        return await runtime.execute(Echo, "secret")


def known(path) -> frozenset[str]:
    store = LmdbStore(path, read_only=True)
    try:
        with store.view() as tables:
            return remembered(tables)
    finally:
        store.close()


async def test_a_program_without_the_codec_is_refused_and_nothing_is_changed(tmp_journal):
    await used(tmp_journal, [ZstdCodec(), encrypted()])
    before = (tmp_journal / "data.mdb").read_bytes()
    for codecs in ((), [ZstdCodec()], [Wrapping()]):
        with refuses(
            JournalEncryptedError,
            f"the journal '{tmp_journal}' is encrypted ('aes-gcm'), and this Runtime has no payload codec for that: "
            f"what comes in would stand there unencrypted. Pass the codec: "
            f"Runtime(codecs=[AesGcmCodec(keys, active=...)]). To encrypt nothing more from here on, pass one that "
            f"only decrypts: AesGcmCodec(keys, active=None).",
        ) as caught:
            await used(tmp_journal, codecs)
        assert caught.value.missing == ("aes-gcm",)
    LmdbStore(tmp_journal).close()
    assert known(tmp_journal) == {"aes-gcm"}
    assert b"secret" not in before
    await used(tmp_journal, [encrypted()])


async def test_encryption_of_ones_own_is_remembered_by_its_name():
    class Sealed(Untouched):
        encryption = "mine"

    journal = MemoryJournal()
    await used(journal, [Sealed()])
    await used(journal, [Sealed(), encrypted()])
    with refuses(JournalEncryptedError, "('mine')", "Runtime(codecs=[...])"):
        await used(journal, [encrypted()])
    with refuses(JournalEncryptedError, "('aes-gcm', 'mine')"):
        await used(journal)


async def test_other_codecs_and_none_are_not_remembered(tmp_journal):
    await used(tmp_journal, [ZstdCodec(), Wrapping()])
    await used(tmp_journal)
    assert known(tmp_journal) == frozenset()


async def test_encrypting_can_be_ended_on_purpose():
    journal = MemoryJournal()
    async with hosted(journal, Echo, codecs=[encrypted()]) as runtime:
        await runtime.execute(Echo, "old", id="old")
    async with hosted(journal, Echo, codecs=[AesGcmCodec({"k": KEY}, active=None)]) as runtime:
        assert await runtime.ref("old", Echo).result() == "old"
        assert await runtime.execute(Echo, "new", id="new") == "new"
    async with hosted(journal, Echo, codecs=[AesGcmCodec({}, active=None)]) as runtime:
        assert await runtime.ref("new", Echo).result() == "new"


async def test_it_costs_one_commit_in_the_life_of_a_journal(tmp_journal, monkeypatch):
    commits = []
    append = LmdbStore.append
    monkeypatch.setattr(LmdbStore, "append", lambda *args: (commits.append(args[2]), append(*args))[1])
    for _ in range(2):
        async with hosted(tmp_journal, Echo, codecs=[encrypted()]):
            pass
    assert commits == [[]]


async def test_a_note_for_which_there_is_no_room_is_said(tmp_journal, monkeypatch):
    def fail(*_args):
        raise CommitUnknownError("a commit failed") from OSError(28, "No space left on device")

    monkeypatch.setattr(LmdbStore, "append", fail)
    with refuses(CommitUnknownError, "a commit failed"):
        await used(tmp_journal, [encrypted()])
    full = JournalFullError("j", "disk", 10, 0, 0)
    monkeypatch.setattr(encryption, "full_error", lambda *_args: full)
    with pytest.raises(JournalFullError):
        await used(tmp_journal, [encrypted()])
    monkeypatch.undo()
    await used(tmp_journal)  # nothing was noted


async def test_a_damaged_note_is_named(tmp_journal):
    await used(tmp_journal, [encrypted()])
    flip_row(tmp_journal, Table.FACTS.value, b"encryption")
    store = LmdbStore(tmp_journal, read_only=True)
    (problem,) = verify(store).problems
    store.close()
    assert str(problem).startswith("table 'facts': the row about encryption cannot be read")
