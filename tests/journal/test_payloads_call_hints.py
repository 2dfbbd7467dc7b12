"""The signature of a callable: hints resolved once, calls checked with clear texts."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Annotated, Any, Generic, Optional, Self, TypeVar

import pytest

from everact.journal.type_hints import class_hints, evaluate, hints_of, substitute

if TYPE_CHECKING:
    from nowhere import Missing

T = TypeVar("T")
K = TypeVar("K")


@dataclasses.dataclass
class Order:
    id: int


def charge(order: Order, currency: str = "EUR") -> Order: ...


def nothing() -> None: ...


def many(first: int, /, *rest: str, flag: bool, mode: Order | None = None, **more: float): ...


def unresolved(a: Missing, b: int, c: Order = None) -> Missing: ...


class Service:
    def method(self, order: Order, note: Annotated[str, "doc"] = "") -> list[Order]: ...

    @classmethod
    def made(cls, order: Order) -> Service: ...

    @staticmethod
    def plain(order: Order) -> int: ...

    def __call__(self, order: Order) -> str: ...


def test_hints_are_resolved_once():
    hints = hints_of(charge)
    assert (hints.name, hints.names, hints.hints, hints.returns) == (
        "charge",
        ("order", "currency"),
        (Order, str),
        Order,
    )
    assert (hints.required, hints.maximum, hints.defaults) == (1, 2, ("EUR",))
    assert [hints.hint_at(i) for i in range(3)] == [Order, str, Any]
    assert hints_of(nothing).returns is None
    assert hints_of(lambda x: x).hints == (Any,)


def test_all_kinds_of_parameters():
    hints = hints_of(many)
    assert (hints.names, hints.positional_only, hints.var_args, hints.var_keywords) == (
        ("first",),
        1,
        str,
        float,
    )
    assert dict(hints.keywords) == {"flag": bool, "mode": Optional[Order]}
    assert hints.required_keywords == ("flag",)
    assert (hints.maximum, hints.hint_at(7)) == (None, str)
    assert [hints.hint_of(name) for name in ("flag", "first", "other")] == [bool, int, float]


def test_a_name_that_cannot_be_resolved_is_any_and_recorded():
    hints = hints_of(unresolved)
    assert hints.hints == (Any, int, Optional[Order])
    assert hints.unresolved == ("a", "return")


def test_methods_and_callable_objects():
    assert hints_of(Service.method, skip_first=True).hints == (Order, Annotated[str, "doc"])
    assert hints_of(Service().method).returns == list[Order]
    assert hints_of(Service.made).hints == (Order,)
    assert hints_of(Service.plain).returns is int
    assert hints_of(Service()).hints == (Order,)
    assert hints_of(Order).hints == (int,)
    assert hints_of(functools.partial(charge, Order(1))).names == ("currency",)


def test_wraps_is_looked_through():
    @functools.wraps(charge)
    def wrapper(*args, **kwargs): ...

    assert hints_of(wrapper) == hints_of(charge)


def test_local_classes_are_found_through_the_closure():
    @dataclasses.dataclass
    class Local:
        x: int

    def uses(a: Local) -> Local:
        return Local(1)

    assert hints_of(uses).hints == (Local,)
    assert hints_of(uses).name == "uses"


def test_a_callable_without_a_signature_accepts_anything():
    hints = hints_of(type("Odd", (), {"__signature__": 3, "__call__": print})())
    assert not hints.known
    assert hints.bind((1, 2), {"x": 3}) == ((1, 2), {"x": 3})
    assert hints.hint_at(4) is Any


BOUND = [
    (charge, (1,), {}, ((1,), {})),
    (charge, (1, "USD"), {}, ((1, "USD"), {})),
    (charge, (), {"order": 1}, ((1,), {})),
    (charge, (1,), {"currency": "USD"}, ((1, "USD"), {})),
    (many, (1, "a", "b"), {"flag": True, "x": 1.0}, ((1, "a", "b"), {"flag": True, "x": 1.0})),
    (many, (1,), {"flag": True, "first": 2.0}, ((1,), {"flag": True, "first": 2.0})),
    (lambda a=1, b=2, c=3: 0, (), {"c": 5}, ((), {"c": 5})),
]


@pytest.mark.parametrize(("fn", "args", "kwargs", "bound"), BOUND, ids=range(len(BOUND)))
def test_a_right_call_is_put_in_order(fn, args, kwargs, bound):
    assert hints_of(fn).bind(args, kwargs) == bound


ONE_TO_TWO = "1 to 2 arguments (order, currency='EUR')"
MANY = "at least 1 argument (first, *args, flag, mode, **kwargs)"
WRONG = [
    (charge, (1, 2, 3), {}, f"charge() takes {ONE_TO_TWO}, 3 were given"),
    (charge, (), {}, f"charge() is missing argument 'order'; it takes {ONE_TO_TWO}"),
    (charge, (1,), {"order": 2}, "charge() got two values for argument 'order'"),
    (charge, (1,), {"curency": 2}, f"charge() has no argument 'curency'; it takes {ONE_TO_TWO}"),
    (nothing, (1,), {}, "nothing() takes no arguments, 1 was given"),
    (many, (1,), {}, "many() is missing keyword argument 'flag'"),
    (many, (), {"flag": True, "first": 1}, f"many() is missing argument 'first'; it takes {MANY}"),
    (
        Service().method,
        (),
        {},
        "Service.method() is missing argument 'order'; it takes 1 to 2 arguments (order, note='')",
    ),
    (lambda a: 0, (1, 2), {}, "<lambda>() takes 1 argument (a), 2 were given"),
]


@pytest.mark.parametrize(("fn", "args", "kwargs", "text"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_call_is_a_type_error_that_says_what_it_takes(fn, args, kwargs, text):
    with pytest.raises(TypeError) as caught:
        hints_of(fn).bind(args, kwargs)
    assert str(caught.value) == text


class Base(Generic[T]):
    a: T
    b: list[T]


class Middle(Base[dict[str, K]], Generic[K]):
    c: K


class Leaf(Middle[int]):
    d: Missing
    e: Leaf | None
    date: dict[str, list[Self]] | None = None


def test_type_variables_are_followed_through_the_classes():
    assert class_hints(Leaf, ("a", "b", "c", "d", "e", "f", "date")) == {
        "a": dict[str, int],
        "b": list[dict[str, int]],
        "c": int,
        "d": Any,
        "e": Optional[Leaf],
        "f": Any,
        "date": Optional[dict[str, list[Leaf]]],
    }
    assert class_hints(Base, ("b",), (str,)) == {"b": list[str]}
    assert class_hints(Base, ("b",)) == {"b": list[T]}
    assert substitute(dict[K, list[T]], {T: int}) == dict[K, list[int]]
    assert evaluate("1 / 0", {}, {}) == (Any, False)
