"""Replays of whole journals: which runs, what damage is, and that a program may go on writing."""

import asyncio
import itertools

import pytest
from support.codecs import InThreads, encrypted
from support.corpus import GOOD, record
from support.corpus_workflows import ACTIVITIES, WORKFLOWS, Feature, Kid
from support.history_workflows import ACTIVITIES as HEX_ACTIVITIES
from support.history_workflows import WORKFLOWS as HEX_WORKFLOWS
from support.hosting import hosted, settled
from support.journals import make_journal, runs_of_histories
from support.moved_journals import flip_row, make_moved_journal, rows_of

from everact import activity, workflow
from everact.exceptions import NotAJournalError, ReplayFailedError
from everact.journal.lmdb_store import LmdbStore
from everact.journal.tables import NUMBER, Table
from everact.payloads import PayloadCodec
from everact.testing import Replayer
from everact.testing.journal_histories import JournalHistories


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """One run for each thing that runs can do, and one that is open."""
    path = tmp_path_factory.mktemp("replayed") / "journal"
    asyncio.run(record(path, WORKFLOWS))
    return path


def everything(**options):
    return Replayer(workflows=WORKFLOWS, activities=ACTIVITIES, **options)


def test_all_runs_of_a_journal_newest_first(journal):
    steps = []
    report = everything().replay_journal(journal, progress=lambda done, of: steps.append((done, of)))
    assert len(report.results) == len(list(GOOD.glob("*.json"))) - 1  # but the one of interceptors
    assert report.results[0].workflow_id == "open"
    assert report.results[-1].workflow_id == "activity"
    assert {result.source for result in report.results} == {str(journal)}
    count = len(report.results)
    assert steps == [(number, count) for number in range(count + 1)]


def test_only_some_of_them(journal):
    replayer = everything()
    (result,) = replayer.replay_journal(journal, status="running").results
    assert result.workflow_id == "open"
    kids = replayer.replay_journal(journal, types=["Kid"])
    assert {result.workflow_type for result in kids.results} == {"Kid"}
    assert len(kids.results) == 4
    assert len(replayer.replay_journal(journal, types=["Kid", "Something"], limit=5).results) == 5
    assert len(replayer.replay_journal(journal, limit=2).results) == 2
    assert replayer.replay_journal(journal, types=["Nothing"]).results == ()
    with pytest.raises(ValueError, match="status must be one of"):
        replayer.replay_journal(journal, status="asleep")
    with pytest.raises(ValueError, match="limit must be 1 or more"):
        replayer.replay_journal(journal, limit=0)
    with pytest.raises(TypeError, match="types must be a list"):
        replayer.replay_journal(journal, types="Kid")


def test_what_does_not_fit_is_found(journal):
    with pytest.raises(ReplayFailedError, match="failed .* not registered"):
        Replayer(workflows=[Feature]).replay_journal(journal)
    report = Replayer(workflows=[Kid]).replay_journal(
        journal, types=["Kid", "Feature"], raise_on_failure=False
    )
    assert {result.workflow_type for result in report.failed} == {"Feature"}


def test_a_folder_that_is_no_journal(tmp_path):
    with pytest.raises(NotAJournalError):
        everything().replay_journal(tmp_path)


@pytest.mark.parametrize("make", [make_journal, make_moved_journal])
def test_runs_in_the_log_and_in_the_tables(tmp_journal, make):
    make(tmp_journal, runs_of_histories("delayed", "steps-completed", "saga-ordered", "late"))
    report = Replayer(workflows=HEX_WORKFLOWS, activities=HEX_ACTIVITIES).replay_journal(tmp_journal)
    assert sorted(result.workflow_type for result in report.results) == [
        "Delayed",
        "Late",
        "Stepping",
        "Trip",
    ]


@pytest.mark.parametrize("table", [Table.RUNS, Table.HISTORIES])
def test_a_damaged_run_is_one_failure(tmp_journal, table):
    make_moved_journal(
        tmp_journal, runs_of_histories("delayed", "steps-completed", "saga-ordered", "late"), window=0
    )
    rows = [key for key, _ in rows_of(tmp_journal, table.value) if key[:8] == NUMBER.pack(2)]
    for key in rows:
        flip_row(tmp_journal, table.value, key)
    replayer = Replayer(workflows=HEX_WORKFLOWS, activities=HEX_ACTIVITIES)
    report = replayer.replay_journal(tmp_journal, raise_on_failure=False)
    assert len(report.results) == 4
    if table is Table.RUNS:  # its history stands in for the row
        assert report.passed
        assert report.results[-1].workflow_type == "Stepping"
    else:
        (failed,) = report.failed
        assert failed.failure.kind == "damaged"
        assert "run 2" in failed.failure.message


def test_a_run_of_which_nothing_is_whole_is_one_failure_too(tmp_journal):
    make_moved_journal(tmp_journal, runs_of_histories("delayed", "steps-completed", "late"), window=0)
    for table in (Table.RUNS, Table.HISTORIES, Table.OPEN):
        for key, _ in rows_of(tmp_journal, table.value):
            if key[:8] == NUMBER.pack(2):
                flip_row(tmp_journal, table.value, key)
    replayer = Replayer(workflows=HEX_WORKFLOWS, activities=HEX_ACTIVITIES)
    report = replayer.replay_journal(tmp_journal, raise_on_failure=False)
    assert len(report.results) == 3
    (failed,) = report.failed
    assert failed.failure.kind == "damaged"
    assert failed.source == f"{tmp_journal}, run 2"


