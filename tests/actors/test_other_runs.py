"""Messages to any run, starts without a parent, and how they travel."""

import asyncio

import pytest
from support.hosting import hosted, kinds, settled
from support.sending_workflows import Other, Sender, Waits

from everact import workflow
from everact.exceptions import (
    ExternalWorkflowError,
    UnknownHandlerError,
    WorkflowAlreadyStartedError,
    WorkflowCancelledError,
    WorkflowFailedError,
    WorkflowNotFoundError,
    WorkflowTypeError,
)
from everact.journal.memory_store import MemoryJournal


async def test_signals_and_cancels_reach_any_run():
    async with hosted(MemoryJournal(), Sender, Waits) as runtime:
        waits = await runtime.spawn(Waits, id="w")
        assert await runtime.execute(Sender, "signal", "w", None, "one") == "delivered"
        assert await runtime.execute(Sender, "method", "w", waits.run_id, "two") == "delivered"
        assert await runtime.execute(Sender, "cancel", "w", None, "enough", id="s") == "delivered"
        assert await runtime.execute(Sender, "cancel", "w", None, "again") in (
            "delivered",
            (
                f"WorkflowClosedError: the request to workflow 'w' to cancel was refused: workflow 'w' (run "
                f"{waits.run_id}) is cancelled: it takes no more messages"
            ),
        )
        with pytest.raises(WorkflowCancelledError, match="enough"):
            await waits.result()
        signals = [e.event for e in await waits.fetch_history() if e.kind == "SignalReceived"]
        assert [signal.args[0].data for signal in signals] == [b'"one"', b'"two"']


@pytest.mark.parametrize(
    ("verb", "to", "answer"),
    [
        (
            "signal",
            "nobody",
            "WorkflowNotFoundError: signal 'tell' to workflow 'nobody' was refused: no workflow 'nob",
        ),
        (
            "cancel",
            "nobody",
            "WorkflowNotFoundError: the request to workflow 'nobody' to cancel was refused: no wor",
        ),
        (
            "signal",
            "over",
            "WorkflowClosedError: signal 'tell' to workflow 'over' was refused: workflow 'over' (run ",
        ),
        (
            "cancel",
            "over",
            "WorkflowClosedError: the request to workflow 'over' to cancel was refused: workflow 'ov",
        ),
        (
            "unknown",
            "w",
            (
                "UnknownHandlerError: signal 'nothing of the kind' to workflow 'w' was refused: workflow Waits has no "
                "signal 'nothing of the kind'; it has: stop, tell"
            ),
        ),
    ],
)
async def test_what_is_refused_says_why(verb, to, answer):
    async with hosted(MemoryJournal(), Sender, Waits, Other) as runtime:
        await runtime.spawn(Waits, id="w")
        await runtime.execute(Other, id="over")
        assert (await runtime.execute(Sender, verb, to, None, "x")).startswith(answer)


async def test_a_handle_of_one_run_does_not_reach_the_next_one():
    async with hosted(MemoryJournal(), Sender, Waits) as runtime:
        first = await runtime.spawn(Waits, id="w")
        second = await runtime.spawn(Waits, id="w", if_running="replace")
        answer = await runtime.execute(Sender, "signal", "w", first.run_id, "x")
        assert answer.startswith("WorkflowClosedError")
        answer = await runtime.execute(Sender, "signal", "w", "no such run", "x")
        assert answer.startswith("WorkflowNotFoundError")
        assert "SignalReceived" not in kinds(await second.fetch_history())


async def test_an_error_that_nobody_catches_fails_the_run():
    @workflow.defn
    class Careless:
        @workflow.run
        async def run(self) -> None:
            await workflow.get_external_workflow_handle("nobody").signal("hello")

    async with hosted(MemoryJournal(), Careless) as runtime:
        with pytest.raises(WorkflowFailedError) as caught:
            await runtime.execute(Careless)
        cause = caught.value.__cause__
        assert isinstance(cause, ExternalWorkflowError)
        assert isinstance(cause.__cause__, WorkflowNotFoundError)
        assert cause.caused_by(WorkflowNotFoundError)


