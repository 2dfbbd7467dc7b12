"""Dropping half-finished workflow code: close it here and now, not when the garbage collector comes by."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable
from typing import Any

CLOSE_TRIES = 20
"""How often one coroutine is told to end before it is detached."""

REFUSALS = 100
"""How often a dropped run's code is refused by an exception before its calls just never end."""

_quiet_threads: set[int] = set()
# Coroutines that swallow GeneratorExit cannot be ended. Freeing one would make the interpreter try once
# more, at a moment of its choosing, so they are kept.
_detached: list[Any] = []


class TurnAborted(BaseException):
    """Root of what ends a turn at once: it leaves the loop even when a task raised it.

    Derives from BaseException so that ``except Exception`` in workflow code does not swallow it.
    """


class RunDiscarded(TurnAborted):
    """Raised into code of a run that was dropped from memory, whatever it tries to do."""


def detached_count() -> int:
    """How many coroutines of dropped runs refused to end, since the process started."""
    return len(_detached)


def close_coroutines(coroutines: Iterable[Any]) -> int:
    """Close suspended or unstarted coroutines, on this thread, without warnings.

    Args:
        coroutines: Objects with a ``close()`` like a coroutine's.

    Returns:
        How many refused to end and were detached.

    Raises:
        KeyboardInterrupt: After all are closed, when one came in the meantime.
    """
    interrupted: KeyboardInterrupt | None = None
    stuck = 0
    with _Quiet():
        for coroutine in coroutines:
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
                _detached.append(coroutine)
                stuck += 1
    if interrupted is not None:
        raise interrupted
    return stuck


class _Quiet:
    """No "coroutine ... was never awaited" from this thread: dropped frames hold unstarted coroutines."""

    def __enter__(self) -> None:
        _install()
        _quiet_threads.add(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        _quiet_threads.discard(threading.get_ident())


def _install() -> None:
    # warnings.catch_warnings() would change the filters of all threads, and costs far more.
    stock = warnings._warn_unawaited_coroutine  # type: ignore[attr-defined]
    if getattr(stock, "_everact", False):
        return

    def warn_unawaited_coroutine(coroutine: object) -> None:
        if threading.get_ident() not in _quiet_threads:
            stock(coroutine)

    warn_unawaited_coroutine._everact = True  # type: ignore[attr-defined]
    warnings._warn_unawaited_coroutine = warn_unawaited_coroutine  # type: ignore[attr-defined]
