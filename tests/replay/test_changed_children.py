"""Code about other runs that was changed under a run: found out, with what the journal has and what the code did."""

import pytest
from support.histories import FOLDER, read
from support.kin_workflows import Kid, Kin

from everact import workflow
from everact.actors.definitions import workflow_definition
from everact.actors.replay import replay
from everact.actors.run_end import WorkflowCrashedError
from everact.actors.workflow_instance import WorkflowInstance
from everact.exceptions import NondeterminismError
from everact.journal.payloads import PayloadConverter

RECORDS = read(FOLDER / "kin.json")[1]


def difference(run):
    """What replay of the committed history says about another ``run``."""

    @workflow.defn(name="Other")
    class Other:
        @workflow.run
        async def run(self) -> None: ...

    @workflow.defn(name="Kin")
    class Changed:
        @workflow.run
        async def run(self) -> list[str]:
            return await run(self, Other)

    known = {
        name: workflow_definition(cls) for name, cls in (("Kid", Kid), ("Kin", Changed), ("Other", Other))
    }
    instance = WorkflowInstance(known["Kin"], {}, PayloadConverter(), workflows=known)
    with pytest.raises(WorkflowCrashedError) as caught:
        replay(instance, RECORDS)
    instance.discard()
    assert caught.value.kind == "held"
    assert isinstance(caught.value.error, NondeterminismError)
    return caught.value.error


def first_id():
    return next(e for _, record in RECORDS for e in getattr(record, "outputs", ())).start.workflow_id


def test_another_type_and_another_id_of_a_child():
    async def other_type(_self, other):
        return await workflow.execute_child_workflow(other)

    error = difference(other_type)
    assert error.expected == f"command 1: child workflow 'Kid', id {first_id()!r}"
    assert error.actual == f"command 1: child workflow 'Other', id {first_id()!r}"
    assert "test_changed_children.py:" in error.place

    async def other_id(_self, _other):
        return await workflow.execute_child_workflow(Kid, "says", id="mine")

    assert difference(other_id).actual == "command 1: child workflow 'Kid', id 'mine'"


def test_other_messages():
    async def sends(_self, _other):
        await workflow.get_external_workflow_handle("w").signal("hello")
        return []

    assert difference(sends).actual == "command 1: signal 'hello' to workflow 'w'"

    async def cancels(_self, _other):
        await workflow.get_external_workflow_handle("w").cancel()
        return []

    assert difference(cancels).actual == "command 1: the cancel of workflow 'w'"

    async def starts(_self, other):
        await workflow.start_detached(other, id="d")
        return []

    assert difference(starts).actual == "command 1: a detached 'Other', id 'd'"


def test_a_cancel_that_was_not_there():
    async def withdraws(_self, _other):
        child = workflow.execute_child_workflow(Kid, "says", "hello")
        child.cancel()
        await workflow.wait_condition(lambda: False)
        return []

    error = difference(withdraws)
    assert error.expected == "nothing more"
    assert error.actual == "the cancel of child command 1, before it was sent off"


def test_the_same_code_fits():
    known = {cls.__name__: workflow_definition(cls) for cls in (Kid, Kin)}
    instance = WorkflowInstance(known["Kin"], {}, PayloadConverter(), workflows=known)
    replay(instance, RECORDS)
    assert instance.outcome is not None
    instance.discard()
