"""Calls that both type checkers accept, and the types that they give."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, Generic, TypeVar, assert_type
from uuid import UUID

from everact import (
    ActorRef,
    AsyncActivityHandle,
    DeadLetter,
    RetryPolicy,
    Runtime,
    UpdateHandle,
    WorkflowDescription,
    WorkflowHandle,
    WorkflowSummary,
    activity,
    workflow,
)
from everact.exceptions import ActivityError, WorkflowFailedError

T = TypeVar("T")


@dataclass
class Order:
    item: str
    count: int = 1


@dataclass
class Receipt:
    number: int


@dataclass
class Box(Generic[T]):
    inside: T


# --- activities -------------------------------------------------------------------------------------------------


@activity.defn
async def charge(order: Order, note: str = "") -> Receipt:
    return Receipt(len(order.item) + len(note))


@activity.defn(
    name="ship-it",
    start_to_close_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(maximum_attempts=5, retry_on=[OSError, "ValueError"]),
)
async def ship(order: Order, tracking: str) -> bool:
    return bool(order.item and tracking)


@activity.defn
def count_words(text: str) -> int:
    return len(text.split())


@activity.defn(start_to_close_timeout=timedelta(seconds=1))
def nothing() -> None:
    return None


@activity.defn
async def unwrap(box: Box[int]) -> list[int]:
    return [box.inside]


class Mailer:
    @activity.defn
    async def send(self, to: str, copies: int = 1) -> str:
        return to * copies

    @activity.defn(name="archive")
    def archive(self, to: str) -> int:
        return len(to)


async def activities_stay_the_functions_they_are() -> None:
    assert_type(await charge(Order("tea")), Receipt)
    assert_type(await charge(order=Order("tea"), note="now"), Receipt)
    assert_type(await ship(Order("tea"), tracking="T"), bool)
    assert_type(count_words("a b"), int)
    assert_type(await Mailer().send("a@b", copies=2), str)
    assert_type(Mailer().archive("a@b"), int)
    about = activity.info()
    assert_type(about.attempt, int)
    assert_type(about.idempotency_key, str)
    assert_type(activity.in_activity(), bool)
    assert_type(activity.client(), Runtime)
    activity.logger.info("attempt %d", about.attempt)
    assert_type(about.heartbeat_details, tuple[Any, ...])
    assert_type(about.schedule_to_close_deadline, datetime | None)
    assert_type(activity.heartbeat_details(Order), Order | None)
    activity.heartbeat(1, "two")
    assert_type(activity.is_cancelled(), bool)
    assert_type(activity.is_shutting_down(), bool)
    assert_type(activity.wait_for_cancelled_sync(timedelta(seconds=1)), bool)
    assert_type(activity.wait_for_shutdown_sync(), bool)
    await activity.wait_for_cancelled()
    await activity.wait_for_shutdown()


@activity.defn(
    heartbeat_timeout=5,
    schedule_to_start_timeout=timedelta(seconds=1),
    schedule_to_close_timeout=None,
    cancellation_type="abandon",
)
def elsewhere() -> int:
    with activity.shield_thread_cancel_exception():
        activity.raise_complete_async()


async def attempts_are_completed_from_outside(runtime: Runtime) -> None:
    handle = runtime.activity_handle("token")
    assert_type(handle, AsyncActivityHandle)
    await runtime.activity_handle(workflow_id="a", command=1, run_id=None).complete(5)
    await handle.fail(ValueError("no"))
    await handle.heartbeat(1, 2)
    await handle.report_cancelled()
    assert_type(runtime.activity_slots().lost_threads, tuple[str, ...])


async def side_effects_and_memos(runtime: Runtime) -> None:
    assert_type(workflow.side_effect(lambda: 5), int)
    assert_type(workflow.side_effect(lambda: Order("tea"), result_type=Order), Order)
    assert_type(workflow.memo(), dict[str, Any])
    workflow.upsert_memo({"a": 1, "b": None})
    handle = await runtime.spawn("Orders", memo={"a": [1]})
    assert_type((await handle.describe()).memo, dict[str, Any])


# --- workflows --------------------------------------------------------------------------------------------------


@workflow.defn
class Orders:
    def __init__(self) -> None:
        self.tracking: str | None = None
        self.address = ""

    @workflow.run
    async def run(self, order: Order, urgent: bool = False) -> Receipt:
        await workflow.wait_condition(lambda: self.tracking is not None, timeout=timedelta(days=3))
        assert_type(await charge(order), Receipt)
        assert_type(await charge(order=order, note="x"), Receipt)
        assert_type(await workflow.execute_activity(charge, order, "note"), Receipt)
        assert_type(
            await workflow.execute_activity(
                ship,
                order,
                "T",
                start_to_close_timeout=timedelta(minutes=1),
                retry_policy=RetryPolicy(maximum_attempts=1),
            ),
            bool,
        )
        assert_type(await workflow.execute_activity(count_words, "a b"), int)
        assert_type(await workflow.execute_activity(nothing), None)
        assert_type(await workflow.execute_activity(unwrap, Box(1)), list[int])
        assert_type(await workflow.execute_activity("elsewhere", 1, "b", result_type=float), float)
        assert_type(await workflow.execute_activity("elsewhere", result_type=Order), Order)
        assert_type(await workflow.execute_activity("elsewhere", 1), Any)
        return await charge(order)

    @workflow.signal
    def approve(self, tracking: str) -> None:
        self.tracking = tracking

    @workflow.signal(dynamic=True)
    def any_signal(self, name: str, args: list[object]) -> None:
        workflow.set_signal_handler(name, self.approve)
        workflow.set_query_handler("late", lambda: 7)
        workflow.set_update_handler(None, None)

    @workflow.query(dynamic=True)
    def any_query(self, name: str, args: list[object]) -> str:
        return name

    @workflow.update(dynamic=True)
    def any_update(self, name: str, args: list[object]) -> str:
        return name

    @workflow.signal(name="approve-later")
    async def approve_later(self, tracking: str, days: int) -> None:
        await workflow.sleep(timedelta(days=days))
        self.tracking = tracking

    @workflow.signal
    def nudge(self) -> None:
        pass

    @workflow.query
    def status(self) -> str:
        return "shipped" if self.tracking else "waiting"

    @workflow.query(name="shorter-than")
    def shorter_than(self, length: int) -> bool:
        return len(self.tracking or "") < length

    @workflow.update
    async def change_address(self, address: str, line: int) -> list[str]:
        await workflow.sleep(1)
        self.address = address
        return [address] * line

    @change_address.validator
    def check_address(self, address: str, line: int) -> None:
        if not address or line < 1:
            raise ValueError("no address")

    @workflow.update(name="rename")
    def rename(self, to: str) -> int:
        self.address = to
        return len(to)

    @rename.validator
    def check_rename(self, to: str) -> None:
        if not to:
            raise ValueError("no name")

    def own_calls(self) -> None:
        assert_type(self.status(), str)
        assert_type(self.rename("x"), int)
        self.approve("T")


@workflow.defn(name="fan-out", on_crash="fail", retention=timedelta(days=30))
class FanOut:
    @workflow.init
    def __init__(self, orders: list[Order]) -> None:
        self.orders = orders

    @workflow.run
    async def run(self, orders: list[Order]) -> dict[str, int]:
        handle = workflow.start_activity(charge, orders[0])
        assert_type(handle, workflow.ActivityHandle[Receipt])
        assert_type(handle.done(), bool)
        assert_type(handle.cancel(), bool)
        words = workflow.start_activity(count_words, "a", start_to_close_timeout=timedelta(seconds=2))
        assert_type(words, workflow.ActivityHandle[int])
        named = workflow.start_activity("elsewhere", 1, result_type=str)
        assert_type(named, workflow.ActivityHandle[str])
        assert_type(workflow.start_activity("elsewhere", 1), workflow.ActivityHandle[Any])
        assert_type(await named, str)
        assert_type(await asyncio.gather(handle, words, charge(orders[0])), tuple[Receipt, int, Receipt])
        both = await asyncio.gather(
            workflow.execute_activity(charge, orders[0]), workflow.execute_activity(count_words, "a")
        )
        assert_type(both, tuple[Receipt, int])
        assert_type(await asyncio.gather(*(charge(order) for order in orders)), list[Receipt])
        assert_type(await asyncio.wait_for(charge(orders[0]), 5), Receipt)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(workflow.execute_activity(ship, orders[0], "T"))
        assert_type(task.result(), bool)
        return {order.item: order.count for order in orders}


@workflow.defn
class NoArguments:
    @workflow.run
    async def run(self) -> None:
        mailer = Mailer()
        assert_type(await workflow.execute_activity_method(Mailer.send, "a@b"), str)
        assert_type(await workflow.execute_activity_method(Mailer.send, "a@b", 2), str)
        assert_type(await workflow.execute_activity_method(Mailer.archive, "a@b"), int)
        assert_type(await workflow.execute_activity(mailer.send, "a@b", 2), str)
        patient = workflow.with_options(charge, start_to_close_timeout=timedelta(hours=1))
        assert_type(await patient(Order("tea"), note="slow"), Receipt)
        quick = workflow.with_options(count_words, retry_policy=RetryPolicy(maximum_attempts=1))
        assert_type(await quick(text="a b"), int)
        assert_type(await asyncio.gather(patient(Order("tea")), quick("a")), tuple[Receipt, int])
        await workflow.sleep(1.5)
        await workflow.sleep_until(workflow.now() + timedelta(hours=1))
        await workflow.wait_condition(workflow.all_handlers_finished)
        await workflow.wait_condition(lambda: [1], timeout=2)
        assert_type(workflow.now(), datetime)
        assert_type(workflow.time(), float)
        assert_type(workflow.uuid4(), UUID)
        assert_type(workflow.random(), Random)
        assert_type(workflow.random("dice"), Random)
        assert_type(workflow.info(), workflow.WorkflowInfo)
        assert_type(workflow.in_workflow(), bool)
        assert_type(workflow.cancellation_requested(), bool)
        workflow.logger.info("done")
        try:
            await charge(Order("tea"))
        except ActivityError as error:
            assert_type(error.caused_by(OSError), bool)
            assert_type(error.activity_type, str)


@workflow.defn
class Generics:
    @workflow.run
    async def run(self, boxes: list[Box[str]]) -> Box[int]:
        return Box(len(boxes))

    @workflow.update
    async def swap(self, box: Box[str]) -> Box[float]:
        return Box(float(len(box.inside)))


# --- from outside -----------------------------------------------------------------------------------------------


async def starting(runtime: Runtime) -> None:
    by_class = await runtime.spawn(Orders, Order("tea"), False, id="order-42", if_running="attach")
    assert_type(by_class, WorkflowHandle[Orders, Receipt])
    by_run = await runtime.spawn(Orders.run, Order("tea"), True, if_closed="refuse", request_id="r-1")
    assert_type(by_run, WorkflowHandle[Orders, Receipt])
    by_name = await runtime.spawn("Orders", Order("tea"), id="order-43")
    assert_type(by_name, WorkflowHandle[Any, Any])
    assert_type(await runtime.execute(Orders, Order("tea"), False), Receipt)
    assert_type(await runtime.execute(Orders.run, Order("tea"), True), Receipt)
    assert_type(await runtime.execute("Orders", Order("tea")), Any)
    assert_type(await runtime.execute(NoArguments), None)
    assert_type(await runtime.execute(FanOut, [Order("tea")]), dict[str, int])
    assert_type(await (await runtime.spawn(Generics, [Box("a")])).result(), Box[int])
    assert_type(await by_class.result(), Receipt)
    assert_type(await by_class.result(timeout=2.5, on_stall="wait"), Receipt)
    assert_type(await by_class.result(timeout=timedelta(seconds=2)), Receipt)
    assert_type(runtime.ref("order-42", Orders), WorkflowHandle[Orders, Receipt])
    assert_type(runtime.ref("fan", FanOut), WorkflowHandle[FanOut, dict[str, int]])
    assert_type(runtime.ref("everact://local/order-42"), WorkflowHandle[Any, Any])
    assert_type(await runtime.list_workflows(status="running", limit=3), list[WorkflowSummary])
    assert_type([run async for run in runtime.list_workflows(page_size=10)], list[WorkflowSummary])
    assert_type(await runtime.count_workflows(workflow_type="Orders"), int)


async def talking(runtime: Runtime) -> None:
    order = runtime.ref("order-42", Orders)
    await order.signal(Orders.approve, "TRK")
    await order.signal(Orders.approve_later, "TRK", 2, request_id="r-1")
    await order.signal(Orders.nudge)
    await order.signal("approve", "TRK")
    await order.tell(Orders.approve, "TRK")
    assert_type(await order.query(Orders.status), str)
    assert_type(await order.query(Orders.shorter_than, 3, timeout=timedelta(seconds=1)), bool)
    assert_type(await order.query("status"), Any)
    assert_type(await order.execute_update(Orders.change_address, "here", 2), list[str])
    assert_type(await order.execute_update(Orders.rename, "x", request_id="r-2"), int)
    assert_type(await order.execute_update("rename", "x"), Any)
    moved = await order.start_update(Orders.change_address, "here", 2)
    assert_type(moved, UpdateHandle[list[str]])
    assert_type(await moved.result(), list[str])
    renamed = await order.start_update(Orders.rename, "x", wait_for_stage="completed", request_id="r-3")
    assert_type(await renamed.result(), int)
    assert_type(await order.start_update("rename", "x"), UpdateHandle[Any])
    await order.pause("a look", request_id="r-4")
    await order.resume()
    await order.release("mended")
    await order.redrive(7)
    assert_type((await order.describe()).dead_letters, tuple[DeadLetter, ...])
    assert_type(await order.ask(Orders.change_address, "here", 2), list[str])
    assert_type(await order.ask(Orders.rename, "x"), int)
    boxes = runtime.ref("boxes", Generics)
    assert_type(await boxes.ask(Generics.swap, Box("a")), Box[float])
    assert_type(await order.describe(), WorkflowDescription)
    assert_type([event.kind for event in await order.fetch_history()], list[str])
    await order.cancel("not wanted")
    await order.terminate()
    assert_type(order.address, str)
    try:
        await order.result()
    except WorkflowFailedError as error:
        assert_type(error.workflow_id, str)


async def refs_are_handles(order: WorkflowHandle[Orders, Receipt]) -> None:
    ref: ActorRef[Orders] = order
    await ref.tell(Orders.approve, "TRK")
    assert_type(await ref.ask(Orders.rename, "x"), int)
    assert_type(await ref.query(Orders.status), str)


def make() -> Runtime:
    return Runtime(
        "orders",
        workflows=[Orders, FanOut, NoArguments, Generics],
        activities=[charge, ship, count_words, nothing, unwrap, Mailer().send],
        durability="os",
        guard="strict",
        grace=timedelta(seconds=1),
    )


def callables() -> None:
    plain: Callable[[str], int] = count_words
    typed: Callable[[Order, str], Coroutine[Any, Any, bool]] = ship
    assert_type(plain("a"), int)
    assert typed is ship
