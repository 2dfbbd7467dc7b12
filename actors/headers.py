"""Headers: what interceptors hand on beside the arguments of a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..journal.events import Header
from ..journal.payloads import Payload
from .options import check_text

#: What travels beside the arguments of a call, by name; ``payload_converter().encode(value)`` makes a payload.
Headers = Mapping[str, Payload]


def header_records(headers: Headers) -> tuple[Header, ...]:
    """Headers as they are stored.

    Raises:
        TypeError: They are no mapping of names and payloads.
        ValueError: A name is empty, or not valid Unicode.
    """
    if not headers:
        return ()
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must be a dict of names and payloads, not {headers!r}")
    for name, value in headers.items():
        check_text("the name of a header", name)
        if type(value) is not Payload:
            raise TypeError(
                f"header {name!r} must be a Payload, not {value!r}: make one with payload_converter().encode(value)"
            )
    return tuple([Header(name, value) for name, value in headers.items()])


def headers_of(records: Iterable[Header]) -> dict[str, Payload]:
    """Stored headers by name."""
    return {one.name: one.value for one in records}
