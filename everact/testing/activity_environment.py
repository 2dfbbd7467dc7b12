"""One activity alone: its function runs as in a pool, without a workflow and a journal."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar, cast, overload

from ..actors.activity import ActivityInfo
from ..actors.attempts import Attempt
from ..actors.context import ActivityContext, CompleteAsyncError, current_activity
from ..actors.definitions import ActivityDefinition, registrable_activity
from ..actors.dynamic import DynamicCodec
from ..actors.intercepted_activities import intercepted, run_in_thread
from ..actors.interceptors import Interceptor, check_interceptors
from ..actors.notices import Notice
from ..actors.runtime import Runtime
from ..actors.thread_interrupts import ThreadInterrupt
from ..journal.payloads import Payload, PayloadConverter
from ..journal.type_converters import TypeConverter, TypeUpgrade

P = ParamSpec("P")
R = TypeVar("R")

_AT = datetime(2026, 1, 1, tzinfo=UTC)
_LIMIT = timedelta(minutes=5)
#: What an attempt knows of itself when the test says nothing else.
INFO = ActivityInfo(
    activity_type="activity",
    workflow_id="test-workflow",
    run_id="test-run",
    workflow_type="TestWorkflow",
    command=1,
    attempt=1,
    idempotency_key="test-run/1",
    scheduled_at=_AT,
    started_at=_AT,
    deadline=_AT + _LIMIT,
    schedule_to_close_deadline=None,
    start_to_close_timeout=_LIMIT,
    heartbeat_timeout=None,
    heartbeat_details=(),
    last_failure=None,
    task_token="test-token",  # noqa: S106  (nothing secret)
)


class ActivityEnvironment:
    """Runs activities one at a time, without a workflow: ``await ActivityEnvironment().run(charge, order)``.

    Arguments and the result are converted as on their way through the journal, so that the activity gets copies, and
    what has no stored form is found. All functions of ``everact.activity`` work. Limits and retries are the workflow's
    business: they do not hold here, and what the activity raises comes out as it is.

    Attributes:
        info: What ``activity.info()`` gives; set another one by ``dataclasses.replace(env.info, attempt=3)``.
        heartbeats: The details of each heartbeat, in order.
        on_heartbeat: Called with the details of each heartbeat, in the activity's thread; to cancel at the third one.
        completes_outside: The last activity ended by ``activity.raise_complete_async()``; its result here is None.
    """

    def __init__(
        self,
        *,
        info: ActivityInfo = INFO,
        client: Runtime | None = None,
        on_heartbeat: Callable[..., object] | None = None,
        interceptors: Sequence[Interceptor] = (),
        converters: Iterable[TypeConverter[Any] | TypeUpgrade] = (),
        trust_pickle: bool = False,
    ) -> None:
        """Begin.

        Args:
            info: See the attributes.
            client: What ``activity.client()`` gives, such as ``TestEnvironment.runtime``.
            on_heartbeat: See the attributes.
            interceptors: As of ``Runtime``.
            converters: As of ``Runtime``.
            trust_pickle: As of ``Runtime``.

        Raises:
            TypeError: An argument is of the wrong type.
        """
        if not isinstance(info, ActivityInfo):
            raise TypeError(f"info must be an ActivityInfo, not {info!r}")
        self.info = info
        self.heartbeats: list[tuple[Any, ...]] = []
        self.on_heartbeat = on_heartbeat
        self.completes_outside = False
        self._client = client
        self._interceptors = check_interceptors(interceptors)
        self._converter = PayloadConverter(trust_pickle=trust_pickle, converters=converters)
        self._running: list[_Attempt] = []
        self._is_cancelled = False
        self._is_leaving = False

    @overload
    async def run(self, activity: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def run(self, activity: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def run(self, activity: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run an activity to its end: ``async def`` on this loop, plain ``def`` in a thread.

        Args:
            activity: The function, or a bound method.
            *args: Its arguments.
            **kwargs: Those by keyword.

        Raises:
            RegistrationError: It is no activity, or a method without its object.
            TypeError: Wrong number of arguments.
            PayloadEncodeError: An argument or the result does not fit its hint, or has no stored form.
            CancelledError: The test has cancelled it.
        """
        definition = registrable_activity(activity)
        attempt = _Attempt(self, definition)
        fn = definition.fn
        is_dynamic = isinstance(definition.codec, DynamicCodec)
        if not is_dynamic:
            payloads, keywords = definition.codec.encode_args(self._converter, args, kwargs)
            positional, kwargs = definition.codec.decode_args(self._converter, payloads, keywords)
            args = tuple(positional)
        self.completes_outside = False
        self._running.append(attempt)
        try:
            if definition.is_async:
                result = await self._run_on_loop(attempt, fn, args, kwargs)
            else:
                result = await self._run_in_thread(attempt, fn, args, kwargs)
        except CompleteAsyncError:
            self.completes_outside = True
            return None
        finally:
            self._running.remove(attempt)
        codec = definition.codec
        return codec.decode_result(self._converter, codec.encode_result(self._converter, result))

    async def _run_on_loop(
        self, attempt: _Attempt, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        async def work() -> Any:
            if self._interceptors:
                return await intercepted(self._interceptors, fn, args, kwargs)
            return await fn(*args, **kwargs)

        loop = asyncio.get_running_loop()
        attempt.task = loop.create_task(work(), context=attempt.context)
        if self._is_cancelled:  # its code is entered, and cancelled where it first waits
            loop.call_soon(attempt.task.cancel)
        return await attempt.task

    async def _run_in_thread(
        self, attempt: _Attempt, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        interrupt = attempt.interrupt = ThreadInterrupt()

        def work() -> Any:
            interrupt.enter()
            try:
                if self._interceptors:
                    return run_in_thread(intercepted(self._interceptors, fn, args, kwargs))
                return fn(*args, **kwargs)
            finally:
                interrupt.leave()

        if self._is_cancelled:
            interrupt.send()
        running = asyncio.get_running_loop().run_in_executor(None, attempt.context.run, work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if not running.done():  # the test itself is cancelled: the thread is told, and not waited for
                attempt.cancel()
            raise

    def cancel(self) -> None:
        """Ask what runs, and what is run later, to stop: ``CancelledError`` is raised in its code."""
        self._is_cancelled = True
        for attempt in self._running:
            attempt.cancel()

    def shutdown(self) -> None:
        """Tell what runs, and what is run later, that the runtime is being left; see ``activity.is_shutting_down``."""
        self._is_leaving = True
        for attempt in self._running:
            attempt.leaving.set()

    def _beat(self, details: tuple[Any, ...]) -> None:
        for number, detail in enumerate(details, 1):
            self._converter.encode(detail, where=f"heartbeat detail {number}")
        self.heartbeats.append(details)
        if self.on_heartbeat is not None:
            self.on_heartbeat(*details)


class _Attempt:
    """What the functions of ``everact.activity`` ask: stands for an attempt, and for the pool that runs it."""

    def __init__(self, environment: ActivityEnvironment, definition: ActivityDefinition) -> None:
        loop = asyncio.get_running_loop()
        self._environment = environment
        self._loop = loop
        self._info = environment.info
        if self._info.activity_type == INFO.activity_type:
            self._info = _named(self._info, definition.name)
        self.converter = environment._converter
        self.is_cancelled = environment._is_cancelled
        self.cancelled = Notice(loop)
        self.leaving = Notice(loop)
        if self.is_cancelled:
            self.cancelled.set()
        if environment._is_leaving:
            self.leaving.set()
        self.earlier: tuple[Payload, ...] = tuple(
            [
                self.converter.encode(detail, where="info.heartbeat_details")
                for detail in self._info.heartbeat_details
            ]
        )
        self.interrupt: ThreadInterrupt | None = None
        self.task: asyncio.Task[Any] | None = None
        self.scheduled = SimpleNamespace(headers=())
        self.context = contextvars.copy_context()
        found = ActivityContext(cast("Attempt", self), cast("Any", self))
        self.context.run(current_activity.set, found)

    def cancel(self) -> None:
        """Let its code know; also from its thread."""
        self.is_cancelled = True
        self._loop.call_soon_threadsafe(self.cancelled.set)
        if self.interrupt is not None:
            self.interrupt.send()
        elif self.task is not None:
            self._loop.call_soon_threadsafe(self.task.cancel)

    # --- what the pool answers

    def info(self, _attempt: object) -> ActivityInfo:
        return self._info

    def beat(self, _attempt: object, details: tuple[Any, ...]) -> None:
        self._environment._beat(details)

    def decode(self, payload: Payload, hint: Any) -> Any:
        return self.converter.decoder_for(hint)(payload, "heartbeat detail")

    def cancel_notice(self, _attempt: object) -> Notice:
        return self.cancelled

    @property
    def runtime(self) -> Runtime:
        client = self._environment._client
        if client is None:
            raise RuntimeError(
                "activity.client() has nothing to give here: pass it to ActivityEnvironment(client=...), such as the "
                "runtime of a TestEnvironment"
            )
        return client


def _named(info: ActivityInfo, name: str) -> ActivityInfo:
    return replace(info, activity_type=name or info.activity_type)
