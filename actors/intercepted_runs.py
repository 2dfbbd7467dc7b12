"""Runs with interceptors: the same instance with a chain around what goes in and out. Others pay nothing for it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any, NoReturn, cast

from ..journal import events as ev
from ..journal.payloads import Payload, PayloadConverter, RawValue
from .children import ChildWorkflowHandle, ExternalWorkflowHandle, begin_child, begin_detached
from .commands import CommandFuture, Decode, DurableTimer
from .context import running_instance
from .continuation import end_as_new
from .definitions import ActivityDefinition, Call, HandlerDefinition, WorkflowDefinition
from .event_loop import TimerHandle
from .handlers import MessageHandlers
from .headers import header_records, headers_of
from .intercepted_calls import intercepted_call
from .interceptor_checks import next_link
from .interceptors import (
    CancelChildWorkflowInput,
    CancelExternalWorkflowInput,
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    HandleQueryInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    PublishInput,
    SideEffectInput,
    SignalChildWorkflowInput,
    SignalExternalWorkflowInput,
    StartActivityInput,
    StartChildWorkflowInput,
    StartDetachedInput,
    StartTimerInput,
    UpsertMemoInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)
from .mailbox import Query
from .options import LONGEST, check_text, check_workflow_id
from .publishing import record_published
from .registry import find_workflow
from .side_effects import memo_of, record_memo, run_side_effect
from .turn_guard import Guard
from .typing import ActivityHandle
from .workflow_info import WorkflowInfo, info_of
from .workflow_instance import WorkflowInstance


class InterceptedInstance(WorkflowInstance):
    """A live instance of a run whose calls go through interceptors.

    Attributes:
        inbound: The outermost interceptor of what comes in.
    """

    __slots__ = ("_interceptors", "inbound", "outbound")

    def __init__(
        self,
        definition: WorkflowDefinition,
        activities: Mapping[str, ActivityDefinition],
        converter: PayloadConverter,
        guard: Guard,
        interceptors: Sequence[Interceptor],
        *,
        workflows: Mapping[str, WorkflowDefinition] | None = None,
    ) -> None:
        super().__init__(_intercepted(definition), activities, converter, guard, workflows)
        self._interceptors = interceptors
        self.handlers = InterceptedHandlers(self)
        self.inbound: WorkflowInboundInterceptor = _RootInbound(self)
        self.outbound: WorkflowOutboundInterceptor | None = None

    def _make_object(self, args: Sequence[Any]) -> Any:
        for interceptor in reversed(self._interceptors):
            self.inbound = next_link(
                interceptor, "intercept_workflow", self.inbound, WorkflowInboundInterceptor
            )
        self.inbound.init(_RootOutbound(self))
        return super()._make_object(args)

    def discard(self) -> int:
        """Drop the code from memory; see ``WorkflowInstance.discard``."""
        refused = super().discard()
        self.inbound = _RootInbound(self)
        self.outbound = None
        return refused

    def schedule_activity(
        self,
        definition: ActivityDefinition,
        args: Sequence[Any],
        kwargs: dict[str, Any] | None,
        options: dict[str, Any],
        decode: Decode | None = None,
        *,
        depth: int = 2,
        encoded: tuple[tuple[Payload, ...], tuple[str, ...]] | None = None,
        repeats: int = 0,
        make: Callable[..., CommandFuture] = CommandFuture,
        headers: tuple[ev.Header, ...] = (),
    ) -> CommandFuture:
        """Let interceptors see the call of an activity; arguments as of ``WorkflowInstance.schedule_activity``."""
        outbound = self.outbound
        if outbound is None or self.read_only or self.loop.discarded:
            return super().schedule_activity(
                definition,
                args,
                kwargs,
                options,
                decode,
                depth=depth + 1,
                encoded=encoded,
                repeats=repeats,
                make=make,
                headers=headers,
            )
        named = dict(kwargs or {})
        if encoded is not None:
            values = [RawValue(payload) for payload in encoded[0]]
            count = len(values) - len(encoded[1])
            args, named = values[:count], dict(zip(encoded[1], values[count:], strict=True))
        call = StartActivityInput(
            definition.name, list(args), named, dict(options), {}, (definition, decode, repeats, make)
        )
        future = intercepted_call(self, outbound.start_activity, call, depth=depth + 1)
        return cast("CommandFuture", future)

    def schedule_intercepted(self, call: StartActivityInput) -> CommandFuture:
        """Number and record an activity command, as interceptors have left it."""
        definition, decode, repeats, make = call._call
        if call.activity != definition.name:
            definition = self.activity_named(call.activity)
        return super().schedule_activity(
            definition,
            call.args,
            dict(call.kwargs) or None,
            call.options,
            decode,
            repeats=repeats,
            make=make,
            headers=header_records(call.headers),
        )

    def _start_timer(
        self,
        duration: int,
        deadline: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> DurableTimer:
        if self.outbound is None:
            return super()._start_timer(duration, deadline, callback, args, context)
        timer = (duration, deadline, callback, args, context)
        handle = self.outbound.start_timer(StartTimerInput(timedelta(microseconds=duration), timer))
        return cast("DurableTimer", handle)

    def start_intercepted(self, call: StartTimerInput) -> DurableTimer:
        """Number and record a timer, as interceptors have left it."""
        if not timedelta(0) <= call.duration <= LONGEST:
            raise ValueError(f"a timer must be between 0 and 100 years, not {call.duration!r}")
        duration, deadline, *rest = call._timer
        wanted = max(1, call.duration // timedelta(microseconds=1))
        return super()._start_timer(wanted, deadline + wanted - duration, *rest)


# --- the definition of such a run -------------------------------------------------------------------------------


class InterceptedHandler(HandlerDefinition):
    """A handler that is called through interceptors; it gets the message itself before its arguments."""

    __slots__ = ("inner",)

    def __init__(self, inner: HandlerDefinition) -> None:
        for slot in HandlerDefinition.__slots__:
            setattr(self, slot, getattr(inner, slot))
        self.inner = inner
        self.is_async = inner.kind != "query"
        self.fn = getattr(self, f"_{inner.kind}")
        self.validator = self._validate if inner.kind == "update" else None

    def decode_args(self, converter: PayloadConverter, call: Call) -> list[Any]:
        """The message, and what the handler is to be called with."""
        return [call, *self.inner.decode_args(converter, call)]

    def _signal(self, _object: Any, call: ev.SignalReceived, *args: Any) -> Any:
        return _inbound().handle_signal(
            HandleSignalInput(call.name, list(args), headers_of(call.headers), self.inner)
        )

    def _query(self, _object: Any, call: Query, *args: Any) -> Any:
        return _inbound().handle_query(
            HandleQueryInput(call.name, list(args), headers_of(call.headers), self.inner)
        )

    def _update(self, _object: Any, call: ev.UpdateReceived, *args: Any) -> Any:
        return _inbound().handle_update_handler(self._update_input(call, args))

    def _validate(self, _object: Any, call: ev.UpdateReceived, *args: Any) -> None:
        _inbound().handle_update_validator(self._update_input(call, args))

    def _update_input(self, call: ev.UpdateReceived, args: Sequence[Any]) -> HandleUpdateInput:
        return HandleUpdateInput(call.name, list(args), headers_of(call.headers), self.inner)


class InterceptedHandlers(MessageHandlers):
    """The handlers of such a run: those that it sets itself are intercepted too."""

    __slots__ = ()

    def find(self, kind: str, name: str) -> HandlerDefinition | None:
        """The handler of a message; see ``MessageHandlers.find``."""
        found = super().find(kind, name)
        if found is None or isinstance(found, InterceptedHandler):
            return found
        return InterceptedHandler(found)


@lru_cache(maxsize=1000)
def _intercepted(definition: WorkflowDefinition) -> WorkflowDefinition:
    """The same type with its run method and its handlers behind the interceptors of whatever run calls them."""
    made = WorkflowDefinition.__new__(WorkflowDefinition)
    for slot in WorkflowDefinition.__slots__:
        setattr(made, slot, getattr(definition, slot))

    def run(user: Any, *args: Any) -> Any:
        instance = _running()
        return instance.inbound.execute_workflow(
            ExecuteWorkflowInput(
                definition.name,
                partial(definition.run, user),
                list(args),
                headers_of(instance.started.headers),
            )
        )

    made.run = run
    made.handlers = {
        kind: {name: InterceptedHandler(one) for name, one in handlers.items()}
        for kind, handlers in definition.handlers.items()
    }
    made.dynamic = {kind: InterceptedHandler(one) for kind, one in definition.dynamic.items()}
    return made


def _running() -> InterceptedInstance:
    instance = running_instance()
    assert isinstance(instance, InterceptedInstance)
    return instance


def _inbound() -> WorkflowInboundInterceptor:
    return _running().inbound


# --- the ends of the chains -------------------------------------------------------------------------------------


class _RootInbound(WorkflowInboundInterceptor):
    """Calls the user's code."""

    def __init__(self, instance: InterceptedInstance) -> None:
        self._instance = instance

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        self._instance.outbound = outbound

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002
        return await input.run_fn(*input.args)

    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002
        called = input._handler.fn(self._instance._object, *input.args)
        if inspect.isawaitable(called):
            await called

    def handle_query(self, input: HandleQueryInput) -> Any:  # noqa: A002
        return input._handler.fn(self._instance._object, *input.args)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:  # noqa: A002
        if input._handler.validator is not None:
            input._handler.validator(self._instance._object, *input.args)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:  # noqa: A002
        called = input._handler.fn(self._instance._object, *input.args)
        return await called if inspect.isawaitable(called) else called


