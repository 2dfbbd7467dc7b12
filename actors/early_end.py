"""How workflow code ends or cancels its own run from wherever it is: a handler, a task, a helper of main."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from .asyncio_forbidden import read_only
from .context import current_instance
from .options import check_text

if TYPE_CHECKING:
    from .workflow_instance import WorkflowInstance


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
        instance._cancel_main()
