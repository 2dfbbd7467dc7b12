"""How far a run is with its steps: a part of its fold, readable without user code.

What ended long ago is only counted, so that a loop of any number of steps keeps the fold small.
"""

from __future__ import annotations

import msgspec

from .step_events import StepAttemptFailed, StepCancelled, StepCompleted, StepFailed, StepStarted

#: Ended steps that are kept in memory, the newest; the history has all of them.
STEPS_KEPT = 50

RUNNING = "running"
COMPLETED = "completed"
FAILED = "failed"
CANCELLED = "cancelled"
#: An optional step failed, and the run went on without its result.
SKIPPED = "skipped"
#: The run ended while it was running.
UNFINISHED = "unfinished"


class StepProgress(msgspec.Struct, array_like=True):
    """One step.

    Attributes:
        command: Its number in the run.
        name: Its name.
        started_at: Microseconds.
        parent: Number of the step around it; 0 for none.
        attempt: The attempt that runs or runs next, or was the last, from 1.
        status: ``running``, ``completed``, ``failed``, ``cancelled``, ``skipped`` or ``unfinished``.
        ended_at: Microseconds; 0 while it runs.
        next_at: When its next attempt begins, microseconds; 0 while one runs.
        is_checkpoint: Replay skips its body.
    """

    command: int
    name: str
    started_at: int
    parent: int = 0
    attempt: int = 1
    status: str = RUNNING
    ended_at: int = 0
    next_at: int = 0
    is_checkpoint: bool = False


class Steps(msgspec.Struct, array_like=True):
    """The steps of one run.

    Attributes:
        running: Those that have begun and not ended, by command number.
        ended: The newest of the others, in the order of their ends.
        counts: How many have ended, by status.
    """

    running: dict[int, StepProgress] = {}
    ended: list[StepProgress] = []
    counts: dict[str, int] = {}

    def start(self, at: int, event: StepStarted) -> None:
        """A step begins."""
        self.running[event.command] = StepProgress(event.command, event.name, at, event.outer)

    def end(self, at: int, event: StepCompleted | StepFailed | StepCancelled) -> None:
        """It ends."""
        match event:
            case StepCompleted():
                status = SKIPPED if event.handled == "optional" else COMPLETED
                is_checkpoint = event.checkpoint is not None
            case StepFailed():
                status, is_checkpoint = FAILED, event.checkpoint is not None
            case _:
                status, is_checkpoint = CANCELLED, False
        self._end(at, event.command, status, is_checkpoint=is_checkpoint)

    def close(self, at: int) -> None:
        """The run ends."""
        for command in list(self.running):
            self._end(at, command, UNFINISHED)

    def _end(self, at: int, command: int, status: str, *, is_checkpoint: bool = False) -> None:
        step = self.running.pop(command, None)
        if step is None:
            return
        step.status = status
        step.ended_at = at
        step.next_at = 0
        step.is_checkpoint = is_checkpoint
        self.counts[status] = self.counts.get(status, 0) + 1
        self.ended.append(step)
        del self.ended[:-STEPS_KEPT]

    def retry(self, event: StepAttemptFailed) -> None:
        """An attempt failed, and another follows."""
        step = self.running.get(event.command)
        if step is not None:
            step.attempt = event.attempt + 1
            step.next_at = event.next_at
