"""Workflows that wait for activities in every way asyncio has; run live, and replayed in other processes.

As a script: ``python wait_workflows.py JOURNAL`` replays every run of a journal and prints one line for each.
"""

import asyncio
import contextlib
import contextvars
import sys
from datetime import timedelta

from everact import activity, workflow


@activity.defn
async def alpha(n: int) -> str:
    for _ in range((7 * n) % 5):
        await asyncio.sleep(0)
    return f"a{n}"


@activity.defn
async def beta(n: int) -> str:
    for _ in range((3 * n) % 4):
        await asyncio.sleep(0)
    return f"b{n}"


@activity.defn
def gamma(n: int) -> str:
    return f"c{n}"


@workflow.defn
class Waits:
    """``kind`` chooses how it waits; three activities of different types, then three more."""

    def __init__(self) -> None:
        self.log: list[str] = []

    @workflow.query
    def show(self) -> list[str]:
        return self.log

    @workflow.run
    async def run(self, kind: str) -> list[str]:
        for round_number in (0, 10):
            await self.round(kind, round_number)
            self.log.append(str(workflow.uuid4()))
            self.log.append(str(workflow.random("draw").random()))
            self.log.append(workflow.now().isoformat())
        return self.log

    async def named(self, name: str, n: int) -> str:
        """A coroutine that makes its command only when it runs."""
        if name == "alpha":
            return await alpha(n)
        if name == "beta":
            return await beta(n)
        return await workflow.execute_activity(gamma, n)

    async def round(self, kind: str, n: int) -> None:
        log = self.log
        match kind:
            case "gather":
                log += await asyncio.gather(alpha(n), beta(n + 1), workflow.execute_activity(gamma, n + 2))
            case "gather coroutines":
                log += await asyncio.gather(*(self.named(x, n) for x in ("beta", "gamma", "alpha")))
            case "group":
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self.named(x, n)) for x in ("alpha", "beta")]
                    tasks.append(group.create_task(workflow.execute_activity(gamma, n)))
                log += [task.result() for task in tasks]
            case "tasks":
                tasks = [asyncio.create_task(alpha(n + i)) for i in range(3)]
                log += [await task for task in reversed(tasks)]
            case "first":
                pending = {asyncio.ensure_future(self.named(x, n)) for x in ("alpha", "beta", "gamma")}
                while pending:
                    done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        log.append(f"{task.result()} {await beta(n + 50)}")
            case "completed":
                for earliest in asyncio.as_completed([self.named(x, n) for x in ("gamma", "beta", "alpha")]):
                    log.append(await earliest)
                    log.append(await alpha(n + 60))
            case "wait_for":
                log += await asyncio.gather(
                    asyncio.wait_for(alpha(n), 60), beta(n), asyncio.wait_for(self.named("gamma", n), 90)
                )
            case "timeout":
                async with asyncio.timeout(60):
                    log.append(await alpha(n))
                try:
                    async with asyncio.timeout(0.002):
                        await workflow.sleep(60)
                except TimeoutError:
                    log.append(await beta(n))
            case "shield":
                inner = asyncio.ensure_future(self.named("alpha", n))
                outer = asyncio.shield(inner)
                await asyncio.sleep(0)
                outer.cancel()
                log.append(await inner)
            case "condition":
                task = asyncio.create_task(self.named("beta", n))
                await workflow.wait_condition(task.done)
                await workflow.wait_condition(
                    lambda: False or bool(log is not None), timeout=timedelta(hours=1)
                )
                log.append(task.result())
            case "queue":
                queue: asyncio.Queue[str] = asyncio.Queue()

                async def producer(name: str) -> None:
                    await queue.put(await self.named(name, n))

                tasks = [asyncio.create_task(producer(x)) for x in ("alpha", "gamma", "beta")]
                log += [await queue.get() for _ in tasks]
            case "lock":
                lock = asyncio.Lock()

                async def holder(name: str) -> None:
                    async with lock:
                        log.append(await self.named(name, n))

                await asyncio.gather(*(holder(x) for x in ("gamma", "alpha", "beta")))
            case "set":
                # A set of tasks, whose order is that of addresses or hashes.
                tasks = {asyncio.create_task(self.named(x, n)) for x in ("alpha", "beta", "gamma")}
                done, _ = await asyncio.wait(tasks)
                for task in done:
                    log.append(f"{task.result()} {await alpha(n + 80)}")
            case _:
                await self.tool(kind, n)

    async def tool(self, kind: str, n: int) -> None:
        """The rest of asyncio's tools; each has several tasks whose order it decides."""
        log = self.log
        names = ("gamma", "alpha", "beta")

        async def act(name: str) -> None:
            log.append(await self.named(name, n))

        match kind:
            case "event":
                event = asyncio.Event()

                async def waits(name: str) -> None:
                    await event.wait()
                    await act(name)

                tasks = {asyncio.create_task(waits(name)) for name in names}
                await alpha(n + 3)
                event.set()
                await asyncio.wait(tasks)
            case "notify":
                condition = asyncio.Condition()

                async def notified(name: str) -> None:
                    async with condition:
                        await condition.wait()
                    await act(name)

                tasks = {asyncio.create_task(notified(name)) for name in names}
                for count in (2, 1):
                    await beta(n + count)
                    async with condition:
                        condition.notify(count)
                await asyncio.wait(tasks)
            case "predicate":
                condition, items = asyncio.Condition(), list[int]()

                async def takes(name: str) -> None:
                    async with condition:
                        await condition.wait_for(lambda: items)
                        items.pop()
                    await act(name)

                tasks = {asyncio.create_task(takes(name)) for name in names}
                for count in range(3):
                    async with condition:
                        items.append(count)
                        condition.notify_all()
                    await alpha(n + count)
                await asyncio.wait(tasks)
            case "semaphore" | "bounded":
                limit = asyncio.Semaphore(2) if kind == "semaphore" else asyncio.BoundedSemaphore(2)

                async def limited(name: str) -> None:
                    async with limit:
                        await act(name)

                await asyncio.wait([asyncio.create_task(limited(name)) for name in (*names, *names)])
            case "barrier":
                barrier = asyncio.Barrier(3)

                async def meets(name: str) -> None:
                    await act(name)
                    log.append(f"{await barrier.wait()}")
                    await act(name)

                await asyncio.gather(*map(meets, names))
            case "priority" | "lifo":
                queue: asyncio.Queue[tuple[int, str]] = (
                    asyncio.PriorityQueue() if kind == "priority" else asyncio.LifoQueue(2)
                )

                async def consumer() -> None:
                    while True:
                        _, name = await queue.get()
                        await act(name)
                        queue.task_done()

                consumers = [asyncio.create_task(consumer()) for _ in range(2)]
                for number, name in enumerate((*names, *names)):
                    await queue.put((-number % 4, name))
                await queue.join()
                for task in consumers:
                    task.cancel()
                await asyncio.wait(consumers)
            case "exception":

                async def fails() -> None:
                    await beta(n)
                    raise KeyError(n)

                tasks = {asyncio.create_task(act(name)) for name in names} | {asyncio.create_task(fails())}
                done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
                log.append(f"{len(done) + len(pending)}")
                for task in pending:
                    task.cancel()
                await asyncio.gather(*done, *pending, return_exceptions=True)
            case "limit":
                tasks = {asyncio.create_task(act(name)) for name in names}
                tasks.add(asyncio.create_task(asyncio.sleep(60)))
                done, pending = await asyncio.wait(tasks, timeout=0.003)
                for task in pending:
                    task.cancel()
                log.append(f"{len(tasks)}")
            case "iterator":
                async for task in asyncio.as_completed([asyncio.create_task(act(name)) for name in names]):
                    await task
                    await beta(n + 70)
            case "late":
                try:
                    for earliest in asyncio.as_completed([act("alpha"), asyncio.sleep(60)], timeout=0.005):
                        await earliest
                except TimeoutError:
                    await act("beta")
            case "timeout_at":
                try:
                    async with asyncio.timeout_at(asyncio.get_running_loop().time() + 0.003) as scope:
                        scope.reschedule(asyncio.get_running_loop().time() + 0.002)
                        await asyncio.gather(*map(self.slowly, names))
                except TimeoutError:
                    await act("gamma")
            case "abort":

                async def breaks() -> None:
                    await beta(n)
                    raise KeyError(n)

                try:
                    async with asyncio.TaskGroup() as group:
                        for name in names:
                            group.create_task(self.slowly(name))
                        group.create_task(breaks())
                except* KeyError:
                    await act("alpha")
            case "errors":

                async def breaks_late(name: str) -> None:
                    await act(name)
                    raise KeyError(name)

                outcomes = await asyncio.gather(*map(breaks_late, names), return_exceptions=True)
                log += [str(outcome) for outcome in outcomes]
            case "cancel":
                tasks = {asyncio.create_task(self.slowly(name)) for name in names}
                await alpha(n)
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()
                done, _ = await asyncio.wait(tasks)
                assert all(task.cancelled() for task in done)
            case "generator":

                async def numbers(name: str):
                    try:
                        for number in range(3):
                            log.append(await self.named(name, n + number))
                            yield number
                    finally:
                        await act(name)

                for name in names:
                    async with contextlib.aclosing(numbers(name)) as generator:
                        async for number in generator:
                            if number:
                                break
            case "context":
                WHO.set("run")

                async def sets(name: str) -> None:
                    log.append(WHO.get())
                    WHO.set(name)
                    await act(name)
                    log.append(WHO.get())

                await asyncio.gather(*map(sets, names))
                log.append(WHO.get())
            case _:
                raise AssertionError(kind)

    async def slowly(self, name: str) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            self.log.append(f"{name} {await beta(len(name))}")


WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")

KINDS = (
    "gather",
    "gather coroutines",
    "group",
    "tasks",
    "first",
    "completed",
    "wait_for",
    "timeout",
    "shield",
    "condition",
    "queue",
    "lock",
    "set",
    "event",
    "notify",
    "predicate",
    "semaphore",
    "bounded",
    "barrier",
    "priority",
    "lifo",
    "exception",
    "limit",
    "iterator",
    "late",
    "timeout_at",
    "abort",
    "errors",
    "cancel",
    "generator",
    "context",
)


def replay_all(path, workflows, activities):
    """Replay every run that a journal holds; yields its id and its outcome, or the error."""
    from everact.actors.definitions import activity_definition, workflow_definition
    from everact.actors.replay import replay
    from everact.actors.run_end import WorkflowCrashedError
    from everact.actors.workflow_instance import WorkflowInstance
    from everact.journal.lmdb_store import LmdbStore
    from everact.journal.loading import load
    from everact.journal.payloads import PayloadConverter

    store = LmdbStore(path)
    known = {workflow_definition(cls).name: workflow_definition(cls) for cls in workflows}
    acts = {activity_definition(fn).name: activity_definition(fn) for fn in activities}
    converter = PayloadConverter()
    index = load(store).runs
    for row in index.newest_first():
        instance = WorkflowInstance(known[row.workflow_type], acts, converter)
        try:
            replay(instance, index.records(row))
        except WorkflowCrashedError as error:
            yield row.workflow_id, f"{error.kind}: {error.error}"
        else:
            yield row.workflow_id, instance.outcome.result.data.decode()
        instance.discard()
    store.close()


if __name__ == "__main__":
    for workflow_id, result in replay_all(sys.argv[1], [Waits], [alpha, beta, gamma]):
        print(f"{workflow_id}\t{result}")
