"""What a journal without a running program tells: lists, descriptions, histories, results. Runs no user code."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from ..journal.errors import JournalCorruptError
from ..journal.fold import RunState
from ..journal.lmdb_store import LmdbStore
from ..journal.loading import load
from ..journal.payloads import Payload, PayloadConverter
from ..journal.run_ends import next_run
from ..journal.run_index import RunIndex
from ..journal.run_row import RunRow
from . import descriptions
from .call_errors import WorkflowNotFoundError
from .chains import first_run_id
from .descriptions import History, WorkflowDescription, WorkflowSummary, summary
from .listing import WorkflowPage, key_of, token_of
from .messenger import result_of
from .options import check_status, positive_count

T = TypeVar("T")
#: Damage that a writer's progress may explain is believed after so many more looks.
TRIES = 20


class JournalReader:
    """Reads a journal in a directory as it is at this moment; nothing is locked or changed.

    Payload codecs are not known here: of what they have coded only the types of failures are shown.

    Raises:
        NotAJournalError: There is none.
        JournalVersionError: Its format is not known.
        JournalAccessError: This user may not read it.
        JournalCorruptError: It is damaged.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._converter = PayloadConverter()
        self._store = LmdbStore(directory, read_only=True)
        self._index: RunIndex | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.close()

    def _read(self, look: Callable[[RunIndex], T]) -> T:
        """Look at the runs; anew when a writer has moved them on meanwhile."""
        for left in range(TRIES, -1, -1):
            position = self._store.position
            try:
                if self._index is None:
                    self._index = load(self._store).runs
                return look(self._index)
            except JournalCorruptError:
                self._index = None
                if self._store.position == position or not left:  # a busy writer moves on all the time
                    raise
        raise AssertionError

    def list_workflows(
        self,
        *,
        workflow_type: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        next_page_token: str | None = None,
    ) -> WorkflowPage:
        """List runs, newest first, in one page; arguments and errors as of ``Runtime.list_workflows``."""
        check_status(status)
        if limit is not None:
            positive_count("limit", limit)
        before = key_of(next_page_token)

        def look(index: RunIndex) -> WorkflowPage:
            found: list[WorkflowSummary] = []
            for row in index.newest_first(before):
                if workflow_type in (None, row.workflow_type) and status in (None, row.status):
                    found.append(summary(row))
                    if len(found) == limit:
                        return WorkflowPage(found, token_of(row.key))
            return WorkflowPage(found, None)

        return self._read(look)

    def by_key(self, key: int) -> WorkflowSummary | None:
        """The run with this key, or None."""
        row = self._read(lambda index: index.row(key))
        return None if row is None else summary(row)

    def count_workflows(self, *, workflow_type: str | None = None, status: str | None = None) -> int:
        """Count runs; as ``Runtime.count_workflows``."""
        check_status(status)
        return self._read(lambda index: index.count(workflow_type, status))

    def describe(self, workflow_id: str, run_id: str | None = None) -> WorkflowDescription:
        """Everything known of a run."""

        def look(index: RunIndex) -> WorkflowDescription:
            seen = descriptions.observe(index.state(_row(index, workflow_id, run_id)))
            described = descriptions.describe(seen, self._converter)
            return descriptions.with_statuses(described, index.status_of)

        return self._read(look)

    def published(self, workflow_id: str, run_id: str | None = None) -> dict[str, Payload]:
        """What a run has published, by key."""
        return self._read(lambda index: index.state(_row(index, workflow_id, run_id)).published)

    def history(self, workflow_id: str, run_id: str | None = None) -> History:
        """All events of a run."""

        def look(index: RunIndex) -> History:
            row = _row(index, workflow_id, run_id)
            return History(row.workflow_id, row.run_id, index.records(row))

        return self._read(look)

    def result(
        self, workflow_id: str, run_id: str | None = None, *, follow_runs: bool = True
    ) -> tuple[str, Payload | None]:
        """The status of a run, or of the last one of its chain, and its result if it has ended.

        Raises:
            WorkflowFailedError: It has failed, or was cancelled or terminated.
        """
        find = _last_state if follow_runs else _state
        state = self._read(lambda index: find(index, workflow_id, run_id))
        if state.outcome is None:
            return state.status, None
        return state.status, result_of(state.outcome, workflow_id, state.started.run_id, self._converter)


def _state(index: RunIndex, workflow_id: str, run_id: str | None) -> RunState:
    return index.state(_row(index, workflow_id, run_id))


def _last_state(index: RunIndex, workflow_id: str, run_id: str | None) -> RunState:
    """The last run of a chain: the newest one of the id, if that is of this chain."""
    newest = _state(index, workflow_id, None)
    chain = newest.started.chain
    if run_id is None or (chain is not None and chain.first_run_id == run_id):
        return newest
    state = _state(index, workflow_id, run_id)
    while (following := next_run(state.outcome)) is not None:
        if first_run_id(newest.started) == first_run_id(state.started):
            return newest
        state = _state(index, workflow_id, following.run_id)
    return state


def _row(index: RunIndex, workflow_id: str, run_id: str | None) -> RunRow:
    row = index.find(workflow_id, run_id)
    if row is None:
        raise WorkflowNotFoundError(workflow_id, run_id)
    return row
