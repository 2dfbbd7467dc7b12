"""A command whose `await` was forgotten: the error names it, the line, and what to write."""

import asyncio
from typing import Any

import pytest
from support.bad_input import memory_runtime

from everact import activity, workflow
from everact.exceptions import WorkflowQuarantinedError


@activity.defn
async def greet(name: str) -> str:
    return f"Hello {name}"


@activity.defn(name="greet politely")
async def bow(name: str) -> str:
    return f"Good day {name}"


CASES = {
    "result": lambda: greet("tea"),
    "in_a_list": lambda: [greet("tea")],
    "argument": lambda: greet(greet("tea")),
    "add": lambda: greet("tea") + "!",
    "added": lambda: "Oh, " + greet("tea"),
    "format": lambda: f"got {greet('tea')}",
    "order": lambda: greet("tea") < "x",
    "item": lambda: greet("tea")[0],
    "attribute": lambda: greet("tea").upper(),
    "number": lambda: int(greet("tea")),
    "by_name": lambda: workflow.execute_activity("greet", "tea") + "!",
}


@workflow.defn
class Forgets:
    @workflow.run
    async def run(self, case: str) -> Any:
        return CASES[case]()


@workflow.defn
class Says:
    @workflow.run
    async def run(self) -> str:
        return greet("tea")


@workflow.defn
class Steps:
    @workflow.run
    async def run(self, case: str) -> str:
        match case:
            case "step":
                return self.prepare()
            case "coroutine":
                return self.helper()
            case _:
                return bow("tea")

    @workflow.step
    async def prepare(self) -> str:
        return "ready"

    async def helper(self) -> str:
        return "done"


async def crash_of(kind: type[Any], *args: str) -> str:
    async with memory_runtime([kind], [greet, bow]) as runtime:
        with pytest.raises(WorkflowQuarantinedError) as caught:
            await runtime.execute(kind, *args, id="one")
        return str(caught.value.__cause__)


@pytest.mark.filterwarnings("ignore:.*never awaited:RuntimeWarning")
@pytest.mark.parametrize("case", CASES)
async def test_the_error_names_the_activity_the_line_and_the_remedy(case):
    said = await crash_of(Forgets, case)
    assert (
        f"activity 'greet' called at {__file__}:{CASES[case].__code__.co_firstlineno} was not awaited" in said
    )
    wanted = "put `await` before the call" if case == "by_name" else "write `await greet(...)`"
    assert wanted in said


@pytest.mark.filterwarnings("ignore:.*never awaited:RuntimeWarning")
async def test_a_result_that_was_not_awaited_is_told_by_its_type():
    said = await crash_of(Says)
    assert "expected str, got activity 'greet' called at " in said
    assert said.endswith("was not awaited: write `await greet(...)`")


@pytest.mark.filterwarnings("ignore:.*never awaited:RuntimeWarning")
@pytest.mark.parametrize(
    ("case", "texts"),
    [
        ("step", ("step 'prepare' called at ", "write `await prepare(...)`")),
        ("coroutine", ("a call of Steps.helper that was not awaited: write `await helper(...)`",)),
        ("other name", ("activity 'greet politely' called at ", "put `await` before the call")),
    ],
)
async def test_steps_coroutines_and_activities_of_another_name(case, texts):
    said = await crash_of(Steps, case)
    assert [text for text in texts if text not in said] == []


@workflow.defn
class Looks:
    @workflow.run
    async def run(self) -> list[str]:
        future = greet("tea")
        before = repr(future)
        assert future
        assert not hasattr(future, "upper")
        results = asyncio.gather(future)
        during = f"{future}"
        await results
        return [before, during]


async def test_what_is_under_way_may_be_shown_and_asked_for():
    line = Looks.run.__code__.co_firstlineno + 2
    async with memory_runtime([Looks], [greet]) as runtime:
        before, during = await runtime.execute(Looks, id="one")
    assert before == f"<activity 'greet' called at {__file__}:{line}, not awaited>"
    assert during == f"<activity 'greet' called at {__file__}:{line}>"
