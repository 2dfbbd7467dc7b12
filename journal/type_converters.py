"""How values of classes that are unknown to Everact are stored, and how old stored values become new ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class TypeConverter(Generic[T]):
    """Stores a class's values, where a hint names the class and where none does, nested ones included.

    Attributes:
        cls: The class; values of its subclasses need converters of their own.
        store: Makes of a value what can be stored without a hint: None, bool, int, float, str, bytes, list, dict,
            datetime, Decimal, UUID and their like. It must not change the value.
        load: Makes a value again of what ``store`` gave.
        name: Stands for the class where no hint does; default the class's own name. Never change it once stored.
    """

    cls: type[T]
    store: Callable[[T], Any]
    load: Callable[[Any], T]
    name: str = ""

    def __post_init__(self) -> None:
        _check_class("TypeConverter", self.cls)
        for word in ("store", "load"):
            if not callable(getattr(self, word)):
                raise TypeError(f"TypeConverter({self.cls.__name__}): {word} must be a function")


@dataclass(frozen=True)
class TypeUpgrade:
    """Reads what older versions of a class have stored.

    Attributes:
        cls: The class as it is now: a dataclass, Struct, attrs class, pydantic model, NamedTuple or enum.
        upgrade: Gets the stored form (of a class with fields a dict of them, as plain JSON) and returns the form that
            the class has now. New values pass it too, so it looks before it changes anything.
        former_names: Names that the class had when values were stored in unions, or where no hint named it.
    """

    cls: type[Any]
    upgrade: Callable[[Any], Any] = lambda tree: tree
    former_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_class("TypeUpgrade", self.cls)
        if not callable(self.upgrade):
            raise TypeError(f"TypeUpgrade({self.cls.__name__}): upgrade must be a function")
        names: object = self.former_names
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in self.former_names):
            raise TypeError(f"TypeUpgrade({self.cls.__name__}): former_names must be a tuple of names")


def _check_class(what: str, cls: object) -> None:
    if not isinstance(cls, type):
        raise TypeError(f"{what} needs a class, not {cls!r}")
    if cls.__module__ == "builtins":
        raise TypeError(f"{what}({cls.__name__}): how Python's own types are stored cannot be changed")
