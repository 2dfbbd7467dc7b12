"""Imports a program's file for its definitions: what would start the program meanwhile is refused."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ..loop_thread import LoopThread

#: What a program of asyncio, anyio or ``everact.blocking`` begins to run by.
_STARTS: tuple[tuple[type[Any], str], ...] = (
    (asyncio.Runner, "run"),
    (asyncio.BaseEventLoop, "run_until_complete"),
    (asyncio.BaseEventLoop, "run_forever"),
    (LoopThread, "start"),
)


class CodeNotFoundError(ValueError):
    """What was named cannot be loaded, or does not hold what the history needs."""


class _StartedError(BaseException):
    """The program starts; nothing in it catches this."""


@contextmanager
def only_importing(said: str) -> Generator[None]:
    """Refuse that the body, an import, starts the program.

    Args:
        said: What is imported, for the message.

    Raises:
        CodeNotFoundError: It does, or it ends the process.
    """
    thread = threading.get_ident()
    is_refused = False

    def refusing(begin: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, *args: Any, **options: Any) -> Any:
            nonlocal is_refused
            if is_refused or threading.get_ident() != thread:  # what is refused still cleans up by its loop
                return begin(self, *args, **options)
            is_refused = True
            for coroutine in args:
                if asyncio.iscoroutine(coroutine):
                    coroutine.close()
            raise _StartedError(_place(sys._getframe(1)))

        return run

    kept = [(owner, name, getattr(owner, name)) for owner, name in _STARTS]
    for owner, name, begin in kept:
        setattr(owner, name, refusing(begin))
    try:
        yield
    except _StartedError as error:
        raise CodeNotFoundError(
            f"{said} starts its program when it is imported ({error}): put that line under "
            f'if __name__ == "__main__":'
        ) from None
    except SystemExit as error:
        place = _place_of(error)
        raise CodeNotFoundError(
            f'{said} ends the process when it is imported ({place}): put that line under if __name__ == "__main__":'
        ) from None
    finally:
        for owner, name, begin in kept:
            setattr(owner, name, begin)


def not_importable(said: str, error: Exception) -> CodeNotFoundError:
    """What to raise for code that cannot be imported: its line and error, without the trace of the import."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        place, what = f"{error.filename}:{error.lineno}", error.msg
    else:
        place, what = _place_of(error), str(error)
    return CodeNotFoundError(f"{said} cannot be imported: {place}: {type(error).__name__}: {what}")


def _place(frame: FrameType | None) -> str:
    """The line of the module that is being imported, as its innermost one."""
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return "somewhere" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _place_of(error: BaseException) -> str:
    """Likewise, of an exception."""
    trace, place = error.__traceback__, "somewhere"
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "<module>":
            place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
