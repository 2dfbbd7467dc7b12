"""Dropping half-finished workflow code: close it here and now, not when the garbage collector comes by."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from ctypes import py_object, pythonapi
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType, GeneratorType
from typing import Any, Self

CLOSE_TRIES = 20
"""How often one coroutine is told to end before it is detached."""

REFUSALS = 100
"""How often a dropped run's code is refused by an exception before its calls just never end."""

_quiet_threads: dict[int, _Quiet] = {}
# Coroutines that swallow GeneratorExit cannot be ended. Freeing one would make the interpreter try once
# more, at a moment of its choosing, so they are kept.
_detached: list[Any] = []


def _detach(coroutine: Any) -> None:
    _detached.append(coroutine)
    # The list is freed when the interpreter exits, and with its modules gone such code would then spin for
    # ever: this reference is never given back.
    pythonapi.Py_IncRef(py_object(coroutine))


class TurnAborted(BaseException):
    """Root of what ends a turn at once: it leaves the loop even when a task raised it.

    Derives from BaseException so that ``except Exception`` in workflow code does not swallow it.
    """


class RunDiscarded(TurnAborted):
    """Raised into code of a run that was dropped from memory, whatever it tries to do."""


class TurnCrashed(TurnAborted):
    """Ends a turn as if its error had left ``run``: for one that no code of the run is to handle.

    Attributes:
        error: What is wrong with the code.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def detached_count() -> int:
    """How many coroutines of dropped runs had to be kept because they refuse to end."""
    return len(_detached)


def close_coroutines(coroutines: Iterable[Any]) -> int:
    """Close suspended or unstarted coroutines, on this thread, without warnings.

    Args:
        coroutines: Objects with a ``close()`` like a coroutine's.

    Returns:
        How many refused to end. A task's outermost coroutine is then detached: kept, never run again.

    Raises:
        KeyboardInterrupt: After all are closed, when one came in the meantime.
    """
    interrupted: KeyboardInterrupt | None = None
    with _Quiet() as quiet:
        for coroutine in coroutines:
            if isinstance(coroutine, CoroutineType) and getcoroutinestate(coroutine) == CORO_CREATED:
                _close_unstarted(coroutine)
                continue
            for _ in range(CLOSE_TRIES):
                try:
                    coroutine.close()
                except KeyboardInterrupt as error:
                    interrupted = error
                except RuntimeError:
                    # Either it waits again instead of ending, or it ended with a RuntimeError of its own:
                    # then the next close() does nothing.
                    continue
                except BaseException:  # noqa: BLE001, S110 - it ended; how is of no interest any more
                    pass
                break
            else:
                _detach(coroutine)
                quiet.stuck += 1
    if interrupted is not None:
        raise interrupted
    return quiet.stuck


def _close_unstarted(coroutine: CoroutineType[Any, Any, Any]) -> None:
    """Close a coroutine that never began, and the unstarted ones among its arguments.

    Since Python 3.12 the arguments live until the coroutine is freed, when this thread may not be quiet any more.
    """
    frame = coroutine.cr_frame
    arguments = list(frame.f_locals.values()) if frame is not None else []
    coroutine.close()
    for argument in arguments:
        for one in argument if isinstance(argument, tuple | list) else (argument,):
            if isinstance(one, CoroutineType) and getcoroutinestate(one) == CORO_CREATED:
                _close_unstarted(one)


class _Quiet:
    """Silences this thread: no "never awaited", no report of a coroutine that would not end.

    Dropped frames hold coroutines that were not started, and inner coroutines that swallow GeneratorExit,
    which the interpreter closes once more and then frees. warnings.catch_warnings() would silence all
    threads, and costs far more.
    """

    _lock = threading.Lock()
    _depth = 0
    _stock_warn: Callable[[object], None]
    _stock_hook: Callable[[Any], object]

    def __init__(self) -> None:
        self.stuck = 0

    def __enter__(self) -> Self:
        with _Quiet._lock:
            if not _Quiet._depth:
                _Quiet._stock_warn = warnings._warn_unawaited_coroutine  # type: ignore[attr-defined]
                _Quiet._stock_hook = sys.unraisablehook
                warnings._warn_unawaited_coroutine = _warn  # type: ignore[attr-defined]
                sys.unraisablehook = _unraisable
            _Quiet._depth += 1
        _quiet_threads[threading.get_ident()] = self
        return self

    def __exit__(self, *_: object) -> None:
        _quiet_threads.pop(threading.get_ident(), None)
        with _Quiet._lock:
            _Quiet._depth -= 1
            if not _Quiet._depth:
                warnings._warn_unawaited_coroutine = _Quiet._stock_warn  # type: ignore[attr-defined]
                sys.unraisablehook = _Quiet._stock_hook


def _warn(coroutine: object) -> None:
    if threading.get_ident() not in _quiet_threads:
        _Quiet._stock_warn(coroutine)


def _unraisable(report: Any) -> None:
    quiet = _quiet_threads.get(threading.get_ident())
    if quiet is None or not isinstance(report.object, (CoroutineType, GeneratorType)):
        _Quiet._stock_hook(report)
    elif isinstance(report.exc_value, RuntimeError):
        quiet.stuck += 1
