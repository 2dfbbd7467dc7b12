"""The workflow actor: one run with its mailbox, delivering one event at a time.

Each event becomes one turn, each turn one record in the open batch; nothing that the turn decided leaves before
that batch is durable (R5). A turn that cannot be kept leaves its input as ``Received``; the run restarts or stalls.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from ..journal.errors import EveractError
from ..journal.fold import RunState
from ..journal.writer import DURABLE, Batch, Raise, settle
from ..supervision.flight_recorder import label_of
from .actor_coding import ActorCoding, PausedError
from .appending import encoded, outcome_is_durable, write
from .controls import handle_control, receive, refuse_backlog
from .definitions import WorkflowDefinition
from .failure_conversion import failure_of
from .field_names import about
from .forwarding import forward
from .handlers import KEPT
from .isolation import is_suspect
from .loading import NotReadableError, ReplayingError, drop_replay, load_code
from .mailbox import (
    CONTROLS,
    DELIVERED,
    FENCED,
    OUTCOMES,
    REPEATABLE,
    URGENT,
    Inspection,
    Mail,
    Query,
    Reply,
)
from .queries import answer_query
from .received_inputs import deliver_unread, receive_first, wait_for_disk
from .refusals import refuse_closed, refuse_stale
from .repeats import answered_before
from .restarts import Restarts, crash_over
from .run_deadlines import time_out
from .run_end import WorkflowCrashedError
from .running import is_valid, run_turn
from .stalls import stall_run
from .workflow_instance import Delivery, WorkflowInstance

log = logging.getLogger("everact.runtime")

if TYPE_CHECKING:
    from .attempts import Attempt
    from .replay import Replay
    from .shard import Shard

#: Events of one run handled before the others get their turn.
BURST = 100
#: From so many waiters of one update on, those that have gone away are looked for.
CROWD = 16
#: What nothing goes before.
_FIRST = URGENT | {ev.WorkflowStarted}
#: Pause before a run that could not be read is tried again, in seconds.
READ_PAUSE = 0.5


class WorkflowActor:
    """One run.

    Attributes:
        key: Its number in the journal.
        state: The fold of all its records, those on their way to the disk included.
        definition: Its type; None when that is not registered.
        instance: Its code in memory, or None.
        mailbox: Events to handle, each with who waits for it.
        batch: The batch that holds its newest record.
        coding: Its way through the payload codecs; None when the runtime has none.
        attempts: Its attempts in hand, by command number.
        unread_numbers: Event numbers of received inputs, oldest first; may hold some that have been delivered.
        last_turn: The oldest received input, once its turn was found to be the last one; 0 while that is not known.
        is_waiting_for_disk: It goes on once what it has received is durable.
        is_wary: Its start has killed the process before it was durable.
        outcomes: Results of attempts whose records are not durable yet, by command number.
        tried: It has had its one try of this start, or needs none.
        unreadable: The journal could not be read when its code was to be loaded.
        result_waiters: Who waits for the outcome, and whether a stall is to wake them.
        update_waiters: Who waits for an update's answer, by event number.
        replay: Of its code, while that is being loaded.
        queued: Whether the shard will call ``work``.
        is_retired: The run is in memory as another object now, or not at all: mail goes to what it is by then.
        restarts: Its crashes since its last progress, or None.
        early: Queries that came before its first turn or its restart, and wait for it.
        replaces: The run that is terminated in the same commit as this one starts.
    """

    __slots__ = (
        "attempts",
        "batch",
        "coding",
        "definition",
        "early",
        "instance",
        "is_retired",
        "is_waiting_for_disk",
        "is_wary",
        "key",
        "last_turn",
        "mailbox",
        "outcomes",
        "queued",
        "replaces",
        "replay",
        "restarts",
        "result_waiters",
        "shard",
        "state",
        "tried",
        "unread_numbers",
        "unreadable",
        "update_waiters",
        "workflow_id",
    )

    def __init__(
        self, shard: Shard, key: int, workflow_id: str, definition: WorkflowDefinition | None
    ) -> None:
        self.shard = shard
        self.key = key
        self.workflow_id = workflow_id
        self.definition = definition
        self.state = RunState()
        self.instance: WorkflowInstance | None = None
        self.mailbox: deque[tuple[Mail, Reply]] = deque()
        self.unread_numbers: deque[int] | None = None  # hardly any run has one, and it takes 600 bytes
        self.batch: Batch = DURABLE
        self.coding = None if shard.coder is None else ActorCoding(self, shard.coder)
        self.outcomes: dict[int, Any] = {}
        self.tried = True
        self.unreadable = False
        self.is_wary = bool(shard.marks.wary) and label_of(workflow_id) in shard.marks.wary
        self.is_waiting_for_disk = False
        self.last_turn = 0
        self.replay: Replay | None = None
        self.attempts: dict[int, Attempt] = {}
        self.result_waiters: list[tuple[asyncio.Future[Any], bool]] = []
        self.update_waiters: dict[int, list[asyncio.Future[Any]]] = {}
        self.queued = False
        self.is_retired = False
        self.replaces: WorkflowActor | None = None
        self.restarts: Restarts | None = None
        self.early: list[tuple[Mail, Reply]] = []

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.state.started.run_id

    @property
    def is_closed(self) -> bool:
        """Whether the run has ended (perhaps in a turn that is not durable yet)."""
        return self.state.outcome is not None

    @property
    def is_stalled(self) -> bool:
        """Whether its code must not run."""
        return self.state.stall is not None

    @property
    def delivers(self) -> bool:
        """Whether its code may run; otherwise inputs are received only."""
        state = self.state
        if state.stall is not None or state.pause is not None or state.outcome is not None:
            return False
        return self.restarts is None or not self.restarts.is_waiting

    # --- the mailbox

    def put(self, event: Mail, reply: Reply = None) -> None:
        """Add an event to the mailbox and ask for a turn."""
        shard = self.shard
        if shard.error is not None:
            if reply is not None:
                settle(reply, Raise(shard.stopped()))
            return
        if self.is_retired:
            forward(self, event, reply)
            return
        if self.coding is not None:
            self.coding.put(event, reply)
            return
        self.mailbox.append((event, reply))
        if not self.queued:
            shard.enqueue(self)

    def put_first(self, event: Mail, reply: Reply) -> None:
        """Add what acts at receipt: it goes before all mail that has had no turn, but not before its like (R2)."""
        shard = self.shard
        if self.is_retired:
            forward(self, event, reply)
            return
        if shard.error is not None or (self.coding is not None and not self.state.last_event):
            self.put(event, reply)
            return
        if type(event) in (ev.WorkflowTerminated, ev.WorkflowTimedOut) and self.coding is not None:
            self.coding.abandon()  # it waits for no codec
        place = 0
        while place < len(self.mailbox) and type(self.mailbox[place][0]) in _FIRST:
            place += 1
        self.mailbox.insert(place, (event, reply))
        if not self.queued:
            shard.enqueue(self)
        elif shard.isolation is not None:
            shard.isolation.urge(self)

    def about(self, event: ev.Event, inputs: Sequence[ev.Event] = ()) -> tuple[str, Sequence[str]]:
        """What an event's fields belong to, and the names of its parameters, for messages."""
        return about(event, self.state, self.definition, self.shard.activities, inputs)

    def wait_for_update(self, number: int, reply: asyncio.Future[Any]) -> None:
        """Let a caller wait for the answer to the update that was received as event ``number``."""
        waiters = self.update_waiters.setdefault(number, [])
        if len(waiters) >= CROWD:  # callers that have gone away
            waiters[:] = [waiter for waiter in waiters if not waiter.done()]
        waiters.append(reply)

    def withdraw_attempts(self) -> None:
        """Nobody wants the results of its attempts any more."""
        pool = self.shard.dispatcher.pool
        for attempt in self.attempts.values():
            if attempt.is_abandoned:
                pool.release(attempt)
            else:
                pool.withdraw(attempt)
        self.attempts.clear()
        self.outcomes.clear()

    def let_go(self, error: EveractError) -> None:
        """The run ends here, in memory: everybody who waits gets an error."""
        waiting = [waiter for waiter, _ in self.result_waiters]
        waiting += [waiter for waiters in self.update_waiters.values() for waiter in waiters]
        if self.coding is not None:
            waiting += self.coding.let_go()
        waiting += [reply for _event, reply in (*self.mailbox, *self.early) if reply is not None]
        self.mailbox.clear()
        self.early.clear()
        self.result_waiters.clear()  # in place: who waits takes itself out of this very list
        self.update_waiters = {}
        for future in waiting:
            settle(future, Raise(error))
        self.withdraw_attempts()

    def mark_tried(self) -> None:
        """Its try of this start is durable."""
        self.tried = True

    def work(self, *, only_urgent: bool = False) -> bool:
        """Handle what is in the mailbox.

        Args:
            only_urgent: Only what acts at receipt; no code of the run.

        Returns:
            Whether there is more.
        """
        coding = self.coding
        for _ in range(BURST):
            mail: tuple[Mail, Reply] | None = None
            try:
                if coding is not None and coding.is_paused():
                    return False
                if only_urgent and not self.is_urgent():
                    return False
                if self.state.unread and self.delivers and not self.is_urgent():
                    if self.is_careful and not self.batch.durable:
                        wait_for_disk(self)
                        return False
                    deliver_unread(self)
                    continue
                if self.early and not self.keeps_queries():
                    self.mailbox.extend(self.early)
                    self.early.clear()
                if not self.mailbox:
                    return False
                mail = self.mailbox.popleft()
                self._handle(*mail)
                if coding is not None:
                    coding.handled(mail[0])
            except PausedError:
                if mail is not None:
                    self.mailbox.appendleft(mail)
                return False
            except ReplayingError:  # the rest of it in the next slice
                if mail is not None:
                    self.mailbox.appendleft(mail)
                return True
            except NotReadableError as error:
                if mail is not None:
                    self.mailbox.appendleft(mail)
                if not self.unreadable:
                    self.unreadable = True
                    text = "workflow %r cannot be read, trying again every %g s: %s"
                    log.error(text, self.workflow_id, READ_PAUSE, error.__cause__)  # noqa: TRY400
                self.shard.enqueue_later(self, READ_PAUSE)
                return False
            except Exception as error:  # noqa: BLE001  (ours: the user's code is caught inside)
                self._broken(error, mail)
        return bool(self.mailbox) or bool(self.state.unread and self.delivers)

    def is_urgent(self) -> bool:
        """Whether its next mail acts at receipt."""
        return bool(self.mailbox) and type(self.mailbox[0][0]) in URGENT

    def has_yet_to_begin(self) -> bool:
        """Whether its first turn is still to come, once its code may run."""
        state = self.state
        return (
            bool(state.unread)
            and type(state.unread.get(1)) is ev.WorkflowStarted
            and not self.is_stalled
            and not self.is_closed
        )

    def keeps_queries(self) -> bool:
        """Whether queries wait: for the first turn, or until the code that one could not load is tried again."""
        restarts = self.restarts
        if restarts is not None and restarts.is_waiting and self.early:
            return not self.is_stalled and not self.is_closed
        return self.has_yet_to_begin()

    def _broken(self, error: Exception, mail: tuple[Mail, Reply] | None) -> None:
        """An error of ours in a turn: its caller gets it, the run stands still, the others go on."""
        event, reply = mail if mail is not None else (None, None)
        log.error("workflow %r: internal error in a turn", self.workflow_id, exc_info=error)
        if reply is not None:
            settle(reply, Raise(error))
        self.drop_instance()
        if isinstance(event, Query | Inspection):
            return
        if not self.state.last_event:
            self.shard.forget(self)
        elif not self.is_closed and not self.is_stalled:
            stall_run(self, "quarantined", failure_of(error, self.shard.converter, kind="crash"))

    def _handle(self, event: Any, reply: Reply) -> None:
        kind = type(event)
        if kind is Query:
            answer_query(self, event, reply)
            return
        if kind is Inspection:
            self.shard.reply_when_durable(self, reply, event.read(self.state))
            return
        if kind in REPEATABLE and answered_before(self, event, reply):
            return
        state = self.state
        if state.outcome is not None:
            if not self.shard.pass_on(self, event, reply):
                refuse_closed(self, reply)
        elif kind in FENCED and self.is_stale(event):
            if kind in OUTCOMES:
                outcome_is_durable(self, event)
            refuse_stale(self, event, reply)
        elif kind is ev.CancelRequested and state.cancel is not None:
            self.shard.reply_when_durable(self, reply)
        elif (
            kind is ev.ActivityCompleted
            and reply is None
            and len(event.result.data) > self.shard.intake.large
            and self.shard.intake.keeps(self, event)
        ):
            pass
        elif kind in DELIVERED:
            # As ``delivers``, written out: each input of each run comes by here.
            restarts = self.restarts
            if state.stall is None and state.pause is None and (restarts is None or not restarts.is_waiting):
                if (self.is_wary or state.blame) and self.is_careful:
                    receive_first(self, event, reply)
                else:
                    self._deliver(event, reply)
            else:
                receive(self, event, reply)
        elif kind is ev.AttemptFailed:
            write(self, ev.Turn((event,)), self.shard.now(), reply)
            self.batch.after(self.shard.dispatcher.arm_retry, self, event.command)
            self.batch.after(self.shard.dispatcher.log_attempt, self, event)
        elif kind is ev.AttemptNoted:
            write(self, ev.Turn((event,)), self.shard.now(), reply)
            if event.deadline:
                self.batch.after(self.shard.dispatcher.arm_completion, self, event.command)
        elif kind is ev.WorkflowTerminated:
            self.close_at_once(event, reply)
        elif kind is ev.WorkflowTimedOut:
            time_out(self, event, reply)
        elif kind in CONTROLS:
            handle_control(self, event, reply)
        elif state.stall is None:
            assert kind is ev.RunStalled
            stall_run(self, event.kind, event.failure)

    def is_stale(self, event: Any) -> bool:
        """Whether nobody waits for this any more: a late attempt (R3), a timer that lost its race."""
        if type(event) is ev.TimerFired:
            return event.command not in self.state.timers
        pending = self.state.activities.get(event.command)
        return pending is None or pending.attempt != event.attempt

    # --- after a hard death in a turn of this run (R12)

    @property
    def is_careful(self) -> bool:
        """Whether what comes in is made durable before the code sees it."""
        return self.is_wary or (bool(self.state.blame) and is_suspect(self.state))

    # --- turns

    def _deliver(self, event: Any, reply: Reply) -> None:
        """One event, one turn."""
        number = self.state.last_event + 1
        at = self.shard.now()
        instance = self.instance
        try:
            if instance is None:
                instance = self.load()
            if type(event) is ev.UpdateReceived and not is_valid(self, instance, event, reply):
                return
            if (
                self.state.kept
                and len(self.state.kept) >= KEPT
                and type(event) is ev.SignalReceived
                and instance.handlers.find("signal", event.name) is None
            ):
                refuse_backlog(self, reply, KEPT)
                return
            instance.history_length = number
            outputs = run_turn(self, instance, at, (Delivery(number, event),))
            turn = ev.Turn((event,), tuple(outputs))
            body = encoded(self, turn) if self.coding is None else b""
        except WorkflowCrashedError as crash:
            crash_over(self, crash, event, reply)
        except Exception:  # ours, or the store's: ``work`` decides what becomes of the mail
            raise
        except BaseException:  # KeyboardInterrupt: the turn never was
            self.drop_instance()
            self.mailbox.appendleft((event, reply))
            raise
        else:
            write(self, turn, at, reply, body)

    def load(self) -> WorkflowInstance:
        """Make the instance; errors as of ``load_code``."""
        self.instance = load_code(self)
        self.unreadable = False
        return self.instance

    def drop_instance(self) -> None:
        """Drop the code from memory; the next event replays it."""
        if self.replay is not None:
            drop_replay(self)
        if self.instance is not None:
            self.discard(self.instance)
            self.instance = None

    def discard(self, instance: WorkflowInstance) -> None:
        """Drop code from memory, and take note of what refuses to end."""
        refused = instance.discard()
        if refused:
            self.shard.note_detached(self, refused)

    def close_at_once(self, outcome: ev.Outcome, reply: Reply) -> None:
        """End the run from outside: its code does not run again (terminate, replace)."""
        if self.coding is not None:
            self.coding.abandon()
        if (self.mailbox or self.early) and not self.queued:
            self.shard.enqueue(self)
        self.drop_instance()
        write(self, ev.Turn((), (outcome,)), self.shard.now(), reply)
