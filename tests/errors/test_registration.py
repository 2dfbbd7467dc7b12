"""What the runtime refuses to be made with, and starts of what it does not have."""

import math
from datetime import timedelta

import pytest
from support.bad_input import memory_runtime, nothing_written, refuses

from everact import Runtime, activity, workflow
from everact.actors.definitions import registrable_activity
from everact.exceptions import (
    ActivityNotRegisteredError,
    PayloadEncodeError,
    RegistrationError,
    WorkflowNotRegisteredError,
)
from everact.journal.memory_store import MemoryStore


@activity.defn
async def charge(order: str) -> str:
    return order


@workflow.defn
class Orders:
    @workflow.run
    async def run(self, order: str) -> str:
        return order


@workflow.defn(name="parcels")
class Parcels:
    @workflow.run
    async def run(self) -> str:
        return await charge("tea")


class Undecorated:
    @workflow.run
    async def run(self) -> None:
        pass


class Inherits(Orders):
    pass


def some_function():
    pass


# --- Runtime(...) -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [some_function, "Orders", 5, None, Orders(), lambda: None])
def test_what_is_no_class_is_no_workflow(wrong):
    with refuses(
        RegistrationError, "is not a workflow class: pass the class declared with @workflow.defn", repr(wrong)
    ):
        Runtime("nowhere", workflows=[wrong])


@pytest.mark.parametrize("wrong", [Undecorated, Inherits, int])
def test_a_class_without_the_decorator_is_no_workflow(wrong):
    with refuses(RegistrationError, wrong.__qualname__, "it lacks the @workflow.defn decorator"):
        Runtime("nowhere", workflows=[wrong])


def instead(wrong):
    """What the error says of what is no activity."""
    if wrong is Orders:
        return "it is a workflow, which workflow.execute_child_workflow() starts"
    return (
        "it is a run method of a workflow" if wrong is Orders.run else "it lacks the @activity.defn decorator"
    )


@pytest.mark.parametrize("wrong", [some_function, print, 5, "charge", None, Orders])
def test_what_lacks_the_decorator_is_no_activity(wrong):
    with refuses(RegistrationError, "is not an activity", instead(wrong)):
        Runtime("nowhere", activities=[wrong])


class Shop:
    @activity.defn
    async def sell(self, count: int) -> int:
        return count

    @activity.defn
    def pack(self, count: int) -> int:
        return count

    @staticmethod
    @activity.defn
    def weigh(count: int) -> int:
        return count

    @classmethod
    @activity.defn
    async def count(cls, count: int) -> str:
        return f"{cls.__name__} {count}"

    @activity.defn
    async def strange(this, count: int) -> int:
        return count


@activity.defn
def selfish(self):
    pass


@pytest.mark.parametrize("name", ["sell", "pack"])
def test_a_method_without_its_object_is_refused_with_what_to_pass(name):
    with refuses(
        RegistrationError,
        f"activity {name!r} takes self, but Shop.{name} belongs to no object: pass a bound method, Shop(...).{name}",
    ):
        registrable_activity(getattr(Shop, name))
    bound = registrable_activity(getattr(Shop(), name))
    assert bound.fn.__self__.__class__ is Shop
    assert registrable_activity(Shop.weigh).name == "weigh"
    assert registrable_activity(charge).fn is charge.__wrapped__
    with refuses(RegistrationError, "selfish belongs to no object: it must not take self"):
        registrable_activity(selfish)
    with refuses(RegistrationError, "the first parameter of Shop.strange is not called self"):
        registrable_activity(Shop().strange)


async def test_a_method_of_a_class_is_called_without_its_class():
    @workflow.defn
    class Counts:
        @workflow.run
        async def run(self) -> list[str]:
            return [await Shop.count(1), await workflow.execute_activity_method(Shop.count, 2)]

    async with memory_runtime([Counts], [Shop.count]) as runtime:
        assert await runtime.execute(Counts) == ["Shop 1", "Shop 2"]


@activity.defn
async def no_class(cls: str) -> str:
    return cls


async def test_a_function_may_have_a_parameter_named_cls():
    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self) -> str:
            return await no_class("first")

    async with memory_runtime([Calls], [no_class]) as runtime:
        assert await runtime.execute(Calls) == "first"


