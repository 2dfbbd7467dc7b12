"""R6: what a step sees and leaves of the workflow object, of counters and of messages, live as recovered."""

import asyncio
import contextvars
import dataclasses
import datetime as dt
import logging

import pytest
from support.hosting import gate, hosted, until
from support.steps import ACTIVITIES, Replayed, add, replayed_alike, run_alike, steps_of

from everact import workflow
from everact.journal.memory_store import MemoryJournal


@dataclasses.dataclass
class Item:
    name: str
    count: int


# --- what a step sees and leaves, live as recovered


@workflow.defn
class Aliases:
    """Who else holds a value of a field, an argument or a result."""

    items: list[int]
    twin: list[int] | None

    def __init__(self) -> None:
        self.items = [0]
        self.twin = None

    @workflow.run
    async def run(self) -> dict[str, object]:
        held = self.items
        given = [10]
        got = await self.change(given)
        shared = self.twin is self.items
        held.append(-1)
        got.append(-2)
        self.items.append(3)
        await workflow.sleep(0.001)
        return {
            "held": held,
            "given": given,
            "got": got,
            "items": self.items,
            "twin": self.twin,
            "shared": shared,
        }

    @workflow.step
    async def change(self, given: list[int]) -> list[int]:
        given.append(await add(10))
        self.items.append(1)
        self.twin = self.items
        return self.items


@pytest.mark.parametrize("is_kept", [True, False], ids=["live", "recovered"])
async def test_what_a_step_holds_is_its_own(is_kept, request):
    if is_kept:
        request.getfixturevalue("keeps_code")
    result, history = await run_alike(Aliases)
    assert result == {
        "held": [0, -1],
        "given": [10],
        "got": [0, 1, -2],
        "items": [0, 1, 3],
        "twin": [0, 1],
        "shared": False,
    }
    assert steps_of(history) == [("change", "completed", True)]


async def test_counters_random_numbers_memo_and_time_go_on_where_the_step_ended():
    variable = contextvars.ContextVar("variable", default="outside")

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.seen: list[str] = []

        @workflow.run
        async def run(self) -> list[str]:
            rng = workflow.random("dice")
            self.seen.append(f"{rng.random()} {workflow.uuid4()}")
            await self.draw()
            self.seen += [
                f"{rng.random()} {rng.gauss(0, 1)} {workflow.uuid4()} {workflow.random('new').random()}",
                asyncio.create_task(asyncio.sleep(0)).get_name(),
                variable.get(),
                str(sorted(workflow.memo().items())),
                workflow.now().isoformat(),
            ]
            await workflow.wait_condition(lambda: True)
            await workflow.sleep(0.001)
            return self.seen

        @workflow.step
        async def draw(self) -> None:
            variable.set("inside")
            workflow.upsert_memo({"a": 1, "b": 2})
            await asyncio.create_task(asyncio.sleep(0.001))
            workflow.upsert_memo({"a": None, "c": 3})
            rng = workflow.random("dice")
            rng.shuffle([1, 2, 3, 4])
            workflow.random("new").gauss(0, 1)
            self.seen.append(f"{rng.random()} {rng.gauss(0, 1)} {workflow.uuid4()}")

    result, history = await run_alike(W)

    assert result[4] == "outside"
    assert result[5] == "[('b', 2), ('c', 3)]"
    assert steps_of(history) == [("draw", "completed", True)]


async def test_a_stream_that_was_seeded_anew_is_no_checkpoint(caplog):
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> float:
            await self.draw()
            return workflow.random("own").random()

        @workflow.step
        async def draw(self) -> None:
            workflow.random("own").seed(5)

    _result, history = await run_alike(W)
    assert steps_of(history) == [("draw", "completed", False)]
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "step 'draw' that is no checkpoint" in record.message
    assert "seeded anew" in record.message


async def test_messages_that_came_during_a_step_are_in_its_fields():
    held = gate()

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.words: list[str] = []

        @workflow.run
        async def run(self) -> list[str]:
            await self.wait()
            await workflow.sleep(0.001)
            return self.words

        @workflow.step
        async def wait(self) -> None:
            self.words.append("begin")
            await workflow.execute_activity(held.fn, "")
            self.words.append("end")

        @workflow.signal
        def say(self, word: str) -> None:
            self.words.append(word)

        @workflow.update
        async def ask(self, word: str) -> int:
            n = await add(len(self.words))
            self.words.append(word)
            return n

    activities = [held.fn, *ACTIVITIES]
    async with hosted(MemoryJournal(), W, activities=activities) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: held.calls)
        await handle.signal(W.say, "hello")
        assert await handle.execute_update(W.ask, "asked") == 3
        held.open.set()
        assert await handle.result() == ["begin", "hello", "asked", "end"]
        history = await handle.fetch_history()
    assert steps_of(history) == [("wait", "completed", True)]
    whole, jumped = replayed_alike(W, activities, history)
    assert jumped < whole


async def test_a_new_field_and_a_deleted_one():
    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.old = [1]
            self.kept = 1.5

        @workflow.run
        async def run(self) -> list[str]:
            await self.change()
            await workflow.sleep(0.001)
            return sorted(vars(self))

        @workflow.step
        async def change(self) -> None:
            await add(1)
            del self.old
            self.fresh = dt.date(2026, 1, 2)

    result, history = await run_alike(W)
    assert result == ["fresh", "kept"]
    assert steps_of(history) == [("change", "completed", True)]


