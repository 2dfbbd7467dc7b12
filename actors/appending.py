"""Appending the records of a run to the open batch, with what follows from each behind its commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from ..journal.errors import PayloadTooLargeError
from ..journal.request_ids import Request
from ..journal.run_ends import next_run
from ..journal.run_status import status_flags
from ..journal.store import CLOSES_RUN, HAS_REQUEST, STARTS_RUN, Entry
from ..journal.writer import Raise
from .carrying import collect
from .mailbox import DELIVERED, OUTCOMES, Reply, UpdateReply
from .run_deadlines import arm_run
from .run_end import WorkflowCrashedError
from .sending import tell_of_end
from .stall_waiters import stall_error
from .turn_effects import EFFECTS, SHOWN

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


_WITH_DIGEST = frozenset(ev.WITH_DIGEST)


def encoded(actor: WorkflowActor, record: ev.Record) -> bytes:
    """Encode what user code has decided.

    Raises:
        WorkflowCrashedError: It cannot be stored, a crash of that code that hangs nobody; or it is too large, and
            the run is held until the code passes less.
    """
    try:
        body = ev.encode_record(record)
    except Exception as error:
        raise WorkflowCrashedError("quarantined", error) from error
    sizes = actor.shard.sizes
    if len(body) > sizes.quick:
        try:
            sizes.check_record(record, len(body), partial(actor.about, inputs=record.inputs))
        except PayloadTooLargeError as error:
            raise WorkflowCrashedError("held", error) from error
    return body


def write(actor: WorkflowActor, record: ev.Record, at: int, reply: Reply, body: bytes = b"") -> None:
    """Append a record, behind the payload codecs if there are any."""
    if actor.coding is None:
        append(actor, record, record, at, reply, body=body or ev.encode_record(record))
    else:
        actor.coding.write(record, at, reply)


def append(
    actor: WorkflowActor, plain: ev.Record, record: ev.Record, at: int, reply: Reply, *, body: bytes
) -> None:
    """Put a record into the open batch, and what follows from it behind that batch.

    Args:
        actor: The run.
        plain: As the code decided it.
        record: As it is stored; the same object when there are no payload codecs.
        at: Wall clock of the turn, microseconds.
        reply: Who waits for it.
        body: ``record`` as bytes.
    """
    shard = actor.shard
    state = actor.state
    batch = shard.writer.open
    first = state.last_event + 1
    flags = 0
    if shard.actors.get(actor.key) is not actor:
        raise RuntimeError("this object of the run was replaced after a failed commit")
    baggage = None
    if type(record) is ev.Turn and record.outputs and isinstance(record.outputs[-1], ev.OUTCOMES):
        following = next_run(record.outputs[-1])
        baggage = None if following is None else collect(actor, record, following)
        waiting = sum(pending.next_at > 0 for pending in state.activities.values())
        shard.timers.note_dead(len(state.timers) + waiting)
    if first == 1:
        if actor.replaces is not None and not actor.replaces.is_closed:
            actor.replaces.close_at_once(ev.WorkflowTerminated("replaced by a new start"), None)
        actor.replaces = None
        flags = STARTS_RUN
        started = record.inputs[0]
        assert isinstance(started, ev.WorkflowStarted)
        batch.started[actor.key] = started
        if started.options is not None or started.chain is not None or started.begins_at:
            batch.effects.append((arm_run, (actor,)))
    elif type(record) is ev.Turn and record.delivers and record.delivers[0] == 1 and state.started.begins_at:
        batch.effects.append((arm_run, (actor,)))  # its limit is counted from here
    given: Any
    for number, given in enumerate(record.inputs, first):
        if type(given) in _WITH_DIGEST and given.request_id:
            flags |= HAS_REQUEST
            request = Request(actor.key, number, given.digest)
            shard.index.requests.reserve(actor.workflow_id, given.request_id, request)
    state.apply(record, at)
    if actor.restarts is not None and type(record) is ev.Turn and _is_progress(record):
        actor.restarts = None
    if state.outcome is not None:
        flags |= CLOSES_RUN | status_flags(state.status)
    batch.entries.append(Entry(actor.key, first, flags, at, body))
    actor.batch = batch
    if actor.outcomes and plain.inputs and type(plain.inputs[0]) in OUTCOMES:
        batch.effects.append((outcome_is_durable, (actor, plain.inputs[0])))
    if actor.instance is not None and actor.instance.logs:
        batch.effects.append((shard.emit_logs, (actor.instance.logs,)))
        actor.instance.logs = []
    if type(record) is ev.Turn and record.outputs:
        for position, event in enumerate(record.outputs):
            effect = EFFECTS.get(type(event))
            if effect is None:
                continue
            if type(event) in SHOWN and isinstance(plain, ev.Turn):
                effect(actor, batch, plain.outputs[position])
            else:
                effect(actor, batch, event)
    if actor.update_waiters and type(record) is ev.Turn and record.delivers:
        _accepted(actor, record.delivers)
    if reply is not None:
        if record.inputs and type(record.inputs[0]) is ev.UpdateReceived:
            _reply_to_update(actor, first, record, reply)
        else:
            batch.waiters.append((reply, None))
    if state.outcome is not None:
        if state.children or state.started.parent is not None:
            tell_of_end(actor, batch)
        if baggage is not None:
            shard.begin_next(actor, record.outputs[-1], baggage, at)  # type: ignore[union-attr, arg-type]
        _closed(actor)


def _is_progress(record: ev.Turn) -> bool:
    """Whether the code has handled something."""
    return bool(record.delivers) or (bool(record.inputs) and type(record.inputs[0]) in DELIVERED)


def outcome_is_durable(actor: WorkflowActor, event: Any) -> None:
    """The record of an attempt's result is durable: a rebuild need not carry it over."""
    command: int = event.command
    if actor.outcomes.get(command) is event:
        del actor.outcomes[command]
        actor.shard.marks.kept(actor.key, command)


