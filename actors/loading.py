"""Loading the code of a run: its history is read and replayed, a few milliseconds at a time (R19)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..journal import events as ev
from ..journal.errors import JournalCorruptError, JournalError
from ..journal.payloads import PayloadConverter
from .call_errors import WorkflowNotFoundError
from .definitions import ActivityDefinition, WorkflowDefinition
from .intercepted_runs import InterceptedInstance
from .interceptors import Interceptor
from .marks import REPLAY
from .replay import Replay
from .run_end import WorkflowCrashedError
from .turn_guard import Guard
from .workflow_instance import WorkflowInstance

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


class NotReadableError(Exception):
    """The journal could not be read just now; ``__cause__`` says why."""


class ReplayingError(Exception):
    """There is more to replay, after the others have had a turn: what needs the code begins again then."""


def load_code(actor: WorkflowActor) -> WorkflowInstance:
    """Make the instance of a run, by replay of all its records.

    Raises:
        WorkflowCrashedError: The code does not fit the records any more, or raises.
        NotReadableError: The journal could not be read just now.
        ReplayingError: Time is up; the next call goes on.
        PausedError: The records are on their way through the payload codecs.
    """
    shard = actor.shard
    state = actor.state
    if not state.last_event:
        return _new_instance(actor)
    if type(state.unread.get(1)) is ev.WorkflowStarted:  # it has received its start, and had no turn yet
        instance = _new_instance(actor)
        instance.started_at = state.started_at
        return instance
    replay = actor.replay
    try:
        if (
            replay is None
        ):  # what was journalled since it began was only received: no turn has been without it
            unfinished = () if state.steps is None else frozenset(state.steps.running)
            replay = actor.replay = Replay(_new_instance(actor), _records(actor), unfinished)
        shard.marks.begin(REPLAY, actor, replay.number)
        try:
            is_done = replay.go_on(shard.timing.machine)
        finally:
            shard.marks.finish()
    except BaseException as error:
        drop_replay(actor)
        if isinstance(error, JournalCorruptError):
            raise WorkflowCrashedError("held", error) from error
        if isinstance(
            error, JournalError | OSError
        ):  # a hiccup of the store says nothing about the code (C06)
            raise NotReadableError from error
        raise
    if not is_done:
        raise ReplayingError
    actor.replay = None
    return replay.instance


def _new_instance(actor: WorkflowActor) -> WorkflowInstance:
    shard, definition = actor.shard, actor.definition
    assert definition is not None
    return new_instance(
        definition,
        shard.activities,
        shard.converter,
        shard.guard,
        shard.interceptors,
        workflows=shard.workflows,
    )


def new_instance(
    definition: WorkflowDefinition,
    activities: Mapping[str, ActivityDefinition],
    converter: PayloadConverter,
    guard: Guard,
    interceptors: Sequence[Interceptor],
    *,
    workflows: Mapping[str, WorkflowDefinition],
) -> WorkflowInstance:
    """Make the code of a run that has yet to get its first event."""
    if not interceptors:
        return WorkflowInstance(definition, activities, converter, guard, workflows=workflows)
    return InterceptedInstance(definition, activities, converter, guard, interceptors, workflows=workflows)


def drop_replay(actor: WorkflowActor) -> None:
    """Forget a replay on its way."""
    replay, actor.replay = actor.replay, None
    if replay is not None:
        actor.discard(replay.instance)


def _records(actor: WorkflowActor) -> Iterator[tuple[int, ev.Record]]:
    """All records of a run as they are at this moment, decoded one after the other."""
    if actor.coding is not None:
        return iter(actor.coding.history())
    shard = actor.shard
    undurable = shard.writer.undurable(actor.key)
    durable: Iterator[tuple[int, ev.Record]] = iter(())
    if not undurable or undurable[0].first_event != 1:
        row = shard.index.row(actor.key)
        if row is None:
            raise WorkflowNotFoundError(actor.workflow_id, actor.run_id)
        durable = shard.index.reading(row)
        if shard.index.row(actor.key) is None:  # it was purged while it was read
            raise WorkflowNotFoundError(actor.workflow_id, actor.run_id)

    def all_of_them() -> Iterator[tuple[int, ev.Record]]:
        yield from durable
        for entry in undurable:
            yield entry.at, ev.decode_record(entry.body)

    return all_of_them()
