"""The fields of a workflow object: stored at a step's end, put back in a replay.

They are rebound from their stored form where the code could otherwise tell a replayed run from a live one: who else
holds a field's value (a local variable, another field) holds another object from then on.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, Self, get_args, get_origin, overload

from ..journal.errors import PayloadEncodeError
from ..journal.payloads import Payload, PayloadConverter
from ..journal.type_hints import class_hints
from .errors import RegistrationError
from .typing import R

#: Values that nobody can change, and that are equal only to what is the same in every way.
SCALARS = frozenset([str, int, bool, bytes, type(None)])
_QUALIFIERS = (typing.Final, typing.ClassVar)


class transient(Generic[R]):  # noqa: N801  (a decorator)
    """Declare a method whose result is a field that no checkpoint holds: it is built from the others when asked for.

    For what has no stored form, and for what is quick to derive: an index, a lock, a parsed document. The value is
    kept until the next step begins or ends as a checkpoint; then it is built anew, live as in replay.

        @workflow.transient
        def by_name(self) -> dict[str, Item]:
            return {item.name: item for item in self.items}
    """

    def __init__(self, fn: Callable[[Any], R], /) -> None:
        """Take the method.

        Raises:
            RegistrationError: It is none.
        """
        if not callable(fn) or isinstance(fn, type):
            raise RegistrationError(
                f"@workflow.transient goes on a method that builds the value, not on {fn!r}"
            )
        name = getattr(fn, "__qualname__", repr(fn))
        if inspect.iscoroutinefunction(fn):
            raise RegistrationError(
                f"@workflow.transient: {name} must be a plain 'def': its value is read as a field, without an await"
            )
        try:
            inspect.signature(fn).bind(None)
        except TypeError:
            raise RegistrationError(
                f"@workflow.transient: {name} must take self alone: its value is read as a field, without arguments"
            ) from None
        self._fn = fn
        self.__doc__ = fn.__doc__
        self._name = getattr(fn, "__name__", "")

    def __set_name__(self, owner: type, name: str) -> None:
        """Learn the field's name."""
        self._name = name

    @overload
    def __get__(self, obj: None, owner: type[Any], /) -> Self: ...
    @overload
    def __get__(self, obj: object, owner: type[Any] | None = None, /) -> R: ...
    def __get__(self, obj: Any, owner: type[Any] | None = None, /) -> Any:
        """Build the value, and keep it in the object."""
        if obj is None:
            return self
        value = self._fn(obj)
        vars(obj)[self._name] = value
        return value


class UnstorableFieldError(Exception):
    """A field has no stored form.

    Attributes:
        field: Its name.
        error: Why.
    """

    def __init__(self, field: str, error: PayloadEncodeError) -> None:
        super().__init__(field, error)
        self.field = field
        self.error = error


class Fields(NamedTuple):
    """The fields of an object as they were.

    Attributes:
        scalars: Those whose values nobody can change.
        payloads: The others.
    """

    scalars: dict[str, Any]
    payloads: dict[str, Payload]


class Changes(NamedTuple):
    """What a step has done to the fields.

    Attributes:
        names: Of those it has set or changed.
        payloads: Their values.
        deleted: Names of those it has taken away.
    """

    names: tuple[str, ...]
    payloads: tuple[Payload, ...]
    deleted: tuple[str, ...]


