"""Wrong calls about other runs: each marked line is an error under mypy and under pyright."""

from dataclasses import dataclass

from everact import workflow


@dataclass
class Order:
    item: str


@workflow.defn
class Orders:
    @workflow.run
    async def run(self, order: Order) -> int:
        return len(order.item)

    @workflow.signal
    def approve(self, tracking: str) -> None: ...


@workflow.defn
class Other:
    @workflow.run
    async def run(self) -> None: ...

    @workflow.signal
    def stop(self) -> None: ...


async def children(order: Order) -> None:
    await workflow.execute_child_workflow(Orders, "tea")  # type: ignore[arg-type]
    await workflow.execute_child_workflow(Orders)  # type: ignore[arg-type, call-arg]
    await workflow.execute_child_workflow(Orders.run, order, 1, 2)  # type: ignore[arg-type, call-arg]
    await workflow.execute_child_workflow(Other, order)  # type: ignore[arg-type]
    await workflow.execute_child_workflow(Orders, order, parent_close_policy="kill")  # type: ignore[call-overload]
    await workflow.execute_child_workflow(Orders, order, if_running="attach")  # type: ignore[call-overload]
    await workflow.execute_child_workflow(Orders, order, cancellation_type=1)  # type: ignore[call-overload]
    await workflow.execute_child_workflow(Orders, order, timeout=1)  # type: ignore[call-overload]
    text: str = await workflow.execute_child_workflow(Orders, order)  # type: ignore[arg-type]
    child = await workflow.start_child_workflow(Orders, order)
    await child.signal(Other.stop)  # type: ignore[arg-type, call-arg]
    await child.signal(Orders.approve)  # type: ignore[arg-type, call-arg]
    await child.signal(Orders.approve, 7)  # type: ignore[arg-type]
    number: str = await child  # type: ignore[assignment]
    child.cancel(7)  # type: ignore[arg-type]
    await workflow.wait_for_children([1])  # type: ignore[arg-type]
    await workflow.wait_for_children([child], "some")  # type: ignore[arg-type]
    await workflow.wait_for_children([child], 1)  # type: ignore[arg-type]
    await workflow.start_detached(Other, order)  # type: ignore[arg-type]
    await workflow.start_detached(Other, parent_close_policy="abandon")  # type: ignore[call-overload]
    external = workflow.get_external_workflow_handle("a", Orders)
    await external.signal(Other.stop)  # type: ignore[arg-type, call-arg]
    await external.cancel(1)  # type: ignore[arg-type]
    workflow.get_external_workflow_handle(1)  # type: ignore[call-overload]
    print(text, number)
