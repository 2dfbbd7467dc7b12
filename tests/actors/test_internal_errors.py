"""An error of Everact's own in a turn hangs nobody and stops no other run."""

import pytest

from everact import Runtime, workflow
from everact.actors.workflow_actor import WorkflowActor
from everact.exceptions import WorkflowQuarantinedError
from everact.journal.memory_store import MemoryJournal, MemoryStore


@workflow.defn
class Waits:
    def __init__(self) -> None:
        self.count = 0

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: self.count == 2)
        return self.count

    @workflow.signal
    def add(self) -> None:
        self.count += 1


async def test_the_caller_gets_the_error_and_the_run_stands_still(monkeypatch):
    journal = MemoryJournal()
    async with Runtime(MemoryStore(journal), workflows=[Waits]) as runtime:
        broken = await runtime.spawn(Waits, id="broken")
        sound = await runtime.spawn(Waits, id="sound")
        deliver = WorkflowActor._deliver

        def fails(self, event, reply):
            if self.workflow_id == "broken":
                raise RuntimeError("a bug of ours")
            deliver(self, event, reply)

        monkeypatch.setattr(WorkflowActor, "_deliver", fails)
        with pytest.raises(RuntimeError, match="a bug of ours"):
            await broken.signal(Waits.add)
        with pytest.raises(WorkflowQuarantinedError, match="a bug of ours"):
            await broken.result()
        await sound.signal(Waits.add)
        await sound.signal(Waits.add)
        assert await sound.result() == 2
        monkeypatch.undo()
    async with Runtime(MemoryStore(journal), workflows=[Waits]) as runtime:
        broken = runtime.ref("broken", Waits)
        await broken.signal(Waits.add)
        await broken.signal(Waits.add)
        assert await broken.result() == 2


async def test_a_start_that_fails_inside_leaves_the_id_free(monkeypatch):
    async with Runtime(MemoryStore(MemoryJournal()), workflows=[Waits]) as runtime:
        with monkeypatch.context() as patch:

            def fails(self, event, reply):
                raise RuntimeError("a bug of ours")

            patch.setattr(WorkflowActor, "_deliver", fails)
            with pytest.raises(RuntimeError, match="a bug of ours"):
                await runtime.spawn(Waits, id="w")
        await runtime.spawn(Waits, id="w")
        assert await runtime.count_workflows() == 1
