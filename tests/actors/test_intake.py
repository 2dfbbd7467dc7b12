"""R22: new work stops before the room for work under way is used up, and begins again by itself."""

import asyncio
import logging
import os
import random

import pytest
from support.clock import ManualClock
from support.hosting import hosted, settled, until

from everact import Runtime, activity, workflow
from everact.exceptions import CommitUnknownError, JournalFullError, WorkflowAlreadyStartedError
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.space import UNLIMITED

LIMIT = 1 << 20
RESERVE = LIMIT // 8


@workflow.defn
class Keeps:
    def __init__(self) -> None:
        self.words: list[str] = []
        self.is_over = False

    @workflow.run
    async def run(self, start: bytes = b"") -> list[str]:
        await workflow.wait_condition(lambda: self.is_over)
        return self.words

    @workflow.signal
    def add(self, word: str, ballast: bytes = b"") -> None:
        self.words.append(word)

    @workflow.update
    def put(self, word: str) -> int:
        self.words.append(word)
        return len(self.words)

    @workflow.query
    def look(self) -> list[str]:
        return self.words

    @workflow.signal
    def end(self) -> None:
        self.is_over = True


def noise(size):
    """Bytes that do not compress."""
    return random.Random(size).randbytes(size)


class Full:
    """A journal in memory of ``LIMIT`` bytes, of which as much is in use as a test says."""

    def __init__(self):
        self.journal = MemoryJournal()
        self.journal.limit = LIMIT
        self.taken = 0

        journal = self

        class Store(MemoryStore):
            def space(self):
                space = super().space()
                return space._replace(used=space.used + journal.taken, size=space.size + journal.taken)

        self.store = Store(self.journal)

    def leave(self, room, runtime=None):
        """Let everything but so many bytes be in use, and a runtime look at it."""
        self.taken = 0
        self.taken = self.store.space().room - room
        if runtime is not None:
            runtime._shard.intake.check()


@pytest.fixture
def full():
    return Full()


async def refused(*calls):
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(answer) for answer in answers} == {JournalFullError}, answers
    return answers


