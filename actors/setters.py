"""Handlers that a run sets while it goes on, and which classes do so: signals to these may wait for a handler (R25)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import CodeType
from typing import Any

from .context import current_instance

#: What waits for signals, as a class's code names it.
WAITS = frozenset(["wait_for_signal"])
#: It, and the functions below: a run whose class names any of them may want signals that have no handler yet.
SETTERS = frozenset(["set_signal_handler", "set_query_handler", "set_update_handler"]) | WAITS


def set_signal_handler(name: str | None, handler: Callable[..., Awaitable[None] | None] | None) -> None:
    """Let a function handle the signals of a name from here on.

    Signals of that name that came before are kept, at most 1,000 of a run; they are handled here and now, in order.
    Call it by this name in a method of the workflow class: the class's code says that signals may have to be kept.

    Args:
        name: The signal; None for all names without a handler of their own: the function gets the name and the list
            of the arguments.
        handler: A plain or ``async def`` function, such as a bound method; None takes the handler away.

    Raises:
        RegistrationError: The function does not fit, or no method of the class names this call.
        ReadOnlyError: It is called in a query or a validator.
    """
    current_instance("set_signal_handler()").handlers.set("signal", name, handler)


def set_query_handler(name: str | None, handler: Callable[..., Any] | None) -> None:
    """Let a plain function answer the queries of a name from here on; arguments as ``set_signal_handler``."""
    current_instance("set_query_handler()").handlers.set("query", name, handler)


def set_update_handler(
    name: str | None,
    handler: Callable[..., Any] | None,
    *,
    validator: Callable[..., None] | None = None,
) -> None:
    """Let a function handle the updates of a name from here on; those that came before were refused.

    Args:
        name: As for ``set_signal_handler``.
        handler: A plain or ``async def`` function; None takes the handler away.
        validator: A plain function with the same parameters that refuses an update by raising.

    Raises:
        RegistrationError: As for ``set_signal_handler``.
        ReadOnlyError: It is called in a query or a validator.
    """
    current_instance("set_update_handler()").handlers.set("update", name, handler, validator)


def names_one_of(cls: type[Any], names: frozenset[str]) -> bool:
    """Whether a method of the class, or of a base, names one of these functions."""
    for base in cls.__mro__:
        for attribute in vars(base).values():
            fn = attribute.__func__ if isinstance(attribute, staticmethod | classmethod) else attribute
            if inspect.isfunction(fn) and _names(inspect.unwrap(fn).__code__, names):
                return True
    return False


def _names(code: CodeType, names: frozenset[str]) -> bool:
    if not names.isdisjoint(code.co_names):
        return True
    return any(isinstance(inner, CodeType) and _names(inner, names) for inner in code.co_consts)
