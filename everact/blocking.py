"""For synchronous programs: a ``Runtime`` or a ``Client`` on an event loop in a thread of its own.

The verbs are those of ``everact.Runtime`` and ``everact.Client`` without ``await``; many threads may call them.
"""

# The implementations below their overloads take `*args: *Ts`, or mypy refuses the overloads.
# pyright: reportInvalidTypeVarUse=false

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, Unpack, overload

from .actors import runtime as _runtime
from .actors.interceptors import Interceptor
from .actors.listing import PAGE_SIZE
from .actors.options import StartOptions
from .actors.typing import R, Ts, W, WorkflowClass
from .blocking_handles import (
    BlockingActivityHandle,
    BlockingHandle,
    BlockingListing,
    BlockingUpdateHandle,
)
from .cluster import client as _client
from .journal.rewrite import Rewritten
from .journal.type_converters import TypeConverter, TypeUpgrade
from .loop_thread import LoopThread

__all__ = [
    "BlockingActivityHandle",
    "BlockingHandle",
    "BlockingListing",
    "BlockingUpdateHandle",
    "Client",
    "Runtime",
]

_P = ParamSpec("_P")


class _Verbs:
    """What both can do."""

    def __init__(self, inner: _runtime.Runtime | _client.Client, thread: LoopThread) -> None:
        self._inner: Any = inner
        self._thread = thread

    @property
    def name(self) -> str:
        """The cluster part of addresses."""
        name: str = self._inner.name
        return name

    @overload
    def spawn(
        self, workflow: Callable[[W, *Ts], Awaitable[R]], /, *args: *Ts, **options: Unpack[StartOptions]
    ) -> BlockingHandle[W, R]: ...
    @overload
    def spawn(
        self, workflow: WorkflowClass[W, *Ts, R], /, *args: *Ts, **options: Unpack[StartOptions]
    ) -> BlockingHandle[W, R]: ...
    @overload
    def spawn(
        self, workflow: str, /, *args: Any, **options: Unpack[StartOptions]
    ) -> BlockingHandle[Any, Any]: ...
    def spawn(self, workflow: Any, /, *args: *Ts, **options: Any) -> Any:
        """Start a workflow; returns once the start is durable. Arguments and errors as of ``everact.Runtime``."""
        handle = self._thread.call(self._inner.spawn, workflow, *args, **options)
        return BlockingHandle(handle, self._thread)

    @overload
    def execute(
        self, workflow: Callable[[W, *Ts], Awaitable[R]], /, *args: *Ts, **options: Unpack[StartOptions]
    ) -> R: ...
    @overload
    def execute(
        self, workflow: WorkflowClass[W, *Ts, R], /, *args: *Ts, **options: Unpack[StartOptions]
    ) -> R: ...
    @overload
    def execute(self, workflow: str, /, *args: Any, **options: Unpack[StartOptions]) -> Any: ...
    def execute(self, workflow: Any, /, *args: *Ts, **options: Any) -> Any:
        """Start a workflow and wait for its result: ``spawn`` and ``result`` in one."""
        return self._thread.call(self._inner.execute, workflow, *args, **options)

    @overload
    def ref(self, workflow: str, kind: WorkflowClass[W, *Ts, R], /) -> BlockingHandle[W, R]: ...
    @overload
    def ref(self, workflow: str, /) -> BlockingHandle[Any, Any]: ...
    def ref(self, workflow: str, kind: Any = None, /) -> Any:
        """A handle by workflow id or address; whether it exists shows when it is used."""
        return BlockingHandle(self._inner.ref(workflow, kind), self._thread)

    @overload
    def activity_handle(self, task_token: str, /) -> BlockingActivityHandle: ...
    @overload
    def activity_handle(
        self, /, *, workflow_id: str, command: int, run_id: str | None = None
    ) -> BlockingActivityHandle: ...
    def activity_handle(self, *args: Any, **names: Any) -> BlockingActivityHandle:
        """A handle to complete an attempt from outside; arguments and errors as of ``everact.Runtime``."""
        return BlockingActivityHandle(self._inner.activity_handle(*args, **names), self._thread)

    def list_workflows(
        self,
        *,
        workflow_type: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        page_size: int = PAGE_SIZE,
        next_page_token: str | None = None,
    ) -> BlockingListing:
        """List durable runs, newest first; arguments and errors as of ``everact.Runtime``."""
        self._thread.check()
        listing = self._inner.list_workflows(
            workflow_type=workflow_type,
            status=status,
            limit=limit,
            page_size=page_size,
            next_page_token=next_page_token,
        )
        return BlockingListing(listing, self._thread)

    def count_workflows(self, *, workflow_type: str | None = None, status: str | None = None) -> int:
        """Count durable runs."""
        found: int = self._thread.call(
            self._inner.count_workflows, workflow_type=workflow_type, status=status
        )
        return found


