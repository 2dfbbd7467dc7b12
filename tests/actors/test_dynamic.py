"""Dynamic workflows and activities: one of each stands in for all names that have no definition of their own."""

from dataclasses import dataclass

import pytest
from support.codecs import Wrapping
from support.hosting import commands, hosted, settled

from everact import ActivityError, ApplicationError, Client, RetryPolicy, activity, workflow
from everact.exceptions import (
    NotInActivityError,
    NotInWorkflowError,
    RegistrationError,
    WorkflowFailedError,
    WorkflowHeldError,
    WorkflowNotRegisteredError,
)
from everact.journal.memory_store import MemoryJournal
from everact.payloads import RawValue


@dataclass
class Item:
    name: str
    count: int


@workflow.defn(dynamic=True)
class Anything:
    @workflow.run
    async def run(self, name: str, args: list[RawValue]) -> object:
        assert workflow.info().workflow_type == name
        decode = workflow.payload_converter().decode
        if name == "Echo":
            return [decode(arg.payload) for arg in args]
        if name == "Item":
            item = decode(args[0].payload, Item)
            return f"{item.count} x {item.name}"
        if name == "Raw":
            return args[0]
        if name == "Wait":
            self.over = False
            await workflow.wait_condition(lambda: self.over)
            return "waited"
        return await workflow.execute_activity(f"{name}_activity", *args)

    @workflow.signal
    def end(self) -> None:
        self.over = True


@workflow.defn
class Known:
    @workflow.run
    async def run(self, n: int) -> str:
        return f"known {n}"


@activity.defn(dynamic=True, start_to_close_timeout=7)
async def anything(name: str, args: list[RawValue]) -> object:
    info = activity.info()
    assert info.activity_type == name
    values = [activity.payload_converter().decode(arg.payload) for arg in args]
    return f"{name} {values} {info.start_to_close_timeout.total_seconds():g}"


@activity.defn
async def known_activity(n: int) -> str:
    return f"own {n}"


@pytest.fixture(params=["plain", "codec"])
def codecs(request):
    return [] if request.param == "plain" else [Wrapping()]


async def test_names_without_a_class_or_function_go_to_the_dynamic_ones(codecs):
    journal = MemoryJournal()
    options = {"activities": [anything, known_activity], "codecs": codecs}
    async with hosted(journal, Anything, Known, **options) as runtime:
        assert await runtime.execute("Echo", 1, "two", [3]) == [1, "two", [3]]
        assert await runtime.execute("Item", Item("tea", 3)) == "3 x tea"
        assert await runtime.execute("Raw", {"a": [1, None]}) == {"a": [1, None]}
        assert await runtime.execute("Known", 4) == "known 4"
        assert await runtime.execute("other", 5, "x") == "other_activity [5, 'x'] 7"
        assert await runtime.execute("known", 6) == "own 6"
        handle = await runtime.spawn("other", 1, id="o")
        assert await handle.result() == "other_activity [1] 7"
        assert (await handle.describe()).workflow_type == "other"
        assert commands(await handle.fetch_history()) == [(1, "other_activity")]
        assert await runtime.count_workflows(workflow_type="other") == 2
        waiting = await runtime.spawn("Wait", id="w")
        await settled(runtime)
    async with hosted(journal, Anything, Known, **options) as runtime:
        waiting = runtime.ref("w", Anything)  # typed calls, whatever its type is called
        await waiting.signal(Anything.end)
        assert await waiting.result() == "waited"


async def test_a_held_run_goes_on_with_the_dynamic_workflow():
    journal = MemoryJournal()
    async with hosted(journal, Anything) as runtime:
        await runtime.spawn("Wait", id="w")
        await settled(runtime)
    async with hosted(journal, Known) as runtime:
        with pytest.raises(WorkflowHeldError):
            await runtime.ref("w").result()
    async with hosted(journal, Anything) as runtime:
        handle = runtime.ref("w", Anything)
        await handle.signal(Anything.end)
        assert await handle.result() == "waited"


async def test_init_and_plain_functions_and_methods_may_be_dynamic():
    @workflow.defn(dynamic=True)
    class WithInit:
        @workflow.init
        def __init__(self, name: str, args: list[RawValue]) -> None:
            self.name = name
            self.count = len(args)

        @workflow.run()
        async def run(self, name: str, args: list[RawValue]) -> str:
            return f"{self.name} {self.count} " + await workflow.execute_activity(
                "act", *args, result_type=str
            )

    class Acts:
        @activity.defn(dynamic=True)
        def run(self, name: str, args: list[RawValue]) -> str:
            return f"{name} in a thread: {len(args)}"

    async with hosted(MemoryJournal(), WithInit, activities=[Acts().run]) as runtime:
        assert await runtime.execute("Some", 1, 2) == "Some 2 act in a thread: 2"