class ObjectFields:
    """The fields of the objects of one class."""

    __slots__ = ("_cls", "_hints", "_slots", "_transients")

    def __init__(self, cls: type[Any]) -> None:
        self._cls = cls
        self._hints: dict[str, Any] = {}
        slots: dict[str, None] = {}
        transients: set[str] = set()
        for base in cls.__mro__:
            own = vars(base).get("__slots__", ())
            for name in [own] if isinstance(own, str) else own:
                if name not in ("__dict__", "__weakref__"):
                    private = name.startswith("__") and not name.endswith("__")
                    slots[f"_{base.__name__.lstrip('_')}{name}" if private else name] = None
            transients.update(name for name, value in vars(base).items() if isinstance(value, transient))
        self._slots = tuple(slots)
        self._transients = frozenset(transients)
        if transients and not cls.__dictoffset__:
            raise RegistrationError(
                f"workflow class {cls.__qualname__} has __slots__ without a __dict__, so @workflow.transient cannot "
                f"keep {', '.join(sorted(transients))}: add '__dict__' to the slots"
            )

    def freeze(self, obj: Any, converter: PayloadConverter) -> Fields:
        """Store all fields, and rebind those that somebody could change.

        Raises:
            UnstorableFieldError: One has no stored form; none is rebound.
        """
        before = Fields({}, {})
        for name, value in self._items(obj):
            if type(value) in SCALARS:
                before.scalars[name] = value
            else:
                before.payloads[name] = self._encode(converter, name, value)
        self._set(obj, converter, before.payloads, before.payloads.values())
        self._drop_transients(obj)
        return before

    def changes(self, obj: Any, converter: PayloadConverter, before: Fields) -> Changes:
        """What is different now.

        Raises:
            UnstorableFieldError: A field has no stored form.
        """
        names: list[str] = []
        payloads: list[Payload] = []
        present = set()
        for name, value in self._items(obj):
            present.add(name)
            if type(value) in SCALARS and name in before.scalars:
                old = before.scalars[name]
                if type(old) is type(value) and old == value:
                    continue
            payload = self._encode(converter, name, value)
            if before.payloads.get(name) != payload:
                names.append(name)
                payloads.append(payload)
        gone = [name for name in (*before.scalars, *before.payloads) if name not in present]
        return Changes(tuple(names), tuple(payloads), tuple(gone))

    def apply(self, obj: Any, converter: PayloadConverter, changes: Changes) -> None:
        """Let an object have the changes, each value as a copy of its own.

        Raises:
            PayloadDecodeError: A stored value does not fit the field's annotation any more.
        """
        self._set(obj, converter, changes.names, changes.payloads)
        for name in changes.deleted:
            self._delete(obj, name)
        self._drop_transients(obj)

    def restore(self, obj: Any, converter: PayloadConverter, before: Fields) -> None:
        """Take back all that was done to the fields since."""
        for name in [name for name, _ in self._items(obj)]:
            if name not in before.scalars and name not in before.payloads:
                self._delete(obj, name)
        for name, value in before.scalars.items():
            self._bind(obj, name, value)
        self._set(obj, converter, before.payloads, before.payloads.values())
        self._drop_transients(obj)

    def _items(self, obj: Any) -> Iterator[tuple[str, Any]]:
        for name in self._slots:
            if hasattr(obj, name):
                yield name, getattr(obj, name)
        for name, value in getattr(obj, "__dict__", {}).items():
            if name not in self._transients:
                yield name, value

    def _set(
        self,
        obj: Any,
        converter: PayloadConverter,
        names: Iterable[str],
        payloads: Iterable[Payload],
    ) -> None:
        found = list(zip(names, payloads, strict=True))
        values = [
            converter.decode(payload, self._hint(name), where=f"field {name!r} of {self._cls.__qualname__}")
            for name, payload in found
        ]
        for (name, _), value in zip(found, values, strict=True):
            self._bind(obj, name, value)

    def _bind(self, obj: Any, name: str, value: Any) -> None:
        if name in self._slots:
            object.__setattr__(obj, name, value)
        else:  # past a __setattr__ or a property of the user's
            vars(obj)[name] = value

    def _delete(self, obj: Any, name: str) -> None:
        if name not in self._slots:
            vars(obj).pop(name, None)
        elif hasattr(obj, name):
            object.__delattr__(obj, name)

    def _drop_transients(self, obj: Any) -> None:
        for name in self._transients:
            vars(obj).pop(name, None)

    def _encode(self, converter: PayloadConverter, name: str, value: Any) -> Payload:
        try:
            return converter.encode(
                value, self._hint(name), where=f"field {name!r} of {self._cls.__qualname__}"
            )
        except PayloadEncodeError as error:
            raise UnstorableFieldError(name, error) from None

    def _hint(self, name: str) -> Any:
        if name not in self._hints:
            hint = class_hints(self._cls, [name])[name]
            while get_origin(hint) in _QUALIFIERS:
                hint = get_args(hint)[0]
            self._hints[name] = hint
        return self._hints[name]
