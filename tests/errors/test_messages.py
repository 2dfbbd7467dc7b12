"""Messages to what is not there, has ended, or has no such handler: refused, named, and nothing written."""

import pytest
from support.bad_input import memory_runtime, nothing_written, refuses

from everact import workflow
from everact.exceptions import (
    ApplicationError,
    QueryFailedError,
    RequestIdReusedError,
    ResultTimeoutError,
    UnknownHandlerError,
    UpdateRejectedError,
    WorkflowAlreadyStartedError,
    WorkflowClosedError,
    WorkflowFailedError,
    WorkflowNotFoundError,
    WorkflowQuarantinedError,
)


@workflow.defn
class Orders:
    def __init__(self) -> None:
        self.approved = False
        self.names: list[str] = []

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.approved)
        return "done"

    @workflow.signal
    def approve(self) -> None:
        self.approved = True

    @workflow.signal(name="take-note")
    def note(self, text: str) -> None:
        self.names.append(text)

    @workflow.query
    def status(self) -> str:
        return "approved" if self.approved else "waiting"

    @workflow.query
    def broken(self) -> str:
        raise KeyError("no such thing")

    @workflow.update
    def rename(self, to: str) -> int:
        self.names.append(to)
        return len(to)

    @rename.validator
    def check(self, to: str) -> None:
        if not to:
            raise ValueError("a name is not empty")

    def helper(self) -> None:
        pass


@workflow.defn
class Empty:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def stop(self) -> None:
        pass

    @workflow.query
    def depth(self) -> int:
        return 0

    @workflow.update
    def reset(self) -> None:
        pass


KNOWN = {
    "signal": "it has: approve, take-note",
    "query": "it has: broken, status",
    "update": "it has: rename",
}
OTHERS = {"signal": Empty.stop, "query": Empty.depth, "update": Empty.reset}


def sends(handle):
    return {
        "signal": (handle.signal, handle.tell),
        "query": (handle.query,),
        "update": (handle.execute_update, handle.ask),
    }


@pytest.mark.parametrize("kind", KNOWN)
@pytest.mark.parametrize("name", ["aprove", "", "run", "helper", "note", "__init__", "x" * 2000])
async def test_an_unknown_name_is_answered_with_the_known_ones(kind, name):
    async with memory_runtime([Orders]) as runtime:
        handle = await runtime.spawn(Orders)
        for send in sends(handle)[kind]:
            with (
                nothing_written(runtime),
                refuses(
                    UnknownHandlerError, f"workflow Orders has no {kind} {name!r}; ", KNOWN[kind]
                ) as caught,
            ):
                await send(name)
            assert (caught.value.kind, caught.value.name, caught.value.workflow_type) == (
                kind,
                name,
                "Orders",
            )


@pytest.mark.parametrize("kind", KNOWN)
async def test_a_method_of_another_class(kind):
    async with memory_runtime([Orders, Empty]) as runtime:
        handle = await runtime.spawn(Orders)
        for send in sends(handle)[kind]:
            with (
                nothing_written(runtime),
                refuses(
                    UnknownHandlerError,
                    f"workflow Orders has no {kind} {OTHERS[kind].__name__!r}",
                    KNOWN[kind],
                ),
            ):
                await send(OTHERS[kind])


async def test_a_workflow_without_handlers_has_none():
    @workflow.defn
    class Silent:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

    async with memory_runtime([Silent]) as runtime:
        handle = await runtime.spawn(Silent)
        with nothing_written(runtime), refuses(UnknownHandlerError, "has no signal 'stop'; it has: none"):
            await handle.signal("stop")


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("signal", Orders.status),
        ("signal", Orders.rename),
        ("signal", Orders.run),
        ("signal", Orders.helper),
        ("signal", Orders),
        ("signal", 5),
        ("signal", None),
        ("signal", lambda self: None),
        ("query", Orders.approve),
        ("query", Orders.rename),
        ("query", Orders.helper),
        ("update", Orders.approve),
        ("update", Orders.status),
        ("update", Orders.check),
    ],
)
async def test_what_is_no_handler_of_this_kind(kind, method):
    what = getattr(method, "__qualname__", repr(method))
    async with memory_runtime([Orders]) as runtime:
        handle = await runtime.spawn(Orders)
        for send in sends(handle)[kind]:
            with (
                nothing_written(runtime),
                refuses(
                    TypeError,
                    f"{what} is no {kind}: pass a method declared with @workflow.{kind}, or its name",
                ),
            ):
                await send(method)


