"""What a command says when its value is used before it was awaited."""

from __future__ import annotations

import linecache
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["Unawaited"]


class Unawaited:
    """An awaitable that refuses, in words that help, to be taken for the value that it gives.

    Only what no future can do is refused. ``bool`` is not: ``if future:`` is how code asks whether it has one.
    """

    __slots__ = ()

    def _called(self) -> tuple[str, tuple[CodeType, int], bool]:
        """What was called (``"activity 'charge'"``), code and line of the call, and whether it is awaited."""
        raise NotImplementedError

    def _everact_unawaited(self) -> str:
        """What went wrong, and what to write; the journal's converter asks for it too."""
        label, (code, line), _ = self._called()
        name = label.rpartition(" ")[2].strip("'")
        called = f"{name}(" in linecache.getline(code.co_filename, line)
        remedy = f"write `await {name}(...)`" if called else "put `await` before the call"
        return f"{label} called at {code.co_filename}:{line} was not awaited: {remedy}"

    def __repr__(self) -> str:
        label, (code, line), is_awaited = self._called()
        return f"<{label} called at {code.co_filename}:{line}{'' if is_awaited else ', not awaited'}>"

    def __format__(self, spec: str) -> str:
        """A text with a command that nobody awaits is a mistake; with one that is under way it may be a log line."""
        if self._called()[2]:
            return format(repr(self), spec)
        raise TypeError(self._everact_unawaited())

    def _refuse(self, *_others: Any) -> NoReturn:
        raise TypeError(self._everact_unawaited())

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __neg__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = __int__ = __float__ = _refuse

    if not TYPE_CHECKING:  # for type checkers it has the attributes that it has

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise AttributeError(f"{self._everact_unawaited()}; it has no attribute {name!r} itself")
