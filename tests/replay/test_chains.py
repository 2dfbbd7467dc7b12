"""Replay of the runs of a chain: whatever ended one and began the next, each decides again what it has decided."""

import pytest
from support.chain_workflows import Chained, cleans, live
from support.clock import ManualClock

from everact import workflow
from everact.actors.definitions import activity_definition, workflow_definition
from everact.actors.replay import replay
from everact.actors.run_end import WorkflowCrashedError
from everact.actors.workflow_instance import WorkflowInstance
from everact.exceptions import NondeterminismError
from everact.journal import events as ev
from everact.journal.memory_store import MemoryJournal
from everact.journal.payloads import PayloadConverter
from everact.journal.run_ends import next_run


def instance(cls=Chained):
    definition = workflow_definition(cls)
    return WorkflowInstance(definition, {"cleans": activity_definition(cleans)}, PayloadConverter())


async def test_every_run_of_a_chain_replays_to_its_outcome_and_names_the_same_next_run():
    result, histories = await live(MemoryJournal(), ManualClock())
    assert result == ["one", "two", "three", "2 4 once"]
    kinds = [type(history.events[-1].event) for history in histories]
    assert kinds == [
        ev.WorkflowContinuedAsNew,
        ev.WorkflowContinuedAsNew,
        ev.WorkflowContinuedAsNew,
        ev.WorkflowFailed,
        ev.WorkflowCompleted,
        ev.WorkflowTimedOut,
    ]
    for history, following in zip(histories, histories[1:5], strict=False):
        assert next_run(history.events[-1].event).run_id == following.run_id
    for history in histories:
        again = instance()
        replay(again, history.records)
        outcome = history.events[-1].event
        if isinstance(outcome, ev.WorkflowTimedOut):
            assert again.outcome is None
        else:
            assert type(again.outcome) is type(outcome)
            assert next_run(again.outcome) == next_run(outcome)
        again.discard()


async def test_what_a_handler_left_is_delivered_in_the_next_run_and_not_in_this_one():
    _result, histories = await live(MemoryJournal(), ManualClock())
    second, third = histories[1], histories[2]
    delivered = [number for _at, record in second.records for number in getattr(record, "delivers", ())]
    signals = {e.number: e.event.name for e in second if e.kind == "SignalReceived"}
    assert [signals[number] for number in delivered if number in signals] == ["next"]
    assert [e.event.args[0].data for e in third if e.kind == "SignalReceived"] == [b'"two"']
    assert "UpdateReceived" not in [e.kind for e in third]


async def test_code_that_no_longer_continues_is_held():
    _result, histories = await live(MemoryJournal(), ManualClock())

    @workflow.defn(name="Chained")
    class Stays(Chained):
        @workflow.run
        async def run(self, steps: list[str], told: list[str]) -> list[str]:
            await workflow.sleep(1)
            await cleans(3)
            return told

    other = instance(Stays)
    with pytest.raises(WorkflowCrashedError) as caught:
        replay(other, histories[0].records)
    assert caught.value.kind == "held"
    assert isinstance(caught.value.error, NondeterminismError)
    assert "the end of run (it continued as new)" in str(caught.value.error)
    other.discard()
