"""A shard: the open runs of one journal, their mailboxes, and everything that leaves them.

Belongs to one event loop. Turns run from a plain callback (``_pump``), never inside a task; what they decided
goes out behind the commit of their batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..journal import events as ev
from ..journal.clock import Clock
from ..journal.codecs import PayloadCodec
from ..journal.compaction import Compactor
from ..journal.compaction_step import Step
from ..journal.errors import (
    AppendRefusedError,
    CommitUnknownError,
    EveractError,
    JournalDiskError,
)
from ..journal.fold import RunState
from ..journal.ids import random_id
from ..journal.outbox import Outbox
from ..journal.payload_limits import PayloadLimits, PayloadSizes
from ..journal.payloads import PayloadConverter
from ..journal.run_ends import next_run
from ..journal.run_index import RunIndex
from ..journal.run_row import RunRow
from ..journal.space import SpaceLimits
from ..journal.store import JournalStore
from ..journal.writer import Batch, GroupCommit
from . import recovery
from .asyncio_generators import give_back_generators, take_generators
from .call_errors import WorkflowNotFoundError
from .carrying import Baggage
from .closed_runs import ClosedRuns
from .courier import Courier
from .definitions import ActivityDefinition, WorkflowDefinition
from .dispatcher import Dispatcher
from .errors import RuntimeClosedError
from .event_coder import EventCoder
from .horizon import Horizon
from .housekeeping import Housekeeping
from .intake import Intake, coming
from .interceptors import Interceptor
from .isolation import Isolation
from .mailbox import Reply
from .marks import Marks
from .outage import Outage
from .passivation import Passivation
from .rebuilding import Rebuilding
from .succession import as_follower, begin_next
from .timers import TimerQueue
from .timing import Timing, real_timing
from .turn_guard import Guard
from .workflow_actor import WorkflowActor
from .workflow_logger import workflow_logger

log = logging.getLogger("everact.runtime")

#: Runs that have their code in memory.
MAX_CACHED = 10_000
#: The pump lets the loop's other work go on after this long, in seconds.
PUMP_SLICE = 0.005
#: No more timers fall due while so many runs wait for their turns: a message waits behind these and no others.
CROWD = 128


class Shard:
    """Everything in memory that belongs to one journal.

    Attributes:
        actors: Open runs by key.
        index: All durable runs.
        compactor: Moves the log into the tables.
        horizon: Brings runs in before what they wait for falls due.
        outbox: Numbers the messages that runs send to runs.
        courier: Takes in those that come for runs of this shard.
        passivation: Lets runs out of memory.
        writer: The present incarnation of the writer.
        intake: Whether new work is taken.
        marks: What of the users' code runs just now.
        isolation: Lets suspects of a hard death run alone; None when there are none (any more).
        housekeeping: Sees to retention, and to what compaction has to do while nothing is appended.
        error: Why the shard has stopped for good, or None.
        closed_runs: Ended runs that are in memory.
        outage: Whether the journal cannot be opened again just now.
        rebuilding: Begins again from the journal after a failed commit.
        timing: What it waits by.
        new_id: Makes ids for what has none of its own.
        detached: How many coroutines refused to end when their run left memory, by workflow type.
        starts: Starts with a request id whose runs are open, by workflow id and request id.
        coder: Runs the payload codecs; None when there are none.
        sizes: Checks how large stored values are.
        guard: What turns are guarded against.
        interceptors: Around the code of runs and activities.
        digest_key: Key for the digests of requests; empty when no payload codec has one.
    """

    # Recovery makes these, once the journal has been read.
    writer: GroupCommit
    index: RunIndex
    compactor: Compactor
    horizon: Horizon
    outbox: Outbox

    #: Its number among the shards; a journal has one.
    number = 0

    def __init__(
        self,
        store: JournalStore,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        *,
        converter: PayloadConverter,
        workflows: Mapping[str, WorkflowDefinition],
        activities: Mapping[str, ActivityDefinition],
        limits: SpaceLimits,
        codecs: Sequence[PayloadCodec] = (),
        payload_limits: PayloadLimits | None = None,
        max_cached: int = MAX_CACHED,
        marks: Marks,
        guard: Guard = "warn",
        interceptors: Sequence[Interceptor] = (),
        timing: Timing | None = None,
    ) -> None:
        self.guard: Guard = guard
        self.interceptors = interceptors
        self.store = store
        self.loop = loop
        self.clock = clock
        self.timing = timing or real_timing(loop, clock)
        self.now = clock.wall
        self.new_id = random_id
        self.converter = converter
        self.coder = EventCoder(codecs, loop) if codecs else None
        self.digest_key = b"" if self.coder is None else next(iter(self.coder.digest_keys()), b"")
        self.sizes = PayloadSizes(payload_limits or PayloadLimits())
        self.workflows = workflows
        self.activities = activities
        self.timers = TimerQueue(self.timing.looks, clock, lambda: len(self._ready) >= CROWD)
        self.dispatcher = Dispatcher(activities, self.timers, clock)
        self.actors: dict[int, WorkflowActor] = {}
        self.newest: dict[str, WorkflowActor] = {}
        self.next_key = 1
        self.intake = Intake(store, loop, self.timing.machine, limits, lambda: coming(self))
        self.housekeeping = Housekeeping(self)
        self.courier = Courier(self)
        self.passivation = Passivation(self, max_cached)
        self.marks = marks
        self.isolation: Isolation | None = None
        self.error: BaseException | None = None
        self.outage = Outage(store.path)
        self.closed_runs = ClosedRuns(self)
        self.rebuilding = Rebuilding(self)
        self._ready: deque[WorkflowActor] = deque()
        self._pump_scheduled = False
        self._idle: asyncio.Future[None] | None = None
        self.starts: dict[tuple[str, str], WorkflowActor] = {}
        self.detached: dict[str, int] = {}
        self._step_failed = False

    # --- turns

    def new_writer(self) -> GroupCommit:
        """Begin an incarnation of the writer."""
        return GroupCommit(self.store, self.loop, self._committed, self._commit_failed, self.plan)

    def plan(self, appended: int, spare: int = 0) -> Step | None:
        """What a commit moves and purges; arguments as of ``Compactor.plan``."""
        if self.rebuilding.failures and appended:
            return None
        if (
            self._step_failed
            and self.intake.full is not None
            and (appended or not self.housekeeping.is_awaited)
        ):
            return None  # what a full disk takes is a small commit; to move the log needs more
        self._step_failed = False
        try:
            return self.compactor.plan(appended, spare)
        except Exception as error:  # noqa: BLE001  (whatever it is: the turns of the batch go on)
            self.compactor.failed(error)
            return None

    def number_of(self, workflow_id: str) -> int:
        """Number of the shard that has the runs of a workflow id."""
        del workflow_id  # all are here
        return self.number

    def state_of(self, key: int) -> RunState | None:
        """The fold of a run in memory, its newest turns included."""
        actor = self.actors.get(key)
        return None if actor is None or not actor.state.last_event else actor.state

    def enqueue(self, actor: WorkflowActor) -> None:
        """Give an actor a turn soon; a retired one has none."""
        if actor.is_retired:
            return
        actor.queued = True
        self.passivation.use(actor)
        self._ready.append(actor)
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self.loop.call_soon(self._pump)

    def enqueue_later(self, actor: WorkflowActor, delay: float) -> None:
        """Give an actor a turn after ``delay`` seconds; mail that comes meanwhile waits with the rest."""
        actor.queued = True
        self.timing.later.call_later(delay, self._enqueue_again, actor)

    def _enqueue_again(self, actor: WorkflowActor) -> None:
        present = actor in (self.actors.get(actor.key), self.closed_runs.get(actor.key))
        if present and self.error is None:
            self.enqueue(actor)

    def reply_when_durable(self, actor: WorkflowActor, reply: Reply, value: Any = None) -> None:
        """Answer once the newest turn that the answer could have read is durable (R5)."""
        if reply is not None:
            actor.batch.answer(reply, value)

    def _pump(self) -> None:
        """Let every ready actor handle its mailbox, then send what they wrote to the disk."""
        ready = self._ready
        isolation = self.isolation
        steady = self.timing.machine.steady
        end = steady() + PUMP_SLICE
        generators = take_generators()
        try:
            if self.courier.is_ready and self.writer.error is None:
                self.courier.work()
            while ready and self.writer.error is None:
                actor = ready.popleft()
                if isolation is not None and not isolation.admits(actor):
                    continue
                actor.queued = False
                if actor.work():
                    self.enqueue(actor)
                if steady() > end:
                    break
        except BaseException as error:
            # KeyboardInterrupt in a turn that perhaps never ends: running it again would ask for another.
            self.stop(RuntimeClosedError(f"the Runtime was interrupted in a turn ({type(error).__name__})"))
            self.writer.abandon(self.stopped())  # the turn may have left a part of itself
            raise
        finally:
            give_back_generators(generators)
            if self.passivation.is_over:
                self.passivation.trim()
            self.writer.flush()
            # After a failed commit the mailboxes wait for the next incarnation of the writer.
            again = (bool(ready) or self.courier.is_ready) and self.writer.error is None
            self._pump_scheduled = again
            if again:
                self.loop.call_soon(self._pump)
            elif self._idle is not None:
                self._idle.set_result(None)
                self._idle = None
            if isolation is not None:
                isolation.look()

    async def idle(self, limit: float | None = None) -> None:
        """Wait until every mailbox is empty and everything written is durable, or the journal has failed.

        Payload codecs that need longer than ``limit`` seconds are not waited for.
        """
        coder = self.coder
        while (
            self.rebuilding.is_running
            or self._pump_scheduled
            or not self.writer.is_idle
            or (coder is not None and coder.jobs)
        ):
            if self.rebuilding.is_running:
                await asyncio.sleep(0)
                continue
            if self._pump_scheduled:
                if self._idle is None:
                    self._idle = self.loop.create_future()
                await asyncio.shield(self._idle)  # others wait for it too
            await self.writer.drain()
            if coder is not None and not await coder.idle(limit):
                text = "leaving: payload codecs have not answered within %g s; their runs go on later"
                log.warning(text, limit)
                coder = None

    def _committed(self, sequence: int, batch: Batch) -> None:
        try:
            self.index.add(sequence, batch.entries, batch.started)
            if batch.step is not None:
                self.compactor.committed(batch.step, sequence + bool(batch.entries))
                self.housekeeping.wake()
                if batch.step.drops:
                    self.passivation.sweep()
        except Exception as error:
            log.critical("what was written cannot be taken in, stopping", exc_info=error)
            self.stop(error)
        self.intake.committed(batch.entries)
        if batch.post is not None:
            self.courier.committed(batch.post)
        self.rebuilding.failures = 0
        if self.passivation.is_over:
            self.loop.call_soon(self.passivation.trim)  # by then the batch counts as durable

    def _commit_failed(self, error: BaseException) -> None:
        self._step_failed = True
        self.rebuilding.commit_failed(error)

    def replace_actors(self) -> dict[int, WorkflowActor]:
        """Forget every run, for a rebuild; returns the open ones by key."""
        old, self.actors, self.newest = self.actors, {}, {}
        for actor in old.values():
            if actor.coding is not None:
                actor.coding.abandon()
            actor.drop_instance()
            actor.is_retired = True
        # Runs whose end is durable stay as they are, and questions about them wait on.
        self._ready = deque(actor for actor in self._ready if actor.key not in old)
        self.starts.clear()
        self.timers.close()
        self.passivation.clear()
        return old

    def go_on(self) -> None:
        """Let mailboxes and messages be handled that nobody has called the pump for."""
        if (self._ready or self.courier.is_ready) and not self._pump_scheduled and self.error is None:
            self._pump_scheduled = True
            self.loop.call_soon(self._pump)

    def stop(self, error: BaseException) -> None:
        """Answer everybody with an error and take no more."""
        self.error = error
        self.rebuilding.stop()
        self.timers.close()
        self.courier.stop()
        if self.isolation is not None:
            self.isolation.stop()
        self.dispatcher.pool.accept_no_more()
        known = (*self.actors.values(), *self._ready, *self.closed_runs)
        everybody = {id(actor): actor for actor in known}
        self._ready.clear()
        for actor in everybody.values():
            actor.let_go(self.stopped())

    def stopped(self) -> EveractError:
        """What callers get from a shard that has stopped."""
        if isinstance(self.error, RuntimeClosedError | AppendRefusedError | JournalDiskError):
            return self.error
        error = CommitUnknownError(f"the journal failed and could not be opened again: {self.error}")
        error.__cause__ = self.error
        return error

    def check(self) -> None:
        """Raise if the shard has stopped, or cannot reach its journal."""
        if self.error is not None:
            raise self.stopped()
        if self.outage.cause is not None:
            raise self.outage.error()

    # --- finding runs

    def find(self, workflow_id: str, run_id: str | None = None) -> WorkflowActor:
        """The newest run of an id, or the one asked for; open, or ended and read from the journal.

        Raises:
            WorkflowNotFoundError: There is none.
        """
        self.check()
        actor = self.newest.get(workflow_id)
        if actor is not None and run_id in (None, actor.run_id):
            return actor
        row = self.index.find(workflow_id, run_id)
        if row is None:
            raise WorkflowNotFoundError(workflow_id, run_id)
        return self.actor_of(row)

    def actor_of(self, row: RunRow) -> WorkflowActor:
        """The actor of a durable run; one that is not in memory is made."""
        actor = self.actors.get(row.key)
        if actor is not None:
            return actor
        return self.closed_runs.read(row) if row.is_closed else recovery.activate(self, row)

    def actor_by_key(self, key: int) -> WorkflowActor | None:
        """The actor of a durable run by its key; None when it was purged."""
        actor = self.actors.get(key) or self.closed_runs.get(key)
        if actor is None:
            row = self.index.row(key)
            with suppress(WorkflowNotFoundError):  # purged while it was read
                actor = None if row is None else self.actor_of(row)
        return actor

    def forget(self, actor: WorkflowActor) -> None:
        """A start that came to nothing leaves nothing behind."""
        self.actors.pop(actor.key, None)
        if self.newest.get(actor.workflow_id) is actor:
            del self.newest[actor.workflow_id]
            before = actor.replaces  # its own start may not be durable yet: nobody else would know of it
            if before is not None and self.actors.get(before.key) is before:
                self.newest[actor.workflow_id] = before
        started = actor.state.started
        if started.request_id:
            self.starts.pop((actor.workflow_id, started.request_id), None)

    def records(self, actor: WorkflowActor) -> list[tuple[int, ev.Record]]:
        """All records of a run, those on their way to the disk included.

        Raises:
            WorkflowNotFoundError: It was purged.
        """
        undurable = self.writer.undurable(actor.key)
        durable = [] if undurable and undurable[0].first_event == 1 else self.durable_records(actor)
        return durable + [(entry.at, ev.decode_record(entry.body)) for entry in undurable]

    def durable_records(self, actor: WorkflowActor) -> list[tuple[int, ev.Record]]:
        """The records of a run that are on disk.

        Raises:
            WorkflowNotFoundError: It was purged.
        """
        row = self.index.row(actor.key)
        records = self.index.records(row) if row is not None else []
        # Looked for again: it may have been purged while its history was read.
        if row is None or self.index.row(actor.key) is None:
            raise WorkflowNotFoundError(actor.workflow_id, actor.run_id)
        return records

    def first_event(self, actor: WorkflowActor) -> ev.AnyEvent:
        """The start of a run as the journal has it.

        Raises:
            WorkflowNotFoundError: It was purged.
        """
        undurable = self.writer.undurable(actor.key)
        if undurable and undurable[0].first_event == 1:
            return ev.decode_record(undurable[0].body).inputs[0]
        row = self.index.row(actor.key)
        if row is None:
            raise WorkflowNotFoundError(actor.workflow_id, actor.run_id)
        return next(self.index.reading(row))[1].inputs[0]

    def begin_next(self, actor: WorkflowActor, outcome: ev.Outcome, baggage: Baggage, at: int) -> None:
        """Begin the run that follows one; arguments as of ``succession.begin_next``."""
        begin_next(actor, outcome, baggage, at)

    def pass_on(self, actor: WorkflowActor, event: Any, reply: Reply) -> bool:
        """Pass mail for a run that has ended to the one that goes on; returns whether there is one."""
        return next_run(actor.state.outcome) is not None and as_follower(actor, event, reply)

    # --- effects: called once what caused them is durable

    def closed(self, actor: WorkflowActor, is_told: bool) -> None:
        """A run's end is durable; ``is_told`` says that somebody has waited for it."""
        actor.withdraw_attempts()
        self.forget(actor)
        self.passivation.forget(actor)
        # Whoever was told it hardly asks again, and the journal can say; but mail that is left has to be answered.
        has_mail = actor.queued or actor.mailbox or actor.early
        if not is_told or has_mail or (actor.coding is not None and not actor.coding.is_idle):
            self.closed_runs.keep(actor)

    def purged(self, key: int) -> None:
        """A run is gone from the journal."""
        self.closed_runs.drop(key)

    def note_detached(self, actor: WorkflowActor, refused: int) -> None:
        """Code of a run has swallowed the end of its time in memory; said once for each type."""
        assert actor.definition is not None
        name = actor.definition.name
        if name not in self.detached:
            text = (
                "workflow %r (%s) left memory, but %d of its coroutines refused to end: they catch GeneratorExit "
                "in a loop. They are cut off, and may stay in memory. Let it pass: 'except Exception' does."
            )
            log.warning(text, actor.workflow_id, name, refused)
        self.detached[name] = self.detached.get(name, 0) + refused

    def emit_logs(self, records: list[logging.LogRecord]) -> None:
        """Let log records of durable turns go."""
        for record in records:
            workflow_logger.emit(record)

    def close(self) -> None:
        """Stop the writer and drop all code from memory; the journal itself stays open."""
        self.intake.close()
        self.writer.close()
        if self.coder is not None:
            self.coder.close()
        for actor in self.actors.values():
            actor.drop_instance()
        self.closed_runs.clear()
