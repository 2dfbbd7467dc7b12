"""From a type hint to its plan."""

from __future__ import annotations

import contextlib
import enum
import threading
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable
from typing import Any, get_args, get_origin

import msgspec

from .payload_models import is_model, is_pydantic_value, model, pydantic_value
from .payload_plans import Forms, Plan, upgraded
from .payload_records import enumeration, record, shape_of, typed_dict
from .payload_tagged import LEAVES, Tagged, encode_json
from .payload_trouble import Trouble, glimpse, type_name, unawaited
from .payload_unions import union
from .type_converters import TypeConverter, TypeUpgrade
from .type_hints import substitute

_NONE = type(None)
_SCALARS = (_NONE, bool, int, float, str)
_WRAPPERS: tuple[Any, ...] = tuple(
    getattr(typing, name)
    for name in ("Annotated", "Final", "Required", "NotRequired", "ReadOnly", "ClassVar")
    if hasattr(typing, name)
)
_ABSTRACT = frozenset(
    getattr(abc, name)
    for name in (
        "Collection",
        "Container",
        "Iterable",
        "Mapping",
        "MutableMapping",
        "MutableSequence",
        "MutableSet",
        "Reversible",
        "Sequence",
        "Set",
    )
)
_MERGED = (list, set, frozenset, dict)


class _Rest(msgspec.Struct, frozen=True):
    """Stands in a union for the values of an abstract container that are of no concrete one."""

    kind: type


