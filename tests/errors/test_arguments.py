"""Wrong arguments of starts, messages and activities: refused at the call, with nothing written."""

import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from support.bad_input import memory_runtime, nothing_written, refuses

from everact import activity, workflow
from everact.exceptions import PayloadEncodeError, UpdateFailedError, WorkflowQuarantinedError


@dataclass
class Item:
    name: str
    price: int


@dataclass
class Order:
    items: list[Item]
    note: str = ""
    extra: Any = None


class Own:
    def __init__(self) -> None:
        self.size = 1


@activity.defn
async def charge(order: Order, currency: str = "EUR", *, fast: bool = False) -> str:
    return currency


@activity.defn
def count(number: int) -> int:
    return number


class Mailer:
    @activity.defn
    async def send(self, to: str) -> str:
        return to


@workflow.defn
class Talks:
    def __init__(self) -> None:
        self.items: list[Item] = []

    @workflow.run
    async def run(self, order: Order, count: int = 1) -> int:
        await workflow.wait_condition(lambda: False)
        return 0

    @workflow.signal
    def add(self, item: Item, times: int = 1) -> None:
        self.items += [item] * times

    @workflow.query
    def first(self, skip: int) -> Item:
        return self.items[skip]

    @workflow.update
    def rename(self, item: Item, name: str) -> Item:
        self.items.append(Item(name, item.price))
        return self.items[-1]

    @workflow.signal
    def anything(self, value) -> None:
        pass


ORDER = Order([Item("tea", 3)])
ITEM = Item("tea", 3)


def no_stored_form():
    return {
        "_thread.lock": threading.Lock(),
        "function": lambda: 1,
        "generator": (n for n in [1]),
        "Own": Own(),
    }


# --- starts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (
            (),
            "workflow Talks: Talks.run() is missing argument 'order'; it takes 1 to 2 arguments (order, count=1)",
        ),
        ((ORDER, 1, 2), "Talks.run() takes 1 to 2 arguments (order, count=1), 3 were given"),
    ],
)
async def test_a_start_with_the_wrong_number_of_arguments(args, text):
    async with memory_runtime([Talks]) as runtime:
        for what in (Talks, Talks.run, "Talks"):
            with nothing_written(runtime), refuses(TypeError, text):
                await runtime.spawn(what, *args)
            with nothing_written(runtime), refuses(TypeError, text):
                await runtime.execute(what, *args)


@pytest.mark.parametrize(
    ("args", "where", "what"),
    [
        (("tea",), "argument 'order' of workflow Talks: ", "Order, got str 'tea'"),
        ((None,), "argument 'order' of workflow Talks: ", "Order, got None"),
        ((ORDER, "2"), "argument 'count' of workflow Talks: ", "expected int, got str '2'"),
        ((ORDER, 1.5), "argument 'count' of workflow Talks: ", "expected int, got float 1.5"),
        ((Order([Item("tea", "3")]),), "argument 'order' of workflow Talks: ", "(at $.items[0].price)"),
        ((Order([ITEM, "cake"]),), "argument 'order' of workflow Talks: ", "(at $.items[1])"),
        ((Order([ITEM], note=b"x"),), "argument 'order' of workflow Talks: ", "(at $.note)"),
    ],
)
async def test_a_start_with_an_argument_of_the_wrong_type(args, where, what):
    async with memory_runtime([Talks]) as runtime:
        for kind in (Talks, Talks.run, "Talks"):
            with nothing_written(runtime), refuses(PayloadEncodeError, where, what):
                await runtime.spawn(kind, *args, id="order-42")


@pytest.mark.parametrize("name", no_stored_form())
async def test_a_value_without_a_stored_form_names_its_path_and_the_way_out(name):
    async with memory_runtime([Talks]) as runtime:
        value = no_stored_form()[name]
        order = Order([ITEM], extra={"deep": [1, value]})
        with (
            nothing_written(runtime),
            refuses(
                PayloadEncodeError,
                "argument 'order' of workflow Talks: a value of class ",
                name,
                "has no stored form here",
                "Annotate it with its class",
                "or use Runtime(trust_pickle=True)",
                "(at $.extra['deep'][1])",
            ) as caught,
        ):
            await runtime.spawn(Talks, order)
        assert caught.value.path == "$.extra['deep'][1]"
        handle = await runtime.spawn(Talks, ORDER)
        with (
            nothing_written(runtime),
            refuses(
                PayloadEncodeError,
                "argument 'value' of signal Talks.anything: ",
                name,
                "trust_pickle",
                "(at $[0])",
            ),
        ):
            await handle.tell(Talks.anything, [value])


