"""What workflow code does with other runs: children, handles to any run, starts that have no parent.

Each call is numbered where it is made; its message leaves once the turn is durable, and is taken in once.
"""

# The implementations below their overloads take `*args: *Ts`, or mypy refuses the overloads.
# pyright: reportInvalidTypeVarUse=false

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, Unpack, overload

from ..journal import child_events as ce
from ..journal.events import Header
from .child_commands import ChildFuture, ChildStart, Relations, refuse_reading, relations_of
from .child_options import (
    ChildWorkflowOptions,
    DetachedOptions,
    ResolvedStart,
    resolved_child,
    resolved_start,
)
from .commands import CommandFuture, Decode, result_decoder
from .context import current_instance
from .definitions import WorkflowDefinition, workflow_definition
from .intercepted_calls import intercepted_call
from .interceptors import (
    CancelChildWorkflowInput,
    CancelExternalWorkflowInput,
    SignalChildWorkflowInput,
    SignalExternalWorkflowInput,
    StartChildWorkflowInput,
    StartDetachedInput,
)
from .memos import encode_memo
from .message_arguments import signal_arguments
from .options import check_text, check_workflow_id
from .registry import find_workflow
from .typing import R, R_co, Ts, W, WorkflowClass
from .workflow_instance import WorkflowInstance


class ChildWorkflowHandle(Generic[W, R_co]):
    """A child that has started; await it for its result.

    Attributes:
        id: Its workflow id.
        run_id: The run that was started.
        workflow_type: Its type.
    """

    def __init__(self, relations: Relations, child: ChildFuture, definition: WorkflowDefinition) -> None:
        self._relations = relations
        self._child = child
        self._definition = definition
        self.id = child.start.workflow_id
        self.run_id = child.start.run_id
        self.workflow_type = child.start.workflow_type

    def __repr__(self) -> str:
        return f"<ChildWorkflowHandle of {self.id!r} ({self.workflow_type})>"

    def __await__(self) -> Generator[Any, None, R_co]:
        """Wait for the result.

        Raises:
            ChildWorkflowError: The child has none.
        """
        return self._child.__await__()

    async def result(self) -> R_co:
        """Wait for the result; the same as to await the handle."""
        return await self

    def done(self) -> bool:
        """Whether the child has ended."""
        return self._child.done()

    @overload
    async def signal(self, handler: Callable[[W, *Ts], Awaitable[None] | None], /, *args: *Ts) -> None: ...
    @overload
    async def signal(self, handler: str, /, *args: Any) -> None: ...
    def signal(self, handler: Any, /, *args: *Ts) -> Any:
        """Send the child a signal; awaiting it returns once the child has it, durably.

        Args:
            handler: The signal method, or its name.
            *args: Its arguments.

        Raises:
            UnknownHandlerError: The workflow has no such signal.
            TypeError: Wrong number of arguments.
            PayloadEncodeError: An argument does not fit its hint, or has no stored form.
            ExternalWorkflowError: (when awaited) It was refused: the child has ended.
        """
        host = self._relations.host
        refuse_reading(host, "signal()")
        if host.loop.discarded:
            return host.loop.refuse()
        if host.outbound is None:
            return self._signal(handler, args)
        call = SignalChildWorkflowInput(self.id, handler, list(args), {}, self)
        return intercepted_call(host, host.outbound.signal_child_workflow, call, depth=2)

    def _signal(self, handler: Any, args: Sequence[Any], headers: tuple[Header, ...] = ()) -> CommandFuture:
        name, payloads = signal_arguments(self._relations.host._converter, self._definition, handler, args)
        return self._relations.send_signal(
            self.id, "", name, payloads, child=self._child.command, headers=headers
        )

    def cancel(self, reason: str = "") -> None:
        """Ask the child to cancel itself; what comes of it shows when the handle is awaited.

        Whatever its ``cancellation_type`` says: that is about the cancelling of this run's code. A second time does
        nothing, and so does the cancel of a child that has ended.

        Args:
            reason: Why; the child's cancel request has it.
        """
        check_text("the reason", reason, may_be_empty=True)
        host = self._relations.host
        if host.outbound is None or host.read_only or host.loop.discarded:
            self._cancel(reason)
        else:
            host.outbound.cancel_child_workflow(CancelChildWorkflowInput(self.id, reason, self))

    def _cancel(self, reason: str) -> None:
        self._relations.ask_to_cancel(self._child, reason)


