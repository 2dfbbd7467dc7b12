"""Sagas that both type checkers accept, and the types that they give."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from everact import RetryPolicy, activity, workflow
from everact.exceptions import SagaCompensationError


@dataclass
class Booking:
    number: int


@activity.defn
async def book(city: str, nights: int = 1) -> Booking:
    return Booking(len(city) * nights)


@activity.defn
def reserve(seat: int) -> int:
    return seat


@activity.defn
async def cancel(booking: Booking) -> None:
    pass


@activity.defn
def release(seat: int, reason: str) -> bool:
    return bool(seat and reason)


@activity.defn
async def clean() -> None:
    pass


@workflow.defn
class Trip:
    @workflow.run
    async def run(self, city: str, order: list[str]) -> int:
        async with workflow.saga(
            "trip",
            on_compensation_failure="escalate",
            compensation_retry=RetryPolicy(maximum_attempts=3),
            order=order,
        ) as saga:
            assert_type(saga, workflow.Saga)
            assert_type(await saga.run(book, city, 2, compensate=cancel), Booking)
            assert_type(await saga.run(reserve, 7), int)
            assert_type(await saga.run(reserve, 7, compensate=release, compensate_args=(7, "late")), int)
            assert_type(await saga.run(book, city, compensate=clean, compensate_args=()), Booking)
            assert_type(await saga.run(book, city, compensate=self.undo), Booking)
            assert_type(await saga.run(book, city, compensate=lambda booking: print(booking.number)), Booking)
            assert_type(await saga.run(book, city, compensate="cancel"), Booking)
            assert_type(await saga.run(book, city, optional=True, compensate=cancel), Booking | None)
            assert_type(await saga.run(reserve, 7, optional=True), int | None)
            assert_type(
                await saga.run(
                    reserve,
                    7,
                    optional=True,
                    compensate=release,
                    compensate_args=(7, "late"),
                    compensate_unknown=True,
                    compensate_options={"start_to_close_timeout": 5},
                    priority=3,
                    name="seat",
                    start_to_close_timeout=timedelta(seconds=5),
                ),
                int | None,
            )
            assert_type(await saga.run("book", city, result_type=Booking, compensate="cancel"), Booking)
            assert_type(await saga.run("book", city), Any)
            saga.add_compensation(cancel, Booking(1))
            saga.add_compensation(release, 7, "late", name="seat", priority=2)
            saga.add_compensation(self.undo, Booking(1))
            saga.add_compensation("cancel", Booking(1), options={"retry_policy": RetryPolicy()})
            pair = await asyncio.gather(saga.run(book, city, compensate=cancel), saga.run(reserve, 7))
            assert_type(pair, tuple[Booking, int])
            async with asyncio.TaskGroup() as group:
                task = group.create_task(saga.run(book, city, compensate=cancel))
            assert_type(task.result(), Booking)
        async with workflow.saga(parallel=True):
            pass
        async with workflow.saga(order={"seat": ["hotel", "flight"]}):
            pass
        return pair[0].number

    async def undo(self, booking: Booking) -> None:
        try:
            await cancel(booking)
        except SagaCompensationError as error:
            assert_type(error.errors, tuple[Exception, ...])
