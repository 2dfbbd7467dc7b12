"""Options of starts that workflow code makes: their defaults, their checks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypedDict

from ..journal import child_events as ce
from ..journal.events import ABANDON, TRY_CANCEL, WAIT_CANCELLED
from . import start_policies
from .options import IfClosed, IfRunning, RetryPolicy, check_option_names, check_workflow_id
from .start_options import NOTHING, Carried, carried

ParentClosePolicy = Literal["terminate", "request_cancel", "abandon"]
ChildWorkflowCancellationType = Literal["try_cancel", "wait_cancellation_completed", "abandon"]

#: What the parent's end does to an open child, unless its options say otherwise.
CLOSE_POLICY: ParentClosePolicy = "terminate"
#: What the cancelling of the parent's code does to a child that it waits for, unless its options say otherwise.
CANCELLATION_TYPE: ChildWorkflowCancellationType = "wait_cancellation_completed"

_CLOSE_POLICIES = {"terminate": ce.TERMINATE, "request_cancel": ce.REQUEST_CANCEL, "abandon": ce.LET_GO}
CLOSE_POLICY_NAMES = {number: name for name, number in _CLOSE_POLICIES.items()}
_CANCELLATION_MODES = {
    "try_cancel": TRY_CANCEL,
    "wait_cancellation_completed": WAIT_CANCELLED,
    "abandon": ABANDON,
}


class DetachedOptions(TypedDict, total=False):
    """Options of ``start_detached``; as of ``StartOptions``.

    Attributes:
        id: Workflow id, 1 to 1,000 bytes; default one made of this run's id and the number of the command.
        if_running: When the id is running: ``fail`` (default), ``attach``, or ``replace`` (terminate it).
        if_closed: When the id has ended: ``allow`` (default), ``allow_if_failed``, ``refuse``, ``attach``.
        memo: Notes that belong to the run, by name.
        run_timeout: As of ``StartOptions``, as are the others.
    """

    id: str
    if_running: IfRunning
    if_closed: IfClosed
    memo: Mapping[str, Any]
    run_timeout: timedelta | float | None
    execution_timeout: timedelta | float | None
    retry_policy: RetryPolicy | None
    cron_schedule: str | None
    time_zone: str
    start_delay: timedelta | float | None


class ChildWorkflowOptions(TypedDict, total=False):
    """Options of ``execute_child_workflow`` and ``start_child_workflow``.

    Attributes:
        id: Workflow id, 1 to 1,000 bytes; default one made of this run's id and the number of the command.
        if_running: When the id is running: ``fail`` (default), or ``replace`` (terminate it).
        if_closed: When the id has ended: ``allow`` (default), ``allow_if_failed``, ``refuse``.
        memo: Notes that belong to the run, by name.
        parent_close_policy: What this run's end, however it comes, does to the child if that is open: ``terminate``
            (default), ``request_cancel``, or ``abandon`` (let it go on).
        cancellation_type: What it does to the child when the code that waits for it is cancelled:
            ``wait_cancellation_completed`` (default) asks it to cancel and waits for its end, ``try_cancel`` asks and
            does not wait, ``abandon`` does not ask.
        run_timeout: As of ``StartOptions``, as are ``execution_timeout``, ``retry_policy``, ``cron_schedule``,
            ``time_zone`` and ``start_delay``. This run waits for the end of the child's last run.
    """

    id: str
    if_running: Literal["fail", "replace"]
    if_closed: Literal["allow", "allow_if_failed", "refuse"]
    memo: Mapping[str, Any]
    parent_close_policy: ParentClosePolicy
    cancellation_type: ChildWorkflowCancellationType
    run_timeout: timedelta | float | None
    execution_timeout: timedelta | float | None
    retry_policy: RetryPolicy | None
    cron_schedule: str | None
    time_zone: str
    start_delay: timedelta | float | None


class ResolvedStart(NamedTuple):
    """Checked options of a start, in their stored form.

    Attributes:
        workflow_id: None when none was given.
        memo: As it was given.
        carried: Limits, retries, a schedule, a delay.
    """

    workflow_id: str | None
    memo: Mapping[str, Any] | None
    if_running: IfRunning
    if_closed: IfClosed
    close_policy: int = ce.TERMINATE
    cancellation: int = WAIT_CANCELLED
    carried: Carried = NOTHING


def resolved_start(options: Mapping[str, Any], now: int) -> ResolvedStart:
    """Check the options of a detached start; ``now`` is the wall clock of the turn, microseconds.

    Raises:
        TypeError: An option is unknown, or of the wrong type.
        ValueError: The id is empty or too long, or an option has an unknown word.
    """
    check_option_names("start_detached", options, DetachedOptions)
    return _resolved(options, now)


def resolved_child(options: Mapping[str, Any], now: int) -> ResolvedStart:
    """Check the options of a child; ``now`` is the wall clock of the turn, microseconds.

    Raises:
        TypeError: An option is unknown, or of the wrong type.
        ValueError: The id is empty or too long, an option has an unknown word, or it is to attach to another run.
    """
    if not options:
        return _PLAIN_CHILD
    check_option_names("child workflow", options, ChildWorkflowOptions)
    start = _resolved(options, now)
    for name in ("if_running", "if_closed"):
        if options.get(name) == "attach":
            raise ValueError(
                f"{name}='attach' is not for children: a child is a run of its own. To have to do with a run that "
                f"others have started, use workflow.get_external_workflow_handle or workflow.start_detached"
            )
    policy = _word("parent_close_policy", options.get("parent_close_policy", CLOSE_POLICY), _CLOSE_POLICIES)
    given = options.get("cancellation_type", CANCELLATION_TYPE)
    cancellation = _word("cancellation_type", given, _CANCELLATION_MODES)
    return start._replace(close_policy=policy, cancellation=cancellation)


def _resolved(options: Mapping[str, Any], now: int) -> ResolvedStart:
    if_running = options.get("if_running", "fail")
    if_closed = options.get("if_closed", "allow")
    start_policies.check(if_running, if_closed)
    workflow_id = check_workflow_id(options["id"]) if "id" in options else None
    memo, times = options.get("memo"), carried(options, now)
    return ResolvedStart(workflow_id, memo, if_running, if_closed, carried=times)


def _word(option: str, given: object, words: Mapping[str, int]) -> int:
    if not isinstance(given, str) or given not in words:
        raise ValueError(f"{option} must be one of {', '.join(map(repr, words))}, not {given!r}")
    return words[given]


_PLAIN_CHILD = ResolvedStart(None, None, "fail", "allow")