class ExternalWorkflowHandle(Generic[W]):
    """Some run, to which this one can send messages.

    Attributes:
        id: Its workflow id.
        run_id: The run it is bound to; empty for whichever is the newest.
    """

    def __init__(
        self, host: WorkflowInstance, workflow_id: str, run_id: str, definition: WorkflowDefinition | None
    ) -> None:
        self._host = host
        self._definition = definition
        self.id = workflow_id
        self.run_id = run_id

    def __repr__(self) -> str:
        return f"<ExternalWorkflowHandle to {self.id!r}>"

    @overload
    async def signal(self, handler: Callable[[W, *Ts], Awaitable[None] | None], /, *args: *Ts) -> None: ...
    @overload
    async def signal(self, handler: str, /, *args: Any) -> None: ...
    def signal(self, handler: Any, /, *args: *Ts) -> Any:
        """Send it a signal; awaiting it returns once the run has it, durably.

        Args:
            handler: The signal method, or its name.
            *args: Its arguments.

        Raises:
            UnknownHandlerError: The workflow has no such signal.
            TypeError: Wrong number of arguments.
            PayloadEncodeError: An argument does not fit its hint, or has no stored form.
            ExternalWorkflowError: (when awaited) It was refused: there is no such run, it has ended, it has no such
                signal, or too many messages wait there.
        """
        host = self._host
        refuse_reading(host, "signal()")
        if host.loop.discarded:
            return host.loop.refuse()
        if host.outbound is None:
            return self._signal(handler, args)
        call = SignalExternalWorkflowInput(self.id, self.run_id, handler, list(args), {}, self)
        return intercepted_call(host, host.outbound.signal_external_workflow, call, depth=2)

    def _signal(self, handler: Any, args: Sequence[Any], headers: tuple[Header, ...] = ()) -> CommandFuture:
        name, payloads = signal_arguments(self._host._converter, self._definition, handler, args)
        return relations_of(self._host).send_signal(self.id, self.run_id, name, payloads, headers=headers)

    def cancel(self, reason: str = "") -> Coroutine[object, None, None]:
        """Ask it to cancel itself; awaiting it returns once the run has the request, durably.

        Args:
            reason: Why; the run's cancel request has it.

        Raises:
            ExternalWorkflowError: (when awaited) There is no such run, or it has ended.
        """
        host = self._host
        refuse_reading(host, "cancel()")
        check_text("the reason", reason, may_be_empty=True)
        if host.loop.discarded:
            return host.loop.refuse()
        if host.outbound is None:
            sent: Any = self._cancel(reason)
        else:
            call = CancelExternalWorkflowInput(self.id, self.run_id, reason)
            sent = intercepted_call(host, host.outbound.cancel_external_workflow, call, depth=2)
        return sent  # type: ignore[no-any-return]

    def _cancel(self, reason: str) -> CommandFuture:
        return relations_of(self._host).send_cancel(self.id, self.run_id, reason)


def _begin(
    host: WorkflowInstance, workflow: Any, args: Sequence[Any], start: ResolvedStart, result_type: Any
) -> tuple[WorkflowDefinition, Any, Any, Decode]:
    """Check and encode the start of another run; nothing is numbered yet."""
    definition = find_workflow(host.workflows, workflow)
    refuse_reading(host, f"workflow {definition.name!r}")
    payloads, _ = definition.codec.encode_args(host._converter, args)
    memo = encode_memo(host._converter, start.memo)
    decode = (
        definition.codec.result_decoder(host._converter)
        if result_type is None
        else result_decoder(host._converter, result_type, f"workflow {definition.name}")
    )
    return definition, payloads, memo, decode


