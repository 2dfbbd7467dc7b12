"""Dynamic handlers, and those that a run sets itself (D07, R25)."""

import asyncio
from dataclasses import dataclass

import pytest
from support.clock import ManualClock
from support.hosting import hosted, kinds, settled, tick

from everact import workflow
from everact.actors import handlers
from everact.exceptions import (
    QueryFailedError,
    RegistrationError,
    UnknownHandlerError,
    UpdateRejectedError,
    WorkflowBacklogFullError,
    WorkflowQuarantinedError,
)
from everact.journal.memory_store import MemoryJournal


@dataclass
class Item:
    name: str
    count: int


@workflow.defn
class Dynamic:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.is_over = False

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: self.is_over)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.seen

    @workflow.signal
    def end(self) -> None:
        self.is_over = True

    @workflow.signal(dynamic=True)
    async def any_signal(self, name: str, args: list[object]) -> None:
        await asyncio.sleep(0)
        if name == "bad":
            raise ValueError("bad")
        self.seen.append(f"{name} {args}")

    @workflow.query(dynamic=True)
    def any_query(self, name: str, args: list[object]) -> str:
        return f"{name} {args} of {len(self.seen)}"

    @workflow.update(dynamic=True)
    def any_update(self, name: str, args: list[object]) -> Item:
        self.seen.append(f"{name} {args}")
        return Item(name, len(args))

    @any_update.validator
    def check(self, name: str, args: list[object]) -> None:
        if not args:
            raise ValueError(f"{name} needs arguments")


async def test_dynamic_handlers_take_every_name_without_a_handler_of_its_own():
    async with hosted(MemoryJournal(), Dynamic) as runtime:
        handle = await runtime.spawn(Dynamic.run)
        await handle.signal("first", 1, "two", [3])
        await handle.signal("second")
        assert await handle.query("how many", 7) == "how many [7] of 2"
        assert await handle.execute_update("change", "x", "y") == Item("change", 2)
        with pytest.raises(UpdateRejectedError, match="change needs arguments"):
            await handle.execute_update("change")
        await handle.signal("bad")
        (letter,) = (await handle.describe()).dead_letters
        assert (letter.name, letter.reason) == ("bad", "ValueError: bad")
        await handle.signal("end")
        assert await handle.result() == ["first [1, 'two', [3]]", "second []", "change ['x', 'y']"]
        assert await handle.query("after") == "after [] of 3"


