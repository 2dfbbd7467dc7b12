"""What goes in comes back equal and of the same type, or is refused by name."""

import collections
import dataclasses
import enum
import math
import pathlib
import typing
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
)
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest

from everact.journal.errors import PayloadDecodeError, PayloadEncodeError
from everact.journal.payloads import Payload, PayloadConverter

T = TypeVar("T")
OrderId = NewType("OrderId", int)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mood(enum.StrEnum):
    GOOD = "good"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Odd(enum.Enum):
    PAIR = (1, 2)
    HALF = 0.5
    YES = True
    TEXT = "text"


class Point(NamedTuple):
    x: int
    y: float = 0.0


Untyped = collections.namedtuple("Untyped", "a b")


class Options(TypedDict):
    speed: int
    start: NotRequired[date]


@dataclasses.dataclass
class Item:
    name: str
    price: float = 0.0
    count: int = 1
    note: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    id: int
    tags: frozenset[str] = frozenset()
    when: datetime | None = None


@dataclasses.dataclass
class Order:
    id: UUID
    items: list[Item]
    total: Decimal
    by_day: dict[date, list[int]] = dataclasses.field(default_factory=dict)
    color: Color = Color.RED
    payload: bytes = b""
    extra: Any = None


@dataclasses.dataclass
class Derived(Item):
    more: int = 0


@dataclasses.dataclass
class Node:
    value: int
    children: "list[Node]" = dataclasses.field(default_factory=list)
    next: "Node | None" = None


@dataclasses.dataclass
class Box(Generic[T]):
    content: T
    history: list[T] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class DateBox(Box[date]):
    label: str = ""


@dataclasses.dataclass
class Circle:
    size: int


@dataclasses.dataclass
class Square:
    size: int


@dataclasses.dataclass
class Computed:
    base: int
    factor: dataclasses.InitVar[int] = 2
    doubled: int = dataclasses.field(init=False)
    late: int = dataclasses.field(init=False, default=7)

    def __post_init__(self, factor):
        self.doubled = self.base * factor


@dataclasses.dataclass
class Counted:
    n: int

    def __post_init__(self):
        self.n += 1
        self.cache = {"n": self.n}


class Struct(msgspec.Struct):
    id: int
    name: str = "x"


class Renamed(msgspec.Struct, rename="camel", tag=True, omit_defaults=True, array_like=True):
    first_name: str
    born: date | None = None


@attrs.define
class Attrs:
    a: int
    b: list[Color] = attrs.Factory(list)


@attrs.frozen
class AttrsPost:
    a: int
    b: int = attrs.field(init=False)

    def __attrs_post_init__(self):
        object.__setattr__(self, "b", self.a + 1)


class Model(pydantic.BaseModel):
    id: int
    when: datetime | None = None
    items: list[Item] = []


class OpenModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int = pydantic.Field(1, alias="alpha")


class Root(pydantic.RootModel[list[int]]):
    pass


class WithUrl(pydantic.BaseModel):
    url: pydantic.HttpUrl
    private: int = 0
    _p: int = pydantic.PrivateAttr(default_factory=lambda: 5)


@pytest.fixture(scope="module")
def converter():
    return PayloadConverter()