def _reply_to_update(
    actor: WorkflowActor, number: int, record: ev.Record, reply: asyncio.Future[Any]
) -> None:
    """The answer may be in this very turn; otherwise its caller waits on."""
    if isinstance(reply, UpdateReply) and isinstance(record, ev.Turn):
        actor.shard.writer.open.waiters.append((reply.accepted, None))
    for event in record.outputs if isinstance(record, ev.Turn) else ():
        if isinstance(event, ev.UpdateCompleted | ev.UpdateFailed) and event.update == number:
            actor.shard.writer.open.waiters.append((reply, event))
            return
    stall = actor.state.stall
    if stall is None:
        actor.wait_for_update(number, reply)
        return
    # Its handler's saga has quarantined the run.
    if actor.coding is not None and actor.coding.stall is not None:
        stall = ev.RunStalled(stall.kind, actor.coding.stall)
    actor.shard.reply_when_durable(actor, reply, Raise(stall_error(actor, stall)))


def _accepted(actor: WorkflowActor, numbers: Sequence[int]) -> None:
    """Updates that were received before are delivered now."""
    for number in numbers:
        for waiter in actor.update_waiters.get(number, ()):
            if isinstance(waiter, UpdateReply):
                actor.shard.writer.open.waiters.append((waiter.accepted, None))


def _closed(actor: WorkflowActor) -> None:
    """The run has ended: answer everybody, let go of everything."""
    outcome = actor.state.outcome
    batch = actor.shard.writer.open
    is_told = bool(actor.result_waiters)
    if is_told:
        for waiter, _on_stall in actor.result_waiters:
            batch.waiters.append((waiter, outcome))
        actor.result_waiters.clear()
    if actor.update_waiters:
        for waiters in actor.update_waiters.values():
            batch.waiters.extend((waiter, outcome) for waiter in waiters)
        actor.update_waiters = {}
    batch.effects.append((actor.shard.closed, (actor, is_told)))
    actor.drop_instance()