# --- runs that are not there, or have ended -------------------------------------------------------------------


async def test_a_run_that_does_not_exist():
    async with memory_runtime([Orders]) as runtime:
        handle = runtime.ref("order-42", Orders)
        for call in (
            lambda: handle.signal(Orders.approve),
            lambda: handle.query(Orders.status),
            lambda: handle.ask(Orders.rename, "x"),
            handle.result,
            handle.describe,
            handle.fetch_history,
            handle.cancel,
            handle.terminate,
        ):
            with (
                nothing_written(runtime),
                refuses(
                    WorkflowNotFoundError,
                    "no workflow 'order-42' in this journal: start it first, or check the id",
                ) as caught,
            ):
                await call()
            assert (caught.value.workflow_id, caught.value.run_id) == ("order-42", None)


async def closed_runs(runtime):
    completed = await runtime.spawn(Orders, id="completed")
    await completed.signal(Orders.approve)
    await completed.result()
    terminated = await runtime.spawn(Orders, id="terminated")
    await terminated.terminate("no stock")
    cancelled = await runtime.spawn(Orders, id="cancelled")
    await cancelled.cancel()
    with pytest.raises(Exception, match="was cancelled"):
        await cancelled.result()
    return completed, terminated, cancelled


async def test_a_run_that_has_ended_takes_no_messages():
    async with memory_runtime([Orders]) as runtime:
        for handle in await closed_runs(runtime):
            status = handle.workflow_id
            for call in (
                lambda: handle.signal(Orders.approve),
                lambda: handle.signal("approve", request_id="again"),
                lambda: handle.ask(Orders.rename, "x"),
                handle.cancel,
                handle.terminate,
            ):
                with (
                    nothing_written(runtime),
                    refuses(
                        WorkflowClosedError,
                        f"workflow '{status}' (run {handle.run_id}) is {status}: it takes no more messages",
                    ) as caught,
                ):
                    await call()
                assert caught.value.status == status
            with nothing_written(runtime):
                assert await handle.query(Orders.status) in ("approved", "waiting")
            # What is wrong with the message itself is said first.
            with nothing_written(runtime), refuses(UnknownHandlerError, "has no signal 'aprove'"):
                await handle.signal("aprove")


async def test_an_id_that_is_taken():
    async with memory_runtime([Orders]) as runtime:
        handle = await runtime.spawn(Orders, id="running")
        with (
            nothing_written(runtime),
            refuses(
                WorkflowAlreadyStartedError,
                f"workflow 'running' already exists (run {handle.run_id}, running) and if_running refuses it",
                "nothing was started",
                "Other choices: if_running='attach', 'replace'",
            ),
        ):
            await runtime.spawn(Orders, id="running")
        for handle in await closed_runs(runtime):
            name = handle.workflow_id
            with (
                nothing_written(runtime),
                refuses(
                    WorkflowAlreadyStartedError,
                    f"workflow '{name}' already exists (run {handle.run_id}, {name}) and if_closed refuses it",
                    "Other choices: if_closed='allow', 'attach', 'allow_if_failed'",
                ),
            ):
                await runtime.spawn(Orders, id=name, if_closed="refuse")
        with (
            nothing_written(runtime),
            refuses(WorkflowAlreadyStartedError, "'completed'", "Other choices: if_closed='allow', 'attach'"),
        ):
            await runtime.spawn(Orders, id="completed", if_closed="allow_if_failed")


async def test_a_request_id_that_was_used_for_something_else():
    async with memory_runtime([Orders]) as runtime:
        handle = await runtime.spawn(Orders, id="order", request_id="start")
        await handle.signal("take-note", "a", request_id="r-1")
        text = (
            "request id 'r-1' was already used on workflow 'order' with another name or other arguments",
            "a repeat must be equal, a new message needs a new id",
        )
        with nothing_written(runtime):
            await handle.signal("take-note", "a", request_id="r-1")
            with refuses(RequestIdReusedError, *text):
                await handle.signal("take-note", "b", request_id="r-1")
            with refuses(RequestIdReusedError, *text):
                await handle.signal(Orders.approve, request_id="r-1")
            with refuses(RequestIdReusedError, *text):
                await handle.ask(Orders.rename, "a", request_id="r-1")


# --- answers ----------------------------------------------------------------------------------------------------


