"""What an environment does just now, as text: what holds time still, what is due, what each open run waits for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from ..actors.descriptions import WorkflowDescription, observe
from ..actors.unwanted_attempts import name_of
from ..journal.errors import JournalError
from .errors import ActivityNotMockedError
from .mocks import activity_names

if TYPE_CHECKING:
    from ..actors.shard import Shard
    from ..journal.fold import RunState
    from .clock import VirtualClock
    from .driver import Call, TimeDriver

#: So many runs are named; the others are counted.
SHOWN = 20


def report(shard: Shard | None, clock: VirtualClock, driver: TimeDriver, call: Call | None = None) -> str:
    """The lines; the runs that a call waits for come first."""
    if shard is None:
        return f"the environment is not open; its time is {clock.now():%Y-%m-%d %H:%M:%S}"
    lines = [f"time: {clock.now():%Y-%m-%d %H:%M:%S} UTC, {_mode(driver)}"]
    lines += [f"time is held by {holder}" for holder in _holders(driver)]
    if shard.coder is not None and shard.coder.jobs:
        lines.append(f"time is held by payload codecs: calls that run: {shard.coder.jobs}")
    due = driver.next_due(shard)
    if due is not None:
        at = clock.now() + timedelta(microseconds=due - clock.elapsed)
        lines.append(f"next due: {at:%Y-%m-%d %H:%M:%S} UTC")
    runs = list(_open_runs(shard))
    if call is not None:
        runs.sort(key=lambda state: state.started.workflow_id != call.workflow_id)
    lines += [_run_line(shard, state) for state in runs[:SHOWN]]
    if len(runs) > SHOWN:
        lines.append(f"and {len(runs) - SHOWN:,} more open workflows")
    elif not runs:
        lines.append("no workflow is open")
    return "\n".join(lines)


def _mode(driver: TimeDriver) -> str:
    if not driver.is_automatic:
        return "moved by env.advance() only"
    return "jumps to what is due next while somebody waits for the environment"


def _holders(driver: TimeDriver) -> Iterator[str]:
    if driver.holds:
        yield "env.time_held()"
    for attempt in sorted(driver.holding(), key=name_of):
        yield f"{name_of(attempt)}: its code runs, and does not sleep by env.sleep()"


def _open_runs(shard: Shard) -> Iterator[RunState]:
    """Open runs, the oldest first, those included that are not in memory."""
    rows = [row for row in shard.index.newest_first() if not row.is_closed]
    for row in reversed(rows):
        actor = shard.actors.get(row.key)
        try:
            state = shard.index.state(row) if actor is None else actor.state
        except JournalError:
            continue  # it is damaged, and the log says so
        if state.outcome is None:
            yield state


def _run_line(shard: Shard, state: RunState) -> str:
    about = observe(state).about
    status = "" if about.status == "running" else f", {about.status}"
    if about.pause_reason:
        status += f" ({about.pause_reason})"
    text = f"workflow {about.workflow_id!r} ({about.workflow_type}{status}) waits for {about.waiting_on}"
    asides = [*_missing(shard, about), *_outside(about)]
    if state.stall is not None:
        asides.append(f"{state.stall.failure.type}: {state.stall.failure.message}")
    if about.backlog:
        asides.append(f"{about.backlog} received inputs are not handled")
    return text + "".join(f"\n    {aside}" for aside in asides)


def _missing(shard: Shard, about: WorkflowDescription) -> Iterator[str]:
    if about.workflow_type not in shard.workflows:
        yield f"workflow type {about.workflow_type!r} is not registered: pass it in workflows=[...]"
    for name in sorted({pending.activity_type for pending in about.pending_activities}):
        if name not in shard.activities:
            yield str(ActivityNotMockedError(name, activity_names(shard.activities)))


def _outside(about: WorkflowDescription) -> Iterator[str]:
    for pending in about.pending_activities:
        if pending.completed_outside:
            yield (
                f"activity {pending.activity_type!r} is completed from outside: "
                f"env.runtime.activity_handle(...).complete(...)"
            )
