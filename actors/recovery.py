"""Bringing runs back from the journal: at start, and after a failed commit."""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import TYPE_CHECKING

from ..journal.compaction import Compactor
from ..journal.errors import EveractError, JournalCorruptError, JournalError
from ..journal.fault_points import fault_point
from ..journal.fold import RunState
from ..journal.loading import Loaded, at_once, load_in_steps, open_runs, stays
from ..journal.outbox import Outbox
from ..journal.run_row import RunRow
from ..journal.run_status import CLOSED
from ..journal.run_times import is_early, next_wake
from ..journal.writer import Raise, settle
from .blame import judge
from .failure_conversion import failure_of
from .horizon import HORIZON, Horizon
from .isolation import Isolation
from .mailbox import OUTCOMES
from .restarts import hold_until_begin
from .run_deadlines import arm_run
from .run_timers import arm_timer
from .stalls import hold_unregistered, release_run, stall_run, unregistered
from .succession import hand_back
from .workflow_actor import WorkflowActor

log = logging.getLogger("everact.runtime")

if TYPE_CHECKING:
    from .shard import Shard


def recover(shard: Shard) -> None:
    """Read the journal, open a writer, and carry on with every open run.

    A run that is held is tried once again; one whose type is not registered is held.
    """
    loaded = at_once(load_in_steps(shard.store))
    fault_point("recovery.loaded")
    if judge(shard, loaded):
        loaded = at_once(load_in_steps(shard.store))
    _begin(shard, loaded)
    shard.isolation = Isolation(shard)
    try:
        shard.intake.check()
        for key, state in loaded.states.items():
            if _is_idle(shard, state):
                continue  # it comes into memory with its first message
            actor = _actor(shard, key, state)
            actor.tried = False
            _carry_on(shard, actor)
        until = shard.now() + HORIZON
        _wake(shard, at_once(_needing(shard, until)), until, tried=False)
        shard.isolation.begin()
        shard.marks.start()
        shard.housekeeping.begin()
        shard.go_on()
        fault_point("recovery.after")
    except BaseException:
        shard.close()
        shard.marks.close()
        raise
    log.info("journal %s: %d runs, %d of them open", shard.store.journal_id, *_numbers(shard))


def _begin(shard: Shard, loaded: Loaded) -> None:
    """Take what was read of the journal, and open a writer."""
    shard.index, shard.next_key = loaded.runs, loaded.next_key
    shard.compactor = Compactor(shard.store, loaded.runs, loaded.facts, shard.state_of, shard.now)
    shard.outbox = Outbox(shard.store)
    shard.compactor.purger.has_sent = shard.outbox.has_sent
    shard.compactor.purger.forget = shard.purged
    shard.writer = shard.new_writer()
    shard.horizon = Horizon(shard, _bring_in)
    shard.courier.begin()


def _numbers(shard: Shard) -> tuple[int, int]:
    closed = sum(shard.index.count(None, status) for status in CLOSED)
    every = shard.index.count(None, None)
    return every, every - closed


def rebuild(shard: Shard) -> Generator[None]:
    """After a failed commit: begin a new incarnation from what the journal holds.

    Every run is made anew. What is carried over is what did not come from turns that may be lost: mail that no turn has
    handled, callers who wait for what the journal still holds, attempts in hand and their results.

    Yields while it reads, so that the host's loop has its turn: messages wait in the mailboxes, and the shard stays as
    it is until all is read. What changes it then is one step.
    """
    shard.store.reopen()
    loaded = yield from load_in_steps(shard.store)
    until = shard.now() + HORIZON
    needing = yield from _needing(shard, until)
    seen: set[int] = set()
    while left := [item for item in shard.actors.items() if item[0] not in seen]:
        for key, known in left:  # and some may have come into memory meanwhile
            yield
            seen.add(key)
            _read_again(loaded, key, known)
    # No pause from here on: nobody comes into memory unseen.
    unknown = shard.writer.unknown()
    old = shard.replace_actors()
    shard.housekeeping.drop(unknown)
    compactor = shard.compactor
    _begin(shard, loaded)
    shard.compactor.follow(compactor)
    states = loaded.states
    try:
        for key, state in states.items():
            before = old.get(key)
            if before is None and _is_idle(shard, state):
                continue
            actor = _actor(shard, key, state)
            if before is not None and before.run_id == actor.run_id:
                del old[key]
                _carry_over(before, actor, unknown)
            _carry_on(shard, actor)
        _wake(shard, needing, until, tried=True)
        hand_back(old.values(), shard)
    finally:  # the journal does not hold these as open: they never were, or their end is durable
        for gone in old.values():
            gone.let_go(unknown)
        if shard.isolation is not None:
            shard.isolation.end()
    shard.housekeeping.begin()
    shard.go_on()


def _carry_on(shard: Shard, actor: WorkflowActor) -> None:
    """Put an open run into the shard, and try it if it is held; whatever that raises stops this run alone (C07)."""
    try:
        _adopt(shard, actor)
        if not actor.tried:
            _retry_stalled(shard, actor)
    except Exception as error:
        log.exception("workflow %r: internal error in its recovery", actor.workflow_id)
        stall_run(actor, "quarantined", failure_of(error, shard.converter, kind="crash"))
        shard.enqueue(actor)


