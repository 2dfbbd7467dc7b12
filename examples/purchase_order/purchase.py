"""A purchase from the first check to the delivery; let any step fail, kill it anywhere, and run it again.

Run ``python purchase.py --help``; README.md shows what to try.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from everact import ApplicationError, RetryPolicy, Runtime, WorkflowHandle, activity, workflow
from everact.exceptions import ActivityError, UpdateCutError, WorkflowClosedError, WorkflowFailedError

# --- the outside world: a file, so that everyone can see what became of money, goods and parcels ------------------


def say(text: str) -> None:
    """Print a whole line at once, from any thread; what is buffered would be lost in a kill -9."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Ledger:
    """Does each thing once for each idempotency key, as a good service would.

    Attributes:
        path: The file; a line for each thing done: key, order, what, account, amount.
        kill_after: The process kills itself after doing this; for trying it out.
    """

    def __init__(self) -> None:
        self.path = Path("purchase-ledger.txt")
        self.kill_after = ""

    def once(self, what: str, account: str, amount: Decimal, about: str = "") -> str:
        """Do a thing unless it was done under this key before; return its reference."""
        info = activity.info()
        key = info.idempotency_key
        done = self.path.read_text().splitlines() if self.path.exists() else []
        if any(line.startswith(f"{key} ") for line in done):
            say(f"{what}: was done before under this key, nothing to do")
        else:
            with self.path.open("a") as file:
                file.write(f"{key} {info.workflow_id} {what} {account} {amount}\n")
            say(f"{what}: {account} {amount:+}{about and f', was {about}'}")
            if self.kill_after == what:
                say(f"kill -9 after {what}")
                os.kill(os.getpid(), signal.SIGKILL)
        return f"{what}-{key[:6]}"

    def left(self, order: str) -> dict[str, Decimal]:
        """The balance of each account of an order, without those that are even."""
        totals: dict[str, Decimal] = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            _key, whose, _what, account, amount = line.split(" ")
            if whose == order:
                totals[account] = totals.get(account, Decimal(0)) + Decimal(amount)
        return {account: total for account, total in sorted(totals.items()) if total}


ledger = Ledger()


# --- activities: what touches the world ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Order:
    """What a customer wants.

    Attributes:
        item: What.
        count: How many.
        price: Of one.
        customer: Address for mails.
        fail_at: The step that is to fail, for trying it out.
    """

    item: str
    count: int
    price: Decimal
    customer: str
    fail_at: str = ""

    @property
    def total(self) -> Decimal:
        """What it costs."""
        return self.count * self.price


def check(order: Order, step: str) -> None:
    """Fail if that step is to fail."""
    if order.fail_at == step:
        say(f"{step}: fails")
        raise ApplicationError(f"{step} is not possible today", non_retryable=True)


QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=50), maximum_attempts=5)


@activity.defn
async def validate_order(order: Order) -> None:
    """Refuse what makes no sense."""
    check(order, "validate")
    if order.count < 1:
        raise ApplicationError("an order needs at least one item", non_retryable=True)


@activity.defn(retry_policy=QUICK, start_to_close_timeout=timedelta(minutes=2))
async def charge_payment(order: Order) -> str:
    """Take the money; the first attempt always fails, to show a retry."""
    check(order, "payment")
    if activity.info().attempt == 1:
        raise ConnectionError("the card service does not answer")
    return ledger.once("charge", "money", order.total)


@activity.defn(retry_policy=QUICK)
async def refund_payment(payment: str, amount: Decimal) -> None:
    """Undo ``charge_payment``."""
    ledger.once("refund", "money", -amount, payment)


@activity.defn(retry_policy=QUICK)
def reserve_items(order: Order) -> str:
    """Take the goods from the shelf; a plain function runs in a thread and may block."""
    check(order, "inventory")
    return ledger.once("reserve", "goods", Decimal(order.count))


@activity.defn(retry_policy=QUICK)
def release_items(reservation: str, count: int) -> None:
    """Undo ``reserve_items``."""
    ledger.once("release", "goods", Decimal(-count), reservation)


@activity.defn(retry_policy=QUICK)
async def create_shipment(order: Order) -> str:
    """Order a parcel to be picked up."""
    check(order, "shipment")
    return ledger.once("ship", "parcels", Decimal(1))


@activity.defn(retry_policy=QUICK)
async def cancel_shipment(shipment: str) -> None:
    """Undo ``create_shipment``."""
    ledger.once("unship", "parcels", Decimal(-1), shipment)


@activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
async def send_mail(order: Order, text: str) -> None:
    """Tell the customer; nothing depends on it."""
    check(order, "mail")
    say(f"mail to {order.customer}: {text}")


@activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
async def notify_warehouse(order: Order) -> None:
    """Tell those who pack."""
    check(order, "warehouse")
    say(f"warehouse: {order.count} x {order.item}")


@activity.defn
async def delivery_status(shipment: str, look: int) -> str:
    """Where the parcel is; it arrives at the third look."""
    status = "delivered" if look >= 3 else "on its way"
    say(f"{shipment} is {status}")
    return status


@activity.defn
async def escalate_to_support(about: str) -> None:
    """Somebody has to call the carrier."""
    say(f"support: {about}")


# --- the workflow ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limits:
    """How long things may take.

    Attributes:
        pickup: Until the carrier has the parcel.
        look: Between two looks for the delivery.
        looks: How many of them.
    """

    pickup: timedelta = timedelta(hours=72)
    look: timedelta = timedelta(hours=1)
    looks: int = 100


