"""From a run's activity commands to attempts in the pool, and back from their ends to its mailbox."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from ..journal import events as ev
from ..journal.clock import Clock
from ..journal.errors import PayloadCodecError, PayloadTooLargeError
from ..journal.failures import Failure, class_names, full_text
from ..journal.fold import LOST, PendingActivity
from ..journal.payloads import Payload
from ..supervision.blame import DEATHS
from .activity_pool import ActivityPool
from .attempts import Attempt
from .definitions import ActivityDefinition
from .errors import AttemptLostError
from .failure_conversion import activity_failure, failure_of, with_source
from .retries import decide as decide_retry
from .timers import TimerQueue

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor

log = logging.getLogger("everact.runtime")


class Dispatcher:
    """Starts the attempts of one shard's runs, and decides what follows when one has ended.

    Attributes:
        pool: What runs the attempts; the runtime sets it before recovery.
    """

    def __init__(
        self, activities: Mapping[str, ActivityDefinition], timers: TimerQueue, clock: Clock
    ) -> None:
        self.pool: ActivityPool = None  # type: ignore[assignment]  # see above
        self._activities = activities
        self._timers = timers
        self._now = clock.wall
        self._jitter = random.Random()  # noqa: S311  (not part of any decision that is replayed)

    def dispatch(self, actor: WorkflowActor, command: int) -> None:
        """Hand an activity's next attempt to the pool."""
        pending = actor.state.activities.get(command)
        if pending is None or command in actor.outcomes:
            return  # cancelled or closed in the same commit (R10), or its result is on its way
        running = actor.attempts.get(command)
        if running is not None:
            if running.number == pending.attempt:
                return
            self.pool.withdraw(running)
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
            self._give_up(actor, pending, definition, reason)
            return
        attempt = Attempt(actor, pending, definition)
        actor.attempts[command] = attempt
        isolation = actor.shard.isolation
        if isolation is None:
            self.pool.submit(attempt)
        else:
            isolation.hold(attempt)

    def _give_up(
        self, actor: WorkflowActor, pending: PendingActivity, definition: ActivityDefinition, reason: str
    ) -> None:
        """Attempts were lost with their processes, and there is to be no further one."""
        command, number = pending.scheduled.command, pending.attempt - 1
        message = "" if pending.last_failure is None else pending.last_failure.message
        lost = Failure(AttemptLostError.__name__, class_names(AttemptLostError), message, kind="lost")
        cause = with_source(lost, definition.name, command, number)
        failure = activity_failure(cause, definition.name, command, number, reason)
        event = ev.ActivityFailed(command, pending.attempt, failure, reason)
        actor.outcomes[command] = event
        actor.put(event)

    def attempt_ended(self, attempt: Attempt, outcome: Payload | Failure | PayloadCodecError) -> None:
        """Take an attempt's outcome; the fence decides whether it still counts (R3).

        One whose arguments the payload codecs cannot decode has not begun: its run is held.
        """
        actor, command, number = attempt.actor, attempt.scheduled.command, attempt.number
        if actor.attempts.get(command) is attempt:
            del actor.attempts[command]
        event: ev.ActivityCompleted | ev.ActivityFailed | ev.AttemptFailed
        if isinstance(outcome, PayloadCodecError):
            actor.put(ev.RunStalled("held", failure_of(outcome, actor.shard.converter, kind="crash")))
            return
        if type(outcome) is Payload:
            event = ev.ActivityCompleted(command, number, outcome)
        else:
            assert isinstance(outcome, Failure)
            delay, reason = decide_retry(
                attempt.scheduled.retry, number - attempt.uncounted, outcome, self._jitter
            )
            if delay >= 0:
                event = ev.AttemptFailed(command, number, outcome, self._now() + delay)
            else:
                failure = activity_failure(outcome, attempt.definition.name, command, number, reason)
                event = ev.ActivityFailed(command, number, failure, reason)
        shard = actor.shard
        if shard.coder is None and not (type(outcome) is Payload and len(outcome.data) <= shard.sizes.quick):
            try:
                shard.sizes.check_event(event, actor.about)
            except PayloadTooLargeError as error:
                event = too_large(actor, event, error)
        actor.outcomes[command] = event
        actor.put(event)

    def cancel_attempt(self, actor: WorkflowActor, command: int) -> None:
        """The run no longer wants an activity."""
        attempt = actor.attempts.pop(command, None)
        if attempt is not None:
            self.pool.withdraw(attempt)
        else:
            self._timers.note_dead(1)  # it waited for a retry, perhaps

    def arm_retry(self, actor: WorkflowActor, command: int) -> None:
        """Wait until an activity's next attempt may start."""
        pending = actor.state.activities.get(command)
        if pending is not None:
            self._timers.add(pending.next_at, self.dispatch, _retry_alive, actor, command)

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


def too_large(
    actor: WorkflowActor,
    event: ev.ActivityCompleted | ev.ActivityFailed | ev.AttemptFailed,
    error: PayloadTooLargeError,
) -> ev.ActivityFailed:
    """What becomes of an attempt's outcome that is over the limit; trying again would give it again."""
    pending = actor.state.activities.get(event.command)
    name = "" if pending is None else pending.scheduled.activity_type
    cause = with_source(failure_of(error, actor.shard.converter), name, event.command, event.attempt)
    cause = msgspec.structs.replace(cause, non_retryable=True)
    reason = "non-retryable error"
    failure = activity_failure(cause, name, event.command, event.attempt, reason)
    return ev.ActivityFailed(event.command, event.attempt, failure, reason)


def given_up(pending: PendingActivity) -> str:
    """Why there is no further attempt after one was lost with its process; empty when there is one."""
    if pending.last_failure is None or pending.last_failure.type != LOST:
        return ""
    if pending.deaths >= DEATHS:
        return f"the process died {pending.deaths} times while an attempt ran, and nothing else"
    policy = pending.scheduled.retry or ev.RetryRecord()
    if LOST in policy.non_retryable:
        return "error type is non-retryable"
    if policy.maximum_attempts and pending.attempt - 1 - pending.uncounted >= policy.maximum_attempts:
        return f"maximum_attempts={policy.maximum_attempts} reached"
    return ""


def _retry_alive(actor: WorkflowActor, command: int) -> bool:
    return command in actor.state.activities
