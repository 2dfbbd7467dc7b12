"""The program that the crash tests kill: fifty workflows, and a driver that repeats what was not acknowledged.

Started as ``python workload.py <journal>``. Standard input is one line of JSON, how many steps of each
workflow were acknowledged in earlier lives. Standard output is one line of JSON for each thing that has left the
runtime; a pipe keeps what was written before a SIGKILL:

    ["ack", workflow id, step, answer]     the call returned
    ["ran", idempotency key, attempt]      an activity is about to return or to raise
    ["log", workflow id, text]             a log record reached its handler
    ["done"]                               all workflows have ended and the runtime was left
"""

import asyncio
import json
import logging
import os
import sys
from contextlib import contextmanager
from datetime import timedelta

from everact import ActivityError, ApplicationError, RetryPolicy, Runtime, activity, workflow
from everact.actors import restarts
from everact.exceptions import (
    UpdateRejectedError,
    WorkflowCancelledError,
    WorkflowClosedError,
    WorkflowFailedError,
)
from everact.journal import blob_table, blobs, compaction, run_index, snapshots
from everact.supervision.backoff import Backoff
from everact.supervision.strategies import RestartLimit

WORKFLOWS = 50
#: Workflows that the driver has in hand at a time: fewer make more and smaller commits.
LANES = 10
QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=4), jitter=0.0, maximum_attempts=100)
TWICE = RetryPolicy(initial_interval=timedelta(milliseconds=4), jitter=0.0, maximum_attempts=2)


#: Small segments, so that the log is moved into the tables all the time and every life ends somewhere in it; nearly
#: every payload becomes a blob.
SMALL = [
    (compaction, "WINDOW", 60),
    (compaction, "WINDOW_PER_RUN", 1),
    (compaction, "SAMPLES", 20),
    (compaction, "READ_AT_ONCE", 0),
    (compaction, "READ_AHEAD", 15),
    (compaction, "CROWD", 8),
    (run_index, "CROWD", 8),
    (blobs, "SPILL", 6),
    (snapshots, "SPILL", 6),
    (blob_table, "CHUNK", 10),
    (restarts, "LIMIT", RestartLimit(most=10, backoff=Backoff(first=0.001, longest=0.002))),
]


@contextmanager
def small():
    """Inside, a journal is written, and checked, with these sizes."""
    before = [(module, name, getattr(module, name)) for module, name, _ in SMALL]
    for module, name, value in SMALL:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def tell(*line):
    os.write(1, json.dumps(line).encode() + b"\n")


def ran():
    info = activity.info()
    tell("ran", info.idempotency_key, info.attempt)
    return info.attempt


# --- activities


@activity.defn(retry_policy=QUICK)
async def charge(number: int, token: str) -> str:
    ran()
    return f"{number} paid with {token}"


@activity.defn(retry_policy=QUICK)
def print_label(number: int) -> str:
    ran()
    return f"label {number}"


@activity.defn(retry_policy=QUICK)
async def flaky(number: int) -> int:
    if ran() < 3:
        raise OSError("not yet")
    return number * 3


@activity.defn(retry_policy=QUICK)
def flaky_thread(number: int) -> int:
    if ran() < 2:
        raise OSError("not yet")
    return number * 5


@activity.defn(retry_policy=TWICE)
async def broken(number: int) -> int:
    ran()
    raise OSError(f"{number} is broken")


@activity.defn
async def never() -> None:
    await asyncio.Event().wait()


# --- workflows


@workflow.defn
class Order:
    """One step after the other; messages come at any time."""

    def __init__(self) -> None:
        self.approvals: list[str] = []
        self.notes: list[str] = []

    @workflow.run
    async def run(self, number: int) -> list[object]:
        token = str(workflow.uuid4())
        first = await charge(number, token)
        workflow.logger.info("paid")
        await workflow.sleep(0.02)
        label = await workflow.execute_activity(print_label, number)
        workflow.logger.info("labelled")
        await workflow.wait_condition(lambda: len(self.approvals) == 3 and len(self.notes) == 1)
        second = await charge(number, token)
        return [number, label, self.approvals, self.notes, first == second == f"{number} paid with {token}"]

    @workflow.signal
    def approve(self, who: str) -> None:
        self.approvals.append(who)

    @workflow.update
    def note(self, text: str) -> str:
        self.notes.append(text)
        return f"noted {text}"


