"""An order that is charged, waits for an approval, and ships; kill it anywhere and run it again.

Run ``python orders.py --help``; README.md shows what to try.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from everact import RetryPolicy, Runtime, WorkflowHandle, activity, workflow
from everact.exceptions import UpdateRejectedError, WorkflowClosedError

# --- the outside world: a file, so that everyone can see what really happened to money and parcels --------------


def say(text: str) -> None:
    """Print a whole line at once, from any thread; what is buffered would be lost in a kill -9."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Ledger:
    """Does each thing once for each idempotency key, as a good payment service would.

    Attributes:
        path: The file; one line for each thing done.
        crash_after: The process kills itself after doing this; for trying it out.
    """

    def __init__(self) -> None:
        self.path = Path("orders-ledger.txt")
        self.crash_after = ""

    def once(self, what: str, about: str) -> str:
        """Do a thing unless it was done under this key before; return its reference."""
        key = activity.info().idempotency_key
        done = self.path.read_text().splitlines() if self.path.exists() else []
        if any(line.startswith(f"{key} ") for line in done):
            say(f"{what}: was done before under this key, nothing to do")
        else:
            with self.path.open("a") as file:
                file.write(f"{key} {what} {about}\n")
            say(f"{what}: {about}")
            if self.crash_after == what:
                # The worst moment: it is done, and the journal does not know.
                say(f"kill -9 after {what}")
                os.kill(os.getpid(), signal.SIGKILL)
        return f"{what}-{key[:6]}"


ledger = Ledger()


# --- activities: what touches the world -------------------------------------------------------------------------


@dataclass(frozen=True)
class Order:
    """What a customer wants."""

    item: str
    price: Decimal
    address: str


@activity.defn(
    start_to_close_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_attempts=5),
)
async def charge(price: Decimal) -> str:
    """Take the money; the first attempt always fails, to show a retry."""
    if activity.info().attempt == 1:
        say("charge: the card service does not answer, there will be another attempt")
        raise ConnectionError("the card service does not answer")
    return ledger.once("charge", f"{price}")


@activity.defn
def ship(item: str, address: str) -> str:
    """Send the parcel; a plain function runs in a thread and may block."""
    return ledger.once("ship", f"{item} to {address}")


@activity.defn
async def refund(charge_id: str, price: Decimal) -> str:
    """Give the money back."""
    return ledger.once("refund", f"{price} of {charge_id}")


# --- the workflow: what decides ---------------------------------------------------------------------------------


@workflow.defn
class OrderWorkflow:
    """One order, from the charge to the parcel or the refund."""

    @workflow.init
    def __init__(self, order: Order, approval_timeout: timedelta) -> None:
        self.order = order
        self.approval_timeout = approval_timeout
        self.address = order.address
        self.approved_by: str | None = None
        self.state = "charging"

    @workflow.run
    async def run(self, order: Order, approval_timeout: timedelta) -> str:
        """Return one line about how it ended."""
        charge_id = await charge(order.price)
        self.go_to("waiting for approval")
        try:
            await workflow.wait_condition(lambda: self.approved_by is not None, timeout=approval_timeout)
        except TimeoutError:
            self.go_to("refunding")
            await refund(charge_id, order.price)
            self.go_to("refunded")
            return f"refunded, nobody approved within {approval_timeout}"
        self.go_to("shipping")
        tracking = await workflow.execute_activity(ship, order.item, self.address)
        self.go_to("shipped")
        return f"{order.item} for {order.price} shipped to {self.address} as {tracking}"

    def go_to(self, state: str) -> None:
        """Remember the state; the log line appears once, however often this code is replayed."""
        self.state = state
        workflow.logger.info("order: %s", state)

    @workflow.signal
    def approve(self, by: str) -> None:
        """Let it ship."""
        self.approved_by = by

    @workflow.query
    def status(self) -> str:
        """Say where the order is."""
        return f"{self.state}, address {self.address}"

    @workflow.update
    def change_address(self, address: str) -> str:
        """Send the parcel elsewhere; returns the address that it replaces."""
        old, self.address = self.address, address
        return old

    @change_address.validator
    def check_address(self, address: str) -> None:
        """Refuse before anything is written."""
        if not any(character.isdigit() for character in address):
            raise ValueError(f"{address!r} has no house number")
        if self.state not in ("charging", "waiting for approval"):
            raise ValueError(f"the order is {self.state}")


# --- the program ------------------------------------------------------------------------------------------------


async def obey(order: WorkflowHandle[OrderWorkflow, str], line: str) -> None:
    """Carry out one line that somebody typed."""
    verb, _, rest = line.strip().partition(" ")
    try:
        match verb:
            case "approve":
                await order.signal(OrderWorkflow.approve, rest or "you")
            case "address":
                old = await order.execute_update(OrderWorkflow.change_address, rest)
                say(f"address changed, it was {old}")
            case "status":
                say(f"{order.workflow_id}: {await order.query(OrderWorkflow.status)}")
            case _:
                say("type: status | address <new address> | approve [<your name>]")
    except (UpdateRejectedError, WorkflowClosedError) as error:
        say(f"{error}")


async def obey_keyboard(order: WorkflowHandle[OrderWorkflow, str]) -> None:
    """Carry out what is typed, until the program ends."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        rest = b""
        while data := os.read(sys.stdin.fileno(), 4096):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                with contextlib.suppress(RuntimeError):  # the program is at its end
                    loop.call_soon_threadsafe(typed.put_nowait, line.decode(errors="replace"))

    threading.Thread(target=read, daemon=True).start()
    while True:
        await obey(order, await typed.get())


async def main() -> None:
    """Start the order, or go on with it, and wait for its end."""
    parser = argparse.ArgumentParser(description="An order that survives kill -9.")
    parser.add_argument("--id", default="order-42", help="which order (default: %(default)s)")
    parser.add_argument("--approve", action="store_true", help="approve at once instead of waiting for you")
    parser.add_argument("--approval-timeout", type=float, default=3600, metavar="SECONDS")
    parser.add_argument("--crash-after", choices=["charge", "ship", "refund"], default="")
    options = parser.parse_args()
    ledger.crash_after = options.crash_after
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
    workflow.logger.setLevel(logging.INFO)

    async with Runtime(
        "orders-journal", workflows=[OrderWorkflow], activities=[charge, ship, refund]
    ) as runtime:
        say(f"process {os.getpid()}; type: status | address <new address> | approve")
        order = await runtime.spawn(
            OrderWorkflow,
            Order("teapot", Decimal("59.90"), "1 Main Street"),
            timedelta(seconds=options.approval_timeout),
            id=options.id,
            if_running="attach",
            if_closed="attach",
        )
        await obey(order, "status")
        keyboard = asyncio.create_task(obey_keyboard(order))
        if options.approve:
            await obey(order, "approve --approve")
        say(f"result: {await order.result()}")
        keyboard.cancel()


if __name__ == "__main__":
    asyncio.run(main())
