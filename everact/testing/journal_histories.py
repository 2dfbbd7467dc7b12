"""The histories of a journal, one after the other; it is only read, also while its program runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from types import TracebackType
from typing import NamedTuple, Self

from ..actors.journal_reader import JournalReader
from ..journal.errors import JournalCorruptError
from ..journal.run_index import RunIndex
from ..journal.run_row import RunRow
from .history_sources import StoredHistory

__all__ = ["JournalHistories"]

#: Runs that are looked up at a time; each history is then read in a transaction of its own.
PAGE = 200

_Progress = Callable[[int, int], object]


class _Found(NamedTuple):
    """A run of the list."""

    key: int
    workflow_type: str
    workflow_id: str
    run_id: str


class JournalHistories:
    """Reads the histories of the runs that are wanted, newest first.

    Attributes:
        most: How many there are, as far as is known before they are read.
    """

    def __init__(
        self,
        journal: str | os.PathLike[str],
        *,
        status: str | None,
        types: Collection[str] | None,
        limit: int | None,
    ) -> None:
        """Open the journal; errors as of ``JournalReader``."""
        self._source = os.fspath(journal)
        self._reader = JournalReader(journal)
        self._status = status
        self._types = types
        self._limit = limit
        self.most = self._count()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.__exit__(kind, error, trace)

    def _count(self) -> int:
        kinds = [None] if self._types is None else list(self._types)
        count = sum(self._reader.count_workflows(workflow_type=kind, status=self._status) for kind in kinds)
        return count if self._limit is None else min(count, self._limit)

    def read(self, progress: _Progress | None) -> Iterator[StoredHistory]:
        """Yield each history; a damaged run is one with an error, a run that is purged meanwhile none."""
        done = before = 0
        while page := self._page(before):
            for found in page:
                if done == self._limit:
                    return
                if progress is not None:
                    progress(done, max(done, self.most))
                history = self._history(found)
                if history is not None:
                    done += 1
                    yield history
            before = page[-1].key
        damaged = self._reader._read(lambda index: index.damaged | index.lost.keys())
        for key in sorted(damaged):
            if done == self._limit:
                return
            mended = self._damaged(key)
            if mended is not None:
                done += 1
                yield mended

    def _page(self, before: int) -> list[_Found]:
        def look(index: RunIndex) -> list[_Found]:
            page: list[_Found] = []
            for row in index.newest_first(before):
                if row.key not in index.damaged and self._wants(row):
                    page.append(_found(row))
                    if len(page) == PAGE:
                        break
            return page

        return self._reader._read(look)

    def _wants(self, row: RunRow) -> bool:
        return self._status in (None, row.status) and (
            self._types is None or row.workflow_type in self._types
        )

    def _damaged(self, key: int) -> StoredHistory | None:
        """A run whose row is damaged: its history may be whole all the same."""
        try:
            row = self._reader._read(lambda index: index.row(key))
        except JournalCorruptError as error:
            return StoredHistory(f"{self._source}, run {key}", error=error)
        if row is None or not self._wants(row):
            return None
        return self._history(_found(row))

    def _history(self, found: _Found) -> StoredHistory | None:
        def look(index: RunIndex) -> StoredHistory | None:
            row = index.row(found.key)
            return None if row is None else replace(history, records=tuple(index.records(row)))

        history = StoredHistory(self._source, found.workflow_type, found.workflow_id, found.run_id)
        try:
            return self._reader._read(look)
        except JournalCorruptError as error:
            return replace(history, error=error)


def _found(row: RunRow) -> _Found:
    return _Found(row.key, row.workflow_type, row.workflow_id, row.run_id)
