"""Whether the events of a run make sense, and the tables say of it what they say."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from . import events as ev
from .blobs import Spiller
from .fold import PendingActivity, RunState
from .run_chain import RunLinks
from .run_check import RunCheck
from .run_ends import links_of
from .run_status import CLOSED
from .run_walk import Fault, FoundRun
from .snapshots import HAS_BLOBS, OpenRun, decode_open, encode_open
from .stored_runs import StoredRun
from .tables import Table

#: What of a fold is not in a snapshot.
_LEFT_OUT = frozenset(["answers", "closed_at", "outcome"])


class SeenRequest(NamedTuple):
    """A message with a request id.

    Attributes:
        event: Number of the event.
        request_id: Its request id.
        digest: Its digest.
        at: When it was received, microseconds.
        is_moved: Whether it is in the histories.
    """

    event: int
    request_id: str
    digest: bytes
    at: int
    is_moved: bool


class Examined(NamedTuple):
    """What was found out about a run.

    Attributes:
        check: What its events are; ``check.is_whole`` says whether all of them are there and fit.
        faults: All that is wrong.
        requests: Its messages with request ids.
        wake: When its row in the table of open runs says that it falls due; 0 for never, or without such a row.
    """

    check: RunCheck
    faults: list[Fault]
    requests: list[SeenRequest]
    wake: int


def examine(found: FoundRun, spiller: Spiller) -> Examined:
    """Check the events of a run, and its rows in the tables of runs and of open runs against them."""
    check = RunCheck(found.key)
    faults = list(found.faults)
    requests: list[SeenRequest] = []
    snapshot = found.snapshot
    wake = decode_open(found.open_row).wake if found.open_row is not None and snapshot is not None else 0
    differences: list[Fault] | None = None
    lost = sorted(fault.event for fault in faults if fault.table == Table.HISTORIES.value)
    for sequence, entry in found.entries:
        while lost and lost[0] < entry.first_event:
            check.pass_over(entry)
            del lost[0]
        faults += [Fault(event, message, sequence) for event, message in check.take(entry)]
        if check.record is not None:
            requests += [
                SeenRequest(number, event.request_id, event.digest, entry.at, not sequence)
                for number, event in enumerate(check.record.inputs, entry.first_event)
                if isinstance(event, ev.WITH_DIGEST) and event.request_id
            ]
        # Turns that only deliver leave the number of the last event as it was: one of the states is the snapshot's.
        is_there = snapshot is not None and check.is_whole and check.state.last_event == snapshot.last_event
        if snapshot is not None and is_there and differences != []:
            differences = _compared(found, check.state, snapshot, spiller)
    if any(fault.table == Table.BLOBS.value for fault in faults):
        check.is_whole = False
    if check.is_whole:
        missing = _missing_end(found, check, snapshot)
        if missing and lost:
            check.pass_over(None)
        elif missing:
            check.is_whole = False
            faults.append(missing)
        elif snapshot is not None and differences is None:
            faults.append(_open_fault(f"it is of event {snapshot.last_event}, where no record ends"))
    faults += differences or []
    if found.row is not None:
        faults += _row_faults(found, found.row, check, snapshot)
    elif Table.RUNS not in found.unknown and (found.has_history or found.open_row is not None):
        faults.append(Fault(0, "the run has no row here", table=Table.RUNS.value))
    return Examined(check, faults, requests, wake)


def _open_fault(message: str) -> Fault:
    return Fault(0, message, table=Table.OPEN.value)


def _missing_end(found: FoundRun, check: RunCheck, snapshot: RunState | None) -> Fault | None:
    """Whether the tables know of later events than there are."""
    if not found.entries:
        return Fault(1, "none of its events are there")
    row = found.row
    if snapshot is not None and snapshot.last_event > check.events:
        count = snapshot.last_event
        return Fault(count, f"the run had at least {count} events: its end is missing")
    if row is not None and row.status in CLOSED and not check.is_closed:
        return Fault(check.events + 1, f"the run has ended ({row.status}): its end is missing")
    return None


def _compared(found: FoundRun, state: RunState, snapshot: RunState, spiller: Spiller) -> list[Fault]:
    """Where the row of an open run differs from the fold of its events up to there."""
    assert found.open_row is not None
    expected, _wake = encode_open(state, spiller)
    if expected == found.open_row:
        return []
    wrong = [
        name for name in RunState.__slots__ if name not in _LEFT_OUT and not _same(name, state, snapshot)
    ]
    if _needs(expected) != _needs(found.open_row):
        wrong.append("what it needs")
    return [_open_fault(f"it differs from the events in: {', '.join(wrong)}")] if wrong else []


def _needs(row: bytes) -> OpenRun:
    """What is needed at start; how large a payload must be to stand elsewhere may have changed since."""
    found = decode_open(row)
    return found._replace(needs=found.needs & ~HAS_BLOBS)


def _same(name: str, state: RunState, snapshot: RunState) -> bool:
    mine, theirs = getattr(state, name), getattr(snapshot, name)
    if name == "started":
        return bool(msgspec.structs.replace(mine, args=()) == theirs)
    if name == "activities":
        return _pending(mine) == _pending(theirs)
    return bool(mine == theirs)


def _pending(activities: dict[int, PendingActivity]) -> dict[int, tuple[object, ...]]:
    return {
        command: tuple(getattr(pending, name) for name in PendingActivity.__slots__)
        for command, pending in activities.items()
    }


def _is_placed(links: RunLinks | None, state: RunState) -> bool:
    """Whether a row says of a run's chain what the events say; it may know less, where the runs came one by one."""
    if links is None:
        return True
    known = links_of(state)
    return known is not None and links in (known, msgspec.structs.replace(known, continued_to=""))


def _row_faults(found: FoundRun, row: StoredRun, check: RunCheck, snapshot: RunState | None) -> list[Fault]:
    wrong: list[str] = []
    started = check.started
    if started is not None:
        says = (row.workflow_id, row.run_id, row.workflow_type)
        if says != (started.workflow_id, started.run_id, started.workflow_type):
            wrong.append(f"it names {says}, its first event another run")
    if check.is_whole:
        # An open run's row is of the same commit as its snapshot.
        known = check.state if row.status in CLOSED else snapshot
        if known is not None and row.status != known.status:
            wrong.append(f"it says {row.status!r}, the events {known.status!r}")
        if row.parent_id != check.state.started.parent_id:
            wrong.append("its parent is not that of the events")
        if known is not None and not _is_placed(row.links, known):
            wrong.append("its place in its chain is not that of the events")
        if row.started_at != check.state.started_at:
            wrong.append("its time of start is not that of the events")
        if row.closed_at != (check.state.closed_at if row.status in CLOSED else 0):
            wrong.append("its time of end is not that of the events")
        if bool(row.through) != found.has_history:
            wrong.append("it does not say whether the histories have something of it")
    faults = [Fault(0, message, table=Table.RUNS.value) for message in wrong]
    if row.status in CLOSED and found.open_row is not None:
        faults.append(_open_fault("the run has ended, and has a row here"))
    elif row.status not in CLOSED and found.open_row is None and Table.OPEN not in found.unknown:
        faults.append(_open_fault("the run is open, and has no row here"))
    return faults
