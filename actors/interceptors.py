"""Interceptors: code of the program's own around what workflows, activities and clients do.

Each kind is a chain. An interceptor gets the next one at its construction and decides what to do before, after and
instead of ``self.next.method(input)``; what it does not override passes through. Inputs may be changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from .client_interceptors import ClientOutboundInterceptor
from .headers import Headers
from .interceptor_checks import KeepsPlain

if TYPE_CHECKING:
    from .activity import ActivityInfo
    from .children import ExternalWorkflowHandle
    from .definitions import HandlerDefinition
    from .event_loop import TimerHandle
    from .typing import ActivityHandle
    from .workflow_info import WorkflowInfo

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


class WorkflowInboundInterceptor(KeepsPlain):
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
class StartChildWorkflowInput:
    """What ``start_child_workflow`` gets.

    Attributes:
        workflow: Name of the child's type.
        args: Its arguments.
        options: As of ``execute_child_workflow``.
        awaits_result: The caller waits for the result (``execute_child_workflow``), not for a handle.
        headers: What travels with the start.
    """

    workflow: str
    args: Sequence[Any]
    options: dict[str, Any]
    awaits_result: bool
    headers: Headers
    _given: Any = field(repr=False)


@dataclass
class StartDetachedInput:
    """What ``start_detached`` gets; fields as of ``StartChildWorkflowInput``."""

    workflow: str
    args: Sequence[Any]
    options: dict[str, Any]
    headers: Headers
    _given: Any = field(repr=False)


@dataclass
class SignalChildWorkflowInput:
    """What ``signal_child_workflow`` gets; ``handler`` is the signal's method or name, as at the call."""

    child_workflow_id: str
    handler: Any
    args: Sequence[Any]
    headers: Headers
    _handle: Any = field(repr=False)


@dataclass
class SignalExternalWorkflowInput:
    """What ``signal_external_workflow`` gets; ``handler`` is the signal's method or name, as at the call.

    ``workflow_run_id`` is empty for whichever run is the newest.
    """

    workflow_id: str
    workflow_run_id: str
    handler: Any
    args: Sequence[Any]
    headers: Headers
    _handle: Any = field(repr=False)


@dataclass
class CancelChildWorkflowInput:
    """What ``cancel_child_workflow`` gets: the child's workflow id, and the reason, which may be empty."""

    child_workflow_id: str
    reason: str
    _handle: Any = field(repr=False)


@dataclass
class CancelExternalWorkflowInput:
    """What ``cancel_external_workflow`` gets; ids as of ``SignalExternalWorkflowInput``, the reason may be empty."""

    workflow_id: str
    workflow_run_id: str
    reason: str


@dataclass
class SideEffectInput:
    """What ``side_effect`` gets.

    Attributes:
        fn: The function; a replay does not call it.
        result_type: What it returns, as the call or its annotation says.
    """

    fn: Callable[[], Any]
    result_type: Any
    _place: str = field(repr=False)


@dataclass
class UpsertMemoInput:
    """What ``upsert_memo`` gets: the new values by name; None takes a note out."""

    memo: Mapping[str, Any]


@dataclass
class PublishInput:
    """What ``publish`` gets: the key and its new value; None takes it out."""

    key: str
    value: Any


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


class WorkflowOutboundInterceptor(KeepsPlain):
    """Around what the code of one run asks for. It is workflow code, and called at each call of its functions."""

    def __init__(self, next: WorkflowOutboundInterceptor) -> None:  # noqa: A002
        self.next = next

    def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:  # noqa: A002
        """An activity is called, in whatever way; plain, as the order of calls is the order in the journal."""
        return self.next.start_activity(input)

    def start_child_workflow(self, input: StartChildWorkflowInput) -> Awaitable[Any]:  # noqa: A002
        """A child is started; gives what the caller awaits, for its result or its handle."""
        return self.next.start_child_workflow(input)

    def start_detached(self, input: StartDetachedInput) -> Awaitable[ExternalWorkflowHandle[Any]]:  # noqa: A002
        """A run without a parent is started; gives what the caller awaits for its handle."""
        return self.next.start_detached(input)

    def signal_child_workflow(self, input: SignalChildWorkflowInput) -> Awaitable[None]:  # noqa: A002
        """A child is sent a signal; gives what the caller awaits."""
        return self.next.signal_child_workflow(input)

    def signal_external_workflow(self, input: SignalExternalWorkflowInput) -> Awaitable[None]:  # noqa: A002
        """Some run is sent a signal; gives what the caller awaits."""
        return self.next.signal_external_workflow(input)

    def cancel_child_workflow(self, input: CancelChildWorkflowInput) -> None:  # noqa: A002
        """A child is asked to cancel, by its handle; not by the cancel of the code that waits for it."""
        self.next.cancel_child_workflow(input)

    def cancel_external_workflow(self, input: CancelExternalWorkflowInput) -> Awaitable[None]:  # noqa: A002
        """Some run is asked to cancel; gives what the caller awaits."""
        return self.next.cancel_external_workflow(input)

    def side_effect(self, input: SideEffectInput) -> Any:  # noqa: A002
        """``workflow.side_effect()``; gives its result, which is that of the journal in a replay."""
        return self.next.side_effect(input)

    def upsert_memo(self, input: UpsertMemoInput) -> None:  # noqa: A002
        """``workflow.upsert_memo()``."""
        self.next.upsert_memo(input)

    def publish(self, input: PublishInput) -> None:  # noqa: A002
        """``workflow.publish()``."""
        self.next.publish(input)

    def start_timer(self, input: StartTimerInput) -> TimerHandle:  # noqa: A002
        """A timer begins: a sleep, or the limit of a wait."""
        return self.next.start_timer(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:  # noqa: A002
        """``workflow.continue_as_new()``; what the last one raises must be let through."""
        self.next.continue_as_new(input)

    def info(self) -> WorkflowInfo:
        """``workflow.info()``."""
        return self.next.info()

    def memo(self) -> dict[str, Any]:
        """``workflow.memo()``."""
        return self.next.memo()


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


class ActivityInboundInterceptor(KeepsPlain):
    """Around one attempt of an activity; an object is made for each. Its errors are the attempt's."""

    def __init__(self, next: ActivityInboundInterceptor) -> None:  # noqa: A002
        self.next = next

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        """Called first: to put interceptors around ``outbound``."""
        self.next.init(outbound)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        """The activity. That of a plain ``def`` one runs in its thread, and may await nothing but the next one."""
        return await self.next.execute_activity(input)


class ActivityOutboundInterceptor(KeepsPlain):
    """Around what an attempt calls."""

    def __init__(self, next: ActivityOutboundInterceptor) -> None:  # noqa: A002
        self.next = next

    def info(self) -> ActivityInfo:
        """``activity.info()``."""
        return self.next.info()

    def heartbeat(self, *details: Any) -> None:
        """``activity.heartbeat()``."""
        self.next.heartbeat(*details)


# --- what a program passes --------------------------------------------------------------------------------------


#: The places that an interceptor can be in.
_PLACES = ("intercept_client", "intercept_workflow", "intercept_activity")


class Interceptor(KeepsPlain):
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
        TypeError: One is none, or it is in no place.
    """
    found = tuple(given)
    for one in found:
        if not isinstance(one, Interceptor):
            raise TypeError(f"interceptors must be a list of Interceptor objects, not {one!r}")
        if all(getattr(type(one), place) is getattr(Interceptor, place) for place in _PLACES):
            raise TypeError(
                f"{type(one).__qualname__} overrides none of {', '.join(_PLACES)}, so it would do nothing"
            )
    return found
