"""The calls of a runtime or client behind interceptors: a messenger in front of the one that sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from ..journal import events as ev
from .client_interceptors import (
    CancelWorkflowInput,
    ClientOutboundInterceptor,
    CountWorkflowsInput,
    DescribeWorkflowInput,
    FetchWorkflowHistoryInput,
    GetPublishedValueInput,
    GetWorkflowResultInput,
    ListWorkflowsInput,
    PauseWorkflowInput,
    QueryWorkflowInput,
    RedriveDeadLetterInput,
    ReleaseWorkflowInput,
    ResumeWorkflowInput,
    SignalWorkflowInput,
    StartWorkflowInput,
    StartWorkflowUpdateInput,
    TerminateWorkflowInput,
)
from .headers import header_records
from .interceptor_checks import next_link
from .interceptors import Interceptor

if TYPE_CHECKING:
    from ..journal.events import Header
    from .descriptions import History, WorkflowDescription
    from .handles import ActorRef, OnStall, WorkflowHandle
    from .listing import WorkflowListing
    from .updates import UpdateHandle, WaitForStage


class Sender(Protocol):
    """What can start and list runs without interceptors."""

    async def _start_workflow(
        self, workflow: Any, args: Sequence[Any], options: dict[str, Any], headers: tuple[Header, ...] = ()
    ) -> WorkflowHandle[Any, Any]: ...

    def _list_workflows(self, asked: ListWorkflowsInput) -> WorkflowListing: ...

    async def _count_workflows(self, workflow_type: str | None, status: str | None) -> int: ...


class InterceptingMessenger:
    """Lets interceptors see what handles do; what they have no method for goes straight to the messenger behind.

    Attributes:
        chain: The outermost interceptor.
    """

    def __init__(self, messenger: Any, sender: Sender, interceptors: Sequence[Interceptor]) -> None:
        self._messenger = messenger
        self.chain: ClientOutboundInterceptor = _Root(messenger, sender)
        for interceptor in reversed(interceptors):
            self.chain = next_link(interceptor, "intercept_client", self.chain, ClientOutboundInterceptor)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._messenger, name)

    async def signal(
        self, ref: ActorRef[Any], handler: Any, args: Sequence[Any], request_id: str | None
    ) -> None:
        """Send a signal."""
        await self.chain.signal_workflow(SignalWorkflowInput(ref, handler, list(args), request_id, {}))

    async def update(
        self, ref: ActorRef[Any], handler: Any, args: Sequence[Any], request_id: str | None
    ) -> Any:
        """Send an update and wait for its answer."""
        return await self.chain.start_workflow_update(
            StartWorkflowUpdateInput(ref, handler, list(args), request_id, None, {})
        )

    async def start_update(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        request_id: str | None,
        stage: WaitForStage,
    ) -> UpdateHandle[Any]:
        """Send an update."""
        handle: UpdateHandle[Any] = await self.chain.start_workflow_update(
            StartWorkflowUpdateInput(ref, handler, list(args), request_id, stage, {})
        )
        return handle

    async def query(
        self, ref: ActorRef[Any], handler: Any, args: Sequence[Any], limit: timedelta | float
    ) -> Any:
        """Ask a query."""
        return await self.chain.query_workflow(QueryWorkflowInput(ref, handler, list(args), limit, {}))

    async def cancel(self, ref: ActorRef[Any], reason: str) -> None:
        """Ask the run to cancel itself."""
        await self.chain.cancel_workflow(CancelWorkflowInput(ref, reason))

    async def terminate(self, ref: ActorRef[Any], reason: str) -> None:
        """End the run at once."""
        await self.chain.terminate_workflow(TerminateWorkflowInput(ref, reason))

    async def control(
        self, ref: ActorRef[Any], kind: type[ev.Event], reason: str, request_id: str | None
    ) -> None:
        """Pause, resume or release the run."""
        made, method = _CONTROLS[kind]
        await getattr(self.chain, method)(made(ref, reason, request_id))

    async def redrive(self, ref: ActorRef[Any], number: int) -> None:
        """Deliver a dead letter again."""
        await self.chain.redrive_dead_letter(RedriveDeadLetterInput(ref, number))

    async def result(
        self,
        ref: ActorRef[Any],
        limit: timedelta | float | None,
        on_stall: OnStall,
        *,
        follow_runs: bool = True,
    ) -> Any:
        """Wait for the outcome of the run, or of the chain that it belongs to."""
        asked = GetWorkflowResultInput(ref, limit, on_stall, follow_runs)
        return await self.chain.get_workflow_result(asked)

    async def published(self, ref: ActorRef[Any], key: str, hint: Any) -> Any:
        """A value that the run has published."""
        return await self.chain.get_published_value(GetPublishedValueInput(ref, key, hint))

    async def history(self, ref: ActorRef[Any]) -> History:
        """Read the run's durable events."""
        return await self.chain.fetch_workflow_history(FetchWorkflowHistoryInput(ref))

    async def describe(self, ref: ActorRef[Any]) -> WorkflowDescription:
        """Describe the run."""
        return await self.chain.describe_workflow(DescribeWorkflowInput(ref))