async def test_new_work_is_refused_and_work_under_way_goes_on(full, caplog):
    gate = asyncio.Event()

    @activity.defn
    async def act() -> str:
        await gate.wait()
        return "done"

    @workflow.defn
    class Acts:
        @workflow.run
        async def run(self) -> str:
            return await act()

    async with Runtime(full.store, workflows=[Keeps, Acts], activities=[act]) as runtime:
        acts = await runtime.spawn(Acts)
        keeps = await runtime.spawn(Keeps, id="k")
        ended = await runtime.spawn(Keeps)
        cut = await runtime.spawn(Keeps)
        await settled(runtime)
        before = len(full.journal.records)
        full.leave(RESERVE, runtime)
        with caplog.at_level(logging.INFO, "everact.runtime"):
            (first, *_others) = await refused(
                runtime.spawn(Keeps),
                runtime.execute(Keeps),
                runtime.spawn(Keeps, id="k", if_running="replace"),
                keeps.signal(Keeps.add, "a"),
                keeps.execute_update(Keeps.put, "b"),
            )
            assert len(full.journal.records) == before
            assert str(first) == (
                "the journal 'in memory' is full: its data file of at most 1,048,576 bytes has 131,072 bytes left, and "
                "131,072 are kept for work under way; nothing was written. Purge runs that have ended, or open it with "
                "a larger journal_quota or map_size; new work is taken again as soon as there is room."
            )
            assert await keeps.query(Keeps.look) == []
            assert (await keeps.describe()).status == "running"
            await ended.terminate()
            await cut.cancel()
            gate.set()
            assert await acts.result() == "done"
            assert await runtime.count_workflows() == 4

            full.leave(RESERVE + RESERVE // 8 - 100)  # not yet: it would flutter
            await refused(runtime.spawn(Keeps))
            full.leave(RESERVE + RESERVE // 4, runtime)
            await keeps.signal(Keeps.add, "a")
            await runtime.spawn(Keeps)
        said = [
            record.message for record in caplog.records if "starts, signals and updates" in record.message
        ]
        assert len(said) == 2
        assert said[0].startswith("no new starts, signals and updates: the journal 'in memory' is full")
        assert "has room again" in said[1]


async def test_what_writes_nothing_is_answered_when_the_journal_is_full(full):
    async with Runtime(full.store, workflows=[Keeps]) as runtime:
        keeps = await runtime.spawn(Keeps, id="k", request_id="s")
        await keeps.signal(Keeps.add, "a", request_id="a")
        assert await keeps.execute_update(Keeps.put, "b", request_id="b") == 2
        over = await runtime.spawn(Keeps, id="over")
        await over.terminate()
        full.leave(0, runtime)
        assert (await runtime.spawn(Keeps, id="k", request_id="s")).run_id == keeps.run_id
        assert (await runtime.spawn(Keeps, id="k", if_running="attach")).run_id == keeps.run_id
        with pytest.raises(WorkflowAlreadyStartedError):
            await runtime.spawn(Keeps, id="k")
        await keeps.signal(Keeps.add, "a", request_id="a")
        assert await keeps.execute_update(Keeps.put, "b", request_id="b") == 2
        with pytest.raises(Exception, match="takes no more messages"):
            await over.signal(Keeps.add, "c")
        await refused(keeps.signal(Keeps.add, "c", request_id="c"))


async def test_many_calls_at_once_do_not_take_the_reserve(full):
    async with Runtime(full.store, workflows=[Keeps]) as runtime:
        keeps = await runtime.spawn(Keeps)
        full.leave(RESERVE + 300_000, runtime)
        block = noise(20_000)
        calls = [keeps.signal(Keeps.add, str(n), block) for n in range(40)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        taken = answers.count(None)
        assert 10 < taken < 18  # what comes in between two looks may take some of the reserve
        assert {type(answer) for answer in answers} == {type(None), JournalFullError}
        assert full.store.space().room >= RESERVE - (64 << 10)
        assert await keeps.query(Keeps.look) == [str(n) for n in range(taken)]


async def test_a_message_that_is_too_large_is_refused_and_smaller_ones_are_taken(full):
    async with Runtime(full.store, workflows=[Keeps]) as runtime:
        keeps = await runtime.spawn(Keeps)
        full.leave(RESERVE + 50_000, runtime)
        with pytest.raises(JournalFullError) as caught:
            await keeps.signal(Keeps.add, "large", noise(100_000))
        assert caught.value.needed > 100_000
        assert "has no room for a message of " in str(caught.value)
        assert "Smaller ones are taken. Purge" in str(caught.value)
        await keeps.signal(Keeps.add, "small")
        assert await keeps.query(Keeps.look) == ["small"]


async def test_intake_sees_a_disk_that_others_fill_after_a_second(full):
    clock = ManualClock()
    async with Runtime(full.store, workflows=[Keeps], clock=clock) as runtime:
        keeps = await runtime.spawn(Keeps)
        looks = []
        intake = runtime._shard.intake
        intake.check = lambda look=intake.check: (looks.append(1), look())[1]
        for n in range(20):
            await keeps.signal(Keeps.add, str(n))
        assert not looks  # the common case costs no look
        full.leave(RESERVE // 2)
        await keeps.signal(Keeps.add, "in time")
        clock.advance(1.0)
        await refused(keeps.signal(Keeps.add, "late"))


async def test_intake_begins_again_without_a_call(full, caplog, monkeypatch):
    monkeypatch.setattr("everact.actors.intake.CHECK_EVERY", 0.001)
    async with Runtime(full.store, workflows=[Keeps]) as runtime:
        full.leave(0, runtime)
        await refused(runtime.spawn(Keeps))
        full.leave(LIMIT // 2)
        await until(lambda: "has room again" in caplog.text)
        await until(lambda: runtime._shard.intake._timer is None)  # and nothing ticks when there is room
        await runtime.spawn(Keeps)


async def test_a_journal_that_is_full_when_it_is_opened_says_so_and_finishes_its_work(full, caplog):
    async with Runtime(full.store, workflows=[Keeps]) as runtime:
        keeps = await runtime.spawn(Keeps, id="k")
        await keeps.signal(Keeps.end, request_id="e")
    store = type(full.store)(full.journal)
    full.store = store
    full.leave(1000)
    async with Runtime(store, workflows=[Keeps]) as runtime:
        assert "no new starts, signals and updates" in caplog.text
        assert await runtime.ref("k", Keeps).result() == []
        await refused(runtime.spawn(Keeps))


# --- large results


def large_results():
    gates = [asyncio.Event(), asyncio.Event()]
    calls = []

    @activity.defn
    async def make(n: int, size: int) -> bytes:
        calls.append(n)
        await gates[n].wait()
        return noise(size)

    @workflow.defn
    class Makes:
        @workflow.run
        async def run(self, n: int, size: int) -> int:
            return len(await make(n, size))

    return Makes, make, gates, calls


async def test_a_result_without_room_waits_and_the_others_go_on(full, caplog, monkeypatch):
    monkeypatch.setattr("everact.actors.intake.CHECK_EVERY", 0.001)
    Makes, make, gates, calls = large_results()
    async with Runtime(full.store, workflows=[Makes], activities=[make]) as runtime:
        large = await runtime.spawn(Makes, 0, 200_000)
        small = await runtime.spawn(Makes, 1, 1_000)
        await until(lambda: len(calls) == 2)
        full.leave(RESERVE, runtime)
        gates[0].set()
        await until(lambda: "has no room for the result" in caplog.text)
        gates[1].set()
        assert await small.result() == 1_000
        assert [a.activity_type for a in (await large.describe()).pending_activities] == ["make"]
        full.leave(LIMIT // 2, runtime)
        assert await large.result() == 200_000
    assert calls == [0, 1]
    assert caplog.text.count("has no room for the result") == 1


async def test_a_result_that_waits_for_room_is_forgotten_with_its_run(full, caplog):
    Makes, make, gates, calls = large_results()
    async with Runtime(full.store, workflows=[Makes], activities=[make]) as runtime:
        large = await runtime.spawn(Makes, 0, 200_000)
        await until(lambda: calls)
        full.leave(RESERVE, runtime)
        gates[0].set()
        await until(lambda: "has no room for the result" in caplog.text)
        await large.terminate()
        runtime._shard.intake.check()
        assert not runtime._shard.intake._kept


async def test_a_result_that_waited_at_the_end_is_asked_for_again(full, caplog):
    Makes, make, gates, calls = large_results()
    async with Runtime(full.store, workflows=[Makes], activities=[make]) as runtime:
        await runtime.spawn(Makes, 0, 200_000, id="m")
        await until(lambda: calls)
        full.leave(RESERVE, runtime)
        gates[0].set()
        await until(lambda: "has no room for the result" in caplog.text)
    async with hosted(full.journal, Makes, activities=[make]) as runtime:
        assert await runtime.ref("m", Makes).result() == 200_000
    assert calls == [0, 0]


async def test_a_result_that_waits_for_room_outlives_a_rebuild(full, caplog, monkeypatch):
    monkeypatch.setattr("everact.actors.intake.CHECK_EVERY", 0.001)
    Makes, make, gates, calls = large_results()
    async with Runtime(full.store, workflows=[Makes, Keeps], activities=[make]) as runtime:
        large = await runtime.spawn(Makes, 0, 200_000)
        keeps = await runtime.spawn(Keeps)
        await until(lambda: calls)
        full.leave(RESERVE, runtime)
        gates[0].set()
        await until(lambda: "has no room for the result" in caplog.text)
        full.journal.limit, limit = 0, full.journal.limit  # nothing at all can be written
        with pytest.raises(CommitUnknownError):
            await keeps.terminate()
        full.journal.limit = limit
        full.leave(LIMIT // 2, runtime)
        assert await large.result() == 200_000
    assert calls == [0]


# --- nothing left


async def test_when_even_the_reserve_is_used_up_nothing_is_lost(full, monkeypatch):
    monkeypatch.setattr("everact.actors.rebuilding.FIRST_PAUSE", 0.001)
    monkeypatch.setattr("everact.actors.rebuilding.LONGEST_PAUSE", 0.002)
    gate = asyncio.Event()
    calls = []

    @activity.defn
    async def act() -> str:
        calls.append(1)
        await gate.wait()
        return "paid"

    @workflow.defn
    class Acts:
        @workflow.run
        async def run(self) -> str:
            return await act()

    async with Runtime(full.store, workflows=[Acts, Keeps], activities=[act]) as runtime:
        acts = await runtime.spawn(Acts)
        keeps = await runtime.spawn(Keeps)
        await keeps.signal(Keeps.add, "kept")
        await until(lambda: calls)
        full.leave(0, runtime)
        before = len(full.journal.records)
        gate.set()
        failures = []
        monkeypatch.setattr(
            runtime._shard.rebuilding,
            "_next_pause",
            lambda wait=runtime._shard.rebuilding._next_pause: failures.append(1) or wait(),
        )
        await until(lambda: len(failures) > 3)
        await refused(runtime.spawn(Keeps))
        assert len(full.journal.records) == before
        full.leave(LIMIT // 2)
        await until(lambda: not runtime._shard.rebuilding.failures)
        assert await acts.result() == "paid"
        assert await keeps.query(Keeps.look) == ["kept"]
        await keeps.signal(Keeps.add, "after")
    assert calls == [1]


# --- options


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"journal_quota": "1 GB"}, TypeError, "journal_quota must be an int (bytes), not '1 GB'"),
        ({"journal_quota": True}, TypeError, "journal_quota must be an int (bytes), not True"),
        ({"journal_quota": 1000}, ValueError, "journal_quota must be 1,048,576 bytes or more, not 1000"),
        ({"min_free_disk": 0.5}, TypeError, "min_free_disk must be an int (bytes), not 0.5"),
        ({"min_free_disk": -1}, ValueError, "min_free_disk must be 0 bytes or more, not -1"),
    ],
)
def test_wrong_limits_are_refused(options, error, text, tmp_path):
    with pytest.raises(error) as caught:
        Runtime(tmp_path / "j", **options)
    assert str(caught.value) == text


async def test_a_quota_holds_for_a_store_of_the_callers(full):
    full.journal.limit = UNLIMITED - 1
    async with Runtime(full.store, workflows=[Keeps], journal_quota=LIMIT) as runtime:
        await runtime.spawn(Keeps)
        full.taken = LIMIT
        runtime._shard.intake.check()
        with pytest.raises(JournalFullError, match="its quota of 1,048,576 bytes has 0 bytes left"):
            await runtime.spawn(Keeps)


async def test_a_journal_at_its_quota_can_be_purged_and_takes_work_again(tmp_journal):
    """Its runs are all in the log: to purge them it must be moved, for which there is room beyond the quota."""

    @workflow.defn
    class Short:
        @workflow.run
        async def run(self, text: str) -> str:
            return text

    async with Runtime(tmp_journal, workflows=[Short], journal_quota=2 << 20) as runtime:
        count = 0
        with pytest.raises(JournalFullError, match="its quota of 2,097,152 bytes"):
            while True:
                await runtime.execute(Short, os.urandom(1000).hex(), id=f"s-{count}")
                count += 1
        assert await runtime.purge(older_than=0) == count > 100
        assert await runtime.execute(Short, "again", id="s-0") == "again"
        assert await runtime.count_workflows() == 1
