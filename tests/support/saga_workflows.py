"""Sagas for the corpus of histories: undone one by one, side by side, by functions, by order, after an escalation."""

import asyncio
import contextlib
from datetime import timedelta

from everact import ApplicationError, RetryPolicy, activity, workflow
from everact.exceptions import EveractError
from everact.journal.memory_store import MemoryJournal
from support.hosting import hosted, settled, until

QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=3)

#: Steps whose compensation fails, so many times.
fails: dict[str, int] = {}


@activity.defn
async def book(what: str) -> str:
    if what == "full":
        raise ApplicationError("nothing left", non_retryable=True)
    return what


@activity.defn
async def unbook(what: str) -> None:
    if fails.get(what, 0):
        fails[what] -= 1
        raise ApplicationError(f"{what} stays", non_retryable=True)


@workflow.defn
class Trip:
    """Books some things, and cannot book the last one."""

    def __init__(self) -> None:
        self.undone: list[str] = []
        self.go = False

    @workflow.signal
    def proceed(self) -> None:
        self.go = True

    @workflow.run
    async def run(self, kind: str) -> list[str]:
        if kind == "outlived":
            self.task = asyncio.create_task(self.book(kind))
            await workflow.wait_condition(lambda: self.go)
            raise ApplicationError("in the middle of it")
        with contextlib.suppress(TimeoutError):
            await self.book(kind)
        return self.undone

    async def book(self, kind: str) -> None:
        options = {
            "parallel": {"parallel": True},
            "ordered": {"order": {"full": ["hotel", "flight"]}},
            "escalated": {"on_compensation_failure": "escalate"},
            "together": {"on_compensation_failure": "escalate", "parallel": True},
            "collected": {"on_compensation_failure": "continue"},
        }
        async with workflow.saga(kind, **options.get(kind, {})) as saga:
            for what in ("flight", "hotel", "car"):
                await saga.run(book, what, name=what, compensate=unbook, priority=int(what == "car"))
            saga.add_compensation(self.undo, "by hand")
            async with workflow.saga("inner") as inner:
                await inner.run(book, "seat", name="seat", compensate=unbook)
                await inner.run(book, "full", optional=True)
            if kind == "outlived":
                self.go = True
                await workflow.wait_condition(lambda: False)
            if kind == "cancelled":
                await workflow.wait_condition(lambda: self.go)
            if kind == "late":
                async with asyncio.timeout(0.001):
                    await workflow.wait_condition(lambda: self.go)
            if kind != "completed":
                await asyncio.gather(
                    saga.run(book, "boat", name="boat", compensate=unbook),
                    saga.run(book, "full", name="full", compensate=unbook, compensate_args=("full",)),
                )

    async def undo(self, what: str) -> None:
        await workflow.sleep(0.001)
        if not self.undone:
            self.undone.append("tried")
            raise ApplicationError("once more", next_retry_delay=0.001)
        self.undone.append(what)


KINDS = (
    "completed",
    "failed",
    "parallel",
    "ordered",
    "escalated",
    "together",
    "collected",
    "cancelled",
    "late",
    "outlived",
)
WORKFLOWS = [Trip]
ACTIVITIES = [book, unbook]


async def record(write):
    """Make every run of the corpus; ``write(history, name)`` takes each."""
    async with hosted(MemoryJournal(), *WORKFLOWS, activities=ACTIVITIES) as runtime:
        for kind in KINDS:
            fails.clear()
            if kind in ("escalated", "collected", "together"):
                fails.update(hotel=1)
            if kind == "together":
                fails.update(boat=1, flight=1)
            handle = await runtime.spawn(Trip.run, kind, id=kind)
            if kind == "cancelled":
                await until(lambda: runtime._shard.find("cancelled").state.waiting)
                await handle.cancel("enough")
            for _ in range(3):
                with contextlib.suppress(EveractError):
                    await handle.result()
                if (await handle.describe()).status == "quarantined":
                    await handle.release("again")
            await settled(runtime)
            write(await handle.fetch_history(), f"saga-{kind}")
