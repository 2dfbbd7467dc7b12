"""An event loop in a thread of its own, for callers that wait for what runs there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

from .actors.context import running_instance
from .actors.errors import RuntimeClosedError
from .actors.event_loop import ForbiddenInWorkflowError

__all__ = ["LoopThread"]

T = TypeVar("T")

#: A waiting thread looks for signals at least this often, in seconds.
LOOK = 0.5


class LoopThread:
    """Runs coroutines for other threads; uvloop's loop where that is installed.

    Args:
        what: What is used through it, for error texts.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._begun = threading.Event()
        # A daemon: a program that forgets to leave ends all the same; what is durable stays so.
        self._thread = threading.Thread(target=self._run, name="everact loop", daemon=True)

    @property
    def is_over(self) -> bool:
        """Whether it was stopped, or has not begun."""
        return self._loop is None

    def start(self) -> None:
        """Begin; returns when the loop runs."""
        self._thread.start()
        self._begun.wait()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._begun.set()
        await self._end.wait()

    def call(self, make: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, **options: Any) -> T:
        """Run a coroutine there and wait for it; a Ctrl-C meanwhile cancels it.

        Raises:
            RuntimeError: The caller has an event loop of its own, which would stand still.
            RuntimeClosedError: The loop has ended, or ends meanwhile.
            Exception: What the coroutine raises.
        """
        self.check()
        loop = self._loop
        if loop is None:
            raise self._over()
        future = asyncio.run_coroutine_threadsafe(make(*args, **options), loop)
        try:
            # A signal that comes just before a thread begins to wait is only seen when it has ended waiting.
            while not future.done():
                with suppress(TimeoutError):  # of the wait; the coroutine's own comes again below
                    return future.result(LOOK)
            return future.result()
        except CancelledError:
            raise self._over() from None
        finally:
            future.cancel()

    def check(self) -> None:
        """Refuse callers that must not wait.

        Raises:
            RuntimeError: The caller has an event loop of its own.
            ForbiddenInWorkflowError: It is workflow code.
        """
        if running_instance() is not None:
            raise ForbiddenInWorkflowError(self._what, "use it in an activity")
        if asyncio._get_running_loop() is not None:
            raise RuntimeError(
                f"{self._what} waits in the thread that calls it, and here an event loop runs, which would stop: "
                f"use everact.Runtime or everact.Client here, with 'async with' and 'await'"
            )

    def _over(self) -> RuntimeClosedError:
        return RuntimeClosedError(f"{self._what} is not open: use it inside its 'with' block")

    def stop(self) -> None:
        """End the loop, and wait for it; a second time does nothing."""
        loop, self._loop = self._loop, None
        if loop is not None and self._end is not None:
            loop.call_soon_threadsafe(self._end.set)
            self._thread.join()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