@workflow.defn
class Fan:
    """Branches side by side, retries among them; an async signal handler with a timer of its own."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.lock = asyncio.Lock()

    @workflow.run
    async def run(self, number: int) -> list[object]:
        async def after_a_while() -> str:
            await asyncio.sleep(0.01)
            return await charge(number, "later")

        gathered = await asyncio.gather(
            charge(number, "now"),
            flaky(number),
            workflow.execute_activity(flaky_thread, number),
            after_a_while(),
        )
        await workflow.wait_condition(lambda: len(self.seen) == 3)
        return [*gathered, self.seen]

    @workflow.signal
    async def see(self, what: str) -> None:
        async with self.lock:
            await workflow.sleep(0.003)
            self.seen.append(what)


@workflow.defn
class Race:
    """Waits with limits: what loses is withdrawn."""

    def __init__(self) -> None:
        self.go = ""

    @workflow.run
    async def run(self, number: int) -> list[str]:
        trail = []
        try:
            await asyncio.wait_for(never(), 0.015)
        except TimeoutError:
            trail.append("gave up")
        sleeper = asyncio.create_task(asyncio.sleep(0.005))
        waiter = asyncio.create_task(workflow.wait_condition(lambda: self.go == "never sent"))
        done, _ = await asyncio.wait([sleeper, waiter], return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        trail.append("sleeper" if sleeper in done else "waiter")
        await asyncio.wait_for(workflow.wait_condition(lambda: self.go != ""), 3600)
        trail.append(self.go)
        trail.append(await asyncio.wait_for(workflow.execute_activity(print_label, number), 3600))
        return trail

    @workflow.signal
    def start(self, word: str) -> None:
        self.go = word


@workflow.defn
class Counter:
    """Lives from its updates, which run activities."""

    def __init__(self) -> None:
        self.total = 0

    @workflow.run
    async def run(self, target: int) -> int:
        await workflow.wait_condition(lambda: self.total >= target)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.total

    @workflow.update
    async def add(self, amount: int) -> int:
        await charge(amount, "add")
        self.total += amount
        return self.total

    @add.validator
    def check_add(self, amount: int) -> None:
        if amount < 0:
            raise ValueError("only upwards")


@workflow.defn
class Failing:
    """Loses an activity for good, makes up for it, and fails."""

    def __init__(self) -> None:
        self.asked = False

    @workflow.run
    async def run(self, number: int) -> None:
        await workflow.wait_condition(lambda: self.asked)
        try:
            await broken(number)
        except ActivityError:
            await workflow.execute_activity(print_label, number)
            raise ApplicationError(f"gave {number} back") from None

    @workflow.signal
    def ask(self) -> None:
        self.asked = True


@workflow.defn
class Cancelled:
    """Waits for its cancel and cleans up."""

    def __init__(self) -> None:
        self.waiting = False

    @workflow.run
    async def run(self, number: int) -> None:
        await charge(number, "before")
        try:
            self.waiting = True
            await asyncio.gather(never(), workflow.sleep(3600))
        finally:
            await charge(number, "clean up")

    @workflow.update
    async def ready(self) -> bool:
        await workflow.wait_condition(lambda: self.waiting)
        return True


#: Where this life's runs have crashed already; None while there is no life.
CRASHED: set[tuple[int, str]] | None = None


def crash_once(number, place):
    """Crash the run, at each of its places once in each life."""
    if CRASHED is not None and (number, place) not in CRASHED:
        CRASHED.add((number, place))
        raise ValueError(f"crash {place}")


@workflow.defn
class Shaky:
    """Crashes, is paused, has a dead letter."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.refused = False

    @workflow.run
    async def run(self, number: int) -> list[object]:
        crash_once(number, "at first")
        paid = await charge(number, "shaky")
        crash_once(number, "when paid")
        await workflow.sleep(0.002)
        crash_once(number, "after a while")
        await workflow.wait_condition(lambda: len(self.notes) == 3)
        crash_once(number, "in the end")
        return [paid, self.notes]

    @workflow.signal
    def note(self, text: str) -> None:
        self.notes.append(text)

    @workflow.signal
    def picky(self, text: str) -> None:
        if not self.refused:
            self.refused = True
            raise ApplicationError("not like this")
        self.notes.append(text)