def _read_again(loaded: Loaded, key: int, known: WorkflowActor) -> None:
    """Read a run in memory that the log may know nothing new of."""
    try:
        row = None if key in loaded.states else loaded.runs.row(key)
        if row is not None and not row.is_closed and row.run_id == known.run_id:
            loaded.states[key] = loaded.runs.state(row)
            loaded.runs.adopt(key)
    except JournalCorruptError as error:
        stays(key, error)


def _is_idle(shard: Shard, state: RunState) -> bool:
    """Whether an open run has nothing to do until a message comes."""
    busy = state.activities or next_wake(state) or state.unread or state.stall is not None
    return not busy and state.started.workflow_type in shard.workflows


def activate(shard: Shard, row: RunRow, *, tried: bool = True) -> WorkflowActor:
    """Bring an open run that only the tables know into memory; one that is not ``tried`` yet is tried if it is held."""
    state = shard.index.state(row)
    shard.index.adopt(row.key)
    actor = _actor(shard, row.key, state)
    actor.tried = tried
    _carry_on(shard, actor)
    return actor


def _needing(shard: Shard, until: int) -> Generator[None, None, list[int]]:
    """Keys of those open runs of the tables that have something to do by then, whether a message comes or not."""
    found = []
    for key, run in open_runs(shard.store):
        yield
        if run.needs or 0 < run.wake <= until or run.workflow_type not in shard.workflows:
            found.append(key)
    return found


def _wake(shard: Shard, keys: list[int], until: int, *, tried: bool) -> None:
    """Bring these runs into memory."""
    for key in keys:
        if key in shard.index.rows:
            continue  # the log knows better
        _bring_in(shard, key, tried=tried)
    shard.horizon.begin(until)


def _bring_in(shard: Shard, key: int, *, tried: bool = True) -> None:
    """Bring a run into memory, if it is open; one that cannot be read does not keep the others out."""
    try:
        row = shard.index.row(key)
        if row is not None and not row.is_closed:
            activate(shard, row, tried=tried)
    except JournalCorruptError as error:
        stays(key, error)
    except (JournalError, OSError):
        raise  # a hiccup of the store says nothing about this run
    except Exception:
        log.exception("run %d stays as it is: internal error while it was read", key)


def _carry_over(before: WorkflowActor, actor: WorkflowActor, unknown: EveractError) -> None:
    """Take from an earlier object of a run what no lost turn has touched."""
    state = actor.state
    actor.tried = before.tried
    actor.result_waiters = before.result_waiters
    for number, waiters in before.update_waiters.items():
        if number in state.updates or number in state.unread:
            actor.update_waiters[number] = waiters
        else:  # accepted in a lost turn: its number will be another event's
            for waiter in waiters:
                settle(waiter, Raise(unknown))
    for command, attempt in before.attempts.items():
        pending = state.activities.get(command)
        if pending is not None and pending.attempt == attempt.number:
            attempt.actor = actor
            actor.attempts[command] = attempt
            if (
                attempt.noted is not attempt.earlier
            ):  # perhaps in a commit that was lost: said once more at its end
                attempt.noted = ()
        else:  # its cancel was written after all
            actor.shard.dispatcher.pool.withdraw(attempt)
    before.attempts = {}
    # Outcomes of attempts come again below; somebody waits for those that came from outside.
    mail = (*before.mailbox, *before.early)
    actor.mailbox.extend(one for one in mail if type(one[0]) not in OUTCOMES or one[1] is not None)
    if actor.coding is not None and before.coding is not None:
        actor.coding.take_over(before.coding)
    for command, event in before.outcomes.items():  # paid for: they are not asked for again
        if not actor.is_stale(event):
            actor.outcomes[command] = event
            if any(mail[0] is event for mail in actor.mailbox):
                continue
            if actor.coding is None:
                actor.mailbox.append((event, None))
            else:
                actor.coding.put(event, None)
    before.mailbox.clear()
    before.outcomes = {}


def _actor(shard: Shard, key: int, state: RunState) -> WorkflowActor:
    definition = shard.workflows.get(state.started.workflow_type)
    actor = WorkflowActor(shard, key, state.started.workflow_id, definition)
    actor.state = state
    if is_early(state, shard.now()):
        hold_until_begin(actor)
    return actor


def _adopt(shard: Shard, actor: WorkflowActor) -> None:
    """Put an open run into the shard: arm its timers, dispatch what it waits for."""
    state = actor.state
    shard.actors[actor.key] = actor
    shard.newest[actor.workflow_id] = actor
    for command in state.timers:
        arm_timer(actor, command)
    if next_wake(state):
        arm_run(actor)
    for command in list(state.activities):
        shard.dispatcher.begin(actor, command, may_have_begun=True)
    if (actor.mailbox or (state.unread and actor.delivers)) and not actor.queued:
        shard.enqueue(actor)
    if not actor.queued:
        shard.passivation.rest(actor)


def _retry_stalled(shard: Shard, actor: WorkflowActor) -> None:
    """Try a held run once in each start; hold one whose type is not registered (R13)."""
    stall = actor.state.stall
    if actor.definition is None:
        if stall is None or (stall.kind == "held" and stall.failure.message != unregistered(actor).message):
            hold_unregistered(actor)
            shard.enqueue(actor)  # its pump sends the record to the disk
    elif stall is not None and stall.kind == "held":
        # At once: whoever asks for the result from here on waits for what comes of it.
        release_run(actor, "the runtime started")
        shard.enqueue(actor)
    actor.batch.after(actor.mark_tried)
