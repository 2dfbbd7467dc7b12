"""What happens when the object cannot be made, and when a run was received long before it could begin."""

import logging

import pytest
from support.hosting import hosted, settled

from everact import ApplicationError, workflow
from everact.exceptions import WorkflowFailedError
from everact.journal.memory_store import MemoryJournal


def ordered(version):
    @workflow.defn(name="Ordered")
    class Ordered:
        def __init__(self) -> None:
            if version == 1:
                raise KeyError("not ready")
            self.seen: list[int] = []

        @workflow.run
        async def run(self) -> list[int]:
            await workflow.wait_condition(lambda: len(self.seen) >= 1)
            if version == 2:
                raise KeyError("still not ready")
            return self.seen

        @workflow.signal
        def add(self, n: int) -> None:
            self.seen.append(n)

    return Ordered


async def test_messages_received_before_the_end_keep_their_order():
    journal = MemoryJournal()
    first, second, third = ordered(1), ordered(2), ordered(3)
    async with hosted(journal, second) as runtime:
        handle = await runtime.spawn(second.run, id="w")
        await handle.signal(second.add, 0)
        await settled(runtime)
        for n in (1, 2, 3):
            await handle.signal(second.add, n)
    async with hosted(journal, third) as runtime:
        assert await runtime.ref("w", third).result() == [0, 1, 2, 3]
    assert first


@pytest.mark.parametrize("on_crash", ["quarantine", "fail"])
async def test_a_failure_of_init_ends_the_run_as_one_of_run_does(on_crash):
    @workflow.defn(on_crash=on_crash)
    class W:
        def __init__(self) -> None:
            raise ApplicationError("no") if on_crash == "quarantine" else ValueError("no")

        @workflow.run
        async def run(self) -> None: ...

    async with hosted(MemoryJournal(), W) as runtime:
        with pytest.raises(WorkflowFailedError, match="no") as caught:
            await runtime.execute(W)
        assert type(caught.value) is WorkflowFailedError


async def test_the_start_is_when_it_was_received():
    @workflow.defn(name="W")
    class Late:
        @workflow.run
        async def run(self) -> None:
            raise KeyError("not ready")

    @workflow.defn(name="W")
    class Ready:
        @workflow.run
        async def run(self) -> float:
            return workflow.info().start_time.timestamp()

    journal = MemoryJournal()
    async with hosted(journal, Late) as runtime:
        handle = await runtime.spawn(Late, id="w")
        await settled(runtime)
    async with hosted(journal, Ready) as runtime:
        handle = runtime.ref("w", Ready)
        assert await handle.result() == (await handle.describe()).started_at.timestamp()


def test_programs_can_set_the_level_of_the_workflow_logger():
    assert logging.getLogger("everact.workflow") is workflow.logger
