"""Ends of a run that another one may follow, and that its code has not simply returned or raised."""

from __future__ import annotations

from .event_base import Event, Header
from .payloads import Payload
from .run_chain import NextRun, StartRecord


class WorkflowContinuedAsNew(Event, tag="wn", frozen=True):
    """The run goes on as another one, with a history of its own. Terminal.

    Attributes:
        workflow_type: Of the new run.
        args: Likewise.
        options: Likewise.
        next: The new run.
        has_memo: It has the memo below; otherwise that of this run.
        memo_names: Names of its notes.
        memo: Their values.
        carries_cancel: A request to cancel that this run has not seen goes with it.
        headers: Of the new run; None for those of this one.
    """

    workflow_type: str
    args: tuple[Payload, ...] = ()
    options: StartRecord | None = None
    next: NextRun | None = None
    has_memo: bool = False
    memo_names: tuple[str, ...] = ()
    memo: tuple[Payload, ...] = ()
    carries_cancel: bool = False
    headers: tuple[Header, ...] | None = None


class WorkflowTimedOut(Event, tag="wz", frozen=True):
    """The run, or its whole chain, has taken too long; its code did not run again. Terminal.

    ``option`` is the limit that has passed, ``run_timeout`` or ``execution_timeout``; ``limit`` is its length.
    """

    option: str
    limit: int
    next: NextRun | None = None
