"""Updates in two stages: accepted, and later answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Literal, get_args

from .typing import R

#: How long ``start_update`` waits: until the update is accepted, or until its handler is done.
WaitForStage = Literal["accepted", "completed"]


def check_stage(stage: object) -> None:
    """Refuse what is no stage.

    Raises:
        ValueError: It is none.
    """
    if stage not in get_args(WaitForStage):
        raise ValueError(f"wait_for_stage must be 'accepted' or 'completed', not {stage!r}")


class UpdateHandle(Generic[R]):
    """An update that was started; see ``WorkflowHandle.start_update``.

    Attributes:
        workflow_id: Of the run.
        run_id: The run that accepted it.
        name: Of its handler.
        request_id: As it was given, or as a client has made it; a repeat with it gets the same answer, also after a
            restart.
    """

    def __init__(
        self,
        answer: asyncio.Future[Any],
        finish: Callable[[Any], Any],
        *,
        workflow_id: str,
        run_id: str,
        name: str,
        request_id: str,
    ) -> None:
        self._answer = answer
        self._finish = finish
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.name = name
        self.request_id = request_id

    def __repr__(self) -> str:
        state = "answered" if self._answer.done() else "accepted"
        return f"<UpdateHandle {self.name!r} of {self.workflow_id!r}, {state}>"

    def done(self) -> bool:
        """Whether the answer is there."""
        return self._answer.done()

    async def result(self) -> R:
        """Wait for what the handler returns; any number of times, by any number of tasks.

        Raises:
            UpdateRejectedError: The validator refused it after all: it was sent to a run that stood still.
            UpdateFailedError: The handler raised; ``__cause__`` says what.
            UpdateCutError: The run ended before the handler was done.
            WorkflowQuarantinedError: The run stands still; the update goes on when that does.
            WorkflowHeldError: As above.
            RuntimeClosedError: The runtime was left; repeat with the request id at the next start.
            CommitUnknownError: A commit failed; repeat with the request id.
        """
        answer = await asyncio.shield(self._answer)
        result: R = await self._finish(answer)
        return result
