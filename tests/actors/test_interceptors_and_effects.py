"""Interceptors around what runs write without waiting for it, and around cancels; and around the calls of handles."""

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from support.hosting import hosted, kinds, settled, until

from everact import ApplicationError, Client, workflow
from everact.exceptions import ExternalWorkflowError, WorkflowHeldError
from everact.interceptors import (
    ClientOutboundInterceptor,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)
from everact.journal.memory_store import MemoryJournal


def around(outbound_class):
    """An interceptor that puts this around each run."""

    class Inbound(WorkflowInboundInterceptor):
        def init(self, outbound):
            self.next.init(outbound_class(outbound))

    class Around(Interceptor):
        def intercept_workflow(self, next):
            return Inbound(next)

    return Around()


class Notes(WorkflowOutboundInterceptor):
    """Notes the calls that it sees."""

    calls: list = []

    def side_effect(self, input):
        result = self.next.side_effect(input)
        self.calls.append(("side_effect", result, input.result_type))
        return result

    def upsert_memo(self, input):
        self.calls.append(("upsert_memo", dict(input.memo)))
        self.next.upsert_memo(input)

    def memo(self):
        found = self.next.memo()
        self.calls.append(("memo", dict(found)))
        return found

    def publish(self, input):
        self.calls.append(("publish", input.key, input.value))
        self.next.publish(input)

    def cancel_external_workflow(self, input):
        self.calls.append(("cancel", input.workflow_id, input.workflow_run_id, input.reason))
        return self.next.cancel_external_workflow(input)

    def cancel_child_workflow(self, input):
        self.calls.append(("cancel child", input.child_workflow_id, input.reason))
        self.next.cancel_child_workflow(input)


@workflow.defn
class Waits:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)


DRAWN = []


def draw() -> int:
    DRAWN.append(1)
    return len(DRAWN)


@workflow.defn
class Acts:
    def __init__(self) -> None:
        self.is_over = False

    @workflow.run
    async def run(self) -> list[object]:
        drawn = workflow.side_effect(draw)
        workflow.upsert_memo({"step": 1})
        workflow.publish("progress", 50)
        child = await workflow.start_child_workflow(Waits, id="child")
        child.cancel("no more")
        await workflow.get_external_workflow_handle("other").cancel("enough")
        await workflow.wait_condition(lambda: self.is_over)
        return [drawn, workflow.memo()]

    @workflow.signal
    def end(self) -> None:
        self.is_over = True


SEEN = [
    ("side_effect", 1, int),
    ("upsert_memo", {"step": 1}),
    ("publish", "progress", 50),
    ("cancel child", "child", "no more"),
    ("cancel", "other", "", "enough"),
    ("memo", {"by": "me", "step": 1}),
]


@pytest.mark.usefixtures("keeps_code")
async def test_each_call_is_seen_once_and_again_in_a_replay():
    Notes.calls = []
    DRAWN.clear()
    journal = MemoryJournal()
    async with hosted(journal, Acts, Waits, interceptors=[around(Notes)]) as runtime:
        other = await runtime.spawn(Waits, id="other")
        handle = await runtime.spawn(Acts, id="a", memo={"by": "me"})
        await until(lambda: ("cancel", "other", "", "enough") in Notes.calls)
        await settled(runtime)
        assert Notes.calls == SEEN[:-1]
        assert (await other.describe()).status == "cancelled"
        assert (await runtime.ref("child").describe()).status == "cancelled"
        assert await handle.published("progress") == 50
    Notes.calls = []
    async with hosted(journal, Acts, Waits, interceptors=[around(Notes)]) as runtime:
        handle = runtime.ref("a", Acts)
        await handle.signal(Acts.end)
        assert await handle.result() == [1, {"by": "me", "step": 1}]
    assert Notes.calls == SEEN
    assert len(DRAWN) == 1


class Changes(WorkflowOutboundInterceptor):
    def side_effect(self, input):
        return self.next.side_effect(replace(input, fn=lambda: 7)) * 10

    def upsert_memo(self, input):
        self.next.upsert_memo(replace(input, memo={**input.memo, "more": True}))

    def memo(self):
        return {**self.next.memo(), "read": "too"}

    def publish(self, input):
        self.next.publish(replace(input, key=input.key.upper(), value=input.value + 1))

    def cancel_external_workflow(self, input):
        return self.next.cancel_external_workflow(replace(input, workflow_id="third", reason="changed"))

    def signal_external_workflow(self, input):
        return self.next.signal_external_workflow(replace(input, workflow_id="a"))

    def cancel_child_workflow(self, input):
        self.next.cancel_child_workflow(replace(input, reason="changed"))


