"""Converters for classes of users' own, and upgrades of what older classes have stored."""

from dataclasses import dataclass
from typing import Any

import pytest

from everact.exceptions import PayloadDecodeError, PayloadEncodeError
from everact.journal.payloads import Payload, PayloadConverter
from everact.payloads import TypeConverter, TypeUpgrade


class Money:
    def __init__(self, cents, currency):
        self.cents, self.currency = cents, currency

    def __eq__(self, other):
        return type(other) is type(self) and vars(self) == vars(other)

    def __hash__(self):
        return hash((self.cents, self.currency))


class Loan(Money):
    pass


MONEY = TypeConverter(
    Money, store=lambda m: (m.cents, m.currency), load=lambda stored: Money(*stored), name="Money"
)
TEA = Money(350, "EUR")


@dataclass
class Order:
    price: Money
    extras: list[Money]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (TEA, Money),
        (TEA, Any),
        (TEA, Money | None),
        (None, Money | None),
        (TEA, Money | str | int),
        ([TEA, TEA], list[Money]),
        ({"a": TEA, "b": 1}, dict[str, Any]),
        ({TEA}, set[Money]),
        (Order(TEA, [TEA]), Order),
        (Order(TEA, []), Order | Money),
    ],
)
def test_a_value_with_a_converter_comes_back_equal_and_of_its_type(value, hint):
    converter = PayloadConverter(converters=[MONEY])
    back = converter.decode(converter.encode(value, hint), hint)
    assert back == value
    assert type(back) is type(value)


def test_without_it_the_value_is_refused():
    with pytest.raises(PayloadEncodeError, match="Money"):
        PayloadConverter().encode(TEA, Money)


def test_a_subclass_needs_one_of_its_own():
    with pytest.raises(PayloadEncodeError, match="Loan"):
        PayloadConverter(converters=[MONEY]).encode(Loan(1, "EUR"), Money)


def test_a_value_stored_without_a_hint_is_read_with_one_and_back():
    converter = PayloadConverter(converters=[MONEY])
    assert converter.decode(converter.encode(TEA, Any), Money) == TEA
    assert converter.decode(converter.encode(TEA, Money | None), Money) == TEA


def test_what_a_converter_raises_names_the_place():
    bad = TypeConverter(Money, store=lambda m: 1 / 0, load=lambda stored: 1 / 0)
    with pytest.raises(
        PayloadEncodeError, match=r"the converter of Money could not store it: ZeroDivisionError.*\$\[1\]"
    ):
        PayloadConverter(converters=[bad]).encode([None, TEA], list[Money | None])
    stored = PayloadConverter(converters=[MONEY]).encode([TEA], list[Money])
    with pytest.raises(PayloadDecodeError, match=r"not a stored Money.*ZeroDivisionError.*\$\[0\]"):
        PayloadConverter(converters=[bad]).decode(stored, list[Money])
    wrong = TypeConverter(Money, store=lambda m: 1, load=lambda stored: 5)
    with pytest.raises(PayloadDecodeError, match="the converter of Money gave int 5"):
        PayloadConverter(converters=[wrong]).decode(stored, list[Money])


@dataclass
class Address:
    street: str
    country: str


def with_country(stored):
    return stored if "country" in stored else {**stored, "country": "?"}


def renamed(stored):
    return {"street": stored["road"], **stored} if "road" in stored else stored


OLD = Payload("json", b'{"street": "High St"}')


def test_a_new_required_field_is_an_error_with_its_path_until_there_is_an_upgrade():
    nested = Payload("json", b'{"home": [{"street": "High St"}]}')
    hint = dict[str, list[Address]]
    with pytest.raises(
        PayloadDecodeError, match=r"missing required field 'country' of Address \(at \$\['home'\]\[0\]\)"
    ):
        PayloadConverter().decode(nested, hint)
    converter = PayloadConverter(converters=[TypeUpgrade(Address, with_country)])
    assert converter.decode(nested, hint) == {"home": [Address("High St", "?")]}
    assert converter.decode(OLD, Address) == Address("High St", "?")
    again = Address("Low St", "NO")
    assert converter.decode(converter.encode(again, Address), Address) == again


def test_a_renamed_field_is_upgraded():
    converter = PayloadConverter(converters=[TypeUpgrade(Address, renamed)])
    assert converter.decode(Payload("json", b'{"road": "A", "country": "B"}'), Address) == Address("A", "B")


@dataclass
class Card:
    number: str


@dataclass
class Transfer:
    number: str


def test_a_renamed_member_of_a_union_is_found_by_its_former_name():
    stored = Payload("tagged", b'{"$.BankTransfer": {"number": "7"}}')
    hint = Card | Transfer
    with pytest.raises(PayloadDecodeError, match="BankTransfer"):
        PayloadConverter().decode(stored, hint)
    converter = PayloadConverter(converters=[TypeUpgrade(Transfer, former_names=("BankTransfer",))])
    assert converter.decode(stored, hint) == Transfer("7")
    assert converter.decode(stored, Transfer) == Transfer("7")


def test_an_upgrade_that_raises_is_an_error_with_the_path():
    converter = PayloadConverter(converters=[TypeUpgrade(Address, lambda stored: stored["none"])])
    with pytest.raises(PayloadDecodeError, match=r"not a stored Address.*KeyError"):
        converter.decode(OLD, Address)


def test_converters_are_checked():
    with pytest.raises(TypeError, match="converters must be TypeConverter or TypeUpgrade objects, not 7"):
        PayloadConverter(converters=[7])
    with pytest.raises(ValueError, match="two TypeConverter objects for .*Money"):
        PayloadConverter(converters=[MONEY, MONEY])
    with pytest.raises(
        TypeError, match=r"TypeConverter\(int\): how Python's own types are stored cannot be changed"
    ):
        TypeConverter(int, store=str, load=int)
    with pytest.raises(TypeError, match="TypeUpgrade needs a class"):
        TypeUpgrade("Address", with_country)
    with pytest.raises(TypeError, match="load must be a function"):
        TypeConverter(Money, store=str, load=None)
    with pytest.raises(TypeError, match="former_names must be a tuple of names"):
        TypeUpgrade(Address, with_country, former_names="Old")
    with pytest.raises(TypeError, match="upgrade must be a function"):
        TypeUpgrade(Address, None)
    with pytest.raises(ValueError, match="'Old' is the name of"):
        PayloadConverter(
            converters=[TypeUpgrade(Address, former_names=("Old",)), TypeUpgrade(Card, former_names=("Old",))]
        )
