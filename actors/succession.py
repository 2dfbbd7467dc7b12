"""From the end of a run to the next one of its chain, and from any run of a chain to the present one (R21)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from ..journal.fault_points import fault_point
from ..journal.run_ends import next_run
from .appending import append
from .call_errors import WorkflowNotFoundError
from .carrying import Baggage
from .chains import first_run_id, next_start
from .mailbox import FENCED, URGENT, ChainReply, Inspection, Mail, Reply
from .refusals import refuse_stale
from .restarts import hold_until_begin
from .stalls import append_status, hold_unregistered
from .workflow_actor import WorkflowActor

if TYPE_CHECKING:
    from .shard import Shard

#: So many messages that go with a run are put into one record, and so many bytes of them.
MESSAGES_AT_ONCE = 1_000
BYTES_AT_ONCE = 1 << 20


def begin_next(actor: WorkflowActor, outcome: ev.Outcome, baggage: Baggage, at: int) -> None:
    """Begin the run that follows one whose last record has just been put into the open batch: into the same batch.

    Args:
        actor: The run that has ended.
        outcome: Its outcome, as the journal has it.
        baggage: What goes with the next one.
        at: Wall clock of the turn, microseconds.
    """
    fault_point("run.continue.before", actor)
    shard = actor.shard
    started = next_start(actor.state, outcome, baggage.following, baggage.args)
    new = WorkflowActor(shard, shard.next_key, actor.workflow_id, shard.workflows.get(started.workflow_type))
    shard.next_key += 1
    shard.actors[new.key] = new
    _take_place(shard, actor, new)
    if started.begins_at:
        hold_until_begin(new)
    inputs: list[ev.AnyEvent] = [started]
    numbers: dict[int, int] = {}
    size = 0
    for before, event in baggage.inputs:
        if len(inputs) >= MESSAGES_AT_ONCE or size >= BYTES_AT_ONCE:
            _receive(new, inputs, at)
            inputs, size = [], 0
        inputs.append(event)
        numbers[before] = new.state.last_event + len(inputs)
        size += sum(len(payload.data) for payload in getattr(event, "args", ()))
    _receive(new, inputs, at)
    inputs = [event for _number, event in baggage.inputs]
    if baggage.pause is not None:
        append_status(new, ev.RunPaused(baggage.pause.reason), None)
    for number in list(actor.update_waiters):
        if number in numbers:  # what has not begun is asked for in the new run; the others are cut
            new.update_waiters[numbers[number]] = actor.update_waiters.pop(number)
    new.result_waiters = [entry for entry in actor.result_waiters if isinstance(entry[0], ChainReply)]
    actor.result_waiters[:] = [entry for entry in actor.result_waiters if entry not in new.result_waiters]
    _move_mail(actor, new)
    cancel = next((event for event in inputs if type(event) is ev.CancelRequested), None)
    if new.definition is None:
        hold_unregistered(new)
    elif cancel is not None and started.begins_at:
        new.close_at_once(ev.WorkflowCancelled(cancel.reason), None)
    if new.mailbox or new.delivers:
        shard.enqueue(new)
    else:
        shard.passivation.rest(new)
    fault_point("run.continue.after", actor)


def _receive(new: WorkflowActor, inputs: Sequence[ev.AnyEvent], at: int) -> None:
    record = ev.Received(tuple(inputs))
    append(new, record, record, at, None, body=ev.encode_record(record))


def _take_place(shard: Shard, actor: WorkflowActor, new: WorkflowActor) -> None:
    """The new run is the newest one of its id, unless a start that replaces the old one is on its way."""
    newest = shard.newest.get(actor.workflow_id)
    while newest is not None and newest is not actor:
        if newest.replaces is actor:
            newest.replaces = new
            return
        newest = newest.replaces
    shard.newest[actor.workflow_id] = new


def _move_mail(actor: WorkflowActor, new: WorkflowActor) -> None:
    """Mail that has had no turn is for whoever goes on; what is about the old run's own work is over."""
    mail = (*actor.mailbox, *actor.early)
    actor.mailbox.clear()
    actor.early.clear()
    for event, reply in mail:
        pass_on(actor, new, event, reply)
    if actor.coding is not None and new.coding is not None:
        new.coding.take_over(actor.coding)


