"""Replays of runs with steps: with and without the steps' bodies, which must come to the same."""

import contextlib
from unittest.mock import patch

from everact import ApplicationError, activity
from everact.actors.definitions import activity_definition, workflow_definition
from everact.actors.intercepted_runs import InterceptedInstance
from everact.actors.jumps import Ahead
from everact.actors.replay import replay
from everact.actors.workflow_instance import WorkflowInstance
from everact.journal import events as ev
from everact.journal.memory_store import MemoryJournal
from everact.journal.payloads import PayloadConverter
from support.hosting import hosted


class Replayed:
    """Where a replay has come to.

    Attributes:
        fields: Of the workflow object.
        counters: Numbers of the next command, task and wait, the time, and the positions of random streams.
        delivered: How many events its code was given.
    """

    def __init__(self, cls, activities, records, jump=True, workflows=(), interceptors=None):
        known = {d.name: d for d in map(activity_definition, activities)}
        types = {d.name: d for d in map(workflow_definition, (cls, *workflows))}
        definition = workflow_definition(cls)
        if interceptors is None:
            instance = WorkflowInstance(definition, known, PayloadConverter(), workflows=types)
        else:
            common = (definition, known, PayloadConverter(), "warn", interceptors)
            instance = InterceptedInstance(*common, workflows=types)
        self.delivered = 0
        turn = WorkflowInstance.turn

        def counted(it, at, deliveries):
            self.delivered += len(deliveries)
            return turn(it, at, deliveries)

        with contextlib.ExitStack() as stack:
            stack.enter_context(patch.object(WorkflowInstance, "turn", counted))
            if not jump:
                stack.enter_context(patch.object(Ahead, "jumpable", lambda *_: frozenset()))
            replay(instance, records)
        self.fields = dict(vars(instance._object))
        self.counters = (
            instance.next_command,
            instance.loop._created,
            instance.waits,
            instance.now,
            {} if instance._randoms is None else instance._randoms.positions(),
            instance.handlers.delivered,
            list(instance.handlers._kept),
            instance.memo,
            instance.published,
        )
        self.outcome = instance.outcome
        instance.discard()


def replayed_alike(cls, activities, history):
    """Replay a run whole and with jumps, to what it gave live; returns how many events each has given to the code."""
    whole = Replayed(cls, activities, history.records, jump=False)
    jumped = Replayed(cls, activities, history.records)
    assert jumped.fields == whole.fields
    assert jumped.counters == whole.counters
    assert jumped.outcome == whole.outcome
    if isinstance(history.events[-1].event, ev.WorkflowCompleted):
        assert jumped.outcome == history.events[-1].event
    return whole.delivered, jumped.delivered


def steps_of(history):
    """``(name, how it ended, whether it is a checkpoint)`` in the order of their ends."""
    names = {e.event.command: e.event.name for e in history if e.kind == "StepStarted"}
    return [
        (
            names[e.event.command],
            e.kind.removeprefix("Step").lower(),
            getattr(e.event, "checkpoint", None) is not None,
        )
        for e in history
        if e.kind in ("StepCompleted", "StepFailed", "StepCancelled")
    ]


@activity.defn
async def add(n: int) -> int:
    return n + 1


@activity.defn
async def refuse(text: str) -> int:
    raise ApplicationError(text, type="Refused", non_retryable=True)


ACTIVITIES = [add, refuse]


async def run_alike(cls, *args, codecs=()):
    """Run a workflow; returns its result and its history, whose two replays are alike."""
    async with hosted(MemoryJournal(), cls, activities=ACTIVITIES, codecs=codecs) as runtime:
        handle = await runtime.spawn(cls.run, *args)
        result = await handle.result()
        history = await handle.fetch_history()
    replayed_alike(cls, ACTIVITIES, history)
    return result, history
