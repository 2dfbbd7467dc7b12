"""Random programs of everything at once: steps, sagas, children, continue-as-new, publish, cancels, races."""

import asyncio
import random
from contextlib import suppress
from datetime import timedelta

from everact import ApplicationError, RetryPolicy, activity, workflow
from everact.actors.saga_block import active_saga
from everact.exceptions import ActivityError, ChildWorkflowError, ExternalWorkflowError, SagaCompensationError

AT_ONCE = RetryPolicy(initial_interval=0.000001, maximum_interval=0.000001, maximum_attempts=3, jitter=0.5)
FAILURES = (
    ApplicationError,
    ActivityError,
    ChildWorkflowError,
    ExternalWorkflowError,
    SagaCompensationError,
    TimeoutError,
)
CLOSES = ("terminate", "request_cancel", "abandon")
CANCELS = ("try_cancel", "wait_cancellation_completed", "abandon")
SIMPLE = (
    "act",
    "act",
    "sleep",
    "put",
    "draw",
    "memo",
    "publish",
    "wait",
    "effect",
    "condition",
    "fail",
    "child",
    "child",
    "handle",
    "detached",
    "srun",
    "undo",
    "undo",
    "own_handler",
    "cancel_self",
    "again",
    "complete",
)
NESTED = (
    "step",
    "step",
    "step",
    "retried",
    "limited",
    "undone",
    "undone",
    "saga",
    "saga",
    "deadline",
    "gather",
    "group",
    "race",
    "shielded",
    "cancelled",
    "caught",
)
RARE = {"fail": 0.5, "cancel_self": 0.15, "again": 0.3, "complete": 0.15}


def program(rng, depth=0):
    """Operations, some of which hold others."""
    ops = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(NESTED if depth < 3 and rng.random() < 0.6 else SIMPLE)
        if kind in RARE and rng.random() > RARE[kind]:
            kind = "act"
        if kind in ("gather", "group", "race"):
            ops.append([kind, [program(rng, depth + 1) for _ in range(rng.randint(1, 3))]])
        elif kind in NESTED:
            ops.append([kind, program(rng, depth + 1)])
        else:
            ops.append([kind, rng.randint(0, 9)])
    return ops


@activity.defn
async def add(n: int) -> int:
    return n + 1


@activity.defn
async def refuse(text: str) -> int:
    raise ApplicationError(text, type="Refused", non_retryable=True)


@activity.defn
async def revoke(n: int) -> None:
    if n % 5 == 4 and activity.info().attempt < 2:
        raise ApplicationError("not yet")


@workflow.defn
class Kid:
    def __init__(self) -> None:
        self.told: list[int] = []

    @workflow.signal
    def tell(self, n: int) -> None:
        self.told.append(n)

    @workflow.run
    async def run(self, n: int) -> int:
        workflow.publish("n", n)
        match n % 7:
            case 0:
                return await add(n)
            case 1:
                await workflow.sleep(0.0005)
            case 2:
                raise ApplicationError("a bad kid", non_retryable=True)
            case 3:
                try:
                    await workflow.wait_condition(lambda: self.told, timeout=0.003)
                except TimeoutError:
                    return -1
                finally:
                    await add(3)
            case 4:
                workflow.continue_as_new(n + 1)
            case 5:
                return await self.step(n)
            case 6:
                return await workflow.execute_child_workflow(Kid, n - 6)
        return n

    @workflow.step
    async def step(self, n: int) -> int:
        await workflow.sleep(0.0002)
        return await add(n)


