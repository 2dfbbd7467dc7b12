"""Tests of workflows, in seconds and offline, on the engine that runs them in production.

Layout: ``clock`` (virtual time), ``driver`` (when it moves), ``calls`` (what waits for the environment), ``report``
(what holds it still), ``environment`` (the runtime around them).
"""

from .clock import VirtualClock
from .environment import RuntimeOptions, TestEnvironment
from .errors import ActivityNotMockedError, NoProgressError
from .mocks import ActivityMock, WorkflowMock
from .outcomes import MockCall

__all__ = [
    "ActivityMock",
    "ActivityNotMockedError",
    "MockCall",
    "NoProgressError",
    "RuntimeOptions",
    "TestEnvironment",
    "VirtualClock",
    "WorkflowMock",
]
