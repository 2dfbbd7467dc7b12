"""The code of the exported corpus: one type of workflow, whose run says which thing it does.

``CHANGED`` is the same type with each thing done in another way: what it leaves must not replay with ``Feature``.
"""

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta

from everact import ActivityError, ApplicationError, RetryPolicy, activity, workflow
from everact.exceptions import ChildWorkflowError, ExternalWorkflowError
from everact.interceptors import Interceptor, WorkflowInboundInterceptor, WorkflowOutboundInterceptor
from everact.payloads import PayloadConverter, RawValue


@activity.defn
async def add(n: int) -> int:
    return n + 1


@activity.defn
async def other(n: int) -> int:
    return n + 2


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=2))
async def unlucky(always: bool) -> str:
    if always or activity.info().attempt == 1:
        raise ApplicationError("no luck", type="Unlucky")
    return "luck"


@activity.defn
async def undo(what: str, broken: bool = False) -> None:
    if broken:
        raise ApplicationError(f"{what} stays", non_retryable=True)


@activity.defn(dynamic=True)
async def anything(name: str, args: list[RawValue]) -> str:
    return name


@workflow.defn
class Kid:
    def __init__(self) -> None:
        self.gone = False

    @workflow.run
    async def run(self, n: int) -> int:
        if n < 0:
            raise ApplicationError("negative", type="Negative")
        if n > 100:
            await workflow.wait_condition(lambda: self.gone)
        return 2 * n

    @workflow.signal
    def go(self) -> None:
        self.gone = True


class Base:
    """What both versions have; ``changed`` is which one it is."""

    changed = False

    def __init__(self) -> None:
        self.notes: list[str] = []

    @workflow.signal
    async def note(self, text: str) -> None:
        if text == "bad" and not self.changed:
            raise ValueError(text)
        self.notes.append(text)

    @workflow.update
    async def change(self, text: str) -> str:
        await (other(1) if self.changed else add(1))
        if text == "fail":
            raise ApplicationError("not this")
        self.notes.append(text)
        return text.upper()

    async def do(self, kind: str, n: int) -> str:
        return str(await getattr(self, f"do_{kind}")(n))

    @workflow.step
    async def first(self) -> int:
        return await add(1)

    @workflow.step(retry=RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=2))
    async def second(self) -> int:
        self.notes.append("tried")
        if len(self.notes) == 1:
            raise ApplicationError("once more")
        return await add(2)

    # --- one thing each

    async def do_activity(self, n):
        return await (other(1) if self.changed else add(1))

    async def do_missing(self, n):
        result = await add(1)
        return await add(result) if self.changed else result

    async def do_extra(self, n):
        result = await add(1)
        return result if self.changed else await add(result)

    async def do_order(self, n):
        calls = [other(1), add(1)] if self.changed else [add(1), other(1)]
        return await asyncio.gather(*calls)

    async def do_retries(self, n):
        found = [await unlucky(False)]
        with contextlib.suppress(ActivityError):
            await unlucky(True)
        return [*found, await (other(1) if self.changed else add(1))]

    async def do_timer(self, n):
        await workflow.sleep(0.002 if self.changed else 0.001)

    async def do_withdrawn(self, n):
        waits = asyncio.create_task(workflow.sleep(3600))
        await asyncio.sleep(0)
        if not self.changed:
            waits.cancel()
        workflow.start_activity(add, 1).cancel()
        return await add(2)

    async def do_limit(self, n):
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(lambda: False, timeout=0.002 if self.changed else 0.001)

    async def do_signal(self, n):
        await workflow.wait_condition(lambda: "one" in self.notes)
        return await (other(1) if self.changed else add(1))

    async def do_handler(self, n):
        await workflow.wait_condition(lambda: "one" in self.notes)

    async def do_update(self, n):
        await workflow.wait_condition(lambda: "one" in self.notes)

    async def do_children(self, n):
        found = [await workflow.execute_child_workflow(Kid, 1, id="kid-else" if self.changed else "kid-1")]
        try:
            await workflow.execute_child_workflow(Kid, -1, id="kid-2")
        except ChildWorkflowError as error:
            found.append(str(error.status))
        kid = await workflow.start_child_workflow(Kid, 101, id="kid-3")
        await kid.signal(Kid.go)
        return [*found, await kid]

    async def do_messages(self, n):
        await workflow.start_detached(Kid, 7, id="kid-4")
        who = workflow.get_external_workflow_handle("nobody else" if self.changed else "nobody")
        with contextlib.suppress(ExternalWorkflowError):
            await who.signal("go")
        with contextlib.suppress(ExternalWorkflowError):
            await who.cancel("enough")

    async def do_continued(self, n):
        await add(n)
        if n < 2 and not self.changed:
            workflow.continue_as_new("continued", n + 1)
        return n

    async def do_steps(self, n):
        if not self.changed:
            await self.first()
        return await self.second()

    async def do_step_within(self, n):
        pair = [self.first(), workflow.sleep(0.001)]
        return await asyncio.gather(*(reversed(pair) if self.changed else pair))

    async def do_saga(self, n, **options):
        compensation = "undo" if not self.changed else other
        with contextlib.suppress(ApplicationError):
            async with workflow.saga("trip", **options) as saga:
                for what in ("flight", "hotel"):
                    await saga.run(
                        add,
                        1,
                        name=what,
                        compensate=compensation,
                        compensate_args=(what,) if not self.changed else (1,),
                    )
                raise ApplicationError("no car")

    async def do_saga_parallel(self, n):
        await self.do_saga(n, parallel=True)

    async def do_saga_ordered(self, n):
        await self.do_saga(n, order=["flight", "hotel"])

    async def do_saga_failing(self, n):
        async with workflow.saga("trip", on_compensation_failure="continue") as saga:
            await saga.run(add, 1, name="flight", compensate=undo, compensate_args=("flight", True))
            await saga.run(add, 1, name="hotel", compensate=undo, compensate_args=("hotel",))
            if self.changed:
                await add(1)
            raise ApplicationError("no car")

    async def do_saga_done(self, n):
        async with workflow.saga("trip") as saga:
            await saga.run(add, 1, compensate=undo, compensate_args=("flight",))
            if self.changed:
                raise ApplicationError("no car")

    async def do_published(self, n):
        workflow.publish("elsewhere" if self.changed else "state", {"n": 1})
        await add(1)
        workflow.publish("elsewhere" if self.changed else "state", None)

    async def do_cancelled(self, n):
        try:
            await workflow.wait_condition(lambda: False)
        finally:
            await (other(1) if self.changed else add(1))

    async def do_cancels_itself(self, n):
        if self.changed:
            workflow.cancel("enough")
        await workflow.sleep(0.001)

    async def do_completes(self, n):
        if not self.changed:
            workflow.complete("early")
        await workflow.sleep(0.001)

    async def do_side_effect(self, n):
        found = workflow.side_effect(lambda: 7) if not self.changed else 7
        return found + await add(1)

    async def do_memo(self, n):
        workflow.upsert_memo({"colour" if self.changed else "shape": "round"})
        await add(1)

    async def do_fails(self, n):
        await add(1)
        if not self.changed:
            raise ApplicationError("on purpose", type="Meant")

    async def do_drawn(self, n):
        if self.changed:
            workflow.random().random()
        await add(1)
        await workflow.sleep(timedelta(microseconds=workflow.random().randint(1, 1000)))
        return workflow.uuid4().version

    async def do_named(self, n):
        return await workflow.execute_activity("other" if self.changed else "add", 1)


