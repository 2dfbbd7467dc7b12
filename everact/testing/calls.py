"""The calls of a test environment's handles that wait: time may pass while they do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from ..actors.message_arguments import handler_name
from ..actors.updates import UpdateHandle, WaitForStage
from ..journal.errors import CommitUnknownError
from ..journal.ids import random_id
from .crashes import Lives

if TYPE_CHECKING:
    from ..actors.handles import ActorRef, OnStall
    from ..actors.workflow_actor import WorkflowActor
    from .driver import TimeDriver


class WaitingMessenger:
    """In front of a runtime's messenger: says what waits, and outlives it; all else goes straight through.

    Handles have it, so they go on after a restart, and their calls after a crash.

    Attributes:
        behind: The messenger of the environment's present runtime.
    """

    def __init__(self, driver: TimeDriver, lives: Lives) -> None:
        self.behind: Any = None
        self._driver = driver
        self._lives = lives

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.behind, name)
        if not iscoroutinefunction(found):
            return found
        return lambda *args, **options: self._call(name, *args, **options)

    async def _call(self, name: str, *args: Any, **options: Any) -> Any:
        """Make a call, and again when the environment dies before it is answered."""
        return await self._lives.through(lambda: getattr(self.behind, name)(*args, **options))

    def _request_id(self, given: str | None, kind: str, name: str, ref: ActorRef[Any]) -> str | None:
        """That of a message, which is applied once however often it is sent."""
        if given is not None or not self._lives.plan.is_expected:
            return given
        return self._lives.plan.call_id(random_id, kind, name, ref.workflow_id)

    async def result(
        self,
        ref: ActorRef[Any],
        limit: timedelta | float | None,
        on_stall: OnStall,
        *,
        follow_runs: bool = True,
    ) -> Any:
        """Wait for a run's outcome."""
        text = f"the result of workflow {ref.workflow_id!r}"
        with self._driver.waiting(text, ref.workflow_id, follows_runs=follow_runs):
            return await self._call("result", ref, limit, on_stall, follow_runs=follow_runs)

    async def outcome(self, actor: WorkflowActor) -> Any:
        """Wait for the outcome of a run that was just started."""
        text = f"the result of workflow {actor.workflow_id!r}"
        with self._driver.waiting(text, actor.workflow_id, follows_runs=True):
            return await self.behind.outcome(actor)

    async def signal(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        request_id: str | None,
    ) -> None:
        """Send a signal."""
        request_id = self._request_id(request_id, "signal", handler_name("signal", handler), ref)
        await self._lives.send(lambda: self.behind.signal(ref, handler, args, request_id))

    async def control(self, ref: ActorRef[Any], kind: Any, reason: str, request_id: str | None) -> None:
        """Pause, resume or release."""
        request_id = self._request_id(request_id, "control", kind.__name__, ref)
        await self._call("control", ref, kind, reason, request_id)

    async def update(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        request_id: str | None,
    ) -> Any:
        """Send an update and wait for its answer."""
        with self._driver.waiting(_of("update", handler, ref), ref.workflow_id):
            request_id = self._request_id(request_id, "update", handler_name("update", handler), ref)
            return await self._lives.send(lambda: self.behind.update(ref, handler, args, request_id))

    async def start_update(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        request_id: str | None,
        stage: WaitForStage,
    ) -> UpdateHandle[Any]:
        """Send an update."""
        request_id = self._request_id(request_id, "update", handler_name("update", handler), ref)
        with self._driver.waiting(_of("update", handler, ref), ref.workflow_id):
            handle = await self._call("start_update", ref, handler, args, request_id, stage)
        repeat = partial(self._call, "update", ref, handler, args, request_id)
        return _WaitingUpdate(handle, self._driver, self._lives, repeat)

    async def query(
        self,
        ref: ActorRef[Any],
        handler: Any,
        args: Sequence[Any],
        limit: timedelta | float,
    ) -> Any:
        """Ask a query."""
        with self._driver.waiting(_of("query", handler, ref), ref.workflow_id):
            return await self._call("query", ref, handler, args, limit)


class _WaitingUpdate(UpdateHandle[Any]):
    """An update that was started, whose result lets time pass."""

    def __init__(
        self,
        handle: UpdateHandle[Any],
        driver: TimeDriver,
        lives: Lives,
        repeat: Callable[[], Awaitable[Any]],
    ) -> None:
        super().__init__(
            handle._answer,
            handle._finish,
            workflow_id=handle.workflow_id,
            run_id=handle.run_id,
            name=handle.name,
            request_id=handle.request_id,
        )
        self._driver = driver
        self._lives = lives
        self._repeat = repeat
        self._life = lives.crashes

    async def result(self) -> Any:
        """Wait for what the handler returns."""
        text = f"the answer to update {self.name!r} of workflow {self.workflow_id!r}"
        with self._driver.waiting(text, self.workflow_id):
            return await self._lives.through(self._answered)

    async def _answered(self) -> Any:
        if self._life == self._lives.crashes:
            try:
                return await super().result()
            except CommitUnknownError:
                if not self._lives.plan.is_expected:
                    raise
                self._life = -1
        return await self._repeat()  # the same request is answered with the same answer


def _of(kind: str, handler: Any, ref: ActorRef[Any]) -> str:
    return f"the answer to {kind} {handler_name(kind, handler)!r} of workflow {ref.workflow_id!r}"
