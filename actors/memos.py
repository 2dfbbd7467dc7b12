"""Notes that belong to a run: written at its start and by its code, read by both and in its description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..journal.payloads import Payload, PayloadConverter
from .failure_conversion import decode_detail
from .options import check_text

#: Names, and the values that belong to them in the same order.
Memo = tuple[tuple[str, ...], tuple[Payload, ...]]


def encode_memo(converter: PayloadConverter, memo: Mapping[str, Any] | None) -> Memo:
    """The stored form of a memo.

    Raises:
        TypeError: It is no mapping, or a name is no string.
        ValueError: A name is empty, or not valid Unicode.
        PayloadEncodeError: A value has no stored form.
    """
    if memo is None:
        return (), ()
    if not isinstance(memo, Mapping):
        raise TypeError(f"memo must be a dict of names and values, not {memo!r}")
    names = tuple(check_text("a name in a memo", name) for name in memo)
    return names, tuple(converter.encode(memo[name], where=f"memo {name!r}") for name in names)


def decode_memo(
    converter: PayloadConverter, names: Sequence[str], values: Sequence[Payload]
) -> dict[str, Any]:
    """A memo as values; one that does not decode comes as its ``Payload``."""
    return {name: decode_detail(value, converter) for name, value in zip(names, values, strict=True)}