@workflow.defn
class Mixed:
    """Does what it is told, and writes down all that it sees."""

    items: list[int]

    def __init__(self) -> None:
        self.items = []
        self.log: list[str] = []
        self.failures = 0

    @workflow.run
    async def run(self, ops: list[list[object]], generation: int = 0) -> list[str]:
        self.generation = generation
        try:
            await self.do(ops)
        except FAILURES as error:
            self.log.append(f"left by {type(error).__name__}")
        except asyncio.CancelledError:
            self.log.append(f"cancelled {await asyncio.shield(add(7))}")
            await self.step([["act", 1], ["child", 0]], [1])
            raise
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.log

    @workflow.signal
    def poke(self, n: int) -> None:
        self.items.append(n)
        self.log.append(f"poked {n}")

    @workflow.signal
    async def slow(self, n: int) -> None:
        with suppress(*FAILURES):
            await workflow.execute_child_workflow(Kid, n)
        self.log.append("slow")

    @workflow.signal
    def stop(self, n: int) -> None:
        match n % 3:
            case 0:
                workflow.complete(["stopped"])
            case 1:
                workflow.cancel("by a signal")
            case 2:
                if self.generation < 2:
                    workflow.continue_as_new([["act", 1], ["child", n]], self.generation + 1)

    @workflow.update
    async def ask(self, n: int) -> int:
        self.items.append(await add(n))
        return len(self.items)

    @workflow.update
    async def ask_step(self, n: int) -> int:
        self.items.append(len(await self.step([["act", n], ["publish", n]], [n])))
        return len(self.items)

    @workflow.query
    def look(self) -> list[str]:
        return self.log

    async def do(self, ops: list[list[object]]) -> None:
        for kind, value in ops:
            await getattr(self, f"do_{kind}")(value)
            self.items.append(-1)
            self.log.append(f"{kind} {self.items[-6:]} {workflow.time():.6f}")

    async def do_act(self, n: int) -> None:
        self.items.append(await add(n))

    async def do_sleep(self, n: int) -> None:
        await workflow.sleep(0.0001 * n)

    async def do_put(self, n: int) -> None:
        self.items.append(n)

    async def do_draw(self, n: int) -> None:
        self.log.append(f"{workflow.random(f'stream {n % 3}').random()} {workflow.uuid4()}")

    async def do_memo(self, n: int) -> None:
        workflow.upsert_memo({f"m{n % 2}": n or None, "k": len(self.items)})
        self.log.append(str(workflow.memo()))

    async def do_publish(self, n: int) -> None:
        workflow.publish(f"p{n % 3}", None if n > 7 else [n, len(self.items)])

    async def do_wait(self, n: int) -> None:
        got = await workflow.wait_for_signal(
            Mixed.poke if n % 2 else f"s{n % 3}", timeout=0.0005, default=None
        )
        self.log.append(f"got {got}")

    async def do_effect(self, n: int) -> None:
        self.log.append(f"effect {workflow.side_effect(lambda: n + 1)}")

    async def do_condition(self, n: int) -> None:
        try:
            await workflow.wait_condition(lambda: len(self.items) > 3 * n, timeout=0.0005)
        except TimeoutError:
            self.log.append("not met")

    async def do_fail(self, n: int) -> None:
        self.failures += 1
        if n > 6:
            raise ApplicationError(f"failure {self.failures}", non_retryable=n > 8)
        if n > 4:
            await workflow.execute_activity(refuse, "refused")

    async def do_child(self, n: int) -> None:
        try:
            got = await workflow.execute_child_workflow(
                Kid, n, parent_close_policy=CLOSES[n % 3], cancellation_type=CANCELS[(n + self.failures) % 3]
            )
            self.log.append(f"kid {got}")
        except ChildWorkflowError as error:
            self.log.append(f"kid {error.__cause__}")
            if n == 9:
                raise

    async def do_handle(self, n: int) -> None:
        child = await workflow.start_child_workflow(
            Kid, n, parent_close_policy=CLOSES[n % 3], cancellation_type=CANCELS[len(self.items) % 3]
        )
        if n % 2:
            with suppress(ExternalWorkflowError):
                await child.signal(Kid.tell, n)
        if n % 3 == 0:
            child.cancel("enough")
        if n < 7:
            outcomes = await workflow.wait_for_children([child], timeout=0.002)
            self.log.append(f"kids {len(outcomes)} {child.done()}")

    async def do_detached(self, n: int) -> None:
        other = await workflow.start_detached(Kid, n)
        if n % 2:
            with suppress(ExternalWorkflowError):
                await other.cancel("no more")

    async def do_srun(self, n: int) -> None:
        saga = active_saga.get()
        if saga is None or not saga.is_open:
            return
        self.items.append(await saga.run(add, n, compensate=revoke, compensate_unknown=False, priority=n % 2))

    async def do_undo(self, n: int) -> None:
        saga = active_saga.get()
        if saga is None or not saga.is_open:
            return
        how = (self.undo_child, self.undo_step, self.undo_act, self.undo_bad, self.undo_publish)[n % 5]
        saga.add_compensation(how, n)

    async def undo_child(self, n: int) -> None:
        with suppress(ChildWorkflowError):
            self.log.append(f"undone by {await workflow.execute_child_workflow(Kid, n)}")

    async def undo_step(self, n: int) -> None:
        self.log.append(f"undone by {await self.step([['act', n], ['sleep', 1]], [n])}")

    async def undo_act(self, n: int) -> None:
        await workflow.sleep(0.0001)
        self.log.append(f"undone by {await add(n)}")

    async def undo_bad(self, n: int) -> None:
        if workflow.random("bad").random() < 0.5:
            raise ApplicationError("it stays", non_retryable=True)

    def undo_publish(self, n: int) -> None:
        workflow.publish("undone", n)
        self.items.append(n)

    async def do_own_handler(self, n: int) -> None:
        workflow.set_signal_handler(f"s{n % 3}", self.keep if n < 5 else None)

    def keep(self, n: int) -> None:
        self.items.append(n)

    async def do_cancel_self(self, n: int) -> None:
        workflow.cancel("by itself")

    async def do_again(self, n: int) -> None:
        if active_saga.get() is None and self.generation < 2:
            workflow.continue_as_new([["act", n], ["step", [["act", n]]]], self.generation + 1)

    async def do_complete(self, n: int) -> None:
        workflow.complete(["complete"])

    async def do_step(self, ops: list[list[object]]) -> None:
        try:
            self.log.append(f"result {len(await self.step(ops, self.items))}")
        except FAILURES as error:
            self.log.append(f"{type(error).__name__} {type(error.__cause__).__name__}")

    @workflow.step
    async def step(self, ops: list[list[object]], given: list[int]) -> list[int]:
        given.append(100)
        await self.do(ops)
        return self.items[-9:] if len(given) % 2 else given

    async def do_retried(self, ops: list[list[object]]) -> None:
        await self.retried(ops)

    @workflow.step(retry=AT_ONCE, optional=True)
    async def retried(self, ops: list[list[object]]) -> None:
        await self.do(ops)
        if workflow.random("retries").random() < 0.5:
            raise ApplicationError("again")

    async def do_limited(self, ops: list[list[object]]) -> None:
        self.log.append(f"limited {await self.limited(ops)}")

    @workflow.step(timeout=0.0007, on_timeout="late", optional=True)
    async def limited(self, ops: list[list[object]]) -> str | None:
        await self.do(ops)
        return "in time"

    async def do_undone(self, ops: list[list[object]]) -> None:
        self.log.append(f"undone {await self.undone(ops)}")

    async def undo(self, n: int) -> None:
        self.items.append(await self.undo_more(n))

    @workflow.step
    async def undo_more(self, n: int) -> int:
        return await add(n)

    @workflow.step(compensate=undo)
    async def undone(self, ops: list[list[object]]) -> int:
        await self.do(ops)
        return len(self.items)

    async def do_saga(self, ops: list[list[object]]) -> None:
        how = len(self.items) % 4
        retry = RetryPolicy(initial_interval=timedelta(microseconds=1), maximum_attempts=4, jitter=0)
        async with workflow.saga(
            on_compensation_failure=("retry", "retry", "continue", "escalate")[how],
            compensation_retry=retry,
            parallel=how == 1,
        ):
            await self.do(ops)

    async def do_deadline(self, ops: list[list[object]]) -> None:
        try:
            async with workflow.deadline(0.001):
                await self.do(ops)
        except TimeoutError:
            self.log.append("too late")

    async def do_gather(self, parts: list[list[list[object]]]) -> None:
        results = await asyncio.gather(*(self.step(part, [1]) for part in parts), return_exceptions=True)
        self.log.append(str([type(r).__name__ for r in results]))
        for r in results:
            if isinstance(r, BaseException) and not isinstance(r, Exception):
                raise r

    async def do_group(self, parts: list[list[list[object]]]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(self.optional(part))
        except* FAILURES as group:
            self.log.append(f"group {len(group.exceptions)}")

    @workflow.step(optional=True)
    async def optional(self, ops: list[list[object]]) -> int | None:
        await self.do(ops)
        return 1

    async def do_race(self, parts: list[list[list[object]]]) -> None:
        won = await workflow.race(*(self.optional(part) for part in parts), pause=workflow.sleep(0.0005))
        self.log.append(f"won {won}")

    async def do_shielded(self, ops: list[list[object]]) -> None:
        await asyncio.shield(self.optional(ops))

    async def do_cancelled(self, ops: list[list[object]]) -> None:
        task = asyncio.create_task(self.optional(ops))
        await workflow.sleep(0.0002)
        task.cancel()
        await asyncio.wait([task])
        self.log.append(f"task {task.cancelled()}")

    async def do_caught(self, ops: list[list[object]]) -> None:
        try:
            await self.do(ops)
        finally:
            self.log.append("finally")
            await self.step([["act", 2]], [])


ACTIVITIES = [add, refuse, revoke]


def random_program(seed):
    return program(random.Random(seed))
