"""Interceptors: chains around workflows, activities and clients, and headers that travel with each call."""

import asyncio
import time
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta

import pytest
from support.clock import ManualClock
from support.codecs import Wrapping
from support.hosting import commands, hosted, kinds, settled, tick, until

from everact import ApplicationError, Client, RetryPolicy, activity, workflow
from everact.exceptions import (
    QueryFailedError,
    UpdateRejectedError,
    WorkflowFailedError,
    WorkflowHeldError,
    WorkflowQuarantinedError,
)
from everact.interceptors import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ClientOutboundInterceptor,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)
from everact.journal.memory_store import MemoryJournal
from everact.payloads import Payload, PayloadConverter

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
converter = PayloadConverter()


# --- a context that goes everywhere


def with_tenant(call):
    return replace(call, headers={**call.headers, "tenant": converter.encode(tenant.get())})


class TenantClient(ClientOutboundInterceptor):
    async def start_workflow(self, input):
        return await self.next.start_workflow(with_tenant(input))

    async def signal_workflow(self, input):
        await self.next.signal_workflow(with_tenant(input))

    async def query_workflow(self, input):
        return await self.next.query_workflow(with_tenant(input))

    async def start_workflow_update(self, input):
        return await self.next.start_workflow_update(with_tenant(input))


def take(headers):
    if "tenant" in headers:
        tenant.set(converter.decode(headers["tenant"], str))


class TenantOutbound(WorkflowOutboundInterceptor):
    def start_activity(self, input):
        return self.next.start_activity(with_tenant(input))


class TenantInbound(WorkflowInboundInterceptor):
    def init(self, outbound):
        self.next.init(TenantOutbound(outbound))

    async def execute_workflow(self, input):
        take(input.headers)
        return await self.next.execute_workflow(input)

    async def handle_signal(self, input):
        take(input.headers)
        await self.next.handle_signal(input)

    def handle_query(self, input):
        take(input.headers)
        return self.next.handle_query(input)

    def handle_update_validator(self, input):
        take(input.headers)
        self.next.handle_update_validator(input)

    async def handle_update_handler(self, input):
        take(input.headers)
        return await self.next.handle_update_handler(input)


class TenantActivity(ActivityInboundInterceptor):
    async def execute_activity(self, input):
        take(input.headers)
        return await self.next.execute_activity(input)


class Tenant(Interceptor):
    def intercept_client(self, next):
        return TenantClient(next)

    def intercept_workflow(self, next):
        return TenantInbound(next)

    def intercept_activity(self, next):
        return TenantActivity(next)


@activity.defn
async def whose(n: int) -> str:
    return f"{n} of {tenant.get()}"


@activity.defn
def whose_in_a_thread(n: int) -> str:
    return f"{n} of {tenant.get()} in a thread"


@workflow.defn
class Order:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.over = False

    @workflow.run
    async def run(self, n: int) -> list[str]:
        self.seen.append(f"main {tenant.get()}")
        self.seen.append(await whose(n))
        self.seen.append(await workflow.execute_activity(whose_in_a_thread, n))
        await workflow.wait_condition(lambda: self.over)
        return self.seen

    @workflow.signal
    def note(self, text: str) -> None:
        self.seen.append(f"{text} {tenant.get()}")

    @workflow.signal
    async def end(self) -> None:
        await asyncio.sleep(0)
        self.seen.append(f"end {tenant.get()}")
        self.over = True

    @workflow.update
    def change(self, n: int) -> str:
        return f"changed {n} for {tenant.get()}"

    @change.validator
    def check(self, n: int) -> None:
        if n < 0:
            raise ValueError(f"not below zero, {tenant.get()}")

    @workflow.query
    def look(self) -> str:
        return f"{len(self.seen)} for {tenant.get()}"


@pytest.fixture(params=["plain", "codec"])
def codecs(request):
    return [] if request.param == "plain" else [Wrapping()]


async def as_tenant(name, call, *args, **options):
    async def named():
        tenant.set(name)
        return await call(*args, **options)

    return await asyncio.create_task(named())


async def talk(handle):
    await as_tenant("bea", handle.signal, Order.note, "hello")
    assert await as_tenant("cid", handle.execute_update, Order.change, 3) == "changed 3 for cid"
    with pytest.raises(UpdateRejectedError, match="not below zero, dan"):
        await as_tenant("dan", handle.execute_update, Order.change, -1)
    assert (await as_tenant("eve", handle.query, Order.look)).endswith("for eve")
    await as_tenant("fay", handle.signal, Order.end)


SEEN = {"main ann", "7 of ann", "7 of ann in a thread", "hello bea", "end fay"}