def pass_on(actor: WorkflowActor, new: WorkflowActor, event: Mail, reply: Reply) -> None:
    """Let the next run have a piece of mail of a run that has ended."""
    if isinstance(event, Inspection):  # somebody looks at this very run
        actor.shard.reply_when_durable(actor, reply, event.read(actor.state))
    elif isinstance(event, ev.Event) and type(event) in FENCED:
        refuse_stale(actor, event, reply)
    elif type(event) not in _OWN:
        new.mailbox.append((event, reply))


#: Mail that is about one run and no other.
_OWN = frozenset([ev.RunStalled, ev.WorkflowStarted, ev.WorkflowTimedOut])
_BOUND = _OWN | FENCED | {Inspection}


# --- from any run of a chain to the present one


def current_run(shard: Shard, workflow_id: str, run_id: str | None = None) -> WorkflowActor:
    """The newest run of an id; or, with a run id, what the chain of that run has come to.

    Raises:
        WorkflowNotFoundError: There is none.
    """
    try:
        actor = shard.find(workflow_id, run_id)
    except WorkflowNotFoundError:
        newest = None if run_id is None else _newest(shard, workflow_id)
        if newest is not None and first_run_id(newest.state.started) == run_id:
            return newest  # the first run was purged, its chain goes on
        raise
    return actor if actor.state.outcome is None else last_run(shard, actor)


def last_run(shard: Shard, actor: WorkflowActor) -> WorkflowActor:
    """What the chain of a run has come to."""
    while actor.state.outcome is not None and (following := run_behind(shard, actor)) is not None:
        actor = following
    return actor


def run_behind(shard: Shard, actor: WorkflowActor) -> WorkflowActor | None:
    """A later run of the chain of a run that has ended: the newest one, if that is of this chain, else the next."""
    following = next_run(actor.state.outcome)
    if following is None:
        return None
    newest = _newest(shard, actor.workflow_id)
    if newest is not None and newest.key > actor.key and _same_chain(newest, actor):
        return newest
    try:
        return shard.find(actor.workflow_id, following.run_id)
    except WorkflowNotFoundError:  # purged
        return None


def _newest(shard: Shard, workflow_id: str) -> WorkflowActor | None:
    try:
        return shard.find(workflow_id)
    except WorkflowNotFoundError:
        return None


def _same_chain(one: WorkflowActor, other: WorkflowActor) -> bool:
    return first_run_id(one.state.started) == first_run_id(other.state.started)


def hand_back(gone: Iterable[WorkflowActor], shard: Shard) -> None:
    """After a failed commit: runs that never began give their mail and their waiters back to the run before them."""
    for actor in gone:
        started = actor.state.started
        before = shard.newest.get(actor.workflow_id)
        if started is None or started.chain is None or before is None or before.is_closed:
            continue
        if first_run_id(before.state.started) != started.chain.first_run_id:
            continue
        before.result_waiters += actor.result_waiters
        actor.result_waiters = []
        mail = (*actor.mailbox, *actor.early)
        before.mailbox.extend(one for one in mail if type(one[0]) not in _BOUND)
        actor.mailbox = deque(one for one in mail if type(one[0]) in _BOUND)
        actor.early.clear()
        if actor.coding is not None and before.coding is not None:
            before.coding.take_over(actor.coding)
        if before.mailbox and not before.queued:
            shard.enqueue(before)


def as_follower(actor: WorkflowActor, event: Any, reply: Reply) -> bool:
    """Pass mail that came to a run which has ended to the run that goes on; returns whether there is one."""
    new = last_run(actor.shard, actor)
    if new is actor:
        return False
    if type(event) in FENCED:
        refuse_stale(actor, event, reply)
    elif type(event) not in _OWN:
        (new.put_first if type(event) in URGENT else new.put)(event, reply)
    return True
