"""A trip that is booked whole or not at all; let any step fail, kill it anywhere, and run it again.

Run ``python travel.py --help``; README.md shows what to try.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Literal

from everact import ApplicationError, RetryPolicy, Runtime, WorkflowHandle, activity, workflow
from everact.exceptions import WorkflowFailedError, WorkflowQuarantinedError

# --- the outside world: a file, so that everyone can see what was booked, and what of it is left ------------------


def say(text: str) -> None:
    """Print a whole line at once, from any thread; what is buffered would be lost in a kill -9."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Ledger:
    """Does each thing once for each idempotency key, as a good service would.

    Attributes:
        path: The file; a line for each thing done: key, trip, what, item, amount.
        kill_after: The process kills itself after doing this; for trying it out.
    """

    def __init__(self) -> None:
        self.path = Path("travel-ledger.txt")
        self.kill_after = ""

    def lines(self) -> list[list[str]]:
        """What was done so far."""
        return [line.split(" ") for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def once(self, what: str, item: str, amount: Decimal) -> None:
        """Do a thing unless it was done under this key before; a positive amount books, a negative one gives back."""
        info = activity.info()
        key = info.idempotency_key
        if any(line[0] == key for line in self.lines()):
            say(f"{what}: was done before under this key, nothing to do")
            return
        with self.path.open("a") as file:
            file.write(f"{key} {info.workflow_id} {what} {item} {amount}\n")
        say(f"{what}: {item} {amount:+}")
        if self.kill_after == what:
            say(f"kill -9 after {what}")
            os.kill(os.getpid(), signal.SIGKILL)

    def left(self, trip: str) -> dict[str, Decimal]:
        """What of a trip is booked and paid, less what was cancelled and refunded, by item."""
        totals: dict[str, Decimal] = {}
        for _key, whose, _what, item, amount in self.lines():
            if whose == trip:
                totals[item] = totals.get(item, Decimal(0)) + Decimal(amount)
        return {item: total for item, total in sorted(totals.items()) if total}


ledger = Ledger()


# --- what is booked, and by which rules: data, as from a configuration file ---------------------------------------


@dataclass(frozen=True)
class Rules:
    """How a trip is undone.

    Attributes:
        order: Steps that are undone first, by the step that failed.
        on_failure: What is done when that fails too.
        parallel: Undo side by side, whatever ``order`` says.
    """

    order: dict[str, list[str]]
    on_failure: Literal["escalate", "continue"]
    parallel: bool


@dataclass(frozen=True)
class Trip:
    """What a traveller wants.

    Attributes:
        city: Where to.
        nights: How long.
        fail_at: The step that is to fail, for trying it out.
    """

    city: str
    nights: int
    fail_at: str = ""


@dataclass(frozen=True)
class Booking:
    """What a service has booked."""

    item: str
    price: Decimal


#: Steps whose compensation fails in this process.
undo_fails: set[str] = set()

QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_attempts=3)


def book(trip: Trip, item: str, price: Decimal) -> Booking:
    """Book something, unless that is to fail."""
    if trip.fail_at == item:
        say(f"book {item}: nothing left in {trip.city}")
        raise ApplicationError(f"no {item} in {trip.city}", non_retryable=True)
    ledger.once(f"book-{item}", item, price)
    return Booking(item, price)


def give_back(booking: Booking) -> None:
    """Cancel something, unless that is to fail."""
    if booking.item in undo_fails:
        say(f"cancel {booking.item}: the service does not answer")
        raise ConnectionError("the service does not answer")
    ledger.once(f"cancel-{booking.item}", booking.item, -booking.price)


@activity.defn(retry_policy=QUICK)
async def book_flight(trip: Trip) -> Booking:
    """There and back."""
    return book(trip, "flight", Decimal("180.00"))


@activity.defn(retry_policy=QUICK)
async def cancel_flight(booking: Booking) -> None:
    """Undo ``book_flight``."""
    give_back(booking)


@activity.defn(retry_policy=QUICK)
def book_hotel(trip: Trip) -> Booking:
    """So many nights; a plain function runs in a thread and may block."""
    return book(trip, "hotel", 95 * Decimal(trip.nights))


@activity.defn(retry_policy=QUICK)
def cancel_hotel(booking: Booking) -> None:
    """Undo ``book_hotel``."""
    give_back(booking)


@activity.defn(retry_policy=QUICK)
async def rent_car(trip: Trip) -> Booking:
    """Nice to have."""
    return book(trip, "car", 40 * Decimal(trip.nights))