async def test_a_header_goes_from_the_client_to_workflows_and_activities(codecs):
    journal = MemoryJournal()
    options = {"activities": [whose, whose_in_a_thread], "interceptors": [Tenant()], "codecs": codecs}
    async with hosted(journal, Order, **options) as runtime:
        handle = await as_tenant("ann", runtime.spawn, Order.run, 7, id="o")
        await until(lambda: len(runtime._shard.find("o").state.activities) == 0)
        await talk(handle)
        assert set(await handle.result()) == SEEN
        history = await handle.fetch_history()
        started = history.events[0].event
        assert [(one.name, one.value.data) for one in started.headers] == [("tenant", b'"ann"')]
    async with hosted(journal, Order, **options) as runtime:  # the closed run is replayed with its headers
        assert await as_tenant("gil", runtime.ref("o", Order).query, Order.look) == "5 for gil"


async def test_a_client_in_another_process_sends_headers_and_the_runtime_s_own_are_not_asked(tmp_path):
    class Strict(Tenant):
        def intercept_client(self, next):
            raised = RuntimeError("what comes by the door has met the client's own interceptors")

            class Refuse(ClientOutboundInterceptor):
                async def signal_workflow(self, input):
                    raise raised

            return Refuse(next)

    path = tmp_path / "journal"
    async with (
        hosted(path, Order, activities=[whose, whose_in_a_thread], interceptors=[Strict()]),
        await Client.connect(f"unix:{path}", interceptors=[Tenant()]) as client,
    ):
        handle = await as_tenant("ann", client.spawn, Order.run, 7, id="o")
        await talk(handle)
        assert set(await handle.result()) == SEEN
        assert [run.workflow_id for run in await client.list_workflows()] == ["o"]
        assert await client.count_workflows() == 1


async def test_a_redriven_signal_keeps_its_headers():
    @workflow.defn
    class Fragile:
        def __init__(self) -> None:
            self.fails = True
            self.seen: list[str] = []

        @workflow.run
        async def run(self) -> list[str]:
            await workflow.wait_condition(lambda: bool(self.seen))
            return self.seen

        @workflow.signal
        def note(self) -> None:
            if self.fails:
                raise ApplicationError("not yet")
            self.seen.append(tenant.get())

        @workflow.signal
        def mend(self) -> None:
            self.fails = False

    async with hosted(MemoryJournal(), Fragile, interceptors=[Tenant()]) as runtime:
        handle = await runtime.spawn(Fragile.run)
        await as_tenant("ann", handle.signal, Fragile.note)
        await handle.signal(Fragile.mend)
        (letter,) = (await handle.describe()).dead_letters
        await handle.redrive(letter.number)
        assert await handle.result() == ["ann"]


# --- order, and what may be changed


class Trace(Interceptor):
    """Notes each call, with its own name, on its way in and out."""

    def __init__(self, name, calls):
        self.name = name
        self.calls = calls

    def around(self, base, *methods):
        trace = self

        def method_of(name):
            if name in ("start_activity", "start_timer", "handle_query", "handle_update_validator"):

                def method(self, input):
                    trace.calls.append(f"{trace.name} {name}")
                    return getattr(self.next, name)(input)

            elif name == "info":

                def method(self):
                    trace.calls.append(f"{trace.name} {name}")
                    return self.next.info()

            elif name == "heartbeat":

                def method(self, *details):
                    trace.calls.append(f"{trace.name} {name} {details}")
                    self.next.heartbeat(*details)

            else:

                async def method(self, input):
                    trace.calls.append(f"{trace.name} {name}")
                    result = await getattr(self.next, name)(input)
                    trace.calls.append(f"{trace.name} {name} done")
                    return result

            return method

        return type(f"Traced{base.__name__}", (base,), {name: method_of(name) for name in methods})

    def intercept_client(self, next):
        names = [name for name in vars(ClientOutboundInterceptor) if not name.startswith("_")]
        return self.around(ClientOutboundInterceptor, *names)(next)

    def intercept_workflow(self, next):
        inbound = self.around(
            WorkflowInboundInterceptor,
            *(name for name in vars(WorkflowInboundInterceptor) if name[:1] != "_" and name != "init"),
        )
        outbound = self.around(WorkflowOutboundInterceptor, "start_activity", "start_timer", "info")
        inbound.init = lambda self, out: self.next.init(outbound(out))
        return inbound(next)

    def intercept_activity(self, next):
        inbound = self.around(ActivityInboundInterceptor, "execute_activity")
        outbound = self.around(ActivityOutboundInterceptor, "info", "heartbeat")
        inbound.init = lambda self, out: self.next.init(outbound(out))
        return inbound(next)


@activity.defn
async def beats() -> str:
    activity.heartbeat(3)
    return activity.info().activity_type


