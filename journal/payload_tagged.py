"""The tagged form: values that say themselves what they are, for where no hint does.

A JSON object with the single key ``"$<kind>"`` is a tagged value: ``{"$tuple": [1, 2]}``. The kinds
are fixed here and never change once stored; ``"$.<Name>"`` is a class that a hint or the registry
knows, and ``"$"`` alone holds a value in tagged form where a hint would have said something else.
A dict whose single key begins with ``$`` is written as ``{"$dict": [[key, value]]}``.
"""

from __future__ import annotations

import binascii
import collections
import math
import pathlib
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from .payload_trouble import Trouble, glimpse, key_part

Walk = Callable[[Any], Any]
encode_json = msgspec.json.Encoder().encode

_SCALARS = frozenset([int, str, bool, type(None)])
_TEXT = frozenset([str])
# CPython refuses to print longer ints in decimal (sys.get_int_max_str_digits() is at least 640).
_INT_BITS = 2000


class Leaf(msgspec.Struct, frozen=True):
    """A builtin kind whose stored form holds no other values.

    Attributes:
        label: Its tag, stored.
        type: The exact type of its values.
        dump: Value to JSON form.
        load: JSON form to value; raises on anything else.
        shape: The JSON type of the form: ``s`` text, ``a`` array.
    """

    label: str
    type: type
    dump: Walk
    load: Walk
    shape: str = "s"


def tag_of(tree: Any) -> str | None:
    """The tag of a JSON form that is a tagged value, with its ``$``."""
    if type(tree) is dict and len(tree) == 1:
        (key,) = tree
        if key[:1] == "$":
            return str(key)
    return None


def dump_int(value: int) -> Any:
    """An int of any size; a very long one in hexadecimal, which has no limit on digits."""
    return value if value.bit_length() <= _INT_BITS else {"$int": hex(value)}


def dump_float(value: float) -> Any:
    """A float; those that JSON lacks by their name."""
    return value if math.isfinite(value) else {"$float": repr(value)}


def is_plain(value: Any) -> bool:
    """Whether JSON alone gives a value back exactly, deeply."""
    kind = type(value)
    if kind is dict:
        if not _TEXT.issuperset(map(type, value)) or (len(value) == 1 and next(iter(value))[:1] == "$"):
            return False
        items: Iterable[Any] = value.values()
    elif kind is list:
        items = value
    else:
        return is_plain_scalar(value)
    return _SCALARS.issuperset(map(type, items)) or all(map(is_plain, items))


def is_plain_scalar(value: Any) -> bool:
    """The same for what holds no other values."""
    kind = type(value)
    return kind in _SCALARS or (kind is float and math.isfinite(value))


def dump_each(dump: Walk, values: Iterable[Any]) -> list[Any]:
    """Dump the items of a sequence; errors name the position."""
    out: list[Any] = []
    try:
        for value in values:
            out.append(dump(value))  # noqa: PERF401 - the length is the failing position
    except Trouble as trouble:
        raise trouble.at(f"[{len(out)}]") from None
    return out


load_each = dump_each


def dump_set(dump: Walk, values: Iterable[Any]) -> list[Any]:
    """Dump a set in the order of the encoded items, the same under every hash seed."""
    trees: list[Any] = []
    for value in values:
        try:
            trees.append(dump(value))
        except Trouble as trouble:
            raise trouble.at(f"{{{glimpse(value, 30)}}}") from None
    return sorted(trees, key=encode_json)


def dump_pairs(dump_key: Walk, dump: Walk, values: dict[Any, Any]) -> list[Any]:
    """Dump a mapping with keys of any kind, in its order."""
    out: list[Any] = []
    for key, value in values.items():
        try:
            out.append([dump_key(key), dump(value)])
        except Trouble as trouble:
            raise trouble.at(key_part(key)) from None
    return out


def dump_object(dump: Walk, values: dict[str, Any]) -> dict[str, Any]:
    """Dump a mapping with text keys."""
    out: dict[str, Any] = {}
    key = ""
    try:
        for key, value in values.items():
            out[key] = dump(value)
    except Trouble as trouble:
        raise trouble.at(key_part(key)) from None
    return out


def load_pairs(load_key: Walk, load: Walk, tree: Any) -> dict[Any, Any]:
    """Load what ``dump_pairs`` or ``dump_object`` wrote."""
    pairs: Iterable[Any] = tree.items() if type(tree) is dict else expect_list(tree, "pairs of a dict")
    out: dict[Any, Any] = {}
    for pair in pairs:
        if type(pair) not in (list, tuple) or len(pair) != 2:
            raise Trouble("data", f"expected a pair of key and value, got {glimpse(pair)}")
        try:
            out[load_key(pair[0])] = load(pair[1])
        except Trouble as trouble:
            raise trouble.at(key_part(pair[0])) from None
        except TypeError:
            raise Trouble("data", f"the key {glimpse(pair[0])} cannot be a key of a dict") from None
    return out