# --- while a program has it open


@activity.defn
async def goes(n: int) -> int:
    return n


looks = []


@workflow.defn
class Busy:
    def __init__(self) -> None:
        self.count = 0

    @workflow.run
    async def run(self, n: int) -> int:
        for look in looks:
            look()
        await workflow.wait_condition(lambda: self.count == 3)
        return await goes(n)

    @workflow.signal
    def go_on(self) -> None:
        self.count += 1


class Slowly(PayloadCodec):
    """Asks somebody else."""

    def __init__(self):
        self._codec = encrypted()

    async def encode(self, payloads):
        await asyncio.sleep(0)
        return self._codec.encode(payloads)

    async def decode(self, payloads):
        await asyncio.sleep(0)
        return self._codec.decode(payloads)


class Broken(PayloadCodec):
    def encode(self, payloads):
        return payloads

    def decode(self, payloads):
        raise ValueError("no key")


async def test_runs_that_go_on_meanwhile_are_replayed_as_they_are_then(tmp_journal):
    replayer = Replayer(workflows=[Busy])
    async with hosted(tmp_journal, Busy, activities=[goes]) as runtime:
        handles = [await runtime.spawn(Busy, n, id=f"busy-{n}") for n in range(20)]
        for _ in range(3):
            await asyncio.gather(*(handle.signal(Busy.go_on) for handle in handles))
            await settled(runtime)
            report = await asyncio.to_thread(replayer.replay_journal, tmp_journal)
            assert len(report.results) == 20
            assert report.passed
        await asyncio.gather(*(handle.result() for handle in handles))
        report = replayer.replay_journal(tmp_journal, status="completed")
        assert len(report.results) == 20


async def test_no_read_transaction_is_open_while_a_run_is_replayed(tmp_journal, monkeypatch):
    """Else a long replay would keep the program from using the room again that it frees."""
    found = []
    async with hosted(tmp_journal, Busy, activities=[goes]) as runtime:
        for n in range(3):
            await runtime.spawn(Busy, n, id=f"busy-{n}")
        await settled(runtime)
        env = runtime._store._shared.opened.env
        begun = JournalHistories.read

        def read(self, progress):
            for history in begun(self, progress):
                looks.append(lambda: found.append(env.readers()))
                yield history
                looks.clear()

        monkeypatch.setattr(JournalHistories, "read", read)
        assert len(Replayer(workflows=[Busy]).replay_journal(tmp_journal).results) == 3
    assert len(found) == 3
    for text in found:  # pid, thread, transaction: "-" where there is none
        assert all(line.split()[-1] == "-" for line in text.splitlines()[1:] if line.split())


async def test_a_run_that_is_purged_meanwhile_is_left_out(journal, monkeypatch):
    page = JournalHistories._page

    def with_one_more(self, before):
        rows = page(self, before)
        return [rows[0]._replace(key=1 << 40), *rows] if rows else rows

    monkeypatch.setattr(JournalHistories, "_page", with_one_more)
    assert len(everything().replay_journal(journal, limit=3).results) == 3


def test_damage_is_believed_though_a_writer_moves_on_all_the_time(tmp_journal, monkeypatch):
    make_moved_journal(tmp_journal, runs_of_histories("delayed", "steps-completed"), window=0)
    for key, _ in rows_of(tmp_journal, "histories"):
        flip_row(tmp_journal, "histories", key)
    positions = itertools.count()
    monkeypatch.setattr(LmdbStore, "position", property(lambda self: next(positions)))
    replayer = Replayer(workflows=HEX_WORKFLOWS, activities=HEX_ACTIVITIES)
    report = replayer.replay_journal(tmp_journal, raise_on_failure=False)
    assert report.failures_by_kind == {"damaged": 2}


@pytest.mark.parametrize("codec", [encrypted, InThreads, Slowly], ids=["inline", "threads", "async"])
async def test_a_journal_with_payload_codecs_is_replayed_with_them(tmp_journal, codec):
    async with hosted(tmp_journal, Busy, activities=[goes], codecs=[codec()]) as runtime:
        handle = await runtime.spawn(Busy, 7, id="secret")
        for _ in range(3):
            await handle.signal(Busy.go_on)
        await handle.result()
        assert Replayer(workflows=[Busy], codecs=[codec()]).replay_journal(tmp_journal).passed
    report = Replayer(workflows=[Busy]).replay_journal(tmp_journal, raise_on_failure=False)
    assert report.failures_by_kind == {"undecodable": 1}
    report = Replayer(workflows=[Busy], codecs=[Broken()]).replay_journal(tmp_journal, raise_on_failure=False)
    assert report.failures_by_kind == {"undecodable": 1}
    assert "payload codec Broken could not decode it: ValueError: no key" in report.results[0].failure.message
