"""How the runs of a chain follow each other: whether there is a next one, when it begins, what it starts with.

All of it follows from what the journal has, so that replay finds the same.
"""

from __future__ import annotations

import random
from hashlib import blake2b
from typing import Any

import msgspec

from ..journal import events as ev
from ..journal.failures import Failure, class_names
from ..journal.fold import RunState
from ..journal.payloads import Payload
from ..journal.run_chain import ChainRecord, NextRun, StartRecord
from ..journal.run_times import execution_deadline
from .cron import next_time
from .errors import WorkflowTimeoutError
from .retries import decide as decide_retry

CONTINUE_AS_NEW = "continue_as_new"
RETRY = "retry"
CRON = "cron"


def first_run_id(started: ev.WorkflowStarted) -> str:
    """Run id of the first run of a run's chain."""
    return started.run_id if started.chain is None else started.chain.first_run_id


def next_run_id(run_id: str) -> str:
    """Run id of the run that follows: the same in a turn that is run again, live or in replay."""
    return blake2b(run_id.encode(), digest_size=16, person=b"next run").hexdigest()


def follow_up(
    started: ev.WorkflowStarted,
    outcome: ev.WorkflowCompleted | ev.WorkflowFailed | ev.WorkflowTimedOut,
    at: int,
    deadline: int,
) -> NextRun | None:
    """What follows a run that has ended by itself, or by its own limit, and whose cancel nobody has asked for.

    Args:
        started: Of the run.
        outcome: How it has ended.
        at: Wall clock of that, microseconds.
        deadline: When the whole chain must be over, microseconds; 0 for no limit.

    Returns:
        None when that was the last run of the chain.
    """
    options = started.options
    if options is None or (type(outcome) is ev.WorkflowTimedOut and outcome.option == "execution_timeout"):
        return None
    found = _retried(started, options, outcome, at)
    if found is None and options.cron:
        begins_at = next_time(options.cron, options.time_zone, at)
        found = NextRun(next_run_id(started.run_id), CRON, begins_at)
    return None if found is not None and 0 < deadline <= found.begins_at else found


def followed(started: ev.WorkflowStarted, outcome: Any, at: int, started_at: int) -> Any:
    """The outcome of a run with what follows it; arguments as of ``follow_up`` and ``RunState``."""
    if started.chain is not None:
        deadline = started.chain.deadline
    else:
        limit = 0 if started.options is None else started.options.execution_timeout
        deadline = started_at + limit if limit else 0
    found = follow_up(started, outcome, at, deadline)
    return outcome if found is None else msgspec.structs.replace(outcome, next=found)


def _retried(
    started: ev.WorkflowStarted,
    options: StartRecord,
    outcome: ev.WorkflowCompleted | ev.WorkflowFailed | ev.WorkflowTimedOut,
    at: int,
) -> NextRun | None:
    failure = failure_left(outcome)
    if failure is None or options.retry is None:
        return None
    jitter = random.Random(f"{started.run_id}/retry")  # noqa: S311  (as all of a run's numbers: the same again)
    delay, _reason = decide_retry(options.retry, attempt_of(started), failure, jitter)
    return None if delay < 0 else NextRun(next_run_id(started.run_id), RETRY, at + max(delay, 1))


def attempt_of(started: ev.WorkflowStarted) -> int:
    """The attempt of the retry policy that a run is, from 1."""
    return 1 if started.chain is None else started.chain.attempt


def failure_left(outcome: ev.Outcome | None) -> Failure | None:
    """Why a run has failed, as the next run and callers see it.

    That of a limit has no message of its own, which payload codecs would have to know: ``error_of`` makes it.
    """
    if type(outcome) is ev.WorkflowFailed:
        return outcome.failure
    if type(outcome) is not ev.WorkflowTimedOut:
        return None
    return Failure(
        type=WorkflowTimeoutError.__name__,
        bases=class_names(WorkflowTimeoutError),
        kind="timeout",
        retry_state=f"{outcome.option}={outcome.limit / 1_000_000:g} s",
    )


def next_start(
    state: RunState, outcome: ev.Outcome, following: NextRun, args: tuple[Payload, ...]
) -> ev.WorkflowStarted:
    """The first event of the run that follows; payloads stand as the journal has them.

    Args:
        state: The fold of the run that ends, just before or behind its end.
        outcome: How it ends.
        following: What follows.
        args: Arguments of the run that ends.
    """
    started = state.started
    before = started.chain
    chain = ChainRecord(
        first_run_id(started),
        started.run_id,
        following.reason,
        attempt_of(started) + 1 if following.reason == RETRY else 1,
        execution_deadline(state),
        started.request_id if before is None else before.request_id,
    )
    result, failure = started.last_result, started.last_failure
    if following.reason != CONTINUE_AS_NEW:
        failure = failure_left(outcome)
        result = outcome.result if type(outcome) is ev.WorkflowCompleted else result
    new = msgspec.structs.replace(
        started,
        run_id=following.run_id,
        args=args,
        request_id="",
        digest=b"",
        chain=chain,
        begins_at=following.begins_at,
        last_result=result,
        last_failure=failure,
    )
    if type(outcome) is not ev.WorkflowContinuedAsNew:
        return new
    new = msgspec.structs.replace(
        new, workflow_type=outcome.workflow_type, args=outcome.args, options=outcome.options
    )
    if outcome.headers is not None:
        new = msgspec.structs.replace(new, headers=outcome.headers)
    if outcome.has_memo:
        new = msgspec.structs.replace(new, memo_names=outcome.memo_names, memo=outcome.memo)
    return new