async def test_a_text_with_a_lone_surrogate_and_a_value_that_contains_itself():
    async with memory_runtime([Talks]) as runtime:
        with (
            nothing_written(runtime),
            refuses(
                PayloadEncodeError,
                "argument 'order' of workflow Talks: ",
                "lone surrogate",
                "(at $.items[0].name)",
            ),
        ):
            await runtime.spawn(Talks, Order([Item("\ud800", 1)]))
        loop: list[Any] = []
        loop.append(loop)
        with (
            nothing_written(runtime),
            refuses(
                PayloadEncodeError,
                "argument 'order' of workflow Talks: ",
                "contains itself",
                "(at $.extra[0])",
            ),
        ):
            await runtime.spawn(Talks, Order([], extra=loop))


# --- messages ---------------------------------------------------------------------------------------------------


def sends(handle):
    return {
        "signal": (handle.signal, handle.tell),
        "query": (handle.query,),
        "update": (handle.execute_update, handle.ask),
    }


@pytest.mark.parametrize(
    ("kind", "method", "args", "text"),
    [
        (
            "signal",
            Talks.add,
            (),
            "signal Talks.add: Talks.add() is missing argument 'item'; it takes 1 to 2 ",
        ),
        (
            "signal",
            Talks.add,
            (ITEM, 1, 2),
            "Talks.add() takes 1 to 2 arguments (item, times=1), 3 were given",
        ),
        ("query", Talks.first, (), "query Talks.first: Talks.first() is missing argument 'skip'"),
        ("query", Talks.first, (1, 2), "Talks.first() takes 1 argument (skip), 2 were given"),
        ("update", Talks.rename, (ITEM,), "update Talks.rename: Talks.rename() is missing argument 'name'"),
        (
            "update",
            Talks.rename,
            (ITEM, "x", 1),
            "Talks.rename() takes 2 arguments (item, name), 3 were given",
        ),
    ],
)
async def test_a_message_with_the_wrong_number_of_arguments(kind, method, args, text):
    async with memory_runtime([Talks]) as runtime:
        handle = await runtime.spawn(Talks, ORDER)
        for send in sends(handle)[kind]:
            for handler in (method, method.__name__):
                with nothing_written(runtime), refuses(TypeError, text):
                    await send(handler, *args)


@pytest.mark.parametrize(
    ("kind", "method", "args", "where", "what"),
    [
        ("signal", Talks.add, ("tea",), "argument 'item' of signal Talks.add: ", "Item, got str 'tea'"),
        (
            "signal",
            Talks.add,
            (ITEM, "2"),
            "argument 'times' of signal Talks.add: ",
            "expected int, got str '2'",
        ),
        ("query", Talks.first, ("0",), "argument 'skip' of query Talks.first: ", "expected int, got str '0'"),
        (
            "update",
            Talks.rename,
            (ITEM, 5),
            "argument 'name' of update Talks.rename: ",
            "expected str, got int 5",
        ),
        (
            "update",
            Talks.rename,
            (Item(1, 2), "x"),
            "argument 'item' of update Talks.rename: ",
            "(at $.name)",
        ),
    ],
)
async def test_a_message_with_an_argument_of_the_wrong_type(kind, method, args, where, what):
    async with memory_runtime([Talks]) as runtime:
        handle = await runtime.spawn(Talks, ORDER)
        for send in sends(handle)[kind]:
            for handler in (method, method.__name__):
                with nothing_written(runtime), refuses(PayloadEncodeError, where, what):
                    await send(handler, *args)


async def test_an_answer_that_does_not_fit_its_own_annotation():
    @workflow.defn
    class Lies:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.query
        def status(self) -> str:
            return 5

        @workflow.update
        def rename(self) -> str:
            return 5

    async with memory_runtime([Lies]) as runtime:
        handle = await runtime.spawn(Lies)
        with (
            nothing_written(runtime),
            refuses(PayloadEncodeError, "result of query Lies.status: expected str, got int 5"),
        ):
            await handle.query(Lies.status)
        with refuses(UpdateFailedError, "result of update Lies.rename: expected str, got int 5"):
            await handle.ask(Lies.rename)
        assert (await handle.describe()).status == "running"


# --- activities, inside a workflow ------------------------------------------------------------------------------

CALLS: dict[str, Any] = {
    "execute": lambda fn, *args: workflow.execute_activity(fn, *args),
    "start": lambda fn, *args: workflow.start_activity(fn, *args),
    "by name": lambda fn, *args: workflow.execute_activity(fn.__name__, *args),
    "start by name": lambda fn, *args: workflow.start_activity(fn.__name__, *args),
    "with options": lambda fn, *args: workflow.with_options(fn)(*args),
}


