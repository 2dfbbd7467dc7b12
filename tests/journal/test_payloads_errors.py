"""What has no stored form, or stored bytes that do not fit, is refused with place, path and reason."""

import collections
import dataclasses
import enum
import functools
import socket
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from everact.journal.errors import PayloadDecodeError, PayloadEncodeError
from everact.journal.payloads import Payload, PayloadConverter

WHERE = "argument 'order' of workflow OrderWorkflow"


@dataclasses.dataclass
class Item:
    name: str
    price: float = 0.0


@dataclasses.dataclass
class Order:
    items: list[Item]
    by_name: "dict[str, Item] | None" = None


@dataclasses.dataclass
class Derived(Item):
    more: int = 0


class Undeclared(Item):
    def __init__(self):
        super().__init__("a")
        self.secret = 1


class Color(enum.StrEnum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict):
    speed: int


class Secretive(pydantic.BaseModel):
    a: int
    _b: int = 1


class Failing(Exception):
    pass


@dataclasses.dataclass
class Strict:
    n: int

    def __post_init__(self):
        if self.n < 0:
            raise ValueError("negative")


class Zone(tzinfo):
    def utcoffset(self, dt):
        return timedelta(hours=1)

    def tzname(self, dt):
        return "odd"

    def dst(self, dt):
        return None


class Text(str):
    __slots__ = ()


class Numbers(list):
    pass


CONVERTER = PayloadConverter()
LOOP: list[Any] = []
LOOP.append({"x": (LOOP,)})
DEEP: list[Any] = []
for _ in range(3000):
    DEEP = [DEEP]
LOCAL = functools.partial(print)

REFUSED = [
    (int, "x", "$", "expected int, got str 'x'"),
    (int, None, "$", "expected int, got None"),
    (int, 1.0, "$", "expected int, got float 1.0"),
    (str, 1, "$", "expected str, got int 1"),
    (str, b"x", "$", "expected str, got bytes"),
    (bool, 1, "$", "expected bool, got int 1"),
    (float, "1", "$", "expected float, got str"),
    (None, 1, "$", "expected None, got int 1"),
    (int | str, 1.5, "$", "expected int | str, got float 1.5"),
    (datetime, "2024-01-01", "$", "expected datetime, got str"),
    (list[int], [1, "2"], "$[1]", "expected int, got str '2'"),
    (list[int], (1,), "$", "expected list[int], got tuple (1,)"),
    (tuple[int, str], (1,), "$", "expected tuple[int, str], got 1 items"),
    (tuple[int, str], (1, 2), "$[1]", "expected str, got int 2"),
    (tuple[int, ...], (1, "a"), "$[1]", "expected int, got str"),
    (set[int], {"a"}, "${str 'a'}", "expected int, got str 'a'"),
    (dict[str, int], {1: 1}, "$[1]", "expected str, got int 1"),
    (dict[str, int], {"a": "b"}, "$['a']", "expected int, got str 'b'"),
    (Literal["a", 1], True, "$", "expected Literal['a', 1], got bool True"),
    (Item, {"name": "a"}, "$", "expected Item, got dict"),
    (Order, Order([Item("a"), Item("b", "c")]), "$.items[1].price", "expected float, got str 'c'"),
    (Order, Order([], {"k": Item(1)}), "$.by_name['k'].name", "expected str, got int 1"),
    (Point, Point(1, "a"), "$.y", "expected int, got str 'a'"),
    (Options, {"sped": 1}, "$", "missing required key 'speed' of Options"),
    (Options, {"speed": 1, "x": 2}, "$['x']", "expected only the keys of Options, got int 2"),
    (Options, {"speed": "x"}, "$['speed']", "expected int, got str"),
    (Any, [Item("a")], "$[0]", "Item has no stored form here. Annotate it with its class"),
    (dict[str, Any], {"a": {"b": Item("a")}}, "$['a']['b']", "or use Runtime(trust_pickle=True)"),
    (Item, Derived("a"), "$", "Derived has no stored form here; the hint Item does not say this class"),
    (Item | int, Derived("a"), "$", "Derived has no stored form here; the hint Item | int"),
    (Undeclared, Undeclared(), "$", "Undeclared has no stored form"),
    (str, Color.RED, "$", "Color has no stored form here; the hint str does not say this class"),
    (Any, Color.RED, "$", "Color has no stored form here"),
    (int, enum.IntEnum("Num", "A").A, "$", "Num has no stored form here"),
    (str, Text("a"), "$", "Text has no stored form here; the hint str"),
    (Any, Text("a"), "$", "Text has no stored form here"),
    (list[int], Numbers([1]), "$", "Numbers has no stored form here; the hint list[int]"),
    (Any, {Text("k"): 1}, "$['k']", "Text has no stored form here"),
    (Any, [threading.Lock()], "$[0]", "lock has no stored form"),
    (threading.Event, threading.Event(), "$", "Event has no stored form"),
    (Any, (i for i in ()), "$", "generator has no stored form"),
    (Any, lambda: 1, "$", "function has no stored form"),
    (Callable[[], int], LOCAL, "$", "partial has no stored form"),
    (Any, Item, "$", "type has no stored form"),
    (Exception, Failing("x"), "$", "Failing has no stored form"),
    (
        pydantic.SecretStr,
        pydantic.SecretStr("a"),
        "$",
        "pydantic does not store",
    ),
    (Any, {"a": ["ok", "\ud800"]}, "$['a'][1]", "lone surrogate"),
    (str, "\ud800", "$", "lone surrogate"),
    (dict[str, int], {"\ud800": 1}, "$ (a key)", "lone surrogate"),
    (Any, LOOP, "$[0]['x'][0]", "list contains itself"),
    (list[Any], LOOP, "$[0]['x'][0]", "list contains itself"),
    (Any, DEEP, "$", "list is nested too deeply"),
    (datetime, datetime(2024, 1, 1, tzinfo=Zone()), "$", "a time zone of class"),
    (datetime, datetime(2024, 1, 1, tzinfo=timezone(timedelta(0), "[x]")), "$", "the name of the time zone"),
]