@pytest.mark.parametrize(("option", "one"), [("workflows", Orders), ("activities", charge)])
def test_one_instead_of_a_list(option, one):
    with refuses(TypeError, f"{option} must be a list", repr(one)):
        Runtime("nowhere", **{option: one})
    with refuses(TypeError, f"{option} must be a list", "'junk'"):
        Runtime("nowhere", **{option: "junk"})


def test_two_workflows_of_one_name():
    @workflow.defn(name="Orders")
    class Others:
        @workflow.run
        async def run(self):
            pass

    with refuses(
        RegistrationError, "two workflow types are named 'Orders'", "Others", "give one of them name='...'"
    ):
        Runtime("nowhere", workflows=[Orders, Others])
    Runtime("nowhere", workflows=[Orders, Orders])


def test_two_activities_of_one_name():
    @activity.defn(name="charge")
    async def other():
        pass

    with refuses(
        RegistrationError, "two activities are named 'charge'", "other", "give one of them name='...'"
    ):
        Runtime("nowhere", activities=[charge, other])
    Runtime("nowhere", activities=[charge, charge])


@pytest.mark.parametrize("option", ["max_concurrent_activities", "max_activity_threads"])
def test_limits(option):
    for wrong in (0, -1):
        with refuses(ValueError, f"{option} must be 1 or more, not {wrong}"):
            Runtime("nowhere", **{option: wrong})
    for wrong in (1.5, "5", None, True):
        with refuses(TypeError, f"{option} must be an int, not {wrong!r}"):
            Runtime("nowhere", **{option: wrong})


@pytest.mark.parametrize("word", ["sync", "", None, 1])
def test_durability(word):
    with refuses(ValueError, f"durability must be 'fsync' or 'os', not {word!r}"):
        Runtime("nowhere", durability=word)


@pytest.mark.parametrize("wrong", [timedelta(seconds=-1), -1, math.nan, math.inf, timedelta.max])
def test_grace_out_of_range(wrong):
    with refuses(ValueError, "grace must be between 0 and 100 years, not", repr(wrong)):
        Runtime("nowhere", grace=wrong)


@pytest.mark.parametrize("wrong", ["5", None, True])
def test_grace_of_another_type(wrong):
    with refuses(TypeError, "grace must be a timedelta or a number of seconds, not", repr(wrong)):
        Runtime("nowhere", grace=wrong)


@pytest.mark.parametrize("wrong", [5, None, b"journal", object()])
def test_a_journal_that_is_no_path(wrong):
    with refuses(TypeError, "journal must be a path or a store, not", repr(wrong)):
        Runtime(wrong)


def test_an_empty_journal_path():
    with refuses(ValueError, "journal must name a directory", "''"):
        Runtime("")


@pytest.mark.parametrize("wrong", ["", 5, None, b"x", "\ud800"])
def test_a_bad_name_of_a_runtime(wrong):
    with refuses(TypeError if not isinstance(wrong, str) else ValueError, "name", repr(wrong)):
        memory_runtime(name=wrong)


def test_an_unknown_option_of_a_runtime():
    with refuses(TypeError, "task_queue"):
        memory_runtime(task_queue="x")


# --- spawn ------------------------------------------------------------------------------------------------------


async def test_a_type_that_is_not_registered_is_named_with_those_that_are():
    for asked, name in ((Orders, "Orders"), ("Orders", "Orders"), ("junk junk", "junk junk"), ("", "")):
        async with memory_runtime([Parcels]) as runtime:
            with (
                nothing_written(runtime),
                refuses(
                    WorkflowNotRegisteredError,
                    f"workflow type {name!r} is not registered with this runtime; known: parcels. ",
                    "Pass it in Runtime(..., workflows=[...]).",
                ) as caught,
            ):
                await runtime.spawn(asked, "tea")
            assert (caught.value.name, caught.value.known) == (name, ["parcels"])
    async with memory_runtime() as runtime:
        with nothing_written(runtime), refuses(WorkflowNotRegisteredError, "known: none"):
            await runtime.execute("Orders")


async def test_a_run_method_of_a_type_that_is_not_registered():
    async with memory_runtime([Parcels]) as runtime:
        with (
            nothing_written(runtime),
            refuses(WorkflowNotRegisteredError, "workflow type 'Orders' is not registered", "known: parcels"),
        ):
            await runtime.spawn(Orders.run, "tea")


