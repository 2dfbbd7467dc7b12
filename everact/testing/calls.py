"""The calls of a test environment's handles that wait: time may pass while they do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..actors.message_arguments import handler_name
from ..actors.updates import UpdateHandle, WaitForStage

if TYPE_CHECKING:
    from ..actors.handles import ActorRef, OnStall
    from ..actors.workflow_actor import WorkflowActor
    from .driver import TimeDriver


class WaitingMessenger:
    """In front of a runtime's messenger: says what waits; all else goes straight through.

    Handles have it, so they go on after a restart.

    Attributes:
        behind: The messenger of the environment's present runtime.
    """

    def __init__(self, driver: TimeDriver) -> None:
        self.behind: Any = None
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)

    async def result(
        self,
        ref: ActorRef[Any],
        limit: timedelta | float | None,
        on_stall: OnStall,
        *,
        follow_runs: bool = True,
    ) -> Any:
        """Wait for a run's outcome."""
        with self._driver.waiting(f"the result of workflow {ref.workflow_id!r}", ref.workflow_id):
            return await self.behind.result(ref, limit, on_stall, follow_runs=follow_runs)

    async def outcome(self, actor: WorkflowActor) -> Any:
        """Wait for the outcome of a run that was just started."""
        with self._driver.waiting(f"the result of workflow {actor.workflow_id!r}", actor.workflow_id):
            return await self.behind.outcome(actor)

    async def update(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        request_id: str | None,
    ) -> Any:
        """Send an update and wait for its answer."""
        with self._driver.waiting(_of("update", handler, ref), ref.workflow_id):
            return await self.behind.update(ref, handler, args, request_id)

    async def start_update(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        request_id: str | None,
        stage: WaitForStage,
    ) -> UpdateHandle[Any]:
        """Send an update."""
        with self._driver.waiting(_of("update", handler, ref), ref.workflow_id):
            handle = await self.behind.start_update(ref, handler, args, request_id, stage)
        return _WaitingUpdate(handle, self._driver)

    async def query(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        limit: timedelta | float,
    ) -> Any:
        """Ask a query."""
        with self._driver.waiting(_of("query", handler, ref), ref.workflow_id):
            return await self.behind.query(ref, handler, args, limit)


class _WaitingUpdate(UpdateHandle[Any]):
    """An update that was started, whose result lets time pass."""

    def __init__(self, handle: UpdateHandle[Any], driver: TimeDriver) -> None:
        super().__init__(
            handle._answer,
            handle._finish,
            workflow_id=handle.workflow_id,
            run_id=handle.run_id,
            name=handle.name,
            request_id=handle.request_id,
        )
        self._driver = driver

    async def result(self) -> Any:
        """Wait for what the handler returns."""
        with self._driver.waiting(
            f"the answer to update {self.name!r} of workflow {self.workflow_id!r}", self.workflow_id
        ):
            return await super().result()


def _of(kind: str, handler: Any, ref: ActorRef[Any]) -> str:
    return f"the answer to {kind} {handler_name(kind, handler)!r} of workflow {ref.workflow_id!r}"
