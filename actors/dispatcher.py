"""From a run's activity commands to attempts in the pool, and back from their ends to its mailbox."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..journal import events as ev
from ..journal.clock import Clock
from ..journal.errors import PayloadCodecError, PayloadTooLargeError
from ..journal.failures import Failure, full_text
from ..journal.fault_points import fault_point
from ..journal.fold import LOST, PendingActivity
from ..journal.payloads import Payload
from .activity_info import timeout_failure
from .activity_pool import ActivityPool, AttemptOutcome
from .attempt_outcomes import given_up, lost_for_good, outcome_event, timed_out, too_large
from .attempts import Attempt
from .definitions import ActivityDefinition
from .failure_conversion import failure_of
from .timers import TimerQueue

if TYPE_CHECKING:
    from .mailbox import Reply
    from .workflow_actor import WorkflowActor

log = logging.getLogger("everact.runtime")


class Dispatcher:
    """Starts the attempts of one shard's runs, and decides what follows when one has ended.

    Attributes:
        pool: What runs the attempts; the runtime sets it before recovery.
        jitter: Of the pauses before something is tried again.
    """

    def __init__(
        self, activities: Mapping[str, ActivityDefinition], timers: TimerQueue, clock: Clock
    ) -> None:
        self.pool: ActivityPool = None  # type: ignore[assignment]  # see above
        self._activities = activities
        self._timers = timers
        self._now = clock.wall
        self.jitter = random.Random()  # noqa: S311  (not part of any decision that is replayed)

    # --- starting

    def begin(self, actor: WorkflowActor, command: int, *, may_have_begun: bool = False) -> None:
        """Take an activity in: as soon as its command is durable, and whenever its run comes into memory.

        Args:
            actor: The run.
            command: The activity's number.
            may_have_begun: Its present attempt was perhaps begun before, by a runtime that did not see its end.
        """
        pending = actor.state.activities.get(command)
        if pending is None:
            return
        if pending.scheduled.limits is not None and pending.close_deadline:
            self._timers.add(pending.close_deadline, self._close_due, _is_pending, actor, command)
        if pending.next_at and pending.next_at > self._now():
            self.arm_retry(actor, command)
        else:
            self.dispatch(actor, command, may_have_begun=may_have_begun)

    def dispatch(self, actor: WorkflowActor, command: int, *, may_have_begun: bool = False) -> None:
        """Hand an activity's next attempt to the pool."""
        pending = actor.state.activities.get(command)
        if pending is None or command in actor.outcomes:
            return  # cancelled or closed in the same commit (R10), or its result is on its way
        running = actor.attempts.get(command)
        if running is not None and running.number != pending.attempt:
            self.pool.withdraw(running)
            running = None
        if running is not None and running.is_detached and not pending.deadline:
            # That it is went down with a commit.
            self.pool.note(running, running.started_at + running.scheduled.start_to_close)
        if (
            pending.cancel in ev.WAITING
            and not pending.deadline
            and (running is not None or not _goes_on(pending, may_have_begun=may_have_begun))
        ):
            self._stop(actor, command)
            return
        if running is not None:
            self.arm_completion(actor, command)
            return
        if 0 < pending.close_deadline <= self._now():  # no attempt may begin behind it
            self._close_due(actor, command)
            return
        if pending.deadline:
            self.arm_completion(actor, command)
        elif pending.scheduled.limits is not None and pending.start_deadline:
            if pending.start_deadline <= self._now():  # it passed while no runtime was there
                self._start_due(actor, command)
                return
            self._timers.add(pending.start_deadline, self._start_due, _is_pending, actor, command)
        definition = self._activities.get(pending.scheduled.activity_type)
        if definition is None:
            log.error(
                "workflow %r waits for activity %r, which is not registered with this runtime; it runs once a "
                "runtime that has it opens the journal",
                actor.workflow_id,
                pending.scheduled.activity_type,
            )
            return
        if pending.last_failure is not None and (reason := given_up(pending)):
            event = actor.outcomes[command] = lost_for_good(pending, reason)
            actor.put(event)
            return
        attempt = Attempt(actor, pending, definition)
        actor.attempts[command] = attempt
        isolation = actor.shard.isolation
        if attempt.is_detached:
            self.pool.heartbeats.start(attempt)
        elif isolation is None:
            self.pool.submit(attempt)
        else:
            isolation.hold(attempt)

    def arm_retry(self, actor: WorkflowActor, command: int) -> None:
        """Wait until an activity's next attempt may start."""
        pending = actor.state.activities.get(command)
        if pending is None:
            return
        if pending.cancel in ev.WAITING and not _goes_on(pending):  # asked to stop while its attempt failed
            self._stop(actor, command)
        else:
            self._timers.add(pending.next_at, self.dispatch, _is_pending, actor, command)

    # --- ending

    def attempt_ended(self, attempt: Attempt, outcome: AttemptOutcome) -> None:
        """Take an attempt's outcome; the fence decides whether it still counts (R3).

        One whose arguments the payload codecs cannot decode has not begun: its run is held.
        """
        actor, command = attempt.actor, attempt.scheduled.command
        if actor.attempts.get(command) is attempt:
            del actor.attempts[command]
        is_older = actor.coding is not None and actor.coding.is_older(attempt)
        if isinstance(outcome, PayloadCodecError):
            if is_older:
                self.dispatch(actor, command)
                return
            actor.put(ev.RunStalled("held", failure_of(outcome, actor.shard.converter, kind="crash")))
            return
        assert isinstance(outcome, (Payload, Failure))
        pending = actor.state.activities.get(command)
        if pending is None or pending.attempt != attempt.number:
            return  # its run, or a later attempt, has gone on without it
        details = attempt.details if attempt.details is not attempt.noted else ()
        self._take(actor, pending, outcome, details=details, is_cancelled=attempt.is_cancelled)

    def complete(
        self, actor: WorkflowActor, pending: PendingActivity, outcome: Payload | Failure, reply: Reply
    ) -> None:
        """Take the outcome that somebody outside has for the present attempt."""
        fault_point("activity.complete.before", actor)
        attempt = actor.attempts.pop(pending.scheduled.command, None)
        details: tuple[Payload, ...] = ()
        if attempt is not None:
            details = attempt.details if attempt.details is not attempt.noted else ()
            attempt.is_abandoned = True  # its code may still be about to return
            self.pool.release(attempt)
        is_cancelled = pending.cancel in ev.WAITING
        self._take(actor, pending, outcome, details=details, is_cancelled=is_cancelled, reply=reply)

    def _take(
        self,
        actor: WorkflowActor,
        pending: PendingActivity,
        outcome: Payload | Failure,
        *,
        details: tuple[Payload, ...],
        is_cancelled: bool,
        reply: Reply = None,
    ) -> None:
        event = outcome_event(
            pending, outcome, self._now, self.jitter, is_cancelled=is_cancelled, details=details
        )
        limits = pending.scheduled.limits
        if limits is not None:
            self._timers.note_dead((limits.schedule_to_start > 0) + (limits.schedule_to_close > 0))
        shard = actor.shard
        if shard.coder is None and not (type(outcome) is Payload and len(outcome.data) <= shard.sizes.quick):
            try:
                shard.sizes.check_event(event, actor.about)
            except PayloadTooLargeError as error:
                event = too_large(actor, event, error)
        actor.outcomes[event.command] = event
        actor.put(event, reply)

    def cancel(self, actor: WorkflowActor, event: ev.ActivityCancelRequested) -> None:
        """The run no longer wants an activity's result."""
        command = event.command
        attempt = actor.attempts.get(command)
        if event.mode in ev.WAITING:
            self._stop(actor, command)
        elif event.mode == ev.ABANDON:
            if attempt is not None:
                attempt.is_abandoned = True
        elif attempt is not None:
            del actor.attempts[command]
            self.pool.withdraw(attempt)
        else:
            self._timers.note_dead(1)  # it waited for a retry, perhaps

    def _stop(self, actor: WorkflowActor, command: int) -> None:
        """Ask an activity to stop whose end the run waits for; of what does not run, that is at once."""
        pending = actor.state.activities.get(command)
        if pending is None or command in actor.outcomes:
            return
        fault_point("activity.cancel.before", actor)
        attempt = actor.attempts.get(command)
        if pending.deadline or (attempt is not None and attempt.is_detached):
            return  # whoever completes it from outside learns of it by the next heartbeat
        goes_on = _goes_on(pending)
        breaks_in = pending.cancel == ev.WAIT_CANCELLED
        if attempt is None:
            if goes_on:  # it is not registered here, say: a runtime that has it finds out
                return
        elif self.pool.cancel(attempt, breaks_in=breaks_in, goes_on=goes_on):
            return  # it will say so
        actor.attempts.pop(command, None)
        event = actor.outcomes[command] = ev.ActivityCancelled(command, pending.attempt)
        actor.put(event)

    # --- limits

    def arm_completion(self, actor: WorkflowActor, command: int) -> None:
        """Wait for whoever completes an attempt from outside, until its limit."""
        pending = actor.state.activities.get(command)
        if pending is not None and pending.deadline:
            self._timers.add(pending.deadline, self._completion_due, _is_pending, actor, command)

    def _completion_due(self, actor: WorkflowActor, command: int) -> None:
        pending = actor.state.activities.get(command)
        if pending is None or not 0 < pending.deadline <= self._now() or command in actor.outcomes:
            return
        self._give_up(actor, command)
        scheduled = pending.scheduled
        source = (scheduled.activity_type, command, pending.attempt)
        failure = timeout_failure(source, "start_to_close_timeout", scheduled.start_to_close)
        is_cancelled = pending.cancel in ev.WAITING
        self._take(actor, pending, failure, details=(), is_cancelled=is_cancelled)

    def _start_due(self, actor: WorkflowActor, command: int) -> None:
        pending = actor.state.activities.get(command)
        attempt = actor.attempts.get(command)
        if pending is None or command in actor.outcomes or not 0 < pending.start_deadline <= self._now():
            return
        if attempt is None or not attempt.started_at:
            limits = pending.scheduled.limits or ev.LimitsRecord()
            self._end(actor, pending, "schedule_to_start_timeout", limits.schedule_to_start)

    def _close_due(self, actor: WorkflowActor, command: int) -> None:
        pending = actor.state.activities.get(command)
        if pending is not None and command not in actor.outcomes:
            limits = pending.scheduled.limits or ev.LimitsRecord()
            self._end(actor, pending, "schedule_to_close_timeout", limits.schedule_to_close)

    def _end(self, actor: WorkflowActor, pending: PendingActivity, option: str, limit: int) -> None:
        """A limit has passed behind which there is no further attempt."""
        command = pending.scheduled.command
        self._give_up(actor, command)
        # What the codecs have encoded must not go through them again.
        cause = pending.last_failure if actor.shard.coder is None else None
        event = actor.outcomes[command] = timed_out(pending, option, limit, cause)
        actor.put(event)

    def _give_up(self, actor: WorkflowActor, command: int) -> None:
        attempt = actor.attempts.pop(command, None)
        if attempt is not None:
            self.pool.withdraw(attempt)

    def log_attempt(self, actor: WorkflowActor, event: ev.AttemptFailed) -> None:
        """An attempt failed and another will follow: say so, or a mistake looks like a slow activity."""
        pending = actor.state.activities.get(event.command)
        if pending is None:
            return
        most = (pending.scheduled.retry or ev.RetryRecord()).maximum_attempts
        log.warning(
            "activity %r of workflow %r: attempt %d%s failed, the next one starts in %.1f s: %s",
            pending.scheduled.activity_type,
            actor.workflow_id,
            event.attempt - pending.uncounted,
            f" of {most}" if most else "",
            max(0, event.next_at - self._now()) / 1_000_000,
            full_text(event.failure),
        )


def _goes_on(pending: PendingActivity, *, may_have_begun: bool = False) -> bool:
    """Whether an activity that was cancelled, and perhaps begun, runs again, so that it is known what it has done."""
    is_lost = pending.last_failure is not None and pending.last_failure.type == LOST
    return pending.cancel == ev.WAIT_COMPLETED and (may_have_begun or pending.has_begun or is_lost)


def _is_pending(actor: WorkflowActor, command: int) -> bool:
    return command in actor.state.activities
