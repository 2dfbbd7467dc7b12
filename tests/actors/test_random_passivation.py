"""Random lives with next to no room in memory: every answer is what a plain model of the runs says."""

import asyncio
import random
from collections import Counter

import pytest
from support.clock import ManualClock
from support.codecs import InThreads
from support.hosting import hosted, settled
from support.stores import TroubledStore

from everact import ApplicationError, workflow
from everact.actors import horizon, rebuilding, restarts
from everact.actors.event_loop import TurnAborted
from everact.exceptions import (
    CommitUnknownError,
    RuntimeClosedError,
    UpdateCutError,
    WorkflowAlreadyStartedError,
    WorkflowClosedError,
    WorkflowNotFoundError,
    WorkflowPurgedError,
    WorkflowTerminatedError,
)
from everact.journal import compaction
from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.verify import verify
from everact.supervision.backoff import Backoff
from everact.supervision.strategies import RestartLimit

pytestmark = pytest.mark.usefixtures("keeps_code")

IDS = [f"id{n}" for n in range(7)]
FAR = horizon.HORIZON / 1_000_000


#: What crashes when it comes, once.
CRASHES: set[int] = set()


def crash_over(n):
    if n in CRASHES:
        CRASHES.discard(n)  # everact: allow
        raise TurnAborted(f"over {n}")


@workflow.defn
class Life:
    def __init__(self) -> None:
        self.seen: list[int] = []
        self.woke: list[int] = []
        self.tried: list[int] = []
        self.over = False

    @workflow.run
    async def run(self, first: int) -> list[int]:
        self.seen.append(first)
        await workflow.wait_condition(lambda: self.over)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.seen

    @workflow.signal
    def add(self, n: int) -> None:
        crash_over(n)
        self.seen.append(n)

    @workflow.signal
    def fragile(self, n: int) -> None:
        if n not in self.tried:
            self.tried.append(n)
            raise ApplicationError("not the first time")
        self.seen.append(n)

    @workflow.signal
    async def nap(self, n: int, seconds: float) -> None:
        try:
            await workflow.wait_condition(lambda: self.over, timeout=seconds)
        except TimeoutError:
            self.woke.append(n)

    @workflow.update
    def total(self, n: int) -> list[int]:
        crash_over(n)
        self.seen.append(n)
        return self.seen

    @workflow.update
    async def reach(self, length: int) -> bool:
        await workflow.wait_condition(lambda: self.over or len(self.seen) >= length)
        return len(self.seen) >= length

    @workflow.signal
    def end(self) -> None:
        self.over = True

    @workflow.query
    def look(self) -> list[list[int]]:
        return [self.seen, sorted(self.woke)]


class Run:
    """What the model knows of a run."""

    def __init__(self, first):
        self.seen = [first]
        self.naps = []
        self.status = "running"

    def woke(self, now):
        return sorted(n for n, due in self.naps if due <= now)


class StepClock(ManualClock):
    """Each look at it costs time: whatever stops after a while stops all the time."""

    def steady(self):
        self._steady += 0.002
        return self._steady


class OnDisk(LmdbStore):
    """A journal on disk whose next appends fail, as those of ``TroubledStore``."""

    def __init__(self, path):
        super().__init__(path, durability="os", map_size=1 << 28)
        self.failures = []

    def append(self, expected, entries, work=None):
        failure = self.failures.pop(0) if self.failures else None
        if failure == "before":
            self._failure = CommitUnknownError("the disk is on fire")
        position = super().append(expected, entries, work)
        if failure == "after":
            self._failure = CommitUnknownError("the disk is on fire, and the record on it")
            raise self._failure
        return position


