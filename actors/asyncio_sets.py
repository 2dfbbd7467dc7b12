"""Sets of tasks that keep the order in which tasks were added."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Self, TypeVar

from .asyncio_forbidden import ForbiddenInWorkflowError

T = TypeVar("T")


class OrderedSet(set[T]):
    """A set that iterates and pops in order of insertion.

    A plain ``set`` that is copied into it, or joined with it, is put in order of creation first: see
    ``in_order``. ``set(ordered)`` and C code that asks for a set by type lose the order.
    """

    __slots__ = ("_order",)

    def __init__(self, items: Iterable[T] = ()) -> None:
        # A dict beside the set: C code tests membership in the set itself.
        self._order = dict.fromkeys(in_order(items, "a set of tasks"))
        super().__init__(self._order)

    def __iter__(self) -> Iterator[T]:
        return iter(self._order)

    def __reversed__(self) -> Iterator[T]:
        return reversed(self._order)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._order)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self._order),)

    def add(self, item: T, /) -> None:
        """Add at the end; an item that is there keeps its place."""
        self._order[item] = None
        super().add(item)

    def discard(self, item: Any, /) -> None:
        """Remove an item if it is there."""
        self._order.pop(item, None)
        super().discard(item)

    def remove(self, item: T, /) -> None:
        """Remove an item.

        Raises:
            KeyError: It is not there.
        """
        del self._order[item]
        super().remove(item)

    def pop(self) -> T:
        """Remove and return the oldest item.

        Raises:
            KeyError: The set is empty.
        """
        for item in self._order:
            self.remove(item)
            return item
        raise KeyError("pop from an empty set")

    def clear(self) -> None:
        """Remove all."""
        self._order.clear()
        super().clear()

    def copy(self) -> Self:
        """A set with the same order."""
        return type(self)(self)

    __copy__ = copy

    def _keep(self, kept: Iterable[T]) -> None:
        order = dict.fromkeys(kept)
        self.clear()
        self._order.update(order)
        super().update(order)

    def update(self, *others: Iterable[T]) -> None:
        """Add all of the others."""
        for other in others:
            for item in in_order(other, "set.update"):
                self.add(item)

    def difference_update(self, *others: Iterable[Any]) -> None:
        """Remove all of the others."""
        for other in others:
            for item in list(other):
                self.discard(item)

    def intersection_update(self, *others: Iterable[Any]) -> None:
        """Keep only what is in all of the others."""
        common = set(self).intersection(*others)
        self._keep([item for item in self if item in common])

    def symmetric_difference_update(self, other: Iterable[T], /) -> None:
        """Keep what is in one of the two only; what comes from the other is put at the end."""
        theirs = list(dict.fromkeys(in_order(other, "set.symmetric_difference")))
        there = set(theirs)
        self._keep(
            [item for item in self if item not in there] + [item for item in theirs if item not in self]
        )

    def union(self, *others: Iterable[Any]) -> Any:
        """All items: these first, then the others."""
        result = self.copy()
        result.update(*others)
        return result

    def difference(self, *others: Iterable[Any]) -> Self:
        """The items that are in none of the others."""
        result = self.copy()
        result.difference_update(*others)
        return result

    def intersection(self, *others: Iterable[Any]) -> Self:
        """The items that are in all of the others."""
        result = self.copy()
        result.intersection_update(*others)
        return result

    def symmetric_difference(self, other: Iterable[Any], /) -> Any:
        """The items that are in one of the two only."""
        result = self.copy()
        result.symmetric_difference_update(other)
        return result

    def __or__(self, other: Any) -> Any:
        return self.union(other) if isinstance(other, (set, frozenset)) else NotImplemented

    def __and__(self, other: Any) -> Any:
        return self.intersection(other) if isinstance(other, (set, frozenset)) else NotImplemented

    def __sub__(self, other: Any) -> Any:
        return self.difference(other) if isinstance(other, (set, frozenset)) else NotImplemented

    def __xor__(self, other: Any) -> Any:
        return self.symmetric_difference(other) if isinstance(other, (set, frozenset)) else NotImplemented

    # Python asks the subclass first, also when the plain set is on the left.

    def __ror__(self, other: Any) -> Any:
        return type(self)(other).union(self) if isinstance(other, (set, frozenset)) else NotImplemented

    def __rand__(self, other: Any) -> Any:
        return self & other

    def __rsub__(self, other: Any) -> Any:
        return type(self)(other).difference(self) if isinstance(other, (set, frozenset)) else NotImplemented

    def __rxor__(self, other: Any) -> Any:
        return (
            type(self)(other).symmetric_difference(self)
            if isinstance(other, (set, frozenset))
            else NotImplemented
        )

    def __ior__(self, other: Any) -> Self:  # type: ignore[override]
        self.update(other)
        return self

    def __iand__(self, other: Any) -> Self:
        self.intersection_update(other)
        return self

    def __isub__(self, other: Any) -> Self:
        self.difference_update(other)
        return self

    def __ixor__(self, other: Any) -> Self:  # type: ignore[override]
        self.symmetric_difference_update(other)
        return self


def in_order(items: Iterable[T], call: str) -> list[T]:
    """The items in an order that is the same in each run of the same code, without duplicates.

    A plain set has none of its own (it goes by addresses): tasks come in order of creation, then what has an
    ``_everact_number``, by that number.

    Args:
        items: Any iterable.
        call: What to name in the error.

    Raises:
        ForbiddenInWorkflowError: A plain set with items that have no number, as coroutines.
    """
    if isinstance(items, OrderedSet) or not isinstance(items, (set, frozenset)) or len(items) < 2:
        return list(dict.fromkeys(items))
    numbered = [(_number(item), item) for item in items]
    if any(number is None for number, _ in numbered):
        raise ForbiddenInWorkflowError(
            f"{call} with a set of coroutines or futures",
            "a set's order differs from run to run: pass a list, or tasks made by asyncio.create_task()",
        )
    numbered.sort(key=lambda pair: pair[0] or (0, 0))
    return [item for _, item in numbered]


def _number(item: Any) -> tuple[int, int] | None:
    if isinstance(item, asyncio.Task):
        live: dict[Any, int] = getattr(item.get_loop(), "_tasks", {})
        number = live.get(item)
        if number is not None:
            return 0, number
        kind = 0
    else:
        kind = 1
    number = getattr(item, "_everact_number", None)
    return None if number is None else (kind, number)
