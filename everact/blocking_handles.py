"""Handles for synchronous programs."""

# The implementations below their overloads take `*args: *Ts`, or mypy refuses the overloads.
# pyright: reportInvalidTypeVarUse=false

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, Generic, TypeVar, overload

from .actors.activity_handles import AsyncActivityHandle
from .actors.descriptions import History, WorkflowDescription, WorkflowSummary
from .actors.handles import OnStall, WorkflowHandle
from .actors.listing import WorkflowListing, WorkflowPage
from .actors.options import QUERY_TIMEOUT
from .actors.typing import R, Ts
from .actors.updates import UpdateHandle, WaitForStage
from .loop_thread import LoopThread

__all__ = ["BlockingActivityHandle", "BlockingHandle", "BlockingListing", "BlockingUpdateHandle"]

W = TypeVar("W")
R_co = TypeVar("R_co", covariant=True)
R2 = TypeVar("R2")


class BlockingUpdateHandle(Generic[R]):
    """An ``UpdateHandle`` whose calls return when they are done.

    Attributes:
        workflow_id: Of the run.
        run_id: The run that accepted it.
        name: Of its handler.
        request_id: A repeat with it gets the same answer.
    """

    def __init__(self, handle: UpdateHandle[R], thread: LoopThread) -> None:
        self._handle = handle
        self._thread = thread
        self.workflow_id = handle.workflow_id
        self.run_id = handle.run_id
        self.name = handle.name
        self.request_id = handle.request_id

    def __repr__(self) -> str:
        return f"<BlockingUpdateHandle {self.name!r} of {self.workflow_id!r}>"

    def done(self) -> bool:
        """Whether the answer is there."""

        async def look() -> bool:
            return self._handle.done()

        return self._thread.call(look)

    def result(self) -> R:
        """Wait for what the handler returns; errors as of ``UpdateHandle.result``."""
        return self._thread.call(self._handle.result)


class BlockingActivityHandle:
    """An ``AsyncActivityHandle`` whose calls return when they are done; arguments and errors are its."""

    def __init__(self, handle: AsyncActivityHandle, thread: LoopThread) -> None:
        self._handle = handle
        self._thread = thread

    def __repr__(self) -> str:
        return repr(self._handle).replace("Async", "Blocking", 1)

    def complete(self, result: Any = None) -> None:
        """The activity has this result."""
        self._thread.call(self._handle.complete, result)

    def fail(self, error: BaseException) -> None:
        """The attempt has failed; its retry policy decides whether there is another one."""
        self._thread.call(self._handle.fail, error)

    def report_cancelled(self) -> None:
        """The activity has stopped without a result."""
        self._thread.call(self._handle.report_cancelled)

    def heartbeat(self, *details: Any) -> None:
        """The activity is alive, and has come so far."""
        self._thread.call(self._handle.heartbeat, *details)


class BlockingListing:
    """A list of runs, read page by page while one goes through it: ``for run in listing``, or ``list(listing)``."""

    def __init__(self, listing: WorkflowListing, thread: LoopThread) -> None:
        self._listing = listing
        self._thread = thread

    @property
    def next_page_token(self) -> str | None:
        """Behind what was read so far: given to ``list_workflows`` it goes on there. None when there is no more."""
        return self._listing.next_page_token

    def __iter__(self) -> Iterator[WorkflowSummary]:
        pages = self._listing.pages()

        async def following() -> WorkflowPage | None:
            return await anext(pages, None)

        while (page := self._thread.call(following)) is not None:
            yield from page.workflows


