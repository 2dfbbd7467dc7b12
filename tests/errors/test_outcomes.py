"""Results that do not fit, and runs whose type this runtime does not have."""

import threading
from typing import Any

import pytest
from support.bad_input import nothing_written, refuses

from everact import Runtime, activity, workflow
from everact.exceptions import (
    ActivityError,
    ApplicationError,
    WorkflowFailedError,
    WorkflowHeldError,
    WorkflowNotRegisteredError,
    WorkflowQuarantinedError,
)
from everact.journal.memory_store import MemoryJournal, MemoryStore


@workflow.defn
class Waits:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def hint(self, number: int) -> None:
        pass

    @workflow.query
    def status(self) -> str:
        return "waiting"

    @workflow.update
    def change(self) -> None:
        pass


def runtime(backing=None, workflows=(), activities=()) -> Runtime:
    return Runtime(MemoryStore(backing), workflows=workflows, activities=activities)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "PayloadEncodeError: result of workflow Lies: expected str, got int 5"),
        (threading.Lock(), "PayloadEncodeError: result of workflow Lies: expected str, got _thread.lock"),
        (
            "\ud800",
            "PayloadEncodeError: result of workflow Lies: text with a lone surrogate cannot be stored",
        ),
    ],
)
async def test_a_result_of_a_workflow_that_does_not_fit(value, text):
    @workflow.defn
    class Lies:
        @workflow.run
        async def run(self) -> str:
            return value

    async with runtime(None, [Lies]) as open_runtime:
        with refuses(WorkflowQuarantinedError, "is quarantined: ", text):
            await open_runtime.execute(Lies)


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "result of activity lies: expected str, got int 5"),
        (threading.Lock(), "result of activity lies: expected str, got _thread.lock"),
    ],
)
async def test_a_result_of_an_activity_that_does_not_fit_is_not_tried_again(kind, value, text):
    calls = []

    if kind == "async":

        @activity.defn
        async def lies() -> str:
            calls.append(1)
            return value
    else:

        @activity.defn
        def lies() -> str:
            calls.append(1)
            return value

    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self) -> None:
            await workflow.execute_activity(lies)

    async with runtime(None, [Calls], [lies]) as open_runtime:
        with refuses(
            WorkflowFailedError,
            "ActivityError: activity 'lies' failed after 1 attempt (non-retryable error): PayloadEncodeError: ",
            text,
        ) as caught:
            await open_runtime.execute(Calls)
    cause = caught.value.__cause__
    assert isinstance(cause, ActivityError)
    assert (cause.activity_type, cause.attempt, cause.retry_state) == ("lies", 1, "non-retryable error")
    assert calls == [1]


async def test_a_result_type_that_the_result_does_not_fit():
    @activity.defn
    async def number() -> Any:
        return 5

    @workflow.defn
    class Asks:
        @workflow.run
        async def run(self) -> None:
            await workflow.execute_activity("number", result_type=str)

    async with runtime(None, [Asks], [number]) as open_runtime:
        handle = await open_runtime.spawn(Asks)
        with refuses(
            WorkflowHeldError,
            "is held: PayloadDecodeError: result of activity number: expected str, got int 5",
        ):
            await handle.result()


async def test_a_run_whose_type_this_runtime_does_not_have():
    backing = MemoryJournal()
    async with runtime(backing, [Waits]) as first:
        await first.spawn(Waits, id="order")
    async with runtime(backing) as second:
        assert (await second.ref("order").describe()).status == "held"
        for handle in (second.ref("order"), second.ref("order", Waits)):
            with (
                nothing_written(second),
                refuses(
                    WorkflowNotRegisteredError,
                    "workflow type 'Waits' is not registered with this runtime; known: none",
                ),
            ):
                await handle.query("status")
            with nothing_written(second), refuses(WorkflowHeldError, "'order'", "Waits", "not registered"):
                await handle.result()
            with nothing_written(second), refuses(WorkflowHeldError, "'order'", "Waits", "not registered"):
                await handle.ask("change")
        await second.ref("order").signal("hint", 5)
    async with runtime(backing, [Waits]) as third:
        assert await third.ref("order", Waits).query(Waits.status) == "waiting"
        assert (await third.ref("order").describe()).status == "running"


class Odd(ApplicationError):
    """An error whose class has a name that cannot be stored."""


Odd.__module__ = "\ud800"


@pytest.mark.parametrize("early", [True, False])
async def test_a_turn_that_cannot_be_stored_leaves_nobody_hanging(early, monkeypatch):
    monkeypatch.setattr("everact.journal.failures.clean", lambda text: text)  # it makes every name storable

    @workflow.defn
    class Fails:
        def __init__(self) -> None:
            self.go = early

        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: self.go)
            raise Odd("x")

        @workflow.signal
        def start(self) -> None:
            self.go = True

    async with runtime(None, [Fails]) as open_runtime:
        handle = await open_runtime.spawn(Fails, id="order")
        if not early:
            await handle.signal(Fails.start)
        with refuses(WorkflowQuarantinedError, "UnicodeEncodeError: ", "surrogates not allowed"):
            await handle.result()
        assert [run.status for run in await open_runtime.list_workflows()] == ["quarantined"]
        assert "surrogates not allowed" in (await handle.describe()).failure
