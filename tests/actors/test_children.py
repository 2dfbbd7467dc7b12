"""Child workflows: started once, their end told once."""

import asyncio

import pytest
from support.child_workflows import Double, Fails, Waits, status
from support.hosting import hosted, kinds, settled

from everact import workflow
from everact.exceptions import (
    ApplicationError,
    ChildWorkflowError,
    UnknownHandlerError,
    WorkflowAlreadyStartedError,
    WorkflowCancelledError,
    WorkflowClosedError,
    WorkflowFailedError,
    WorkflowNotRegisteredError,
    WorkflowTerminatedError,
)
from everact.journal.memory_store import MemoryJournal


async def test_a_parent_gets_the_result_of_its_child():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self, n: int) -> int:
            return await workflow.execute_child_workflow(Double, n) + 1

    async with hosted(MemoryJournal(), Parent, Double) as runtime:
        assert await runtime.execute(Parent, 20, id="p") == 41
        history = await runtime.ref("p").fetch_history()
        assert kinds(history) == [
            "WorkflowStarted",
            "ChildScheduled",
            "ChildCompleted",
            "WorkflowCompleted",
        ]
        assert await runtime.count_workflows(workflow_type="Double", status="completed") == 1
        (child,) = await runtime.list_workflows(workflow_type="Double")
        parent = runtime.ref("p")
        assert child.workflow_id == f"{(await parent.describe()).run_id}-1"


async def test_many_children_at_once():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self, n: int) -> int:
            return sum(await asyncio.gather(*(workflow.execute_child_workflow(Double, i) for i in range(n))))

    async with hosted(MemoryJournal(), Parent, Double) as runtime:
        assert await runtime.execute(Parent, 50) == 2 * sum(range(50))


async def test_by_run_method_and_by_name():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> list[int]:
            one = await workflow.execute_child_workflow(Double.run, 1)
            two = await workflow.execute_child_workflow("Double", 2)
            three = await workflow.execute_child_workflow("Double", 3, result_type=float)
            assert type(three) is float
            return [one, two, int(three)]

    async with hosted(MemoryJournal(), Parent, Double) as runtime:
        assert await runtime.execute(Parent) == [2, 4, 6]


async def test_a_failure_comes_with_its_chain_of_causes():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> str:
            try:
                await workflow.execute_child_workflow(Fails, "no luck", id="kid")
            except ChildWorkflowError as error:
                assert error.status == "failed"
                assert error.workflow_id == "kid"
                assert error.caused_by("Broken")
                assert isinstance(error.__cause__, ApplicationError)
                assert error.__cause__.details == (7,)
                assert str(error) == "child workflow 'kid' (Fails) failed: Broken: no luck"
            await workflow.execute_child_workflow(Fails, "again", id="kid")
            return "never"

    @workflow.defn
    class Grandparent:
        @workflow.run
        async def run(self) -> None:
            await workflow.execute_child_workflow(Parent, id="middle")

    async with hosted(MemoryJournal(), Grandparent, Parent, Fails) as runtime:
        with pytest.raises(WorkflowFailedError) as caught:
            await runtime.execute(Grandparent)
        top = caught.value.__cause__
        assert isinstance(top, ChildWorkflowError)
        assert (top.workflow_id, top.workflow_type, top.status) == ("middle", "Parent", "failed")
        assert top.caused_by("Broken")
        middle = top.__cause__
        assert isinstance(middle, ChildWorkflowError)
        assert isinstance(middle.__cause__, ApplicationError)


# --- handles


async def test_a_handle_sends_signals_in_order_and_gives_the_result():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> list[str]:
            child = await workflow.start_child_workflow(Waits, id="kid")
            assert (child.id, child.workflow_type, child.done()) == ("kid", "Waits", False)
            await child.signal(Waits.tell, "one")
            await asyncio.gather(child.signal(Waits.tell, "two"), child.signal("tell", "three"))
            await child.signal(Waits.stop)
            assert await child.result() == await child
            assert child.done()
            return await child

    async with hosted(MemoryJournal(), Parent, Waits) as runtime:
        assert await runtime.execute(Parent, id="p") == ["one", "two", "three"]
        history = await runtime.ref("p").fetch_history()
        assert kinds(history).count("MessageDelivered") == 4
        started = next(e.event for e in history if e.kind == "ChildStarted")
        assert started.run_id == (await runtime.ref("kid").describe()).run_id


async def test_cancel_of_a_child_by_its_handle_is_asked_for_once_and_has_its_reason():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> str:
            child = await workflow.start_child_workflow(Waits, id="kid", cancellation_type="abandon")
            child.cancel("enough")
            child.cancel("really")
            try:
                await child
            except ChildWorkflowError as error:
                child.cancel("over")
                assert error.status == "cancelled"
                assert error.caused_by(WorkflowCancelledError)
                return str(error)
            return "never"

    async with hosted(MemoryJournal(), Parent, Waits) as runtime:
        text = await runtime.execute(Parent, id="p")
        assert text == "child workflow 'kid' (Waits) was cancelled: enough"
        assert kinds(await runtime.ref("p").fetch_history()).count("ChildCancelRequested") == 1
        (request,) = [
            e.event for e in await runtime.ref("kid").fetch_history() if e.kind == "CancelRequested"
        ]
        assert request.reason == "enough"


