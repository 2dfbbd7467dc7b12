"""Chapter K: what the store under the journal is known for, and the journal is not."""

import itertools
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from everact import Client, Runtime, activity, workflow
from everact.exceptions import CommitUnknownError, JournalLockedError
from everact.journal.lmdb_store import LmdbStore
from everact.journal.store import Entry
from everact.testing import TestEnvironment


@workflow.defn
class Echoes:
    @workflow.run
    async def run(self, word: str) -> str:
        return word


def script(source, *arguments):
    """Run a program of its own to its end."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", source, *map(os.fspath, arguments)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


FORKS = """
import asyncio, multiprocessing, os, sys
from everact import Runtime, workflow

@workflow.defn
class Echoes:
    @workflow.run
    async def run(self, word: str) -> str:
        return word

def fork():
    pid = os.fork()
    if not pid:
        if sys.argv[2] == "exits":
            sys.exit(0)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

def pool():
    with multiprocessing.get_context("fork").Pool(2) as workers:
        assert workers.map(abs, [-1, -2]) == [1, 2]

async def main():
    async with Runtime(sys.argv[1], workflows=[Echoes]) as runtime:
        await runtime.execute(Echoes, "before", id="before")
        for number in range(3):
            try:
                pool() if sys.argv[2] == "pool" else fork()
            except SystemExit:
                os._exit(0)
            assert await runtime.execute(Echoes, "behind", id=f"behind-{number}") == "behind"
            assert len(await runtime.list_workflows()) == number + 2
            assert await runtime.ref("before", Echoes).result() == "before"

asyncio.run(main())
print("ok")
"""


@pytest.mark.parametrize("child", ["ends at once", "exits", "pool"])
def test_k01_the_parent_reads_and_writes_behind_a_fork(child, tmp_journal):
    assert script(FORKS, tmp_journal, child) == "ok\n"


def entry(size):
    return Entry(1, 1, 0, 1, os.urandom(size))


@pytest.mark.parametrize("reader", ["iterator", "scans", "another store"])
def test_k03_a_map_that_fills_up_beside_a_reader_is_an_error_and_no_abort(reader, tmp_journal):
    store = LmdbStore(tmp_journal, map_size=2 << 20, durability="os")
    for _ in range(100):
        store.append(store.position, [entry(100)])
    stop, begun, seen = threading.Event(), threading.Event(), []

    def reads():
        one = LmdbStore(tmp_journal, read_only=True) if reader == "another store" else store
        scan = one.scan()
        seen.append(next(scan)[0])
        begun.set()
        while not stop.is_set():
            if reader == "iterator":
                seen.extend(number for number, _ in itertools.islice(scan, 1))
            else:
                seen[:] = [number for number, _ in itertools.islice(one.scan(), 100)]
        if one is not store:
            one.close()

    thread = threading.Thread(target=reads)
    thread.start()
    assert begun.wait(20)
    try:
        with pytest.raises(CommitUnknownError, match="MDB_MAP_FULL"):
            while True:
                store.append(store.position, [entry(10_000)])
    finally:
        stop.set()
        thread.join()
    assert seen == list(range(1, len(seen) + 1)) and len(seen) > 1
    assert store.reopen().sequence > 100
    assert len(list(store.scan())) == store.position.sequence - 1
    store.close()


@pytest.mark.parametrize("way", ["path", "relative", "link", "linked folder"])
async def test_k04_a_journal_that_is_open_is_refused_by_any_path_and_goes_on(way, tmp_path, monkeypatch):
    journal = tmp_path / "journal"
    (tmp_path / "link").symlink_to(journal)
    (tmp_path / "folder").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    paths = {
        "path": journal,
        "relative": "./journal",
        "link": tmp_path / "link",
        "linked folder": tmp_path / "folder" / "journal",
    }
    async with Runtime(journal, workflows=[Echoes]) as runtime:
        await runtime.execute(Echoes, "one", id="one")
        for _ in range(2):
            with pytest.raises(JournalLockedError, match=f"already open in this process .{os.getpid()}"):
                async with Runtime(paths[way], workflows=[Echoes]):
                    pass
            reader = LmdbStore(paths[way], read_only=True)
            assert list(reader.scan())
            reader.close()
            assert await runtime.execute(Echoes, "two") == "two"
            assert await runtime.ref("one", Echoes).result() == "one"
    async with Runtime(paths[way], workflows=[Echoes]) as runtime:
        assert await runtime.ref("one", Echoes).result() == "one"


async def test_k04_a_client_and_its_host_live_in_one_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # paths of sockets are short
    async with Runtime("journal", workflows=[Echoes]) as runtime:
        for number in range(3):
            async with Client.connect("unix:./journal") as client:
                assert await client.execute(Echoes, "far", id=f"far-{number}") == "far"
            assert await runtime.execute(Echoes, "near") == "near"
        assert len(await runtime.list_workflows()) == 6


READERS = """
import os, signal, sys
from everact.journal.lmdb_store import LmdbStore
from everact.journal.store import Entry

