"""How the values of one type hint are stored: a plan for each hint.

A plan leaves out what the hint already says. What is legal under the hint but not exactly of its
type (an int under ``float``, a registered subclass) is kept in tagged form under the key ``"$"``,
so it comes back as it was; anything else is Trouble.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from .payload_tagged import (
    Leaf,
    Tagged,
    Walk,
    dump_each,
    dump_float,
    dump_int,
    dump_object,
    dump_pairs,
    dump_set,
    guarded,
    is_plain,
    load_each,
    load_hashed,
    load_pairs,
    tag_of,
)
from .payload_trouble import Kind, Trouble, glimpse
from .type_converters import TypeConverter, TypeUpgrade

# Of these the type alone says that msgspec stores them exactly.
BY_TYPE = frozenset([int, bool, str, type(None)])
JSON_SHAPES = {type(None): "n", bool: "b", int: "i", float: "f", str: "s", list: "a", dict: "o"}


class Plan:
    """How the values of one hint are stored.

    Attributes:
        name: The hint as users write it.
        label: The tag that tells its values apart in a union.
        types: The exact types that ``dump`` writes without a tag.
        shapes: The JSON types it then writes, letters of ``JSON_SHAPES``.
        primary: Its form is the natural one for these JSON types: never tagged in a union.
        fits: Whether a value is legal under the hint, subclasses included.
        dump: Value to JSON form; raises Trouble.
        load: JSON form to value; raises Trouble.
        exact: Whether msgspec alone would store a value exactly; only asked where ``plain`` is true.
        plain: Whether msgspec reads and writes the same form, the plans inside permitting.
        inside: The plans of the values inside.
        former: Class names under which older data have its tag.
    """

    __slots__ = (
        "dump",
        "exact",
        "fits",
        "former",
        "inside",
        "label",
        "load",
        "name",
        "plain",
        "primary",
        "shapes",
        "types",
    )

    dump: Walk
    load: Walk
    exact: Callable[[Any], bool]

    def __init__(
        self,
        name: str,
        types: tuple[type, ...],
        shapes: str,
        label: str,
        fits: Callable[[Any], bool] | None = None,
    ) -> None:
        self.name = name
        self.label = label
        self.types = types
        self.shapes = shapes
        self.primary = False
        self.fits = fits if fits is not None else (lambda value: isinstance(value, types))
        self.exact = lambda value: False  # noqa: ARG005
        self.plain = False
        self.inside: tuple[Plan, ...] = ()
        self.former: tuple[str, ...] = ()

    def all_plain(self) -> bool:
        """Whether msgspec alone reads and writes this type and all types inside it."""
        seen: set[int] = set()
        todo: list[Plan] = [self]
        while todo:
            plan = todo.pop()
            if id(plan) in seen:
                continue
            if not plan.plain:
                return False
            seen.add(id(plan))
            todo.extend(plan.inside)
        return True

    def mismatch(self, value: object) -> Trouble:
        """The error for a value of another type."""
        return Trouble("mismatch", f"expected {self.name}, got {glimpse(value)}")


class Forms:
    """Builds the plans of all builtin types; classes and unions build on it.

    Args:
        tagged: Writes and reads what a hint does not determine.
    """

    def __init__(self, tagged: Tagged) -> None:
        self.tagged = tagged

    def stray(self, plan: Plan, value: Any) -> Any:
        """Dump a value that is not exactly of the plan's type."""
        if not plan.fits(value):
            raise plan.mismatch(value)
        try:
            return {"$": self.tagged.dump(value)}
        except Trouble as trouble:
            if trouble.kind == "unsupported" and not trouble.parts:
                trouble.message += f"; the hint {plan.name} does not say this class"
            raise

    def stray_load(self, plan: Plan, tree: Any) -> Any:
        """Load a form that is not the plan's own."""
        tag = tag_of(tree)
        if tag is None:
            raise Trouble("data", f"expected {plan.name}, got {glimpse(tree)}")
        inner = tree[tag]
        if plan.label and (tag == "$" + plan.label or tag[2:] in plan.former):
            return plan.load(inner)
        value = self.tagged.load_tag(tag, inner)
        if type(value) in plan.types:
            plan.dump(value)  # It must fit deeply too: list[int] asks more than a list.
        elif not plan.fits(value):
            raise Trouble("data", f"expected {plan.name}, got {glimpse(value)}")
        return value

    def anything(self, name: str) -> Plan:
        """``Any``, ``object`` and whatever says nothing about its values."""
        plan = Plan(name, (), "", "", lambda _: True)
        plan.dump, plan.load = self.tagged.dump, self.tagged.load
        plan.exact, plan.plain = is_plain, True
        return plan

    def other(self, name: str, fits: Callable[[Any], bool]) -> Plan:
        """A hint that limits the values but says nothing about how to store them."""
        plan = Plan(name, (), "", "", fits)

        def dump(value: Any) -> Any:
            if not fits(value):
                raise plan.mismatch(value)
            return self.tagged.dump(value)

        def load(tree: Any) -> Any:
            value = self.tagged.load(tree)
            if not fits(value):
                raise Trouble("data", f"expected {name}, got {glimpse(value)}")
            return value

        plan.dump, plan.load = dump, load
        return plan

    def scalar(self, kind: type) -> Plan:
        """None, bool, int, float or str."""
        shapes = {type(None): "n", bool: "b", int: "ib", float: "f", str: "s"}[kind]
        types = (int, bool) if kind is int else (kind,)
        accepted = (float, int) if kind is float else types
        name = "None" if kind is type(None) else kind.__name__
        plan = Plan(name, types, shapes, "", lambda value: isinstance(value, accepted))
        plan.primary = plan.plain = True
        stray, stray_load = self.stray, self.stray_load

        if kind is int:

            def dump(value: Any) -> Any:
                if type(value) is int:
                    return dump_int(value)
                return value if type(value) is bool else stray(plan, value)
        elif kind is float:

            def dump(value: Any) -> Any:
                return dump_float(value) if type(value) is float else stray(plan, value)
        else:

            def dump(value: Any) -> Any:
                return value if type(value) is kind else stray(plan, value)

        def load(tree: Any) -> Any:
            if type(tree) in types:
                return tree
            if kind is float and type(tree) is int:  # A number written by hand, or by an older hint.
                return guarded(float, "float", tree)
            return stray_load(plan, tree)

        plan.dump, plan.load = dump, load
        if kind is float:
            plan.exact = lambda value: type(value) is float and math.isfinite(value)
        else:
            plan.exact = lambda value: type(value) is kind
        return plan

    def leaf(self, leaf: Leaf) -> Plan:
        """A builtin kind that holds no other values."""
        kind, write, read = leaf.type, leaf.dump, leaf.load
        form = str if leaf.shape == "s" else list
        fits = (lambda value: isinstance(value, (int, float, complex))) if kind is complex else None
        plan = Plan(kind.__name__, (kind,), leaf.shape, leaf.label, fits)

        def dump(value: Any) -> Any:
            return write(value) if type(value) is kind else self.stray(plan, value)

        def load(tree: Any) -> Any:
            return guarded(read, plan.name, tree) if type(tree) is form else self.stray_load(plan, tree)

        plan.dump, plan.load = dump, load
        return plan

    def converted(self, converter: TypeConverter[Any]) -> Plan:
        """A class that has a converter; always tagged in a union."""
        cls, title = converter.cls, converter.cls.__name__
        plan = Plan(title, (cls,), "", f".{converter.name or title}")
        tags = ("$", "$" + plan.label)

        def dump(value: Any) -> Any:
            if type(value) is not cls:
                return self.stray(plan, value)
            try:
                stored = converter.store(value)
            except Exception as error:
                message = f"the converter of {title} could not store it: {type(error).__name__}: {error}"
                raise Trouble("mismatch", message) from error
            return self.tagged.dump(stored)

        def load(tree: Any) -> Any:
            if tag_of(tree) in tags:
                return self.stray_load(plan, tree)
            value = guarded(converter.load, title, self.tagged.load(tree))
            if type(value) is not cls:
                raise Trouble("data", f"the converter of {title} gave {glimpse(value)}")
            return value

        plan.dump, plan.load = dump, load
        return plan

    def sequence(self, plan: Plan, item: Plan) -> None:
        """Fill the plan of ``list[X]``."""

        def dump(value: Any) -> Any:
            if type(value) is list:
                return dump_each(item.dump, value)
            return self.stray(plan, value)

        def load(tree: Any) -> Any:
            return load_each(item.load, tree) if type(tree) is list else self.stray_load(plan, tree)

        plan.dump, plan.load = dump, load
        plan.inside = (item,)
        plan.primary = plan.plain = True
        types = frozenset(item.types) if BY_TYPE.issuperset(item.types) else frozenset()
        plan.exact = lambda value: (
            type(value) is list and (types.issuperset(map(type, value)) or all(map(item.exact, value)))
        )

    def variadic_tuple(self, plan: Plan, item: Plan) -> None:
        """Fill the plan of ``tuple[X, ...]``."""

        def dump(value: Any) -> Any:
            return dump_each(item.dump, value) if type(value) is tuple else self.stray(plan, value)

        def load(tree: Any) -> Any:
            return tuple(load_each(item.load, tree)) if type(tree) is list else self.stray_load(plan, tree)

        plan.dump, plan.load = dump, load
        plan.inside = (item,)
        plan.plain = True
        plan.exact = lambda value: type(value) is tuple and all(map(item.exact, value))

    def fixed_tuple(self, plan: Plan, items: tuple[Plan, ...]) -> None:
        """Fill the plan of ``tuple[A, B]``."""
        size = len(items)

        def each(calls: tuple[Walk, ...], values: Any, kind: Kind) -> list[Any]:
            if len(values) != size:
                raise Trouble(kind, f"expected {plan.name}, got {len(values)} items")
            out: list[Any] = []
            try:
                for call, value in zip(calls, values, strict=True):
                    out.append(call(value))
            except Trouble as trouble:
                raise trouble.at(f"[{len(out)}]") from None
            return out

        def dump(value: Any) -> Any:
            if type(value) is tuple:
                return each(tuple(item.dump for item in items), value, "mismatch")
            return self.stray(plan, value)

        def load(tree: Any) -> Any:
            if type(tree) is list:
                return tuple(each(tuple(item.load for item in items), tree, "data"))
            return self.stray_load(plan, tree)

        plan.dump, plan.load = dump, load
        plan.inside = items
        plan.plain = size > 0
        plan.exact = lambda value: (
            type(value) is tuple
            and len(value) == size
            and all(item.exact(part) for item, part in zip(items, value, strict=True))
        )

    def hashed(self, plan: Plan, item: Plan, make: Any) -> None:
        """Fill the plan of ``set[X]`` or ``frozenset[X]``."""

        def dump(value: Any) -> Any:
            return dump_set(item.dump, value) if type(value) is make else self.stray(plan, value)

        def load(tree: Any) -> Any:
            return load_hashed(make, item.load, tree) if type(tree) is list else self.stray_load(plan, tree)

        plan.dump, plan.load = dump, load
        plan.inside = (item,)

    def mapping(self, plan: Plan, key: Plan, item: Plan) -> None:
        """Fill the plan of ``dict[K, V]``: an object where all keys are text, else pairs."""
        text_keys = frozenset([str])
        may_be_text = key.plain and key.types in ((), (str,))
        reserved = _reserved

        def dump(value: Any) -> Any:
            if type(value) is not dict:
                return self.stray(plan, value)
            if may_be_text and text_keys.issuperset(map(type, value)) and not reserved(value):
                return dump_object(item.dump, value)
            return {"$dict": dump_pairs(key.dump, item.dump, value)}

        def load(tree: Any) -> Any:
            tag = tag_of(tree)
            if tag == "$dict":
                return load_pairs(key.load, item.load, tree[tag])
            if tag is None and type(tree) in (dict, list):
                return load_pairs(key.load, item.load, tree)
            return self.stray_load(plan, tree)

        plan.dump, plan.load = dump, load
        plan.inside = (item,)
        plan.primary = True
        plan.plain = may_be_text
        plan.exact = lambda value: (
            type(value) is dict
            and text_keys.issuperset(map(type, value))
            and not reserved(value)
            and all(map(item.exact, value.values()))
        )


def upgraded(plan: Plan, by: TypeUpgrade) -> None:
    """Let older stored forms of a class through its upgrade."""
    read = plan.load

    def load(tree: Any) -> Any:
        return read(tree if tag_of(tree) else guarded(by.upgrade, plan.name, tree))

    plan.load, plan.plain, plan.former = load, False, by.former_names


def _reserved(value: dict[Any, Any]) -> bool:
    return len(value) == 1 and next(iter(value))[:1] == "$"


def decoder_of(hint: Any) -> Callable[[bytes], Any] | None:
    """A msgspec decoder for a hint whose plans are all plain, or None when msgspec refuses it."""
    try:
        return msgspec.json.Decoder(hint).decode
    except Exception:  # noqa: BLE001 - it evaluates annotations; the own walk answers instead
        return None