def _as(
    _same: Callable[Concatenate[_runtime.Runtime, _P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, _P], None]]:
    """Let a constructor take what another one takes, for type checkers."""
    return lambda constructor: constructor


class Runtime(_Verbs):
    """A ``Runtime`` for synchronous programs: ``with blocking.Runtime(...) as rt``.

    Its event loop (uvloop's where that is installed) runs in a thread of its own; ``async def`` activities run on it.
    Ctrl-C ends the call that waits and leaves the block as any exception does; a second one does not wait for running
    activities.
    """

    @_as(_runtime.Runtime.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        """Check the declarations; arguments and errors as of ``everact.Runtime``."""
        super().__init__(_runtime.Runtime(*args, **options), LoopThread("a blocking Runtime"))
        self._is_entered = False

    def __enter__(self) -> Self:
        """Open the journal and carry on with every open run; errors as of ``everact.Runtime``."""
        self._thread.check()
        if self._is_entered:
            raise RuntimeError("this Runtime is already entered; make another one")
        self._is_entered = True
        self._thread.start()
        try:
            self._thread.call(self._inner.__aenter__)
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._thread.call(self._inner.__aexit__, kind, error, trace)
        finally:
            self._thread.stop()

    def purge(
        self,
        *,
        closed_before: datetime | None = None,
        older_than: timedelta | float | None = None,
        workflow_type: str | None = None,
        status: str | None = None,
        workflow_id: str | None = None,
        dry_run: bool = False,
    ) -> int:
        """Delete closed runs for good; as ``everact.Runtime.purge``."""
        found: int = self._thread.call(
            self._inner.purge,
            closed_before=closed_before,
            older_than=older_than,
            workflow_type=workflow_type,
            status=status,
            workflow_id=workflow_id,
            dry_run=dry_run,
        )
        return found

    def compact_journal(self) -> Rewritten:
        """Give the room of free pages back to the disk; as ``everact.Runtime.compact_journal``."""
        found: Rewritten = self._thread.call(self._inner.compact_journal)
        return found


class Client(_Verbs):
    """A ``Client`` for synchronous programs; made by ``connect``, closed by ``close`` or a ``with`` block."""

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        timeout: timedelta | float = _client.TIMEOUT,
        converters: Iterable[TypeConverter[Any] | TypeUpgrade] = (),
        interceptors: Sequence[Interceptor] = (),
    ) -> Self:
        """Connect to a running program; arguments and errors as of ``everact.Client.connect``."""
        thread = LoopThread("a blocking Client")
        thread.check()
        thread.start()
        try:
            inner = thread.call(
                _client.Client.connect,
                url,
                timeout=timeout,
                converters=converters,
                interceptors=interceptors,
            )
        except BaseException:
            thread.stop()
            raise
        return cls(inner, thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections; what was sent is not undone. A second time does nothing."""
        if not self._thread.is_over:
            try:
                self._thread.call(self._inner.close)
            finally:
                self._thread.stop()