def same(left, right):
    """Equal and of the same type, deeply; nan is like nan."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return math.copysign(1, left) == math.copysign(1, right) and (left == right or left != left)
    if isinstance(left, Decimal):
        return str(left) == str(right)
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            same(a, b) and same(left[a], right[b]) for a, b in zip(left, right, strict=True)
        )
    if isinstance(left, (set, frozenset)):
        order = lambda value: repr((type(value).__name__, value))
        return len(left) == len(right) and all(map(same, sorted(left, key=order), sorted(right, key=order)))
    if isinstance(left, (datetime, time)):
        zones = [getattr(x.tzinfo, "key", None) or (x.tzinfo and x.tzname()) for x in (left, right)]
        wall = [x.replace(tzinfo=None) for x in (left, right)]
        return (
            wall[0] == wall[1]
            and left.fold == right.fold
            and zones[0] == zones[1]
            and type(left.tzinfo) is type(right.tzinfo)
        )
    if isinstance(left, (list, tuple, collections.deque)):
        return len(left) == len(right) and all(map(same, left, right))
    names = [f.name for f in dataclasses.fields(left)] if dataclasses.is_dataclass(left) else []
    names = names or list(getattr(left, "__struct_fields__", ()))
    if names:
        return all(same(getattr(left, name), getattr(right, name)) for name in names)
    return left == right


BERLIN = ZoneInfo("Europe/Berlin")
CHOICES = [
    None, True, False, 0, -1, 2**63, 2**64, -(2**200), 16**3000, 0.0, -0.0, 1.5, 1e300, 1e16, 5e-324,
    math.inf, -math.inf,
    math.nan, "", 'a\x00\u2028😀"\\', b"", b"\x00\xff", bytearray(b"abc"), [], [1, "a", None, 2.5, True],
    [[1], [[]]],
    {}, {"a": 1}, {"$": 1}, {"$tuple": [1]}, {"$dict": []}, {"$a": 1, "b": 2},
    {1: "a", "1": "b", None: 0, 1.5: 2, (1, 2): 3},
    {"a": {"$b": (1,)}}, (), (1,), ((1, "a"), [2]), set(), {1, "a", (1, 2)}, frozenset([frozenset([1]), 2]),
    [math.nan, {"x": math.inf}], {date(2024, 2, 29): 1, UUID(int=5): 2},
    datetime(2024, 1, 1), datetime(2024, 1, 1, 1, 2, 3, 456789), datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
    datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=-3, minutes=30))),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(seconds=30, microseconds=5))),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET")),
    datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN),
    datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN), datetime(2024, 1, 1, fold=1), time(1, 2, 3, 4), time(0),
    time(5, tzinfo=UTC),
    time(5, fold=1, tzinfo=BERLIN), date.min, date.max, timedelta(0), timedelta.max, timedelta.min,
    timedelta(microseconds=-1),
    UUID(int=2**128 - 1), Decimal("1.10"), Decimal("-0"), Decimal("1E+400"), Decimal("NaN"),
    Decimal("sNaN123"),
    Decimal("-Infinity"), pathlib.Path("/a/b"), pathlib.Path(), pathlib.PurePosixPath("a"),
    pathlib.PureWindowsPath("c:\\x"), Fraction(1, 3), Fraction(2**20000, 3), 1 + 2j,
    complex(-0.0, math.nan), range(3),
    range(10, -2**70, -3), BERLIN, collections.deque([1, (2,)], maxlen=3), collections.OrderedDict(b=1, a=2),
    collections.Counter("aab"),
]  # fmt: skip


@pytest.mark.parametrize("value", CHOICES, ids=range(len(CHOICES)))
def test_builtin_kinds_come_back_without_a_hint(converter, value):
    for each in (value, [value], {"k": value}, (value,)):
        payload = converter.encode(each)
        assert same(converter.decode(payload), each), payload


@pytest.mark.parametrize("value", CHOICES, ids=range(len(CHOICES)))
def test_builtin_kinds_come_back_under_their_own_hint(converter, value):
    kind = type(value)
    for hint, each in [
        (kind, value),
        (list[kind], [value]),
        (Optional[kind], value),
        (dict[str, kind], {"k": value}),
    ]:
        payload = converter.encode(each, hint)
        assert same(converter.decode(payload, hint), each), payload


U = UUID(int=1)
HINTED = [
    (int, True), (float, 3), (float, True), (float | None, 3), (complex, 3), (list[float], [1, 2.0]),
    (object, [1]),
    (Any, None), (None, None), (Optional[int], None), (int | str, "1"), (int | str, 1), (bool | int, True),
    (bool | int, 1),
    (int | float, 1), (int | float, 1.0), (datetime | str, "2024-01-01"),
    (datetime | str, datetime(2024, 1, 1)),
    (datetime | date, date(2024, 1, 1)), (datetime | date, datetime(2024, 1, 1)), (bytes | str, b"a"),
    (bytes | str, "YQ=="),
    (bytes | None, b"a"), (list[int] | dict[str, int], {"$a": 1}), (list[int] | list[str], ["a"]),
    (list[int] | list[str], [1]),
    (list[int] | tuple[int, ...], (1,)), (list[int] | tuple[int, ...], [1]),
    (set[int] | frozenset[int], frozenset([1])),
    (tuple[int, str] | tuple[int], (1,)), (dict[str, Item] | dict[str, Frozen], {"a": Frozen(id=1)}),
    (Literal["a", 1, True], True), (Literal["a", 1, True], 1), (Literal["a"] | int, "a"),
    (Literal["a"] | str, "b"),
    (Literal[Color.RED, None], Color.RED), (Literal[b"x"], b"x"), (Annotated[int, "doc", []], 5),
    (list[Annotated[Item, []]], [Item("a")]),
    (OrderId, 5), (T, [1]), (list[T], [{1}]), (Color, Color.RED), (Level, Level.HIGH), (Mood, Mood.GOOD),
    (Access, Access.READ | Access.WRITE),
    (Access, Access(0)), (Odd, Odd.PAIR), (Odd, Odd.HALF), (Odd, Odd.YES), (Odd, Odd.TEXT),
    (Odd | str, "text"), (Odd | str, Odd.TEXT),
    (Odd | None, Odd.PAIR), (dict[Color, int], {Color.RED: 1}), (dict[int, str], {1: "a"}),
    (dict[Level, Point], {Level.LOW: Point(1)}),
    (dict[tuple[int, int], Item], {(1, 2): Item("a")}), (dict[str, Any], {"a": (1,), "b": {1: 2}}),
    (dict, {1: 2}), (list, [(1,)]),
    (tuple, (1, "a")), (tuple[()], ()), (tuple[int, Item], (1, Item("a"))),
    (tuple[Item, ...], (Item("a"),)), (set[Color], set(Color)),
    (Sequence[Item], [Item("a")]), (Sequence[Item], (Item("a"),)), (Sequence[str], "abc"),
    (Sequence[int], range(3)),
    (Iterable[Item], [Item("a")]), (Iterable[Point], {Point(1), Point(2)}),
    (Mapping[str, Item], {"a": Item("b")}),
    (Mapping[int, Item], {1: Item("b")}), (typing.AbstractSet[int], frozenset([1])),
    (typing.Collection[int], {1}), (typing.Hashable, "a"),
    (Sequence[Item] | None, [Item("a")]), (Sequence[Item] | None, (Item("a"),)),
    (Mapping[str, Item] | Sequence[Point], [Point(1)]),
    (Sequence[Item] | list[Point] | int, [Point(1), Item("a")]), (Optional[Any], 3),
    (T | None, (1,)), (Item | Any, Item("a")), (Item | Any, (1,)),
    (Optional[object], None), (Point, Point(1, 2.0)), (Untyped, Untyped(1, (2,))), (Options, {"speed": 1}),
    (Options, {"start": date(2024, 1, 1), "speed": 1}),
    (Options | dict[str, str], {"a": "b"}), (Options | dict[str, str], {"speed": 3}),
    (Item, Item("a", 1.5)), (Item, Item("a", 2)),
    (Item, Item("a", math.nan)), (Item, Item("a", note="x")), (Item, Item("a", count=2**70)),
    (Frozen, Frozen(id=1, when=datetime(2024, 1, 1))),
    (Order, Order(U, [Item("a")], Decimal("1.0"), {date(2024, 1, 1): [1]}, Color.BLUE, b"\x00", (1,))),
    (Derived, Derived("a", more=3)),
    (Item | Derived, Derived("a")), (Item | Derived, Item("a")),
    (Node, Node(1, [Node(2, [Node(3)])], Node(4))), (Node | None, Node(1)),
    (Box[int], Box(1, [2])), (Box[Item], Box(Item("a"))), (Box[Box[date]], Box(Box(date(2024, 1, 1)))),
    (Box, Box((1,))), (DateBox, DateBox(date(2024, 1, 1))),
    (Box[int] | Box[Item], Box(Item("a"))), (Circle | Square, Square(1)),
    (Square | Circle | None, Circle(1)), (list[Circle | Square], [Circle(1), Square(2)]),
    (Circle | dict[str, int], {"size": 1}), (Circle | dict[str, int], Circle(1)),
    (Circle | Struct, Struct(1)), (Computed, Computed(3, 5)),
    (Counted, Counted(1)), (Struct, Struct(1)), (Renamed, Renamed("a", date(2024, 1, 1))),
    (Renamed | Struct, Renamed("a")), (list[Struct], [Struct(1, "b")]),
    (Attrs, Attrs(1, [Color.RED])), (AttrsPost, AttrsPost(1)), (Model, Model(id=1)),
    (Model, Model(id=1, items=[Item("a")], when=datetime(2024, 1, 1))),
    (Root, Root([1])), (WithUrl, WithUrl(url="http://a.b/c?d=1")),
    (OpenModel, OpenModel(alpha=3, more=(1, 2))), (OpenModel, OpenModel()),
    (list[Model | Item], [Model(id=1), Item("a")]),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "value"), HINTED, ids=range(len(HINTED)))
def test_values_come_back_under_a_hint(converter, hint, value):
    payload = converter.encode(value, hint)
    back = converter.decode(payload, hint)
    assert same(back, value), payload
    assert (
        back is not value
        or type(value) in (bool, int, str, float, bytes, type(None))
        or isinstance(value, (enum.Enum, tuple))
    )
    assert converter.encode(back, hint) == payload
    assert (
        converter.decode(converter.encode([value], list[hint]), list[hint]) == [value]
        or value != value
        or "nan" in repr(value)
    )


@pytest.mark.parametrize("encoding", ["json", "tagged"])
def test_what_was_stored_without_a_hint_is_read_under_one(converter, encoding):
    stored = converter.encode({"name": "a", "price": 2, "unknown": [1]})
    assert same(converter.decode(Payload(encoding, stored.data), Item), Item("a", 2.0))
    assert converter.decode(converter.encode((1, "a")), tuple[int, str]) == (1, "a")
    assert converter.decode(converter.encode({"size": 3}), Circle | None) == Circle(3)


def test_fields_come_and_go(converter):
    old = converter.encode({"id": 1, "gone": {"x": 1}})
    assert converter.decode(old, Struct) == Struct(1)
    assert converter.decode(old, Frozen) == Frozen(id=1)
    assert converter.decode(old, Model) == Model(id=1, items=[])
    assert converter.decode(converter.encode({"a": 5}), Attrs) == Attrs(5)
    assert converter.decode(converter.encode({"x": 5}), Point) == Point(5)


def test_a_class_may_become_part_of_a_union_later(converter):
    stored = converter.encode(Item("a"), Item)
    assert converter.decode(stored, Item | Struct) == Item("a")
    with pytest.raises(PayloadDecodeError, match="more than one member of Circle | Square"):
        converter.decode(converter.encode(Circle(1), Circle), Circle | Square)
    assert converter.decode(converter.encode(Circle(1), Circle | Square), Circle) == Circle(1)


def test_post_init_runs_and_stored_fields_win(converter):
    value = Counted(1)
    back = converter.decode(converter.encode(value, Counted), Counted)
    assert back.n == 2
    assert back.cache == {"n": 3}


def test_model_keeps_which_fields_were_given(converter):
    for value in (Model(id=1), Model(id=1, when=None)):
        back = converter.decode(converter.encode(value, Model), Model)
        assert back.model_fields_set == value.model_fields_set


def test_registered_classes_need_no_hint():
    converter = PayloadConverter()
    converter.register(Derived)
    converter.register(Color, name="colour")
    for hint, value in [
        (Any, [Derived("a"), {Color.RED}]),
        (Item, Derived("a")),
        (list[Item], [Item("a"), Derived("b")]),
    ]:
        payload = converter.encode(value, hint)
        assert same(converter.decode(payload, hint), value)
        with pytest.raises(PayloadDecodeError, match="which neither hint nor registry knows"):
            PayloadConverter().decode(payload, hint)
    with pytest.raises(ValueError, match="give .*Mood another name"):
        converter.register(Mood, name="colour")


def test_local_classes_with_unresolvable_hints_still_work(converter):
    @dataclasses.dataclass
    class Inner:
        me: "Inner | None"
        other: "Missing"  # noqa: F821

    value = Inner(Inner(None, 1), [2])
    assert same(converter.decode(converter.encode(value, Inner), Inner), value)


def test_decode_gives_a_fresh_copy(converter):
    payload = converter.encode([1, [2]])
    first, second = converter.decode(payload), converter.decode(payload)
    first[1].append(3)
    assert second == [1, [2]]
    value = Item("a")
    stored = converter.encode(value, Item)
    value.name = "b"
    assert converter.decode(stored, Item).name == "a"


def test_encodings_are_what_they_are_for_ever(converter):
    assert converter.encode(None) == Payload("null", b"")
    assert converter.encode(b"\x00", bytes) == Payload("raw", b"\x00")
    assert converter.encode(Item("a", 1.5), Item) == Payload(
        "json", b'{"name":"a","price":1.5,"count":1,"note":null}'
    )
    assert converter.encode([Circle(1)], list[Circle | Square]).data == b'[{"$.Circle":{"size":1}}]'
    assert converter.encode((1, datetime(2024, 1, 1, tzinfo=BERLIN))) == Payload(
        "tagged", b'{"$tuple":[1,{"$datetime":"2024-01-01T00:00:00+01:00[Europe/Berlin]"}]}'
    )
    assert converter.encode({1: b"a"}).data == b'{"$dict":[[1,{"$bytes":"YQ=="}]]}'
    assert converter.encode([3], list[float]).data == b'[{"$":3}]'
    assert converter.encode(Odd.PAIR, Odd).data == b'{"$name":"PAIR"}'
    assert converter.encode(timedelta(seconds=90), timedelta).data == b'"PT90S"'


def test_quick_calls_agree_with_the_converter(converter):
    encode, decode = converter.encoder_for(Item), converter.decoder_for(Item)
    payload = encode(Item("a"), "here")
    assert payload == converter.encode(Item("a"), Item)
    assert decode(payload, "here") == Item("a")
    with pytest.raises(PayloadEncodeError, match="^here: expected Item, got int 3$"):
        encode(3, "here")


def test_classes_of_one_name_are_told_apart_by_module(converter):
    here, there = (dataclasses.make_dataclass("Card", [("n", int)]) for _ in range(2))
    here.__module__, there.__module__ = "shop.here", "shop.there"
    for value in (here(1), there(1)):
        assert same(converter.decode(converter.encode(value, here | there), here | there), value)


def test_hints_that_say_little_keep_values_exact(converter):
    class Runnable(typing.Protocol):
        def run(self): ...

    constrained = TypeVar("constrained", int, str)
    dollar = TypedDict("dollar", {"$x": int})
    for hint, value in [
        (Runnable, (1,)),
        (constrained, "a"),
        (list[constrained], [1, "a"]),
        (dollar, {"$x": 1}),
        ("unresolved", {1: 2}),
        (typing.Callable[..., int] | None, None),
        (typing.Iterable[str], "ab"),
        (list[list[int] | list], [[1], ["a"]]),
        (typing.LiteralString, "a"),
    ]:
        assert same(converter.decode(converter.encode(value, hint), hint), value)


def test_plans_may_be_made_by_many_threads_at_once():
    value = Node(1, [Node(2)], Node(3))
    for _ in range(20):
        fresh = PayloadConverter()
        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(lambda: fresh.decode(fresh.encode(value, Node), Node)) for _ in range(4)]
            assert all(future.result() == value for future in futures)


@pytest.mark.parametrize(
    "offset", [timedelta(microseconds=1), -timedelta(microseconds=1), timedelta(hours=2, microseconds=7)]
)
@pytest.mark.parametrize("name", [(), ("X",)])
@pytest.mark.parametrize("hint", [datetime, object])
def test_an_offset_may_have_a_part_of_a_second(offset, name, hint):
    converter = PayloadConverter()
    value = datetime(2020, 1, 1, tzinfo=timezone(offset, *name))
    again = converter.decode(converter.encode(value, hint), hint)
    assert (again, again.utcoffset(), again.tzname()) == (value, value.utcoffset(), value.tzname())
