"""The end of run while sagas of other tasks, or of handlers, have something to undo: it is not lost.

Where the run ends badly (a failure, a cancel) they are told to stop, and the run ends once they have undone what they
did. Where its code says that all is well (it returns, or goes on as a new run) that is a bug.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from .continuation import continuing
from .failure_conversion import is_failure
from .run_end import WorkflowCrashedError, error_of_main

if TYPE_CHECKING:
    from .saga_block import SagaBlock
    from .workflow_instance import WorkflowInstance


def sagas_hold_end(run: WorkflowInstance, main: asyncio.Task[Any]) -> bool:
    """Whether main is over and the run is not, as sagas are undoing what they have done; they are told to, first.

    Raises:
        WorkflowCrashedError: They must not: the end of main is a bug.
    """
    sagas = run.sagas
    assert sagas is not None
    while owing := [block for block in sagas.blocks if block.owes]:
        if not sagas.is_ending:
            sagas.is_ending = True
            sagas.is_cancelled = run.cancel_requested
            error = sagas.end_error = _refusal(main, owing[0]) or error_of_main(run, main)
            if error is not None and run._definition.on_crash == "quarantine" and not is_failure(error):
                raise WorkflowCrashedError("quarantined", error) from error
        elif run.cancel_requested and not sagas.is_cancelled:
            sagas.is_cancelled = True
            for block in owing:
                block.may_stop_again()
        for block in owing:
            if block.is_abandoned:
                error = RuntimeError(
                    f"run has ended, and saga {block._name!r} cannot undo its completed steps any more: the task that "
                    f"has entered its block is over and has not left it; let an async generator with a saga run to "
                    f"its end, or close it by contextlib.aclosing()"
                )
                raise WorkflowCrashedError("quarantined", error)
        stopped = [block for block in owing if block.stop()]
        if not stopped:
            return True
        run.loop.run_until_idle()
        run._settle()
        _warn_of(run, [block for block in stopped if block.is_open and not block.waits_for_steps])
    return False


def _warn_of(run: WorkflowInstance, blocks: list[SagaBlock]) -> None:
    assert run.sagas is not None
    way_out = "" if run.sagas.is_cancelled else ", or cancel the run once more"
    for block in blocks:
        run._log(
            logging.WARNING,
            f"has ended but for saga {block._name!r}, whose block goes on although its task was cancelled; the run "
            f"waits until the block is left: let CancelledError pass{way_out}",
        )


def _refusal(main: asyncio.Task[Any], block: SagaBlock) -> RuntimeError | None:
    """Why main must not have ended as it has; None when it has failed or was cancelled."""
    error = None if main.cancelled() else main.exception()
    continued = continuing(error)
    if main.cancelled() or (error is not None and continued is None):
        return None
    what = "return" if continued is None else "continue as new"
    refusal = RuntimeError(
        f"run must not {what} while saga {block._name!r} of another task has completed steps, or undoes them: what "
        f"undoes them would be lost; await the tasks that it has started first, and its handlers by "
        f"workflow.wait_condition(workflow.all_handlers_finished)"
    )
    refusal.__cause__ = continued
    return refusal