async def test_a_result_that_is_not_there_in_time_says_what_the_run_waits_for():
    async with memory_runtime([Orders]) as runtime:
        handle = await runtime.spawn(Orders, id="order")
        await handle.query(Orders.status)
        with (
            nothing_written(runtime),
            refuses(
                ResultTimeoutError,
                "workflow 'order' had no result within 0 s; it goes on (waiting on: condition at test_messages.py:",
            ),
        ):
            await handle.result(timeout=0)
        with refuses(ResultTimeoutError, "within 0.001 s"):
            await handle.result(timeout=0.001)
        await handle.signal(Orders.approve)
        assert await handle.result(timeout=60) == "done"


@workflow.defn
class Breaks:
    @workflow.run
    async def run(self) -> None:
        raise KeyError("tea")


async def test_a_result_of_a_run_that_stands_still_says_why():
    async with memory_runtime([Breaks, Orders]) as runtime:
        handle = await runtime.spawn(Breaks, id="order")
        with pytest.raises(WorkflowQuarantinedError):
            await handle.result()
        with refuses(
            ResultTimeoutError,
            "workflow 'order' had no result within 0 s; it is quarantined (waiting on: release): KeyError: 'tea'",
        ):
            await handle.result(timeout=0, on_stall="wait")
        paused = await runtime.spawn(Orders, id="paused")
        await paused.pause()
        with refuses(ResultTimeoutError, "within 0 s; it is paused (waiting on: resume"):
            await paused.result(timeout=0)


async def test_a_query_that_raises():
    async with memory_runtime([Orders]) as runtime:
        handle = await runtime.spawn(Orders)
        with (
            nothing_written(runtime),
            refuses(QueryFailedError, "query 'broken' raised KeyError: 'no such thing'") as caught,
        ):
            await handle.query(Orders.broken)
        assert isinstance(caught.value.__cause__, KeyError)


async def test_an_update_that_its_validator_refuses():
    async with memory_runtime([Orders]) as runtime:
        handle = await runtime.spawn(Orders)
        await handle.query(Orders.status)
        with (
            nothing_written(runtime),
            refuses(
                UpdateRejectedError, "the update was rejected: ValueError: a name is not empty"
            ) as caught,
        ):
            await handle.ask(Orders.rename, "")
        assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("reason", [5, None, b"x", "\ud800"])
async def test_a_reason_that_cannot_be_stored(reason):
    async with memory_runtime([Orders]) as runtime:
        handle = await runtime.spawn(Orders)
        for call in (handle.cancel, handle.terminate):
            kind = ValueError if isinstance(reason, str) else TypeError
            with nothing_written(runtime), refuses(kind, "the reason ", repr(reason)):
                await call(reason)


async def test_texts_with_lone_surrogates_are_refused():
    async with memory_runtime([Orders]) as runtime:
        handle = await runtime.spawn(Orders)
        for send in (handle.signal, handle.query, handle.ask):
            with nothing_written(runtime), refuses(ValueError, "not valid Unicode"):
                await send("\ud800")


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ApplicationError("bad \ud800 text", {"detail": "\ud800"}, type="Od\ud800d"), "Od?d: bad ? text"),
        (ApplicationError(5), "ApplicationError: 5"),
        (ApplicationError("x", Unprintable(), lambda: 1), "ApplicationError: x"),
        (ApplicationError("x" * 1_000_000), "characters left out"),
        (TimeoutError("\ud800"), "TimeoutError: ?"),
        (ExceptionGroup("\ud800", [ApplicationError("\ud800")]), "ExceptionGroup: ?"),
    ],
)
async def test_a_failure_whose_parts_have_no_stored_form_still_ends_the_run(error, text):
    @workflow.defn
    class Fails:
        @workflow.run
        async def run(self) -> None:
            raise error

    async with memory_runtime([Fails]) as runtime:
        with refuses(WorkflowFailedError, text):
            await runtime.execute(Fails)


def test_an_application_error_checks_what_it_is_made_of():
    with refuses(TypeError, "the type of an ApplicationError must be a str, not <class 'ValueError'>"):
        ApplicationError("x", type=ValueError)
    with refuses(TypeError, "next_retry_delay must be a timedelta or a number of seconds, not '5'"):
        ApplicationError("x", next_retry_delay="5")
    with refuses(ValueError, "next_retry_delay must be between 0 and 100 years, not -1"):
        ApplicationError("x", next_retry_delay=-1)
