"""``workflow.publish``: values that outsiders read without running the run's code."""

import asyncio
import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from support.codecs import Wrapping
from support.hosting import hosted, kinds, settled

from everact import Client, workflow
from everact.exceptions import (
    PayloadDecodeError,
    PublishLimitError,
    QueryFailedError,
    UpdateFailedError,
    WorkflowHeldError,
    WorkflowNotFoundError,
)
from everact.journal.memory_store import MemoryJournal
from everact.journal.verify import verify


@dataclass
class Progress:
    done: int
    of: int


@workflow.defn
class Job:
    def __init__(self) -> None:
        workflow.publish("state", "new")
        self.over = False

    @workflow.run
    async def run(self) -> str:
        workflow.publish("progress", Progress(0, 3))
        await workflow.wait_condition(lambda: self.over)
        workflow.publish("state", "over")
        return "result"

    @workflow.update
    def put(self, key: str, value: object) -> None:
        workflow.publish(key, value)

    @workflow.update
    def put_many(self, count: int, size: int) -> None:
        for number in range(count):
            workflow.publish(f"key {number}", "x" * size)

    @workflow.signal
    def step(self, done: int) -> None:
        workflow.publish("progress", Progress(done, 3))

    @workflow.signal
    def end(self) -> None:
        self.over = True

    @workflow.signal
    def crash(self) -> None:
        self.over = True
        raise AssertionError("never: R7")

    @workflow.query
    def publishes(self) -> None:
        workflow.publish("a", 1)


@pytest.fixture(params=["plain", "codec"])
def codecs(request):
    return [] if request.param == "plain" else [Wrapping()]


async def test_values_are_read_by_key_on_a_running_a_passive_and_an_ended_run(codecs):
    journal = MemoryJournal()
    async with hosted(journal, Job, codecs=codecs) as runtime:
        handle = await runtime.spawn(Job.run, id="j")
        assert await handle.published("state", str) == "new"
        assert await handle.published("progress", Progress) == Progress(0, 3)
        assert await handle.published("progress") == {"done": 0, "of": 3}
        assert await handle.published("nothing") is None
        for done in range(1, 6):
            await handle.signal(Job.step, done)
        assert (await handle.describe()).published == {"state": "new", "progress": {"done": 5, "of": 3}}
    async with hosted(journal, Job, codecs=codecs) as runtime:
        handle = runtime.ref("j", Job)
        assert await handle.published("progress", Progress) == Progress(5, 3)
        assert all(actor.instance is None for actor in runtime._shard.actors.values())
        await handle.signal(Job.end)
        assert await handle.result() == "result"
        assert await handle.published("state") == "over"
    async with hosted(journal, codecs=codecs) as runtime:  # nobody has its code any more
        handle = runtime.ref("j")
        assert await handle.published("state") == "over"
        assert (await handle.describe()).published["progress"] == {"done": 5, "of": 3}


async def test_paused_held_and_quarantined_runs_are_read():
    @workflow.defn
    class Bug:
        @workflow.run
        async def run(self) -> None:
            workflow.publish("state", "before")
            await workflow.sleep(0.001)
            raise RuntimeError("a bug")

    journal = MemoryJournal()
    async with hosted(journal, Job, Bug) as runtime:
        paused = await runtime.spawn(Job.run, id="paused")
        await paused.pause()
        assert await paused.published("state") == "new"
        broken = await runtime.spawn(Bug.run, id="broken")
        with pytest.raises(Exception, match="a bug"):
            await broken.result()
        seen = await broken.describe()
        assert (seen.status, seen.published) == ("quarantined", {"state": "before"})
        assert await broken.published("state", str) == "before"
    async with hosted(journal) as runtime:
        held = runtime.ref("paused")
        assert (await held.describe()).status == "held"
        assert await held.published("state", str) == "new"


async def test_none_takes_a_value_out():
    async with hosted(MemoryJournal(), Job) as runtime:
        handle = await runtime.spawn(Job.run)
        await handle.execute_update(Job.put, "state", None)
        assert await handle.published("state") is None
        assert list((await handle.describe()).published) == ["progress"]


@pytest.mark.parametrize(
    "value", [0, "", False, [], 1.5, b"\x00\xff", Decimal("1.10"), datetime(2026, 1, 2, tzinfo=UTC)]
)
async def test_values_come_back_as_they_were(value):
    @workflow.defn
    class One:
        @workflow.run
        async def run(self) -> None:
            workflow.publish("value", value)

    async with hosted(MemoryJournal(), One) as runtime:
        handle = await runtime.spawn(One.run)
        await handle.result()
        assert await handle.published("value") == value
        assert await handle.published("value", type(value)) == value


async def test_a_value_of_another_type_is_refused_to_the_reader():
    async with hosted(MemoryJournal(), Job) as runtime:
        handle = await runtime.spawn(Job.run)
        with pytest.raises(PayloadDecodeError, match="value published as 'state'"):
            await handle.published("state", int)
        with pytest.raises(WorkflowNotFoundError):
            await runtime.ref("nobody").published("state")


@pytest.mark.parametrize(("key", "says"), [("", "must not be empty"), ("k" * 201, "up to 200 bytes")])
async def test_a_bad_key_is_refused_at_the_call(key, says):
    async with hosted(MemoryJournal(), Job) as runtime:
        handle = await runtime.spawn(Job.run)
        with pytest.raises(UpdateFailedError, match=says):
            await handle.execute_update(Job.put, key, 1)
        with pytest.raises(ValueError, match=says):
            await handle.published(key)


