"""Interceptors around the calls of a client, or of a runtime and its handles; see ``interceptors``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .headers import Headers
from .interceptor_checks import KeepsPlain

if TYPE_CHECKING:
    from .descriptions import History, WorkflowDescription
    from .handles import ActorRef, OnStall, WorkflowHandle
    from .listing import WorkflowListing
    from .updates import WaitForStage


@dataclass
class StartWorkflowInput:
    """What ``start_workflow`` gets: type, arguments and options (``StartOptions``) of a start, and its headers."""

    workflow: str
    args: Sequence[Any]
    options: dict[str, Any]
    headers: Headers
    _given: Any = field(repr=False)


@dataclass
class _ToRun:
    """A call for a run.

    Attributes:
        handle: For which run.
    """

    handle: ActorRef[Any]

    @property
    def id(self) -> str:
        """The workflow id."""
        return self.handle.workflow_id

    @property
    def run_id(self) -> str | None:
        """The run; None is the newest one."""
        return self.handle.run_id


@dataclass
class SignalWorkflowInput(_ToRun):
    """What ``signal_workflow`` gets; ``handler`` is the signal's method or name, as at the call."""

    handler: Any
    args: Sequence[Any]
    request_id: str | None
    headers: Headers


@dataclass
class QueryWorkflowInput(_ToRun):
    """What ``query_workflow`` gets; ``handler`` is the query's method or name, as at the call."""

    handler: Any
    args: Sequence[Any]
    timeout: timedelta | float
    headers: Headers


@dataclass
class StartWorkflowUpdateInput(_ToRun):
    """What ``start_workflow_update`` gets; ``handler`` is the update's method or name.

    ``wait_for_stage`` is None where the caller waits for the answer and wants nothing else.
    """

    handler: Any
    args: Sequence[Any]
    request_id: str | None
    wait_for_stage: WaitForStage | None
    headers: Headers


@dataclass
class CancelWorkflowInput(_ToRun):
    """What ``cancel_workflow`` gets."""

    reason: str


@dataclass
class TerminateWorkflowInput(_ToRun):
    """What ``terminate_workflow`` gets."""

    reason: str


@dataclass
class GetWorkflowResultInput(_ToRun):
    """What ``get_workflow_result`` gets: the options of ``result``."""

    timeout: timedelta | float | None
    on_stall: OnStall
    follow_runs: bool


@dataclass
class PauseWorkflowInput(_ToRun):
    """What ``pause_workflow`` gets."""

    reason: str
    request_id: str | None


@dataclass
class ResumeWorkflowInput(_ToRun):
    """What ``resume_workflow`` gets."""

    reason: str
    request_id: str | None


@dataclass
class ReleaseWorkflowInput(_ToRun):
    """What ``release_workflow`` gets."""

    reason: str
    request_id: str | None


@dataclass
class RedriveDeadLetterInput(_ToRun):
    """What ``redrive_dead_letter`` gets: the number of the event."""

    number: int


@dataclass
class GetPublishedValueInput(_ToRun):
    """What ``get_published_value`` gets: the key, and the type of the value as at the call."""

    key: str
    kind: Any


@dataclass
class FetchWorkflowHistoryInput(_ToRun):
    """What ``fetch_workflow_history`` gets."""


@dataclass
class DescribeWorkflowInput(_ToRun):
    """What ``describe_workflow`` gets."""


@dataclass
class ListWorkflowsInput:
    """What ``list_workflows`` gets."""

    workflow_type: str | None
    status: str | None
    limit: int | None
    page_size: int
    next_page_token: str | None


@dataclass
class CountWorkflowsInput:
    """What ``count_workflows`` gets."""

    workflow_type: str | None
    status: str | None


class ClientOutboundInterceptor(KeepsPlain):
    """Around the calls of a ``Client``, or of a ``Runtime`` and its handles. It is made once."""

    def __init__(self, next: ClientOutboundInterceptor) -> None:  # noqa: A002
        self.next = next

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:  # noqa: A002
        """``spawn``, and the first half of ``execute``."""
        return await self.next.start_workflow(input)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002
        """``signal`` and ``tell``."""
        await self.next.signal_workflow(input)

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002
        """``query``."""
        return await self.next.query_workflow(input)

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> Any:  # noqa: A002
        """``execute_update`` and ``ask``, which return the answer, and ``start_update``, which returns a handle."""
        return await self.next.start_workflow_update(input)

    async def cancel_workflow(self, input: CancelWorkflowInput) -> None:  # noqa: A002
        """``cancel``."""
        await self.next.cancel_workflow(input)

    async def terminate_workflow(self, input: TerminateWorkflowInput) -> None:  # noqa: A002
        """``terminate``."""
        await self.next.terminate_workflow(input)

    async def get_workflow_result(self, input: GetWorkflowResultInput) -> Any:  # noqa: A002
        """``result``, and the second half of ``execute``."""
        return await self.next.get_workflow_result(input)

    async def pause_workflow(self, input: PauseWorkflowInput) -> None:  # noqa: A002
        """``pause``."""
        await self.next.pause_workflow(input)

    async def resume_workflow(self, input: ResumeWorkflowInput) -> None:  # noqa: A002
        """``resume``."""
        await self.next.resume_workflow(input)

    async def release_workflow(self, input: ReleaseWorkflowInput) -> None:  # noqa: A002
        """``release``."""
        await self.next.release_workflow(input)

    async def redrive_dead_letter(self, input: RedriveDeadLetterInput) -> None:  # noqa: A002
        """``redrive``."""
        await self.next.redrive_dead_letter(input)

    async def get_published_value(self, input: GetPublishedValueInput) -> Any:  # noqa: A002
        """``published``."""
        return await self.next.get_published_value(input)

    async def fetch_workflow_history(self, input: FetchWorkflowHistoryInput) -> History:  # noqa: A002
        """``fetch_history``."""
        return await self.next.fetch_workflow_history(input)

    async def describe_workflow(self, input: DescribeWorkflowInput) -> WorkflowDescription:  # noqa: A002
        """``describe``."""
        return await self.next.describe_workflow(input)

    def list_workflows(self, input: ListWorkflowsInput) -> WorkflowListing:  # noqa: A002
        """``list_workflows``, which reads nothing yet: no coroutine."""
        return self.next.list_workflows(input)

    async def count_workflows(self, input: CountWorkflowsInput) -> int:  # noqa: A002
        """``count_workflows``."""
        return await self.next.count_workflows(input)
