"""What a journal holds, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from .errors import JournalCorruptError
from .events import WorkflowStarted, decode_record, events_of
from .facts import Facts, read_facts
from .history_values import load_dictionary
from .lmdb_format import DATA_FILE, LOGS
from .lmdb_salvage import page_file, past_damage
from .lmdb_store import LmdbStore
from .run_status import flagged_status
from .run_walk import FoundRun, RunWalk
from .salvage import Damage, Progress
from .store import CLOSES_RUN, Entry, JournalStore
from .tables import DEDUPE, Table

#: Runs named as the largest ones.
LARGEST = 5


@dataclass
class TableSize:
    """One table, or one segment of the log.

    Attributes:
        rows: Its rows; of the log, commit records.
        bytes: Of the pages that hold them.
    """

    rows: int
    bytes: int


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
        first_sequence: Sequence number of the oldest commit record in the log; 0 when it is empty.
        last_sequence: Of the newest commit record; 0 in an empty journal.
        records: Commit records that the log still holds and that can be read.
        entries: Entries in them.
        events: Events of all runs.
        event_bytes: Of the events as they are encoded, before compression.
        stored_bytes: Of the pages that hold log and histories; None where that is not known.
        plain_bytes_per_event: ``event_bytes`` by ``events``; None without events.
        bytes_per_event: ``stored_bytes`` by ``events``; None where one is missing.
        file_bytes: Of the data file; None where there is none.
        free_bytes: Of its pages that hold nothing and will be used again; None where that is not known.
        tables: Rows and bytes of each table, and of the two segments of the log, by name; empty where not known.
        dictionary: Number of the dictionary that new histories are compressed with; 0 is none.
        dictionary_bytes: Its size.
        request_ids: How many request ids each generation holds, the one that is written to first.
        requests_since: When the first of them was begun, microseconds since the epoch; 0 without any.
        runs: Number of runs by type, then by status.
        largest: The runs with the most events, largest first.
        oldest_open: The open run that started first.
        damage: What cannot be read and is not counted.
    """

    journal_id: str
    first_sequence: int = 0
    last_sequence: int = 0
    records: int = 0
    entries: int = 0
    events: int = 0
    event_bytes: int = 0
    stored_bytes: int | None = None
    plain_bytes_per_event: float | None = None
    bytes_per_event: float | None = None
    file_bytes: int | None = None
    free_bytes: int | None = None
    tables: dict[str, TableSize] = field(default_factory=dict)
    dictionary: int = 0
    dictionary_bytes: int = 0
    request_ids: tuple[int, int] = (0, 0)
    requests_since: int = 0
    runs: dict[str, dict[str, int]] = field(default_factory=dict)
    largest: list[RunSize] = field(default_factory=list)
    oldest_open: RunSize | None = None
    damage: list[Damage] = field(default_factory=list)


def gather(store: JournalStore, progress: Progress | None = None) -> Stats:
    """Count what a journal holds; nothing is changed, and others may write meanwhile.

    Args:
        store: The journal.
        progress: Called with what is done and all there is to do: commit records, then runs.
    """
    with past_damage(store) as (readable, pages):
        stats = Stats(store.journal_id, damage=pages)
        walk = RunWalk(readable, stats.damage.append, progress)
        stats.first_sequence, stats.last_sequence = walk.first_sequence, readable.position.sequence - 1
        stats.records, stats.entries = walk.records, walk.log_entries
        for found in walk:
            _count(stats, found)
        _facts(readable, stats)
    if stats.events:
        stats.plain_bytes_per_event = round(stats.event_bytes / stats.events, 1)
    if isinstance(store, LmdbStore):
        _measure(store, stats)
    return stats


def _count(stats: Stats, found: FoundRun) -> None:
    run = RunSize()
    is_closed = False
    stats.damage += [
        Damage(found.key, found.key, fault.message, fault.table) for fault in found.faults if fault.table
    ]
    for _, entry in found.entries:
        run.bytes += len(entry.body)
        run.status = flagged_status(entry.flags) or run.status
        is_closed |= bool(entry.flags & CLOSES_RUN)
    if found.entries:
        first, last = found.entries[0][1], found.entries[-1][1]
        run.started_at = first.at
        # Nothing is between two entries, so the last one says how many events there are.
        run.events = last.first_event - 1 + _events_in(last)
        started = _start(first)
        if started is not None:
            run.workflow_id, run.run_id, run.workflow_type = (
                started.workflow_id,
                started.run_id,
                started.workflow_type,
            )
    stats.events += run.events
    stats.event_bytes += run.bytes
    statuses = stats.runs.setdefault(run.workflow_type, {})
    statuses[run.status] = statuses.get(run.status, 0) + 1
    stats.largest = sorted([*stats.largest, run], key=lambda run: (-run.events, -run.bytes, run.started_at))[
        :LARGEST
    ]
    if not is_closed and (stats.oldest_open is None or run.started_at < stats.oldest_open.started_at):
        stats.oldest_open = run


def _events_in(entry: Entry) -> int:
    try:
        return len(events_of(decode_record(entry.body)))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return 0


def _start(entry: Entry) -> WorkflowStarted | None:
    try:
        event = next(iter(decode_record(entry.body).inputs), None)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return event if isinstance(event, WorkflowStarted) else None


def _facts(store: JournalStore, stats: Stats) -> None:
    with store.view() as tables:
        try:
            facts = read_facts(tables)
        except JournalCorruptError as error:
            stats.damage.append(Damage(0, 0, str(error), Table.FACTS.value))
            facts = Facts()
        stats.dictionary = facts.dictionary
        if facts.dictionary:
            try:
                stats.dictionary_bytes = len(load_dictionary(tables, facts.dictionary) or b"")
            except JournalCorruptError as error:
                stats.damage.append(Damage(0, 0, str(error), Table.FACTS.value))
        stats.requests_since = facts.generation_since
        current, other = DEDUPE[facts.generation], DEDUPE[1 - facts.generation]
        stats.request_ids = tables.count(current), tables.count(other)


def _measure(store: LmdbStore, stats: Stats) -> None:
    names = [*(name.decode() for name in LOGS), *(table.value for table in Table)]
    with page_file(store) as pages:
        size = pages.page_size
        sizes = {name: pages.size(name.encode()) for name in names}
        stats.free_bytes = pages.free_pages * size
    stats.tables = {name: TableSize(found.rows, found.pages * size) for name, found in sizes.items()}
    stats.file_bytes = Path(store.path, DATA_FILE).stat().st_size
    stored = (*(name.decode() for name in LOGS), Table.HISTORIES.value)
    stats.stored_bytes = sum(stats.tables[name].bytes for name in stored)
    if stats.events:
        stats.bytes_per_event = round(stats.stored_bytes / stats.events, 1)
