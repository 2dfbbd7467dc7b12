"""Something that code is told once, on the loop and in threads: that it is to stop, that the runtime is being left."""

from __future__ import annotations

import asyncio
import threading


class Notice:
    """Begins unset; once it is set, it stays so. ``set`` and ``wait`` belong to the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = threading.Event()
        self._futures: list[asyncio.Future[None]] = []

    @property
    def is_set(self) -> bool:
        """Whether it was set."""
        return self._event.is_set()

    def set(self) -> None:
        """Tell everybody."""
        self._event.set()
        for future in self._futures:
            if not future.done():
                future.set_result(None)
        self._futures.clear()

    async def wait(self) -> None:
        """Wait until it is set."""
        if not self._event.is_set():
            future: asyncio.Future[None] = self._loop.create_future()
            self._futures.append(future)
            try:
                await future
            finally:
                if future in self._futures:
                    self._futures.remove(future)

    def wait_in_thread(self, seconds: float | None) -> bool:
        """Wait in another thread, at most so many seconds; returns whether it is set."""
        return self._event.wait(seconds)
