"""Children for tests: one that is done at once, one that fails, one that waits."""

import asyncio

from everact import ApplicationError, workflow


@workflow.defn
class Double:
    @workflow.run
    async def run(self, n: int) -> int:
        return 2 * n


@workflow.defn
class Fails:
    @workflow.run
    async def run(self, text: str) -> None:
        raise ApplicationError(text, 7, type="Broken")


@workflow.defn
class Waits:
    """Notes what it is told, until it is told to stop; slow to cancel when it is told to be."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.stopped = False
        self.clean = True

    @workflow.run
    async def run(self, slow: bool = False) -> list[str]:
        try:
            await workflow.wait_condition(lambda: self.stopped)
        except asyncio.CancelledError:
            if slow:
                self.clean = False
                await workflow.wait_condition(lambda: self.clean)
            raise
        return self.told

    @workflow.signal
    def tell(self, word: str) -> None:
        self.told.append(word)

    @workflow.signal
    def stop(self) -> None:
        self.stopped = True

    @workflow.signal
    def cleaned(self) -> None:
        self.clean = True


async def status(runtime, workflow_id):
    return (await runtime.ref(workflow_id).describe()).status