async def test_a_handle_with_a_class_checks_at_the_call():
    @workflow.defn
    class Checks:
        @workflow.run
        async def run(self) -> list[str]:
            found = []
            other = workflow.get_external_workflow_handle("w", Waits)
            for call in (
                lambda: other.signal("shout"),
                lambda: other.signal(Waits.tell),
                lambda: other.signal(print),
            ):
                try:
                    call()
                except (TypeError, UnknownHandlerError) as error:
                    found.append(str(error))
            for bad in ("", 7):
                try:
                    workflow.get_external_workflow_handle(bad)
                except (TypeError, ValueError) as error:
                    found.append(str(error))
            return found

    async with hosted(MemoryJournal(), Checks, Waits) as runtime:
        unknown, missing, no_signal, empty, number = await runtime.execute(Checks, id="c")
        assert unknown == "workflow Waits has no signal 'shout'; it has: stop, tell"
        assert "signal Waits.tell" in missing
        assert no_signal == "print is no signal: pass a method declared with @workflow.signal, or its name"
        assert empty.startswith("a workflow id must not be empty")
        assert number.startswith("a workflow id must be a str")
        assert "SignalSent" not in kinds(await runtime.ref("c").fetch_history())


async def test_two_runs_that_signal_each_other_have_all_of_it_in_order():
    @workflow.defn
    class Player:
        def __init__(self) -> None:
            self.balls: list[int] = []

        @workflow.run
        async def run(self, other: str, serves: bool, rounds: int) -> list[int]:
            across = workflow.get_external_workflow_handle(other, Player)
            if serves:
                for number in range(rounds):
                    await across.signal(Player.ball, number)
            await workflow.wait_condition(lambda: len(self.balls) == rounds)
            if not serves:
                for number in self.balls:
                    await across.signal(Player.ball, number)
            return self.balls

        @workflow.signal
        def ball(self, number: int) -> None:
            self.balls.append(number)

    async with hosted(MemoryJournal(), Player) as runtime:
        left = await runtime.spawn(Player, "right", False, 10, id="left")
        right = await runtime.spawn(Player, "left", True, 10, id="right")
        assert await left.result() == await right.result() == list(range(10))


# --- detached starts


@workflow.defn
class Starter:
    @workflow.run
    async def run(self, kind: str, workflow_id: str, if_running: str, if_closed: str) -> str:
        try:
            other = await workflow.start_detached(
                kind, id=workflow_id, if_running=if_running, if_closed=if_closed, memo={"by": "me"}
            )
        except ExternalWorkflowError as error:
            return f"{type(error.__cause__).__name__}: {error}"
        assert other.id == workflow_id
        return other.run_id


async def test_a_detached_start_lives_on_and_has_no_parent():
    async with hosted(MemoryJournal(), Starter, Waits) as runtime:
        run_id = await runtime.execute(Starter, "Waits", "w", "fail", "allow", id="s")
        waits = runtime.ref("w", Waits)
        seen = await waits.describe()
        assert (seen.run_id, seen.status, seen.parent, seen.memo) == (run_id, "running", None, {"by": "me"})
        await waits.signal(Waits.stop)
        assert await waits.result() == []
        await settled(runtime)
        assert kinds(await runtime.ref("s").fetch_history()) == [
            "WorkflowStarted",
            "DetachedStart",
            "MessageDelivered",
            "WorkflowCompleted",
        ]


async def test_the_words_of_a_detached_start():
    async with hosted(MemoryJournal(), Starter, Waits, Other) as runtime:
        first = await runtime.spawn(Waits, id="w")
        refused = await runtime.execute(Starter, "Waits", "w", "fail", "allow")
        assert refused.startswith(
            "WorkflowAlreadyStartedError: the start of workflow 'w' (Waits) was refused: "
        )
        assert WorkflowAlreadyStartedError.__name__ in refused
        assert await runtime.execute(Starter, "Waits", "w", "attach", "allow") == first.run_id
        wrong = await runtime.execute(Starter, "Other", "w", "attach", "allow")
        assert wrong.startswith(
            f"{WorkflowTypeError.__name__}: the start of workflow 'w' (Other) was refused: "
        )
        replaced = await runtime.execute(Starter, "Waits", "w", "replace", "allow")
        assert replaced == (await runtime.ref("w").describe()).run_id != first.run_id
        await runtime.ref("w").terminate()
        assert await runtime.execute(Starter, "Waits", "w", "fail", "attach") == replaced


async def test_what_is_sent_in_the_turn_that_ends_the_run_arrives():
    @workflow.defn
    class Last:
        @workflow.run
        async def run(self) -> str:
            w = workflow.get_external_workflow_handle("w", Waits)
            asyncio.gather(
                w.signal(Waits.tell, "bye"), w.signal(Waits.stop), workflow.start_detached(Other, id="o")
            )
            return "gone"

    async with hosted(MemoryJournal(), Last, Waits, Other) as runtime:
        waits = await runtime.spawn(Waits, id="w")
        assert await runtime.execute(Last) == "gone"
        assert await waits.result() == ["bye"]
        await settled(runtime)
        assert await runtime.ref("o").result() == "other"
