"""A run that has crashed: its input is kept, and it is restarted from the journal, until its budget is used up (R7).

The counts are in memory. They begin anew with progress (a turn that is kept), with ``release``, with a rebuild and with
each start of the runtime; what the journal has is the input, and in the end that the run is quarantined.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from ..journal.failures import Failure, full_text
from ..journal.fault_points import fault_point
from ..supervision.strategies import OneForOne, RestartLimit
from .appending import write
from .mailbox import Query, Reply
from .run_end import WorkflowCrashedError
from .stalls import stall_failure, stall_run
from .timing import Handle

log = logging.getLogger("everact.runtime")

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor

#: When a run that crashes is quarantined.
LIMIT = RestartLimit()
#: What differs in a message from one try to the next although it is the same: the place of an object in memory.
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


class Restarts:
    """The crashes of a run since its last progress.

    Attributes:
        is_waiting: It is to be restarted after a pause; what comes in meanwhile is received, and not delivered.
        timer: For the end of the pause.
    """

    __slots__ = ("_strategy", "is_waiting", "timer")

    def __init__(self) -> None:
        self._strategy = OneForOne(LIMIT)
        self.is_waiting = False
        self.timer: Handle | None = None

    def crashed(self, actor: WorkflowActor, failure: Failure, position: int) -> float | None:
        """Seconds until the run is tried again; None when it is to be quarantined."""
        cause = (position, failure.type, _ADDRESS.sub("", failure.message))
        return self._strategy.crashed(cause, actor.shard.clock.steady(), actor.shard.dispatcher.jitter)


def crash_over(actor: WorkflowActor, crash: WorkflowCrashedError, event: Any, reply: Reply) -> None:
    """Keep the input of a turn that crashed; restart the run after a pause, or stop it and tell its waiters.

    Args:
        actor: The run.
        crash: What happened. Code that does not fit its history is not tried again: the run is held.
        event: What was delivered; None when it was received before.
        reply: Who waits for it.
    """
    was_loaded = actor.instance is not None
    actor.drop_instance()
    failure = stall_failure(crash.error, actor)
    position = next(iter(actor.state.unread), 0) if event is None else actor.state.last_event + 1
    pause = _pause(actor, crash, failure, position)
    if pause is None and type(event) is ev.UpdateReceived and not was_loaded:
        # It was not accepted: the code could not be loaded.
        stall_run(actor, crash.kind, failure, (event, reply))
        return
    if event is not None:
        write(actor, ev.Received((event,)), actor.shard.now(), reply)
    if pause is None:
        stall_run(actor, crash.kind, failure)
    else:
        restart_later(actor, failure, pause)


def crash_of_query(actor: WorkflowActor, crash: WorkflowCrashedError, query: Query, reply: Reply) -> None:
    """The code could not be loaded for a query: stop the run, or restart it after a pause and ask again."""
    actor.drop_instance()
    failure = stall_failure(crash.error, actor)
    pause = _pause(actor, crash, failure, actor.state.last_event)
    if pause is None:
        stall_run(actor, crash.kind, failure, (query, reply))
    else:
        actor.early.append((query, reply))
        restart_later(actor, failure, pause)


def _pause(
    actor: WorkflowActor, crash: WorkflowCrashedError, failure: Failure, position: int
) -> float | None:
    if crash.kind != "quarantined":
        return None
    if actor.restarts is None:
        actor.restarts = Restarts()
    return actor.restarts.crashed(actor, failure, position)


def restart_later(actor: WorkflowActor, failure: Failure, pause: float) -> None:
    """Deliver what the run has received, from the journal, after a pause of so many seconds."""
    restarts = actor.restarts
    assert restarts is not None
    restarts.is_waiting = True
    message = "workflow %r (run %s) crashed and is restarted from the journal in %.2g s: %s"
    actor.batch.after(log.warning, message, actor.workflow_id, actor.run_id, pause, full_text(failure))
    if restarts.timer is not None:
        restarts.timer.cancel()
    restarts.timer = actor.shard.timing.later.call_later(pause, _restart, actor, restarts)


def hold_until_begin(actor: WorkflowActor) -> None:
    """A run that is to begin later waits as one that is to be restarted; ``run_deadlines`` ends that."""
    actor.restarts = Restarts()
    actor.restarts.is_waiting = True


def _restart(actor: WorkflowActor, restarts: Restarts) -> None:
    shard = actor.shard
    if actor.restarts is not restarts or shard.actors.get(actor.key) is not actor or shard.error is not None:
        return  # released, rebuilt or ended meanwhile
    fault_point("run.restart.before", actor)
    restarts.is_waiting = False
    if not actor.queued:
        shard.enqueue(actor)
