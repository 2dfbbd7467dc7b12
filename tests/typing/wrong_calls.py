"""Wrong calls: each marked line is an error under mypy and under pyright.

Both report a mark that is not needed, so a wrong call that is suddenly accepted fails the check.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from everact import ActorRef, RetryPolicy, Runtime, WorkflowHandle, activity, workflow


@dataclass
class Order:
    item: str


@dataclass
class Receipt:
    number: int


@activity.defn
async def charge(order: Order, note: str = "") -> Receipt:
    return Receipt(len(order.item) + len(note))


@activity.defn(start_to_close_timeout=timedelta(seconds=30))
async def ship(order: Order, tracking: str) -> bool:
    return bool(order.item and tracking)


@activity.defn
def count_words(text: str) -> int:
    return len(text.split())


class Mailer:
    @activity.defn
    async def send(self, to: str, copies: int = 1) -> str:
        return to * copies


@workflow.defn
class Orders:
    @workflow.run
    async def run(self, order: Order) -> Receipt:
        return await charge(order)

    @workflow.signal
    def approve(self, tracking: str) -> None:
        pass

    @workflow.signal
    async def approve_later(self, tracking: str, days: int) -> None:
        pass

    @workflow.query
    def status(self) -> str:
        return ""

    @workflow.query
    def shorter_than(self, length: int) -> bool:
        return length > 0

    @workflow.update
    async def change_address(self, address: str) -> bool:
        return bool(address)

    @workflow.update
    def rename(self, to: str) -> int:
        return len(to)


@workflow.defn
class Other:
    @workflow.run
    async def run(self) -> None:
        pass

    @workflow.signal
    def stop(self) -> None:
        pass

    @workflow.query
    def depth(self) -> int:
        return 0

    @workflow.update
    def reset(self) -> None:
        pass


# --- activities, called directly --------------------------------------------------------------------------------


async def direct_calls(order: Order) -> None:
    await charge("tea")  # type: ignore[arg-type]
    await charge()  # type: ignore[call-arg]
    await charge(order, "note", 3)  # type: ignore[call-arg]
    await charge(order=order, remark="x")  # type: ignore[call-arg]
    await ship(order)  # type: ignore[call-arg]
    await ship(order, tracking=5)  # type: ignore[arg-type]
    receipt: str = await charge(order)  # type: ignore[assignment]
    await count_words("a")  # type: ignore[misc]
    await Mailer().send(1)  # type: ignore[arg-type]
    charge(order).number  # type: ignore[attr-defined]
    print(receipt)


# --- activities, called with options ----------------------------------------------------------------------------


async def explicit_calls(order: Order) -> None:
    await workflow.execute_activity(charge, "tea")  # type: ignore[arg-type]
    await workflow.execute_activity(ship, order)  # type: ignore[arg-type]
    await workflow.execute_activity(ship, order, 5)  # type: ignore[arg-type, call-arg]
    await workflow.execute_activity(ship, order, "T", 3)  # type: ignore[arg-type, call-arg]
    await workflow.execute_activity(count_words)  # type: ignore[arg-type, call-arg]
    await workflow.execute_activity(count_words, 5)  # type: ignore[arg-type]
    await workflow.execute_activity(charge, order, timeout=timedelta(seconds=1))  # type: ignore[call-overload]
    await workflow.execute_activity(charge, order, start_to_close_timeout="5")  # type: ignore[call-overload]
    await workflow.execute_activity(charge, order, retry_policy=3)  # type: ignore[call-overload]
    await workflow.execute_activity(charge, order, heartbeat_timeout="5")  # type: ignore[call-overload]
    await workflow.execute_activity(charge, order, cancellation_type="wait")  # type: ignore[call-overload]
    workflow.side_effect(lambda given: given)  # type: ignore[arg-type, misc]
    workflow.side_effect(lambda: 5).upper()  # type: ignore[attr-defined]
    workflow.upsert_memo([("a", 1)])  # type: ignore[arg-type]
    activity.heartbeat_details(5)  # type: ignore[arg-type]
    activity.client().activity_handle()  # type: ignore[call-overload]
    activity.client().activity_handle("token", workflow_id="a")  # type: ignore[call-overload]
    await activity.client().spawn("Orders", memo=[1])  # type: ignore[call-overload]
    await workflow.execute_activity(5, order)  # type: ignore[call-overload]
    words: str = await workflow.execute_activity(count_words, "a")  # type: ignore[arg-type]
    named: str = await workflow.execute_activity("elsewhere", result_type=int)  # type: ignore[arg-type]
    workflow.execute_activity(charge, order).number  # type: ignore[attr-defined]
    await workflow.execute_activity_method(Mailer.send, 5)  # type: ignore[arg-type]
    await workflow.execute_activity_method(Mailer.send)  # type: ignore[arg-type, call-arg]
    await workflow.execute_activity(Mailer.send, "a@b")  # type: ignore[arg-type]
    print(words, named)


async def started(order: Order) -> None:
    workflow.start_activity(charge, 5)  # type: ignore[arg-type]
    workflow.start_activity(ship, order)  # type: ignore[arg-type]
    workflow.start_activity(charge, order, name="x")  # type: ignore[call-overload]
    handle = workflow.start_activity(charge, order)
    receipt: int = await handle  # type: ignore[assignment]
    handle.result()  # type: ignore[attr-defined]
    both: tuple[int, int] = await asyncio.gather(handle, workflow.start_activity(count_words, "a"))  # type: ignore[assignment]
    print(receipt, both)


async def with_options(order: Order) -> None:
    patient = workflow.with_options(charge, start_to_close_timeout=timedelta(hours=1))
    await patient("tea")  # type: ignore[arg-type]
    await patient(order, remark="x")  # type: ignore[call-arg]
    number: int = await patient(order)  # type: ignore[assignment]
    workflow.with_options(charge, task_queue="x")  # type: ignore[call-overload]
    words = workflow.with_options(count_words)
    print(words("a") + 1)  # type: ignore[operator]
    print(number)


async def waiting() -> None:
    await workflow.sleep("5")  # type: ignore[arg-type]
    await workflow.sleep_until(5)  # type: ignore[arg-type]
    await workflow.wait_condition(True)  # type: ignore[arg-type]
    await workflow.wait_condition(lambda: True, timeout="5")  # type: ignore[arg-type]
    await workflow.wait_condition(lambda: True, 5)  # type: ignore[call-arg]
    await workflow.now()  # type: ignore[misc]
    workflow.now() + 1  # type: ignore[operator]


# --- from outside -----------------------------------------------------------------------------------------------


async def starting(runtime: Runtime, order: Order) -> None:
    await runtime.spawn(Orders, "tea")  # type: ignore[arg-type]
    await runtime.spawn(Orders)  # type: ignore[arg-type, call-arg]
    await runtime.spawn(Orders, order, 5)  # type: ignore[arg-type, call-arg]
    await runtime.spawn(Orders.run, "tea")  # type: ignore[arg-type]
    await runtime.spawn(Orders, order, task_queue="x")  # type: ignore[call-overload]
    await runtime.spawn(Orders, order, id=42)  # type: ignore[call-overload]
    await runtime.spawn(Orders, order, if_running="join")  # type: ignore[call-overload]
    await runtime.spawn(Orders, order, if_closed="replace")  # type: ignore[call-overload]
    await runtime.spawn(Order, "tea")  # type: ignore[arg-type]
    await runtime.spawn(5)  # type: ignore[call-overload]
    await runtime.execute(Orders, 5)  # type: ignore[arg-type]
    await runtime.execute(Orders.run)  # type: ignore[arg-type, call-arg]
    text: str = await runtime.execute(Orders, order)  # type: ignore[arg-type]
    runtime.spawn(Orders, order).result()  # type: ignore[attr-defined]
    handle: WorkflowHandle[Other, None] = await runtime.spawn(Orders, order)  # type: ignore[arg-type]
    runtime.ref(42)  # type: ignore[call-overload]
    runtime.ref("order-42", Order)  # type: ignore[call-overload]
    print(text, handle)


async def talking(runtime: Runtime) -> None:
    order = runtime.ref("order-42", Orders)
    await order.signal(Orders.approve)  # type: ignore[arg-type, call-arg]
    await order.signal(Orders.approve, 5)  # type: ignore[arg-type]
    await order.signal(Orders.approve_later, "T")  # type: ignore[arg-type]
    await order.signal(Orders.approve_later, "T", "two")  # type: ignore[arg-type, call-arg]
    await order.signal(Other.stop)  # type: ignore[arg-type, call-arg]
    await order.signal(Orders.shorter_than, 5)  # type: ignore[arg-type]
    await order.signal(Orders.approve, "T", request_id=5)  # type: ignore[call-overload]
    await order.tell(Orders.approve, 5)  # type: ignore[arg-type]
    await order.query(Orders.shorter_than)  # type: ignore[arg-type, call-arg]
    await order.query(Orders.shorter_than, "5")  # type: ignore[arg-type]
    await order.query(Orders.status, 5)  # type: ignore[arg-type]
    await order.query(Other.depth)  # type: ignore[arg-type, call-arg]
    await order.query(Orders.status, timeout="5")  # type: ignore[call-arg, call-overload]
    number: int = await order.query(Orders.status)  # type: ignore[arg-type, call-arg]
    await order.execute_update(Orders.change_address)  # type: ignore[arg-type, call-arg]
    await order.execute_update(Orders.change_address, 5)  # type: ignore[arg-type]
    await order.execute_update(Other.reset)  # type: ignore[arg-type, call-arg]
    await order.start_update(Orders.change_address, 5)  # type: ignore[arg-type]
    await order.start_update(Orders.rename, "x", wait_for_stage="admitted")  # type: ignore[call-overload]
    await order.pause(7)  # type: ignore[arg-type]
    await order.redrive("7")  # type: ignore[arg-type]
    await order.ask(Orders.rename, 5)  # type: ignore[arg-type]
    renamed: str = await order.ask(Orders.rename, "x")  # type: ignore[arg-type]
    changed: str = await order.execute_update(Orders.change_address, "x")  # type: ignore[arg-type]
    result: str = await order.result()  # type: ignore[assignment]
    await order.result(5)  # type: ignore[call-arg]
    await order.result(timeout="5")  # type: ignore[arg-type]
    await order.result(on_stall="retry")  # type: ignore[arg-type]
    order.result().number  # type: ignore[attr-defined]
    print(number, renamed, changed, result)


async def references(order: WorkflowHandle[Orders, Receipt]) -> None:
    other: ActorRef[Other] = order  # type: ignore[assignment]
    ref: ActorRef[Orders] = order
    ref.result()  # type: ignore[attr-defined]
    print(other)


# --- declarations -----------------------------------------------------------------------------------------------


@activity.defn(start_to_close_timeout="5")  # type: ignore[call-overload, untyped-decorator]
async def seconds_are_no_timedelta() -> None:
    pass


@activity.defn(queue="fast")  # type: ignore[call-overload, untyped-decorator]
async def no_such_option() -> None:
    pass


@workflow.defn(retention="30d")  # type: ignore[call-overload]
class NoDuration:
    @workflow.run
    async def run(self) -> None:
        pass


@workflow.defn(on_crash="retry")  # type: ignore[call-overload]
class NoSuchWord:
    @workflow.run
    async def run(self) -> None:
        pass


@workflow.defn
class WrongValidator:
    @workflow.run
    async def run(self) -> None:
        pass

    @workflow.update
    def rename(self, to: str) -> int:
        return len(to)

    @rename.validator  # type: ignore[arg-type]
    def check(self, to: int) -> None:
        pass

    @workflow.signal(5)  # type: ignore[call-overload, untyped-decorator]
    def stop(self) -> None:
        pass


@workflow.run(5)  # type: ignore[call-overload, untyped-decorator]
async def no_method(self: object) -> None:
    pass


async def language(handle: WorkflowHandle[Any, Any]) -> None:
    workflow.publish(5, "a")  # type: ignore[arg-type]
    workflow.publish("a")  # type: ignore[call-arg]
    workflow.cancel(5)  # type: ignore[arg-type]
    await handle.published(5)  # type: ignore[call-overload]
    Runtime("j", interceptors=[5])  # type: ignore[list-item]


def construction() -> None:
    Runtime(5)  # type: ignore[arg-type]
    Runtime("j", workflows=[charge])  # type: ignore[list-item]
    Runtime("j", activities=charge)  # type: ignore[arg-type]
    Runtime("j", durability="sync")  # type: ignore[arg-type]
    Runtime("j", guard="loose")  # type: ignore[arg-type]
    Runtime("j", grace="5")  # type: ignore[arg-type]
    RetryPolicy(3)  # type: ignore[call-arg]
    RetryPolicy(maximum_attempts="3")  # type: ignore[arg-type]
    RetryPolicy(initial_interval="1")  # type: ignore[arg-type]
    RetryPolicy(retry_on=[5])  # type: ignore[list-item]