def load_hashed(make: Callable[[list[Any]], Any], load: Walk, tree: Any) -> Any:
    """Load a set or frozenset."""
    items: list[Any] = []
    try:
        for item in expect_list(tree, make.__name__):
            items.append(load(item))  # noqa: PERF401 - the length is the failing position
    except Trouble as trouble:
        raise trouble.at(f"[{len(items)}]") from None
    try:
        return make(items)
    except TypeError as error:
        raise Trouble("data", f"items of a {make.__name__} cannot be hashed: {error}") from None


def expect_list(tree: Any, what: str) -> list[Any]:
    """A JSON array, or Trouble."""
    if type(tree) is not list:
        raise Trouble("data", f"expected {what}, got {glimpse(tree)}")
    return tree


class Tagged:
    """Dumps and loads values without a hint.

    Args:
        dump_class: Dumps an instance of a registered class to ``{"$.Name": ...}``; raises Trouble for others.
        load_class: Loads a registered class from its name and form.
    """

    def __init__(self, dump_class: Walk, load_class: Callable[[str, Any], Any]) -> None:
        self._dump_class = dump_class
        self._load_class = load_class
        self._dumps: dict[type, Walk] = {
            type(None): _same,
            bool: _same,
            str: _same,
            int: dump_int,
            float: dump_float,
            list: lambda v: v if is_plain(v) else dump_each(self.dump, v),
            dict: self._dump_dict,
            tuple: lambda v: {"$tuple": dump_each(self.dump, v)},
            set: lambda v: {"$set": dump_set(self.dump, v)},
            frozenset: lambda v: {"$frozenset": dump_set(self.dump, v)},
            collections.deque: lambda v: {"$deque": [v.maxlen, dump_each(self.dump, v)]},
            collections.OrderedDict: lambda v: {"$odict": dump_pairs(self.dump, self.dump, v)},
            collections.Counter: lambda v: {"$counter": dump_pairs(self.dump, self.dump, v)},
        }
        self._nested: dict[str, Walk] = {
            "$dict": lambda t: load_pairs(self.load, self.load, t),
            "$tuple": lambda t: tuple(load_each(self.load, expect_list(t, "tuple"))),
            "$set": lambda t: load_hashed(set, self.load, t),
            "$frozenset": lambda t: load_hashed(frozenset, self.load, t),
            "$deque": lambda t: collections.deque(load_each(self.load, expect_list(t[1], "deque")), t[0]),
            "$odict": lambda t: collections.OrderedDict(load_pairs(self.load, self.load, t)),
            "$counter": lambda t: collections.Counter(load_pairs(self.load, self.load, t)),
        }
        self._loads: dict[str, Walk] = {
            **self._nested,
            "$": self.load,
            "$int": lambda t: int(t, 16),
            "$float": load_special_float,
        }
        for leaf in LEAVES:
            self._dumps[leaf.type] = _tagger(leaf)
            self._loads["$" + leaf.label] = leaf.load

    def dump(self, value: Any) -> Any:
        """The JSON form of a value."""
        dump = self._dumps.get(type(value))
        return self._dump_class(value) if dump is None else dump(value)

    def load(self, tree: Any) -> Any:
        """The value of a JSON form."""
        kind = type(tree)
        if kind is list:
            return load_each(self.load, tree)
        if kind is not dict:
            return tree
        tag = tag_of(tree)
        if tag is None:
            return load_pairs(_same, self.load, tree)
        nested = self._nested.get(tag)
        if nested is None:
            return self.load_tag(tag, tree[tag])
        try:
            return nested(
                tree[tag]
            )  # Not through load_tag: reading must not need more stack than writing did.
        except (TypeError, ValueError, LookupError) as error:
            raise Trouble("data", f"not a stored {tag[1:]}: {glimpse(tree[tag])} ({error})") from None

    def load_tag(self, tag: str, inner: Any) -> Any:
        """The value under a tag."""
        if tag.startswith("$."):
            return self._load_class(tag[2:], inner)
        load = self._loads.get(tag)
        if load is None:
            raise Trouble("data", f"unknown kind {glimpse(tag)}")
        return guarded(load, tag[1:], inner)

    def knows(self, kind: type) -> bool:
        """Whether values of exactly this type have a tagged form of their own."""
        return kind in self._dumps

    def _dump_dict(self, value: dict[Any, Any]) -> Any:
        if is_plain(value):
            return value
        if _TEXT.issuperset(map(type, value)) and not (len(value) == 1 and next(iter(value))[:1] == "$"):
            return dump_object(self.dump, value)
        return {"$dict": dump_pairs(self.dump, self.dump, value)}


def guarded(load: Walk, what: str, tree: Any) -> Any:
    """Call a loader; whatever it raises on a wrong form becomes Trouble."""
    try:
        return load(tree)
    except Trouble:
        raise
    except RecursionError:
        raise
    except Exception as error:  # noqa: BLE001 - parsers raise many kinds on bad text
        raise Trouble("data", f"not a stored {what}: {glimpse(tree)} ({type(error).__name__})") from None


