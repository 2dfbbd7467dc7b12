"""What goes wrong inside a value: where, why, and in few words."""

from __future__ import annotations

import dataclasses
from types import CoroutineType
from typing import Any, Literal

_LIMIT = 480
Kind = Literal["mismatch", "unsupported", "data"]


class Trouble(Exception):  # noqa: N818 - never leaves the converter
    """Raised deep in a value; each container on the way out adds its part of the path.

    ``mismatch``: the value is not what the hint says; ``unsupported``: it fits but has no stored
    form (a pickle would help); ``data``: the stored bytes are not what was expected.
    """

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.message = message
        self.parts: list[str] = []

    def at(self, part: str) -> Trouble:
        """Add a step to the path, innermost first."""
        self.parts.append(part)
        return self

    @property
    def path(self) -> str:
        """The path from the whole value, shortened in the middle when it is very long."""
        text = "$" + "".join(reversed(self.parts))
        return text if len(text) <= 200 else f"{text[:90]} ... {text[-90:]}"


def shorten(text: str, limit: int = _LIMIT) -> str:
    """Cut a text to ``limit`` characters, keeping its end too."""
    if len(text) <= limit:
        return text
    half = limit // 2 - 3
    return f"{text[:half]} ... {text[-half:]}"


def glimpse(value: object, limit: int = 60) -> str:
    """The type of a value and the start of its ``repr``."""
    name = type_name(type(value))
    if value is None:
        return "None"
    if (said := unawaited(value)) is not None:
        return said
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a repr is user code
        return name
    return f"{name} {text if len(text) <= limit else text[: limit - 3] + '...'}"


def unawaited(value: object) -> str | None:
    """What to say of a value that has to be awaited first; None of any other."""
    kind = type(value)
    if not hasattr(kind, "__await__"):
        return None
    say = getattr(kind, "_everact_unawaited", None)
    if say is not None:
        return str(say(value))
    if isinstance(value, CoroutineType):
        return f"a call of {value.__qualname__} that was not awaited: write `await {value.__name__}(...)`"
    return f"the awaitable {type_name(kind)}: await it first"


def type_name(cls: type) -> str:
    """A class's name with its module, without the module for builtins."""
    if cls.__module__ == "builtins":
        return cls.__qualname__
    return f"{cls.__module__}.{cls.__qualname__.rpartition('<locals>.')[2]}"


def key_part(key: object) -> str:
    """One step of a path through a mapping."""
    text = repr(key)
    return f"[{text if len(text) <= 40 else text[:37] + '...'}]"


def find_cycle(value: object) -> str | None:
    """The path at which a value contains something that contains it, or None."""
    above: set[int] = set()
    done: set[int] = set()
    stack: list[tuple[object, str, bool]] = [(value, "$", False)]
    while stack:
        item, path, leaving = stack.pop()
        if leaving:
            above.discard(id(item))
            done.add(id(item))
            continue
        if id(item) in above:
            return path
        inside = _inside(item)
        if not inside or id(item) in done:
            continue
        above.add(id(item))
        stack.append((item, path, True))
        stack.extend((child, path + part, False) for part, child in inside)
    return None


def find_surrogate(value: object) -> str | None:
    """The path of the first text that UTF-8 cannot hold, or None."""
    stack: list[tuple[object, str]] = [(value, "$")]
    while stack:
        item, path = stack.pop()
        if isinstance(item, str):
            try:
                item.encode()
            except UnicodeEncodeError:
                return path
        elif isinstance(item, dict):
            for key in item:
                if isinstance(key, str) and find_surrogate(key):
                    return f"{path} (a key)"
        stack.extend((child, path + part) for part, child in reversed(_inside(item)))
    return None


def _inside(value: Any) -> list[tuple[str, object]]:
    if isinstance(value, dict):
        return [(key_part(key), child) for key, child in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(f"[{index}]", child) for index, child in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        names = list(getattr(value, "__struct_fields__", ())) or list(getattr(value, "__dict__", ()))
    return [(f".{name}", getattr(value, name)) for name in names if hasattr(value, name)]
