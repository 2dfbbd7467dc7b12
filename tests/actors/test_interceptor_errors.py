"""What goes wrong around interceptors, runs that are under way, and who else goes through them."""

import asyncio
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from support.codecs import Wrapping
from support.hosting import hosted, kinds, settled, until
from support.tenants import Everything, Order, Tenant, as_tenant, beats, tenant, whose, whose_in_a_thread

from everact import ApplicationError, RetryPolicy, activity, blocking, workflow
from everact.exceptions import (
    QueryFailedError,
    UpdateRejectedError,
    WorkflowFailedError,
    WorkflowHeldError,
    WorkflowQuarantinedError,
)
from everact.interceptors import (
    ActivityInboundInterceptor,
    ClientOutboundInterceptor,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)
from everact.journal.memory_store import MemoryJournal
from everact.payloads import Payload


@pytest.fixture(params=["plain", "codec"])
def codecs(request):
    return [] if request.param == "plain" else [Wrapping()]


# --- errors


def raising(method, error):
    async def raises(self, input):
        raise error

    def raises_plainly(self, input):
        raise error

    plain = method in ("handle_query", "handle_update_validator", "start_activity")
    inbound = type("Raising", (WorkflowInboundInterceptor,), {method: raises_plainly if plain else raises})

    class Raises(Interceptor):
        def intercept_workflow(self, next):
            return inbound(next)

    return Raises()


@pytest.mark.parametrize(
    ("error", "expected"),
    [(ApplicationError("no"), WorkflowFailedError), (KeyError("bug"), WorkflowQuarantinedError)],
)
async def test_an_error_around_main_is_main_s(error, expected):
    chain = [raising("execute_workflow", error)]
    async with hosted(MemoryJournal(), Everything, activities=[beats], interceptors=chain) as runtime:
        with pytest.raises(expected):
            await runtime.execute(Everything.run)


async def test_errors_around_messages_are_their_handlers():
    error = ApplicationError("intercepted")
    for method in ("handle_signal", "handle_query", "handle_update_validator"):
        async with hosted(
            MemoryJournal(), Everything, activities=[beats], interceptors=[raising(method, error)]
        ) as runtime:
            handle = await runtime.spawn(Everything.run)
            if method == "handle_signal":
                await handle.signal(Everything.end)
                (letter,) = (await handle.describe()).dead_letters
                assert "intercepted" in letter.reason
            elif method == "handle_query":
                with pytest.raises(QueryFailedError, match="intercepted"):
                    await handle.query(Everything.look)
            else:
                with pytest.raises(UpdateRejectedError, match="intercepted"):
                    await handle.execute_update(Everything.add, 1)
            assert (await handle.describe()).status == "running"


async def test_an_error_while_the_chain_is_made_is_as_one_in_init():
    class Broken(Interceptor):
        def intercept_workflow(self, next):
            raise ApplicationError("no chain")

    async with hosted(MemoryJournal(), Everything, interceptors=[Broken()]) as runtime:
        with pytest.raises(WorkflowFailedError, match="no chain"):
            await runtime.execute(Everything.run)


async def test_errors_around_activities_are_the_attempts():
    class Inbound(ActivityInboundInterceptor):
        async def execute_activity(self, input):
            if activity.info().attempt < 3:
                raise ApplicationError("not the first times")
            return await self.next.execute_activity(input)

    class Fails(Interceptor):
        def intercept_activity(self, next):
            return Inbound(next)

    quick = RetryPolicy(initial_interval=timedelta(milliseconds=1))

    @activity.defn(retry_policy=quick)
    async def act() -> str:
        return f"attempt {activity.info().attempt}"

    @activity.defn(retry_policy=quick)
    def in_a_thread() -> str:
        time.sleep(0)
        return f"thread attempt {activity.info().attempt}"

    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self) -> list[str]:
            return [await act(), await workflow.execute_activity(in_a_thread)]

    async with hosted(
        MemoryJournal(), Calls, activities=[act, in_a_thread], interceptors=[Fails()]
    ) as runtime:
        assert await runtime.execute(Calls.run) == ["attempt 3", "thread attempt 3"]


