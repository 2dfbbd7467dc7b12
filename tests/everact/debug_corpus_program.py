"""Debugs events of the corpus, one after the other, in a process of its own: it traces all that runs there."""

from support.histories import FOLDER
from support.histories import read as stored
from support.history_workflows import ACTIVITIES, WORKFLOWS

from everact.actors.definitions import activity_definition
from everact.actors.descriptions import History
from everact.actors.registry import Registry
from everact.debugging.code_files import Code
from everact.debugging.debugger import Debugger
from everact.debugging.targets import _targets
from everact.journal import events as ev


def look():

    registry = Registry(WORKFLOWS, ())
    code = Code(registry.workflows, {each.name: each for each in map(activity_definition, ACTIVITIES)})
    stopped = nowhere = 0
    for name in ("everything-completed", "saga-parallel", "steps-completed", "waits-group", "late"):
        records = stored(FOLDER / f"{name}.json")[1]
        started = records[0][1].inputs[0]
        history = History(started.workflow_id, started.run_id, records)
        for number in list(_targets(history))[::5]:
            stop = Debugger(history, code, number).look()
            if any("nor after it" in note for note in stop.notes):
                nowhere += 1
                assert not isinstance(stop.event.event, ev.ActivityScheduled)
            else:
                stopped += 1
                assert stop.state.tasks[0].is_running
    assert stopped > 40 > nowhere * 10


if __name__ == "__main__":
    look()
