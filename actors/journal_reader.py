"""What a journal without a running program tells: lists, descriptions, histories, results. Runs no user code."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

from ..journal.lmdb_store import LmdbStore
from ..journal.loading import load
from ..journal.payloads import Payload, PayloadConverter
from ..journal.run_index import RunIndex
from ..journal.run_row import RunRow
from . import descriptions
from .descriptions import History, WorkflowDescription, WorkflowSummary, summary
from .errors import WorkflowNotFoundError
from .messenger import result_of
from .options import check_status, positive_count


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
        try:
            self._index: RunIndex = load(self._store).runs
        except BaseException:
            self._store.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.close()

    def list_workflows(
        self, *, workflow_type: str | None = None, status: str | None = None, limit: int | None = None
    ) -> list[WorkflowSummary]:
        """List runs, newest first; as ``Runtime.list_workflows``."""
        check_status(status)
        if limit is not None:
            positive_count("limit", limit)
        found: list[WorkflowSummary] = []
        for row in self._index.newest_first():
            if limit is not None and len(found) >= limit:
                break
            if workflow_type in (None, row.workflow_type) and status in (None, row.status):
                found.append(summary(row))
        return found

    def count_workflows(self, *, workflow_type: str | None = None, status: str | None = None) -> int:
        """Count runs; as ``Runtime.count_workflows``."""
        check_status(status)
        return self._index.count(workflow_type, status)

    def describe(self, workflow_id: str, run_id: str | None = None) -> WorkflowDescription:
        """Everything known of a run."""
        seen = descriptions.observe(self._index.state(self._row(workflow_id, run_id)))
        return descriptions.describe(seen)

    def history(self, workflow_id: str, run_id: str | None = None) -> History:
        """All events of a run."""
        row = self._row(workflow_id, run_id)
        return History(row.workflow_id, row.run_id, self._index.records(row))

    def result(self, workflow_id: str, run_id: str | None = None) -> tuple[str, Payload | None]:
        """The status of a run, and its result if it has ended.

        Raises:
            WorkflowFailedError: It has failed, or was cancelled or terminated.
        """
        row = self._row(workflow_id, run_id)
        outcome = self._index.state(row).outcome
        if outcome is None:
            return row.status, None
        return row.status, result_of(outcome, row.workflow_id, row.run_id, self._converter)

    def _row(self, workflow_id: str, run_id: str | None) -> RunRow:
        row = self._index.find(workflow_id, run_id)
        if row is None:
            raise WorkflowNotFoundError(workflow_id, run_id)
        return row
