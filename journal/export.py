"""Take runs out of a journal as JSON documents, and put them into another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from . import events as ev
from .errors import ImportRefusedError, JournalCorruptError
from .run_check import RunCheck
from .run_document import document_of, entries_of
from .run_index import RunIndex, RunRow
from .salvage import Damage, Progress, readable_records
from .store import STARTS_RUN, Entry, JournalStore


class Imported(NamedTuple):
    """What an import has written.

    Attributes:
        runs: Runs, each in a commit record of its own.
        events: Their events.
    """

    runs: int
    events: int


@dataclass(frozen=True)
class Readable:
    """What can be read of a journal.

    Attributes:
        index: The runs that are whole.
        damage: Commit records that cannot be read.
        damaged_runs: Keys of the runs that lack something.
        highest_key: The highest run key seen; 0 when there is none.
    """

    index: RunIndex
    damage: list[Damage]
    damaged_runs: list[int]
    highest_key: int


def readable_runs(store: JournalStore, progress: Progress | None = None) -> Readable:
    """Index the runs of a journal that are whole, passing over what is damaged.

    Args:
        store: The journal.
        progress: Called with the commit records done and all of them.
    """
    index = RunIndex(store)
    damage: list[Damage] = []
    runs: dict[int, RunCheck] = {}
    for sequence, entries in readable_records(store, damage.append, progress):
        started: dict[int, ev.WorkflowStarted] = {}
        kept: list[Entry] = []
        for entry in entries:
            run = runs.get(entry.run_key)
            if run is None:
                run = runs[entry.run_key] = RunCheck(entry.run_key)
            run.take(entry)
            if entry.flags & STARTS_RUN and run.started is not None:
                started.setdefault(entry.run_key, run.started)
            # The index counts entries by their place: what belongs to a damaged run keeps its place, as nothing.
            kept.append(entry if run.is_whole else entry._replace(flags=0))
            if not run.is_whole and entry.run_key not in index.rows:
                known = run.started or ev.WorkflowStarted("", "", "")
                index.rows[entry.run_key] = RunRow(entry.run_key, known, entry.at)
        index.add(sequence, kept, started)
    broken = [key for key, run in runs.items() if not run.is_whole]
    for key in broken:
        row = index.rows.pop(key)
        for table, name in ((index.by_run_id, row.run_id), (index.by_workflow_id, row.workflow_id)):
            if table.get(name) is row:
                del table[name]
    return Readable(index, damage, broken, max(runs, default=0))


def export_run(store: JournalStore, index: RunIndex, row: RunRow) -> dict[str, Any]:
    """Describe a run as a document of plain JSON values; see ``run_document`` for its form.

    What ``import_runs`` makes of it is exported as the same document again.

    Args:
        store: The journal.
        index: Its index.
        row: The run, one of the index.

    Raises:
        JournalCorruptError: Part of the run cannot be read.
    """
    assert index.rows.get(row.key) is row, "the row is of another index"
    entries = index.entries(row)
    try:
        first = ev.decode_record(entries[0].body).inputs[0]
        assert isinstance(first, ev.WorkflowStarted)
        return document_of(first, entries)
    except msgspec.DecodeError as error:
        raise JournalCorruptError(f"run {row.run_id!r} does not decode: {error}") from error


def import_runs(
    store: JournalStore, documents: Iterable[Mapping[str, Any]], progress: Progress | None = None
) -> Imported:
    """Append exported runs to a journal, each as one commit record, in the order given.

    All documents are checked before the first is written. When an append fails, the runs before it are there.

    Args:
        store: The journal, opened for writing.
        documents: What ``export_run`` made.
        progress: Called with the runs written and all of them.

    Raises:
        ImportRefusedError: A document is damaged or its run is there already; nothing was written.
        JournalCorruptError: The journal has damage of its own; nothing was written.
        AppendRefusedError: Another writer has taken over.
        CommitUnknownError: A commit failed.
    """
    there = readable_runs(store)
    if there.damage or there.damaged_runs:
        raise JournalCorruptError(
            "the journal is damaged and takes no import: `everact journal verify` says where"
        )
    run_ids = set(there.index.by_run_id)
    newest = {name: (row.started_at, row.is_closed) for name, row in there.index.by_workflow_id.items()}
    requests = set(there.index.requests)
    batches: list[list[Entry]] = []
    events = 0
    for key, document in enumerate(documents, there.highest_key + 1):
        entries = entries_of(document, key)
        run = _checked(entries, document)
        started = run.started
        assert started is not None
        if started.run_id in run_ids:
            raise ImportRefusedError(
                f"run {started.run_id!r} is in this journal already: nothing was imported"
            )
        before = newest.get(started.workflow_id)
        if before is not None and (not before[1] or before[0] > entries[0].at):
            what = "is open" if not before[1] else "started later"
            raise ImportRefusedError(
                f"workflow {started.workflow_id!r} has another run in this journal that {what}, "
                f"run {started.run_id!r} would take its place: nothing was imported"
            )
        request = (started.workflow_id, started.request_id)
        if started.request_id and request in requests:
            raise ImportRefusedError(
                f"workflow {started.workflow_id!r} was started with request id {started.request_id!r} in this "
                f"journal already: nothing was imported"
            )
        requests.add(request)
        run_ids.add(started.run_id)
        newest[started.workflow_id] = (entries[0].at, run.is_closed)
        events += run.events
        batches.append(entries)
    position = store.position
    for done, entries in enumerate(batches, 1):
        position = store.append(position, entries)
        if progress is not None:
            progress(done, len(batches))
    return Imported(len(batches), events)


def _checked(entries: list[Entry], document: Mapping[str, Any]) -> RunCheck:
    name = document.get("run_id")
    if not entries:
        raise ImportRefusedError(f"the exported run {name!r} has no records")
    run = RunCheck(entries[0].run_key)
    for entry in entries:
        for event, message in run.take(entry):
            raise ImportRefusedError(f"the exported run {name!r} is damaged: event {event}: {message}")
    started = run.started
    if started is None or (started.workflow_id, started.run_id, started.workflow_type) != (
        document.get("workflow_id"),
        name,
        document.get("workflow_type"),
    ):
        raise ImportRefusedError(f"the exported run {name!r} is damaged: its first event names another run")
    return run
