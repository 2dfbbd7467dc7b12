"""How workflow code ends or cancels its own run from wherever it is: a handler, a task, a helper of main."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from .asyncio_forbidden import read_only
from .context import current_instance
from .options import check_text

if TYPE_CHECKING:
    from .workflow_instance import Delivery, WorkflowInstance


def complete(result: Any = None) -> None:
    """End this run as completed, with this result, at the end of the turn.

    The call returns, so that a handler still gives its answer. What runs in the same turn runs on until it waits; then
    the run ends as if ``run`` had returned: its other tasks, main among them, are closed where they wait, and nothing
    that their ``finally`` blocks ask for happens. Clean up before this call, or use ``cancel``.

    If main returns or raises first, that is the outcome; of several calls the first one counts.

    Args:
        result: What ``run`` would return; it is converted here, later changes to it have no effect.

    Raises:
        PayloadEncodeError: It does not fit the return type of ``run``, or has no stored form.
        ReadOnlyError: It is called in a query or a validator.
    """
    _complete(current_instance("complete()"), result)


def _complete(instance: WorkflowInstance, result: Any) -> None:
    if instance.read_only:
        raise read_only("complete()")
    payload = instance._definition.codec.encode_result(instance._converter, result)
    main = instance.main
    if instance.loop.discarded:
        instance.loop.refuse()
    elif instance.completion is None and (main is None or not main.done()):
        instance.completion = payload


def cancel(reason: str = "") -> None:
    """Ask this run to cancel itself: the same as ``handle.cancel`` from inside.

    CancelledError is raised once in main, at the await where it stands or at its next one; ``finally`` blocks may wait
    for activities. A run that was asked to cancel before is left alone.

    Args:
        reason: For people; ``result`` and the history have it.

    Raises:
        ReadOnlyError: It is called in a query or a validator.
    """
    check_text("the reason", reason, may_be_empty=True)
    instance = current_instance("cancel()")
    if instance.read_only:
        raise read_only("cancel()")
    if instance.loop.discarded:
        instance.loop.refuse()
    elif not instance.cancel_requested:
        instance._outputs.append(ev.CancelRequested(reason))
        instance.cancel_requested = True
        instance._cancel_reason = reason
        if instance.main is not None:
            instance.loop.call_soon(throw_cancel, instance)  # by then main has begun, and stands at an await


def throw_cancel(instance: WorkflowInstance) -> None:
    """Throw the run's own cancel into main."""
    main = instance.main
    assert main is not None
    waiter = main._fut_waiter  # type: ignore[attr-defined]
    if waiter is not None and waiter.done():
        main.cancel()  # its wake-up is under way: the throw takes its place
    elif not main.done():
        cancel_main(instance)


def deliver_cancel(instance: WorkflowInstance, delivery: Delivery) -> None:
    """Somebody has asked the run to cancel itself."""
    event = delivery.event
    assert isinstance(event, ev.CancelRequested)
    if not instance.cancel_requested:  # its own code may have been first
        instance.cancel_requested = True
        instance._cancel_reason = event.reason
        cancel_main(instance)


def cancel_main(instance: WorkflowInstance) -> None:
    """Cancel what main waits for; when that swallows the cancel, it is main's turn at its next await (R10)."""
    main = instance.main
    assert main is not None
    waiter = main._fut_waiter  # type: ignore[attr-defined]
    main.cancel()
    if waiter is not None and not waiter.cancelled():
        waiter.add_done_callback(partial(_cancel_passed, instance))
    else:
        instance.cancel_seen = True


def _cancel_passed(instance: WorkflowInstance, waiter: asyncio.Future[Any]) -> None:
    # Called after main's own step, which the same future has woken.
    main = instance.main
    assert main is not None
    if instance.cancel_seen:  # at the end of the step that it was put off for
        return
    swallowed = not waiter.cancelled() and not isinstance(waiter._exception, asyncio.CancelledError)
    if swallowed and not main.done():
        main.uncancel()
        cancel_main(instance)
    else:
        instance.cancel_seen = True
