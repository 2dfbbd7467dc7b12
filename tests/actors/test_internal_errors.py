"""An error of Everact's own in a turn hangs nobody and stops no other run."""

import pytest
from support.hosting import hosted, settled

from everact import Runtime, workflow
from everact.actors import recovery
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

    @workflow.query
    def look(self) -> int:
        return self.count


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
        await broken.release()
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


@pytest.mark.parametrize("error", [RuntimeError("odd"), RecursionError("deep"), MemoryError()])
async def test_whatever_the_recovery_of_one_run_raises_stops_that_run_alone(monkeypatch, error):
    """C07: the third of ten."""
    journal = MemoryJournal()
    async with hosted(journal, Waits) as runtime:
        for number in range(10):
            handle = await runtime.spawn(Waits.run, id=f"n-{number}")
            await handle.pause()
            await handle.signal(Waits.add)  # so that each has something to do at the start
    adopt = recovery._adopt

    def picky(shard, actor):
        adopt(shard, actor)
        if actor.workflow_id == "n-3":
            raise error

    monkeypatch.setattr(recovery, "_adopt", picky)
    async with hosted(journal, Waits) as runtime:
        await settled(runtime)
        listed = {line.workflow_id: line.status for line in await runtime.list_workflows()}
        assert listed == {f"n-{n}": "quarantined" if n == 3 else "paused" for n in range(10)}
    monkeypatch.undo()
    async with hosted(journal, Waits) as runtime:
        handle = runtime.ref("n-3", Waits)
        await handle.release()
        await handle.resume()
        assert await handle.query(Waits.look) == 1