async def test_a_dynamic_workflow_is_started_from_another_process(tmp_path):
    async with (
        hosted(tmp_path / "journal", Anything, activities=[anything]),
        await Client.connect(f"unix:{tmp_path / 'journal'}") as client,
    ):
        assert await client.execute("Echo", 1, [2]) == [1, [2]]
        with pytest.raises(RegistrationError, match="dynamic workflow: start its runs by the name"):
            await client.spawn(Anything, "Echo", [])


async def test_a_raw_value_passes_where_any_type_is_wanted():
    @activity.defn
    async def takes(value: int, raw: RawValue) -> RawValue:
        assert value == 7
        return raw

    @workflow.defn
    class Passing:
        @workflow.run
        async def run(self, raw: RawValue) -> RawValue:
            return await takes(RawValue(workflow.payload_converter().encode(7)), raw)  # type: ignore[arg-type]

    async with hosted(MemoryJournal(), Passing, activities=[takes]) as runtime:
        result = await runtime.execute(Passing.run, {"any": "thing"})
        assert isinstance(result, RawValue)
        assert result.payload.data == b'{"any":"thing"}'


async def test_what_does_not_fit_is_refused_where_it_is_declared_or_called():
    with pytest.raises(RegistrationError, match=r"dynamic.*the name and the list.*these two parameters"):

        @workflow.defn(dynamic=True)
        class One:
            @workflow.run
            async def run(self, n: int) -> None:
                pass

    with pytest.raises(RegistrationError, match=r"dynamic.*these two parameters"):

        @activity.defn(dynamic=True)
        async def three(a: str, b: list[RawValue], c: int) -> None:
            pass

    for options in ({"name": "N"}, {"retention": 5}):
        with pytest.raises(RegistrationError, match="takes neither name= nor retention="):
            workflow.defn(dynamic=True, **options)
    with pytest.raises(RegistrationError, match="both name='n' and dynamic=True"):
        activity.defn(name="n", dynamic=True)(anything.__wrapped__)

    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self) -> None:
            await anything("x", [])

    async with hosted(MemoryJournal(), Anything, Calls, activities=[anything]) as runtime:
        for start in (Anything, Anything.run):
            with pytest.raises(
                RegistrationError, match=r"dynamic workflow: start its runs by the name|run method"
            ):
                await runtime.spawn(start, "Echo", [])
        with pytest.raises(Exception, match="anything is a dynamic activity: call it by a name"):
            await runtime.execute(Calls.run)


def test_two_of_one_name_are_refused_with_both_places():
    def another(**options):
        @workflow.defn(**options)
        class Known:
            @workflow.run
            async def run(self, name: str, args: list[RawValue]) -> None:
                pass

        return Known

    with pytest.raises(RegistrationError) as caught:
        hosted(MemoryJournal(), Known, another())
    assert str(caught.value).count("test_dynamic.py:") == 2
    assert "two workflow types are named 'Known'" in str(caught.value)
    with pytest.raises(
        RegistrationError, match=r"two workflows are dynamic \(.*test_dynamic.py:\d+ and .*\): a Runtime"
    ):
        hosted(MemoryJournal(), Anything, another(dynamic=True))

    @activity.defn(dynamic=True)
    def other(name: str, args: list[RawValue]) -> None:
        pass

    with pytest.raises(RegistrationError, match=r"two activities are dynamic \(.*anything.*other"):
        hosted(MemoryJournal(), activities=[anything, other])


async def test_without_a_dynamic_one_nothing_has_changed():
    async with hosted(MemoryJournal(), Known) as runtime:
        with pytest.raises(WorkflowNotRegisteredError):
            await runtime.spawn("Nobody")
        assert type(runtime._registry.workflows) is dict
        assert type(runtime._registry.activities) is dict


async def test_failures_name_the_activity_that_was_called():
    @activity.defn(dynamic=True, retry_policy=RetryPolicy(maximum_attempts=1))
    async def fails(name: str, args: list[RawValue]) -> None:
        raise ApplicationError("no luck")

    async with hosted(MemoryJournal(), Anything, activities=[fails]) as runtime:
        with pytest.raises(WorkflowFailedError, match="activity 'other_activity'") as caught:
            await runtime.execute("other")
        assert isinstance(caught.value.__cause__, ActivityError)


def test_converters_belong_to_running_code():
    with pytest.raises(NotInWorkflowError, match=r"workflow.payload_converter\(\)"):
        workflow.payload_converter()
    with pytest.raises(NotInActivityError, match=r"activity.payload_converter\(\)"):
        activity.payload_converter()
