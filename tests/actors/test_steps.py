"""R6: steps are checkpoints; whether a replay skips their bodies or runs them, the run is the same."""

import asyncio
import dataclasses

import pytest
from support.codecs import InThreads
from support.hosting import gate, hosted, settled, until
from support.steps import ACTIVITIES, add, replayed_alike, run_alike, steps_of

from everact import workflow
from everact.journal.memory_store import MemoryJournal

CODECS = pytest.mark.parametrize("codecs", [(), (InThreads(),)], ids=["plain", "coded"])


@dataclasses.dataclass
class Item:
    name: str
    count: int


@workflow.defn
class Basket:
    items: list[Item]
    seen: set[str]

    def __init__(self) -> None:
        self.items = []
        self.seen = set()
        self.total = 0
        self.note: str | None = None

    @workflow.run
    async def run(self, rounds: int) -> list[object]:
        for number in range(rounds):
            last = await self.put(Item(f"item {number}", number))
        self.note = workflow.now().isoformat()
        return [[item.name for item in self.items], sorted(self.seen), self.total, last.count]

    @workflow.step
    async def put(self, item: Item) -> Item:
        for _ in range(3):
            item.count = await add(item.count)
        self.items.append(item)
        self.seen.add(item.name)
        self.total += item.count
        return item


@CODECS
async def test_a_step_is_a_checkpoint_and_replay_skips_its_body(codecs):
    result, history = await run_alike(Basket, 3, codecs=codecs)
    assert result == [["item 0", "item 1", "item 2"], ["item 0", "item 1", "item 2"], 12, 5]
    assert steps_of(history) == [("put", "completed", True)] * 3
    # The start, and the end of each step.
    assert replayed_alike(Basket, ACTIVITIES, history) == (10, 4)


async def test_replay_costs_the_number_of_steps(keeps_code):
    @workflow.defn
    class Long:
        def __init__(self) -> None:
            self.sums: dict[str, int] = {}

        @workflow.run
        async def run(self) -> int:
            for number in range(50):
                await self.forty(number)
            return sum(self.sums.values())

        @workflow.step
        async def forty(self, number: int) -> None:
            for _ in range(40):
                number = await add(number)
            self.sums[f"{number}"] = number

    result, history = await run_alike(Long)
    assert result == sum(range(50)) + 50 * 40
    assert replayed_alike(Long, ACTIVITIES, history) == (1 + 50 * 40, 1 + 50)


async def test_a_body_that_was_skipped_is_not_run_and_its_code_may_change():
    ran = []

    def program(label):
        @workflow.defn(name="Changing")
        class W:
            def __init__(self) -> None:
                self.labels: list[str] = []
                self.over = False

            @workflow.run
            async def run(self) -> list[str]:
                await self.first()
                await workflow.wait_condition(lambda: self.over)
                return self.labels

            @workflow.step
            async def first(self) -> None:
                ran.append(label)  # everact: allow
                if label == "old":
                    await add(1)
                self.labels.append(label)

            @workflow.signal
            def end(self) -> None:
                self.over = True

        return W

    journal = MemoryJournal()
    old, new = program("old"), program("new")
    async with hosted(journal, old, activities=ACTIVITIES) as runtime:
        handle = await runtime.spawn(old.run, id="w")
        await settled(runtime)
        await until(lambda: ran)
    ran.clear()
    async with hosted(journal, new, activities=ACTIVITIES) as runtime:
        handle = runtime.ref("w", new)
        await handle.signal(new.end)
        assert await handle.result() == ["old"]
    assert ran == []


# --- what is not jumped


async def test_two_gathered_steps_that_both_change_a_field_end_alike_live_and_recovered():
    """R6, tried: 111 live and 112 recovered when both were taken for checkpoints."""
    one, two = gate("one"), gate("two")

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.n = 100
            self.over = False

        @workflow.run
        async def run(self) -> int:
            await asyncio.gather(self.first(), self.second())
            await workflow.wait_condition(lambda: self.over)
            return self.n

        @workflow.step
        async def first(self) -> None:
            self.n += 1
            await workflow.execute_activity(one.fn, "")
            self.n *= 1

        @workflow.step
        async def second(self) -> None:
            n = self.n
            await workflow.execute_activity(two.fn, "")
            self.n = n + 10

        @workflow.query
        def look(self) -> int:
            return self.n

        @workflow.signal
        def end(self) -> None:
            self.over = True

    journal = MemoryJournal()
    activities = [one.fn, two.fn]
    async with hosted(journal, W, activities=activities) as runtime:
        handle = await runtime.spawn(W.run, id="w")
        await until(lambda: one.calls and two.calls)
        one.open.set()
        await settled(runtime)
        two.open.set()
        await settled(runtime)
        live = await handle.query(W.look)
    async with hosted(journal, W, activities=activities) as runtime:
        handle = runtime.ref("w", W)
        assert await handle.query(W.look) == live == 111
        await handle.signal(W.end)
        assert await handle.result() == 111
        history = await handle.fetch_history()
    assert steps_of(history) == [("first", "completed", False), ("second", "completed", False)]
    assert [e.event.is_alone for e in history if e.kind == "StepStarted"] == [False, False]
    replayed_alike(W, activities, history)


