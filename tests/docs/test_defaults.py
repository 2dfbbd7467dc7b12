"""README's table of defaults says what the code does."""

import inspect
from datetime import timedelta
from pathlib import Path

from everact import RetryPolicy, Runtime, WorkflowHandle
from everact.actors import child_options, options, saga_steps
from everact.actors.continuation import SUGGESTED_EVENTS

README = Path(__file__).resolve().parents[2] / "README.md"


def row(start: str) -> str:
    table = README.read_text(encoding="utf-8").partition("## Defaults")[2].partition("##")[0]
    return next(line for line in table.splitlines() if line.startswith(f"| {start}"))


def default(call: object, name: str) -> object:
    return inspect.signature(call).parameters[name].default


def test_the_defaults_of_activities() -> None:
    policy = RetryPolicy()
    waits = [
        min(policy.initial_interval * 2**n, policy.maximum_interval)
        for n in range(policy.maximum_attempts - 1)
    ]
    assert sum(waits, timedelta()) == timedelta(minutes=4, seconds=3)
    assert "10 attempts, 1 s x 2, at most 60 s apart, jitter 0.1 (about 4 minutes)" in row("activity retries")
    assert (policy.maximum_attempts, policy.backoff_coefficient, policy.jitter) == (10, 2.0, 0.1)
    assert timedelta(minutes=5) == options.START_TO_CLOSE_TIMEOUT
    assert "5 minutes" in row("`start_to_close_timeout`")
    limits = default(Runtime, "max_concurrent_activities"), default(Runtime, "max_activity_threads")
    assert limits == (1000, 32)
    assert "1,000 `async def`, 32 threads" in row("activities at a time")


def test_the_defaults_of_calls() -> None:
    assert default(WorkflowHandle.query, "timeout") == timedelta(seconds=10)
    assert "10 s" in row("query")
    assert default(WorkflowHandle.result, "timeout") is None
    assert default(WorkflowHandle.result, "on_stall") == "raise"
    assert "no time limit" in row("`result()`")


def test_the_defaults_of_the_runtime() -> None:
    assert default(Runtime, "grace") == timedelta(seconds=10)
    assert "10 s (`grace`)" in row("leaving the `Runtime`")
    assert default(Runtime, "durability") == "fsync"
    assert '`"fsync"`' in row("`durability`")


def test_the_defaults_of_children_steps_and_compensations() -> None:
    assert f'"{child_options.CLOSE_POLICY}"' in row("`parent_close_policy`")
    assert f'"{child_options.CANCELLATION_TYPE}"' in row("`cancellation_type` of a child")
    assert f"{SUGGESTED_EVENTS:,} events" in row("length of a history")
    policy = saga_steps.COMPENSATION_RETRY
    assert (policy.maximum_attempts, policy.maximum_interval) == (0, timedelta(seconds=60))
    assert "without end, at most 60 s apart" in row("a compensation that fails")
