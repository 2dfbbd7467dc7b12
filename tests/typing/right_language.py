"""Interceptors, dynamic definitions, published values: calls that both type checkers accept, and their types."""

from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Any, assert_type

from everact import Client, History, Runtime, WorkflowHandle, activity, blocking, workflow
from everact.interceptors import (
    ActivityInboundInterceptor,
    CancelChildWorkflowInput,
    CancelExternalWorkflowInput,
    ClientOutboundInterceptor,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    FetchWorkflowHistoryInput,
    GetWorkflowResultInput,
    HandleQueryInput,
    Interceptor,
    PauseWorkflowInput,
    PublishInput,
    RedriveDeadLetterInput,
    SideEffectInput,
    SignalWorkflowInput,
    StartActivityInput,
    StartWorkflowInput,
    UpsertMemoInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)
from everact.payloads import Payload, PayloadConverter, RawValue


@dataclass
class Progress:
    done: int


@workflow.defn
class Job:
    @workflow.run()
    async def run(self, n: int) -> str:
        workflow.publish("progress", Progress(n))
        workflow.publish("progress", None)
        return "done"

    @workflow.signal
    def finish(self) -> None:
        workflow.complete("early")

    @workflow.update
    def stop(self, why: str) -> str:
        workflow.cancel(why)
        workflow.cancel()
        return "stopping"


@workflow.defn(dynamic=True, on_crash="fail")
class Anything:
    @workflow.run
    async def run(self, name: str, args: list[RawValue]) -> RawValue:
        assert_type(workflow.payload_converter(), PayloadConverter)
        assert_type(args[0].payload, Payload)
        return args[0]


@activity.defn(dynamic=True, start_to_close_timeout=5)
async def anything(name: str, args: list[RawValue]) -> str:
    converter = activity.payload_converter()
    converter.decode(args[0].payload, int)
    return name


class Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        headers = {**input.headers, "a": workflow.payload_converter().encode("b")}
        return self.next.start_activity(replace(input, headers=headers))

    def info(self) -> workflow.WorkflowInfo:
        return self.next.info()

    def memo(self) -> dict[str, Any]:
        return self.next.memo()

    def side_effect(self, input: SideEffectInput) -> Any:
        return self.next.side_effect(replace(input, fn=lambda: 3))

    def upsert_memo(self, input: UpsertMemoInput) -> None:
        self.next.upsert_memo(UpsertMemoInput({**input.memo, "more": 1}))

    def publish(self, input: PublishInput) -> None:
        self.next.publish(PublishInput(input.key, input.value))

    def cancel_child_workflow(self, input: CancelChildWorkflowInput) -> None:
        self.next.cancel_child_workflow(input)

    def cancel_external_workflow(self, input: CancelExternalWorkflowInput) -> Awaitable[None]:
        return self.next.cancel_external_workflow(input)


class Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        self.next.init(Outbound(outbound))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        return await self.next.execute_workflow(input)

    def handle_query(self, input: HandleQueryInput) -> Any:
        return self.next.handle_query(input)


class Attempts(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        return await self.next.execute_activity(input)


class Calls(ClientOutboundInterceptor):
    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        return await self.next.start_workflow(input)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:
        assert_type(input.id, str)
        await self.next.signal_workflow(input)

    async def get_workflow_result(self, input: GetWorkflowResultInput) -> Any:
        return await self.next.get_workflow_result(replace(input, on_stall="wait"))

    async def pause_workflow(self, input: PauseWorkflowInput) -> None:
        await self.next.pause_workflow(PauseWorkflowInput(input.handle, "why", input.request_id))

    async def redrive_dead_letter(self, input: RedriveDeadLetterInput) -> None:
        assert_type(input.number, int)
        await self.next.redrive_dead_letter(input)

    async def fetch_workflow_history(self, input: FetchWorkflowHistoryInput) -> History:
        return await self.next.fetch_workflow_history(input)


class All(Interceptor):
    def intercept_client(self, next: ClientOutboundInterceptor) -> ClientOutboundInterceptor:
        return Calls(next)

    def intercept_workflow(self, next: WorkflowInboundInterceptor) -> WorkflowInboundInterceptor:
        return Inbound(next)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return Attempts(next)


def make() -> Runtime:
    return Runtime("jobs", workflows=[Job, Anything], activities=[anything], interceptors=[All()])


async def read(runtime: Runtime) -> None:
    handle = await runtime.spawn(Job, 3)
    assert_type(await handle.published("progress", Progress), Progress | None)
    assert_type(await handle.published("progress"), Any)
    assert_type((await handle.describe()).published, dict[str, Any])
    assert_type(await handle.execute_update(Job.stop, "why"), str)
    async with await Client.connect("unix:jobs", interceptors=[All()]) as client:
        assert_type(await client.ref("j", Job).published("n", int), int | None)


def without_an_event_loop() -> None:
    with blocking.Client.connect("unix:jobs", interceptors=[All()]) as client:
        assert_type(client.ref("j", Job).published("n", int), int | None)