async def test_fields_in_slots():
    @workflow.defn
    class W:
        __slots__ = ("__private", "items", "unset")

        def __init__(self) -> None:
            self.items: list[int] = []
            self.__private = {"a": 1}

        @workflow.run
        async def run(self) -> object:
            for n in range(3):
                await self.put(n)
            return [self.items, self.__private, hasattr(self, "unset")]

        @workflow.step
        async def put(self, n: int) -> None:
            self.items.append(await add(n))
            self.__private["a"] += n
            if n == 1:
                self.unset = "set"
            if n == 2:
                del self.unset

    async with hosted(MemoryJournal(), W, activities=ACTIVITIES) as runtime:
        handle = await runtime.spawn(W.run)
        assert await handle.result() == [[1, 2, 3], {"a": 4}, False]
        assert steps_of(await handle.fetch_history()) == [("put", "completed", True)] * 3


# --- fields without a stored form


class Opaque:
    def __eq__(self, other):
        return type(other) is Opaque

    __hash__ = None


@pytest.mark.parametrize("where", ["field", "argument", "result"])
async def test_a_value_without_a_stored_form_is_no_checkpoint_and_is_named_once(where, caplog):
    @workflow.defn(name="Opaque")
    class W:
        def __init__(self) -> None:
            self.thing: object = None

        @workflow.run
        async def run(self) -> int:
            for _ in range(2):
                got = await self.use(Opaque() if where == "argument" else 1)
            assert not isinstance(got, int) or where != "result"
            await workflow.sleep(0.001)
            return 1

        @workflow.step(name="using")
        async def use(self, value: object) -> object:
            if where == "field":
                self.thing = Opaque()
            await add(1)
            return Opaque() if where == "result" else 1

    _result, history = await run_alike(W)
    assert steps_of(history) == [("using", "completed", False)] * 2
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    text = record.message
    assert "has a step 'using' that is no checkpoint, so that each replay runs its body again" in text
    expected = {
        "field": ".<locals>.W has no stored form (field 'thing' of ",
        "argument": "an argument has no stored form",
        "result": "its result has no stored form",
    }
    assert expected[where] in text
    assert ("@workflow.transient" in text) is (where == "field")
    assert "Opaque" in text


async def test_a_transient_field_is_built_anew_at_each_checkpoint():
    built = []

    @workflow.defn
    class W:
        items: list[Item]

        def __init__(self) -> None:
            self.items = [Item("a", 1)]

        @workflow.transient
        def by_name(self) -> dict[str, Item]:
            """The items by name."""
            built.append(len(self.items))  # everact: allow
            return {item.name: item for item in self.items}

        @workflow.run
        async def run(self) -> list[object]:
            before = self.by_name["a"]
            await self.put()
            assert self.by_name["b"] is self.items[1]
            assert self.by_name["a"] is not before
            before.count = 100
            self.by_name["b"].count += 1
            await workflow.sleep(0.001)
            return [[item.name, item.count] for item in self.items]

        @workflow.step
        async def put(self) -> None:
            self.by_name["a"].count = await add(1)
            self.items.append(Item("b", 5))

    assert W.by_name.__doc__ == "The items by name."
    result, history = await run_alike(W)
    assert result == [["a", 2], ["b", 6]]
    assert steps_of(history) == [("put", "completed", True)]


async def test_an_annotation_that_names_nothing_is_said_to_be_the_cause(caplog):
    @workflow.defn
    class W:
        item: "Nowhere"  # noqa: F821

        def __init__(self) -> None:
            self.item = Item("a", 1)

        @workflow.run
        async def run(self) -> None:
            await self.one()

        @workflow.step
        async def one(self) -> None:
            await add(1)

    _result, history = await run_alike(W)
    assert steps_of(history) == [("one", "completed", False)]
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert (
        "; its annotation 'Nowhere' could not be resolved. To make it one, annotate the field"
        in record.message
    )


# --- beside other things that a run does


@workflow.defn
class Kid:
    @workflow.run
    async def run(self, n: int) -> int:
        return n + await add(n)


@workflow.defn
class Rich:
    """A step that starts a child, publishes, and draws; another beside a child."""

    def __init__(self) -> None:
        self.sums: list[int] = []

    @workflow.run
    async def run(self, rounds: int) -> list[int]:
        await self.work(1)
        beside = await workflow.start_child_workflow(Kid.run, 10)
        await self.work(2)
        self.sums.append(await beside)
        await self.work(3)
        workflow.publish("end", len(self.sums))
        if rounds:
            await self.go_on(rounds)
        return self.sums

    @workflow.step
    async def work(self, n: int) -> None:
        self.sums.append(await workflow.execute_child_workflow(Kid.run, n))
        workflow.publish(f"work {n}", self.sums)
        workflow.publish("dropped", None if n == 2 else n)
        self.sums.append(workflow.random("sums").randint(0, 0))

    @workflow.step
    async def go_on(self, rounds: int) -> None:
        await add(1)
        workflow.continue_as_new(rounds - 1)


async def test_children_published_values_and_the_next_run():
    async with hosted(MemoryJournal(), Rich, Kid, activities=ACTIVITIES) as runtime:
        handle = await runtime.spawn(Rich.run, 1, id="rich")
        assert await handle.result() == [3, 0, 5, 0, 21, 7, 0]
        first = await handle.fetch_history()
        last = await runtime.ref("rich", Rich).fetch_history()
        assert (await runtime.ref("rich").describe()).published == {
            "work 1": [3],
            "work 2": [3, 0, 5],
            "work 3": [3, 0, 5, 0, 21, 7],
            "dropped": 3,
            "end": 7,
        }
    ends = [("work", "completed", True), ("work", "completed", False), ("work", "completed", True)]
    assert steps_of(last) == ends
    assert steps_of(first) == [*ends, ("go_on", "cancelled", False)]
    for history in (first, last):
        records = history.records
        jumped, whole = (
            Replayed(Rich, ACTIVITIES, records, jump=jump, workflows=[Kid]) for jump in (True, False)
        )
        assert (jumped.fields, jumped.counters) == (whole.fields, whole.counters)