@pytest.mark.parametrize("wrong", [some_function, Undecorated, Inherits, 5, None, []])
async def test_spawning_what_is_no_workflow(wrong):
    async with memory_runtime([Orders]) as runtime:
        with (
            nothing_written(runtime),
            refuses(RegistrationError, getattr(wrong, "__qualname__", repr(wrong))),
        ):
            await runtime.spawn(wrong)


async def test_spawning_an_activity():
    async with memory_runtime([Orders], [charge]) as runtime:
        with nothing_written(runtime), refuses(RegistrationError, "charge is neither a workflow class"):
            await runtime.spawn(charge, "tea")


async def test_another_class_under_a_registered_name():
    @workflow.defn(name="Orders")
    class Others:
        @workflow.run
        async def run(self, first: int, second: int) -> None:
            pass

    async with memory_runtime([Orders]) as runtime:
        with (
            nothing_written(runtime),
            refuses(TypeError, "workflow Orders: Orders.run() takes 1 argument (order)"),
        ):
            await runtime.spawn(Others, 1, 2)


async def test_a_run_method_of_two_registered_classes():
    class Base:
        @workflow.run
        async def run(self) -> str:
            return type(self).__name__

    @workflow.defn
    class First(Base):
        pass

    @workflow.defn
    class Second(Base):
        pass

    async with memory_runtime([First, Second]) as runtime:
        with (
            nothing_written(runtime),
            refuses(
                RegistrationError,
                "Base.run is the run method of ",
                "First and ",
                "Second: pass the class instead",
            ),
        ):
            await runtime.spawn(First.run)
        assert await runtime.execute(First) == "First"
    async with memory_runtime([First]) as runtime:
        assert await runtime.execute(First.run) == "First"


@pytest.mark.parametrize("wrong", [some_function, Undecorated, "Orders", 5])
async def test_ref_with_what_is_no_workflow_class(wrong):
    async with memory_runtime([Orders]) as runtime:
        with refuses(RegistrationError, "is not a workflow class"):
            runtime.ref("order-42", wrong)


# --- activities inside a workflow -------------------------------------------------------------------------------


async def test_an_activity_that_is_not_registered_is_refused_at_the_call():
    said = []

    @activity.defn
    async def pack() -> None:
        pass

    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self) -> None:
            for call in (
                lambda: charge("tea"),
                lambda: workflow.execute_activity(charge, "tea"),
                lambda: workflow.start_activity(charge, "tea"),
                lambda: workflow.execute_activity("charge", "tea"),
                lambda: workflow.start_activity("charge", "tea"),
                lambda: workflow.with_options(charge)("tea"),
            ):
                with refuses(
                    ActivityNotRegisteredError,
                    "activity 'charge' is not registered with this runtime; known: pack. ",
                    "Pass it in Runtime(..., activities=[...]).",
                ):
                    call()
                said.append("refused")

    async with memory_runtime([Calls], [pack]) as runtime:
        handle = await runtime.spawn(Calls)
        await handle.result()
        kinds = [event.kind for event in await handle.fetch_history()]
    assert said == ["refused"] * 6
    assert kinds == ["WorkflowStarted", "WorkflowCompleted"]


async def test_another_function_under_a_registered_activity_name():
    @activity.defn(name="charge")
    async def other(number: int) -> None:
        pass

    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self) -> None:
            with refuses(PayloadEncodeError, "argument 'order' of activity charge: expected str, got int 5"):
                workflow.execute_activity(other, 5)  # everact: allow[EV203]

    async with memory_runtime([Calls], [charge]) as runtime:
        await runtime.execute(Calls)


@pytest.mark.parametrize("wrong", [some_function, print, 5, None, Orders, Orders.run])
async def test_calling_what_is_no_activity(wrong):
    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self) -> None:
            for call in (
                workflow.execute_activity,
                workflow.start_activity,
                workflow.execute_activity_method,
                workflow.with_options,
            ):
                with refuses(RegistrationError, "is not an activity: " + instead(wrong)):
                    call(wrong)

    async with memory_runtime([Calls], [charge]) as runtime:
        await runtime.execute(Calls)


async def test_a_store_that_was_closed():
    from everact.exceptions import JournalClosedError

    store = MemoryStore()
    store.close()
    with refuses(JournalClosedError, "closed"):
        async with Runtime(store):
            pass


def test_a_journal_path_that_no_system_has():
    with refuses(ValueError, "the path of a journal cannot hold the character NUL", repr("a\0b")):
        Runtime("a\0b")