class Planner:
    """Makes and keeps the plan of every hint.

    Plans of recursive types refer to each other: a plan is kept before what is inside it is made.
    """

    def __init__(self, converters: Iterable[TypeConverter[Any] | TypeUpgrade] = ()) -> None:
        self.tagged = Tagged(self._dump_class, self._load_class)
        self.forms = Forms(self.tagged)
        self._lock = threading.RLock()
        self._plans: dict[Any, Plan] = {}
        self._leaves = {leaf.type: leaf for leaf in LEAVES}
        self._names: dict[type, str] = {}
        self._classes: dict[str, type] = {}
        self._converters: dict[type, TypeConverter[Any]] = {}
        self._upgrades: dict[type, TypeUpgrade] = {}
        for converter in converters:
            self._add(converter)

    def _add(self, converter: TypeConverter[Any] | TypeUpgrade) -> None:
        known: dict[type, Any] = self._converters if isinstance(converter, TypeConverter) else self._upgrades
        if not isinstance(converter, TypeConverter | TypeUpgrade):
            raise TypeError(f"converters must be TypeConverter or TypeUpgrade objects, not {converter!r}")
        if converter.cls in known:
            raise ValueError(f"two {type(converter).__name__} objects for {type_name(converter.cls)}")
        known[converter.cls] = converter
        if isinstance(converter, TypeConverter):
            self.register(converter.cls, converter.name)
        else:
            for name in converter.former_names:
                if self._classes.setdefault(name, converter.cls) is not converter.cls:
                    raise ValueError(f"{name!r} is the name of {type_name(self._classes[name])} already")

    def register(self, cls: type, name: str | None = None) -> None:
        """Let a class be stored and read where no hint names it."""
        name = name or cls.__name__
        known = self._classes.get(name)
        if known is not None and known is not cls:
            raise ValueError(
                f"{type_name(known)} is registered as {name!r}; give {type_name(cls)} another name"
            )
        self._classes[name] = cls
        self._names.setdefault(cls, name)

    def plan(self, hint: Any) -> Plan:
        """The plan of a hint, made at the first call."""
        with self._lock:  # A plan is only whole once everything inside it is.
            hint = self._strip(hint)
            try:
                found = self._plans.get(hint)
            except TypeError:  # Something unhashable inside, as in list[Annotated[int, []]].
                found = None
            return self._make(hint) if found is None else found

    def _make(self, hint: Any) -> Plan:
        if hint is Any or hint is object or isinstance(hint, (str, typing.ForwardRef)):
            return self._keep(hint, self.forms.anything("Any"))
        origin, args = get_origin(hint), get_args(hint)
        if origin is typing.Union or origin is types.UnionType:
            return self._union(hint, args)
        if isinstance(hint, _Rest):
            return self._keep(hint, self.forms.other(hint.kind.__name__, _instance_test(hint.kind)))
        if origin is typing.Literal:
            return self._keep(hint, self._literal(args))
        kind = hint if origin is None else origin
        if typing.is_typeddict(kind):
            if any(key[:1] == "$" for key in kind.__annotations__):
                return self._keep(hint, self.forms.other(kind.__name__, _is_dict))
            plan = self._keep(hint, Plan(kind.__name__, (dict,), "o", "." + kind.__name__, _is_dict))
            typed_dict(self.forms, plan, kind, args, self.plan)
            return plan
        if not isinstance(kind, type):
            return self._keep(hint, self.forms.anything(_text(hint)))
        return self._type(hint, kind, args)

    def _strip(self, hint: Any) -> Any:
        """Take off what says nothing about storing: Annotated, NewType, aliases, type variables."""
        while True:
            origin = get_origin(hint)
            if hint is None:
                return _NONE
            if isinstance(hint, typing.NewType):
                hint = hint.__supertype__
            elif isinstance(hint, typing.TypeVar):
                constraints = hint.__constraints__
                hint = typing.Union[constraints] if constraints else (hint.__bound__ or Any)  # noqa: UP007
            elif origin in _WRAPPERS:
                hint = get_args(hint)[0]
            elif (
                type(origin or hint).__name__ == "TypeAliasType"
            ):  # type X = ..., here or in typing_extensions
                alias: Any = origin or hint
                values = dict(zip(alias.__type_params__, get_args(hint), strict=False))
                hint = substitute(alias.__value__, values)
            elif hint is typing.LiteralString:
                hint = str
            else:
                return hint

    def _keep(self, hint: Any, plan: Plan) -> Plan:
        with contextlib.suppress(TypeError):
            self._plans[hint] = plan
        return plan

    def _type(self, hint: Any, kind: type, args: tuple[Any, ...]) -> Plan:
        forms, name = self.forms, _text(hint)
        if kind in self._converters:
            return self._keep(hint, forms.converted(self._converters[kind]))
        if kind in _SCALARS:
            return self._keep(hint, forms.scalar(kind))
        if kind in self._leaves:
            return self._keep(hint, forms.leaf(self._leaves[kind]))
        if kind is list:
            plan = self._keep(hint, Plan(name, (list,), "a", "list"))
            forms.sequence(plan, self.plan(args[0] if args else Any))
        elif kind is dict:
            plan = self._keep(hint, Plan(name, (dict,), "o", "dict"))
            key, item = args if len(args) == 2 else (Any, Any)
            forms.mapping(plan, self.plan(key), self.plan(item))
        elif kind is set or kind is frozenset:
            plan = self._keep(hint, Plan(name, (kind,), "a", kind.__name__))
            forms.hashed(plan, self.plan(args[0] if args else Any), kind)
        elif kind is tuple:
            plan = self._keep(hint, Plan(name, (tuple,), "a", "tuple"))
            if len(args) == 2 and args[1] is Ellipsis:
                forms.variadic_tuple(plan, self.plan(args[0]))
            elif (not args and hint in (tuple, typing.Tuple)) or _has_unpack(args):  # noqa: UP006
                forms.variadic_tuple(plan, self.plan(Any))
            else:
                forms.fixed_tuple(plan, tuple(map(self.plan, args)))
        elif kind in _ABSTRACT:
            plan = self._union(hint, (hint,))
        elif issubclass(kind, enum.Enum):
            plan = self._keep(hint, Plan(kind.__name__, (kind,), "si", "." + kind.__name__))
            enumeration(forms, plan, kind)
        elif is_model(kind):
            plan = self._keep(hint, Plan(kind.__name__, (kind,), "o", "." + kind.__name__))
            model(forms, plan, kind, self.plan)
        elif is_pydantic_value(kind):
            plan = self._keep(hint, Plan(kind.__name__, (kind,), "", "." + kind.__name__))
            pydantic_value(forms, plan, kind)
        else:
            shape = shape_of(kind)
            if shape is None:
                return self._keep(hint, forms.other(name, _instance_test(kind)))
            plan = self._keep(hint, Plan(name, (kind,), "o", "." + kind.__name__))
            record(forms, plan, kind, args=args, shape=shape, plan_of=self.plan)
        if kind in self._upgrades:
            upgraded(plan, self._upgrades[kind])
        return plan

    def _union(self, hint: Any, args: tuple[Any, ...]) -> Plan:
        members = self._merge(self._flat(args))
        if len(members) == 1 or set(map(id, members)) == {id(Any), id(_NONE)}:
            return self._keep(hint, self.plan(Any if Any in members else members[0]))
        plan = self._keep(hint, Plan(_text(hint), (), "", ""))
        union(self.forms, plan, [self.plan(member) for member in members])
        return plan

    def _flat(self, args: tuple[Any, ...]) -> list[Any]:
        """The members of a union, those of unions inside it and the concrete ones of abstract containers."""
        out: list[Any] = []
        for arg in args:
            bare = self._strip(arg)
            origin = get_origin(bare) or bare
            if origin is typing.Union or origin is types.UnionType:
                out += self._flat(get_args(bare))
            elif isinstance(origin, type) and origin in _ABSTRACT:
                out += _concrete(origin, get_args(bare))
            else:
                out.append(bare)
        return out

    def _merge(self, members: list[Any]) -> list[Any]:
        """Join members that no value can tell apart: ``list[A] | list[B]`` is ``list[A | B]``."""
        groups: dict[Any, list[Any]] = {}
        for member in members:
            origin = get_origin(member) or member
            generic = origin in _MERGED or origin is tuple or hasattr(origin, "__parameters__")
            key: Any = origin if generic and isinstance(origin, type) else ("single", len(groups))
            groups.setdefault(key, []).append(member)
        out: list[Any] = []
        for origin, group in groups.items():
            if len(group) == 1:
                out.append(group[0])
            elif origin is tuple:
                out.append(tuple[_any_of([arg for one in group for arg in get_args(one) or (Any,)]), ...])  # type: ignore[misc]
            elif any(not get_args(one) for one in group):
                out.append(origin)
            else:
                columns = zip(*(get_args(one) for one in group), strict=False)
                out.append(origin[tuple(_any_of(list(column)) for column in columns)])
        return out

    def _literal(self, values: tuple[Any, ...]) -> Plan:
        forms: dict[bytes, Any] = {}
        kinds: list[type] = []
        for value in values:
            kind = type(value)
            tree = self.plan(kind).dump(value) if isinstance(value, enum.Enum) else self.tagged.dump(value)
            forms.setdefault(encode_json(tree), value)
            kinds.append(kind)
        trees = [(kind, value, tree) for (tree, value), kind in zip(forms.items(), kinds, strict=False)]
        name = f"Literal[{', '.join(map(repr, values))}]"
        simple = all(kind in (str, int, bool, _NONE) for kind in kinds)
        plan = Plan(name, tuple(dict.fromkeys(kinds)), "sibn" if simple else "", "literal", lambda _: False)

        def dump(value: Any) -> Any:
            for _, known, tree in trees:
                if type(value) is type(known) and value == known:
                    return msgspec.json.decode(tree)
            raise plan.mismatch(value)

        def load(tree: Any) -> Any:
            data = encode_json(tree)
            if data in forms:
                return forms[data]
            if type(tree) is dict and tree.keys() == {"$literal"}:
                return load(tree["$literal"])
            raise Trouble("data", f"expected {name}, got {glimpse(tree)}")

        plan.dump, plan.load = dump, load
        plan.primary = simple
        return plan

    def _dump_class(self, value: Any) -> Any:
        cls = type(value)
        name = self._names.get(cls)
        if name is None:
            if (said := unawaited(value)) is not None:
                raise Trouble("mismatch", f"expected a value, got {said}")
            raise Trouble("unsupported", f"a value of class {type_name(cls)} has no stored form here")
        plan = self.plan(cls)
        if cls not in plan.types:
            raise Trouble("unsupported", f"a value of class {type_name(cls)} has no stored form")
        return {f"$.{name}": plan.dump(value)}

    def _load_class(self, name: str, tree: Any) -> Any:
        cls = self._classes.get(name)
        if cls is None:
            raise Trouble("data", f"holds an instance of {name!r}, which neither hint nor registry knows")
        return self.plan(cls).load(tree)


