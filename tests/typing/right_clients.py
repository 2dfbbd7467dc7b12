"""Calls through clients and blocking runtimes that both type checkers accept, and the types that they give."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from everact import (
    AsyncActivityHandle,
    Client,
    UpdateHandle,
    WorkflowDescription,
    WorkflowHandle,
    WorkflowListing,
    WorkflowPage,
    WorkflowSummary,
    blocking,
    workflow,
)
from everact.blocking import BlockingActivityHandle, BlockingHandle, BlockingListing, BlockingUpdateHandle


@dataclass
class Order:
    item: str


@dataclass
class Receipt:
    number: int


@workflow.defn
class Orders:
    @workflow.run
    async def run(self, order: Order) -> Receipt:
        return Receipt(len(order.item))

    @workflow.signal
    def approve(self, tracking: str) -> None:
        pass

    @workflow.query
    def shorter_than(self, length: int) -> bool:
        return length > 0

    @workflow.update
    def change_address(self, line: str, lines: int) -> list[str]:
        return [line] * lines

    @workflow.update
    async def rename(self, to: str) -> int:
        return len(to)


async def from_another_process() -> None:
    assert_type(await Client.connect("unix:orders"), Client)
    async with Client.connect("unix:orders", timeout=timedelta(seconds=5)) as client:
        assert_type(client, Client)
        order = await client.spawn(Orders, Order("tea"), id="order-1", if_running="attach")
        assert_type(order, WorkflowHandle[Orders, Receipt])
        assert_type(await client.spawn(Orders.run, Order("tea")), WorkflowHandle[Orders, Receipt])
        assert_type(await client.spawn("Orders", 1), WorkflowHandle[Any, Any])
        assert_type(await client.execute(Orders, Order("tea")), Receipt)
        assert_type(client.ref("order-1", Orders), WorkflowHandle[Orders, Receipt])
        assert_type(await order.execute_update(Orders.rename, "x"), int)
        assert_type(await client.list_workflows(limit=3), list[WorkflowSummary])
        listing = client.list_workflows(page_size=50, next_page_token=None)
        assert_type(listing, WorkflowListing)
        assert_type([run async for run in listing], list[WorkflowSummary])
        assert_type([page async for page in listing.pages()], list[WorkflowPage])
        assert_type(listing.next_page_token, str | None)
        assert_type(await order.start_update(Orders.rename, "x"), UpdateHandle[int])
        assert_type(await order.start_update(Orders.change_address, "x", 1), UpdateHandle[list[str]])
        assert_type(await order.start_update("rename", "x", wait_for_stage="completed"), UpdateHandle[Any])
        assert_type(client.activity_handle("token"), AsyncActivityHandle)
        handle = client.activity_handle(workflow_id="order-1", command=1, run_id=None)
        await handle.complete(Receipt(7))
        await handle.heartbeat("half way", 50)
        await handle.fail(ValueError("no"))
        await handle.report_cancelled()
        assert_type(await client.count_workflows(), int)


def without_an_event_loop() -> None:
    with blocking.Runtime("orders", workflows=[Orders], grace=1.5, door=False) as runtime:
        assert_type(runtime, blocking.Runtime)
        talk(runtime)
        assert_type(runtime.purge(older_than=timedelta(days=1)), int)
    with blocking.Client.connect("unix:orders", timeout=5) as client:
        assert_type(client, blocking.Client)
        talk(client)


def talk(side: blocking.Runtime | blocking.Client) -> None:
    order = side.spawn(Orders, Order("tea"), id="order-1", if_running="attach")
    assert_type(order, BlockingHandle[Orders, Receipt])
    assert_type(side.spawn(Orders.run, Order("tea")), BlockingHandle[Orders, Receipt])
    assert_type(side.spawn("Orders", 1), BlockingHandle[Any, Any])
    assert_type(side.execute(Orders, Order("tea")), Receipt)
    assert_type(side.ref("order-1", Orders), BlockingHandle[Orders, Receipt])
    order.signal(Orders.approve, "TRK", request_id="r")
    order.tell("approve", "TRK")
    assert_type(order.query(Orders.shorter_than, 3, timeout=1.0), bool)
    assert_type(order.execute_update(Orders.change_address, "here", 2), list[str])
    assert_type(order.ask(Orders.rename, "x"), int)
    assert_type(order.ask("rename", "x"), Any)
    assert_type(order.result(timeout=5), Receipt)
    assert_type(order.describe(), WorkflowDescription)
    assert_type([event.kind for event in order.fetch_history()], list[str])
    order.cancel("late")
    order.terminate()
    assert_type(order.address, str)
    assert_type(list(side.list_workflows(status="running", page_size=10)), list[WorkflowSummary])
    assert_type(side.list_workflows(), BlockingListing)
    update = order.start_update(Orders.rename, "x", wait_for_stage="accepted", request_id="r")
    assert_type(update, BlockingUpdateHandle[int])
    assert_type(update.done(), bool)
    assert_type(update.result(), int)
    assert_type(order.start_update(Orders.change_address, "x", 1).result(), list[str])
    assert_type(order.start_update("rename", "x").result(), Any)
    assert_type(side.activity_handle("token"), BlockingActivityHandle)
    side.activity_handle(workflow_id="order-1", command=1).complete(Receipt(7))
    assert_type(side.count_workflows(), int)
