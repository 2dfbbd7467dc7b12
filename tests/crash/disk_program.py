"""Lives of a runtime on a small disk of its own; run by test_disks.py inside a mount namespace.

``python disk_program.py SCENARIO DIRECTORY``: the directory is an empty tmpfs. Prints ``ok`` at the end.
"""

import asyncio
import contextlib
import logging
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

from everact import Runtime, activity, workflow
from everact.actors import intake, rebuilding
from everact.exceptions import CommitUnknownError, JournalAccessError, JournalFullError, RuntimeClosedError
from everact.journal.lmdb_store import LmdbStore
from everact.journal.store import STARTS_RUN, Entry

LIMIT = 20
MIB = 1 << 20
noise = random.Random(22)

gate: asyncio.Event
paid: list[int] = []


@activity.defn
async def pay(n: int, size: int) -> bytes:
    paid.append(n)
    await gate.wait()
    return noise.randbytes(size)


@workflow.defn
class Pays:
    """Work under way."""

    @workflow.run
    async def run(self, n: int, size: int = 1000) -> int:
        return len(await pay(n, size))


@workflow.defn
class Keeps:
    """Takes whatever it is sent."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.is_over = False

    @workflow.run
    async def run(self) -> list[int]:
        await workflow.wait_condition(lambda: self.is_over)
        return self.sizes

    @workflow.signal
    def add(self, ballast: bytes) -> None:
        self.sizes.append(len(ballast))

    @workflow.signal
    def end(self) -> None:
        self.is_over = True

    @workflow.query
    def look(self) -> list[int]:
        return self.sizes


class Disk:
    """The small file system, and a file of somebody else on it."""

    def __init__(self, path):
        self.path = path
        self.journal = path / "journal"
        self.ballast = path / "ballast"

    @property
    def free(self):
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize

    def fill(self, leave=0):
        """Write the ballast until so many bytes are free."""
        with self.ballast.open("ab", buffering=0) as file:
            while self.free > leave:
                file.write(bytes(min(4096, self.free - leave)))

    def empty(self):
        self.ballast.unlink()


def runtime_on(journal, **options):
    return Runtime(journal, workflows=[Pays, Keeps], activities=[pay], grace=0, **options)


async def until(condition):
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.0005)


async def fill_with_signals(keeps, size=20_000):
    """Send signals until none is taken; returns the sizes of those that were, and the error."""
    taken = []
    while True:
        try:
            await keeps.signal(Keeps.add, noise.randbytes(size))
        except JournalFullError as error:
            if not error.needed:
                return taken, error
            size //= 2  # smaller ones may still be taken
        else:
            taken.append(size)


async def begin(runtime, size=1000, runs=10):
    """Runs under way whose activities wait, and one that takes signals."""
    before = len(paid)
    pays = [await runtime.spawn(Pays, n, size, id=f"pays-{n}") for n in range(runs)]
    keeps = await runtime.spawn(Keeps, id="keeps")
    await until(lambda: len(paid) == before + runs)
    return pays, keeps


async def check_refused(runtime, keeps, what):
    """Nothing new is taken and nothing is written, and everything else works."""
    position = runtime._shard.store.position
    for call in (
        runtime.spawn(Pays, 1),
        runtime.execute(Keeps),
        keeps.signal(Keeps.add, b"x"),
        keeps.signal(Keeps.end, request_id="end"),
    ):
        with expect(JournalFullError) as caught:
            await call
        assert caught[0].what == what, caught
    assert runtime._shard.store.position == position
    await keeps.describe()
    await keeps.query(Keeps.look)


@contextlib.contextmanager
def expect(kind):
    caught = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"{kind.__name__} was not raised"


async def finish(pays):
    gate.set()
    assert [await run.result() for run in pays] == [1000] * len(pays)


# --- scenarios


async def quota(disk):
    limit = 2 * MIB
    async with runtime_on(disk.journal, journal_quota=limit) as runtime:
        pays, keeps = await begin(runtime)
        taken, error = await fill_with_signals(keeps)
        assert (error.what, error.total, error.reserve) == ("quota", limit, limit // 8)
        assert len(taken) > 50
        await check_refused(runtime, keeps, "quota")
        await finish(pays)
    async with runtime_on(disk.journal, journal_quota=limit) as runtime:
        keeps = runtime.ref("keeps", Keeps)
        assert await keeps.query(Keeps.look) == taken
        assert [await runtime.ref(f"pays-{n}", Pays).result() for n in range(10)] == [1000] * 10
        await check_refused(runtime, keeps, "quota")
    assert (disk.journal / "data.mdb").stat().st_size <= limit
    async with runtime_on(disk.journal, journal_quota=2 * limit) as runtime:
        keeps = runtime.ref("keeps", Keeps)
        await keeps.signal(Keeps.end, request_id="end")
        assert await keeps.result() == taken
        await runtime.spawn(Keeps)
    # A quota below what there is: it does not grow, and it opens.
    async with runtime_on(disk.journal, journal_quota=MIB) as runtime:
        with expect(JournalFullError):
            await runtime.spawn(Keeps)


async def low_disk(disk):
    async with runtime_on(disk.journal) as runtime:
        pays, keeps = await begin(runtime)
        disk.fill(leave=3 * MIB)
        taken, error = await fill_with_signals(keeps)
        assert (error.what, error.reserve) == ("disk", MIB)
        assert disk.free > MIB * 0.9
        await check_refused(runtime, keeps, "disk")
        await finish(pays)
        disk.empty()
        await keeps.signal(Keeps.end)
        assert await keeps.result() == taken
        assert await runtime.execute(Pays, 99) == 1000


async def full_disk(disk):
    size = 60_000  # ten of them do not fit into the pages that are free inside the file
    async with runtime_on(disk.journal) as runtime:
        pays, keeps = await begin(runtime, size)
        await keeps.signal(Keeps.add, noise.randbytes(1000))
        disk.fill()
        gate.set()
        await until(lambda: runtime._shard.rebuilding.failures > 3)
        await check_refused_in_outage(runtime, keeps)
        disk.empty()
        await until(lambda: runtime._shard.intake.full is None and not runtime._shard.rebuilding.failures)
        assert [await run.result() for run in pays] == [size] * 10
        await keeps.signal(Keeps.add, noise.randbytes(MIB))
        await keeps.signal(Keeps.end)
        assert await keeps.result() == [1000, MIB]
    assert sorted(paid) == list(range(10)), "what was paid for was asked for again"
    async with runtime_on(disk.journal) as runtime:
        assert [await runtime.ref(f"pays-{n}", Pays).result() for n in range(10)] == [size] * 10


async def check_refused_in_outage(runtime, keeps):
    for call in (lambda: runtime.spawn(Pays, 1), lambda: keeps.signal(Keeps.add, b"x")):
        with expect(JournalAccessError):
            async with asyncio.timeout(LIMIT):
                await call()


async def large_results(disk):
    async with runtime_on(disk.journal) as runtime:
        small = await runtime.spawn(Pays, 1, 1000)
        large = [await runtime.spawn(Pays, n, MIB) for n in (2, 3, 4)]
        await until(lambda: len(paid) == 4)
        disk.fill(leave=MIB)
        gate.set()
        assert await small.result() == 1000
        await until(lambda: runtime._shard.intake._kept)
        assert not runtime._shard.rebuilding.failures
        disk.empty()
        assert [await run.result() for run in large] == [MIB] * 3
    assert sorted(paid) == [1, 2, 3, 4]


async def full_map(disk):
    store = LmdbStore(disk.journal, map_size=2 * MIB)
    async with runtime_on(store) as runtime:
        pays, keeps = await begin(runtime)
        taken, error = await fill_with_signals(keeps)
        assert error.what == "map"
        await check_refused(runtime, keeps, "map")
        await finish(pays)
    store = LmdbStore(disk.journal, map_size=2 * MIB)
    keys = iter(range(1000, 10**9))
    with expect(CommitUnknownError) as caught:
        while True:
            key = next(keys)
            body = workflow_started(key)
            store.append(store.position, [Entry(key, 1, STARTS_RUN, 1, body)])
    assert "MDB_MAP_FULL" in str(caught[0])
    sequence = store.position.sequence
    assert store.reopen().sequence == sequence
    store.close()
    async with runtime_on(disk.journal) as runtime:
        keeps = runtime.ref("keeps", Keeps)
        await keeps.signal(Keeps.end)
        assert await keeps.result() == taken
        assert await runtime.execute(Pays, 99) == 1000


def workflow_started(key):
    from everact.journal import events as ev

    started = ev.WorkflowStarted(f"w-{key}", f"r-{key}", "Other")
    return ev.encode_record(ev.Received((started, ev.SignalReceived(noise.randbytes(5000).hex()))))


async def new_on_full_disk(disk):
    disk.journal.mkdir()
    disk.fill()
    with expect(JournalFullError) as caught:
        async with runtime_on(disk.journal):
            pass
    assert "its file system of 8,388,608 bytes has 0 bytes left" in str(caught[0])
    disk.empty()
    async with runtime_on(disk.journal) as runtime:
        await runtime.spawn(Keeps)


async def open_on_full_disk(disk):
    async with runtime_on(disk.journal) as runtime:
        _pays, keeps = await begin(runtime)
        taken = [1000] * 5
        for size in taken:
            await keeps.signal(Keeps.add, noise.randbytes(size))
    disk.fill()
    # There are free pages in the file for a few small commits; after those it says that it is full.
    opened = 0
    for _ in range(20):
        try:
            async with runtime_on(disk.journal) as runtime:
                opened += 1
                assert await runtime.ref("keeps", Keeps).query(Keeps.look) == taken
                with expect(JournalAccessError):
                    await runtime.spawn(Keeps)
        except JournalFullError:
            continue
    reader = LmdbStore(disk.journal, read_only=True)
    assert list(reader.scan())
    reader.close()
    disk.empty()
    async with runtime_on(disk.journal) as runtime:
        keeps = runtime.ref("keeps", Keeps)
        await keeps.signal(Keeps.end)
        assert await keeps.result() == taken
        gate.set()
        assert [await runtime.ref(f"pays-{n}", Pays).result() for n in range(10)] == [1000] * 10
    print(f"opened {opened} of 20")


def break_files(disk):
    """Make every write to the open data file fail."""
    read_only = os.open(disk.journal / "data.mdb", os.O_RDONLY)
    for place in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            if place.readlink().name == "data.mdb" and int(place.name) != read_only:
                os.dup2(read_only, int(place.name))
    os.close(read_only)


async def read_only_disk(disk):
    """What a file system does that has met an error: open files cannot be written any more, and none is opened."""
    async with runtime_on(disk.journal) as runtime:
        pays, keeps = await begin(runtime)
        await keeps.signal(Keeps.add, b"kept")
        journal = os.fspath(disk.journal)
        subprocess.run(["mount", "--bind", journal, journal], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", journal], check=True)
        break_files(disk)
        with expect(CommitUnknownError):
            await keeps.signal(Keeps.add, b"lost")
        gate.set()
        await until(lambda: runtime._shard.outage.cause is not None)
        for call in (
            runtime.spawn(Keeps),
            keeps.signal(Keeps.add, b"x"),
            keeps.query(Keeps.look),
            keeps.describe(),
            keeps.cancel(),
            keeps.terminate(),
        ):
            with expect(JournalAccessError) as caught:
                async with asyncio.timeout(LIMIT):
                    await call
            assert "mounted read-only, mount it for reading and writing" in str(caught[0]), caught
        subprocess.run(["umount", journal], check=True)
        await until(lambda: runtime._shard.outage.cause is None)
        assert [await run.result() for run in pays] == [1000] * 10
        assert await keeps.query(Keeps.look) == [4]
        await keeps.signal(Keeps.end)
        assert await keeps.result() == [4]
    assert sorted(paid) == list(range(10))


async def leave_a_read_only_disk(disk):
    async with runtime_on(disk.journal) as runtime:
        _pays, keeps = await begin(runtime)
        await keeps.signal(Keeps.add, b"kept")
        result = asyncio.create_task(keeps.result())
        journal = os.fspath(disk.journal)
        subprocess.run(["mount", "--bind", journal, journal], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", journal], check=True)
        break_files(disk)
        with expect(CommitUnknownError):
            await keeps.signal(Keeps.add, b"lost")
        await until(lambda: runtime._shard.outage.cause is not None)
    with expect(RuntimeClosedError):
        await result
    subprocess.run(["umount", journal], check=True)
    async with runtime_on(disk.journal) as runtime:
        assert await runtime.ref("keeps", Keeps).query(Keeps.look) == [4]


async def open_on_read_only_disk(disk):
    async with runtime_on(disk.journal) as runtime:
        await runtime.spawn(Keeps, id="keeps")
    subprocess.run(["mount", "-o", "remount,ro", os.fspath(disk.path)], check=True)
    with expect(JournalAccessError) as caught:
        async with runtime_on(disk.journal):
            pass
    assert "its file system is mounted read-only" in str(caught[0]), caught
    reader = LmdbStore(disk.journal, read_only=True)
    assert len(list(reader.scan())) == 1
    reader.close()
    subprocess.run(["mount", "-o", "remount,rw", os.fspath(disk.path)], check=True)
    async with runtime_on(disk.journal) as runtime:
        await runtime.ref("keeps", Keeps).signal(Keeps.end)


async def short_writes(disk):
    """A limit on the size of files cuts a write in its middle."""
    size = 60_000
    data = disk.journal / "data.mdb"
    _soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with runtime_on(disk.journal) as runtime:
        pays, keeps = await begin(runtime, size)
        await keeps.signal(Keeps.add, b"kept")
        resource.setrlimit(resource.RLIMIT_FSIZE, (data.stat().st_size + 100_001, hard))
        gate.set()
        await until(lambda: runtime._shard.rebuilding.failures > 3)
        await check_refused_in_outage(runtime, keeps)
        assert runtime._shard.intake.full.what == "file"
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        await until(lambda: runtime._shard.intake.full is None and not runtime._shard.rebuilding.failures)
        assert [await run.result() for run in pays] == [size] * 10
        await keeps.signal(Keeps.end)
        assert await keeps.result() == [4]
    assert sorted(paid) == list(range(10))


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        quota,
        low_disk,
        full_disk,
        large_results,
        full_map,
        new_on_full_disk,
        open_on_full_disk,
        read_only_disk,
        leave_a_read_only_disk,
        open_on_read_only_disk,
        short_writes,
    )
}


async def main(name, path):
    global gate
    gate = asyncio.Event()
    async with asyncio.timeout(2 * LIMIT):
        await SCENARIOS[name](Disk(Path(path)))
    print("ok")


if __name__ == "__main__":  # and not where the test only reads the names of the scenarios
    rebuilding.FIRST_PAUSE = intake.CHECK_EVERY = 0.002
    rebuilding.LONGEST_PAUSE = 0.01
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    asyncio.run(main(*sys.argv[1:]))
