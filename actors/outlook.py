"""What becomes of a run whose result is not there in time, in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..journal.failures import one_line
from .descriptions import observe, readable

if TYPE_CHECKING:
    from .workflow_actor import WorkflowActor


async def outlook(actor: WorkflowActor) -> str:
    """Whether the run goes on, what it waits for, and why if it stands still."""
    if not actor.batch.durable:  # it would tell of what may still be lost (R5)
        return "it goes on"
    seen = observe(actor.state)
    status = seen.about.status
    waits = f" (waiting on: {seen.about.waiting_on})"
    if status == "paused":
        return f"it is paused{waits}"
    if actor.state.stall is None:
        return f"it goes on{waits}"
    if actor.shard.coder is not None:
        seen = await readable(seen, actor.shard.coder, actor.about)
    why = f": {one_line(seen.failure.failure)}" if seen.failure is not None else ""
    return f"it is {status}{waits}{why}"
