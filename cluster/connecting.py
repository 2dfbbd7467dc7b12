"""What ``Client.connect`` gives: it is awaited, or entered at once."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ..actors.async_blocks import AsyncBlock

C = TypeVar("C", bound=AbstractAsyncContextManager[Any])


class Connecting(AsyncBlock, Coroutine[Any, Any, C]):
    """Awaited it is the client; ``async with`` also closes that at the end of the block."""

    _written = "Client.connect(...)"

    def __init__(self, connect: Coroutine[Any, Any, C]) -> None:
        self._connect = connect

    def __await__(self) -> Generator[Any, Any, C]:
        return self._connect.__await__()

    if not TYPE_CHECKING:

        def __enter__(self) -> Any:
            self._connect.close()  # which nobody will await
            return super().__enter__()

    async def __aenter__(self) -> C:
        self._client = await self._connect
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    def send(self, value: Any, /) -> Any:
        """As of a coroutine, so that a task may run it."""
        return self._connect.send(value)

    def throw(self, *error: Any) -> Any:
        """As of a coroutine."""
        return self._connect.throw(*error)

    def close(self) -> None:
        """As of a coroutine."""
        self._connect.close()
