"""Checkpoints of steps: when one may be taken, what it holds, and how a replay goes there without the step's body (R6).

A step is a checkpoint when nothing else was in flight, neither when it began nor when it ended, so that all it has
done is its result, the fields of the workflow object, and some counters. Otherwise its body runs again in a replay.
"""

from __future__ import annotations

import asyncio
import logging
from operator import length_hint
from typing import TYPE_CHECKING, NamedTuple

from ..journal.errors import PayloadEncodeError
from ..journal.step_events import (
    Checkpoint,
    StepAttemptFailed,
    StepCompleted,
    StepFailed,
    StepStarted,
)
from ..journal.type_hints import unresolved_field
from .object_fields import Changes, Fields, UnstorableFieldError
from .saga_compensation import sagas_of

if TYPE_CHECKING:
    from .step_definitions import StepDefinition
    from .workflow_instance import Delivery, WorkflowInstance

#: The streams of a run that steps of their own use.
RETRY_STREAM = "step retries"


class StepReplay:
    """What a replay knows of the steps of the turn that it runs, and of the one that it jumps.

    Attributes:
        starts: Recorded in this turn, by command number.
        ends: Recorded in this turn, by command number.
        attempts: Failed attempts recorded in this turn, by command number and attempt.
        jumpable: Steps of this turn whose bodies are not to be run.
        jumping: The step that waits for its recorded end; 0 for none.
    """

    __slots__ = ("_waiter", "attempts", "ends", "jumpable", "jumping", "starts")

    def __init__(self) -> None:
        self.starts: dict[int, StepStarted] = {}
        self.ends: dict[int, StepCompleted | StepFailed] = {}
        self.attempts: dict[tuple[int, int], StepAttemptFailed] = {}
        self.jumpable: frozenset[int] = frozenset()
        self.jumping = 0
        self._waiter: asyncio.Future[StepCompleted | StepFailed] | None = None

    async def jump(self, command: int) -> StepCompleted | StepFailed:
        """Wait until the replay is where the step ends."""
        self.jumping = command
        self._waiter = asyncio.get_running_loop().create_future()
        return await self._waiter

    def arrive(self, event: StepCompleted | StepFailed) -> None:
        """It is."""
        assert self._waiter is not None
        self.jumping = 0
        self._waiter.set_result(event)
        self._waiter = None


def arrive(instance: WorkflowInstance, delivery: Delivery) -> None:
    """The replay has come to the end of a step whose body it did not run."""
    event = delivery.event
    assert isinstance(event, StepCompleted | StepFailed)
    assert instance.steps is not None
    instance.steps.arrive(event)


class Taken(NamedTuple):
    """A checkpoint with the fields that belong to it."""

    checkpoint: Checkpoint
    changes: Changes


class Before:
    """The run as a step found it, alone.

    Attributes:
        fields: Of the workflow object; rebound from this.
    """

    __slots__ = ("_cancel", "_cancelling", "_messages", "_own", "_randoms", "fields")

    def __init__(self, instance: WorkflowInstance, fields: Fields) -> None:
        self.fields = fields
        self._randoms = {} if instance._randoms is None else instance._randoms.positions()
        self._own = dict(instance.handlers.own)
        self._cancel = (instance.cancel_requested, instance.cancel_seen)
        self._cancelling = _cancelling(instance)
        self._messages = instance.handlers.delivered

    def is_quiet(self, instance: WorkflowInstance, timers: int = 0) -> bool:
        """Whether nothing is in flight that the step, or what happened beside it, has left behind."""
        return (
            is_quiet(instance, timers)
            and self._cancel == (instance.cancel_requested, instance.cancel_seen)
            and self._cancelling == _cancelling(instance)
            and self._own == instance.handlers.own
        )

    def is_untouched(self, instance: WorkflowInstance, timers: int) -> bool:
        """Whether the step alone has changed what is different now, so that it may be taken back.

        What a message has changed may not: its sender has been told that it is done.
        """
        return self._messages == instance.handlers.delivered and self.is_quiet(instance, timers)

    def checkpoint(self, instance: WorkflowInstance, deleted: tuple[str, ...]) -> Checkpoint | None:
        """Where the run stands now; None when a stream of random numbers was seeded anew."""
        randoms = instance._randoms
        moved = []
        for name, (words, spare) in ({} if randoms is None else randoms.positions()).items():
            if words < 0:
                return None
            if self._randoms.get(name) != (words, spare):
                moved.append((name, words, spare))
        sagas = instance.sagas
        return Checkpoint(
            instance.next_command,
            instance.loop._created,
            instance.waits,
            instance.now,
            deleted,
            tuple(moved),
            (0, 0) if sagas is None else (sagas.count, sagas.completed),
        )


