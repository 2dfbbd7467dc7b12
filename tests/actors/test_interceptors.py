"""Interceptors: chains around workflows, activities and clients, and headers that travel with each call."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.clock import ManualClock
from support.codecs import Wrapping
from support.hosting import commands, hosted, settled, tick, until
from support.tenants import Everything, Order, Tenant, as_tenant, beats, tenant, whose, whose_in_a_thread

from everact import ApplicationError, Client, activity, workflow
from everact.exceptions import NoDeadLetterError, UpdateRejectedError
from everact.interceptors import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ClientOutboundInterceptor,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)
from everact.journal.memory_store import MemoryJournal


@pytest.fixture(params=["plain", "codec"])
def codecs(request):
    return [] if request.param == "plain" else [Wrapping()]


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
            if name in (
                "start_activity",
                "start_timer",
                "handle_query",
                "handle_update_validator",
                "list_workflows",
            ):

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
        await handle.fetch_history()
        await handle.pause("a while")
        await handle.resume()
        await handle.release()
        assert await handle.published("nothing") is None
        with pytest.raises(NoDeadLetterError):
            await handle.redrive(1)
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
