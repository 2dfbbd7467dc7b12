"""K04: one journal opened more than once in a process, closed in any order, and while others read."""

import itertools
import os
import subprocess
import threading

import pytest

from everact import Runtime, workflow
from everact.exceptions import JournalClosedError, JournalLockedError
from everact.journal.backup import backup
from everact.journal.export import export_runs
from everact.journal.lmdb_lock import shared_environment
from everact.journal.lmdb_store import LmdbStore
from everact.journal.stats import gather
from everact.journal.store import Entry, Location
from everact.journal.verify import verify

from .lmdb_processes import Script

LIMIT = 30


def entry(number):
    return Entry(number, number, 0, number, b"turn %d" % number)


def open_os(path, **options):
    return LmdbStore(path, durability="os", **options)


def append(store, count=1):
    for _ in range(count):
        store.append(store.position, [entry(store.position.sequence)])


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_stores_of_one_journal_close_in_any_order(tmp_path, tmp_journal, monkeypatch, order):
    (tmp_path / "link").symlink_to(tmp_journal)
    monkeypatch.chdir(tmp_path)
    stores = [open_os(tmp_journal), open_os("journal", read_only=True), open_os("link", read_only=True)]
    writer = stores[0]
    for at in order:
        if not writer._closed:
            append(writer)
        stores[at].close()
        for store in stores:
            if store._closed:
                with pytest.raises(JournalClosedError):
                    list(store.scan())
            else:
                assert list(store.scan())[-1][1] == store.read([Location(store.position.sequence - 1, 0)])
    again = open_os(tmp_journal)
    append(again)
    again.close()


@pytest.mark.slow
def test_a_bind_mount_is_the_same_journal(tmp_path, tmp_journal):
    """A mount namespace of its own; paths do not show that the two are one."""
    (tmp_path / "bound").mkdir()
    within = [
        "unshare",
        "-m",
        "sh",
        "-c",
        f'mkdir -p {tmp_journal} && mount --bind {tmp_journal} {tmp_path}/bound && exec "$@"',
        "sh",
    ]
    if subprocess.run([*within, "true"], capture_output=True, check=False).returncode:
        pytest.skip("may not mount here")
    source = f"""
    bound = "{tmp_path}/bound"
    store = LmdbStore(path, durability="os")
    reader = LmdbStore(bound, read_only=True)
    try:
        LmdbStore(bound)
    except JournalLockedError as error:
        assert f"{{bound!r}} is already open in this process ({{os.getpid()}})" in str(error)
    else:
        raise AssertionError
    store.append(store.position, [entry(1)])
    assert list(reader.scan()) == [(1, [entry(1)])]
    store.close()
    other = LmdbStore(bound, durability="os")
    other.append(other.position, [entry(2)])
    reader.close()
    say(other.position)
    """
    with Script(source, tmp_journal, within=within) as script:
        assert script.finish() == ["Position(epoch=2, sequence=3)"]


def test_a_journal_that_was_moved_away_is_another_one_than_the_new_one_in_its_place(tmp_path, tmp_journal):
    first = open_os(tmp_journal)
    append(first)
    tmp_journal.rename(tmp_path / "moved")
    second = open_os(tmp_journal)
    assert second.journal_id != first.journal_id
    append(second, 2)
    append(first)
    with pytest.raises(JournalLockedError):
        open_os(tmp_path / "moved")
    first.close()
    append(second)
    second.close()
    for path, count in ((tmp_path / "moved", 2), (tmp_journal, 3)):
        store = open_os(path, read_only=True)
        assert len(list(store.scan())) == count
        store.close()


@workflow.defn
class Waits:
    def __init__(self) -> None:
        self.done = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.done)
        return "done"

    @workflow.signal
    def end(self) -> None:
        self.done = True


async def test_tools_that_read_work_beside_a_runtime_of_the_same_process(tmp_path, tmp_journal):
    async with Runtime(tmp_journal, workflows=[Waits], durability="os") as runtime:
        waits = await runtime.spawn(Waits, id="w")
        tool = LmdbStore(tmp_journal, read_only=True)
        assert verify(tool).is_sound
        assert gather(tool).runs == {"Waits": {"running": 1}}
        assert len(list(export_runs(tool, left_out=pytest.fail, damaged=pytest.fail, moved=pytest.fail))) == 1
        assert backup(tmp_journal, tmp_path / "copy").report.is_sound
        with pytest.raises(JournalLockedError, match="use that one, or leave it first"):
            async with Runtime(tmp_journal):
                pass
        await waits.signal(Waits.end)
        assert await waits.result() == "done"
    assert gather(tool).runs == {"Waits": {"completed": 1}}
    tool.close()
    assert shared_environment(tool._shared.key) is None


