"""Tests of workflows, in seconds and offline, on the engine that runs them in production.

Layout: ``clock`` (virtual time), ``driver`` (when it moves), ``calls`` (what waits for the environment), ``report``
(what holds it still), ``environment`` (the runtime around them); ``mocking``, ``mocks`` and ``outcomes`` (fakes);
``activity_environment`` (one activity alone). ``plugin`` is for pytest, which finds it by itself.
"""

from .activity_environment import ActivityEnvironment
from .clock import VirtualClock
from .environment import RuntimeOptions, TestEnvironment
from .errors import ActivityNotMockedError, NoProgressError
from .mocks import ActivityMock, WorkflowMock
from .outcomes import MockCall

__all__ = [
    "ActivityEnvironment",
    "ActivityMock",
    "ActivityNotMockedError",
    "MockCall",
    "NoProgressError",
    "RuntimeOptions",
    "TestEnvironment",
    "VirtualClock",
    "WorkflowMock",
]
