"""What is asked of a runtime's journal as a whole: lists of runs, purges, and room on the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..journal.rewrite import Rewritten
from .client_interceptors import (
    ClientOutboundInterceptor,
    CountWorkflowsInput,
    ListWorkflowsInput,
)
from .descriptions import WorkflowSummary, summary
from .housekeeping import SLICE
from .listing import PAGE_SIZE, WorkflowListing, WorkflowPage, key_of, token_of
from .options import check_status, selection_of

if TYPE_CHECKING:
    from .shard import Shard

T = TypeVar("T")


class JournalAccess:
    """The part of a runtime that is about all its runs."""

    _open: Callable[[], Shard]
    _clients: ClientOutboundInterceptor | None

    async def _ask(self, question: Callable[[JournalAccess], Awaitable[T]]) -> T:
        """Ask something of an open runtime: of this one."""
        return await question(self)

    def list_workflows(
        self,
        *,
        workflow_type: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        page_size: int = PAGE_SIZE,
        next_page_token: str | None = None,
    ) -> WorkflowListing:
        """List durable runs, newest first: ``async for`` goes through them, ``await`` gives a list of all.

        Among many runs others have their turns meanwhile: each run is as it is when it is looked at, and those that
        start later are left out.

        Args:
            workflow_type: Only this type.
            status: Only this status: running, completed, failed, cancelled, terminated, quarantined, held, paused.
            limit: At most so many, 1 or more.
            page_size: How many are read at a time, 1 to 1,000.
            next_page_token: Go on behind an earlier list, which has this token.

        Raises:
            TypeError: The limit or the size is no int.
            ValueError: The limit or the size is not positive or too large, the status is unknown, or the token is none.
        """
        asked = ListWorkflowsInput(workflow_type, status, limit, page_size, next_page_token)
        if self._clients is None:
            return self._list_workflows(asked)
        return self._clients.list_workflows(asked)

    def _list_workflows(self, asked: ListWorkflowsInput) -> WorkflowListing:
        check_status(asked.status)

        def read(size: int | None, token: str | None) -> Awaitable[WorkflowPage]:
            return self._ask(partial(_read_page, asked, size, token))

        return WorkflowListing(read, asked.limit, asked.page_size, asked.next_page_token, at_once=None)

    async def count_workflows(self, *, workflow_type: str | None = None, status: str | None = None) -> int:
        """Count durable runs; arguments and errors as for ``list_workflows``."""
        if self._clients is None:
            return await self._count_workflows(workflow_type, status)
        return await self._clients.count_workflows(CountWorkflowsInput(workflow_type, status))

    async def _count_workflows(self, workflow_type: str | None, status: str | None) -> int:
        check_status(status)

        async def count(runtime: JournalAccess) -> int:
            return runtime._open().index.count(workflow_type, status)

        return await self._ask(count)

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

        async def purge(runtime: JournalAccess) -> int:
            shard = runtime._open()
            selection = selection_of(
                shard.now(),
                closed_before=closed_before,
                older_than=older_than,
                workflow_type=workflow_type,
                status=status,
                workflow_id=workflow_id,
            )
            return await shard.housekeeping.purge(selection, dry_run=dry_run)

        return await self._ask(purge)

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
        return await self._ask(lambda runtime: runtime._open().housekeeping.compact())


async def _read_page(
    asked: ListWorkflowsInput, size: int | None, token: str | None, runtime: JournalAccess
) -> WorkflowPage:
    found: list[WorkflowSummary] = []
    last = before = key_of(token)
    for number, row in enumerate(runtime._open().index.newest_first(before), 1):
        if not number % SLICE:
            await asyncio.sleep(0)
            runtime._open()
        last = row.key
        if asked.workflow_type in (None, row.workflow_type) and asked.status in (None, row.status):
            found.append(summary(row))
            if len(found) == size:
                return WorkflowPage(found, token_of(last))
    return WorkflowPage(found, None)