TYPES = [Order, Fan, Race, Counter, Failing, Cancelled, Shaky]
ACTIVITIES = [charge, print_label, flaky, flaky_thread, broken, never]
#: What the driver does with a workflow of each type between its start and its result, in order.
MESSAGES = {
    Order: [
        ("signal", "approve", "ann"),
        ("signal", "approve", "bob"),
        ("update", "note", "by hand"),
        ("signal", "approve", "ann"),
    ],
    Fan: [("signal", "see", "a"), ("signal", "see", "b"), ("signal", "see", "c")],
    Race: [("signal", "start", "go")],
    Counter: [
        ("update", "add", 2),
        ("rejected", "add", -1),
        ("update", "add", 3),
        ("update", "add", 4),
    ],
    Failing: [("signal", "ask")],
    Cancelled: [("update", "ready"), ("cancel",)],
    Shaky: [
        ("signal", "note", "a"),
        ("pause",),
        ("resume",),
        ("pause",),
        ("signal", "note", "b"),
        ("resume",),
        ("pause",),
        ("resume",),
        ("signal", "picky", "c"),
        ("redrive",),
    ],
}


def plan(number):
    """All steps of one workflow: its start, its messages, its result."""
    kind = TYPES[number % len(TYPES)]
    return [("start", kind, 9 if kind is Counter else number), *MESSAGES[kind], ("result",)]


class ToPipe(logging.Handler):
    def emit(self, record):
        tell("log", record.workflow_id, record.getMessage())


# --- the driver


async def take(runtime, workflow_id, number, step):
    """Make one call of the plan; the answer is data that the uninterrupted run gives too."""
    verb, *rest = plan(number)[step]
    request_id = f"{workflow_id}/{step}"
    ref = runtime.ref(workflow_id, TYPES[number % len(TYPES)])
    match verb:
        case "start":
            kind, *args = rest
            await runtime.spawn(kind, *args, id=workflow_id, if_closed="refuse", request_id=request_id)
        case "signal":
            await ref.tell(*rest, request_id=request_id)
        case "update":
            return await ref.ask(*rest, request_id=request_id)
        case "rejected":
            try:
                return await ref.ask(*rest, request_id=request_id)
            except UpdateRejectedError:
                return "rejected"
            except WorkflowClosedError:  # repeated after all the rest was done
                return "rejected"
        case "cancel":
            try:
                await ref.cancel("enough")
            except WorkflowClosedError:  # the cancel before had arrived
                return None
        case "pause":
            await ref.pause("look", request_id=request_id)
        case "resume":
            await ref.resume("looked", request_id=request_id)
        case "redrive":
            await redrive(ref)
        case "result":
            try:
                return ["completed", await ref.result()]
            except WorkflowCancelledError as error:
                return ["cancelled", error.message]
            except WorkflowFailedError as error:
                return ["failed", str(error.__cause__)]
    return None


async def redrive(ref):
    """Deliver the dead letter again, once there is one, unless an earlier life has."""
    while True:
        history = [event.event for event in await ref.fetch_history()]
        if any(getattr(event, "redrives", 0) for event in history):
            return
        letters = (await ref.describe()).dead_letters
        if letters:
            await ref.redrive(letters[0].number)
            return
        await asyncio.sleep(0.001)  # the run waits for its restart


async def drive(runtime, lanes, number, acknowledged):
    """Go on with a workflow where the last life ended; its last acknowledged step is repeated."""
    workflow_id = f"wf-{number}"
    async with lanes:
        for step in range(max(acknowledged - 1, 0), len(plan(number))):
            answer = await take(runtime, workflow_id, number, step)
            tell("ack", workflow_id, step, answer)


async def main(path, acknowledged):
    global CRASHED
    CRASHED = set()
    workflow.logger.setLevel(logging.INFO)
    logging.getLogger("everact.runtime").setLevel(logging.ERROR)  # failed attempts are part of the workload
    logging.getLogger("everact.runtime").addFilter(lambda record: "the signal of" not in record.getMessage())
    workflow.logger.addHandler(ToPipe())
    async with Runtime(path, workflows=TYPES, activities=ACTIVITIES) as runtime:
        lanes = asyncio.Semaphore(LANES)
        async with asyncio.TaskGroup() as group:
            for number in range(WORKFLOWS):
                group.create_task(drive(runtime, lanes, number, acknowledged.get(f"wf-{number}", 0)))
        assert await runtime.list_workflows(status="running") == []
        assert await runtime.count_workflows() == WORKFLOWS
    CRASHED = None
    tell("done")


if __name__ == "__main__":
    with small():
        asyncio.run(main(sys.argv[1], json.loads(sys.stdin.readline() or "{}")))