path = sys.argv[1]
store = LmdbStore(path, durability="os")
store.append(store.position, [Entry(1, 1, 0, 1, b"x" * 100)])
store.close()
for _ in range(300):
    told, tell = os.pipe()
    pid = os.fork()
    if not pid:
        reader = LmdbStore(path, read_only=True)
        next(reader.scan())
        held = reader._shared.opened.env.begin()
        os.write(tell, b"r")
        signal.pause()
    assert os.read(told, 1) == b"r"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(told)
    os.close(tell)
store = LmdbStore(path, durability="os")
def write():
    for _ in range(5000):
        store.append(store.position, [Entry(store.position.sequence, 1, 0, 1, b"x" * 100)])
    return store._shared.opened.env.info()["last_pgno"], sum(1 for _ in store.scan())
half, _ = write()
whole, records = write()
assert records == 10_001, records
print(half, whole)
"""


def test_k05_three_hundred_killed_readers_keep_nobody_out_and_no_page(tmp_path):
    half, whole = map(int, script(READERS, tmp_path / "readers").split())
    assert whole < 2 * half + 100, "pages are used again"


@pytest.mark.slow
def test_k08_a_full_disk_is_an_error_and_the_runtime_goes_on_when_there_is_room(tmp_path):
    mount = 'mount -t tmpfs -o size=8m none "$0" && exec "$@"'
    within = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, tmp_path]
    if shutil.which("unshare") is None or subprocess.run([*within, "true"], capture_output=True).returncode:
        pytest.skip("may not mount a small file system here")
    program = Path(__file__).with_name("full_disk_program.py")
    ended = subprocess.run(
        [*within, sys.executable, program, tmp_path], capture_output=True, text=True, timeout=50, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "ok\n"


LONG = "x" * 511
IDS = [LONG, LONG + "y", LONG + "z", "x" * 512, "a" * 1000, "ä" * 500, "\N{SNAKE}" * 250]
IDS += ["a/b/../c", "a", "a\0", "a\0b"]


@pytest.mark.parametrize("store", ["lmdb", "memory"])
async def test_k10_ids_of_any_text_are_kept_whole_up_to_the_limit(store):
    @workflow.defn
    class Keeps:
        @workflow.run
        async def run(self, word: str) -> str:
            return word

    async with TestEnvironment(workflows=[Keeps], store=store) as env:
        for name in IDS:
            assert await env.execute(Keeps, name[-20:], id=name, request_id=name) == name[-20:]
        await env.restart()
        for number, name in enumerate(IDS):
            assert await env.ref(name).result() == name[-20:]
            assert (await env.ref(name).describe()).workflow_id == name
            await env.spawn(Keeps, name[-20:], id=name, request_id=name)  # the same request: no second run
            assert await env.runtime.count_workflows() == len(IDS), number
        found = {run.workflow_id for run in await env.runtime.list_workflows()}
        assert found == set(IDS)
        for name in ("a" * 1001, "ä" * 501, "x" * 5000):
            with pytest.raises(ValueError, match="up to 1000 bytes"):
                await env.spawn(Keeps, "", id=name)
        await env.runtime.purge(workflow_id=LONG)
        assert {run.workflow_id for run in await env.runtime.list_workflows()} == set(IDS) - {LONG}


@pytest.mark.parametrize("length", [511, 512, 5000])
async def test_k10_other_names_have_no_limit_of_the_stores_keys(length):
    """Types, activities, signals, updates and memo keys: two of them that begin alike stay two."""
    one, two = "n" * length + "1", "n" * length + "2"

    @activity.defn(name=one)
    async def first() -> str:
        return "first"

    @activity.defn(name=two)
    async def second() -> str:
        return "second"

    @workflow.defn(name=one)
    class Named:
        @workflow.run
        async def run(self) -> list[str]:
            said = [await first(), await second()]
            await workflow.wait_for_signal(two)
            return said

        @workflow.update(name=one)
        def update(self) -> str:
            return "updated"

    async with TestEnvironment(workflows=[Named], activities=[first, second], store="lmdb") as env:
        handle = await env.spawn(Named, memo={one: 1, two: 2})
        await env.restart()
        assert await handle.execute_update(one, request_id="u" * min(length, 1000)) == "updated"
        assert (await handle.describe()).memo == {one: 1, two: 2}
        assert [run.workflow_type for run in await env.runtime.list_workflows(workflow_type=one)] == [one]
        assert await env.runtime.list_workflows(workflow_type=two) == []
        await handle.signal(two)
        assert await handle.result() == ["first", "second"]
