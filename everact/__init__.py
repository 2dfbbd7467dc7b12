"""Durable workflows as actors: ordinary async Python that survives ``kill -9``, with no server.

Layers, low to high: journal < supervision < actors < cluster < everact.
"""

import importlib as _importlib
import importlib.util as _util
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _util.find_spec(f"{__name__}.actors") is None:
    raise ImportError(
        "this is the folder 'everact' of a checkout, not the installed package: run your program in another directory, "
        "or install the checkout with 'pip install -e .'"
    )

from ._version import __version__
from ._wiring import builders as _builders

if _TYPE_CHECKING:
    from . import activity, blocking, exceptions, interceptors, payloads, workflow
    from .actors.activity_handles import AsyncActivityHandle
    from .actors.addresses import Address
    from .actors.dead_letters import DeadLetter
    from .actors.descriptions import History, HistoryEvent, WorkflowDescription, WorkflowSummary
    from .actors.errors import ActivityError, ApplicationError, FailureError
    from .actors.handles import ActorRef, WorkflowHandle
    from .actors.listing import WorkflowListing, WorkflowPage
    from .actors.options import RetryPolicy, WatchdogLimits
    from .actors.runtime import Runtime
    from .actors.step_info import StepInfo
    from .actors.updates import UpdateHandle
    from .cluster.client import Client
    from .journal.errors import EveractError

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

#: Where each name is from. It is imported when it is asked for: pytest loads the plugin of this package in every run.
_HOMES = {
    "ActivityError": ".actors.errors",
    "ActorRef": ".actors.handles",
    "Address": ".actors.addresses",
    "ApplicationError": ".actors.errors",
    "AsyncActivityHandle": ".actors.activity_handles",
    "Client": ".cluster.client",
    "DeadLetter": ".actors.dead_letters",
    "EveractError": ".journal.errors",
    "FailureError": ".actors.errors",
    "History": ".actors.descriptions",
    "HistoryEvent": ".actors.descriptions",
    "RetryPolicy": ".actors.options",
    "Runtime": ".actors.runtime",
    "StepInfo": ".actors.step_info",
    "UpdateHandle": ".actors.updates",
    "WatchdogLimits": ".actors.options",
    "WorkflowDescription": ".actors.descriptions",
    "WorkflowHandle": ".actors.handles",
    "WorkflowListing": ".actors.listing",
    "WorkflowPage": ".actors.listing",
    "WorkflowSummary": ".actors.descriptions",
    "activity": ".activity",
    "blocking": ".blocking",
    "exceptions": ".exceptions",
    "interceptors": ".interceptors",
    "payloads": ".payloads",
    "workflow": ".workflow",
}


def __getattr__(name: str) -> _Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _importlib.import_module(_HOMES[name], __name__)
    found = module if _HOMES[name] == f".{name}" else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _open_door(*args: _Any) -> _Any:
    return _importlib.import_module(".cluster.door", __name__).open_door(*args)


_builders["door"] = _open_door
