"""When a run must be awake whether anything comes or not: its timers, its limits, the time at which it is to begin."""

from __future__ import annotations

from . import events as ev
from .fold import RunState


def waits_to_begin(state: RunState) -> bool:
    """Whether its first turn is still to come, at a time of its own that may have passed by now."""
    return state.started.begins_at > 0 and type(state.unread.get(1)) is ev.WorkflowStarted


def is_early(state: RunState, now: int) -> bool:
    """Whether the run waits for a time at which it is to begin."""
    return state.started.begins_at > now and waits_to_begin(state)


def execution_deadline(state: RunState) -> int:
    """When the whole chain must be over, microseconds; 0 for no limit."""
    started = state.started
    if started.chain is not None:
        return started.chain.deadline
    if started.options is None or not started.options.execution_timeout:
        return 0
    return state.started_at + started.options.execution_timeout


def run_deadline(state: RunState) -> int:
    """When this run must be over, microseconds; 0 for no limit, or while it waits for its time to begin."""
    started = state.started
    if started.options is None or not started.options.run_timeout or waits_to_begin(state):
        return 0
    return (started.begins_at or state.started_at) + started.options.run_timeout


def deadline(state: RunState) -> int:
    """The earlier one of both, microseconds; 0 for no limit."""
    started = state.started
    if started.options is None and started.chain is None:
        return 0
    return _earliest(execution_deadline(state), run_deadline(state))


def next_wake(state: RunState) -> int:
    """When the first of its timers, its limits or its time to begin falls due, microseconds; 0 for never."""
    wake = deadline(state)
    if waits_to_begin(state):
        wake = _earliest(wake, state.started.begins_at)
    for timer in state.timers.values():
        wake = _earliest(wake, timer.deadline)
    return wake


def _earliest(one: int, other: int) -> int:
    return min(one, other) if one and other else one or other
