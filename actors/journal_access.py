"""What is asked of a runtime's journal as a whole: lists of runs, purges, and room on the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ..journal.rewrite import Rewritten
from .descriptions import WorkflowSummary, summary
from .housekeeping import SLICE
from .interceptors import ClientOutboundInterceptor, CountWorkflowsInput, ListWorkflowsInput
from .options import check_status, positive_count, selection_of

if TYPE_CHECKING:
    from .shard import Shard


class JournalAccess:
    """The part of a runtime that is about all its runs."""

    _open: Callable[[], Shard]
    _clients: ClientOutboundInterceptor | None

    async def list_workflows(
        self, *, workflow_type: str | None = None, status: str | None = None, limit: int | None = None
    ) -> list[WorkflowSummary]:
        """List durable runs, newest first.

        Among many runs others have their turns meanwhile: each run is as it is when it is looked at, and those that
        start later are left out.

        Args:
            workflow_type: Only this type.
            status: Only this status: running, completed, failed, cancelled, terminated, quarantined, held, paused.
            limit: At most so many, 1 or more.

        Raises:
            TypeError: The limit is no int.
            ValueError: The limit is not positive, or the status is unknown.
        """
        if self._clients is None:
            return await self._list_workflows(workflow_type, status, limit)
        return await self._clients.list_workflows(ListWorkflowsInput(workflow_type, status, limit))

    async def _list_workflows(
        self, workflow_type: str | None, status: str | None, limit: int | None
    ) -> list[WorkflowSummary]:
        check_status(status)
        if limit is not None:
            positive_count("limit", limit)
        found: list[WorkflowSummary] = []
        for number, row in enumerate(self._open().index.newest_first(), 1):
            if limit is not None and len(found) >= limit:
                break
            if not number % SLICE:
                await asyncio.sleep(0)
                self._open()
            if workflow_type in (None, row.workflow_type) and status in (None, row.status):
                found.append(summary(row))
        return found

    async def count_workflows(self, *, workflow_type: str | None = None, status: str | None = None) -> int:
        """Count durable runs; arguments and errors as for ``list_workflows``."""
        if self._clients is None:
            return await self._count_workflows(workflow_type, status)
        return await self._clients.count_workflows(CountWorkflowsInput(workflow_type, status))

    async def _count_workflows(self, workflow_type: str | None, status: str | None) -> int:
        check_status(status)
        return self._open().index.count(workflow_type, status)

    async def purge(
        self,
        *,
        closed_before: datetime | None = None,
        older_than: timedelta | float | None = None,
        workflow_type: str | None = None,
        status: str | None = None,
        workflow_id: str | None = None,
        dry_run: bool = False,
    ) -> int:
        """Delete closed runs for good, a few with each commit; returns once they are gone.

        Open runs are never purged. If the program dies meanwhile, some runs are gone and the others are whole.

        Args:
            closed_before: Only runs that ended before this moment, which has a time zone.
            older_than: Only runs that ended at least so long ago, a timedelta or seconds.
            workflow_type: Only this type.
            status: Only this status: completed, failed, cancelled or terminated.
            workflow_id: Only runs of this id.
            dry_run: Purge nothing, count only.

        Returns:
            How many runs were purged, or would be.

        Raises:
            TypeError: An argument is of the wrong type, or none chooses any runs.
            ValueError: The moment has no time zone, the age is negative, or the status is not one of a closed run.
            CommitUnknownError: A commit failed; which runs are gone is unknown. Repeat the call.
        """
        shard = self._open()
        selection = selection_of(
            shard.now(),
            closed_before=closed_before,
            older_than=older_than,
            workflow_type=workflow_type,
            status=status,
            workflow_id=workflow_id,
        )
        return await shard.housekeeping.purge(selection, dry_run=dry_run)

    async def compact_journal(self) -> Rewritten:
        """Give the room of free pages in the journal's data file back to the disk, while everything goes on.

        The file is written anew beside the old one, so there must be room for what it holds. At the end commits wait
        some milliseconds.

        Returns:
            The sizes of the file before and after, in bytes.

        Raises:
            JournalAccessError: There is no room for the copy, it cannot be written, or a commit failed meanwhile; the
                journal is as it was.
            JournalError: The journal is in memory, or is being compacted already.
        """
        return await self._open().housekeeping.compact()