async def test_calls_may_be_changed():
    DRAWN.clear()
    async with hosted(MemoryJournal(), Acts, Waits, interceptors=[around(Changes)]) as runtime:
        third = await runtime.spawn(Waits, id="third")
        handle = await runtime.spawn(Acts, id="a")
        await settled(runtime)
        await handle.signal(Acts.end)
        assert await handle.result() == [70, {"step": 1, "more": True, "read": "too"}]
        assert (await handle.published("PROGRESS"), await handle.published("progress")) == (51, None)
        for one in (third, runtime.ref("child")):
            assert (await one.describe()).cancel_requested
            history = await one.fetch_history()
            assert [e.event.reason for e in history if e.kind == "CancelRequested"] == ["changed"]
        assert (await handle.describe()).memo == {"step": 1, "more": True}
    assert DRAWN == []


@workflow.defn
class Signals:
    @workflow.run
    async def run(self) -> None:
        await workflow.get_external_workflow_handle("nobody", Acts).signal(Acts.end)


async def test_a_signal_to_another_run_may_go_elsewhere():
    async with hosted(MemoryJournal(), Acts, Signals, Waits, interceptors=[around(Changes)]) as runtime:
        await runtime.spawn(Waits, id="third")
        handle = await runtime.spawn(Acts, id="a")
        await runtime.execute(Signals)
        assert (await handle.result())[0] == 70


async def test_what_an_interceptor_makes_wrong_is_refused_at_the_call():
    class Wrong(WorkflowOutboundInterceptor):
        def cancel_external_workflow(self, input):
            return self.next.cancel_external_workflow(replace(input, workflow_id=""))

        def cancel_child_workflow(self, input):
            self.next.cancel_child_workflow(replace(input, reason=3))

        def publish(self, input):
            self.next.publish(replace(input, key=""))

        def upsert_memo(self, input):
            self.next.upsert_memo(replace(input, memo=[1]))

        def side_effect(self, input):
            return self.next.side_effect(replace(input, fn=None))

    said = []

    @workflow.defn
    class Tries:
        @workflow.run
        async def run(self) -> None:
            child = await workflow.start_child_workflow(Waits, parent_close_policy="terminate")
            for call in (
                lambda: workflow.get_external_workflow_handle("x").cancel(),
                child.cancel,
                lambda: workflow.publish("key", 1),
                lambda: workflow.upsert_memo({"a": 1}),
                lambda: workflow.side_effect(draw),
            ):
                try:
                    call()
                except Exception as error:
                    said.append((type(error).__name__, str(error).partition(":")[0]))

    async with hosted(MemoryJournal(), Tries, Waits, interceptors=[around(Wrong)]) as runtime:
        handle = await runtime.spawn(Tries)
        await handle.result()
        assert "SideEffectRecorded" not in kinds(await handle.fetch_history())
    assert [kind for kind, _ in said[-5:]] == [
        "ValueError",
        "TypeError",
        "ValueError",
        "TypeError",
        "TypeError",
    ]


async def test_an_error_of_an_interceptor_is_the_caller_s():
    class Refuses(WorkflowOutboundInterceptor):
        def publish(self, input):
            raise ApplicationError("not that", type="Refused")

    @workflow.defn
    class Publishes:
        @workflow.run
        async def run(self) -> str:
            try:
                workflow.publish("key", 1)
            except ApplicationError as error:
                return error.type
            return "published"

    async with hosted(MemoryJournal(), Publishes, interceptors=[around(Refuses)]) as runtime:
        assert await runtime.execute(Publishes) == "Refused"


async def test_queries_pass_by_what_writes_and_are_refused():
    @workflow.defn
    class Reads:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.query
        def ask(self, what: str) -> str:
            calls = {
                "publish": lambda: workflow.publish("a", 1),
                "upsert_memo": lambda: workflow.upsert_memo({"a": 1}),
                "side_effect": lambda: workflow.side_effect(draw),
                "cancel": workflow.get_external_workflow_handle("x").cancel,
            }
            try:
                calls[what]()
            except Exception as error:
                return type(error).__name__
            return "done"

        @workflow.query
        def memo(self) -> dict[str, object]:
            return workflow.memo()

    Notes.calls = []
    async with hosted(MemoryJournal(), Reads, interceptors=[around(Notes)]) as runtime:
        handle = await runtime.spawn(Reads, memo={"a": 1})
        for what in ("publish", "upsert_memo", "side_effect", "cancel"):
            assert await handle.query(Reads.ask, what) == "ReadOnlyError"
        assert Notes.calls == []
        assert await handle.query(Reads.memo) == {"a": 1}
        assert Notes.calls == [("memo", {"a": 1})]