#: What each event of a control is called in a chain.
_CONTROLS: dict[type[ev.Event], tuple[Callable[..., Any], str]] = {
    ev.RunPaused: (PauseWorkflowInput, "pause_workflow"),
    ev.RunResumed: (ResumeWorkflowInput, "resume_workflow"),
    ev.RunReleased: (ReleaseWorkflowInput, "release_workflow"),
}


class _Root(ClientOutboundInterceptor):
    """Sends."""

    def __init__(self, messenger: Any, sender: Sender) -> None:
        self._messenger = messenger
        self._sender = sender

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:  # noqa: A002
        name, given = input._given
        workflow = given if input.workflow == name else input.workflow
        return await self._sender._start_workflow(
            workflow, input.args, input.options, header_records(input.headers)
        )

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002
        headers = header_records(input.headers)
        await self._messenger.signal(input.handle, input.handler, input.args, input.request_id, headers)

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002
        headers = header_records(input.headers)
        return await self._messenger.query(input.handle, input.handler, input.args, input.timeout, headers)

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> Any:  # noqa: A002
        headers = header_records(input.headers)
        given = (input.handle, input.handler, input.args, input.request_id)
        if input.wait_for_stage is None:
            return await self._messenger.update(*given, headers)
        return await self._messenger.start_update(*given, input.wait_for_stage, headers=headers)

    async def cancel_workflow(self, input: CancelWorkflowInput) -> None:  # noqa: A002
        await self._messenger.cancel(input.handle, input.reason)

    async def terminate_workflow(self, input: TerminateWorkflowInput) -> None:  # noqa: A002
        await self._messenger.terminate(input.handle, input.reason)

    async def pause_workflow(self, input: PauseWorkflowInput) -> None:  # noqa: A002
        await self._messenger.control(input.handle, ev.RunPaused, input.reason, input.request_id)

    async def resume_workflow(self, input: ResumeWorkflowInput) -> None:  # noqa: A002
        await self._messenger.control(input.handle, ev.RunResumed, input.reason, input.request_id)

    async def release_workflow(self, input: ReleaseWorkflowInput) -> None:  # noqa: A002
        await self._messenger.control(input.handle, ev.RunReleased, input.reason, input.request_id)

    async def redrive_dead_letter(self, input: RedriveDeadLetterInput) -> None:  # noqa: A002
        await self._messenger.redrive(input.handle, input.number)

    async def get_workflow_result(self, input: GetWorkflowResultInput) -> Any:  # noqa: A002
        return await self._messenger.result(
            input.handle, input.timeout, input.on_stall, follow_runs=input.follow_runs
        )

    async def get_published_value(self, input: GetPublishedValueInput) -> Any:  # noqa: A002
        return await self._messenger.published(input.handle, input.key, input.kind)

    async def fetch_workflow_history(self, input: FetchWorkflowHistoryInput) -> History:  # noqa: A002
        found: History = await self._messenger.history(input.handle)
        return found

    async def describe_workflow(self, input: DescribeWorkflowInput) -> WorkflowDescription:  # noqa: A002
        found: WorkflowDescription = await self._messenger.describe(input.handle)
        return found

    def list_workflows(self, input: ListWorkflowsInput) -> WorkflowListing:  # noqa: A002
        return self._sender._list_workflows(input)

    async def count_workflows(self, input: CountWorkflowsInput) -> int:  # noqa: A002
        return await self._sender._count_workflows(input.workflow_type, input.status)