def is_quiet(instance: WorkflowInstance, timers: int = 0) -> bool:
    """Whether nothing but the running code is in flight: no other task, handler, timer, condition or command.

    Args:
        instance: The run.
        timers: How many timers are the running code's own.
    """
    return (
        not instance.pending
        and len(instance.timers) == timers
        and (instance.relations is None or instance.relations.is_quiet)
        and (instance.sagas is None or not instance.sagas.escalations)
        and instance.completion is None
        and not instance._conditions
        and not instance.is_crowded
        and not instance.handlers.has_own_messages
        and _is_alone(instance)
    )


def _is_alone(instance: WorkflowInstance) -> bool:
    """Whether main is the only task, nothing waits to be called, and no failure waits to be looked at.

    A handler may run before main is there, and a task when main is done: what follows it in that turn is not its own.
    """
    loop = instance.loop
    return (
        len(loop._tasks) == 1
        and instance.main in loop._tasks
        and not loop._ready
        and not length_hint(loop._rest)
        and not loop.unseen_failures()
    )


def _cancelling(instance: WorkflowInstance) -> int:
    return 0 if instance.main is None else instance.main.cancelling()


def enter(instance: WorkflowInstance, definition: StepDefinition) -> Before | None:
    """Find out whether a step begins alone, and rebind the fields of the object if so."""
    if not is_quiet(instance):
        return None
    try:
        return reenter(instance)
    except UnstorableFieldError as unfit:
        _warn(instance, definition, unfit)
        return None


def reenter(instance: WorkflowInstance) -> Before:
    """Rebind the fields as a step that began alone did."""
    return Before(instance, instance._definition.fields.freeze(instance._object, instance._converter))


def take(instance: WorkflowInstance, definition: StepDefinition, before: Before | None) -> Taken | None:
    """Take a checkpoint, and rebind what the step has changed; None when it cannot be one."""
    if before is None or not before.is_quiet(instance):
        return None
    fields = instance._definition.fields
    try:
        changes = fields.changes(instance._object, instance._converter, before.fields)
    except UnstorableFieldError as unfit:
        _warn(instance, definition, unfit)
        return None
    checkpoint = before.checkpoint(instance, changes.deleted)
    if checkpoint is None:
        _warn_of_seed(instance, definition)
        return None
    fields.apply(instance._object, instance._converter, changes)
    return Taken(checkpoint, changes)


def rebind(instance: WorkflowInstance, event: StepCompleted | StepFailed) -> None:
    """Let the object have the fields that a recorded end holds."""
    assert event.checkpoint is not None
    changes = Changes(event.field_names, event.fields, event.checkpoint.deleted)
    instance._definition.fields.apply(instance._object, instance._converter, changes)


def go_there(instance: WorkflowInstance, event: StepCompleted | StepFailed) -> None:
    """Bring a run to where a step has ended whose body it did not run."""
    checkpoint = event.checkpoint
    assert checkpoint is not None
    rebind(instance, event)
    instance.next_command = checkpoint.next_command
    instance.loop._created = checkpoint.tasks
    instance.waits = checkpoint.waits
    instance.now = max(instance.now, checkpoint.now)
    if any(checkpoint.sagas):
        sagas = sagas_of(instance)
        sagas.count, sagas.completed = checkpoint.sagas
    for name, words, spare in checkpoint.randoms:
        instance.stream(name).go_to(words, spare)


def warn_of_value(
    instance: WorkflowInstance, definition: StepDefinition, what: str, error: PayloadEncodeError
) -> None:
    """Say once that an argument or the result of a step has no stored form, so that it is no checkpoint."""
    advice = "pass and return what can be stored, such as ids and dataclasses"
    why = f"{what} has no stored form ({error})"
    _say(instance, f"{definition.name}\0{what}", definition, why=why, advice=advice)


def _warn(instance: WorkflowInstance, definition: StepDefinition, unfit: UnstorableFieldError) -> None:
    why = (
        f"field {unfit.field!r} of {instance._definition.cls.__qualname__} has no stored form ({unfit.error})"
    )
    unresolved = unresolved_field(instance._definition.cls, unfit.field)
    if unresolved is not None:
        why += f"; its annotation {unresolved!r} could not be resolved"
    advice = (
        f"annotate the field in the class body with its class, by a name that the module knows at run time, or build "
        f"it in a method that is declared @workflow.transient, or keep it in a local variable of "
        f"{instance._definition.run.__name__}"
    )
    _say(instance, unfit.field, definition, why=why, advice=advice)


def _warn_of_seed(instance: WorkflowInstance, definition: StepDefinition) -> None:
    why = "a stream of workflow.random() was seeded anew, so that its position is not known"
    _say(instance, "\0seed", definition, why=why, advice="use a stream of another name instead")


def _say(instance: WorkflowInstance, key: str, definition: StepDefinition, *, why: str, advice: str) -> None:
    """One warning for each cause in the life of a process."""
    warned = instance._definition.warned
    if instance.replaying or key in warned:
        return
    warned.add(key)
    instance._log(
        logging.WARNING,
        f"has a step {definition.name!r} that is no checkpoint, so that each replay runs its body again: {why}. "
        f"To make it one, {advice}",
    )
