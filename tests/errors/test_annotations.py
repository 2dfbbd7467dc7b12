"""Annotations that are read late, locally or never: resolved if at all possible, named in the error if not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from support.bad_input import memory_runtime, nothing_written, refuses

from everact import activity, workflow
from everact.exceptions import PayloadEncodeError

if TYPE_CHECKING:
    from nowhere import Foreign


@activity.defn
async def double(order: Later) -> Later:
    return Later(order.item * 2)


@workflow.defn
class UsesLater:
    @workflow.run
    async def run(self, order: Later) -> Later:
        return await double(order)


@dataclass
class Later:
    item: str


@dataclass
class Order:
    item: str


async def test_classes_defined_further_down_in_the_module_are_found():
    async with memory_runtime([UsesLater], [double]) as runtime:
        assert await runtime.execute(UsesLater, Later("tea")) == Later("teatea")


async def test_classes_of_the_function_around_are_found_and_hide_those_of_the_module():
    @dataclass
    class Order:
        item: str

    @activity.defn
    async def twice(order: Order) -> list[Order]:
        return [order, order]

    @workflow.defn
    class Local:
        @dataclass
        class Bag:
            orders: list[str]

        def __init__(self) -> None:
            self.me = Order("none")

        @workflow.run
        async def run(self, order: Order) -> Bag:
            await workflow.wait_condition(lambda: self.me.item != "none")
            assert all(type(one) is Order for one in await twice(self.me))
            return Local.Bag([order.item, self.me.item])

        @workflow.signal
        def be(self, order: Order) -> None:
            self.me = order

        @workflow.query
        def who(self) -> dict[str, Order]:
            return {"me": self.me}

        @workflow.update
        def become(self, order: Order) -> Order:
            before, self.me = self.me, order
            return before

    async with memory_runtime([Local], [twice]) as runtime:
        handle = await runtime.spawn(Local, Order("tea"))
        assert await handle.ask(Local.become, Order("none")) == Order("none")
        await handle.tell(Local.be, Order("cake"))
        assert await handle.query(Local.who) == {"me": Order("cake")}
        assert await handle.result() == Local.Bag(["tea", "cake"])


async def test_an_activity_method_of_a_local_class_finds_its_names():
    @dataclass
    class Mail:
        to: str

    class Mailer:
        class Options:
            pass

        @activity.defn
        async def send(self, mail: Mail, list: int = 1) -> Mail:
            return mail

    @workflow.defn
    class Sends:
        @workflow.run
        async def run(self) -> Mail:
            return await workflow.execute_activity_method(Mailer.send, Mail("me"))

    async with memory_runtime([Sends], [Mailer().send]) as runtime:
        assert await runtime.execute(Sends) == Mail("me")


async def test_an_annotation_that_means_nothing_is_named_when_its_value_has_no_stored_form():
    @activity.defn
    async def ship(order: Foreign, note: str = "") -> Foreign:
        return None

    @workflow.defn
    class Ships:
        @workflow.run
        async def run(self, order: Foreign) -> str:
            said = []
            for args, keywords in (((Order("tea"),), {}), ((), {"order": Order("tea"), "note": "x"})):
                with refuses(PayloadEncodeError, "argument 'order' of activity ship", "annotation 'Foreign'"):
                    ship(*args, **keywords)  # everact: allow[EV203]
                said.append("refused")
            await ship({"plain": "values need no class"})
            return " ".join(said)

    async with memory_runtime([Ships], [ship]) as runtime:
        with (
            nothing_written(runtime),
            refuses(
                PayloadEncodeError,
                "argument 'order' of workflow Ships: ",
                "annotation 'Foreign' could not be resolved",
                "at the top of the module (not under TYPE_CHECKING)",
            ) as caught,
        ):
            await runtime.spawn(Ships, Order("tea"))
        assert "Annotate it" not in str(caught.value)
        assert await runtime.execute(Ships, "plain") == "refused refused"


async def test_a_result_whose_annotation_means_nothing_says_so_too():
    @workflow.defn
    class Returns:
        @workflow.run
        async def run(self) -> Foreign:
            await workflow.wait_condition(lambda: False)

        @workflow.update
        def get(self) -> Foreign:
            return Order("tea")

    from everact.exceptions import UpdateFailedError

    async with memory_runtime([Returns]) as runtime:
        handle = await runtime.spawn(Returns)
        with refuses(UpdateFailedError, "result of update Returns.get: ", "annotation 'Foreign'"):
            await handle.ask(Returns.get)


async def test_a_field_whose_annotation_means_nothing_is_named():
    @dataclass
    class Line:
        item: str

    @dataclass
    class Bill:
        lines: list[Line]
        count: int = 0

    @workflow.defn
    class Bills:
        @workflow.run
        async def run(self, bill: Bill) -> int:
            return bill.count

    async with memory_runtime([Bills]) as runtime:
        with (
            nothing_written(runtime),
            refuses(
                PayloadEncodeError,
                "argument 'bill' of workflow Bills: a value of class ",
                "Line has no stored form here",
                "the annotation 'list[Line]' of Bill.lines could not be resolved: define or import what it names "
                "at the top of the module (not in a function, not under TYPE_CHECKING)",
                "(at $.lines[0])",
            ),
        ):
            await runtime.spawn(Bills, Bill([Line("tea")]))
        assert await runtime.execute(Bills, Bill([], 3)) == 3
