"""References to workflow actors: send messages, wait for results, look inside."""

# The implementations below their overloads take `*args: *Ts`, or mypy refuses the overloads.
# pyright: reportInvalidTypeVarUse=false

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from ..journal.events import RunPaused, RunReleased, RunResumed
from .addresses import Address
from .descriptions import History, WorkflowDescription
from .options import QUERY_TIMEOUT
from .typing import R, Ts
from .updates import UpdateHandle, WaitForStage

if TYPE_CHECKING:
    from .messenger import Messenger

W = TypeVar("W")
R_co = TypeVar("R_co", covariant=True)
R2 = TypeVar("R2")

OnStall = Literal["raise", "wait"]


class ActorRef(Generic[W]):
    """Where a workflow actor is, and how to talk to it.

    Messages, queries and all that is done to a run go to the run that its chain has come to; ``describe`` and
    ``fetch_history`` show the run that it names.

    Attributes:
        workflow_id: Its id.
        run_id: The run it is bound to; None is whichever run is the newest.
    """

    def __init__(
        self, messenger: Messenger, workflow_id: str, run_id: str | None, definition: Any = None
    ) -> None:
        self._messenger = messenger
        self._definition = definition
        self.workflow_id = workflow_id
        self.run_id = run_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"

    @property
    def address(self) -> str:
        """``everact://<cluster>/<workflow id>[/<run id>]``; ``runtime.ref`` takes it."""
        return str(Address(self._messenger.cluster, self.workflow_id, self.run_id))

    @overload
    async def tell(
        self,
        handler: Callable[[W, *Ts], Awaitable[None] | None],
        /,
        *args: *Ts,
        request_id: str | None = None,
    ) -> None: ...
    @overload
    async def tell(self, handler: str, /, *args: Any, request_id: str | None = None) -> None: ...
    async def tell(self, handler: Any, /, *args: *Ts, request_id: str | None = None) -> None:
        """Send a signal; returns once it is durable.

        Args:
            handler: The signal method, or its name.
            *args: Its arguments.
            request_id: A repeat with the same one is applied once.

        Raises:
            UnknownHandlerError: The workflow has no such signal.
            TypeError: Wrong number of arguments.
            PayloadEncodeError: An argument does not fit its hint, or has no stored form.
            PayloadTooLargeError: An argument is over the limit; nothing was written.
            PayloadCodecError: A payload codec could not encode an argument, and nothing was written; or could not
                decode the answer.
            WorkflowNotFoundError: There is no such workflow.
            WorkflowClosedError: The run has ended.
            RequestIdReusedError: The request id belongs to another message.
            CommitUnknownError: Whether it is durable is unknown; repeat with the same request id.
        """
        await self._messenger.signal(self, handler, args, request_id)

    @overload
    async def ask(
        self, handler: Callable[[W, *Ts], Awaitable[R2]], /, *args: *Ts, request_id: str | None = None
    ) -> R2: ...
    @overload
    async def ask(
        self, handler: Callable[[W, *Ts], R2], /, *args: *Ts, request_id: str | None = None
    ) -> R2: ...
    @overload
    async def ask(self, handler: str, /, *args: Any, request_id: str | None = None) -> Any: ...
    async def ask(self, handler: Any, /, *args: *Ts, request_id: str | None = None) -> Any:
        """Send an update and wait for its answer: it is journalled and may change the run.

        Args:
            handler: The update method, or its name.
            *args: Its arguments.
            request_id: A repeat with the same one is applied once, and gets the same answer.

        Raises:
            UpdateRejectedError: The validator refused it; nothing was written.
            UpdateFailedError: The handler raised; ``__cause__`` says what.
            UpdateCutError: The run ended before the handler was done.
            Exception: And as ``tell``.
        """
        return await self._messenger.update(self, handler, args, request_id)

    @overload
    async def query(
        self,
        handler: Callable[[W, *Ts], R],
        /,
        *args: *Ts,
        timeout: timedelta | float = QUERY_TIMEOUT,  # noqa: ASYNC109
    ) -> R: ...
    @overload
    async def query(
        self,
        handler: str,
        /,
        *args: Any,
        timeout: timedelta | float = QUERY_TIMEOUT,  # noqa: ASYNC109
    ) -> Any: ...
    async def query(
        self,
        handler: Any,
        /,
        *args: *Ts,
        timeout: timedelta | float = QUERY_TIMEOUT,  # noqa: ASYNC109
    ) -> Any:
        """Read the run's state through a query handler; never journalled, works on closed runs.

        Args:
            handler: The query method, or its name.
            *args: Its arguments.
            timeout: Limit, a timedelta or seconds; default 10 seconds.

        Raises:
            QueryFailedError: The handler raised, or tried to change the run.
            TimeoutError: There was no answer in time.
            Exception: And as ``tell``.
        """
        return await self._messenger.query(self, handler, args, timeout)


