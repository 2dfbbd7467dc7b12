"""Interceptors: code of the program's own around what workflows, activities and clients do.

Each kind is a chain. An interceptor gets the next one at its construction and decides what to do before, after and
instead of ``self.next.method(input)``; what it does not override passes through. Inputs may be changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from ..journal.events import Header
from ..journal.payloads import Payload
from .options import check_text

if TYPE_CHECKING:
    from .activity import ActivityInfo
    from .definitions import HandlerDefinition
    from .descriptions import WorkflowDescription
    from .event_loop import TimerHandle
    from .handles import ActorRef, WorkflowHandle
    from .listing import WorkflowListing
    from .typing import ActivityHandle
    from .updates import WaitForStage
    from .workflow_info import WorkflowInfo

#: What travels beside the arguments of a call, by name; ``payload_converter().encode(value)`` makes a payload.
Headers = Mapping[str, Payload]


def header_records(headers: Headers) -> tuple[Header, ...]:
    """Headers as they are stored.

    Raises:
        TypeError: They are no mapping of names and payloads.
        ValueError: A name is empty, or not valid Unicode.
    """
    if not headers:
        return ()
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must be a dict of names and payloads, not {headers!r}")
    for name, value in headers.items():
        check_text("the name of a header", name)
        if type(value) is not Payload:
            raise TypeError(
                f"header {name!r} must be a Payload, not {value!r}: make one with payload_converter().encode(value)"
            )
    return tuple([Header(name, value) for name, value in headers.items()])


def headers_of(records: Iterable[Header]) -> dict[str, Payload]:
    """Stored headers by name."""
    return {one.name: one.value for one in records}


# --- in workflows -----------------------------------------------------------------------------------------------


@dataclass
class ExecuteWorkflowInput:
    """What ``execute_workflow`` gets.

    Attributes:
        type: Name of the workflow type.
        run_fn: The bound run method.
        args: Its arguments.
        headers: Those that the start came with.
    """

    type: str
    run_fn: Callable[..., Awaitable[Any]]
    args: Sequence[Any]
    headers: Headers


@dataclass
class HandleSignalInput:
    """What ``handle_signal`` gets: the signal's name, the handler's arguments, the message's headers."""

    signal: str
    args: Sequence[Any]
    headers: Headers
    _handler: HandlerDefinition = field(repr=False)


@dataclass
class HandleQueryInput:
    """What ``handle_query`` gets: the query's name, the handler's arguments, the message's headers."""

    query: str
    args: Sequence[Any]
    headers: Headers
    _handler: HandlerDefinition = field(repr=False)


@dataclass
class HandleUpdateInput:
    """What the two methods for updates get: the update's name, the handler's arguments, the message's headers."""

    update: str
    args: Sequence[Any]
    headers: Headers
    _handler: HandlerDefinition = field(repr=False)


