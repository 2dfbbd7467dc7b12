"""Updates that were started in another process than their runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ..actors.updates import UpdateHandle


class RemoteUpdateHandle(UpdateHandle[Any]):
    """An ``UpdateHandle`` whose answer is asked for through a connection.

    It is asked for from the first ``done`` or ``result`` on: an update that nobody asks after costs nothing.
    """

    def __init__(self, ask: Callable[[], Awaitable[Any]], *, is_done: bool, **names: str) -> None:
        """See above.

        Args:
            ask: Waits for the answer, and returns or raises it.
            is_done: It is there already.
            **names: As of ``UpdateHandle``.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        super().__init__(answer, self._finish_with, **names)
        self._ask = ask
        self._is_done = is_done
        self._task: asyncio.Task[None] | None = None

    def done(self) -> bool:
        """Whether the answer is there; it is asked for from the first call on."""
        self._begin()
        return self._is_done or self._answer.done()

    async def result(self) -> Any:
        """Wait for what the handler returns; see ``UpdateHandle.result``."""
        self._begin()
        return await super().result()

    async def answered(self) -> None:
        """Wait until it is answered, whatever the answer is."""
        self._begin()
        await asyncio.shield(self._answer)

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._wait(), name=f"update {self.name}")

    async def _wait(self) -> None:
        try:
            answer: tuple[Any, Exception | None] = await self._ask(), None
        except Exception as error:  # noqa: BLE001  (it is raised for whoever asks)
            answer = None, error
        if not self._answer.done():
            self._answer.set_result(answer)

    @staticmethod
    async def _finish_with(answer: tuple[Any, Exception | None]) -> Any:
        value, error = answer
        if error is not None:
            raise error
        return value
