"""SIGKILL while runs publish, carry headers, and end or cancel themselves: what was seen from outside stays true."""

import asyncio
from collections import defaultdict
from pathlib import Path

import pytest
from support.crashes import one_life
from support.rounds import rounds
from support.stores import TroubledStore, turns

from everact import Runtime, workflow
from everact.exceptions import CommitUnknownError
from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryStore
from everact.journal.verify import verify

PROGRAM = Path(__file__).with_name("publishing_program.py")
LIMIT = 40
RUNS = 10
STEPS = 6

#: Where each life ends, one after the other.
LIVES = {
    "journal.commit.before": [2, 5, 4, 6],
    "journal.commit.written": [2, 5, 4, 6],
    "journal.commit.after": [2, 5, 4, 6],
    "compaction.written": [1, 2, 2, 2],
    "runtime.effects.before": [1, 4, 2, 6],
    "runtime.effects.after": [1, 3, 2, 4],
    "activity.result.before": [1, 15, 20, 10],
    "message.ack.before": [1, 4, 3, 6],
}


class Lives:
    """What has left all the lives of one journal."""

    def __init__(self, journal):
        self.journal = journal
        self.seen = defaultdict(list)
        self.who = defaultdict(set)
        self.ends = defaultdict(set)
        self.answered = set()

    def live(self, fault=""):
        """One life; returns whether it came to its end."""
        is_over, lines, _ = one_life(PROGRAM, self.journal, fault=fault, limit=LIMIT)
        for kind, *rest in lines:
            if kind == "seen":
                self.seen[rest[0]].append(rest[1])
            elif kind == "step":
                self.who[rest[0]].add(rest[2])
            elif kind == "answer":
                self.answered.add(rest[0])
            elif kind == "end":
                self.ends[rest[0]].add(rest[1])
        store = LmdbStore(self.journal)
        try:
            assert verify(store).problems == []
        finally:
            store.close()
        return is_over

    def check(self):
        for number in range(RUNS):
            name = f"c-{number}"
            assert self.seen[name] == sorted(self.seen[name]), "what an outsider has read went back"
            assert self.seen[name][-1] == STEPS + 1
            assert self.who[name] == {f"user {number}"}
            (end,) = self.ends[name]
            assert end == "enough" if number % 2 else "by itself" in end


@pytest.mark.slow
@pytest.mark.parametrize("point", LIVES)
def test_what_was_published_stays_when_killed_at(point, tmp_journal):
    lives = Lives(tmp_journal)
    kills = sum(not lives.live(f"{point}:{count}") for count in rounds(LIVES[point], 2))
    assert kills >= 2
    while not lives.live():
        pass
    lives.check()


def test_a_life_without_kills(tmp_journal):
    lives = Lives(tmp_journal)
    assert lives.live()
    lives.check()
    assert len(lives.answered) == RUNS


# --- R5: nothing of a turn is seen before it is durable


@workflow.defn
class Counter:
    def __init__(self) -> None:
        workflow.publish("count", 0)

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: False)
        return "never"

    @workflow.signal
    def count(self, n: int) -> None:
        workflow.publish("count", n)

    @workflow.signal
    def end(self) -> None:
        workflow.publish("count", "over")
        workflow.complete("ended")


async def test_a_value_is_not_read_before_its_turn_is_durable():
    store = TroubledStore(MemoryStore())
    async with Runtime(store, workflows=[Counter]) as runtime:
        handle = await runtime.spawn(Counter.run)
        store.hold()
        try:
            telling = asyncio.create_task(handle.signal(Counter.count, 1))
            await store.held()
            reading = asyncio.create_task(handle.published("count"))
            await turns()
            assert not reading.done()
        finally:
            store.release()
        assert await reading == 1
        await telling


async def test_what_a_lost_turn_has_published_is_gone_and_its_end_too():
    store = TroubledStore(MemoryStore())
    async with Runtime(store, workflows=[Counter]) as runtime:
        handle = await runtime.spawn(Counter.run)
        store.failures = ["before"]
        with pytest.raises(CommitUnknownError):
            await handle.signal(Counter.end)
        assert await handle.published("count") == 0
        assert (await handle.describe()).status == "running"
        await handle.signal(Counter.end)
        assert await handle.result() == "ended"
        assert await handle.published("count") == "over"