async def run_inside(code, *activities):
    """Run code at the start of a workflow; its history must show that nothing was scheduled."""

    @workflow.defn
    class Inside:
        @workflow.run
        async def run(self) -> None:
            code()

    async with memory_runtime([Inside], activities or [charge, count, Mailer().send]) as runtime:
        handle = await runtime.spawn(Inside)
        await handle.result()
        kinds = [event.kind for event in await handle.fetch_history()]
    assert kinds == ["WorkflowStarted", "WorkflowCompleted"]


@pytest.mark.parametrize("call", CALLS)
async def test_an_activity_call_with_wrong_arguments_is_refused_at_its_line(call):
    schedule = CALLS[call]

    def code():
        with refuses(TypeError, "activity charge: charge() is missing argument 'order'; it takes 1 to 2 "):
            schedule(charge)
        with refuses(TypeError, "activity charge: charge() takes 1 to 2 arguments", "3 were given"):
            schedule(charge, ORDER, "EUR", 3)
        with refuses(PayloadEncodeError, "argument 'order' of activity charge: ", "Order, got str 'tea'"):
            schedule(charge, "tea")
        with refuses(PayloadEncodeError, "argument 'order' of activity charge: ", "(at $.items[0].price)"):
            schedule(charge, Order([Item("tea", "3")]))
        with refuses(PayloadEncodeError, "argument 'currency' of activity charge: expected str, got int 5"):
            schedule(charge, ORDER, 5)
        with refuses(PayloadEncodeError, "argument 'number' of activity count: expected int, got str '5'"):
            schedule(count, "5")
        with refuses(PayloadEncodeError, "argument 'order'", "lock", "trust_pickle", "(at $.extra)"):
            schedule(charge, Order([], extra=threading.Lock()))

    await run_inside(code)


@pytest.mark.parametrize(
    "call", [charge, workflow.with_options(charge, start_to_close_timeout=timedelta(days=1))]
)
async def test_keywords_of_an_activity_call(call):
    def code():
        with refuses(TypeError, "activity charge: charge() has no argument 'money'; it takes"):
            call(ORDER, money="EUR")
        with refuses(TypeError, "activity charge: charge() got two values for argument 'order'"):
            call(ORDER, order=ORDER)
        with refuses(TypeError, "activity charge: charge() is missing argument 'order'"):
            call(currency="EUR")
        with refuses(PayloadEncodeError, "argument 'order' of activity charge: ", "got str 'tea'"):
            call(order="tea")
        with refuses(PayloadEncodeError, "argument 'currency' of activity charge: expected str, got int 5"):
            call(ORDER, currency=5)
        with refuses(PayloadEncodeError, "argument 'fast' of activity charge: expected bool, got int 1"):
            call(ORDER, fast=1)
        with refuses(PayloadEncodeError, "argument 'order' of activity charge: ", "got str 'tea'"):
            call("tea", fast=True)

    await run_inside(code)


async def test_an_activity_method():
    def code():
        with refuses(
            TypeError, "activity send: Mailer.send() is missing argument 'to'; it takes 1 argument (to)"
        ):
            workflow.execute_activity_method(Mailer.send)
        with refuses(PayloadEncodeError, "argument 'to' of activity send: expected str, got int 5"):
            workflow.execute_activity_method(Mailer.send, 5)
        with refuses(PayloadEncodeError, "argument 'to' of activity send: expected str, got int 5"):
            workflow.execute_activity(Mailer().send, 5)
        with refuses(PayloadEncodeError, "argument 'to' of activity send: expected str, got int 5"):
            Mailer().send(5)

    await run_inside(code)


async def test_a_wrong_call_that_nobody_catches_quarantines_the_run_and_names_the_line():
    @workflow.defn
    class Wrong:
        @workflow.run
        async def run(self) -> None:
            await charge("tea")

    async with memory_runtime([Wrong], [charge]) as runtime:
        handle = await runtime.spawn(Wrong)
        with refuses(
            WorkflowQuarantinedError,
            "is quarantined: PayloadEncodeError: argument 'order' of activity charge: ",
        ):
            await handle.result()
        description = await handle.describe()
    assert description.status == "quarantined"
    assert 'await charge("tea")' in description.failure
    assert not description.pending_activities


async def test_later_changes_of_an_argument_have_no_effect():
    @dataclass
    class Bag:
        things: list[str] = field(default_factory=list)

    @activity.defn
    async def look(bag: Bag) -> Bag:
        bag.things.append("seen")
        return bag

    @workflow.defn
    class Changes:
        @workflow.run
        async def run(self, bag: Bag) -> list[str]:
            call = look(bag)
            bag.things.append("later")
            return [*(await call).things, *bag.things]

    async with memory_runtime([Changes], [look]) as runtime:
        bag = Bag(["first"])
        handle = await runtime.spawn(Changes, bag)
        bag.things.append("too late")
        assert await handle.result() == ["first", "seen", "first", "later"]