@pytest.mark.parametrize(("hint", "value", "path", "text"), REFUSED, ids=range(len(REFUSED)))
def test_a_value_without_a_stored_form_is_refused_at_the_call(hint, value, path, text):
    with pytest.raises(PayloadEncodeError) as caught:
        CONVERTER.encode(value, hint, where=WHERE)
    error = caught.value
    assert text in error.message
    assert (error.path, error.where) == (path, WHERE)
    assert str(error).startswith(WHERE + ": ")
    assert len(error.message) <= 500


UNREADABLE = [
    (int, "json", b'"a"', "$", "expected int, got str 'a'"),
    (int, "json", b"1.5", "$", "expected int, got float"),
    (int, "null", b"", "$", "expected int, got None"),
    (str, "raw", b"abc", "$", "expected str, got bytes"),
    (int, "json", b"", "$", "expected int, got 0 bytes that are not JSON"),
    (Item, "json", b'{"name": "a", "pri', "$", "expected Item, got 18 bytes that are not JSON"),
    (Any, "json", b"\xff\xfe", "$", "expected Any, got 2 bytes that are not JSON"),
    (int, "yaml", b"1", "$", "expected int, got the unknown encoding 'yaml'"),
    (Item, "json", b"{}", "$", "missing required field 'name' of Item"),
    (Item, "json", b"[]", "$", "expected Item, got list []"),
    (Order, "json", b'{"items":[{"name":"a"},{"name":2}]}', "$.items[1].name", "expected str, got int 2"),
    (Order, "json", b'{"items":[],"by_name":{"k":{}}}', "$.by_name['k']", "missing required field 'name'"),
    (Point, "json", b'{"x":1}', "$", "missing required field 'y' of Point"),
    (Options, "json", b"{}", "$", "missing required key 'speed' of Options"),
    (Secretive, "json", b"{}", "$", "missing required field 'a' of Secretive"),
    (Strict, "json", b'{"n":-1}', "$", "not a stored Strict"),
    (Color, "json", b'"green"', "$", "'green' is not a value of Color"),
    (Color, "tagged", b'{"$name":"GREEN"}', "$", "'GREEN' is not a name in Color"),
    (datetime, "json", b'"today"', "$", "not a stored datetime: str 'today'"),
    (datetime, "json", b'"2024-01-01T00:00:00[No/Where]"', "$", "not a stored datetime"),
    (bytes, "json", b'"a"', "$", "not a stored bytes"),
    (Any, "tagged", b'{"$import":"os.system"}', "$", "unknown kind str '$import'"),
    (Any, "tagged", b'{"$.Item":{"name":"a"}}', "$", "'Item', which neither hint nor registry knows"),
    (Any, "tagged", b'{"a":[{"$uuid":"x"}]}', "$['a'][0]", "not a stored uuid"),
    (Any, "tagged", b'{"$set":[[1]]}', "$", "cannot be hashed"),
    (Any, "tagged", b'{"$dict":[[[],1]]}', "$", "cannot be a key"),
    (Any, "tagged", b'{"$dict":[[1]]}', "$", "expected a pair"),
    (Any, "tagged", b'{"$dict":[1]}', "$", "expected a pair"),
    (Any, "tagged", b'{"$deque":[3]}', "$", "not a stored deque: list [3]"),
    (Any, "tagged", b'{"$deque":[-3,[]]}', "$", "not a stored deque"),
    (Any, "tagged", b'{"$tuple":1}', "$", "expected tuple, got int 1"),
    (Any, "tagged", b'{"$int":12}', "$", "not a stored int"),
    (Any, "tagged", b'{"$float":"1.5"}', "$", "not a stored float"),
    (int, "tagged", b'{"$tuple":[1]}', "$", "expected int, got tuple (1,)"),
    (tuple[int], "tagged", b'{"$tuple":["a"]}', "$[0]", "expected int, got str 'a'"),
    (Item | Order, "tagged", b'{"$.Order":{"items":1}}', "$.items", "expected list[Item], got int 1"),
    (Item | int, "json", b'"a"', "$", "expected Item | int, got str 'a'"),
    (Literal["a"], "json", b'"b"', "$", "expected Literal['a'], got str 'b'"),
    (Any, "json", b"[" * 100_000 + b"]" * 100_000, "$", "nested too deeply"),
    (Any, "pickle", b"\x80", "$", "only Runtime(trust_pickle=True) reads it"),
    (list[int], "json", b'["' + b"x" * 5000 + b'"]', "$[0]", "expected int, got str 'xxx"),
]