@workflow.defn
class Busy:
    """Steps beside which, or from which, something else is in flight."""

    def __init__(self) -> None:
        self.n = 0
        self.words: list[str] = []

    @workflow.run
    async def run(self, kind: str) -> list[object]:
        await getattr(self, kind)()
        await self.inc("after")
        return [self.n, self.words]

    @workflow.step
    async def inc(self, word: str) -> int:
        self.n = await add(self.n)
        self.words.append(word)
        return self.n

    @workflow.step
    async def leaves_task(self) -> None:
        self.left = workflow.info().run_id
        self.words.append("body")
        task = asyncio.create_task(self.background())
        await add(1)
        del task

    async def background(self) -> None:
        await add(1)
        await add(1)
        self.words.append("background")

    async def a_task_beside(self) -> None:
        task = asyncio.create_task(self.background())
        await self.inc("beside")
        await task

    async def a_command_beside(self) -> None:
        beside = workflow.start_activity(add, 5)
        await self.inc("beside")
        self.n += await beside

    async def a_timer_beside(self) -> None:
        async with asyncio.timeout(1000):
            await self.inc("beside")

    async def in_a_task(self) -> None:
        await asyncio.create_task(self.inc("beside"))

    async def in_a_group(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.inc("one"))
            group.create_task(self.inc("two"))

    async def a_task_left(self) -> None:
        await self.leaves_task()
        await workflow.wait_condition(lambda: "background" in self.words)

    async def a_callback_beside(self) -> None:
        asyncio.get_running_loop().call_soon(self.words.append, "called")
        await self.inc("beside")


BESIDE = [
    "a_task_beside",
    "a_command_beside",
    "a_timer_beside",
    "in_a_task",
    "in_a_group",
    "a_callback_beside",
]


@pytest.mark.parametrize("kind", [*BESIDE, "a_task_left"])
async def test_a_step_beside_which_something_is_in_flight_runs_again(kind):
    result, history = await run_alike(Busy, kind)
    found = steps_of(history)
    assert found.pop() == ("inc", "completed", True)
    assert found
    assert not any(is_checkpoint for _name, _how, is_checkpoint in found)
    assert result[1][-1] == "after"


async def test_a_step_called_from_a_handler_runs_again():
    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.got: list[int] = []

        @workflow.run
        async def run(self) -> list[int]:
            await workflow.wait_condition(lambda: len(self.got) == 2)
            return self.got

        @workflow.step
        async def one(self, n: int) -> int:
            n = await add(n)
            self.got.append(n)
            return n

        @workflow.update
        async def ask(self, n: int) -> int:
            return await self.one(n)

    async with hosted(MemoryJournal(), W, activities=ACTIVITIES) as runtime:
        handle = await runtime.spawn(W.run)
        assert await handle.execute_update(W.ask, 1) == 2
        assert await handle.execute_update(W.ask, 5) == 6
        assert await handle.result() == [2, 6]
        history = await handle.fetch_history()
    assert steps_of(history) == [("one", "completed", False)] * 2
    replayed_alike(W, ACTIVITIES, history)


async def test_a_run_that_has_set_a_handler_itself_runs_its_steps_again():
    """The function may hold what is in no field."""
    held = gate()

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> list[str]:
            words: list[str] = []

            def say(word: str) -> None:
                words.append(word)

            workflow.set_query_handler("look", lambda: words)
            await self.one()
            workflow.set_signal_handler("say", say)
            await self.one()
            workflow.set_signal_handler("say", None)
            await self.one()
            return words

        @workflow.step
        async def one(self) -> None:
            await workflow.execute_activity(held.fn, "")

    async with hosted(MemoryJournal(), W, activities=[held.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: held.calls)
        await handle.signal("say", "hello")
        held.open.set()
        assert await handle.result() == ["hello"]
        history = await handle.fetch_history()
    assert [is_checkpoint for *_, is_checkpoint in steps_of(history)] == [True, False, True]
    replayed_alike(W, [held.fn], history)


# --- nesting


async def test_a_step_in_a_step():
    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.words: list[str] = []

        @workflow.run
        async def run(self) -> list[str]:
            await self.outer()
            await self.inner("main")
            return self.words

        @workflow.step
        async def outer(self) -> None:
            for n in range(3):
                await self.inner(f"{n}")
            self.words.append("outer")

        @workflow.step
        async def inner(self, word: str) -> None:
            await add(await add(1))
            self.words.append(word)

    result, history = await run_alike(W)
    assert result == ["0", "1", "2", "outer", "main"]
    assert [is_checkpoint for *_, is_checkpoint in steps_of(history)] == [True] * 5
    assert replayed_alike(W, ACTIVITIES, history) == (9, 3)
    parents = [e.event.outer for e in history if e.kind == "StepStarted"]
    assert parents == [0, 1, 1, 1, 0]
    # While the outer one is under way, the ends of the inner ones are what a replay goes to.
    for cut in range(1, len(history.records)):
        part = type(history)("w", "r", history.records[:cut])
        replayed_alike(W, ACTIVITIES, part)


async def test_a_step_that_gathers_others_is_a_checkpoint_itself():
    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.got: dict[str, int] = {}

        @workflow.run
        async def run(self) -> list[int]:
            await self.fan_out()
            return sorted(self.got.values())

        @workflow.step
        async def fan_out(self) -> None:
            await asyncio.gather(*(self.one(n) for n in range(5)))

        @workflow.step
        async def one(self, n: int) -> None:
            self.got[str(n)] = await add(n)

    result, history = await run_alike(W)
    assert result == [1, 2, 3, 4, 5]
    assert steps_of(history) == [("one", "completed", False)] * 5 + [("fan_out", "completed", True)]
    assert replayed_alike(W, ACTIVITIES, history) == (6, 2)


async def test_an_overriding_step_may_call_the_one_it_overrides():
    class Base:
        @workflow.step(name="base one")
        async def one(self, n: int) -> int:
            return await add(n)

    @workflow.defn
    class W(Base):
        @workflow.run
        async def run(self) -> int:
            return await self.one(1)

        @workflow.step
        async def one(self, n: int) -> int:
            return 10 * await super().one(n)

    result, history = await run_alike(W)
    assert result == 20
    assert [name for name, *_ in steps_of(history)] == ["base one", "one"]