@workflow.defn
class Everything:
    @workflow.init
    def __init__(self) -> None:
        self.over = False

    @workflow.run
    async def run(self) -> str:
        workflow.info()
        await beats()
        await asyncio.sleep(0.001)
        await workflow.sleep_until(workflow.now() + timedelta(milliseconds=1))
        await workflow.wait_condition(lambda: self.over)
        return "over"

    @workflow.signal
    def end(self) -> None:
        self.over = True

    @workflow.update
    async def add(self, n: int) -> int:
        return n + 1

    @workflow.query
    def look(self) -> bool:
        return self.over


@pytest.mark.usefixtures("keeps_code")
async def test_every_call_passes_every_interceptor_the_first_one_outermost():
    calls = []
    chain = [Trace("a", calls), Trace("b", calls)]
    async with hosted(MemoryJournal(), Everything, activities=[beats], interceptors=chain) as runtime:
        handle = await runtime.spawn(Everything.run, id="e")
        await until(lambda: calls.count("b start_timer") == 2)
        assert await handle.execute_update(Everything.add, 1) == 2
        await handle.start_update(Everything.add, 1)
        assert await handle.query(Everything.look) is False
        await handle.describe()
        await handle.signal(Everything.end)
        assert await handle.result() == "over"
        await runtime.list_workflows()
        await runtime.count_workflows()
        other = await runtime.spawn(Everything.run)
        await other.cancel()
        more = await runtime.spawn(Everything.run)
        await more.terminate()
    seen = {call.partition(" ")[2] for call in calls}
    client = {name for name in vars(ClientOutboundInterceptor) if not name.startswith("_")}
    inbound = {name for name in vars(WorkflowInboundInterceptor) if name[:1] != "_" and name != "init"}
    assert seen >= client | inbound | {
        "start_activity",
        "start_timer",
        "info",
        "execute_activity",
        "heartbeat (3,)",
    }
    for name in ("start_workflow", "handle_signal", "execute_activity", "handle_update_handler"):
        place = calls.index(f"a {name}")
        assert calls[place + 1] == f"b {name}"
        done = calls.index(f"b {name} done")
        assert calls[done + 1] == f"a {name} done"


async def test_interceptors_may_change_what_is_called():
    @activity.defn
    async def other(n: int) -> int:
        return n * 100

    @activity.defn
    async def one(n: int) -> int:
        return n

    @workflow.defn
    class Adds:
        def __init__(self) -> None:
            self.total = 0

        @workflow.run
        async def run(self, n: int) -> int:
            got = await one(n)
            await workflow.sleep(3600)
            return got

        @workflow.update
        def add(self, n: int) -> int:
            return n

    class Outbound(WorkflowOutboundInterceptor):
        def start_activity(self, input):
            return self.next.start_activity(
                replace(
                    input, activity="other", args=[input.args[0] + 1], options={"start_to_close_timeout": 9}
                )
            )

        def start_timer(self, input):
            return self.next.start_timer(replace(input, duration=timedelta(seconds=5)))

        def info(self):
            return replace(self.next.info(), workflow_type="changed")

    class Inbound(WorkflowInboundInterceptor):
        def init(self, outbound):
            self.next.init(Outbound(outbound))

        async def execute_workflow(self, input):
            assert workflow.info().workflow_type == "changed"
            assert input.type == "Adds"
            return await self.next.execute_workflow(replace(input, args=[input.args[0] + 1])) + 5

        async def handle_update_handler(self, input):
            return await self.next.handle_update_handler(replace(input, args=[40])) + 2

    class Changes(Interceptor):
        def intercept_workflow(self, next):
            return Inbound(next)

        def intercept_client(self, next):
            class Renames(ClientOutboundInterceptor):
                async def start_workflow(self, input):
                    options = {**input.options, "id": "chosen"}
                    return await self.next.start_workflow(replace(input, args=[0], options=options))

                def list_workflows(self, input):
                    return self.next.list_workflows(replace(input, limit=1))

            return Renames(next)

    clock = ManualClock()
    chain = [Changes()]
    async with hosted(
        MemoryJournal(), Adds, activities=[one, other], interceptors=chain, clock=clock
    ) as runtime:
        handle = await runtime.spawn(Adds.run, 9)
        assert handle.workflow_id == "chosen"
        await settled(runtime)
        assert await handle.execute_update(Adds.add, 1) == 42
        await until(lambda: runtime._shard.find("chosen").state.timers)
        await tick(runtime, clock, 6)
        assert await handle.result() == 205
        history = await handle.fetch_history()
        assert commands(history) == [(1, "other")]
        timer = next(e.event for e in history if e.kind == "TimerStarted")
        assert timer.duration == 5_000_000
        assert len(await runtime.list_workflows(limit=7)) == 1


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


def test_only_interceptors_are_taken():
    with pytest.raises(TypeError, match="interceptors must be a list of Interceptor objects, not <class"):
        hosted(MemoryJournal(), interceptors=[Tenant])
    with pytest.raises(TypeError, match="interceptors must be a list"):
        hosted(MemoryJournal(), interceptors="tenant")


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