async def test_a_side_effect_that_an_interceptor_adds_is_found_out_at_the_line_of_the_call():
    class Twice(WorkflowOutboundInterceptor):
        def side_effect(self, input):
            self.next.side_effect(replace(input, fn=lambda: 0))
            return self.next.side_effect(input)

    @workflow.defn
    class Draws:
        def __init__(self) -> None:
            self.is_over = False

        @workflow.run
        async def run(self) -> int:
            got = workflow.side_effect(draw)  # the line
            await workflow.wait_condition(lambda: self.is_over)
            return got

        @workflow.signal
        def end(self) -> None:
            self.is_over = True

    journal = MemoryJournal()
    async with hosted(journal, Draws) as runtime:
        await runtime.spawn(Draws, id="d")
    async with hosted(journal, Draws, interceptors=[around(Twice)]) as runtime:
        handle = runtime.ref("d", Draws)
        await handle.signal(Draws.end)
        with pytest.raises(WorkflowHeldError) as raised:
            await handle.result()
        lines = Path(__file__).read_text().splitlines()
        line = next(number for number, text in enumerate(lines, 1) if text.endswith("# the line"))
        assert f"{__file__}:{line}" in str(raised.value)


async def test_cancels_that_fail_name_the_run_as_without_interceptors():
    @workflow.defn
    class Cancels:
        @workflow.run
        async def run(self) -> str:
            try:
                await workflow.get_external_workflow_handle("nobody").cancel()
            except ExternalWorkflowError as error:
                return type(error.__cause__).__name__
            return "delivered"

    async with hosted(MemoryJournal(), Cancels, interceptors=[around(Notes)]) as runtime:
        assert await runtime.execute(Cancels) == "WorkflowNotFoundError"


# --- handles


class Calls(ClientOutboundInterceptor):
    seen: list = []

    async def get_workflow_result(self, input):
        self.seen.append(("result", input.id, input.follow_runs))
        return [await self.next.get_workflow_result(replace(input, timeout=20))]

    async def pause_workflow(self, input):
        self.seen.append(("pause", input.id, input.reason))
        await self.next.pause_workflow(replace(input, reason=f"{input.reason}!"))

    async def resume_workflow(self, input):
        self.seen.append(("resume", input.id, input.reason))
        await self.next.resume_workflow(input)

    async def release_workflow(self, input):
        self.seen.append(("release", input.id, input.reason))
        await self.next.release_workflow(input)

    async def redrive_dead_letter(self, input):
        self.seen.append(("redrive", input.id, input.number))
        await self.next.redrive_dead_letter(input)

    async def get_published_value(self, input):
        self.seen.append(("published", input.id, input.key, input.kind))
        return await self.next.get_published_value(replace(input, key="progress"))

    async def fetch_workflow_history(self, input):
        self.seen.append(("history", input.id, input.run_id))
        return await self.next.fetch_workflow_history(input)


class Around(Interceptor):
    def intercept_client(self, next):
        return Calls(next)


@workflow.defn
class Fragile:
    def __init__(self) -> None:
        self.is_mended = self.is_over = False

    @workflow.run
    async def run(self) -> str:
        workflow.publish("progress", 50)
        await workflow.wait_condition(lambda: self.is_over)
        return "over"

    @workflow.signal
    def end(self) -> None:
        if not self.is_mended:
            raise ApplicationError("not yet")
        self.is_over = True

    @workflow.signal
    def mend(self) -> None:
        self.is_mended = True


@pytest.mark.parametrize("remote", [False, True], ids=["in the program", "through the door"])
async def test_what_handles_do_passes_interceptors(remote, tmp_path):
    Calls.seen = []
    path = tmp_path / "journal"
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            hosted(path, Fragile, interceptors=[] if remote else [Around()])
        )
        if remote:
            connecting = await Client.connect(f"unix:{path}", interceptors=[Around()])
            client = await stack.enter_async_context(connecting)
        handle = await client.spawn(Fragile, id="f")
        await handle.signal(Fragile.end)
        await handle.signal(Fragile.mend)
        await handle.pause("a while")
        seen = await handle.describe()
        assert seen.status == "paused"
        assert "a while!" in str(seen)
        await handle.resume("now")
        await handle.release()
        (letter,) = seen.dead_letters
        await handle.redrive(letter.number)
        assert await handle.published("anything", int) == 50
        assert len(await handle.fetch_history()) > 5
        assert await handle.result() == ["over"]
        run_id = handle.run_id
    assert Calls.seen == [
        ("pause", "f", "a while"),
        ("resume", "f", "now"),
        ("release", "f", ""),
        ("redrive", "f", letter.number),
        ("published", "f", "anything", int),
        ("history", "f", run_id),
        ("result", "f", True),
    ]