@pytest.mark.parametrize(("hint", "encoding", "data", "path", "text"), UNREADABLE, ids=range(len(UNREADABLE)))
def test_stored_bytes_that_do_not_fit_are_an_error_with_its_place(hint, encoding, data, path, text):
    with pytest.raises(PayloadDecodeError) as caught:
        CONVERTER.decode(Payload(encoding, data), hint, where=WHERE)
    error = caught.value
    assert text in error.message
    assert (error.path, error.where) == (path, WHERE)
    assert len(str(error)) <= 500


@pytest.mark.parametrize(
    "hint", [int, str, Item, Order, list[Item], Item | None, datetime, Color, Point, Any, set[int]]
)
def test_damaged_bytes_never_raise_anything_else(hint):
    values = {int: 12345, str: "text", Item: Item("a"), Order: Order([Item("a")]), list[Item]: [Item("a")]}
    value = values.get(hint, {"a": [1, (2,)]})
    data = CONVERTER.encode(value, hint if hint in values else Any).data
    for cut in range(len(data)):
        for bad in (data[:cut], data[:cut] + b"\x00" + data[cut + 1 :], data[:cut] + b"[" + data[cut:]):
            try:
                CONVERTER.decode(Payload("json", bad), hint)
                CONVERTER.decode(Payload("tagged", bad), hint)
            except PayloadDecodeError:
                pass


@dataclasses.dataclass
class Link:
    rest: "Link | tuple[Link, ...] | None" = None


@dataclasses.dataclass
class Keyed:
    rest: "dict[int, Keyed]" = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Frozen:
    rest: "frozenset[Frozen]" = frozenset()


