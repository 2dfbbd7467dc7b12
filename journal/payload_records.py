"""How instances of classes with fields are stored: an object of the fields, by name.

Stored fields that the class no longer has are ignored; fields that it has gained take their
default, and are an error without one. An instance is rebuilt without its ``__init__``: fields are
set as stored. A ``__post_init__`` (``__attrs_post_init__``, ``model_post_init``) runs, for what it
keeps outside the fields, and then the stored fields are put back.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import typing
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import msgspec

from .payload_plans import BY_TYPE, Forms, Plan
from .payload_tagged import guarded, tag_of
from .payload_trouble import Trouble, glimpse
from .type_hints import class_hints, unresolved_field

_HEAP_TYPE = 1 << 9
_KINDS_KEPT = 64
PlanOf = Callable[[Any], Plan]
Build = Callable[[dict[str, Any]], Any]


class Shape(msgspec.Struct, frozen=True):
    """The fields of one class.

    Attributes:
        names: The stored fields, in order.
        required: Those that must be there when reading.
        build: Makes an instance of the fields that were stored.
        plain: Whether msgspec reads and writes the same form.
    """

    names: tuple[str, ...]
    required: frozenset[str]
    build: Build
    plain: bool = False


def shape_of(cls: type) -> Shape | None:
    """The fields of a class, or None when it is of no kind that is known here."""
    if issubclass(cls, msgspec.Struct):
        return _struct(cls)
    if issubclass(cls, tuple):
        return _named_tuple(cls)
    if not all(base is object or base.__flags__ & _HEAP_TYPE for base in cls.__mro__):
        return None  # Part of it lives in a builtin base, e.g. a dict or an exception.
    if dataclasses.is_dataclass(cls):
        return _dataclass(cls) if _declares(cls, "__dataclass_fields__") else None
    if hasattr(cls, "__attrs_attrs__"):
        return _attrs(cls) if _declares(cls, "__attrs_attrs__") else None
    return None


def _declares(cls: type, mark: str) -> bool:
    """Whether no undecorated subclass has an ``__init__`` of its own, whose fields nobody knows."""
    for base in cls.__mro__:
        if mark in vars(base):
            return True
        if "__init__" in vars(base):
            return False
    return False


def record(
    forms: Forms, plan: Plan, cls: type, *, args: tuple[Any, ...], shape: Shape, plan_of: PlanOf
) -> None:
    """Fill the plan of a class with fields."""
    hints = class_hints(cls, shape.names, args)
    fields = tuple((name, plan_of(hints[name])) for name in shape.names)
    required, build, title = shape.required, shape.build, cls.__name__

    def dump(value: Any) -> Any:
        if type(value) is not cls:
            return forms.stray(plan, value)
        out: dict[str, Any] = {}
        name = ""
        try:
            for name, field in fields:
                out[name] = field.dump(getattr(value, name, _UNSET))
        except Trouble as trouble:
            if getattr(value, name, _UNSET) is not _UNSET:
                raise _explained(trouble, cls, name).at(f".{name}") from None
            if name in required:
                raise Trouble("mismatch", f"the field {name!r} of {title} has no value") from None
            return {n: f.dump(getattr(value, n)) for n, f in fields if hasattr(value, n)}
        return out

    def load(tree: Any) -> Any:
        if type(tree) is not dict or tag_of(tree):
            return forms.stray_load(plan, tree)
        values: dict[str, Any] = {}
        name = ""
        try:
            for name, field in fields:
                if name in tree:
                    values[name] = field.load(tree[name])
        except Trouble as trouble:
            raise trouble.at(f".{name}") from None
        if len(values) != len(fields):
            missing = sorted(required - values.keys())
            if missing:
                raise Trouble("data", f"missing required field {missing[0]!r} of {title}")
        return guarded(build, title, values)

    plan.dump, plan.load = dump, load
    plan.inside = tuple(field for _, field in fields)
    plan.plain = shape.plain and not args and not getattr(cls, "__parameters__", ())
    if plan.plain:
        plan.exact = _exactness(cls, fields)


class _Unset:
    """Stands for the value of a field that was never set."""


_UNSET = _Unset()


def _exactness(cls: type, fields: tuple[tuple[str, Plan], ...]) -> Callable[[Any], bool]:
    """A quick test whether all fields have exactly the hinted types."""
    if not fields:
        return lambda value: type(value) is cls
    names = [name for name, _ in fields]
    get = attrgetter(*names) if len(names) > 1 else _single(names[0])
    allowed = tuple(frozenset(field.types) for _, field in fields)
    # Where the type alone does not settle it: floats may be nan, containers hold other values.
    deep = tuple(
        (index, math.isfinite if field.types == (float,) else _late(field))
        for index, (_, field) in enumerate(fields)
        if not BY_TYPE.issuperset(field.types) or not field.types
    )
    keep = all(allowed)
    good: set[tuple[type, ...]] = set()

    def exact(value: Any) -> bool:
        if type(value) is not cls:
            return False
        values = get(value)
        kinds = tuple(map(type, values))
        if kinds not in good:
            for kind, types in zip(kinds, allowed, strict=True):
                if types and kind not in types:
                    return False
            if keep and len(good) < _KINDS_KEPT:
                good.add(kinds)
        for index, test in deep:  # noqa: SIM110 - a generator costs as much as the test
            if not test(values[index]):
                return False
        return True

    return exact


def _late(plan: Plan) -> Callable[[Any], bool]:
    return lambda value: plan.exact(value)  # noqa: PLW0108 - of a recursive type it is not made yet


def _single(name: str) -> Callable[[Any], tuple[Any]]:
    return lambda value: (getattr(value, name),)


def _setter(cls: type, post: str, defaults: Callable[[Any, dict[str, Any]], None]) -> Build:
    """Rebuild by setting fields one by one; works for frozen and slotted classes too."""
    put = object.__setattr__
    runs_post = hasattr(cls, post)

    def build(values: dict[str, Any]) -> Any:
        made: Any = object.__new__(cls)
        for name, value in values.items():
            put(made, name, value)
        defaults(made, values)
        if runs_post:
            getattr(made, post)()
            for name, value in values.items():
                put(made, name, value)
        return made

    return build


def _dataclass(cls: Any) -> Shape:
    fields = dataclasses.fields(cls)
    has_init_vars = any(
        type(field.type) is dataclasses.InitVar or getattr(field, "_field_type", None) is _INIT_VAR
        for field in cls.__dataclass_fields__.values()
    )
    missing = dataclasses.MISSING

    def defaults(made: Any, values: dict[str, Any]) -> None:
        if len(values) == len(fields):
            return
        for field in fields:
            if field.name not in values:
                if field.default is not missing:
                    object.__setattr__(made, field.name, field.default)
                elif field.default_factory is not missing:
                    object.__setattr__(made, field.name, field.default_factory())

    return Shape(
        names=tuple(field.name for field in fields),
        required=frozenset(
            field.name
            for field in fields
            if field.init and field.default is missing and field.default_factory is missing
        ),
        # With InitVars nobody can call __post_init__ again: what they were is not kept.
        build=_setter(cls, "" if has_init_vars else "__post_init__", defaults),
        plain=not has_init_vars and not hasattr(cls, "__post_init__") and all(field.init for field in fields),
    )


_INIT_VAR = getattr(dataclasses, "_FIELD_INITVAR", None)


def _attrs(cls: Any) -> Shape:
    import attrs  # noqa: PLC0415 - an extra; the class shows that it is installed

    fields = attrs.fields(cls)

    def defaults(made: Any, values: dict[str, Any]) -> None:
        for field in fields:
            if field.name in values or field.default is attrs.NOTHING:
                continue
            default: Any = field.default
            if hasattr(default, "takes_self"):
                default = default.factory(made) if default.takes_self else default.factory()
            object.__setattr__(made, field.name, default)

    return Shape(
        names=tuple(field.name for field in fields),
        required=frozenset(f.name for f in fields if f.init and f.default is attrs.NOTHING),
        build=_setter(cls, "__attrs_post_init__", defaults),
    )


def _struct(cls: Any) -> Shape:
    names: tuple[str, ...] = cls.__struct_fields__
    given = cls.__struct_defaults__
    optional = {
        name
        for name, default in zip(names[len(names) - len(given) :], given, strict=True)
        if default is not msgspec.NODEFAULT
    }
    config = cls.__struct_config__
    runs_post = hasattr(cls, "__post_init__")
    put = msgspec.structs.force_setattr

    def build(values: dict[str, Any]) -> Any:
        made = cls(**values)
        if runs_post:
            for name, value in values.items():
                put(made, name, value)
        return made

    return Shape(
        names=names,
        required=frozenset(names) - optional,
        build=build,
        # Renamed or omitted fields would tie stored data to settings that people change freely.
        plain=not runs_post
        and not config.array_like
        and config.tag is None
        and not config.omit_defaults
        and cls.__struct_encode_fields__ == names,
    )


def _named_tuple(cls: Any) -> Shape | None:
    names = getattr(cls, "_fields", None)
    if not isinstance(names, tuple):
        return None
    known: Mapping[str, Any] = getattr(cls, "_field_defaults", {})
    new = tuple.__new__

    def build(values: dict[str, Any]) -> Any:
        return new(cls, [values[name] if name in values else known[name] for name in names])

    return Shape(names=names, required=frozenset(names) - frozenset(known), build=build)


def enumeration(forms: Forms, plan: Plan, cls: type[enum.Enum]) -> None:
    """Fill the plan of an enum: by value where that is text or an int, else by name."""
    flag = issubclass(cls, enum.Flag)
    by_member: dict[Any, Any] = {}
    for member in cls:
        simple = type(member.value) in (str, int)
        by_member[member] = member.value if simple else {"$name": member.name}
    if any(type(tree) is dict for tree in by_member.values()):
        plan.shapes = ""

    def dump(value: Any) -> Any:
        if type(value) is not cls:
            return forms.stray(plan, value)
        return value.value if flag else by_member[value]

    def load(tree: Any) -> Any:
        kind = type(tree)
        if kind is str or kind is int:
            try:
                return cls(tree)
            except ValueError:
                raise Trouble("data", f"{glimpse(tree)} is not a value of {cls.__name__}") from None
        if tag_of(tree) == "$name":
            try:
                return cls[tree["$name"]]
            except (KeyError, TypeError):
                raise Trouble("data", f"{glimpse(tree['$name'])} is not a name in {cls.__name__}") from None
        return forms.stray_load(plan, tree)

    plan.dump, plan.load = dump, load


def _explained(trouble: Trouble, cls: type, name: str) -> Trouble:
    """Say so if a value has no stored form because the annotation of its field means nothing."""
    text = unresolved_field(cls, name) if trouble.kind == "unsupported" else None
    if text is not None and "could not be resolved" not in trouble.message:
        trouble.message += (
            f"; the annotation {text!r} of {cls.__name__}.{name} could not be resolved: define or import what it "
            f"names at the top of the module (not in a function, not under TYPE_CHECKING)"
        )
    return trouble


def typed_dict(forms: Forms, plan: Plan, cls: Any, args: tuple[Any, ...], plan_of: PlanOf) -> None:
    """Fill the plan of a TypedDict; keys it does not have are refused when writing."""
    names = tuple(cls.__required_keys__ | cls.__optional_keys__)
    hints = class_hints(cls, names, args)
    fields = {name: plan_of(hints[name]) for name in names}
    required: frozenset[str] = cls.__required_keys__
    unknown = forms.other(f"only the keys of {cls.__name__}", lambda _: False)

    def dump(value: Any) -> Any:
        if type(value) is not dict:
            return forms.stray(plan, value)
        _check(required - value.keys(), "mismatch")
        out: dict[str, Any] = {}
        key: Any = None
        try:
            for key, item in value.items():
                out[key] = (fields.get(key, unknown) if type(key) is str else unknown).dump(item)
        except Trouble as trouble:
            raise trouble.at(f"[{key!r}]") from None
        return out

    def _check(missing: typing.AbstractSet[str], kind: typing.Literal["mismatch", "data"]) -> None:
        if missing:
            raise Trouble(kind, f"missing required key {min(missing)!r} of {cls.__name__}")

    def load(tree: Any) -> Any:
        if type(tree) is not dict or tag_of(tree):
            return forms.stray_load(plan, tree)
        _check(required - tree.keys(), "data")
        out: dict[str, Any] = {}
        key = ""
        try:
            for key, item in tree.items():
                if key in fields:
                    out[key] = fields[key].load(item)
        except Trouble as trouble:
            raise trouble.at(f"[{key!r}]") from None
        return out

    plan.dump, plan.load = dump, load
