"""What runs decide about other runs, and what they hear of them.

A decision travels as a message of the outbox (``run_messages``); what becomes of it comes back as one of the inputs.
Commands are numbered together with those of activities and timers.
"""

from __future__ import annotations

from .event_base import Event, Header, WorkflowStarted
from .failures import Failure
from .payloads import Payload

#: What the end of a run does to a child that is open: terminate it, ask it to cancel, or let it go on.
TERMINATE, REQUEST_CANCEL, LET_GO = range(3)
#: Of ``ChildCancelRequested``, beside the modes of ``ActivityCancelRequested``: the child was never sent off, since the
#: same turn has scheduled it.
NEVER_SENT = 3


# --- outputs: what a run decides ------------------------------------------------------------------------------


class ChildScheduled(Event, tag="hs", frozen=True):
    """Command: start a child.

    Attributes:
        command: Its number.
        start: What the child begins with; its parent is filled in on the way.
        close_policy: What the end of this run does to it.
        if_running: Of the start.
        if_closed: Of the start.
        awaits_start: The run waits for ``ChildStarted``; else it hears of the child when that ends.
    """

    command: int
    start: WorkflowStarted
    close_policy: int = TERMINATE
    if_running: str = "fail"
    if_closed: str = "allow"
    awaits_start: bool = False


class ChildCancelRequested(Event, tag="hx", frozen=True):
    """Command: ask that child to cancel.

    ``mode`` 0: the run no longer waits for it. 1: it waits until the child has ended. 2: the child is not asked, and
    nobody waits for it. 3: it is never started.
    """

    command: int
    mode: int
    reason: str = ""


class DetachedStart(Event, tag="ds", frozen=True):
    """Command: start a run that has no parent."""

    command: int
    start: WorkflowStarted
    if_running: str = "fail"
    if_closed: str = "allow"


class SignalSent(Event, tag="ss", frozen=True):
    """Command: send a signal to another run; without a run id to the newest of the workflow id.

    ``child`` is the command of the child that it goes to; 0 when it is no child.
    """

    command: int
    workflow_id: str
    run_id: str
    name: str
    args: tuple[Payload, ...] = ()
    child: int = 0
    headers: tuple[Header, ...] = ()


class CancelSent(Event, tag="cs", frozen=True):
    """Command: ask another run to cancel itself; without a run id the newest of the workflow id."""

    command: int
    workflow_id: str
    run_id: str
    reason: str = ""


# --- inputs: what a run hears -----------------------------------------------------------------------------------


class ChildStarted(Event, tag="hb", frozen=True):
    """The child exists."""

    command: int
    run_id: str


class ChildStartFailed(Event, tag="hn", frozen=True):
    """The child was not started.

    Attributes:
        command: Of the child.
        error: Class name of the error that says why.
        texts: That one's arguments.
    """

    command: int
    error: str
    texts: tuple[str, ...] = ()


class ChildCompleted(Event, tag="hc", frozen=True):
    """The child returned."""

    command: int
    run_id: str
    result: Payload


class ChildFailed(Event, tag="he", frozen=True):
    """The child failed."""

    command: int
    run_id: str
    failure: Failure


class ChildCancelled(Event, tag="hk", frozen=True):
    """The child was cancelled, and has ended."""

    command: int
    run_id: str
    reason: str = ""


class ChildTerminated(Event, tag="ht", frozen=True):
    """The child was closed from outside, without running its code."""

    command: int
    run_id: str
    reason: str = ""


class MessageDelivered(Event, tag="md", frozen=True):
    """A signal, a request to cancel or a detached start has arrived: the run ``run_id`` has it, durably."""

    command: int
    run_id: str


class MessageFailed(Event, tag="mf", frozen=True):
    """It was refused; as of ``ChildStartFailed``."""

    command: int
    error: str
    texts: tuple[str, ...] = ()


ChildEvent = (
    ChildScheduled
    | ChildCancelRequested
    | DetachedStart
    | SignalSent
    | CancelSent
    | ChildStarted
    | ChildStartFailed
    | ChildCompleted
    | ChildFailed
    | ChildCancelled
    | ChildTerminated
    | MessageDelivered
    | MessageFailed
)

#: How a child ended.
CHILD_ENDS = (ChildStartFailed, ChildCompleted, ChildFailed, ChildCancelled, ChildTerminated)
#: What became of a message.
MESSAGE_ENDS = (MessageDelivered, MessageFailed)
#: All that a run hears of others; user code sees it.
HEARD = (ChildStarted, *CHILD_ENDS, *MESSAGE_ENDS)