def load_special_float(tree: Any) -> float:
    """One of the floats that JSON lacks."""
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[tree]


def _same(value: Any) -> Any:
    return value


def _tagger(leaf: Leaf) -> Walk:
    key, dump = "$" + leaf.label, leaf.dump
    return lambda value: {key: dump(value)}


def _dump_bytes(value: bytes | bytearray) -> str:
    return binascii.b2a_base64(value, newline=False).decode()


def _load_bytes(tree: str) -> bytes:
    return binascii.a2b_base64(tree.encode(), strict_mode=True) if tree else b""


def _dump_moment(value: datetime | time) -> str:
    """ISO 8601, then in brackets as in RFC 9557 what it cannot say: zone, name of a fixed offset, fold."""
    zone = value.tzinfo
    text = value.isoformat()
    if zone is not None:
        if type(zone) is ZoneInfo:
            if zone.key is None:
                raise Trouble("unsupported", "a ZoneInfo without a key has no stored form: use ZoneInfo(key)")
            text += f"[{zone.key}]"
        elif type(zone) is not timezone:
            raise Trouble(
                "unsupported",
                f"a time zone of class {type(zone).__module__}.{type(zone).__qualname__} has no stored form: "
                "use zoneinfo.ZoneInfo or datetime.timezone",
            )
        else:
            offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]  # what pickle uses
            if offset.microseconds:  # fromisoformat takes an offset below a second for UTC
                text += f"[_offset={offset // timedelta(microseconds=1)}]"
            if name:
                if "[" in name[0] or "]" in name[0]:
                    raise Trouble("unsupported", f"the name of the time zone {zone!r} has no stored form")
                text += f"[_name={name[0]}]"
    return text + "[_fold=1]" if value.fold else text


def _load_moment(kind: type[datetime | time], text: str) -> Any:
    stamp, *marks = text.replace("]", "").split("[")
    value = kind.fromisoformat(stamp)
    changes: dict[str, Any] = {}
    for mark in marks:
        if mark == "_fold=1":
            changes["fold"] = 1
        elif mark.startswith("_offset="):
            changes["tzinfo"] = timezone(timedelta(microseconds=int(mark[8:])))
        elif mark.startswith("_name="):
            zone = changes.get("tzinfo")
            offset = value.utcoffset() if zone is None else zone.utcoffset(None)
            if offset is None:
                raise ValueError(text)
            changes["tzinfo"] = timezone(offset, mark[6:])
        else:
            changes["tzinfo"] = ZoneInfo(mark)
    return value.replace(**changes) if changes else value


def _load_decimal(tree: str) -> Decimal:
    if type(tree) is not str:
        raise TypeError(tree)
    try:
        return Decimal(tree)
    except InvalidOperation:
        raise ValueError(tree) from None


def _path(kind: type[pathlib.PurePath]) -> Walk:
    return lambda tree: kind(tree)  # noqa: PLW0108 - the class itself would be tried on any form


def _zone_key(value: ZoneInfo) -> str:
    if value.key is None:
        raise Trouble("unsupported", "a ZoneInfo without a key has no stored form: use ZoneInfo(key)")
    return value.key


LEAVES: tuple[Leaf, ...] = (
    Leaf("bytes", bytes, _dump_bytes, _load_bytes),
    Leaf("bytearray", bytearray, _dump_bytes, lambda t: bytearray(_load_bytes(t))),
    Leaf("datetime", datetime, _dump_moment, lambda t: _load_moment(datetime, t)),
    Leaf("date", date, date.isoformat, date.fromisoformat),
    Leaf("time", time, _dump_moment, lambda t: _load_moment(time, t)),
    Leaf("timedelta", timedelta, msgspec.to_builtins, lambda t: msgspec.convert(t, timedelta)),
    Leaf("uuid", UUID, str, UUID),
    Leaf("decimal", Decimal, str, _load_decimal),
    # The concrete class of this platform; a path stored on another one is read as a local path.
    Leaf("path", type(pathlib.Path()), str, pathlib.Path),
    Leaf("posixpath", pathlib.PurePosixPath, str, _path(pathlib.PurePosixPath)),
    Leaf("windowspath", pathlib.PureWindowsPath, str, _path(pathlib.PureWindowsPath)),
    Leaf("zone", ZoneInfo, _zone_key, ZoneInfo),
    Leaf(
        "fraction",
        Fraction,
        lambda v: [hex(v.numerator), hex(v.denominator)],
        lambda t: Fraction(int(t[0], 16), int(t[1], 16)),
        "a",
    ),
    Leaf(
        "complex",
        complex,
        lambda v: [repr(v.real), repr(v.imag)],
        lambda t: complex(float(t[0]), float(t[1])),
        "a",
    ),
    Leaf(
        "range",
        range,
        lambda v: [hex(v.start), hex(v.stop), hex(v.step)],
        lambda t: range(*(int(part, 16) for part in t)),
        "a",
    ),
)