class Lives:
    def __init__(self, seed, journal):
        self.rng = random.Random(seed)
        self.journal = journal
        self.clock = StepClock()
        self.runs = {name: [] for name in IDS}
        self.number = 0
        self.sent = []
        self.runtime = None
        self.opened = asyncio.Event()
        self.waiting = []

    async def until_done(self, call):
        """Again and again, through failed commits and restarts."""
        while True:
            await self.opened.wait()
            runtime = self.runtime
            try:
                return await call(runtime)
            except CommitUnknownError:
                await asyncio.sleep(0)
            except RuntimeClosedError:
                if self.runtime is runtime:
                    raise

    def next(self):
        self.number += 1
        return self.number

    # --- what one id goes through in a round

    async def round(self, name):
        for _ in range(self.rng.randrange(1, 6)):
            for _ in range(self.rng.randrange(4)):
                await asyncio.sleep(0)
            runs = self.runs[name]
            run = runs[-1] if runs and runs[-1].status == "running" else None
            if run is None:
                await self.start(name, None)
                continue
            kinds = [
                "add",
                "add",
                "nap",
                "total",
                "reach",
                "look",
                "describe",
                "start",
                "end",
                "terminate",
                "again",
                "pause",
                "redrive",
            ]
            await getattr(self, self.rng.choice(kinds))(name, run)

    async def start(self, name, run):
        number = self.next()
        rule = self.rng.choice(["fail", "attach", "replace"])
        request = f"r{number}" if self.rng.random() < 0.8 or run is None or rule == "replace" else None

        def call(runtime):
            return runtime.spawn(Life, number, id=name, request_id=request, if_running=rule)

        if run is not None and rule == "fail":
            with pytest.raises(WorkflowAlreadyStartedError):
                await self.until_done(call)
            return
        await self.until_done(call)
        if run is not None and rule == "attach":
            return
        if run is not None:
            run.status = "terminated"
        self.runs[name].append(Run(number))
        self.sent.append((name, call))

    def next_crash(self):
        number = self.next()
        if self.rng.random() < 0.3:
            CRASHES.add(number)
        return number

    async def caught_up(self, name):
        """What the run has received it has handled."""
        while (await self.until_done(lambda runtime: runtime.ref(name).describe())).backlog:
            await asyncio.sleep(0)

    async def pause(self, name, run):
        number = self.next()
        await self.until_done(lambda runtime: runtime.ref(name).pause(request_id=f"p{number}"))
        for _ in range(self.rng.randrange(3)):
            await self.add(name, run)
        total = asyncio.ensure_future(self.total(name, run)) if self.rng.random() < 0.5 else None
        for _ in range(self.rng.randrange(20)):
            await asyncio.sleep(0)
        status = (await self.until_done(lambda runtime: runtime.ref(name).describe())).status
        assert status == "paused"
        await self.until_done(lambda runtime: runtime.ref(name).resume(request_id=f"u{number}"))
        if total is not None:
            await total

    async def redrive(self, name, run):
        number = self.next()

        def call(runtime):
            return runtime.ref(name, Life).signal(Life.fragile, number, request_id=f"r{number}")

        await self.until_done(call)
        self.sent.append((name, call))
        await self.caught_up(name)
        (letter,) = (await self.until_done(lambda runtime: runtime.ref(name).describe())).dead_letters
        run.seen.append(number)
        again = [
            self.until_done(lambda runtime: runtime.ref(name).redrive(letter.number))
            for _ in range(self.rng.randrange(1, 3))
        ]
        await asyncio.gather(*again)
        await self.caught_up(name)
        assert (await self.until_done(lambda runtime: runtime.ref(name).describe())).dead_letter_count == 0

    async def add(self, name, run):
        number = self.next_crash()

        def call(runtime):
            return runtime.ref(name, Life).signal(Life.add, number, request_id=f"r{number}")

        await self.until_done(call)
        run.seen.append(number)
        self.sent.append((name, call))

    async def nap(self, name, run):
        number = self.next()
        seconds = self.rng.choice([5, 100, FAR - 1, FAR, FAR + 1, 2 * FAR, 5 * FAR])
        due = self.clock.wall() + round(seconds * 1_000_000)

        def call(runtime):
            return runtime.ref(name, Life).signal(Life.nap, number, seconds, request_id=f"r{number}")

        await self.until_done(call)
        run.naps.append((number, due))
        self.sent.append((name, call))

    async def total(self, name, run):
        number = self.next_crash()

        def call(runtime):
            return runtime.ref(name, Life).execute_update(Life.total, number, request_id=f"r{number}")

        run.seen.append(number)
        right = list(run.seen)
        assert await self.until_done(call) == right
        self.sent.append((name, call))

    async def reach(self, name, run):
        number = self.next()
        length = len(run.seen) + self.rng.randrange(3)

        def call(runtime):
            return runtime.ref(name, Life).execute_update(Life.reach, length, request_id=f"r{number}")

        async def wait():
            try:
                await self.until_done(call)
            except (UpdateCutError, WorkflowClosedError, WorkflowNotFoundError, WorkflowPurgedError):
                pass  # what matters is that there is an answer

        task = asyncio.ensure_future(wait())
        self.waiting.append(task)
        for _ in range(3):
            await asyncio.sleep(0)

    async def look(self, name, run):
        await self.caught_up(name)
        seen = await self.until_done(lambda runtime: runtime.ref(name, Life).query(Life.look))
        assert seen == [run.seen, run.woke(self.clock.wall())], name

    async def describe(self, name, run):
        assert (await self.until_done(lambda runtime: runtime.ref(name).describe())).status == run.status

    async def end(self, name, run):
        if self.rng.random() < 0.6:
            return
        number = self.next()
        waiter = None
        if self.rng.random() < 0.5:
            waiter = asyncio.ensure_future(self.until_done(lambda runtime: runtime.ref(name, Life).result()))
            await asyncio.sleep(0)
        await self.until_done(lambda r: r.ref(name, Life).signal(Life.end, request_id=f"r{number}"))
        assert await self.until_done(lambda runtime: runtime.ref(name, Life).result()) == run.seen
        if waiter is not None:
            assert await waiter == run.seen
        run.status = "completed"
        run.naps = [(n, due) for n, due in run.naps if due <= self.clock.wall()]

    async def terminate(self, name, run):
        if self.rng.random() < 0.6:
            return
        try:
            await self.until_done(lambda runtime: runtime.ref(name).terminate())
        except WorkflowClosedError:
            pass
        with pytest.raises(WorkflowTerminatedError):
            await self.until_done(lambda runtime: runtime.ref(name, Life).result())
        run.status = "terminated"

    async def again(self, _name, _run):
        if self.sent:
            name, call = self.rng.choice(self.sent)
            try:
                await self.until_done(call)
            except (WorkflowNotFoundError, WorkflowPurgedError):
                pass

    # --- all of it

    async def check(self):
        now = self.clock.wall()
        listed = Counter()
        right = Counter()
        for run in await self.runtime.list_workflows():
            listed[run.workflow_id, run.status] += 1
        for name, runs in self.runs.items():
            right.update((name, run.status) for run in runs)
            if not runs:
                continue
            ref = self.runtime.ref(name, Life)
            assert (await ref.describe()).status == runs[-1].status
            if runs[-1].status == "running":
                await self.caught_up(name)
                assert await ref.query(Life.look) == [runs[-1].seen, runs[-1].woke(now)], name
        assert listed == right
        for status in ("running", "completed", "terminated"):
            count = sum(n for (_, is_), n in right.items() if is_ == status)
            assert await self.runtime.count_workflows(status=status) == count

    async def live(self, store):
        """From a start to the next one."""
        rng = self.rng
        for _ in range(rng.randrange(1, 4)):
            tasks = [asyncio.ensure_future(self.round(name)) for name in IDS]
            for _ in range(rng.randrange(3)):
                for _ in range(rng.randrange(60)):
                    await asyncio.sleep(0)
                store.failures.append(rng.choice(["before", "after"]))
            if rng.random() < 0.3:
                for _ in range(rng.randrange(60)):
                    await asyncio.sleep(0)
                return tasks
            await asyncio.gather(*tasks)
            store.failures.clear()
            for name, runs in self.runs.items():
                if runs and runs[-1].status == "running":
                    await self.caught_up(name)  # a nap that was received only begins when it is handled
            self.clock.advance(rng.choice([0, 1, 50, FAR / 2, FAR, 1.5 * FAR, 4 * FAR]))
            for _ in range(4):
                self.runtime._shard.timers.check()
                await settled(self.runtime)
            await self.check()
            if isinstance(store, OnDisk) and rng.random() < 0.2:
                await self.until_done(lambda runtime: runtime.compact_journal())
            if rng.random() < 0.2:
                name = rng.choice(IDS)
                gone = [run for run in self.runs[name] if run.status != "running"]
                assert await self.runtime.purge(workflow_id=name) == len(gone)
                self.runs[name] = [run for run in self.runs[name] if run.status == "running"]
                await self.check()
        return []

    async def finish(self):
        """End all runs: nobody who waits for one waits for ever."""
        for name, runs in self.runs.items():
            if runs and runs[-1].status == "running":
                await self.runtime.ref(name).terminate()
                runs[-1].status = "terminated"
        async with asyncio.timeout(20):
            await asyncio.gather(*self.waiting)


