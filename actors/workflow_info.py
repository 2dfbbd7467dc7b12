"""What a run knows of itself: ``workflow.info()``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from .chains import attempt_of, first_run_id
from .context import current_instance
from .continuation import SUGGESTED_EVENTS
from .descriptions import ParentInfo

if TYPE_CHECKING:
    from .workflow_instance import WorkflowInstance


@dataclass(frozen=True)
class WorkflowInfo:
    """What a run knows of itself.

    Attributes:
        workflow_id: Its id, chosen by whoever started it.
        run_id: This run's own id.
        workflow_type: Name of its type.
        start_time: When it began, UTC.
        parent: Whose child it is; None when it is nobody's.
        attempt: Of its retry policy, from 1.
        first_execution_run_id: The first run of its chain.
        continued_run_id: The run before; None for the first one.
        cron_schedule: Its schedule, or None.
        run_timeout: How long this run may take; None is no limit.
        execution_timeout: How long the whole chain may take; None is no limit.
        history_length: Events up to the one that is handled.
        continue_as_new_suggested: There are so many of them (10,000) that replay takes its time.
    """

    workflow_id: str
    run_id: str
    workflow_type: str
    start_time: datetime
    parent: ParentInfo | None = None
    attempt: int = 1
    first_execution_run_id: str = ""
    continued_run_id: str | None = None
    cron_schedule: str | None = None
    run_timeout: timedelta | None = None
    execution_timeout: timedelta | None = None
    history_length: int = 0
    continue_as_new_suggested: bool = False


def info() -> WorkflowInfo:
    """What the run knows of itself."""
    instance = current_instance("info()")
    return info_of(instance) if instance.outbound is None else instance.outbound.info()


def info_of(instance: WorkflowInstance) -> WorkflowInfo:
    """What a run knows of itself."""
    started, options, parent = instance.started, instance.started.options, instance.started.parent
    return WorkflowInfo(
        started.workflow_id,
        started.run_id,
        started.workflow_type,
        utc(instance.started_at),
        None if parent is None else ParentInfo(parent.workflow_id, parent.run_id),
        attempt_of(started),
        first_run_id(started),
        None if started.chain is None else started.chain.continued_run_id,
        None if options is None else options.cron or None,
        None if options is None else _duration(options.run_timeout),
        None if options is None else _duration(options.execution_timeout),
        instance.history_length,
        instance.history_length >= SUGGESTED_EVENTS,
    )


def _duration(microseconds: int) -> timedelta | None:
    return timedelta(microseconds=microseconds) if microseconds else None


def utc(at: int) -> datetime:
    """A time of the journal (microseconds since the epoch) as a datetime."""
    return datetime.fromtimestamp(at // 1_000_000, UTC).replace(microsecond=at % 1_000_000)
