"""Committed histories: what old versions of Everact wrote, replayed for ever.

A file holds one run: its records as hex, with their times, and what its code answered. ``python -m support.histories``
(from ``tests``) writes those that do not exist yet; one that exists is never written again.
"""

import asyncio
import json
import sys
from pathlib import Path

import msgspec

from everact.actors.definitions import activity_definition, workflow_definition
from everact.actors.replay import replay
from everact.actors.workflow_instance import WorkflowInstance
from everact.journal.events import decode_record
from everact.journal.payloads import PayloadConverter

FOLDER = Path(__file__).parents[1] / "histories"


def write(history, name):
    """Save a run's history, unless there is one of this name."""
    path = FOLDER / f"{name}.json"
    if path.exists():
        return
    records = [
        [at, msgspec.msgpack.encode(_anywhere(msgspec.to_builtins(record, builtin_types=(bytes,)))).hex()]
        for at, record in history.records
    ]
    path.write_text(
        json.dumps({"workflow": history.events[0].event.workflow_type, "records": records}, indent=0) + "\n"
    )


def _anywhere(value):
    """The same without the folders of the machine that made it, which stand in traces."""
    if isinstance(value, str):
        return value.replace(str(FOLDER.parents[1]), "/checkout").replace(sys.base_prefix, "/python")
    if isinstance(value, list | tuple):
        return [_anywhere(item) for item in value]
    return value


def read(path):
    """A committed history as ``(workflow type, [(time, record)])``."""
    stored = json.loads(Path(path).read_text())
    return stored["workflow"], [(at, decode_record(bytes.fromhex(body))) for at, body in stored["records"]]


def replayed(path, workflows, activities):
    """Replay a committed history with the code as it is now; returns the instance.

    Raises:
        WorkflowCrashedError: The code decides otherwise.
    """
    name, records = read(path)
    known = {workflow_definition(cls).name: workflow_definition(cls) for cls in workflows}
    acts = {activity_definition(fn).name: activity_definition(fn) for fn in activities}
    instance = WorkflowInstance(known[name], acts, PayloadConverter(), workflows=known)
    replay(instance, records)
    return instance


async def write_all():
    """Run every workflow of the corpus and save what is missing."""
    from support import history_workflows

    FOLDER.mkdir(exist_ok=True)
    await history_workflows.record(write)


if __name__ == "__main__":
    sys.exit(asyncio.run(write_all()))
