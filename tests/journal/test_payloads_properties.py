"""Properties of the converter: round trips of generated values, and the same bytes under every hash seed."""

import dataclasses
import os
import subprocess
import sys
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everact.journal.payloads import PayloadConverter

CONVERTER = PayloadConverter()
ZONES = st.sampled_from(
    [ZoneInfo("UTC"), ZoneInfo("Europe/Berlin"), ZoneInfo("America/St_Johns"), ZoneInfo("Asia/Kolkata")]
)
OFFSETS = st.timedeltas(min_value=timedelta(hours=-23), max_value=timedelta(hours=23)).map(timezone)
FOLDS = st.integers(0, 1)


def folded(value, fold):
    return value.replace(fold=fold)


MOMENTS = st.builds(
    folded, st.datetimes(timezones=st.one_of(st.none(), ZONES, OFFSETS), allow_imaginary=True), FOLDS
)
HASHABLE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(),
    st.uuids(), st.dates(),
    st.timedeltas(), MOMENTS, st.builds(folded, st.times(timezones=st.one_of(st.none(), ZONES)), FOLDS),
    st.decimals(allow_nan=False), st.fractions(), st.complex_numbers(allow_nan=False),
)  # fmt: skip
KEYS = st.one_of(
    HASHABLE,
    st.sampled_from(["$", "$tuple", "$x"]),
    st.tuples(HASHABLE, HASHABLE),
    st.frozensets(HASHABLE, max_size=2),
)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(KEYS, inner, max_size=3),
        st.sets(KEYS, max_size=3),
    ),
    max_leaves=8,
)


def shown(value):
    """A text that tells equal values of the same types, deeply."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return f"{kind}{{{', '.join(f'{shown(k)}: {shown(v)}' for k, v in value.items())}}}"
    if isinstance(value, (set, frozenset)):
        return f"{kind}{sorted(map(shown, value))}"
    if isinstance(value, (list, tuple)):
        return f"{kind}[{', '.join(map(shown, value))}]"
    if dataclasses.is_dataclass(value):
        return f"{kind}({', '.join(shown(getattr(value, f.name)) for f in dataclasses.fields(value))})"
    return f"{kind} {value!r}"


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(VALUES)
def test_any_value_comes_back_without_a_hint(value):
    payload = CONVERTER.encode(value)
    back = CONVERTER.decode(payload)
    assert shown(back) == shown(value)
    assert CONVERTER.encode(back) == payload


@dataclasses.dataclass
class Flat:
    a: int
    b: str
    c: float
    d: bool = False
    e: str | None = None
    f: float | None = None


@dataclasses.dataclass
class Tree:
    flat: Flat
    when: datetime | date | None
    by_key: dict[UUID, list["Tree"]]
    choice: int | str | Flat | list[int] | tuple[str, ...]
    any: Any


FLOATS = st.floats(allow_nan=True)
FLATS = st.builds(
    Flat,
    st.integers(),
    st.text(),
    FLOATS | st.integers(),
    st.booleans(),
    st.none() | st.text(),
    st.none() | FLOATS,
)
CHOICE = st.one_of(st.integers(), st.text(), FLATS, st.lists(st.integers()), st.lists(st.text()).map(tuple))
TREES = st.recursive(
    st.builds(Tree, FLATS, st.none() | st.dates() | MOMENTS, st.just({}), CHOICE, VALUES),
    lambda inner: st.builds(
        Tree,
        FLATS,
        st.none(),
        st.dictionaries(st.uuids(), st.lists(inner, max_size=2), max_size=2),
        CHOICE,
        st.none(),
    ),
    max_leaves=3,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(TREES)
def test_any_dataclass_comes_back_under_its_hint(value):
    payload = CONVERTER.encode(value, Tree)
    assert shown(CONVERTER.decode(payload, Tree)) == shown(value)


@settings(max_examples=100, deadline=None)
@given(st.lists(FLATS, max_size=3))
def test_the_quick_way_and_the_walk_write_the_same_form(value):
    payload = CONVERTER.encode(value, list[Flat])
    back = CONVERTER.decode(payload, list[Flat])
    assert shown(back) == shown(value)
    # A union with Decimal in it never takes the quick way.
    walked = CONVERTER.encode({"v": value, "w": (1,)}, dict[str, list[Flat] | tuple[int, ...] | Decimal])
    assert b'"v":' + payload.data in walked.data


HINTS = [
    (int, st.integers()), (float, FLOATS), (str, st.text()), (bytes, st.binary()), (datetime, MOMENTS),
    (date, st.dates()),
    (time, st.times()), (timedelta, st.timedeltas()), (UUID, st.uuids()), (Decimal, st.decimals()),
    (Fraction, st.fractions()),
    (set[str], st.sets(st.text())), (dict[int, str], st.dictionaries(st.integers(), st.text())),
    (dict[str, int | None], st.dictionaries(st.text() | st.just("$"), st.none() | st.integers())),
    (list[tuple[int, float]], st.lists(st.tuples(st.integers(), FLOATS))),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "values"), HINTS, ids=[str(hint) for hint, _ in HINTS])
def test_builtin_hints_bring_their_values_back(hint, values):
    @settings(max_examples=40, deadline=None)
    @given(values)
    def check(value):
        for each in (hint, hint | None, Any):
            assert shown(CONVERTER.decode(CONVERTER.encode(value, each), each)) == shown(value)

    check()


SCRIPT = """
import sys
from datetime import date
from uuid import UUID
from typing import Any
from everact.journal.payloads import PayloadConverter
c = PayloadConverter()
words = {"alpha", "beta", "gamma", "delta", b"x", None, ("p", frozenset({"q", "r", "s", date(2024, 1, 1)}))}
for value, hint in [(words, Any), ({"a", "b", "c", "d"}, set[str]), ([{"k": frozenset(words)}], Any),
                    (frozenset({"x", "y", 1}), frozenset[str | int])]:
    print(c.encode(value, hint))
"""


@pytest.mark.slow
def test_the_same_value_gives_the_same_bytes_under_every_hash_seed():
    seen = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(seen) == 1
    assert b"$frozenset" in seen.pop()