async def test_keys_and_bytes_are_bounded():
    async with hosted(MemoryJournal(), Job) as runtime:
        handle = await runtime.spawn(Job.run)
        await handle.execute_update(Job.put_many, 98, 2000)
        await handle.execute_update(Job.put_many, 98, 1000)  # the same keys
        with pytest.raises(
            UpdateFailedError, match=r"'key 98'.*101 published keys.*100 keys.*publish\(key, None\)"
        ):
            await handle.execute_update(Job.put_many, 100, 1)
        with pytest.raises(UpdateFailedError, match=r"262,144 bytes together"):
            await handle.execute_update(Job.put, "key 0", "x" * 300_000)
        assert await handle.published("key 0") == "x"
        await handle.execute_update(Job.put, "key 1", None)
        await handle.execute_update(Job.put, "another", 1)
        assert len((await handle.describe()).published) == 100
    error = PublishLimitError("k", 101, 5)
    assert (error.key, error.keys, error.size) == ("k", 101, 5)


async def test_a_query_may_not():
    async with hosted(MemoryJournal(), Job) as runtime:
        handle = await runtime.spawn(Job.run)
        with pytest.raises(QueryFailedError, match=r"may not call publish\(\)"):
            await handle.query(Job.publishes)


async def test_many_values_are_whole_in_the_tables(tmp_path):
    """Blobs and snapshots: each value is over the (tiny) limit, and runs are moved all the time."""
    path = tmp_path / "journal"
    async with hosted(path, Job) as runtime:
        handles = [await runtime.spawn(Job.run, id=f"j{n}") for n in range(3)]
        for n, handle in enumerate(handles):
            for key in range(10):
                await handle.execute_update(Job.put, f"k{key}", f"a value of some length {n} {key}")
            await handle.execute_update(Job.put, "k3", None)
        await settled(runtime)
    async with hosted(path, Job) as runtime:
        for n in range(3):
            seen = (await runtime.ref(f"j{n}").describe()).published
            assert seen["k9"] == f"a value of some length {n} 9"
            assert "k3" not in seen
            assert len(seen) == 11
    from everact.journal.lmdb_store import LmdbStore

    store = LmdbStore(path, read_only=True)
    try:
        report = verify(store)
    finally:
        store.close()
    assert report.is_sound, report


@pytest.mark.parametrize("change", ["key", "gone", "added"])
async def test_replay_compares_what_is_published(change):
    def version(keys):
        @workflow.defn(name="W")
        class W:
            @workflow.run
            async def run(self) -> None:
                for key in keys:
                    workflow.publish(key, workflow.now().isoformat() if key else 0)
                await workflow.wait_condition(lambda: False)

            @workflow.query
            def look(self) -> str:
                return "fine"

        return W

    old = version(["a", "b"])
    new = version({"key": ["a", "c"], "gone": ["a"], "added": ["a", "b", "c"]}[change])
    journal = MemoryJournal()
    async with hosted(journal, old) as runtime:
        await runtime.spawn(old.run, id="w")
        assert await runtime.ref("w", old).query(old.look) == "fine"
    async with hosted(journal, new) as runtime:
        with pytest.raises(WorkflowHeldError, match="published as"):
            await runtime.ref("w", new).query(new.look)
        assert set((await runtime.ref("w").describe()).published) == {"a", "b"}
    async with hosted(journal, old) as runtime:
        assert await runtime.ref("w", old).query(old.look) == "fine"


async def test_what_is_published_is_seen_from_another_process(tmp_path):
    path = tmp_path / "journal"
    async with hosted(path, Job) as runtime:
        handle = await runtime.spawn(Job.run, id="j")
        await handle.execute_update(Job.put, "a/b ?", "slash")
        async with await Client.connect(f"unix:{path}") as client:
            there = client.ref("j", Job)
            assert await there.published("progress", Progress) == Progress(0, 3)
            assert await there.published("a/b ?") == "slash"
            assert await there.published("nothing") is None
            seen = (await there.describe()).published
            assert seen["state"] == "new"
            with pytest.raises(WorkflowNotFoundError):
                await client.ref("nobody").published("state")


async def test_the_history_has_each_value():
    async with hosted(MemoryJournal(), Job) as runtime:
        handle = await runtime.spawn(Job.run)
        await handle.signal(Job.step, 1)
        assert kinds(await handle.fetch_history()).count("ValuePublished") == 3


async def test_a_program_s_command_prints_what_a_run_has_published(tmp_path):
    path = tmp_path / "journal"
    command = [sys.executable, "-m", "everact", "published", "j", "-j", str(path)]

    async def called(*more):
        process = await asyncio.create_subprocess_exec(
            *command, *more, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, error = await process.communicate()
        return process.returncode, out.decode(), error.decode()

    async with hosted(path, Job) as runtime:
        handle = await runtime.spawn(Job.run, id="j")
        await handle.signal(Job.step, 2)
        assert json.loads((await called())[1]) == {
            "published": {"state": "new", "progress": {"done": 2, "of": 3}}
        }
        assert json.loads((await called("progress"))[1]) == {"done": 2, "of": 3}
        code, _, error = await called("nothing")
        assert code == 1
        assert "'j' has not published 'nothing'; it has published: state, progress" in error
    assert json.loads((await called("state"))[1]) == "new"  # nobody has the journal open