@activity.defn(retry_policy=QUICK)
async def return_car(booking: Booking) -> None:
    """Undo ``rent_car``."""
    give_back(booking)


@activity.defn(retry_policy=QUICK)
async def charge_card(trip: Trip, total: Decimal) -> Booking:
    """Take the money."""
    return book(trip, "payment", total)


@activity.defn(retry_policy=QUICK)
async def refund(payment: Booking) -> None:
    """Undo ``charge_card``."""
    give_back(payment)


@activity.defn(retry_policy=QUICK)
async def send_tickets(trip: Trip) -> None:
    """What cannot be undone comes last."""
    if trip.fail_at == "tickets":
        raise ApplicationError("the traveller's mailbox is full", non_retryable=True)
    say(f"tickets for {trip.city} are sent")


# --- the workflow ------------------------------------------------------------------------------------------------


@workflow.defn
class TravelBooking:
    """One trip: flight and hotel, a car if there is one, then the money, then the tickets."""

    @workflow.run
    async def run(self, trip: Trip, rules: Rules) -> str:
        """Return one line about what was booked."""
        async with workflow.saga(
            "travel",
            on_compensation_failure=rules.on_failure,
            parallel=rules.parallel,
            order=None if rules.parallel else rules.order,
        ) as saga:
            flight, hotel = await asyncio.gather(
                saga.run(book_flight, trip, name="flight", compensate=cancel_flight),
                saga.run(book_hotel, trip, name="hotel", compensate=cancel_hotel),
            )
            car = await saga.run(rent_car, trip, name="car", compensate=return_car, optional=True)
            booked = [booking for booking in (flight, hotel, car) if booking is not None]
            total = sum((booking.price for booking in booked), Decimal(0))
            await saga.run(charge_card, trip, total, name="payment", compensate=refund)
            await saga.run(send_tickets, trip, name="tickets")
        return f"{' and '.join(booking.item for booking in booked)} in {trip.city} for {total}"


# --- the program -------------------------------------------------------------------------------------------------

WORKFLOWS = [TravelBooking]
ACTIVITIES = [
    book_flight,
    cancel_flight,
    book_hotel,
    cancel_hotel,
    rent_car,
    return_car,
    charge_card,
    refund,
    send_tickets,
]
#: Without tickets the money goes back first, then the flight, which has the shorter deadline.
ORDER = {"tickets": ["payment", "flight"]}
STEPS = ("flight", "hotel", "car", "payment", "tickets")


async def end_of(booking: WorkflowHandle[TravelBooking, str]) -> str:
    """Wait for the end; returns one line about it."""
    try:
        return f"booked: {await booking.result()}"
    except WorkflowQuarantinedError as error:
        return f"quarantined, somebody has to look: {error.__cause__}"
    except WorkflowFailedError as error:
        return f"not booked: {error.__cause__}"


async def main() -> None:
    """Book the trip, or go on with it, and wait for its end."""
    parser = argparse.ArgumentParser(description="A trip that is booked whole or not at all.")
    parser.add_argument("--id", default="trip-1", help="which trip (default: %(default)s)")
    parser.add_argument("--fail-at", choices=STEPS, default="", help="the step that fails")
    parser.add_argument("--fail-undo", choices=STEPS[:-1], default="", help="the compensation that fails")
    parser.add_argument("--parallel", action="store_true", help="undo side by side")
    parser.add_argument("--collect", action="store_true", help="go on when a compensation fails")
    parser.add_argument("--release", action="store_true", help="let a quarantined trip go on")
    parser.add_argument(
        "--kill-after", default="", metavar="DEED", help="kill -9 after book-... or cancel-..."
    )
    options = parser.parse_args()
    ledger.kill_after = options.kill_after
    undo_fails.update([options.fail_undo] if options.fail_undo else [])
    logging.basicConfig(level=logging.CRITICAL, format="%(message)s", stream=sys.stdout)
    rules = Rules(ORDER, "continue" if options.collect else "escalate", options.parallel)

    async with Runtime("travel-journal", workflows=WORKFLOWS, activities=ACTIVITIES) as runtime:
        booking = await runtime.spawn(
            TravelBooking,
            Trip("Lisbon", 3, options.fail_at),
            rules,
            id=options.id,
            if_running="attach",
            if_closed="attach",
        )
        if options.release:
            await booking.release("the service is back")
        say(await end_of(booking))
        for saga in (await booking.describe()).sagas:
            say(f"saga {saga}")
        left = ledger.left(options.id)
        say("left: " + (", ".join(f"{item} {total}" for item, total in left.items()) or "nothing"))


if __name__ == "__main__":
    asyncio.run(main())