@pytest.mark.parametrize("coded", [False, True], ids=["plain", "coded"])
@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize("seed", range(5))
async def test_random_lives_in_little_room(seed, on_disk, coded, monkeypatch, tmp_journal):
    monkeypatch.setattr(rebuilding, "FIRST_PAUSE", 0.0005)
    monkeypatch.setattr(rebuilding, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(restarts, "LIMIT", RestartLimit(most=10_000, backoff=Backoff(first=0.0, longest=0.0)))
    lives = Lives(seed, tmp_journal if on_disk else MemoryJournal())
    rng = lives.rng
    monkeypatch.setattr(compaction, "WINDOW", rng.choice([1, 3, 10, 40]))
    monkeypatch.setattr(compaction, "READ_AT_ONCE", rng.choice([0, 50]))  # 0: all on the other thread

    def store():
        return OnDisk(tmp_journal) if on_disk else TroubledStore(MemoryStore(lives.journal))

    tasks = []
    for last in [False] * 5 + [True]:
        disk = store()
        codecs = [InThreads()] if coded else []
        room = rng.choice([1, 1, 2, 5])
        async with hosted(
            disk, Life, clock=lives.clock, codecs=codecs, max_cached_workflows=room, grace=1
        ) as runtime:
            lives.runtime = runtime
            lives.opened.set()
            await asyncio.gather(*tasks)
            await settled(runtime)
            await lives.check()
            if last:
                await lives.finish()
                break
            tasks = await lives.live(disk)
            lives.opened.clear()
            lives.runtime = None
            disk.failures.clear()
    disk = store()
    assert not verify(disk).problems
    disk.close()