@workflow.defn
class PurchaseOrder:
    """One order: checked, paid, reserved, shipped, picked up, delivered; or all of it undone."""

    def __init__(self) -> None:
        self.state = "checking"
        self.picked_up = False

    @workflow.signal
    def shipment_picked_up(self) -> None:
        """The carrier has the parcel: from here on nothing is undone."""
        self.picked_up = True

    @workflow.update
    async def until_packed(self) -> None:
        """Wait until the parcel waits for the carrier."""
        await workflow.wait_condition(lambda: self.state == "waiting for the pickup")

    @workflow.query
    def status(self) -> str:
        """Say where the order is."""
        return self.state

    @workflow.run
    async def run(self, order: Order, limits: Limits) -> dict[str, str]:
        """Return the references of what was done."""
        async with workflow.saga("purchase") as saga:
            await saga.run(validate_order, order, name="validate")
            self.state = "paying"
            payment = await saga.run(
                charge_payment,
                order,
                name="payment",
                compensate=lambda payment: refund_payment(payment, order.total),
            )
            self.state = "reserving"
            await saga.run(
                reserve_items,
                order,
                name="inventory",
                compensate=lambda reservation: workflow.execute_activity(
                    release_items, reservation, order.count
                ),
            )
            self.state = "preparing the shipment"
            shipment, _, _ = await asyncio.gather(
                saga.run(create_shipment, order, name="shipment", compensate=cancel_shipment),
                saga.run(send_mail, order, "we have your order", name="mail", optional=True),
                saga.run(notify_warehouse, order, name="warehouse"),
            )
            self.state = "waiting for the pickup"
            try:
                await workflow.wait_condition(lambda: self.picked_up, timeout=limits.pickup)
            except TimeoutError:
                await escalate_to_support(f"nobody has picked up {shipment}")
                raise
        self.state = "on its way"
        await self.delivered(shipment, limits)
        with contextlib.suppress(ActivityError):
            await send_mail(order, "your order has arrived")
        self.state = "completed"
        return {"payment": payment, "shipment": shipment, "status": "completed"}

    async def delivered(self, shipment: str, limits: Limits) -> None:
        """Wait until the parcel is there, or let somebody look after it."""
        for look in range(1, limits.looks + 1):
            if await delivery_status(shipment, look) == "delivered":
                return
            await workflow.sleep(limits.look)
        await escalate_to_support(f"{shipment} was not delivered")


# --- the program -------------------------------------------------------------------------------------------------

ACTIVITIES = [
    validate_order,
    charge_payment,
    refund_payment,
    reserve_items,
    release_items,
    create_shipment,
    cancel_shipment,
    send_mail,
    notify_warehouse,
    delivery_status,
    escalate_to_support,
]
STEPS = ("validate", "payment", "inventory", "shipment", "mail", "warehouse")


async def carry(
    order: WorkflowHandle[PurchaseOrder, dict[str, str]], *, is_picked_up: bool, is_cancelled: bool
) -> str:
    """Do what the carrier or the customer does, and wait for the end; returns one line about it."""
    try:
        if is_picked_up:
            await order.signal(PurchaseOrder.shipment_picked_up)
        if is_cancelled:
            await order.execute_update(PurchaseOrder.until_packed)
            await order.cancel("the customer has changed her mind")
    except (WorkflowClosedError, UpdateCutError):
        pass
    try:
        result = await order.result()
    except WorkflowFailedError as error:
        return f"{type(error).__name__}: {error.__cause__ or error.message}"
    return f"{result['status']}: {result['payment']}, {result['shipment']}"


async def main() -> None:
    """Start the order, or go on with it, and wait for its end."""
    parser = argparse.ArgumentParser(description="A purchase that is delivered, or undone.")
    parser.add_argument("--id", default="purchase-1", help="which order (default: %(default)s)")
    parser.add_argument("--fail-at", choices=STEPS, default="", help="the step that fails")
    parser.add_argument("--no-pickup", action="store_true", help="the carrier does not come")
    parser.add_argument("--cancel", action="store_true", help="the customer cancels")
    parser.add_argument("--pickup-timeout", type=float, default=72 * 3600.0, metavar="SECONDS")
    parser.add_argument(
        "--kill-after", default="", metavar="DEED", help="kill -9 after charge, refund, reserve, ..."
    )
    options = parser.parse_args()
    ledger.kill_after = options.kill_after
    logging.basicConfig(level=logging.CRITICAL, format="%(message)s", stream=sys.stdout)

    async with Runtime("purchase-journal", workflows=[PurchaseOrder], activities=ACTIVITIES) as runtime:
        order = await runtime.spawn(
            PurchaseOrder,
            Order("teapot", 2, Decimal("29.95"), "ann@example.com", options.fail_at),
            Limits(timedelta(seconds=options.pickup_timeout), timedelta(milliseconds=50), 10),
            id=options.id,
            if_running="attach",
            if_closed="attach",
        )
        no_pickup = options.no_pickup or options.cancel
        say(await carry(order, is_picked_up=not no_pickup, is_cancelled=options.cancel))
        for saga in (await order.describe()).sagas:
            say(f"saga {saga}")
        left = ledger.left(options.id)
        say("left: " + (", ".join(f"{account} {total}" for account, total in left.items()) or "nothing"))


if __name__ == "__main__":
    asyncio.run(main())
