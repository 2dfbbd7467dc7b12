"""Right calls about other runs: types pass from workflow classes to results and signals, under mypy and pyright."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from everact import workflow
from everact.exceptions import ChildWorkflowError


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
    def approve(self, tracking: str) -> None: ...

    @workflow.signal
    async def remind(self) -> None: ...


@workflow.defn
class Parent:
    @workflow.run
    async def run(self, order: Order) -> int:
        policy: workflow.ParentClosePolicy = "abandon"
        kind: workflow.ChildWorkflowCancellationType = "try_cancel"
        options: workflow.ChildWorkflowOptions = {"parent_close_policy": policy, "cancellation_type": kind}
        assert_type(await workflow.execute_child_workflow(Orders, order, **options), Receipt)
        assert_type(await workflow.execute_child_workflow(Orders.run, order, id="a", memo={"a": 1}), Receipt)
        assert_type(await workflow.execute_child_workflow("Orders", 1, result_type=float), float)
        assert_type(await workflow.execute_child_workflow("Orders", 1), Any)
        both = await asyncio.gather(
            workflow.execute_child_workflow(Orders, order),
            workflow.execute_child_workflow("Orders", result_type=int),
        )
        assert_type(both, tuple[Receipt, int])

        child = await workflow.start_child_workflow(Orders, order, if_running="replace", if_closed="refuse")
        assert_type(child, workflow.ChildWorkflowHandle[Orders, Receipt])
        other = await workflow.start_child_workflow(Orders.run, order)
        assert_type(other, workflow.ChildWorkflowHandle[Orders, Receipt])
        assert_type(
            await workflow.start_child_workflow("Orders", result_type=int),
            workflow.ChildWorkflowHandle[Any, int],
        )
        assert_type(await child, Receipt)
        assert_type(await child.result(), Receipt)
        assert_type(child.done(), bool)
        assert_type((child.id, child.run_id), tuple[str, str])
        await child.signal(Orders.approve, "TRK")
        await child.signal(Orders.remind)
        await child.signal("whatever", 1, order)
        child.cancel("enough")

        outcomes = await workflow.wait_for_children(
            [child, other], workflow.first(1), timeout=timedelta(hours=1)
        )
        assert_type(outcomes, list[workflow.ChildOutcome[Receipt]])
        assert_type(outcomes[0].result, Receipt | None)
        assert_type(outcomes[0].error, ChildWorkflowError | None)
        await workflow.wait_for_children([child], "any")
        await workflow.wait_for_children([child], strategy="all", timeout=5)

        detached = await workflow.start_detached(
            Orders, order, id="b", if_running="attach", if_closed="attach"
        )
        assert_type(detached, workflow.ExternalWorkflowHandle[Orders])
        await detached.signal(Orders.approve, "TRK")
        assert_type(await workflow.start_detached("Orders", 1), workflow.ExternalWorkflowHandle[Any])

        external = workflow.get_external_workflow_handle("c", Orders, run_id="r")
        assert_type(external, workflow.ExternalWorkflowHandle[Orders])
        await external.signal(Orders.approve, "TRK")
        await external.cancel("away")
        anyone = workflow.get_external_workflow_handle("c")
        assert_type(anyone, workflow.ExternalWorkflowHandle[Any])
        await anyone.signal("hello", 1)
        parent = workflow.info().parent
        return 0 if parent is None else len(parent.workflow_id)
