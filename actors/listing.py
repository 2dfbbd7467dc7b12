"""Lists of runs in pages, behind a cursor that stays right while runs start, end and are purged."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any, NamedTuple

from ..journal.tables import NUMBER
from .descriptions import WorkflowSummary
from .options import positive_count

#: Runs of a page at most, and when nothing else is said.
PAGE_SIZE = 1000


class WorkflowPage(NamedTuple):
    """Part of a list.

    Attributes:
        workflows: Newest first.
        next_page_token: Behind it the list goes on; None when there is no more.
    """

    workflows: list[WorkflowSummary]
    next_page_token: str | None


class WorkflowListing:
    """A list of runs, read page by page: ``async for run in listing``, or ``await listing`` for all at once.

    Each run that is there from the first page to the last is listed once, as it is when its page is read; those that
    start meanwhile are left out.

    Attributes:
        next_page_token: Behind what was read so far: given to ``list_workflows`` it goes on there, also later and in
            another process. None when there is no more.
    """

    def __init__(
        self,
        read: Callable[[int | None, str | None], Awaitable[WorkflowPage]],
        limit: int | None,
        page_size: int,
        next_page_token: str | None,
        *,
        at_once: int | None,
    ) -> None:
        """Check the arguments; nothing is read yet.

        Args:
            read: Reads a page of this size, None being endless, behind a token.
            limit: See ``Runtime.list_workflows``.
            page_size: See there.
            next_page_token: See there.
            at_once: How many are read at a time when all are wanted; None: all of them.
        """
        if limit is not None:
            positive_count("limit", limit)
        if positive_count("page_size", page_size) > PAGE_SIZE:
            raise ValueError(f"page_size must be at most {PAGE_SIZE:,}, not {page_size:,}")
        key_of(next_page_token)
        self.next_page_token = next_page_token
        self._read = read
        self._limit = limit
        self._page_size = page_size
        self._at_once = at_once

    def pages(self) -> AsyncIterator[WorkflowPage]:
        """Read it page by page."""
        return self._pages(self._page_size)

    async def _pages(self, most: int | None) -> AsyncIterator[WorkflowPage]:
        left = self._limit
        while left is None or left > 0:
            size = left if most is None else most if left is None else min(left, most)
            page = await self._read(size, self.next_page_token)
            self.next_page_token = page.next_page_token
            if left is not None:
                left -= len(page.workflows)
            yield page
            if page.next_page_token is None:
                return

    async def __aiter__(self) -> AsyncIterator[WorkflowSummary]:
        """Go through the runs."""
        async for page in self.pages():
            for run in page.workflows:
                yield run

    async def _all(self) -> list[WorkflowSummary]:
        return [run async for page in self._pages(self._at_once) for run in page.workflows]

    def __await__(self) -> Generator[Any, None, list[WorkflowSummary]]:
        """Read all of it."""
        return self._all().__await__()


def token_of(key: int) -> str:
    """The token of a list that goes on behind the run with this key."""
    return base64.urlsafe_b64encode(NUMBER.pack(key)).decode("ascii")


def key_of(token: str | None) -> int:
    """Read what ``token_of`` gave; None is 0, the beginning.

    Raises:
        TypeError: It is no text.
        ValueError: It is no token.
    """
    if token is None:
        return 0
    if not isinstance(token, str):
        raise TypeError(f"next_page_token must be a str, not {token!r}")
    try:
        data = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        data = b""
    if len(data) != NUMBER.size:
        raise ValueError(f"{token[:40]!r} is no next_page_token: pass one as an earlier list had it")
    key: int = NUMBER.unpack(data)[0]
    return key