class WorkflowInboundInterceptor:
    """Around what comes into one run. It is workflow code: it runs again in each replay, and its errors are the run's.

    An object is made for each run, and again whenever its code is loaded.
    """

    def __init__(self, next: WorkflowInboundInterceptor) -> None:  # noqa: A002  (Temporal's word)
        self.next = next

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        """Called first, before the object of the workflow is made: to put interceptors around ``outbound``."""
        self.next.init(outbound)

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002
        """The run method."""
        return await self.next.execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002
        """A signal's handler, be it plain or async."""
        await self.next.handle_signal(input)

    def handle_query(self, input: HandleQueryInput) -> Any:  # noqa: A002
        """A query's handler; plain, as a query awaits nothing."""
        return self.next.handle_query(input)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:  # noqa: A002
        """The validator of an update, be there one or not; to raise refuses the update."""
        self.next.handle_update_validator(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:  # noqa: A002
        """An update's handler, be it plain or async."""
        return await self.next.handle_update_handler(input)


@dataclass
class StartActivityInput:
    """What ``start_activity`` gets.

    Attributes:
        activity: Its name.
        args: Positional arguments; those of a compensation that is repeated are each a ``RawValue``.
        kwargs: Those given by name.
        options: As of ``execute_activity``; those of the call only.
        headers: What travels with it.
    """

    activity: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    options: dict[str, Any]
    headers: Headers
    _call: tuple[Any, ...] = field(repr=False)


@dataclass
class StartTimerInput:
    """What ``start_timer`` gets: how long the timer is."""

    duration: timedelta
    _timer: tuple[Any, ...] = field(repr=False)


@dataclass
class ContinueAsNewInput:
    """What ``continue_as_new`` gets.

    Attributes:
        args: Arguments of the new run.
        workflow: As at the call: a class, a name, or None for the same type.
        options: ``memo``, ``run_timeout``, ``retry_policy`` and ``backoff_start_interval``, as at the call.
        headers: Those of this run, which the new run gets too.
    """

    args: Sequence[Any]
    workflow: Any
    options: dict[str, Any]
    headers: Headers


class WorkflowOutboundInterceptor:
    """Around what the code of one run asks for. It is workflow code, and called at each call of its functions."""

    def __init__(self, next: WorkflowOutboundInterceptor) -> None:  # noqa: A002
        self.next = next

    def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:  # noqa: A002
        """An activity is called, in whatever way; plain, as the order of calls is the order in the journal."""
        return self.next.start_activity(input)

    def start_timer(self, input: StartTimerInput) -> TimerHandle:  # noqa: A002
        """A timer begins: a sleep, or the limit of a wait."""
        return self.next.start_timer(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:  # noqa: A002
        """``workflow.continue_as_new()``; what the last one raises must be let through."""
        self.next.continue_as_new(input)

    def info(self) -> WorkflowInfo:
        """``workflow.info()``."""
        return self.next.info()


# --- in activities ----------------------------------------------------------------------------------------------


@dataclass
class ExecuteActivityInput:
    """What ``execute_activity`` gets.

    Attributes:
        fn: The function, bound.
        args: Positional arguments.
        kwargs: Those given by name.
        headers: Those that the workflow has sent with it.
    """

    fn: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    headers: Headers


class ActivityInboundInterceptor:
    """Around one attempt of an activity; an object is made for each. Its errors are the attempt's."""

    def __init__(self, next: ActivityInboundInterceptor) -> None:  # noqa: A002
        self.next = next

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        """Called first: to put interceptors around ``outbound``."""
        self.next.init(outbound)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        """The activity. That of a plain ``def`` one runs in its thread, and may await nothing but the next one."""
        return await self.next.execute_activity(input)


class ActivityOutboundInterceptor:
    """Around what an attempt calls."""

    def __init__(self, next: ActivityOutboundInterceptor) -> None:  # noqa: A002
        self.next = next

    def info(self) -> ActivityInfo:
        """``activity.info()``."""
        return self.next.info()

    def heartbeat(self, *details: Any) -> None:
        """``activity.heartbeat()``."""
        self.next.heartbeat(*details)


# --- in clients -------------------------------------------------------------------------------------------------


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


class ClientOutboundInterceptor:
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

    async def describe_workflow(self, input: DescribeWorkflowInput) -> WorkflowDescription:  # noqa: A002
        """``describe``."""
        return await self.next.describe_workflow(input)

    def list_workflows(self, input: ListWorkflowsInput) -> WorkflowListing:  # noqa: A002
        """``list_workflows``, which reads nothing yet: no coroutine."""
        return self.next.list_workflows(input)

    async def count_workflows(self, input: CountWorkflowsInput) -> int:  # noqa: A002
        """``count_workflows``."""
        return await self.next.count_workflows(input)


# --- what a program passes --------------------------------------------------------------------------------------


class Interceptor:
    """One thing that a program wants around its calls, in one or more of three places.

    ``Runtime(..., interceptors=[a, b])``: ``a`` is the outermost. A ``Client`` takes them too, and uses
    ``intercept_client`` alone.
    """

    def intercept_client(self, next: ClientOutboundInterceptor) -> ClientOutboundInterceptor:  # noqa: A002
        """Put something around what is sent to runs; called once for each ``Runtime`` or ``Client``."""
        return next

    def intercept_workflow(self, next: WorkflowInboundInterceptor) -> WorkflowInboundInterceptor:  # noqa: A002
        """Put something around a run's code; called in workflow code, whenever that is loaded."""
        return next

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        """Put something around an attempt; called for each one, where it runs."""
        return next


def check_interceptors(given: Iterable[Any]) -> tuple[Interceptor, ...]:
    """Refuse what is no interceptor.

    Raises:
        TypeError: One is none.
    """
    found = tuple(given)
    for one in found:
        if not isinstance(one, Interceptor):
            raise TypeError(f"interceptors must be a list of Interceptor objects, not {one!r}")
    return found
