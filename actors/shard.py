"""A shard: the open runs of one journal, their mailboxes, and everything that leaves them.

Belongs to one event loop. Turns run from a plain callback (``_pump``), never inside a task; what they decided
goes out behind the commit of their batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Generator, Mapping, Sequence
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
    JournalAccessError,
    JournalDiskError,
)
from ..journal.fault_points import fault_point
from ..journal.fold import RunState
from ..journal.payload_limits import PayloadLimits, PayloadSizes
from ..journal.payloads import PayloadConverter
from ..journal.run_index import RunIndex
from ..journal.run_row import RunRow
from ..journal.space import SpaceLimits
from ..journal.store import JournalStore
from ..journal.writer import Batch, GroupCommit
from . import recovery
from .definitions import ActivityDefinition, WorkflowDefinition
from .dispatcher import Dispatcher
from .errors import (
    RuntimeClosedError,
    WorkflowNotFoundError,
)
from .event_coder import EventCoder
from .horizon import Horizon
from .housekeeping import Housekeeping
from .intake import Intake, coming
from .mailbox import Reply
from .outage import Outage
from .passivation import Passivation
from .timers import TimerQueue
from .workflow_actor import WorkflowActor
from .workflow_logger import workflow_logger

log = logging.getLogger("everact.runtime")

#: Ended runs kept ready for questions about them, and bytes of their answers together.
CLOSED_KEPT = 1000
CLOSED_BYTES = 32 << 20
#: Runs that have their code in memory.
MAX_CACHED = 10_000
#: Pause before the second rebuild in a row after failed commits, and the longest one, in seconds.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0
#: The pump lets the loop's other work go on after this long, in seconds.
PUMP_SLICE = 0.005


class Shard:
    """Everything in memory that belongs to one journal.

    Attributes:
        actors: Open runs by key.
        index: All durable runs.
        compactor: Moves the log into the tables.
        horizon: Brings runs in before what they wait for falls due.
        passivation: Lets runs out of memory.
        writer: The present incarnation of the writer.
        intake: Whether new work is taken.
        housekeeping: Sees to retention, and to what compaction has to do while nothing is appended.
        error: Why the shard has stopped for good, or None.
        outage: Whether the journal cannot be opened again just now.
        is_rebuilding: It reads the journal after a failed commit, a little at a time.
        starts: Starts with a request id whose runs are open, by workflow id and request id.
        coder: Runs the payload codecs; None when there are none.
        sizes: Checks how large stored values are.
        digest_key: Key for the digests of requests; empty when no payload codec has one.
    """

    # Recovery makes these, once the journal has been read.
    writer: GroupCommit
    index: RunIndex
    compactor: Compactor
    horizon: Horizon

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
    ) -> None:
        self.store = store
        self.loop = loop
        self.clock = clock
        self.now = clock.wall
        self.converter = converter
        self.coder = EventCoder(codecs, loop) if codecs else None
        self.digest_key = b"" if self.coder is None else next(iter(self.coder.digest_keys()), b"")
        self.sizes = PayloadSizes(payload_limits or PayloadLimits())
        self.workflows = workflows
        self.activities = activities
        self.timers = TimerQueue(loop, clock)
        self.dispatcher = Dispatcher(activities, self.timers, clock)
        self.actors: dict[int, WorkflowActor] = {}
        self.newest: dict[str, WorkflowActor] = {}
        self.next_key = 1
        self.intake = Intake(store, loop, clock, limits, lambda: coming(self))
        self.housekeeping = Housekeeping(self)
        self.passivation = Passivation(self, max_cached)
        self.error: BaseException | None = None
        self.outage = Outage(store.path)
        self._recently_closed: OrderedDict[int, WorkflowActor] = OrderedDict()
        self._closed_bytes = 0
        self._ready: deque[WorkflowActor] = deque()
        self._pump_scheduled = False
        self._idle: asyncio.Future[None] | None = None
        self.starts: dict[tuple[str, str], WorkflowActor] = {}
        self._failures = 0
        self._step_failed = False
        self._rebuild_handle: asyncio.Handle | None = None
        self.is_rebuilding = False

    # --- turns

    def new_writer(self) -> GroupCommit:
        """Begin an incarnation of the writer."""
        return GroupCommit(self.store, self.loop, self._committed, self._commit_failed, self.plan)

    def plan(self, appended: int, spare: int = 0) -> Step | None:
        """What a commit moves and purges; arguments as of ``Compactor.plan``."""
        if self._failures and appended:
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

    def state_of(self, key: int) -> RunState | None:
        """The fold of a run in memory, its newest turns included."""
        actor = self.actors.get(key)
        return None if actor is None or not actor.state.last_event else actor.state

    def enqueue(self, actor: WorkflowActor) -> None:
        """Give an actor a turn soon."""
        actor.queued = True
        self.passivation.use(actor)
        self._ready.append(actor)
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self.loop.call_soon(self._pump)

    def enqueue_later(self, actor: WorkflowActor, delay: float) -> None:
        """Give an actor a turn after ``delay`` seconds; mail that comes meanwhile waits with the rest."""
        actor.queued = True
        self.loop.call_later(delay, self._enqueue_again, actor)

    def _enqueue_again(self, actor: WorkflowActor) -> None:
        present = actor in (self.actors.get(actor.key), self._recently_closed.get(actor.key))
        if present and self.error is None:
            self.enqueue(actor)

    def reply_when_durable(self, actor: WorkflowActor, reply: Reply, value: Any = None) -> None:
        """Answer once the newest turn that the answer could have read is durable (R5)."""
        if reply is not None:
            actor.batch.answer(reply, value)

    def _pump(self) -> None:
        """Let every ready actor handle its mailbox, then send what they wrote to the disk."""
        ready = self._ready
        end = self.clock.steady() + PUMP_SLICE
        try:
            while ready and self.writer.error is None:
                actor = ready.popleft()
                actor.queued = False
                if actor.work():
                    self.enqueue(actor)
                if self.clock.steady() > end:
                    break
        except BaseException as error:
            # KeyboardInterrupt in a turn that perhaps never ends: running it again would ask for another.
            self.stop(RuntimeClosedError(f"the Runtime was interrupted in a turn ({type(error).__name__})"))
            self.writer.abandon(self.stopped())  # the turn may have left a part of itself
            raise
        finally:
            if self.passivation.is_over:
                self.passivation.trim()
            self.writer.flush()
            # After a failed commit the mailboxes wait for the next incarnation of the writer.
            again = bool(ready) and self.writer.error is None
            self._pump_scheduled = again
            if again:
                self.loop.call_soon(self._pump)
            elif self._idle is not None:
                self._idle.set_result(None)
                self._idle = None

    async def idle(self, limit: float | None = None) -> None:
        """Wait until every mailbox is empty and everything written is durable, or the journal has failed.

        Payload codecs that need longer than ``limit`` seconds are not waited for.
        """
        coder = self.coder
        while (
            self.is_rebuilding
            or self._pump_scheduled
            or not self.writer.is_idle
            or (coder is not None and coder.jobs)
        ):
            if self.is_rebuilding:
                await asyncio.sleep(0)
                continue
            if self._pump_scheduled:
                self._idle = self.loop.create_future()
                await self._idle
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
        self._failures = 0
        if self.passivation.is_over:
            self.loop.call_soon(self.passivation.trim)  # by then the batch counts as durable

    def _commit_failed(self, error: BaseException) -> None:
        """R5: throw away everything that may not be on disk, and begin again from the journal.

        The first time at once; while it goes on failing after growing pauses, in which nothing is dispatched.
        """
        self._step_failed = True
        if isinstance(error, AppendRefusedError):
            log.critical("another writer has taken over the journal, stopping: %s", error)
            self.stop(error)
            return
        if isinstance(error, JournalDiskError):
            log.critical("stopping: %s", error)
            self.stop(error)
            return
        pause = self._next_pause()
        text = "a commit failed, rebuilding from the journal in %.2g s: %s: %s"
        log.error(text, pause, type(error).__name__, error)
        if pause:
            self._rebuild_handle = self.loop.call_later(pause, self._rebuild)
        else:
            self._rebuild()

    def _next_pause(self) -> float:
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._failures - 1)) if self._failures else 0.0
        self._failures += 1
        return pause

    def _rebuild(self, steps: Generator[None] | None = None) -> None:
        """Rebuild, or go on with it: the host's other work goes on meanwhile."""
        self._rebuild_handle = None
        if steps is None:
            steps = recovery.rebuild(self)
        end = self.clock.steady() + PUMP_SLICE
        self.is_rebuilding = False
        try:
            for _ in steps:
                if self.clock.steady() > end:
                    self.is_rebuilding = True
                    self._rebuild_handle = self.loop.call_soon(self._rebuild, steps)
                    return
            self.outage.end()
            self.intake.check()
        except JournalAccessError as error:
            self.outage.begin(error, (*self.actors.values(), *self._recently_closed.values()))
            self._rebuild_handle = self.loop.call_later(self._next_pause(), self._rebuild)
        except Exception as again:  # noqa: BLE001  (whatever it is: without a journal nothing goes on)
            log.critical("the journal cannot be opened again, stopping: %s", again)
            self.stop(again)

    def replace_actors(self) -> dict[int, WorkflowActor]:
        """Forget every run, for a rebuild; returns the open ones by key."""
        old, self.actors, self.newest = self.actors, {}, {}
        for actor in old.values():
            if actor.coding is not None:
                actor.coding.abandon()
            actor.drop_instance()
        # Runs whose end is durable stay as they are, and questions about them wait on.
        self._ready = deque(actor for actor in self._ready if actor.key not in old)
        self.starts.clear()
        self.timers.close()
        self.passivation.clear()
        return old

    def go_on(self) -> None:
        """Let the mailboxes that waited for a new writer be handled."""
        if self._ready and not self._pump_scheduled:
            self._pump_scheduled = True
            self.loop.call_soon(self._pump)

    def stop(self, error: BaseException) -> None:
        """Answer everybody with an error and take no more."""
        self.error = error
        self.is_rebuilding = False
        if self._rebuild_handle is not None:
            self._rebuild_handle.cancel()
        self.timers.close()
        self.dispatcher.pool.accept_no_more()
        known = (*self.actors.values(), *self._ready, *self._recently_closed.values())
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
        return self._closed_actor(row) if row.is_closed else recovery.activate(self, row)

    def actor_by_key(self, key: int) -> WorkflowActor | None:
        """The actor of a durable run by its key; None when it was purged."""
        actor = self.actors.get(key) or self._recently_closed.get(key)
        if actor is None:
            row = self.index.row(key)
            with suppress(WorkflowNotFoundError):  # purged while it was read
                actor = None if row is None else self.actor_of(row)
        return actor

    def _closed_actor(self, row: RunRow) -> WorkflowActor:
        actor = self._recently_closed.get(row.key)
        if actor is None:
            actor = WorkflowActor(self, row.key, row.workflow_id, self.workflows.get(row.workflow_type))
            for at, record in self.index.records(row):
                actor.state.apply(record, at)
            if self.index.row(row.key) is None:
                raise WorkflowNotFoundError(row.workflow_id, row.run_id)
            self._keep_closed(actor)
        else:
            self._recently_closed.move_to_end(row.key)
        return actor

    def _keep_closed(self, actor: WorkflowActor) -> None:
        kept = self._recently_closed
        kept[actor.key] = actor
        self._closed_bytes += actor.state.answer_bytes
        while len(kept) > CLOSED_KEPT or (self._closed_bytes > CLOSED_BYTES and len(kept) > 1):
            self._drop_closed(next(iter(kept)))

    def _drop_closed(self, key: int) -> None:
        actor = self._recently_closed.pop(key, None)
        if actor is not None:
            self._closed_bytes -= actor.state.answer_bytes
            actor.drop_instance()

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

    # --- effects: called once what caused them is durable

    def arm_timer(self, actor: WorkflowActor, command: int) -> None:
        """Wait for a timer's deadline."""
        timer = actor.state.timers.get(command)
        if timer is not None:
            self.timers.add(timer.deadline, _timer_due, _timer_alive, actor, command)

    def closed(self, actor: WorkflowActor) -> None:
        """A run's end is durable."""
        actor.withdraw_attempts()
        self.forget(actor)
        self.passivation.forget(actor)
        self._keep_closed(actor)

    def purged(self, key: int) -> None:
        """A run is gone from the journal."""
        self._drop_closed(key)

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
        for actor in (*self.actors.values(), *self._recently_closed.values()):
            actor.drop_instance()
        self._recently_closed.clear()


def _timer_due(actor: WorkflowActor, command: int) -> None:
    fault_point("timer.fire.before")
    actor.put(ev.TimerFired(command))


def _timer_alive(actor: WorkflowActor, command: int) -> bool:
    # It may have left memory and come back as another object, with entries of its own.
    return command in actor.state.timers and actor.shard.actors.get(actor.key) is actor
