"""Calls that are refused because of what the journal holds, or does not hold; nothing was written.

``args`` of each error are its constructor's arguments, so all of them can be pickled.
"""

from __future__ import annotations

from ..journal.errors import EveractError
from ..journal.run_status import CLOSED


class WorkflowAlreadyStartedError(EveractError):
    """The id is taken and the start options refuse it; nothing was written.

    Attributes:
        workflow_id: The id.
        run_id: The run that has it.
        status: Of that run.
        started_as: ``child`` when a run was to start it as its child, which may be attached to no other; else empty.
    """

    def __init__(self, workflow_id: str, run_id: str, status: str, started_as: str = "") -> None:
        super().__init__(workflow_id, run_id, status, *([started_as] if started_as else []))
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.status = status
        self.started_as = started_as

    def __str__(self) -> str:
        option, words = self.choices()
        return f"{self.problem(option)} Other choices: {option}={', '.join(map(repr, words))}."

    def problem(self, option: str) -> str:
        """What happened, without what to do; ``option`` as its caller knows it."""
        return (
            f"workflow {self.workflow_id!r} already exists (run {self.run_id}, {self.status}) and {option} refuses "
            f"it; nothing was started."
        )

    def choices(self) -> tuple[str, list[str]]:
        """The start option that refused it, and its words that would not."""
        if self.status in CLOSED:
            option, words = "if_closed", ["allow", "attach", "allow_if_failed"]
        else:
            option, words = "if_running", ["attach", "replace"]
        if self.started_as == "child":
            words.remove("attach")
        return option, words


class WorkflowNotFoundError(EveractError):
    """The journal has no run of this id."""

    def __init__(self, workflow_id: str, run_id: str | None = None) -> None:
        super().__init__(workflow_id, run_id)
        self.workflow_id = workflow_id
        self.run_id = run_id

    def __str__(self) -> str:
        run = f" with run id {self.run_id!r}" if self.run_id else ""
        return f"no workflow {self.workflow_id!r}{run} in this journal: start it first, or check the id"


class WorkflowPurgedError(WorkflowNotFoundError):
    """A start or an update was sent again, but the run that got it has ended and was purged since; nothing was written.

    To start the workflow anew, use another request id.
    """

    def __init__(self, workflow_id: str, request_id: str) -> None:
        super().__init__(workflow_id)
        self.args = (workflow_id, request_id)
        self.request_id = request_id

    def __str__(self) -> str:
        return (
            f"request {self.request_id!r} was handled by a run of workflow {self.workflow_id!r} that has ended and was "
            f"purged: use another request id to ask again"
        )


class WorkflowTypeError(EveractError):
    """The id belongs to a workflow of another type than the call asked for; nothing was written."""

    def __init__(self, workflow_id: str, actual: str, wanted: str) -> None:
        super().__init__(workflow_id, actual, wanted)
        self.workflow_id = workflow_id
        self.actual = actual
        self.wanted = wanted

    def __str__(self) -> str:
        return f"workflow {self.workflow_id!r} is a {self.actual}, not a {self.wanted}: check the id and the class"


class WorkflowClosedError(EveractError):
    """The message came after the run had ended; it was not accepted."""

    def __init__(self, workflow_id: str, run_id: str, status: str) -> None:
        super().__init__(workflow_id, run_id, status)
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.status = status

    def __str__(self) -> str:
        return (
            f"workflow {self.workflow_id!r} (run {self.run_id}) is {self.status}: it takes no more messages"
        )


class ActivityNotPendingError(EveractError):
    """An attempt was to be completed from outside that nobody waits for any more; nothing was written.

    It has ended, was given up after a limit, or was cancelled; or the very same answer was taken before.
    """

    def __init__(self, workflow_id: str, run_id: str, command: int, attempt: int) -> None:
        super().__init__(workflow_id, run_id, command, attempt)
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.command = command
        self.attempt = attempt

    def __str__(self) -> str:
        which = f"attempt {self.attempt} of " if self.attempt else ""
        return (
            f"workflow {self.workflow_id!r} (run {self.run_id}) does not wait for {which}activity command "
            f"{self.command} any more: it has ended, was given up after a limit, or was cancelled"
        )


class WorkflowStatusError(EveractError):
    """``resume`` is for paused runs and ``release`` for held and quarantined ones; nothing was written.

    Attributes:
        status: Of the run.
        verb: What was asked for.
        other: What lets the run go on.
    """

    def __init__(self, workflow_id: str, run_id: str, status: str, verb: str, other: str) -> None:
        super().__init__(workflow_id, run_id, status, verb, other)
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.status = status
        self.verb = verb
        self.other = other

    def __str__(self) -> str:
        return (
            f"workflow {self.workflow_id!r} (run {self.run_id}) is {self.status}, which {self.verb}() does not end: "
            f"call {self.other}()"
        )


class WorkflowBacklogFullError(EveractError):
    """The run takes no more messages for now, since too many wait already; nothing was written.

    Attributes:
        status: Of the run.
        limit: How many may wait.
    """

    def __init__(self, workflow_id: str, run_id: str, status: str, limit: int) -> None:
        super().__init__(workflow_id, run_id, status, limit)
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.status = status
        self.limit = limit

    def __str__(self) -> str:
        why = "for a handler" if self.status == "running" else "until the run goes on"
        return (
            f"workflow {self.workflow_id!r} (run {self.run_id}, {self.status}) takes no more messages for now: "
            f"{self.limit:,} wait {why}"
        )


class NoDeadLetterError(EveractError):
    """The run has no dead letter of this number; nothing was written."""

    def __init__(self, workflow_id: str, number: int) -> None:
        super().__init__(workflow_id, number)
        self.workflow_id = workflow_id
        self.number = number

    def __str__(self) -> str:
        return (
            f"event {self.number} of workflow {self.workflow_id!r} is no dead letter: redrive() takes the number of "
            f"one of describe().dead_letters, a signal whose handler has failed"
        )


class RequestIdReusedError(EveractError):
    """The request id was used before for another message; nothing was written."""

    def __init__(self, request_id: str, workflow_id: str) -> None:
        super().__init__(request_id, workflow_id)
        self.request_id = request_id
        self.workflow_id = workflow_id

    def __str__(self) -> str:
        return (
            f"request id {self.request_id!r} was already used on workflow {self.workflow_id!r} with another name "
            f"or other arguments: a repeat must be equal, a new message needs a new id"
        )
