"""Take runs out of a journal as JSON documents, and put them into another one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from . import events as ev
from .blob_table import write_blobs
from .blobs import Spiller
from .errors import ImportRefusedError, JournalCorruptError
from .lmdb_salvage import past_damage
from .loading import load
from .run_check import RunCheck, has_request
from .run_document import document_of, entries_of
from .run_examination import examine
from .run_index import RunIndex
from .run_walk import FoundRun, RunWalk
from .salvage import Damage, Progress
from .store import HAS_REQUEST, Entry, JournalStore

#: Bytes of the events of one commit record; a run with more is imported in several.
RECORD_BYTES = 64 << 20


class LeftOut(NamedTuple):
    """A run that was not exported, because its events are not all whole.

    Attributes:
        run_key: Its internal number.
        workflow_id: Its workflow id; empty when it is not known.
        run_id: Its run id; empty when it is not known.
        reason: What is wrong with it first.
    """

    run_key: int
    workflow_id: str
    run_id: str
    reason: str

    def __str__(self) -> str:
        known = f" ({self.workflow_id!r}, {self.run_id})" if self.run_id else ""
        return f"run {self.run_key}{known}: {self.reason}"


class Imported(NamedTuple):
    """What an import has written.

    Attributes:
        runs: Runs, each in a commit record of its own, or in several when it is very large.
        events: Their events.
    """

    runs: int
    events: int


def export_runs(
    store: JournalStore,
    ids: Collection[str] = (),
    *,
    left_out: Callable[[LeftOut], object],
    damaged: Callable[[Damage], object],
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the runs that are whole as documents of plain JSON values; see ``run_document`` for their form.

    What ``import_runs`` makes of one is exported as the same document again. Each run is as it is when it is read;
    those that start after the first step are not part of it.

    Args:
        store: The journal.
        ids: Workflow ids and run ids of the runs that are wanted; all without any.
        left_out: Called for each of these runs that is damaged.
        damaged: Called for commit records and pages that cannot be read, whatever is wanted.
        progress: Called with what is done and all there is to do: commit records, then runs.
    """
    with past_damage(store) as (readable, pages):
        for damage in pages:
            damaged(damage)
        walk = RunWalk(readable, damaged, progress)
        wanted = (lambda row: row.workflow_id in ids or row.run_id in ids) if ids else None
        for key in walk.run_keys(wanted):
            found, check, reason = _examined(walk, key)
            started = check.started
            named = started or found.row
            names = (named.workflow_id, named.run_id) if named is not None else ("", "")
            # Without any name a damaged run may be one of those that are wanted.
            if found.is_gone or (ids and any(names) and not any(name in ids for name in names)):
                continue
            if reason or started is None:
                left_out(LeftOut(key, *names, reason))
                continue
            yield document_of(started, [entry for _, entry in found.entries])


def _examined(walk: RunWalk, key: int) -> tuple[FoundRun, RunCheck, str]:
    """A run, what its events are, and why they are not all whole."""
    while True:
        found = walk.look(key)
        examined = examine(found, walk.spiller)
        check = examined.check
        if check.is_whole:
            return found, check, ""
        if not walk.has_moved_on():  # else a writer may have been between what was read of it
            events = [fault.message for fault in examined.faults if fault.event]
            return found, check, next(iter(events), "its events are not all whole")


def import_runs(
    store: JournalStore, documents: Iterable[Mapping[str, Any]], progress: Progress | None = None
) -> Imported:
    """Append exported runs to a journal, each as one commit record, in the order given.

    All documents are checked before the first is written. When an append fails, the runs before it are there, and of
    a run of more than ``RECORD_BYTES`` perhaps its beginning.

    Args:
        store: The journal, opened for writing.
        documents: What ``export_runs`` made.
        progress: Called with the runs written and all of them.

    Raises:
        ImportRefusedError: A document is damaged or its run is there already; nothing was written.
        JournalCorruptError: The journal has damage of its own; nothing was written.
        AppendRefusedError: Another writer has taken over.
        CommitUnknownError: A commit failed.
    """
    try:
        loaded = load(store)
        batches, events = _batches(loaded.runs, documents, loaded.next_key)
    except JournalCorruptError as error:
        raise JournalCorruptError(
            f"the journal is damaged and takes no import (`everact journal verify` names all of it): {error}"
        ) from error
    position = store.position
    spiller = Spiller(store.journal_id)
    for done, entries in enumerate(batches, 1):
        for part in _parts(entries):
            stored, blobs = spiller.spill_entries(part)
            position = store.append(position, stored, partial(write_blobs, blobs=blobs) if blobs else None)
        if progress is not None:
            progress(done, len(batches))
    return Imported(len(batches), events)


def _batches(
    index: RunIndex, documents: Iterable[Mapping[str, Any]], next_key: int
) -> tuple[list[list[Entry]], int]:
    """The entries of each document's run, and the number of events."""
    run_ids: set[str] = set()
    newest: dict[str, tuple[int, bool, str]] = {}
    requests: set[tuple[str, str]] = set()
    batches: list[list[Entry]] = []
    events = 0
    for key, document in enumerate(documents, next_key):
        entries = [_flagged(entry) for entry in entries_of(document, key)]
        run = _checked(entries, document)
        started = run.started
        assert started is not None
        workflow_id = started.workflow_id
        if started.run_id in run_ids or index.find(workflow_id, started.run_id) is not None:
            raise ImportRefusedError(
                f"run {started.run_id!r} is in this journal already: nothing was imported"
            )
        before = newest.get(workflow_id)
        if before is None and (row := index.find(workflow_id)) is not None:
            before = row.started_at, row.is_closed, row.run_id
        # A run goes on as the next of its chain whatever the wall clock, which may have been set back, says of that.
        follows = (
            before is not None and started.chain is not None and started.chain.continued_run_id == before[2]
        )
        if before is not None and (not before[1] or (before[0] > entries[0].at and not follows)):
            what = "is open" if not before[1] else "started later"
            raise ImportRefusedError(
                f"workflow {workflow_id!r} has another run in this journal that {what}, "
                f"run {started.run_id!r} would take its place: nothing was imported"
            )
        request = (workflow_id, started.request_id)
        if started.request_id and (request in requests or index.requests.find(*request) is not None):
            raise ImportRefusedError(
                f"workflow {workflow_id!r} was started with request id {started.request_id!r} in this "
                f"journal already: nothing was imported"
            )
        requests.add(request)
        run_ids.add(started.run_id)
        newest[workflow_id] = (entries[0].at, run.is_closed, started.run_id)
        events += run.events
        batches.append(entries)
    return batches, events


def _flagged(entry: Entry) -> Entry:
    """The entry with the flag of a request id, which older exports lack: start-up looks for those by it."""
    if not entry.flags & HAS_REQUEST and has_request(ev.decode_record(entry.body)):
        return entry._replace(flags=entry.flags | HAS_REQUEST)
    return entry


def _parts(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Cut a run's entries into pieces of the size of a commit record."""
    part: list[Entry] = []
    size = 0
    for entry in entries:
        if part and size + len(entry.body) > RECORD_BYTES:
            yield part
            part, size = [], 0
        part.append(entry)
        size += len(entry.body)
    if part:
        yield part


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