class WorkflowHandle(ActorRef[W], Generic[W, R_co]):
    """An ``ActorRef`` with everything else one can do to a workflow."""

    # Written out, not `signal = ActorRef.tell`: type checkers lose the class's W there.
    @overload
    async def signal(
        self,
        handler: Callable[[W, *Ts], Awaitable[None] | None],
        /,
        *args: *Ts,
        request_id: str | None = None,
    ) -> None: ...
    @overload
    async def signal(self, handler: str, /, *args: Any, request_id: str | None = None) -> None: ...
    async def signal(self, handler: Any, /, *args: *Ts, request_id: str | None = None) -> None:
        """Send a signal; the same as ``tell``."""
        await self._messenger.signal(self, handler, args, request_id)

    @overload
    async def execute_update(
        self, handler: Callable[[W, *Ts], Awaitable[R2]], /, *args: *Ts, request_id: str | None = None
    ) -> R2: ...
    @overload
    async def execute_update(
        self, handler: Callable[[W, *Ts], R2], /, *args: *Ts, request_id: str | None = None
    ) -> R2: ...
    @overload
    async def execute_update(self, handler: str, /, *args: Any, request_id: str | None = None) -> Any: ...
    async def execute_update(self, handler: Any, /, *args: *Ts, request_id: str | None = None) -> Any:
        """Send an update and wait for its answer; the same as ``ask``."""
        return await self._messenger.update(self, handler, args, request_id)

    @overload
    async def start_update(
        self,
        handler: Callable[[W, *Ts], Awaitable[R2]],
        /,
        *args: *Ts,
        wait_for_stage: WaitForStage = "accepted",
        request_id: str | None = None,
    ) -> UpdateHandle[R2]: ...
    @overload
    async def start_update(
        self,
        handler: Callable[[W, *Ts], R2],
        /,
        *args: *Ts,
        wait_for_stage: WaitForStage = "accepted",
        request_id: str | None = None,
    ) -> UpdateHandle[R2]: ...
    @overload
    async def start_update(
        self,
        handler: str,
        /,
        *args: Any,
        wait_for_stage: WaitForStage = "accepted",
        request_id: str | None = None,
    ) -> UpdateHandle[Any]: ...
    async def start_update(
        self,
        handler: Any,
        /,
        *args: *Ts,
        wait_for_stage: WaitForStage = "accepted",
        request_id: str | None = None,
    ) -> Any:
        """Send an update without waiting for its handler; ask the handle that this returns for the answer.

        Args:
            handler: The update method, or its name.
            *args: Its arguments.
            wait_for_stage: ``accepted``: return once the validator has passed it and it is durable; by a paused run
                that is after it was resumed. ``completed``: once the handler is done.
            request_id: A repeat with the same one is applied once, and gets the same answer.

        Raises:
            Exception: As ``ask``; what the handler raises comes from ``UpdateHandle.result``.
        """
        return await self._messenger.start_update(self, handler, args, request_id, wait_for_stage)

    async def result(
        self,
        *,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109
        on_stall: OnStall = "raise",
        follow_runs: bool = True,
    ) -> R_co:
        """Wait for the result of the run, or of the last run of its chain.

        Args:
            timeout: A timedelta or seconds; None has no limit.
            on_stall: What to do when the run is quarantined or held: ``raise`` at once, or ``wait`` on.
            follow_runs: When the run has continued as new, is tried again, or has a schedule, wait for the one that
                follows; False takes this run's own end.

        Raises:
            WorkflowFailedError: It failed; ``__cause__`` is what left its code, or a ``WorkflowTimeoutError`` when it
                took too long.
            WorkflowContinuedAsNewError: With ``follow_runs=False``: it goes on as another run.
            WorkflowCancelledError: It was cancelled.
            WorkflowTerminatedError: It was terminated.
            WorkflowQuarantinedError: Its code raised what is no failure.
            WorkflowHeldError: Its code does not fit its history.
            ResultTimeoutError: The time has passed; its text says what the run waits for, or why it stands still.
            RuntimeClosedError: The runtime was left.
        """
        result: R_co = await self._messenger.result(self, timeout, on_stall, follow_runs=follow_runs)
        return result

    async def describe(self) -> WorkflowDescription:
        """Everything known of the run without running its code."""
        return await self._messenger.describe(self)

    @overload
    async def published(self, key: str, kind: type[R], /) -> R | None: ...
    @overload
    async def published(self, key: str, /) -> Any: ...
    async def published(self, key: str, kind: Any = Any, /) -> Any:
        """The value that the run has published under a key, without running its code; None when there is none.

        Args:
            key: As ``workflow.publish`` has it.
            kind: The type of the value; without one it is read as it says what it is.

        Raises:
            PayloadDecodeError: It is no such value.
            PayloadCodecError: A payload codec cannot decode it.
            WorkflowNotFoundError: There is no such workflow.
        """
        return await self._messenger.published(self, key, kind)

    async def fetch_history(self) -> History:
        """All durable events of the run."""
        return await self._messenger.history(self)

    async def cancel(self, reason: str = "") -> None:
        """Ask the run to cancel itself; returns once the request is durable. A second time does nothing.

        Raises:
            WorkflowClosedError: The run has ended.
        """
        await self._messenger.cancel(self, reason)

    async def terminate(self, reason: str = "") -> None:
        """End the run at once, without running its code again.

        Raises:
            WorkflowClosedError: The run has ended.
        """
        await self._messenger.terminate(self, reason)

    async def pause(self, reason: str = "", *, request_id: str | None = None) -> None:
        """Let the run handle nothing more until ``resume``; returns once that is durable. A second time does nothing.

        What comes in is received and kept: messages, results of activities, timers, which run on. Activities that are
        scheduled go on, with their retries. Updates wait; queries answer from what the run has handled.

        Args:
            reason: For people; ``describe`` shows it.
            request_id: A repeat with the same one is applied once, so that a late one does not pause it again.

        Raises:
            WorkflowClosedError: The run has ended.
            RequestIdReusedError: The request id belongs to another message.
            CommitUnknownError: Whether it is durable is unknown; repeat it.
        """
        await self._messenger.control(self, RunPaused, reason, request_id)

    async def resume(self, reason: str = "", *, request_id: str | None = None) -> None:
        """Let a paused run go on, with all that it has received; a run that is not paused goes on anyway.

        Raises:
            WorkflowStatusError: The run is held or quarantined: ``release`` lets it go on.
            Exception: And as ``pause``.
        """
        await self._messenger.control(self, RunResumed, reason, request_id)

    async def release(self, reason: str = "", *, request_id: str | None = None) -> None:
        """Try a quarantined or held run again, with all that it has received; a run that goes on is left alone.

        Returns once that is durable. Whether the run then goes on, ``describe`` or ``result`` says.

        Raises:
            WorkflowStatusError: The run is paused: ``resume`` lets it go on.
            WorkflowNotRegisteredError: The runtime does not have its type.
            Exception: And as ``pause``.
        """
        await self._messenger.control(self, RunReleased, reason, request_id)

    async def redrive(self, number: int) -> None:
        """Deliver a signal again whose handler has failed; returns once that is durable. A second time does nothing.

        It is a new message with the name and the arguments of the old one, and no dead letter any more; if it fails
        again, that is a dead letter under its own number.

        Args:
            number: Of the event, as ``describe().dead_letters`` has it.

        Raises:
            NoDeadLetterError: The run has no such dead letter.
            WorkflowClosedError: The run has ended.
            WorkflowBacklogFullError: Too many messages wait already.
            JournalFullError: There is no room for new work; nothing was written.
            CommitUnknownError: Whether it is durable is unknown; repeat it.
        """
        await self._messenger.redrive(self, number)
