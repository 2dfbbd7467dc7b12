"""Interceptors around children, detached starts and messages from run to run."""

from dataclasses import replace

import pytest
from support.codecs import Wrapping
from support.hosting import hosted, settled, until
from support.tenants import Tenant, as_tenant, tenant

from everact import workflow
from everact.exceptions import WorkflowFailedError, WorkflowHeldError
from everact.interceptors import Interceptor, WorkflowInboundInterceptor, WorkflowOutboundInterceptor
from everact.journal.memory_store import MemoryJournal


@workflow.defn
class Child:
    def __init__(self) -> None:
        self.heard: list[str] = []

    @workflow.run
    async def run(self, signals: int) -> list[str]:
        begun = f"begun for {tenant.get()}"
        await workflow.wait_condition(lambda: len(self.heard) == signals)
        return [begun, *self.heard]

    @workflow.signal
    def hear(self, text: str) -> None:
        self.heard.append(f"{text} from {tenant.get()}")


@workflow.defn
class Parent:
    @workflow.run
    async def run(self) -> list[str]:
        plain = await workflow.execute_child_workflow(Child, 0)
        child = await workflow.start_child_workflow(Child.run, 1)
        await child.signal(Child.hear, "hello")
        other = await workflow.start_detached(Child, 1, id="other")
        await workflow.get_external_workflow_handle("other", Child).signal(Child.hear, "hi")
        assert other.id == "other"
        return [*plain, *await child]


@pytest.mark.parametrize("codecs", [[], [Wrapping()]], ids=["plain", "codec"])
async def test_a_header_goes_to_children_and_with_signals(codecs):
    journal = MemoryJournal()
    async with hosted(journal, Parent, Child, interceptors=[Tenant()], codecs=codecs) as runtime:
        parent = await as_tenant("ann", runtime.spawn, Parent, id="p")
        assert await parent.result() == ["begun for ann", "begun for ann", "hello from ann"]
        assert await runtime.ref("other", Child).result() == ["begun for ann", "hi from ann"]
        sent = next(one.event for one in await parent.fetch_history() if one.kind == "SignalSent")
        assert [(one.name, one.value.data) for one in sent.headers] == [("tenant", b'"ann"')]


class Notes(WorkflowOutboundInterceptor):
    calls: list[str]

    def start_child_workflow(self, input):
        self.calls.append(f"child {input.workflow} {input.args} {input.awaits_result}")
        return self.next.start_child_workflow(input)

    def start_detached(self, input):
        self.calls.append(f"detached {input.workflow} {input.args} {input.options}")
        return self.next.start_detached(input)

    def signal_child_workflow(self, input):
        self.calls.append(f"signal child {input.args}")
        return self.next.signal_child_workflow(input)

    def signal_external_workflow(self, input):
        self.calls.append(f"signal {input.workflow_id} {input.args}")
        return self.next.signal_external_workflow(input)


def around(outbound_class):
    class Inbound(WorkflowInboundInterceptor):
        def init(self, outbound):
            self.next.init(outbound_class(outbound))

    class Around(Interceptor):
        def intercept_workflow(self, next):
            return Inbound(next)

    return Around()


@pytest.mark.usefixtures("keeps_code")
async def test_each_call_is_seen_once():
    Notes.calls = []
    async with hosted(MemoryJournal(), Parent, Child, interceptors=[around(Notes)]) as runtime:
        await runtime.execute(Parent)
    assert Notes.calls == [
        "child Child [0] True",
        "child Child [1] False",
        "signal child ['hello']",
        "detached Child [1] {'id': 'other'}",
        "signal other ['hi']",
    ]


async def test_another_type_and_another_signal_may_be_called():
    @workflow.defn
    class Other:
        @workflow.run
        async def run(self, signals: int) -> list[str]:
            return [f"other {signals}"]

    class Changes(WorkflowOutboundInterceptor):
        def start_child_workflow(self, input):
            if input.awaits_result:
                input = replace(input, workflow="Other", args=[7], options={"id": "chosen"})
            return self.next.start_child_workflow(input)

        def signal_child_workflow(self, input):
            return self.next.signal_child_workflow(replace(input, handler="hear", args=["changed"]))

    async with hosted(MemoryJournal(), Parent, Child, Other, interceptors=[around(Changes)]) as runtime:
        result = await runtime.execute(Parent)
        assert result == ["other 7", "begun for nobody", "changed from nobody"]
        assert (await runtime.ref("chosen").describe()).workflow_type == "Other"


async def test_a_child_that_an_interceptor_adds_is_found_out_at_the_line_of_the_call():
    @workflow.defn
    class Waits:
        @workflow.run
        async def run(self) -> None:
            await workflow.execute_child_workflow(Child, 1, id="c")

        @workflow.query
        def look(self) -> str:
            return "fine"

    class Twice(WorkflowOutboundInterceptor):
        def start_child_workflow(self, input):
            self.next.start_child_workflow(replace(input, options={"id": "first"}))
            return self.next.start_child_workflow(input)

    journal = MemoryJournal()
    async with hosted(journal, Waits, Child) as runtime:
        await runtime.spawn(Waits, id="w")
        await until(lambda: "c" in runtime._shard.newest)
        await settled(runtime)
    async with hosted(journal, Waits, Child, interceptors=[around(Twice)]) as runtime:
        with pytest.raises(WorkflowHeldError, match="child"):
            await runtime.ref("w", Waits).query(Waits.look)
    async with hosted(journal, Waits, Child, interceptors=[Tenant()]) as runtime:
        assert await runtime.ref("w", Waits).query(Waits.look) == "fine"
        await runtime.ref("c", Child).signal(Child.hear, "end")
        await runtime.ref("w").result()


async def test_an_error_of_an_interceptor_is_the_caller_s():
    class Refuses(WorkflowOutboundInterceptor):
        def start_child_workflow(self, input):
            raise TimeoutError("no children today")

    async with hosted(MemoryJournal(), Parent, Child, interceptors=[around(Refuses)]) as runtime:
        with pytest.raises(WorkflowFailedError, match="no children today"):
            await runtime.execute(Parent)


async def test_a_never_awaited_start_names_its_line():
    @workflow.defn
    class Forgets:
        @workflow.run
        async def run(self) -> str:
            workflow.execute_child_workflow(Child, 0)  # everact: allow[EV203]
            return "end"

    for chain in ([], [Tenant()]):
        async with hosted(MemoryJournal(), Forgets, Child, interceptors=chain) as runtime:
            with pytest.warns(RuntimeWarning, match="child workflow 'Child' was started and never") as caught:
                assert await runtime.execute(Forgets) == "end"
            assert {warning.filename for warning in caught} == {__file__}
