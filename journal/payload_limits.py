"""How large stored values may be: each one, and all of one turn together."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from . import events as ev
from .coded_fields import About, fields_of
from .errors import PayloadTooLargeError

log = logging.getLogger("everact.runtime")

#: How many of a turn's largest values its error names.
_NAMED = 3
#: Largest record of one turn that the journal's format and memory bear, in bytes.
MOST = 1 << 30


@dataclass(frozen=True)
class PayloadLimits:
    """Limits of stored values, in bytes as they go into the journal, so behind compression and encryption.

    Attributes:
        payload: Most bytes of one value: an argument, a result, a detail of an error.
        record: Most bytes of one turn: what came in together with all that the code decided. Many values of medium
            size, each within its limit, come to a lot together.
        warning: From so many bytes on, a value is worth a warning, once for each argument or result of a type.
    """

    payload: int = 16 << 20
    record: int = 64 << 20
    warning: int = 256 << 10

    def __post_init__(self) -> None:
        for name in ("payload", "record", "warning"):
            value = getattr(self, name)
            if type(value) is not int or not 0 < value <= MOST:
                raise ValueError(f"PayloadLimits({name}=...) must be from 1 to {MOST:,} bytes, not {value!r}")
        if self.payload > self.record:
            raise ValueError(
                f"PayloadLimits: one payload may not have more bytes ({self.payload:,}) than a record ({self.record:,})"
            )


class PayloadSizes:
    """Checks the sizes of one journal's values, and warns once for each kind of them.

    Attributes:
        quick: A record or message of at most so many bytes needs no look inside.
    """

    def __init__(self, limits: PayloadLimits) -> None:
        self._limits = limits
        self._warned: set[str] = set()
        self.quick = min(limits.payload, limits.warning - 1)

    def check_event(self, event: ev.Event, about: About) -> None:
        """Check what is to come in: a message of a caller, an activity's result.

        Args:
            event: As it would be stored.
            about: Names what its fields belong to.

        Raises:
            PayloadTooLargeError: A value, or all of them together, are over the limit.
        """
        sizes = [(where, len(payload.data)) for where, payload in fields_of(event, about)]
        total = sum(size for _, size in sizes)
        if total <= self.quick:
            return
        self._check(sizes)
        if total > self._limits.record:
            self._refuse_record(f"the input of {about(event)[0]}", total, sizes)

    def check_record(self, record: ev.Record, size: int, about: About) -> None:
        """Check a record of more than ``quick`` bytes.

        Args:
            record: As it would be stored.
            size: Its bytes.
            about: Names what the fields of its events belong to.

        Raises:
            PayloadTooLargeError: A value, or the record, is over the limit.
        """
        sizes = [
            (where, len(payload.data))
            for event in ev.events_of(record)
            for where, payload in fields_of(event, about)
        ]
        self._check(sizes)
        if size > self._limits.record:
            self._refuse_record("one turn of the workflow", size, sizes)

    def _check(self, sizes: list[tuple[str, int]]) -> None:
        for where, size in sizes:
            if size > self._limits.payload:
                raise PayloadTooLargeError(where, size, self._limits.payload)
        for where, size in sizes:
            if size >= self._limits.warning and where not in self._warned:
                self._warned.add(where)
                text = (
                    "%s has %s bytes, which every replay reads again: consider passing a reference instead (warned "
                    "once from %s bytes on; the limit is %s)"
                )
                log.warning(
                    text, where, f"{size:,}", f"{self._limits.warning:,}", f"{self._limits.payload:,}"
                )

    def _refuse_record(self, where: str, total: int, sizes: list[tuple[str, int]]) -> None:
        largest = sorted(sizes, key=lambda entry: -entry[1])[:_NAMED]
        said = ", ".join(f"{size:,} in {place}" for place, size in largest)
        raise PayloadTooLargeError(where, total, self._limits.record, said)
