"""A command on its way through interceptors: what is said of it names the line of the call, not one of theirs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .commands import CommandFuture
from .places import user_place

if TYPE_CHECKING:
    from .workflow_instance import WorkflowInstance

Input = TypeVar("Input")


def intercepted_call(
    host: WorkflowInstance, method: Callable[[Input], Any], call: Input, *, depth: int
) -> Any:
    """Let the outermost interceptor have a call; this is called ``depth`` frames below the user's code."""
    frame = sys._getframe(depth)
    place = user_place() if host.replaying else ""
    future = method(call)
    if isinstance(future, CommandFuture):
        future.place = (frame.f_code, frame.f_lineno)
        if place:
            host.places[future.command] = place
    return future
