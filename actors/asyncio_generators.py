"""Async generators of workflow code: held by their loop, closed by nobody else, never run by the garbage collector."""

from __future__ import annotations

import sys
from asyncio import _get_running_loop
from collections.abc import AsyncGenerator
from typing import Any


def take_generators() -> tuple[Any, Any] | None:
    """From here on, async generators that begin on this thread belong to workflow loops.

    Each turn does it. Who runs many in a row does it around them: the interpreter reports each change to audit hooks.

    Returns:
        What to give back; None when they do already.
    """
    outer = sys.get_asyncgen_hooks()
    if outer.firstiter is _started:
        return None
    sys.set_asyncgen_hooks(_started, _dropped)
    return outer


def give_back_generators(outer: tuple[Any, Any] | None) -> None:
    """Undo ``take_generators()``."""
    if outer is not None:
        sys.set_asyncgen_hooks(*outer)


def _started(generator: AsyncGenerator[Any, Any]) -> None:
    keep = getattr(_get_running_loop(), "keep_generator", None)
    if keep is not None:
        keep(generator)


def _dropped(_generator: AsyncGenerator[Any, Any]) -> None:
    """Do nothing: with a finalizer that does nothing, a suspended generator is freed without running."""


async def close_generator(generator: AsyncGenerator[Any, Any]) -> None:
    """Close it, in a task of its own."""
    await generator.aclose()
