"""How a run ends by itself: what its code returned or raised becomes the outcome; or the turn is one that crashed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from ..journal.failures import clean
from .chains import followed
from .continuation import RunEnds, continued_outcome, continuing
from .event_loop import TurnAborted
from .failure_conversion import failure_of, is_failure
from .handlers import suppressed

if TYPE_CHECKING:
    from .workflow_instance import Delivery, WorkflowInstance


#: Outcomes behind which another attempt, or the next time of a schedule, may follow.
_FOLLOWED = (ev.WorkflowCompleted, ev.WorkflowFailed)


class WorkflowCrashedError(Exception):
    """The turn cannot be kept: the code raised what is no failure, or cannot read its history.

    Attributes:
        kind: ``quarantined`` or ``held``.
        error: What was raised.
    """

    def __init__(self, kind: str, error: BaseException) -> None:
        super().__init__(kind, error)
        self.kind = kind
        self.error = error


def end_run(run: WorkflowInstance, main: asyncio.Task[Any]) -> None:
    """Turn the end of main, or what ``workflow.complete`` was given before that, into the outcome.

    Raises:
        WorkflowCrashedError: As of ``failed_outcome``.
    """
    if run.completion is not None:
        _note_unseen_failures(run)  # of main too: the run had its result before
        run.outcome = ev.WorkflowCompleted(run.completion)
    else:
        run.outcome = _outcome_of(run, main)
    close(run)


def end_by_handler(
    run: WorkflowInstance, end: RunEnds, deliveries: Sequence[Delivery], last: Delivery
) -> None:
    """End the run where a handler has said so, unless main, or ``workflow.complete``, has ended it before.

    What main waits for does not come any more. What was to be delivered behind ``last`` goes to the next run.
    """
    position = next(n for n, one in enumerate(deliveries, 1) if one is last)
    run.undelivered = frozenset(one.number for one in deliveries[position:])
    main = run.main
    if main is not None and (main.done() or run.completion is not None):
        end_run(run, main)
        return
    _note_unseen_failures(run)
    run.outcome = continued_outcome(run, end.error)
    close(run)


def close(run: WorkflowInstance) -> None:
    """Put the outcome behind all else that the run has decided."""
    outcome = run.outcome
    assert outcome is not None
    if run.started.options is not None and type(outcome) in _FOLLOWED and not run.cancel_requested:
        outcome = run.outcome = followed(run.started, outcome, run._wall, run.started_at)
    run._outputs.append(outcome)
    if not run.replaying:
        run.pending.clear()  # commands that nobody has awaited say so now
        if run.relations is not None:
            run.relations.clear()
    if run.handlers.running:
        run._log(
            logging.WARNING,
            f"ended while {run.handlers.running} of its handlers were running; await "
            f"workflow.wait_condition(workflow.all_handlers_finished) before returning",
        )


def error_of_main(run: WorkflowInstance, main: asyncio.Task[Any]) -> BaseException | None:
    """What main has raised; None when it has returned, or the run was cancelled."""
    if not main.cancelled():
        return main.exception()  # looked at from here on
    if run.cancel_requested:
        return None
    return asyncio.CancelledError(
        "a CancelledError left the workflow's run, but nobody has asked the run to cancel"
    )


def _outcome_of(run: WorkflowInstance, main: asyncio.Task[Any]) -> ev.Outcome:
    sagas = run.sagas
    error = sagas.end_error if sagas is not None and sagas.is_ending else error_of_main(run, main)
    _note_unseen_failures(run)
    if error is not None and (continued := continuing(error)) is not None:
        return continued_outcome(run, continued)
    if error is not None:
        return failed_outcome(run, error)
    if main.cancelled():
        return ev.WorkflowCancelled(run._cancel_reason)
    try:
        return ev.WorkflowCompleted(run._definition.codec.encode_result(run._converter, main.result()))
    except Exception as unfit:  # noqa: BLE001  (a result without a stored form is a fault of run)
        return failed_outcome(run, unfit)


def failed_outcome(run: WorkflowInstance, error: BaseException) -> ev.WorkflowFailed:
    """What an error that left the code makes of the run.

    Raises:
        WorkflowCrashedError: It is no failure, and the type does not say ``on_crash="fail"``.
    """
    if is_failure(error):
        return ev.WorkflowFailed(failure_of(error, run._converter), suppressed(run._outputs))
    if run._definition.on_crash == "fail" and not isinstance(error, TurnAborted):
        failure = failure_of(error, run._converter, kind="crash")
        return ev.WorkflowFailed(failure, suppressed(run._outputs))
    raise WorkflowCrashedError("quarantined", error)


def _note_unseen_failures(run: WorkflowInstance) -> None:
    """Record what tasks of the run raised that no code has looked at (R7)."""
    for task in run.loop.unseen_failures():
        task._log_traceback = False
        error = task.exception()
        assert error is not None
        run._outputs.append(ev.TaskFailed(clean(task.get_name()), failure_of(error, run._converter)))
        message = (
            f"ended, and nobody has looked at what its task {task.get_name()!r} raised: await the tasks that "
            f"you start"
        )
        run._log(logging.ERROR, message, error)
