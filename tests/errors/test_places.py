"""Calls in the wrong place: outside a workflow, outside an activity, before the runtime is open, inside a query."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest
from support.bad_input import memory_runtime, nothing_written, refuses

from everact import RetryPolicy, Runtime, activity, workflow
from everact.exceptions import (
    ActivityError,
    ApplicationError,
    CommitUnknownError,
    NotInActivityError,
    NotInWorkflowError,
    QueryFailedError,
    ReadOnlyError,
    RegistrationError,
    RuntimeClosedError,
    UpdateRejectedError,
    WorkflowQuarantinedError,
)
from everact.journal.memory_store import MemoryJournal, MemoryStore


@activity.defn
async def charge(order: str = "tea") -> str:
    return order


@activity.defn
def weigh(order: str = "tea") -> int:
    return len(order)


@workflow.defn
class Waits:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def hint(self) -> None:
        pass

    @workflow.query
    def status(self) -> str:
        return "waiting"

    @workflow.update
    def change(self) -> None:
        pass


# --- outside ----------------------------------------------------------------------------------------------------

OUTSIDE = {
    "execute_activity()": lambda: workflow.execute_activity(charge),
    "execute_activity_method()": lambda: workflow.execute_activity_method(charge),
    "start_activity()": lambda: workflow.start_activity(charge),
    "with_options(...)()": lambda: workflow.with_options(charge)(),
    "info()": workflow.info,
    "now()": workflow.now,
    "time()": workflow.time,
    "uuid4()": workflow.uuid4,
    "random()": workflow.random,
    "cancellation_requested()": workflow.cancellation_requested,
    "all_handlers_finished()": workflow.all_handlers_finished,
}
AWAITED = {
    "sleep()": lambda: workflow.sleep(1),
    "wait_condition()": lambda: workflow.wait_condition(lambda: True),
    "sleep_until()": lambda: workflow.sleep_until(datetime.now(UTC)),
}


@pytest.mark.parametrize("call", OUTSIDE)
async def test_functions_of_workflow_code_outside_of_it(call):
    with refuses(
        NotInWorkflowError, f"workflow.{call} works inside workflow code only", "this code runs outside"
    ):
        OUTSIDE[call]()


@pytest.mark.parametrize("call", AWAITED)
async def test_coroutines_of_workflow_code_outside_of_it(call):
    with refuses(NotInWorkflowError, f"workflow.{call} works inside workflow code only"):
        await AWAITED[call]()


def test_what_may_be_asked_everywhere():
    assert workflow.in_workflow() is False
    assert activity.in_activity() is False
    workflow.logger.debug("outside")
    activity.logger.debug("outside")


async def test_functions_of_workflow_code_inside_an_activity():
    @activity.defn
    async def asks() -> None:
        for call, function in OUTSIDE.items():
            with refuses(NotInWorkflowError, f"workflow.{call} works inside workflow code only"):
                function()
        assert await charge("called") == "called"  # one activity inside another is the plain function

    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self) -> None:
            await asks()

    async with memory_runtime([Calls], [asks]) as runtime:
        await runtime.execute(Calls)


async def test_functions_of_activities_outside_of_them():
    said = []

    def ask():
        for name, function in (("info", activity.info), ("client", activity.client)):
            with refuses(NotInActivityError, f"activity.{name}() works inside a running activity only"):
                function()
        said.append("refused")

    @workflow.defn
    class Asks:
        @workflow.run
        async def run(self) -> None:
            ask()

    ask()
    async with memory_runtime([Asks]) as runtime:
        await runtime.execute(Asks)
    assert said == ["refused", "refused"]


async def test_the_client_inside_a_thread():
    @activity.defn
    def talks() -> None:
        with refuses(
            RuntimeError,
            "activity.client() needs the event loop: make the activity 'async def', or return the value",
        ):
            activity.client()

    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self) -> None:
            await workflow.execute_activity(talks)

    async with memory_runtime([Calls], [talks]) as runtime:
        await runtime.execute(Calls)


async def test_a_plain_activity_called_like_a_function_in_a_workflow():
    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self) -> int:
            with refuses(
                RegistrationError,
                "activity 'weigh' is a plain 'def': inside a workflow call it with "
                "'await workflow.execute_activity(weigh, ...)', it then runs in a thread",
            ):
                weigh("tea")
            return await workflow.execute_activity(weigh, "tea")

    async with memory_runtime([Calls], [weigh]) as runtime:
        assert await runtime.execute(Calls) == 3


# --- the life of a runtime --------------------------------------------------------------------------------------

CALLS = {
    "spawn": lambda runtime: runtime.spawn(Waits),
    "execute": lambda runtime: runtime.execute(Waits),
    "list_workflows": lambda runtime: runtime.list_workflows(),
    "count_workflows": lambda runtime: runtime.count_workflows(),
    "signal": lambda runtime: runtime.ref("order", Waits).signal(Waits.hint),
    "query": lambda runtime: runtime.ref("order", Waits).query(Waits.status),
    "ask": lambda runtime: runtime.ref("order", Waits).ask(Waits.change),
    "result": lambda runtime: runtime.ref("order", Waits).result(),
    "describe": lambda runtime: runtime.ref("order", Waits).describe(),
    "fetch_history": lambda runtime: runtime.ref("order", Waits).fetch_history(),
    "cancel": lambda runtime: runtime.ref("order", Waits).cancel(),
    "terminate": lambda runtime: runtime.ref("order", Waits).terminate(),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_runtime_that_is_not_open(call):
    runtime = memory_runtime([Waits])
    text = "the Runtime is not open: use it inside 'async with Runtime(...) as runtime:'"
    with refuses(RuntimeClosedError, text):
        await CALLS[call](runtime)
    async with runtime:
        await runtime.spawn(Waits, id="order")
    with refuses(RuntimeClosedError, text):
        await CALLS[call](runtime)


async def test_entering_a_runtime_twice():
    runtime = memory_runtime([Waits])
    async with runtime:
        with (
            nothing_written(runtime),
            refuses(RuntimeError, "this Runtime is already entered; make another one"),
        ):
            async with runtime:
                pass
        await (await runtime.spawn(Waits)).terminate()


async def test_leaving_a_runtime_that_is_not_entered():
    with refuses(RuntimeClosedError, "not open"):
        await memory_runtime().__aexit__(None, None, None)


async def test_entering_a_runtime_again_after_leaving(tmp_journal):
    runtime = Runtime(tmp_journal, workflows=[Waits])
    async with runtime:
        await runtime.spawn(Waits, id="order")
    async with runtime:
        assert await runtime.ref("order", Waits).query(Waits.status) == "waiting"


async def test_waiting_callers_when_the_runtime_is_left():
    async with memory_runtime([Waits]) as runtime:
        handle = await runtime.spawn(Waits)
        waiting = asyncio.ensure_future(handle.result())
        await handle.query(Waits.status)
    with refuses(
        RuntimeClosedError, "the Runtime was left; the run is durable and goes on at the next start"
    ):
        await waiting


async def test_a_runtime_used_from_another_thread_or_loop():
    async with memory_runtime([Waits]) as runtime:
        caught = []

        def elsewhere():
            try:
                asyncio.run(runtime.count_workflows())
                asyncio.run(runtime.spawn(Waits, id="elsewhere"))
            except BaseException as error:
                caught.append(error)

        with nothing_written(runtime):
            thread = threading.Thread(target=elsewhere)
            thread.start()
            while thread.is_alive():
                await asyncio.sleep(0)
            thread.join()
        with refuses(RuntimeError, "this Runtime belongs to another event loop"):
            raise caught[0]


# --- inside workflow code ---------------------------------------------------------------------------------------


FORBIDDEN = {
    "to_thread": (
        lambda: asyncio.to_thread(print),
        "asyncio.to_thread",
        "put the blocking call in an activity",
    ),
    "open_connection": (
        lambda: asyncio.open_connection("localhost", 1),
        "asyncio.open_connection",
        "do it in an activity and call workflow.execute_activity()",
    ),
    "start_server": (
        lambda: asyncio.start_server(print, "localhost", 1),
        "asyncio.start_server",
        "do it in an activity",
    ),
    "subprocess": (
        lambda: asyncio.create_subprocess_exec("true"),
        "asyncio.create_subprocess_exec",
        "do it in an activity",
    ),
    "shell": (
        lambda: asyncio.create_subprocess_shell("true"),
        "asyncio.create_subprocess_shell",
        "do it in an activity",
    ),
    "getaddrinfo": (
        lambda: asyncio.get_running_loop().getaddrinfo("localhost", 1),
        "loop.getaddrinfo",
        "do it in an activity",
    ),
    "run_in_executor": (
        lambda: asyncio.get_running_loop().run_in_executor(None, print),
        "loop.run_in_executor",
        "put the blocking call in an activity",
    ),
    "threadsafe": (
        lambda: asyncio.get_running_loop().call_soon_threadsafe(print),
        "loop.call_soon_threadsafe",
        "a signal (handle.signal()) brings values in from outside",
    ),
}


@pytest.mark.parametrize("call", FORBIDDEN)
async def test_a_forbidden_call_quarantines_the_run_and_names_its_replacement(call):
    function, name, advice = FORBIDDEN[call]

    @workflow.defn
    class Forbidden:
        @workflow.run
        async def run(self) -> None:
            await function()

    async with memory_runtime([Forbidden]) as runtime:
        handle = await runtime.spawn(Forbidden)
        with refuses(
            WorkflowQuarantinedError,
            f"workflow '{handle.workflow_id}' (run {handle.run_id}) is quarantined: ForbiddenInWorkflowError: ",
            name,
            "is not available in workflow code: ",
            advice,
        ):
            await handle.result()
        description = await handle.describe()
    assert description.status == "quarantined"
    assert "await function()" in description.failure


async def test_running_a_loop_inside_a_workflow():
    @workflow.defn
    class Runs:
        @workflow.run
        async def run(self) -> None:
            coroutine = workflow.sleep(1)
            try:
                asyncio.run(coroutine)  # everact: allow
            finally:
                coroutine.close()

    async with memory_runtime([Runs]) as runtime:
        with refuses(
            WorkflowQuarantinedError, "asyncio.run is not available in workflow code: await the coroutine"
        ):
            await runtime.execute(Runs)


async def test_an_application_error_of_a_validator_is_a_rejection():
    @workflow.defn
    class Picky:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.update
        def change(self) -> None:
            pass

        @change.validator
        def check(self) -> None:
            raise ApplicationError("never")

    async with memory_runtime([Picky]) as runtime:
        handle = await runtime.spawn(Picky)
        await handle.describe()
        with nothing_written(runtime), refuses(UpdateRejectedError, "rejected: ApplicationError: never"):
            await handle.ask(Picky.change)


async def test_a_runtime_used_inside_workflow_code():
    @workflow.defn
    class Uses:
        @workflow.run
        async def run(self) -> None:
            await runtime.spawn(Waits, id="inside")

    runtime = memory_runtime([Uses, Waits])
    async with runtime:
        with refuses(
            WorkflowQuarantinedError,
            "a Runtime or one of its handles is not available in workflow code: ",
            "use it in an async activity, by activity.client()",
        ):
            await runtime.execute(Uses)
        assert await runtime.count_workflows(workflow_type="Waits") == 0


async def test_commands_in_queries_and_validators():
    def attempt():
        for call in (
            lambda: charge("tea"),
            lambda: workflow.execute_activity(charge, "tea"),
            lambda: workflow.start_activity(charge, "tea"),
            lambda: workflow.with_options(charge)("tea"),
        ):
            with refuses(
                ReadOnlyError,
                "queries and validators may not call activity 'charge': ",
                "use a signal or an update to act",
            ):
                call()
        charge("tea")  # everact: allow[EV203]

    @workflow.defn
    class Acts:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.query
        def look(self) -> None:
            attempt()

        @workflow.update
        def change(self) -> None:
            pass

        @change.validator
        def check(self) -> None:
            attempt()

    async with memory_runtime([Acts], [charge]) as runtime:
        handle = await runtime.spawn(Acts)
        with (
            nothing_written(runtime),
            refuses(
                QueryFailedError,
                "query 'look' raised ReadOnlyError: queries and validators may not call activity",
            ),
        ):
            await handle.query(Acts.look)
        with (
            nothing_written(runtime),
            refuses(
                UpdateRejectedError,
                "the update was rejected: ReadOnlyError: queries and validators may not call",
            ),
        ):
            await handle.ask(Acts.change)


async def test_a_timeout_of_an_activity_names_its_option():
    @activity.defn(
        start_to_close_timeout=timedelta(milliseconds=1), retry_policy=RetryPolicy(maximum_attempts=1)
    )
    async def hangs() -> None:
        await asyncio.Event().wait()

    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self) -> str:
            with refuses(
                ActivityError,
                "activity 'hangs' failed after 1 attempt (maximum_attempts=1 reached)",
                "took longer than start_to_close_timeout=0.001 s",
            ):
                await hangs()
            return "refused"

    async with memory_runtime([Calls], [hangs]) as runtime:
        assert await runtime.execute(Calls) == "refused"


async def test_a_second_runtime_takes_a_memory_journal_over():
    backing = MemoryJournal()
    async with Runtime(MemoryStore(backing), workflows=[Waits]) as first:
        await first.spawn(Waits, id="one")
        async with Runtime(MemoryStore(backing), workflows=[Waits]) as second:
            await second.spawn(Waits, id="two")
            with nothing_written(second), refuses(CommitUnknownError, "append refused"):
                await first.spawn(Waits, id="three")