@workflow.defn
class Feature(Base):
    @workflow.run
    async def run(self, kind: str, n: int = 0) -> str:
        return await self.do(kind, n)


@workflow.defn(name="Feature")
class ChangedFeature(Base):
    changed = True

    @workflow.run
    async def run(self, kind: str, n: int = 0) -> str:
        return await self.do(kind, n)


@workflow.defn(dynamic=True)
class Anything:
    """Runs of all other types."""

    @workflow.run
    async def run(self, name: str, args: list[RawValue]) -> list[str]:
        return [await workflow.execute_activity(act, 1, result_type=str) for act in ("some", "thing")]


@workflow.defn(dynamic=True)
class ChangedAnything:
    @workflow.run
    async def run(self, name: str, args: list[RawValue]) -> list[str]:
        return [await workflow.execute_activity(act, 1, result_type=str) for act in ("thing", "some")]


class Outbound(WorkflowOutboundInterceptor):
    """Sends a header along with each activity."""

    def start_activity(self, input):
        headers = {**input.headers, "who": PayloadConverter().encode("ann")}
        return self.next.start_activity(replace(input, headers=headers))


class Inbound(WorkflowInboundInterceptor):
    """Waits before each run."""

    def init(self, outbound):
        self.next.init(Outbound(outbound))

    async def execute_workflow(self, input):
        await workflow.sleep(0.001)
        return await self.next.execute_workflow(input)


class Polite(Interceptor):
    def intercept_workflow(self, next):
        return Inbound(next)


KINDS = [name.removeprefix("do_") for name in vars(Base) if name.startswith("do_") and name != "do_saga"]
KINDS.insert(KINDS.index("saga_parallel"), "saga")
ACTIVITIES = [add, other, unlucky, undo, anything]
WORKFLOWS = [Feature, Kid, Anything]
CHANGED = [ChangedFeature, Kid, ChangedAnything]
