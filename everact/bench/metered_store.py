"""The default journal store, counting what it writes."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from time import perf_counter

from ..journal.lmdb_store import LmdbStore
from ..journal.store import Entry, Position, Work
from .bare import durability_flags


class MeteredStore(LmdbStore):
    """An ``LmdbStore`` as a runtime opens it by default.

    Attributes:
        sizes: Bytes of each commit record, in order.
        busy: Seconds that the writer thread has spent in appends, encoding included.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.sizes = array("Q")
        self.busy = 0.0
        super().__init__(path)

    def append(self, expected: Position, entries: Sequence[Entry], work: Work | None = None) -> Position:
        """Append, and add its time."""
        began = perf_counter()
        try:
            return super().append(expected, entries, work)
        finally:
            self.busy += perf_counter() - began

    def _commit(self, expected: Position, record: bytes, work: Work | None) -> None:
        super()._commit(expected, record, work)
        self.sizes.append(len(record))

    @property
    def flags(self) -> dict[str, bool]:
        """Flags of the environment that decide on durability, as LMDB reports them."""
        with self._shared as opened:
            return durability_flags(opened.env.flags())