async def test_an_interceptor_may_await_around_async_activities_and_not_in_threads():
    class Inbound(ActivityInboundInterceptor):
        async def execute_activity(self, input):
            await asyncio.sleep(0)
            return await self.next.execute_activity(input)

    class Waits(Interceptor):
        def intercept_activity(self, next):
            return Inbound(next)

    once = RetryPolicy(maximum_attempts=1)

    @activity.defn(retry_policy=once)
    async def act() -> str:
        return "fine"

    @activity.defn(retry_policy=once)
    def in_a_thread() -> str:
        return "never"

    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self, threads: bool) -> str:
            return await (workflow.execute_activity(in_a_thread) if threads else act())

    async with hosted(
        MemoryJournal(), Calls, activities=[act, in_a_thread], interceptors=[Waits()]
    ) as runtime:
        assert await runtime.execute(Calls.run, False) == "fine"
        with pytest.raises(WorkflowFailedError) as caught:
            await runtime.execute(Calls.run, True)
        assert "may await nothing but the next interceptor's" in str(caught.value.__cause__.__cause__)


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"tenant": "ann"}, r"header 'tenant' must be a Payload, not 'ann': make one with payload_converter"),
        ({"": Payload("null", b"")}, "the name of a header must not be empty"),
        (["tenant"], "headers must be a dict of names and payloads"),
    ],
)
async def test_bad_headers_are_refused_at_the_call(headers, says):
    class Bad(Interceptor):
        def intercept_client(self, next):
            class Sends(ClientOutboundInterceptor):
                async def start_workflow(self, input):
                    return await self.next.start_workflow(replace(input, headers=headers))

            return Sends(next)

    async with hosted(MemoryJournal(), Everything, interceptors=[Bad()]) as runtime:
        with pytest.raises((TypeError, ValueError), match=says):
            await runtime.spawn(Everything.run)
        assert await runtime.count_workflows() == 0


async def test_a_timer_that_cannot_be_is_refused_to_the_interceptor():
    said = []

    class Outbound(WorkflowOutboundInterceptor):
        def start_timer(self, input):
            try:
                return self.next.start_timer(replace(input, duration=timedelta(seconds=-1)))
            except ValueError as error:
                said.append(str(error))
                return self.next.start_timer(input)

    class Inbound(WorkflowInboundInterceptor):
        def init(self, outbound):
            self.next.init(Outbound(outbound))

    class Breaks(Interceptor):
        def intercept_workflow(self, next):
            return Inbound(next)

    @workflow.defn
    class Sleeps:
        @workflow.run
        async def run(self) -> str:
            await workflow.sleep(0.001)
            return "slept"

    async with hosted(MemoryJournal(), Sleeps, interceptors=[Breaks()]) as runtime:
        assert await runtime.execute(Sleeps.run) == "slept"
    assert "a timer must be between 0 and 100 years, not" in said[0]


def test_only_interceptors_are_taken():
    with pytest.raises(TypeError, match="interceptors must be a list of Interceptor objects, not <class"):
        hosted(MemoryJournal(), interceptors=[Tenant])
    with pytest.raises(TypeError, match="interceptors must be a list"):
        hosted(MemoryJournal(), interceptors="tenant")


def test_an_interceptor_that_is_in_no_place_is_refused():
    class Elsewhere(Interceptor):
        def workflow_interceptor_class(self, input):
            return None

    with pytest.raises(
        TypeError,
        match="Elsewhere overrides none of intercept_client, intercept_workflow, intercept_activity",
    ):
        hosted(MemoryJournal(), interceptors=[Elsewhere()])


def giving_nothing(place):
    return type("Forgets", (Interceptor,), {place: lambda self, next: None})()


async def test_an_interceptor_that_gives_no_link_is_named():
    with pytest.raises(
        TypeError, match=r"Forgets.intercept_client must return a ClientOutboundInterceptor, next or"
    ):
        hosted(MemoryJournal(), interceptors=[giving_nothing("intercept_client")])
    async with hosted(
        MemoryJournal(), Everything, interceptors=[giving_nothing("intercept_workflow")]
    ) as runtime:
        with pytest.raises(
            WorkflowQuarantinedError,
            match="Forgets.intercept_workflow must return a WorkflowInboundInterceptor",
        ):
            await runtime.execute(Everything.run)

    @activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
    async def idle() -> None:
        pass

    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self) -> None:
            await idle()

    chain = [giving_nothing("intercept_activity")]
    async with hosted(MemoryJournal(), Calls, activities=[idle], interceptors=chain) as runtime:
        with pytest.raises(
            WorkflowFailedError, match="Forgets.intercept_activity must return an? ActivityInboundInterceptor"
        ):
            await runtime.execute(Calls)


@pytest.mark.parametrize(
    ("base", "name"),
    [
        (WorkflowInboundInterceptor, "handle_query"),
        (WorkflowOutboundInterceptor, "start_activity"),
        (ClientOutboundInterceptor, "list_workflows"),
        (ActivityInboundInterceptor, "init"),
        (Interceptor, "intercept_workflow"),
    ],
)
def test_what_is_plain_stays_plain(base, name):
    async def waits(self, input):
        pass

    with pytest.raises(TypeError, match=f"Sub.{name} must be a plain 'def', as that of its base is"):
        type("Sub", (base,), {name: waits})
    middle = type("Middle", (base,), {"of_its_own": waits})
    with pytest.raises(TypeError, match="must be a plain 'def'"):
        type("Sub", (middle,), {name: waits})


# --- replay


