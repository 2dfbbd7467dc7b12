"""What a journal holds, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .events import WorkflowStarted
from .lmdb_format import DATA_FILE
from .lmdb_store import LmdbStore
from .run_check import RunCheck
from .run_index import flagged_status
from .salvage import Damage, Progress, readable_records
from .store import JournalStore

#: Runs named as the largest ones.
LARGEST = 5


@dataclass
class RunSize:
    """One run.

    Attributes:
        workflow_id: Its id; empty when its start cannot be read.
        run_id: The run.
        workflow_type: Its type.
        status: As its newest flags say.
        started_at: Microseconds since the epoch.
        events: Its events.
        bytes: Of its events as they are encoded, before compression.
    """

    workflow_id: str = ""
    run_id: str = ""
    workflow_type: str = ""
    status: str = "running"
    started_at: int = 0
    events: int = 0
    bytes: int = 0


@dataclass
class Stats:
    """Figures of a journal.

    Attributes:
        journal_id: Of the journal.
        first_sequence: Sequence number of the oldest commit record; 0 in an empty journal.
        last_sequence: Of the newest one.
        records: Commit records that can be read.
        entries: Entries in them.
        events: Events in them.
        event_bytes: Of the events as they are encoded, before compression.
        log_bytes: Of the pages that hold the commit records; None where that is not known.
        file_bytes: Of the data file; None where there is none.
        bytes_per_event: ``log_bytes`` by ``events``; None where one is missing.
        runs: Number of runs by type, then by status.
        largest: The runs with the most events, largest first.
        oldest_open: The open run that started first.
        damage: Commit records that cannot be read and are not counted.
    """

    journal_id: str
    first_sequence: int = 0
    last_sequence: int = 0
    records: int = 0
    entries: int = 0
    events: int = 0
    event_bytes: int = 0
    log_bytes: int | None = None
    file_bytes: int | None = None
    bytes_per_event: float | None = None
    runs: dict[str, dict[str, int]] = field(default_factory=dict)
    largest: list[RunSize] = field(default_factory=list)
    oldest_open: RunSize | None = None
    damage: list[Damage] = field(default_factory=list)


def gather(store: JournalStore, progress: Progress | None = None) -> Stats:
    """Count what a journal holds; nothing is changed, and others may write meanwhile.

    Args:
        store: The journal.
        progress: Called with the commit records done and all of them.
    """
    stats = Stats(store.journal_id)
    runs: dict[int, RunSize] = {}
    closed: set[int] = set()
    checks: dict[int, RunCheck] = {}
    for sequence, entries in readable_records(store, stats.damage.append, progress):
        stats.first_sequence = stats.first_sequence or sequence
        stats.last_sequence = sequence
        stats.records += 1
        stats.entries += len(entries)
        for entry in entries:
            run = runs.get(entry.run_key)
            if run is None:
                run = runs[entry.run_key] = RunSize(started_at=entry.at)
            check = checks.setdefault(entry.run_key, RunCheck(entry.run_key))
            check.take(entry)
            run.events = check.events
            run.bytes += len(entry.body)
            run.status = flagged_status(entry.flags) or run.status
            if check.is_closed:
                closed.add(entry.run_key)
            if entry.first_event == 1 and check.started is not None:
                _name(run, check.started)
    for run in runs.values():
        statuses = stats.runs.setdefault(run.workflow_type, {})
        statuses[run.status] = statuses.get(run.status, 0) + 1
        stats.events += run.events
        stats.event_bytes += run.bytes
    stats.largest = sorted(runs.values(), key=lambda run: (-run.events, -run.bytes, run.started_at))[:LARGEST]
    stats.oldest_open = min(
        (run for key, run in runs.items() if key not in closed), key=lambda run: run.started_at, default=None
    )
    _measure(store, stats)
    return stats


def _name(run: RunSize, started: WorkflowStarted) -> None:
    run.workflow_id, run.run_id, run.workflow_type = (
        started.workflow_id,
        started.run_id,
        started.workflow_type,
    )


def _measure(store: JournalStore, stats: Stats) -> None:
    if not isinstance(store, LmdbStore):
        return
    with store._shared as opened, opened.env.begin() as txn:
        pages = [txn.stat(log) for log in opened.logs]
    stats.log_bytes = sum(
        (p["branch_pages"] + p["leaf_pages"] + p["overflow_pages"]) * p["psize"] for p in pages
    )
    stats.file_bytes = Path(store.path, DATA_FILE).stat().st_size
    if stats.events:
        stats.bytes_per_event = round(stats.log_bytes / stats.events, 1)
