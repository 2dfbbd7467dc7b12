"""``with`` where ``async with`` is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

__all__ = ["AsyncBlock"]


class AsyncBlock:
    """What is entered with ``async with``: a plain ``with`` is refused in words that say so."""

    __slots__ = ()

    #: How it is written, when that is not the class's name.
    _written: ClassVar[str] = ""

    if not TYPE_CHECKING:  # type checkers refuse `with` by themselves, since they see no __enter__

        def __enter__(self) -> Any:
            written = self._written or f"{type(self).__name__}(...)"
            raise TypeError(f"`with {written}` lacks an async: write `async with {written}`, in an async def")

        def __exit__(self, *_error: object) -> None:
            """Python looks for it before it enters."""
