"""Durable workflows as actors: ordinary async Python that survives ``kill -9``, with no server.

Layers, low to high: journal < supervision < actors < cluster < everact.
"""

import importlib.util as _util

if _util.find_spec(f"{__name__}.actors") is None:
    raise ImportError(
        "this is the folder 'everact' of a checkout, not the installed package: run your program in another directory, "
        "or install the checkout with 'pip install -e .'"
    )

from . import activity, blocking, exceptions, interceptors, payloads, workflow
from ._version import __version__
from .actors.activity_handles import AsyncActivityHandle
from .actors.addresses import Address
from .actors.dead_letters import DeadLetter
from .actors.descriptions import History, HistoryEvent, WorkflowDescription, WorkflowSummary
from .actors.doors import build_doors_with as _build_doors_with
from .actors.errors import ActivityError, ApplicationError, FailureError
from .actors.handles import ActorRef, WorkflowHandle
from .actors.listing import WorkflowListing, WorkflowPage
from .actors.options import RetryPolicy, WatchdogLimits
from .actors.runtime import Runtime
from .actors.step_info import StepInfo
from .actors.updates import UpdateHandle
from .cluster.client import Client
from .cluster.door import open_door as _open_door
from .journal.errors import EveractError

_build_doors_with(_open_door)

__all__ = [
    "ActivityError",
    "ActorRef",
    "Address",
    "ApplicationError",
    "AsyncActivityHandle",
    "Client",
    "DeadLetter",
    "EveractError",
    "FailureError",
    "History",
    "HistoryEvent",
    "RetryPolicy",
    "Runtime",
    "StepInfo",
    "UpdateHandle",
    "WatchdogLimits",
    "WorkflowDescription",
    "WorkflowHandle",
    "WorkflowListing",
    "WorkflowPage",
    "WorkflowSummary",
    "__version__",
    "activity",
    "blocking",
    "exceptions",
    "interceptors",
    "payloads",
    "workflow",
]
