"""Running the code of a run: each turn, validator and query is marked for the flight recorder and watched.

What the watchdog breaks is discarded however it ends: a turn crashes its run, a validator or a query is refused. Its
exception may also be raised late, in the lines that follow the code; those are guarded a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from ..supervision.blame import DEATHS
from ..supervision.flight_recorder import label_of
from .blame import deaths_of, what_ran
from .errors import ProcessDiedError, QueryFailedError
from .mailbox import Query, Reply
from .marks import QUERY, START, TURN, VALIDATOR, TurnBroken
from .refusals import reject_update
from .run_end import WorkflowCrashedError
from .workflow_instance import Delivery, WorkflowInstance

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


def run_turn(
    actor: WorkflowActor, instance: WorkflowInstance, at: int, deliveries: Sequence[Delivery]
) -> list[Any]:
    """Let the code have a turn; arguments and result as of ``WorkflowInstance.turn``.

    Raises:
        WorkflowCrashedError: The turn is to be discarded.
    """
    marks = actor.shard.marks
    first = deliveries[0]
    if type(first.event) is ev.WorkflowStarted:
        marks.begin(START, actor, first.number, label_of(actor.workflow_id))
    else:
        _begin(TURN, actor, first.number)
    cause: BaseException | None = None
    try:
        try:
            outputs = instance.turn(at, deliveries)
        except BaseException as error:
            if not marks.finish():
                raise
            cause = error.error if isinstance(error, WorkflowCrashedError) else error
        else:
            if not marks.finish():
                return outputs
    except TurnBroken as late:
        marks.finish()
        cause = late
    instance.loop.leave_turn()
    raise WorkflowCrashedError("quarantined", marks.blocked(cause)) from cause


def is_valid(
    actor: WorkflowActor, instance: WorkflowInstance, event: ev.UpdateReceived, reply: Reply
) -> bool:
    """Ask an update's validator; when it refuses, the caller gets the answer here."""
    marks = actor.shard.marks
    label = label_of(event.name)
    refusal: BaseException | None = None
    if actor.state.blame and (deaths := deaths_of(actor.state, VALIDATOR, label)) >= DEATHS:
        refusal = ProcessDiedError(what_ran(VALIDATOR, label), deaths)
    else:
        _begin(VALIDATOR, actor, actor.state.last_event + 1, label)
        try:
            try:
                refusal = instance.handlers.validate(event)
            finally:
                is_broken = marks.finish()
        except TurnBroken:
            marks.finish()
            is_broken = True
        if is_broken:
            instance.loop.leave_turn()
            actor.drop_instance()
            refusal = marks.blocked(None)
    if refusal is None:
        return True
    reject_update(actor, refusal, reply)
    if instance.loop.has_ready():
        actor.drop_instance()  # the validator has changed it
    return False


def answer_of(actor: WorkflowActor, instance: WorkflowInstance, query: Query) -> Any:
    """Let a query's handler answer.

    Raises:
        QueryFailedError: It raised, was broken off, or has killed the process too often.
        EveractError: As of ``MessageHandlers.query``.
    """
    marks = actor.shard.marks
    label = label_of(query.name)
    if actor.state.blame and (deaths := deaths_of(actor.state, QUERY, label)) >= DEATHS:
        raise QueryFailedError(str(ProcessDiedError(what_ran(QUERY, label), deaths)))
    _begin(QUERY, actor, actor.state.last_event, label)
    try:
        try:
            answer = instance.handlers.query(*query)
        except BaseException:
            if not marks.finish():
                raise
        else:
            if not marks.finish():
                return answer
    except TurnBroken:
        marks.finish()
    instance.loop.leave_turn()
    actor.drop_instance()
    raise QueryFailedError(f"query {query.name!r}: {marks.blocked(None)}")


def _begin(kind: int, actor: WorkflowActor, number: int, label: bytes = b"") -> None:
    """Mark what is about to run; of a run that may not be in the journal yet, in the way of a start (R12)."""
    if not actor.batch.durable and actor.shard.writer.is_starting(actor.key):
        kind, label = START, label_of(actor.workflow_id)
    actor.shard.marks.begin(kind, actor, number, label)