async def test_a_child_that_was_terminated():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> str:
            try:
                await workflow.execute_child_workflow(Waits, id="kid")
            except ChildWorkflowError as error:
                assert error.caused_by(WorkflowTerminatedError)
                assert isinstance(error.__cause__, WorkflowTerminatedError)
                return f"{error.status}: {error}"
            return "never"

    async with hosted(MemoryJournal(), Parent, Waits) as runtime:
        parent = await runtime.spawn(Parent)
        await settled(runtime)
        await runtime.ref("kid").terminate("away")
        assert await parent.result() == ("terminated: child workflow 'kid' (Waits) was terminated: away")


async def test_a_signal_to_a_child_that_has_ended_is_refused():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> str:
            child = await workflow.start_child_workflow(Double, 1, id="kid")
            await child
            try:
                await child.signal("anything")
            except UnknownHandlerError:  # at the call: its type has no signal
                pass
            waits = await workflow.start_child_workflow(Waits, id="waits")
            await waits.signal(Waits.stop)
            await waits
            try:
                await waits.signal(Waits.tell, "late")
            except workflow_errors as error:
                assert error.caused_by(WorkflowClosedError)
                return str(error)
            return "never"

    from everact.exceptions import ExternalWorkflowError as workflow_errors

    async with hosted(MemoryJournal(), Parent, Double, Waits) as runtime:
        text = await runtime.execute(Parent)
        assert text.startswith("signal 'tell' to workflow 'waits' was refused: workflow 'waits' (run ")


# --- starts that are refused


async def test_an_id_that_is_taken_refuses_the_child_and_the_words_decide():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self, if_running: str, if_closed: str) -> str:
            try:
                child = await workflow.start_child_workflow(
                    Waits, id="taken", if_running=if_running, if_closed=if_closed
                )
            except ChildWorkflowError as error:
                assert error.status == "not started"
                assert isinstance(error.__cause__, WorkflowAlreadyStartedError)
                assert error.caused_by(WorkflowAlreadyStartedError)
                return str(error)
            return child.run_id

    async with hosted(MemoryJournal(), Parent, Waits) as runtime:
        first = await runtime.spawn(Waits, id="taken")
        refused = await runtime.execute(Parent, "fail", "allow")
        assert refused.startswith(
            f"child workflow 'taken' (Waits) was not started: workflow 'taken' already exists (run {first.run_id}"
        )
        replaced = await runtime.execute(Parent, "replace", "allow")
        with pytest.raises(WorkflowTerminatedError):
            await first.result()
        assert await status(runtime, "taken") == "terminated"  # its parent has ended
        assert (await runtime.ref("taken").describe()).run_id == replaced
        assert "was not started" in await runtime.execute(Parent, "fail", "refuse")
        assert "was not started" not in await runtime.execute(Parent, "fail", "allow_if_failed")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"id": ""}, "a workflow id must not be empty"),
        ({"if_running": "attach"}, "if_running='attach' is not for children"),
        ({"if_closed": "attach"}, "if_closed='attach' is not for children"),
        ({"if_closed": "perhaps"}, "if_closed must be one of 'allow'"),
        (
            {"parent_close_policy": "kill"},
            "parent_close_policy must be one of 'terminate', 'request_cancel', 'abandon'",
        ),
        ({"cancellation_type": None}, "cancellation_type must be one of 'try_cancel'"),
        ({"timeout": 3}, "unknown child workflow option 'timeout'; known: "),
        ({"memo": 7}, "memo must be a dict"),
    ],
)
async def test_bad_options_are_refused_at_the_call(options, text):
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> str:
            try:
                workflow.execute_child_workflow(Double, 1, **options)  # everact: allow[EV203]
            except (TypeError, ValueError) as error:
                return str(error)
            return "never"

    async with hosted(MemoryJournal(), Parent, Double) as runtime:
        assert (await runtime.execute(Parent, id="p")).startswith(text)
        assert "ChildScheduled" not in kinds(await runtime.ref("p").fetch_history())


async def test_a_type_that_is_not_registered_is_refused_at_the_call():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> str:
            texts = []
            for kind in (Double, Double.run, "Double"):
                try:
                    workflow.start_child_workflow(kind, 1)  # everact: allow[EV203]
                except WorkflowNotRegisteredError as error:
                    texts.append(str(error))
            assert len(set(texts)) == 1
            return texts[0]

    async with hosted(MemoryJournal(), Parent) as runtime:
        assert (await runtime.execute(Parent)).startswith(
            "workflow type 'Double' is not registered with this runtime; known: Parent."
        )


async def test_a_child_whose_type_is_gone_at_the_next_start_is_held_until_it_is_there():
    journal = MemoryJournal()

    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> int:
            return await workflow.execute_child_workflow(Double, 4, id="kid")

    async with hosted(journal, Parent, Double) as runtime:
        runtime._shard.courier.stop()
        await runtime.spawn(Parent, id="p")
        await settled(runtime)
    async with hosted(journal, Parent) as runtime:
        await settled(runtime)
        assert await status(runtime, "kid") == "held"
    async with hosted(journal, Parent, Double) as runtime:
        assert await runtime.ref("p").result() == 8