def _start_child(
    call: str, workflow: Any, args: tuple[Any, ...], options: dict[str, Any], *, awaits_start: bool
) -> Any:
    """Start a child, past the interceptors if there are any; called two frames below the user's code."""
    host = current_instance(call)
    outbound = host.outbound
    if outbound is None or host.read_only or host.loop.discarded:
        return begin_child(host, workflow, args, options, awaits_start=awaits_start)
    name = find_workflow(host.workflows, workflow).name
    asked = StartChildWorkflowInput(name, list(args), options, not awaits_start, {}, workflow)
    return intercepted_call(host, outbound.start_child_workflow, asked, depth=3)


def begin_child(
    host: WorkflowInstance,
    workflow: Any,
    args: Sequence[Any],
    options: dict[str, Any],
    *,
    awaits_start: bool,
    headers: tuple[Header, ...] = (),
) -> Any:
    """Number and record the start of a child; gives what the call returns.

    Args:
        host: The run.
        workflow: The child's class, run method or type name.
        args: Its arguments.
        options: As of ``ChildWorkflowOptions``.
        awaits_start: The caller wants a handle, not the result.
        headers: What travels with it.
    """
    result_type = options.pop("result_type", None) if isinstance(workflow, str) else None
    start = resolved_child(options, host._wall)
    definition, payloads, memo, decode = _begin(host, workflow, args, start, result_type)
    if host.loop.discarded:
        return host.loop.refuse()
    relations = relations_of(host)
    command, started = relations.begin_start(
        definition.name, start.workflow_id, payloads, memo, start.carried, headers=headers
    )
    scheduled = ce.ChildScheduled(
        command, started, start.close_policy, start.if_running, start.if_closed, awaits_start
    )
    child = relations.schedule(scheduled, decode, start.cancellation, depth=4)
    if not awaits_start:
        return child
    child.is_held_by_handle()
    handle: ChildWorkflowHandle[Any, Any] = ChildWorkflowHandle(relations, child, definition)
    child.starting = ChildStart(child, handle, child.place)
    return child.starting


@overload
async def execute_child_workflow(
    workflow: Callable[[W, *Ts], Awaitable[R]], /, *args: *Ts, **options: Unpack[ChildWorkflowOptions]
) -> R: ...
@overload
async def execute_child_workflow(
    workflow: WorkflowClass[W, *Ts, R], /, *args: *Ts, **options: Unpack[ChildWorkflowOptions]
) -> R: ...
@overload
async def execute_child_workflow(
    workflow: str, /, *args: Any, result_type: type[R], **options: Unpack[ChildWorkflowOptions]
) -> R: ...
@overload
async def execute_child_workflow(
    workflow: str, /, *args: Any, **options: Unpack[ChildWorkflowOptions]
) -> Any: ...
def execute_child_workflow(workflow: Any, /, *args: *Ts, **options: Any) -> Any:
    """Start a child workflow; awaiting what it returns gives the child's result.

    The command is numbered at this call, so the order of calls is the order in the journal, however they are
    awaited. To cancel the code that waits for it does what its ``cancellation_type`` says.

    Args:
        workflow: The class, its run method, or its type name; registered with this runtime.
        *args: Arguments of its run method; they are converted here, later changes to them have no effect.
        **options: See ``ChildWorkflowOptions``; with a name also ``result_type``.

    Raises:
        WorkflowNotRegisteredError: The runtime was not given this type.
        TypeError: Wrong number of arguments, or an unknown option.
        PayloadEncodeError: An argument does not fit its hint, or has no stored form.
        ValueError: The id is empty or too long, or an option has an unknown word.
        ChildWorkflowError: (when awaited) The child has no result: it failed, was cancelled or terminated, or its id
            is taken.
    """
    return _start_child("execute_child_workflow()", workflow, args, options, awaits_start=False)


