"""A turn that only delivers has no events, so the next entry begins with the same number: none may get lost."""

import pytest
from support.clock import START
from support.hosting import hosted, settled
from support.journal_model import Host, Model, make_tiny

from everact import workflow
from everact.exceptions import WorkflowQuarantinedError
from everact.journal import events as ev
from everact.journal.memory_store import MemoryJournal, MemoryStore


@pytest.mark.parametrize("messages", [1, 3, 5, 20])
@pytest.mark.parametrize("window", [1, 2, 3, 5, 7, 30])
@pytest.mark.parametrize("settings", [{"MERGE_BELOW": 0}, {"MERGE_BELOW": 150, "CROWD": 1000}], ids=str)
def test_all_of_them_are_moved_once(monkeypatch, messages, window, settings):
    make_tiny(monkeypatch, WINDOW=window, VALUE_ENTRIES=2, **settings)
    host = Host(MemoryStore(MemoryJournal()), Model(), START)
    key = host.start("a")
    for round_number in range(8):
        received = [ev.SignalReceived("s", (), f"r{round_number}-{n}", b"d") for n in range(messages)]
        first = host.state(key).last_event + 1
        host.turn(key, ev.Received(tuple(received)))
        assert host.commit() is None
        for number in range(first, first + messages):
            host.turn(key, ev.Turn((), (), (number,)))
            assert host.commit() is None
            host.model.check_index(host.index)
            host.model.check_tables(host.store)
        host.begin()
        host.check_loaded()
    host.turn(key, ev.Turn((), (ev.WorkflowTerminated(),)))
    assert host.commit() is None
    for number in range(40):
        host.start(f"b-{number}")
        assert host.commit() is None
    host.begin()
    host.check_loaded()


@workflow.defn
class Stalls:
    """Its code is broken until it is whole."""

    whole = True

    def __init__(self) -> None:
        self.numbers: list[int] = []

    @workflow.run
    async def run(self) -> list[int]:
        if not Stalls.whole:
            raise RuntimeError("a bug in the code")
        await workflow.wait_condition(lambda: -1 in self.numbers)
        return self.numbers

    @workflow.signal
    def add(self, n: int) -> None:
        self.numbers.append(n)


async def test_messages_that_a_stalled_run_has_received_are_all_there_once_it_goes_on(monkeypatch):
    make_tiny(monkeypatch, WINDOW=3, CROWD=1000)
    journal = MemoryJournal()
    monkeypatch.setattr(Stalls, "whole", False)
    async with hosted(journal, Stalls) as runtime:
        ref = await runtime.spawn(Stalls, id="a")
        for number in range(5):
            await ref.tell(Stalls.add, number)
        with pytest.raises(WorkflowQuarantinedError):
            await ref.result()
        assert (await ref.describe()).status in ("held", "quarantined")
    monkeypatch.setattr(Stalls, "whole", True)
    async with hosted(journal, Stalls) as runtime:
        ref = runtime.ref("a", Stalls)
        await ref.release()
        await settled(runtime)
        others = [await runtime.spawn(Stalls, id=f"b-{n}") for n in range(12)]
        assert len(others) == 12
        history = await ref.fetch_history()
    async with hosted(journal, Stalls) as runtime:
        ref = runtime.ref("a", Stalls)
        again = await ref.fetch_history()
        assert again.records[: len(history.records)] == history.records
        delivered = [n for _, record in again.records for n in getattr(record, "delivers", ())]
        assert sorted(delivered) == sorted(set(delivered))
        await ref.tell(Stalls.add, -1)
        assert await ref.result() == [0, 1, 2, 3, 4, -1]
