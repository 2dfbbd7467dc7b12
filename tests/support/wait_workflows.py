"""Workflows that wait for activities in every way asyncio has; run live, and replayed in other processes.

As a script: ``python wait_workflows.py JOURNAL`` replays every run of a journal and prints one line for each.
"""

import asyncio
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
                raise AssertionError(kind)


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
)


def replay_all(path, workflows, activities):
    """Replay every run that a journal holds; yields its id and its outcome, or the error."""
    from everact.actors.definitions import activity_definition, workflow_definition
    from everact.actors.replay import replay
    from everact.actors.workflow_instance import WorkflowCrashedError, WorkflowInstance
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