def test_a_store_closes_while_threads_read_it(tmp_journal):
    """Each reader is told; nobody crashes and nobody waits for ever."""
    writer = open_os(tmp_journal)
    append(writer, 300)
    for round_ in range(10):
        store = open_os(tmp_journal, read_only=True) if round_ % 2 else writer
        told, failures, began = [], [], threading.Barrier(5)

        def read(store=store, told=told, failures=failures, began=began):
            began.wait(LIMIT)
            try:
                while True:
                    assert len(list(store.scan())) >= 300
                    store.read([Location(7, 0), Location(250, 0)])
                    assert store.position
            except JournalClosedError as error:
                told.append(str(error))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        began.wait(LIMIT)
        store.close()
        for thread in threads:
            thread.join(LIMIT)
        assert not failures
        assert len(told) == 4
        assert all("open it again" in text for text in told)
        if store is writer:
            writer = open_os(tmp_journal)
    writer.close()


class Reading(threading.Thread):
    """Reads in a block until it may go on, and does something inside it."""

    def __init__(self, store, act):
        super().__init__()
        self.store, self.act = store, act
        self.reads, self.may_act = threading.Event(), threading.Event()
        self.failure = None
        self.start()
        assert self.reads.wait(LIMIT)

    def run(self):
        try:
            with self.store._shared as opened, opened.env.begin() as txn:
                self.reads.set()
                assert self.may_act.wait(LIMIT)
                self.act()
                assert txn.stat()["entries"]
        except BaseException as error:
            self.failure = error


def fork():
    pid = os.fork()
    if not pid:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("act", ["opens", "forks"])
@pytest.mark.parametrize("change", ["close", "reopen"])
def test_a_thread_that_reads_may_open_and_fork_while_another_waits_for_it(tmp_path, tmp_journal, change, act):
    store = open_os(tmp_journal)
    append(store)
    waiting = threading.Event()
    wait = store._shared._idle.wait

    def wait_and_tell():
        waiting.set()
        return wait()

    store._shared._idle.wait = wait_and_tell
    actions = {"opens": lambda: open_os(tmp_path / "other").close(), "forks": fork}
    reading = Reading(store, actions[act])
    changing = threading.Thread(target=getattr(store, change))
    changing.start()
    assert waiting.wait(LIMIT)
    reading.may_act.set()
    for thread in (reading, changing):
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert reading.failure is None
    store.close()


def test_a_store_that_opens_while_the_last_one_waits_to_close_keeps_the_environment(tmp_journal):
    first = open_os(tmp_journal)
    append(first)
    reading = Reading(first, lambda: None)
    waiting = threading.Event()
    wait = first._shared._idle.wait

    def wait_and_tell():
        waiting.set()
        return wait()

    first._shared._idle.wait = wait_and_tell
    closing = threading.Thread(target=first.close)
    closing.start()
    assert waiting.wait(LIMIT)
    second = open_os(tmp_journal, read_only=True)
    reading.may_act.set()
    closing.join(LIMIT)
    reading.join(LIMIT)
    assert reading.failure is None
    assert second._shared is first._shared
    assert list(second.scan()) == [(1, [entry(1)])]
    third = open_os(tmp_journal)
    append(third)
    second.close()
    third.close()


def test_a_journal_that_could_not_be_opened_anew_can_be_opened_later(tmp_journal, monkeypatch):
    """A reader keeps the environment of this process; the writer after it wants another one."""
    open_os(tmp_journal).close()
    reader = open_os(tmp_journal, read_only=True)

    def fail(*_args):
        raise JournalClosedError("not today")

    with monkeypatch.context() as patch:
        patch.setattr("everact.journal.lmdb_open.open_environment", fail)
        with pytest.raises(JournalClosedError, match="not today"):
            open_os(tmp_journal)
    with pytest.raises(JournalClosedError, match="open it again"):
        list(reader.scan())
    writer = open_os(tmp_journal)
    append(writer)
    assert list(reader.scan()) == [(1, [entry(1)])]
    reader.close()
    writer.close()
