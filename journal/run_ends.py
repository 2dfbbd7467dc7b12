"""How runs end: the status that an outcome gives, the run that follows, and what goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import events as ev
from .run_chain import NextRun, RunLinks

if TYPE_CHECKING:
    from .fold import RunState

COMPLETED = "completed"
FAILED = "failed"
CANCELLED = "cancelled"
TERMINATED = "terminated"
TIMED_OUT = "timed_out"
CONTINUED = "continued_as_new"

STATUS_OF: dict[type, str] = {
    ev.WorkflowCompleted: COMPLETED,
    ev.WorkflowFailed: FAILED,
    ev.WorkflowCancelled: CANCELLED,
    ev.WorkflowTerminated: TERMINATED,
    ev.WorkflowContinuedAsNew: CONTINUED,
    ev.WorkflowTimedOut: TIMED_OUT,
}

#: Outcomes that another run may follow.
_WITH_NEXT = (ev.WorkflowCompleted, ev.WorkflowFailed, ev.WorkflowContinuedAsNew, ev.WorkflowTimedOut)


def moves_messages(outcome: ev.Outcome) -> bool:
    """Whether what the run has received and not handled goes to the run that follows; otherwise it is left here."""
    # What closes a run at once, its code not asked, leaves it: those are dead letters (R1).
    return type(outcome) is not ev.WorkflowTimedOut and next_run(outcome) is not None


def links_of(state: RunState) -> RunLinks | None:
    """A run's place in its chain, as its events say."""
    chain, following = state.started.chain, next_run(state.outcome)
    if chain is None and following is None:
        return None
    return RunLinks(
        state.started.run_id if chain is None else chain.first_run_id,
        "" if chain is None else chain.continued_run_id,
        "" if following is None else following.run_id,
    )


def next_run(outcome: ev.Outcome | None) -> NextRun | None:
    """The run that follows one with this outcome."""
    return outcome.next if isinstance(outcome, _WITH_NEXT) else None
