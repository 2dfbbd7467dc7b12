"""Tests of workflows, in seconds and offline, on the engine that runs them in production.

Layout: ``clock`` (virtual time), ``driver`` (when it moves), ``calls`` (what waits for the environment), ``report``
(what holds it still), ``virtual_runtime`` and ``environment`` (the runtime around them). ``mocking``, ``mocks`` and
``outcomes`` (fakes); ``activity_environment`` (one activity alone). ``faults``, ``crashes`` (an environment dies and
goes on), ``marked_tests`` (at every point in turn, or by chance), ``killed_tests`` (by a real SIGKILL).
``everact.pytest_plugin`` is for pytest, which finds it by itself.

``history_sources``, ``journal_histories`` and ``coded_histories`` read stored histories; ``replayer`` replays them,
``replay_process`` in other processes, whose other end is ``replay_child``; ``replay_report`` says what came of it.
``history_text`` is a history as text; ``history_matchers``, ``event_matchers``, ``saga_assertions`` look into it.
"""

from .activity_environment import ActivityEnvironment
from .clock import VirtualClock
from .crashes import CRASH_POINTS
from .environment import TestEnvironment
from .errors import ActivityNotMockedError, EndlessScheduleError, NoProgressError
from .event_matchers import (
    ActivityCancelled,
    ActivityCancelRequested,
    ActivityCompleted,
    ActivityFailed,
    ActivityScheduled,
    AttemptFailed,
    CancelRequested,
    ChildCompleted,
    ChildFailed,
    ChildScheduled,
    CompensationCompleted,
    CompensationFailed,
    CompensationStarted,
    HandlerFailed,
    SideEffectRecorded,
    SignalReceived,
    SignalSent,
    StepCompleted,
    StepFailed,
    StepStarted,
    TimerCancelled,
    TimerFired,
    TimerStarted,
    UpdateCompleted,
    UpdateFailed,
    UpdateReceived,
    ValuePublished,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowContinuedAsNew,
    WorkflowFailed,
    WorkflowStarted,
    WorkflowTerminated,
    WorkflowTimedOut,
)
from .history_matchers import EventMatcher, HistoryAssertion, assert_history
from .history_text import assert_history_matches, history_text
from .mocks import ActivityMock, WorkflowMock
from .outcomes import MockCall
from .replay_report import ReplayFailure, ReplayReport, ReplayResult
from .replayer import Replayer
from .saga_assertions import assert_compensated, assert_not_compensated
from .virtual_runtime import RuntimeOptions

__all__ = [
    "CRASH_POINTS",
    "ActivityCancelRequested",
    "ActivityCancelled",
    "ActivityCompleted",
    "ActivityEnvironment",
    "ActivityFailed",
    "ActivityMock",
    "ActivityNotMockedError",
    "ActivityScheduled",
    "AttemptFailed",
    "CancelRequested",
    "ChildCompleted",
    "ChildFailed",
    "ChildScheduled",
    "CompensationCompleted",
    "CompensationFailed",
    "CompensationStarted",
    "EndlessScheduleError",
    "EventMatcher",
    "HandlerFailed",
    "HistoryAssertion",
    "MockCall",
    "NoProgressError",
    "ReplayFailure",
    "ReplayReport",
    "ReplayResult",
    "Replayer",
    "RuntimeOptions",
    "SideEffectRecorded",
    "SignalReceived",
    "SignalSent",
    "StepCompleted",
    "StepFailed",
    "StepStarted",
    "TestEnvironment",
    "TimerCancelled",
    "TimerFired",
    "TimerStarted",
    "UpdateCompleted",
    "UpdateFailed",
    "UpdateReceived",
    "ValuePublished",
    "VirtualClock",
    "WorkflowCancelled",
    "WorkflowCompleted",
    "WorkflowContinuedAsNew",
    "WorkflowFailed",
    "WorkflowMock",
    "WorkflowStarted",
    "WorkflowTerminated",
    "WorkflowTimedOut",
    "assert_compensated",
    "assert_history",
    "assert_history_matches",
    "assert_not_compensated",
    "history_text",
]
