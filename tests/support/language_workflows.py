"""Histories of what the workflow language has: runs that end or cancel themselves, published values, headers."""

import contextlib
from dataclasses import replace

from everact import activity, workflow
from everact.exceptions import EveractError
from everact.interceptors import ClientOutboundInterceptor, Interceptor
from everact.journal.memory_store import MemoryJournal
from everact.payloads import PayloadConverter
from support.hosting import hosted, settled


@activity.defn
async def looks(n: int) -> int:
    return n + 1


@workflow.defn
class Published:
    """Publishes how far it has come, and ends by one of its handlers."""

    def __init__(self) -> None:
        workflow.publish("state", "new")
        self.notes: list[str] = []

    @workflow.run()
    async def run(self, n: int) -> str:
        workflow.publish("looked", await looks(n))
        try:
            await workflow.wait_condition(lambda: len(self.notes) > 5)
        finally:
            await workflow.sleep(0.001)
        return "main"

    @workflow.signal
    def note(self, text: str) -> None:
        self.notes.append(text)
        workflow.publish("notes", self.notes)

    @workflow.update
    async def finish(self, result: str) -> str:
        workflow.publish("state", None)
        workflow.complete(result)
        return f"finished {result}"

    @workflow.update
    def stop(self, why: str) -> str:
        workflow.cancel(why)
        return "stopping"


class Named(ClientOutboundInterceptor):
    """Sends a header along with starts and messages."""

    headers = {"who": PayloadConverter().encode("ann")}

    async def start_workflow(self, input):
        return await self.next.start_workflow(replace(input, headers=self.headers))

    async def signal_workflow(self, input):
        await self.next.signal_workflow(replace(input, headers=self.headers))


class Naming(Interceptor):
    def intercept_client(self, next):
        return Named(next)


WORKFLOWS = [Published]
ACTIVITIES = [looks]


async def record(write):
    """Make the runs; ``write(history, name)`` takes each."""
    async with hosted(MemoryJournal(), Published, activities=[looks], interceptors=[Naming()]) as runtime:
        for ending in ("finish", "stop"):
            handle = await runtime.spawn(Published.run, 1, id=ending)
            await handle.signal(Published.note, "one")
            await settled(runtime)
            await handle.execute_update(ending, "enough")
            with contextlib.suppress(EveractError):
                await handle.result()
            write(await handle.fetch_history(), f"published-{ending}")