class BlockingHandle(Generic[W, R_co]):
    """A ``WorkflowHandle`` whose calls return when they are done; may be used from many threads.

    Arguments and errors are those of ``WorkflowHandle``.
    """

    def __init__(self, handle: WorkflowHandle[W, R_co], thread: LoopThread) -> None:
        self._handle = handle
        self._thread = thread

    def __repr__(self) -> str:
        return f"<BlockingHandle {self.address}>"

    @property
    def workflow_id(self) -> str:
        """Its id."""
        return self._handle.workflow_id

    @property
    def run_id(self) -> str | None:
        """The run it is bound to; None is whichever run is the newest."""
        return self._handle.run_id

    @property
    def address(self) -> str:
        """``everact://<cluster>/<workflow id>[/<run id>]``; ``ref`` takes it."""
        return self._handle.address

    @overload
    def signal(
        self,
        handler: Callable[[W, *Ts], Awaitable[None] | None],
        /,
        *args: *Ts,
        request_id: str | None = None,
    ) -> None: ...
    @overload
    def signal(self, handler: str, /, *args: Any, request_id: str | None = None) -> None: ...
    def signal(self, handler: Any, /, *args: *Ts, request_id: str | None = None) -> None:
        """Send a signal; returns once it is durable."""
        self._thread.call(self._handle.signal, handler, *args, request_id=request_id)

    @overload
    def tell(
        self,
        handler: Callable[[W, *Ts], Awaitable[None] | None],
        /,
        *args: *Ts,
        request_id: str | None = None,
    ) -> None: ...
    @overload
    def tell(self, handler: str, /, *args: Any, request_id: str | None = None) -> None: ...
    def tell(self, handler: Any, /, *args: *Ts, request_id: str | None = None) -> None:
        """Send a signal; the same as ``signal``."""
        self._thread.call(self._handle.tell, handler, *args, request_id=request_id)

    @overload
    def execute_update(
        self, handler: Callable[[W, *Ts], Awaitable[R2]], /, *args: *Ts, request_id: str | None = None
    ) -> R2: ...
    @overload
    def execute_update(
        self, handler: Callable[[W, *Ts], R2], /, *args: *Ts, request_id: str | None = None
    ) -> R2: ...
    @overload
    def execute_update(self, handler: str, /, *args: Any, request_id: str | None = None) -> Any: ...
    def execute_update(self, handler: Any, /, *args: *Ts, request_id: str | None = None) -> Any:
        """Send an update and wait for its answer."""
        return self._thread.call(self._handle.execute_update, handler, *args, request_id=request_id)

    @overload
    def ask(
        self, handler: Callable[[W, *Ts], Awaitable[R2]], /, *args: *Ts, request_id: str | None = None
    ) -> R2: ...
    @overload
    def ask(self, handler: Callable[[W, *Ts], R2], /, *args: *Ts, request_id: str | None = None) -> R2: ...
    @overload
    def ask(self, handler: str, /, *args: Any, request_id: str | None = None) -> Any: ...
    def ask(self, handler: Any, /, *args: *Ts, request_id: str | None = None) -> Any:
        """Send an update and wait for its answer; the same as ``execute_update``."""
        return self._thread.call(self._handle.ask, handler, *args, request_id=request_id)

    @overload
    def start_update(
        self,
        handler: Callable[[W, *Ts], Awaitable[R2]],
        /,
        *args: *Ts,
        wait_for_stage: WaitForStage = "accepted",
        request_id: str | None = None,
    ) -> BlockingUpdateHandle[R2]: ...
    @overload
    def start_update(
        self,
        handler: Callable[[W, *Ts], R2],
        /,
        *args: *Ts,
        wait_for_stage: WaitForStage = "accepted",
        request_id: str | None = None,
    ) -> BlockingUpdateHandle[R2]: ...
    @overload
    def start_update(
        self,
        handler: str,
        /,
        *args: Any,
        wait_for_stage: WaitForStage = "accepted",
        request_id: str | None = None,
    ) -> BlockingUpdateHandle[Any]: ...
    def start_update(
        self,
        handler: Any,
        /,
        *args: *Ts,
        wait_for_stage: WaitForStage = "accepted",
        request_id: str | None = None,
    ) -> Any:
        """Send an update without waiting for its handler; ask the handle that this returns for the answer."""
        update = self._thread.call(
            self._handle.start_update, handler, *args, wait_for_stage=wait_for_stage, request_id=request_id
        )
        return BlockingUpdateHandle(update, self._thread)

    @overload
    def query(
        self, handler: Callable[[W, *Ts], R], /, *args: *Ts, timeout: timedelta | float = QUERY_TIMEOUT
    ) -> R: ...
    @overload
    def query(self, handler: str, /, *args: Any, timeout: timedelta | float = QUERY_TIMEOUT) -> Any: ...
    def query(self, handler: Any, /, *args: *Ts, timeout: timedelta | float = QUERY_TIMEOUT) -> Any:
        """Read the run's state through a query handler."""
        return self._thread.call(self._handle.query, handler, *args, timeout=timeout)

    def result(
        self,
        *,
        timeout: timedelta | float | None = None,
        on_stall: OnStall = "raise",
        follow_runs: bool = True,
    ) -> R_co:
        """Wait for the result of the run, or of the last run of its chain."""
        return self._thread.call(
            self._handle.result, timeout=timeout, on_stall=on_stall, follow_runs=follow_runs
        )

    def describe(self) -> WorkflowDescription:
        """Everything known of the run without running its code."""
        return self._thread.call(self._handle.describe)

    @overload
    def published(self, key: str, kind: type[R], /) -> R | None: ...
    @overload
    def published(self, key: str, /) -> Any: ...
    def published(self, key: str, kind: Any = Any, /) -> Any:
        """The value that the run has published under a key; None when there is none."""
        return self._thread.call(self._handle.published, key, kind)

    def fetch_history(self) -> History:
        """All durable events of the run."""
        return self._thread.call(self._handle.fetch_history)

    def cancel(self, reason: str = "") -> None:
        """Ask the run to cancel itself; returns once the request is durable."""
        self._thread.call(self._handle.cancel, reason)

    def terminate(self, reason: str = "") -> None:
        """End the run at once, without running its code again."""
        self._thread.call(self._handle.terminate, reason)

    def pause(self, reason: str = "", *, request_id: str | None = None) -> None:
        """Let the run handle nothing more until ``resume``."""
        self._thread.call(self._handle.pause, reason, request_id=request_id)

    def resume(self, reason: str = "", *, request_id: str | None = None) -> None:
        """Let a paused run go on."""
        self._thread.call(self._handle.resume, reason, request_id=request_id)

    def release(self, reason: str = "", *, request_id: str | None = None) -> None:
        """Try a quarantined or held run again."""
        self._thread.call(self._handle.release, reason, request_id=request_id)

    def redrive(self, number: int) -> None:
        """Deliver a signal again whose handler has failed."""
        self._thread.call(self._handle.redrive, number)
