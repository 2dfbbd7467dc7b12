"""A context that interceptors carry along (who asks for something), and workflows to intercept."""

import asyncio
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta

from everact import activity, workflow
from everact.interceptors import (
    ActivityInboundInterceptor,
    ClientOutboundInterceptor,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)
from everact.payloads import PayloadConverter

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
converter = PayloadConverter()


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

    def start_child_workflow(self, input):
        return self.next.start_child_workflow(with_tenant(input))

    def start_detached(self, input):
        return self.next.start_detached(with_tenant(input))

    def signal_child_workflow(self, input):
        return self.next.signal_child_workflow(with_tenant(input))

    def signal_external_workflow(self, input):
        return self.next.signal_external_workflow(with_tenant(input))


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


async def as_tenant(name, call, *args, **options):
    async def named():
        tenant.set(name)
        return await call(*args, **options)

    return await asyncio.create_task(named())


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