class _RootOutbound(WorkflowOutboundInterceptor):
    """Records commands."""

    def __init__(self, instance: InterceptedInstance) -> None:
        self._instance = instance

    def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:  # noqa: A002
        return self._instance.schedule_intercepted(input)

    def start_child_workflow(self, input: StartChildWorkflowInput) -> Awaitable[Any]:  # noqa: A002
        awaits_start = not input.awaits_result
        child: Awaitable[Any] = begin_child(
            self._instance,
            self._meant(input),
            input.args,
            input.options,
            awaits_start=awaits_start,
            headers=header_records(input.headers),
        )
        return child

    def start_detached(self, input: StartDetachedInput) -> Awaitable[ExternalWorkflowHandle[Any]]:  # noqa: A002
        started: Awaitable[ExternalWorkflowHandle[Any]] = begin_detached(
            self._instance, self._meant(input), input.args, input.options, header_records(input.headers)
        )
        return started

    def _meant(self, call: StartChildWorkflowInput | StartDetachedInput) -> Any:
        """What was given at the call, unless another type is named by now."""
        is_same = find_workflow(self._instance.workflows, call._given).name == call.workflow
        return call._given if is_same else call.workflow

    def signal_child_workflow(self, input: SignalChildWorkflowInput) -> Awaitable[None]:  # noqa: A002
        handle: ChildWorkflowHandle[Any, Any] = input._handle
        return handle._signal(input.handler, input.args, header_records(input.headers))

    def signal_external_workflow(self, input: SignalExternalWorkflowInput) -> Awaitable[None]:  # noqa: A002
        given: ExternalWorkflowHandle[Any] = input._handle
        handle = self._external(input.workflow_id, input.workflow_run_id, given._definition)
        return handle._signal(input.handler, input.args, header_records(input.headers))

    def cancel_child_workflow(self, input: CancelChildWorkflowInput) -> None:  # noqa: A002
        check_text("the reason", input.reason, may_be_empty=True)
        handle: ChildWorkflowHandle[Any, Any] = input._handle
        handle._cancel(input.reason)

    def cancel_external_workflow(self, input: CancelExternalWorkflowInput) -> Awaitable[None]:  # noqa: A002
        check_text("the reason", input.reason, may_be_empty=True)
        return self._external(input.workflow_id, input.workflow_run_id)._cancel(input.reason)

    def _external(
        self, workflow_id: str, run_id: str, definition: WorkflowDefinition | None = None
    ) -> ExternalWorkflowHandle[Any]:
        """The run that a message goes to, as interceptors have left it."""
        check_workflow_id(workflow_id)
        check_text("the run id", run_id, may_be_empty=True)
        return ExternalWorkflowHandle(self._instance, workflow_id, run_id, definition)

    def side_effect(self, input: SideEffectInput) -> Any:  # noqa: A002
        return run_side_effect(self._instance, input.fn, input.result_type, input._place)

    def upsert_memo(self, input: UpsertMemoInput) -> None:  # noqa: A002
        record_memo(self._instance, input.memo)

    def publish(self, input: PublishInput) -> None:  # noqa: A002
        record_published(self._instance, input.key, input.value)

    def start_timer(self, input: StartTimerInput) -> TimerHandle:  # noqa: A002
        return self._instance.start_intercepted(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:  # noqa: A002
        headers = header_records(input.headers)
        end_as_new(self._instance, input.args, input.workflow, input.options, headers)

    def info(self) -> WorkflowInfo:
        return info_of(self._instance)

    def memo(self) -> dict[str, Any]:
        return memo_of(self._instance)