async def test_an_interceptor_that_decides_otherwise_is_found_out():
    class Extra(WorkflowInboundInterceptor):
        async def execute_workflow(self, input):
            await asyncio.sleep(0.001)
            return await self.next.execute_workflow(input)

    class Adds(Interceptor):
        def intercept_workflow(self, next):
            return Extra(next)

    journal = MemoryJournal()
    async with hosted(journal, Everything, activities=[beats]) as runtime:
        handle = await runtime.spawn(Everything.run, id="e")
        await until(lambda: runtime._shard.find("e").state.waiting)
    async with hosted(journal, Everything, activities=[beats], interceptors=[Adds()]) as runtime:
        with pytest.raises(WorkflowHeldError, match="a timer of 0.001 s"):
            await runtime.ref("e", Everything).query(Everything.look)
    async with hosted(journal, Everything, activities=[beats], interceptors=[Tenant()]) as runtime:
        handle = runtime.ref("e", Everything)  # one that decides nothing may come and go
        await handle.signal(Everything.end)
        assert await handle.result() == "over"


async def test_handlers_that_a_run_sets_are_intercepted_too():
    @workflow.defn
    class Sets:
        def __init__(self) -> None:
            self.seen: list[str] = []

        @workflow.run
        async def run(self) -> list[str]:
            workflow.set_signal_handler("own", self.own)
            workflow.set_signal_handler(None, self.other)
            await workflow.wait_condition(lambda: len(self.seen) == 2)
            return self.seen

        def own(self, text: str) -> None:
            self.seen.append(f"{text} {tenant.get()}")

        def other(self, name: str, args: list[str]) -> None:
            self.seen.append(f"{name} {args} {tenant.get()}")

    async with hosted(MemoryJournal(), Sets, interceptors=[Tenant()]) as runtime:
        handle = await runtime.spawn(Sets.run)
        await as_tenant("ann", handle.signal, "own", "hello")
        await as_tenant("bea", handle.signal, "some", 1)
        assert await handle.result() == ["hello ann", "some [1] bea"]


async def test_a_never_awaited_activity_still_names_its_line():
    @workflow.defn
    class Forgets:
        @workflow.run
        async def run(self) -> str:
            whose(1)
            return "end"

    async with hosted(MemoryJournal(), Forgets, activities=[whose], interceptors=[Tenant()]) as runtime:
        with pytest.warns(RuntimeWarning, match="never awaited") as caught:
            assert await runtime.execute(Forgets.run) == "end"
        assert {warning.filename for warning in caught} == {__file__}


async def test_without_interceptors_nothing_is_in_the_way():
    from everact.actors.messenger import Messenger
    from everact.actors.workflow_instance import WorkflowInstance

    async with hosted(MemoryJournal(), Everything, activities=[beats]) as runtime:
        handle = await runtime.spawn(Everything.run, id="e")
        await settled(runtime)
        assert type(handle._messenger) is Messenger
        actor = runtime._shard.find("e")
        assert actor.instance is None or type(actor.instance) is WorkflowInstance
        assert kinds(await handle.fetch_history())[0] == "WorkflowStarted"


async def test_steps_and_compensations_of_sagas_carry_headers_and_keep_their_idempotency_key(codecs):
    keys = []
    left = [2]

    @activity.defn
    async def book(what: str) -> str:
        return f"{what} for {tenant.get()}"

    @activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
    async def unbook(what: str) -> None:
        keys.append((what, tenant.get(), activity.info().idempotency_key))
        if left[0]:
            left[0] -= 1
            raise ApplicationError("not yet")

    @workflow.defn
    class Trip:
        @workflow.run
        async def run(self) -> None:
            async with workflow.saga(on_compensation_failure="escalate") as saga:
                await saga.run(book, "hotel", compensate=unbook)
                raise ApplicationError("no flight")

    options = {"activities": [book, unbook], "interceptors": [Tenant()], "codecs": codecs}
    async with hosted(MemoryJournal(), Trip, **options) as runtime:
        handle = await as_tenant("ann", runtime.spawn, Trip.run, id="t")
        for _ in range(2):
            await until(lambda: runtime._shard.find("t").is_stalled)
            await handle.release()
            await settled(runtime)
        with pytest.raises(WorkflowFailedError, match="no flight"):
            await handle.result(on_stall="wait")
    assert len(keys) == 3
    assert {(what, who) for what, who, _ in keys} == {("hotel for ann", "ann")}
    assert len({key for *_, key in keys}) == 1


def test_the_context_of_a_blocking_caller_is_seen(tmp_path):
    path = tmp_path / "journal"
    with blocking.Runtime(
        path, workflows=[Order], activities=[whose, whose_in_a_thread], interceptors=[Tenant()]
    ) as runtime:
        tenant.set("ann")
        order = runtime.spawn(Order, 1)
        with blocking.Client.connect(f"unix:{path}", interceptors=[Tenant()]) as client:
            tenant.set("bea")
            client.ref(order.workflow_id, Order).signal(Order.end)
        assert set(order.result()) == {"main ann", "1 of ann", "1 of ann in a thread", "end bea"}