@workflow.defn
class Later:
    """Sets its handlers after a while."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.is_over = False

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.sleep(1)
        workflow.set_signal_handler("add", self.add)
        workflow.set_query_handler("look", lambda: list(self.seen))
        workflow.set_update_handler("change", self.change, validator=self.check)
        await workflow.wait_condition(lambda: self.is_over)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.seen

    @workflow.signal
    def end(self) -> None:
        self.is_over = True

    async def add(self, item: Item) -> None:
        await workflow.sleep(0.001)
        self.seen.append(f"{item.name} {item.count}")

    def change(self, text: str) -> str:
        self.seen.append(text)
        return text.upper()

    def check(self, text: str) -> None:
        if text in self.seen:
            raise ValueError("again")


async def test_signals_for_a_handler_that_is_set_later_are_kept_in_order():
    """D07: three sent before, all received in order, before any later one."""
    clock = ManualClock()
    async with hosted(MemoryJournal(), Later, clock=clock) as runtime:
        handle = await runtime.spawn(Later.run)
        for number in (1, 2, 3):
            await handle.signal("add", Item("before", number))
        await handle.signal("other", "no handler ever")
        described = await handle.describe()
        assert (described.backlog, described.dead_letters) == (4, ())
        with pytest.raises(UnknownHandlerError, match="has no query 'look'"):
            await handle.query("look")
        with pytest.raises(UnknownHandlerError, match="has no update 'change'"):
            await handle.execute_update("change", "early")
        await tick(runtime, clock, 1)
        await handle.signal("add", Item("after", 4))
        for _ in range(4):
            await tick(runtime, clock, 1)
        assert await handle.query("look") == ["before 1", "before 2", "before 3", "after 4"]
        assert await handle.execute_update("change", "now") == "NOW"
        with pytest.raises(UpdateRejectedError, match="again"):
            await handle.execute_update("change", "now")
        assert (await handle.describe()).backlog == 1
        await handle.signal("end")
        assert await handle.result() == ["before 1", "before 2", "before 3", "after 4", "now"]
        described = await handle.describe()
        assert [str(letter) for letter in described.dead_letters] == [
            "event 9 (other): no handler was set for it before the run ended"
        ]
        assert await handle.query("look") == ["before 1", "before 2", "before 3", "after 4", "now"]


async def test_kept_signals_survive_starts_and_compaction(tmp_journal):
    async with hosted(tmp_journal, Later) as runtime:
        handle = await runtime.spawn(Later.run, id="a")
        await handle.signal("other", 1)
        for number in range(12):
            await runtime.spawn(Later.run, id=f"b-{number}")
    async with hosted(tmp_journal, Later) as runtime:
        handle = runtime.ref("a")
        assert (await handle.describe()).backlog >= 1
        await handle.terminate()
        assert [letter.name for letter in (await handle.describe()).dead_letters] == ["other"]


async def test_at_most_so_many_are_kept_and_further_ones_are_refused(monkeypatch):
    from everact.actors import workflow_actor

    monkeypatch.setattr(handlers, "KEPT", 3)
    monkeypatch.setattr(workflow_actor, "KEPT", 3)
    clock = ManualClock()
    async with hosted(MemoryJournal(), Later, clock=clock) as runtime:
        handle = await runtime.spawn(Later.run, id="a")
        for number in range(3):
            await handle.signal("add", Item("kept", number))
        before = len(await handle.fetch_history())
        with pytest.raises(WorkflowBacklogFullError) as caught:
            await handle.signal("add", Item("refused", 3))
        assert str(caught.value) == (
            f"workflow 'a' (run {handle.run_id}, running) takes no more messages for now: 3 wait for a handler"
        )
        assert len(await handle.fetch_history()) == before
        await handle.pause()  # those that come now were received when the limit is met
        for number in (4, 5):
            await handle.signal("add", Item("late", number))
        await handle.resume()
        await settled(runtime)
        letters = (await handle.describe()).dead_letters
        assert [letter.name for letter in letters] == ["add", "add"]
        await handle.signal("end")  # has a handler
        for _ in range(4):
            await tick(runtime, clock, 1)
        assert await handle.result() == ["kept 0", "kept 1", "kept 2"]


async def test_a_type_that_sets_none_refuses_unknown_names_at_the_call():
    @workflow.defn
    class Plain:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.signal
        def known(self) -> None: ...

    async with hosted(MemoryJournal(), Plain) as runtime:
        handle = await runtime.spawn(Plain.run)
        for call in (handle.signal("x"), handle.query("x"), handle.execute_update("x")):
            with pytest.raises(UnknownHandlerError):
                await call
        with pytest.raises(UnknownHandlerError, match="it has: known"):
            await handle.signal("x")


async def test_a_handler_for_all_names_is_set_and_taken_away():
    @workflow.defn
    class Takes:
        def __init__(self) -> None:
            self.seen: list[str] = []

        @workflow.run
        async def run(self) -> None:
            workflow.set_signal_handler(None, self.every)
            await workflow.wait_condition(lambda: len(self.seen) == 2)
            workflow.set_signal_handler(None, None)
            await workflow.wait_condition(lambda: False)

        def every(self, name: str, args: list[object]) -> None:
            self.seen.append(f"{name} {args}")

        @workflow.query
        def look(self) -> list[str]:
            return self.seen

    async with hosted(MemoryJournal(), Takes) as runtime:
        handle = await runtime.spawn(Takes.run)
        for number in (1, 2, 3):
            await handle.signal(f"s{number}", number)
        assert await handle.query("look") == ["s1 [1]", "s2 [2]"]
        described = await handle.describe()
        assert described.backlog == 1
        assert kinds(await handle.fetch_history()).count("SignalKept") == 1


@pytest.mark.parametrize(
    ("set_it", "text"),
    [
        (lambda: workflow.set_signal_handler("", lambda: None), "the name"),
        (lambda: workflow.set_signal_handler(7, lambda: None), "the name"),
        (lambda: workflow.set_signal_handler("x", 7), "needs a function or a bound method, not 7"),
        (lambda: workflow.set_query_handler("x", asyncio.sleep), "must be a plain 'def'"),
        (lambda: workflow.set_update_handler("x", len), "needs a function or a bound method"),
        (
            lambda: workflow.set_update_handler("x", lambda a: None, validator=lambda: None),
            "must take the same parameters",
        ),
        (
            lambda: workflow.set_update_handler("x", lambda: None, validator=asyncio.sleep),
            "must be a plain 'def'",
        ),
        (lambda: workflow.set_signal_handler(None, lambda name: None), "give it these two parameters"),
        (lambda: workflow.set_signal_handler("x", lambda *, key: None), "keyword-only parameter 'key'"),
    ],
)
async def test_what_does_not_fit_is_refused_where_it_is_set(set_it, text):
    @workflow.defn
    class Sets:
        @workflow.run
        async def run(self) -> None:
            assert workflow.set_signal_handler  # the class's code must name it
            with pytest.raises(RegistrationError, match=text):
                set_it()

    async with hosted(MemoryJournal(), Sets) as runtime:
        await runtime.execute(Sets.run)


def elsewhere():
    workflow.set_signal_handler("x", print)


async def test_a_class_whose_code_does_not_name_the_call_is_told_so():
    @workflow.defn
    class Hides:
        @workflow.run
        async def run(self) -> None:
            elsewhere()

    async with hosted(MemoryJournal(), Hides) as runtime:
        with pytest.raises(WorkflowQuarantinedError, match="call it, by this name, in a method of the class"):
            await runtime.execute(Hides.run)


async def test_queries_and_validators_cannot_set_handlers():
    @workflow.defn
    class Reads:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.query
        def look(self) -> None:
            workflow.set_signal_handler("x", lambda: None)

    async with hosted(MemoryJournal(), Reads) as runtime:
        handle = await runtime.spawn(Reads.run)
        with pytest.raises(QueryFailedError, match="set_signal_handler"):
            await handle.query("look")


def test_setting_outside_a_workflow_is_refused():
    with pytest.raises(
        RuntimeError, match=r"workflow.set_update_handler\(\) works inside workflow code only"
    ):
        workflow.set_update_handler("x", lambda: None)


@pytest.mark.parametrize("kind", ["signal", "query", "update"])
def test_two_dynamic_handlers_of_a_kind_are_refused(kind):
    declare = getattr(workflow, kind)
    with pytest.raises(RegistrationError, match=f"has two dynamic {kind} handlers: a and b"):

        @workflow.defn
        class W:
            @workflow.run
            async def run(self) -> None: ...

            @declare(dynamic=True)
            def a(self, name: str, args: list[object]) -> None: ...

            @declare(dynamic=True)
            def b(self, name: str, args: list[object]) -> None: ...


@pytest.mark.parametrize("kind", ["signal", "query", "update"])
def test_a_dynamic_handler_takes_a_name_and_a_list_and_has_no_name(kind):
    declare = getattr(workflow, kind)
    with pytest.raises(RegistrationError, match="give it these two parameters"):

        @workflow.defn
        class W:
            @workflow.run
            async def run(self) -> None: ...

            @declare(dynamic=True)
            def a(self, name: str) -> None: ...

    with pytest.raises(RegistrationError, match="has both name='x' and dynamic=True"):
        declare(name="x", dynamic=True)(lambda self, name, args: None)