def _concrete(kind: Any, args: tuple[Any, ...]) -> list[Any]:
    """The concrete containers that an abstract one allows, then the rest of it."""
    item: Any = args[0] if args else Any
    if kind in (abc.Mapping, abc.MutableMapping):
        return [dict.__class_getitem__((item, args[1] if len(args) == 2 else Any)), _Rest(kind)]
    lists, sets = [list[item], tuple[item, ...]], [set[item], frozenset[item]]
    if kind in (abc.Set, abc.MutableSet):
        return [*sets, _Rest(kind)]
    if kind in (abc.Iterable, abc.Collection, abc.Container):
        return [*lists, *sets, _Rest(kind)]
    return [*lists, _Rest(kind)]


def _any_of(hints: list[Any]) -> Any:
    hints = [hint for hint in hints if hint is not Ellipsis]
    return typing.Union[tuple(hints)] if hints else Any  # noqa: UP007


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _has_unpack(args: tuple[Any, ...]) -> bool:
    return any(
        getattr(arg, "__unpacked__", False)
        or get_origin(arg) is typing.Unpack
        or isinstance(arg, typing.TypeVarTuple)
        for arg in args
    )


def _instance_test(kind: type) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        try:
            return isinstance(value, kind)
        except TypeError:  # A protocol that cannot be checked.
            return True

    return test


def _text(hint: Any) -> str:
    """A hint as users write it, without modules."""
    if hint is None or hint is _NONE:
        return "None"
    if isinstance(hint, type) and not get_args(hint):
        return hint.__name__
    origin, args = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(_text(arg) for arg in args)
    if args:
        base = getattr(origin, "__name__", str(origin))
        return f"{base}[{', '.join('...' if arg is Ellipsis else _text(arg) for arg in args)}]"
    return str(getattr(hint, "__name__", None) or hint).replace("typing.", "")