NESTS = [
    (Any, lambda v: [v]), (Any, lambda v: (v,)), (Any, lambda v: {1: v}), (Any, lambda v: {"a": v}),
    (Any, lambda v: {(1, frozenset([v])): 1} if not isinstance(v, dict) else frozenset([1])),
    (Any, lambda v: frozenset([v])), (Keyed, lambda v: Keyed({1: v})), (Frozen, lambda v: Frozen(frozenset([v]))),
    (Any, lambda v: collections.deque([v])), (Link, Link), (Link, lambda v: Link((v or Link(),))),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "nest"), NESTS, ids=range(len(NESTS)))
def test_what_could_be_written_can_be_read_from_a_deeper_stack(hint, nest):
    def deeper(levels, payload):
        return deeper(levels - 1, payload) if levels else CONVERTER.decode(payload, hint)

    value, payload, written = None if hint is Any else hint(), None, 0
    for depth in range(1, 600):
        value = nest(value)
        if depth % 25 == 0:
            try:
                payload, written = CONVERTER.encode(value, hint), depth
            except PayloadEncodeError as error:
                assert "nested too deeply" in error.message
                break
    assert written >= 100
    deeper(300, payload)


def test_a_model_with_private_state_of_its_own_is_refused():
    value = Secretive(a=1)
    assert CONVERTER.decode(CONVERTER.encode(value, Secretive), Secretive) == value
    value._b = 2
    with pytest.raises(
        PayloadEncodeError, match="private attributes of Secretive are not stored, and differ"
    ):
        CONVERTER.encode(value, Secretive)


def test_pickle_carries_the_rest_where_it_is_trusted():
    trusting = PayloadConverter(trust_pickle=True)
    number = 3
    payload = trusting.encode(lambda: number + 1)
    assert payload.encoding == "pickle"
    assert trusting.decode(payload)() == 4
    for hint, value in [
        (Any, [Item("a")]),
        (Item, Derived("a", more=2)),
        (str, Color.RED),
        (Any, {Text("k"): 1}),
    ]:
        payload = trusting.encode(value, hint)
        back = trusting.decode(payload, hint)
        assert payload.encoding == "pickle"
        assert back == value
        assert type(back) is type(value)
        with pytest.raises(PayloadDecodeError, match="only Runtime"):
            CONVERTER.decode(payload, hint)
    looped = trusting.decode(trusting.encode(LOOP))
    assert looped[0]["x"][0] is looped
    assert trusting.encode(Item("a"), Item).encoding == "json"


def test_trust_does_not_excuse_a_wrong_type():
    trusting = PayloadConverter(trust_pickle=True)
    with pytest.raises(PayloadEncodeError, match="expected int, got str"):
        trusting.encode("a", int)
    with pytest.raises(PayloadEncodeError, match="cannot be pickled either: TypeError"):
        trusting.encode([threading.Lock()])
    with socket.socket() as opened, pytest.raises(PayloadEncodeError, match="cannot be pickled either"):
        trusting.encode(opened)
    with pytest.raises(PayloadDecodeError, match="the pickle cannot be read"):
        trusting.decode(Payload("pickle", b"\x80\x04"))


def test_data_never_makes_a_class_be_imported(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("import")

    payload = Payload("tagged", b'{"$.antigravity.X":{"$":{"$tuple":[{"$antigravity":1}]}}}')
    for hint in (Any, Item, Item | Order, list[Item], dict[str, Any]):
        CONVERTER.decoder_for(hint)
        with monkeypatch.context() as patch:
            patch.setattr("builtins.__import__", refuse)
            with pytest.raises(PayloadDecodeError):
                CONVERTER.decode(payload, hint)


def test_a_value_that_is_wrong_after_construction_is_refused():
    value = Item("a")
    del value.name
    with pytest.raises(PayloadEncodeError, match="the field 'name' of Item has no value"):
        CONVERTER.encode(value, Item)

    class Struct(msgspec.Struct):
        a: int

    with pytest.raises(PayloadEncodeError, match=r"expected int, got str 'x' \(at \$\.a\)"):
        CONVERTER.encode(Struct("x"), Struct)
