"""What is wrong with an interceptor, said where it is written: otherwise it shows far from there, or not at all."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

Link = TypeVar("Link")


class KeepsPlain:
    """Base of interceptors: a method that is plain in it is plain in its subclasses too.

    Its caller does not await it: an ``async def`` would run later than it is called, or never.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Look at the methods of a new class.

        Raises:
            TypeError: One is ``async def`` over a plain one.
        """
        super().__init_subclass__(**options)
        for name, member in vars(cls).items():
            if not inspect.iscoroutinefunction(member):
                continue
            inherited = [vars(base)[name] for base in cls.__mro__[1:] if name in vars(base)]
            if inherited and not inspect.iscoroutinefunction(inherited[-1]):
                raise TypeError(
                    f"{cls.__qualname__}.{name} must be a plain 'def', as that of its base is: return what "
                    f"self.next.{name}(...) gives"
                )


def next_link(interceptor: object, place: str, link: Link, kind: type[Any]) -> Link:
    """What an interceptor puts around a link of a chain.

    Raises:
        TypeError: It gives no link.
    """
    found: Link = getattr(interceptor, place)(link)
    if not isinstance(found, kind):
        raise TypeError(
            f"{type(interceptor).__qualname__}.{place} must return a {kind.__name__}, next or one of yours around it, "
            f"not {found!r}"
        )
    return found
