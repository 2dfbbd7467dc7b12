"""Attempts with interceptors: a chain around the activity's function and around what that calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .context import ActivityContext, activity_context
from .headers import headers_of
from .interceptor_checks import next_link
from .interceptors import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
)

if TYPE_CHECKING:
    from .activity import ActivityInfo


def intercepted(
    interceptors: Sequence[Interceptor],
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Coroutine[Any, Any, Any]:
    """What runs an activity's function behind interceptors; called where the attempt runs."""
    context = activity_context("")
    chain: ActivityInboundInterceptor = _RootInbound(context)
    for interceptor in reversed(interceptors):
        chain = next_link(interceptor, "intercept_activity", chain, ActivityInboundInterceptor)
    chain.init(_RootOutbound(context))
    headers = headers_of(context.attempt.scheduled.headers)
    return chain.execute_activity(ExecuteActivityInput(fn, list(args), dict(kwargs), headers))


def run_in_thread(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run such a coroutine to its end where there is no event loop.

    Raises:
        RuntimeError: An interceptor awaits something else than the next one.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError(
        "an interceptor of a plain 'def' activity awaits something: such an activity runs in a thread, where its "
        "execute_activity() may await nothing but the next interceptor's"
    )


class _RootInbound(ActivityInboundInterceptor):
    """Calls the function."""

    def __init__(self, context: ActivityContext) -> None:
        self._context = context

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self._context.outbound = outbound

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        called = input.fn(*input.args, **input.kwargs)
        return await called if inspect.isawaitable(called) else called


class _RootOutbound(ActivityOutboundInterceptor):
    """What the functions of ``everact.activity`` do."""

    def __init__(self, context: ActivityContext) -> None:
        self._context = context

    def info(self) -> ActivityInfo:
        return self._context.info

    def heartbeat(self, *details: Any) -> None:
        self._context.pool.beat(self._context.attempt, details)