@overload
async def start_child_workflow(
    workflow: Callable[[W, *Ts], Awaitable[R]], /, *args: *Ts, **options: Unpack[ChildWorkflowOptions]
) -> ChildWorkflowHandle[W, R]: ...
@overload
async def start_child_workflow(
    workflow: WorkflowClass[W, *Ts, R], /, *args: *Ts, **options: Unpack[ChildWorkflowOptions]
) -> ChildWorkflowHandle[W, R]: ...
@overload
async def start_child_workflow(
    workflow: str, /, *args: Any, result_type: type[R], **options: Unpack[ChildWorkflowOptions]
) -> ChildWorkflowHandle[Any, R]: ...
@overload
async def start_child_workflow(
    workflow: str, /, *args: Any, **options: Unpack[ChildWorkflowOptions]
) -> ChildWorkflowHandle[Any, Any]: ...
def start_child_workflow(workflow: Any, /, *args: *Ts, **options: Any) -> Any:
    """Start a child workflow; awaiting what it returns gives a handle once the child exists.

    Arguments and errors as of ``execute_child_workflow``; that the child's id is taken is raised here.
    """
    return _start_child("start_child_workflow()", workflow, args, options, awaits_start=True)


@overload
async def start_detached(
    workflow: Callable[[W, *Ts], Awaitable[Any]], /, *args: *Ts, **options: Unpack[DetachedOptions]
) -> ExternalWorkflowHandle[W]: ...
@overload
async def start_detached(
    workflow: WorkflowClass[W, *Ts, Any], /, *args: *Ts, **options: Unpack[DetachedOptions]
) -> ExternalWorkflowHandle[W]: ...
@overload
async def start_detached(
    workflow: str, /, *args: Any, **options: Unpack[DetachedOptions]
) -> ExternalWorkflowHandle[Any]: ...
def start_detached(workflow: Any, /, *args: *Ts, **options: Any) -> Any:
    """Start a workflow that is nobody's child; awaiting what it returns gives a handle once it exists.

    Its end is no news for this run, and the end of this run is none for it.

    Args:
        workflow: As of ``execute_child_workflow``.
        *args: Likewise.
        **options: See ``DetachedOptions``.

    Raises:
        ExternalWorkflowError: (when awaited) Its id is taken, and the options refuse it.
        Exception: At the call, as ``execute_child_workflow``.
    """
    host = current_instance("start_detached()")
    outbound = host.outbound
    if outbound is None or host.read_only or host.loop.discarded:
        return begin_detached(host, workflow, args, options)
    name = find_workflow(host.workflows, workflow).name
    call = StartDetachedInput(name, list(args), options, {}, workflow)
    return intercepted_call(host, outbound.start_detached, call, depth=2)


def begin_detached(
    host: WorkflowInstance,
    workflow: Any,
    args: Sequence[Any],
    options: dict[str, Any],
    headers: tuple[Header, ...] = (),
) -> Any:
    """Number and record a start without a parent; arguments as of ``begin_child``."""
    start = resolved_start(options, host._wall)
    definition, payloads, memo, _ = _begin(host, workflow, args, start, None)
    if host.loop.discarded:
        return host.loop.refuse()
    relations = relations_of(host)
    command, started = relations.begin_start(
        definition.name, start.workflow_id, payloads, memo, start.carried, headers=headers
    )
    event = ce.DetachedStart(command, started, start.if_running, start.if_closed)
    future = relations.start_detached(event, depth=3)
    future.value = ExternalWorkflowHandle(host, started.workflow_id, started.run_id, definition)
    return future


@overload
def get_external_workflow_handle(
    workflow_id: str, kind: WorkflowClass[W, *Ts, R], /, *, run_id: str | None = None
) -> ExternalWorkflowHandle[W]: ...
@overload
def get_external_workflow_handle(
    workflow_id: str, /, *, run_id: str | None = None
) -> ExternalWorkflowHandle[Any]: ...
def get_external_workflow_handle(workflow_id: str, kind: Any = None, /, *, run_id: str | None = None) -> Any:
    """A handle to any run; whether it exists shows when a message arrives.

    Args:
        workflow_id: Its workflow id.
        kind: Its class, so that signals are checked at the call.
        run_id: One run of it; None is whichever is the newest when a message arrives.

    Raises:
        ValueError: The id is empty or too long.
    """
    host = current_instance("get_external_workflow_handle()")
    check_workflow_id(workflow_id)
    if run_id is not None:
        check_text("the run id", run_id)
    definition = None if kind is None else workflow_definition(kind)
    handle: ExternalWorkflowHandle[Any] = ExternalWorkflowHandle(host, workflow_id, run_id or "", definition)
    return handle
