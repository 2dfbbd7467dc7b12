"""What start-up reads of a journal: the log that is left, the open runs, and what falls due soon (R16)."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from .errors import JournalCorruptError
from .events import WITH_DIGEST, WorkflowStarted, decode_record
from .facts import Facts, read_facts
from .fold import RunState
from .history_values import load_dictionary
from .request_ids import Request
from .run_history import apply_newer, moved_state, repeats
from .run_index import RunIndex
from .run_repair import LostRunError, check_pages
from .run_row import RunRow
from .snapshots import HAS_ACTIVITIES, OpenRun, decode_open
from .store import CLOSES_RUN, HAS_REQUEST, STARTS_RUN, Entry, JournalStore, Tables
from .tables import NUMBER, PAIR, Table

T = TypeVar("T")

log = logging.getLogger("everact.runtime")


class Loaded(NamedTuple):
    """What a journal holds, as far as it must be in memory.

    Attributes:
        runs: Its runs.
        facts: Of its tables.
        states: Folds of the open runs that the log knows something of, by key.
        next_key: The next free run key.
    """

    runs: RunIndex
    facts: Facts
    states: dict[int, RunState]
    next_key: int


def load(store: JournalStore) -> Loaded:
    """Scan the log and build the overlay, in one go; errors as of ``load_in_steps``."""
    return at_once(load_in_steps(store))


def at_once(steps: Generator[None, None, T]) -> T:
    """What steps return, without a pause between them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def load_in_steps(store: JournalStore) -> Generator[None, None, Loaded]:
    """Scan the log and build the overlay; yields between commit records and between runs.

    Nobody may append meanwhile.

    A run that is damaged is left as it is, and keeps nothing else out.

    Raises:
        JournalCorruptError: A commit record, the facts or a dictionary cannot be read.
    """
    index = RunIndex(store)
    with store.view() as tables:
        facts = read_facts(tables)
        segments = tables.segments
        if facts.dictionary:
            data = load_dictionary(tables, facts.dictionary)
            if data is not None:
                index.codec.add(facts.dictionary, data)
                index.codec.active = facts.dictionary
    index.begin(facts.by_type_and_status())
    logged: dict[int, list[Entry]] = {}
    highest = facts.highest_key
    for sequence, entries in store.scan():
        yield
        moved_to = facts.compacted_to if sequence < segments.current else 0
        started = _started(entries, moved_to)
        index.add(sequence, entries, started, moved_to)
        highest = max(highest, *started) if started else highest
        for entry in entries:
            key, first, flags, _at, body = entry
            if key <= moved_to or key in index.lost or sequence <= index.rows[key].through:
                continue
            if flags & HAS_REQUEST:
                _reserve(index, key, first, body)
            if flags & CLOSES_RUN:
                logged.pop(key, None)
            else:
                logged.setdefault(key, []).append(entry)
    states = {}
    with store.view() as tables:
        for key in {*facts.early, *facts.early_before}:
            if key in index.rows:
                _settle(index, index.rows[key], tables)
    for key, error in index.lost.items():
        stays(key, error)
    for key, newer in logged.items():
        yield
        row = index.rows.get(key)
        if row is None or row.is_closed:
            continue
        with store.view() as tables:
            try:
                state = moved_state(tables, index.codec, key) if row.stored_status else RunState()
                apply_newer(state, newer, tables)
            except JournalCorruptError as error:
                check_pages(tables, error)
                stays(key, error)
                continue
        states[key] = state
    # Of runs that were moved early the log may hold repeats only: the tables alone say what becomes of these.
    for row in [row for row in index.rows.values() if not len(row) and row.key not in states]:
        index.requests.stored(row.key)
        index.drop(row)
    return Loaded(index, facts, states, highest + 1)


def _started(entries: list[Entry], moved_to: int) -> dict[int, WorkflowStarted]:
    started: dict[int, WorkflowStarted] = {}
    for key, _first, flags, _at, body in entries:
        if flags & STARTS_RUN and key > moved_to:
            event = decode_record(body).inputs[0]
            assert isinstance(event, WorkflowStarted)
            started[key] = event
    return started


def _reserve(index: RunIndex, key: int, first: int, body: bytes) -> None:
    workflow_id = index.rows[key].workflow_id
    try:
        inputs = decode_record(body).inputs
    except msgspec.MsgspecError:
        return  # its run will be named
    for number, event in enumerate(inputs, first):
        request_id = getattr(event, "request_id", "")
        if request_id and isinstance(event, WITH_DIGEST):
            index.requests.reserve(workflow_id, request_id, Request(key, number, event.digest))


def _settle(index: RunIndex, row: RunRow, tables: Tables) -> None:
    """A run that was moved early: the log may still have its start, or what the histories have too."""
    if row.stored_status and row.key not in index.damaged:
        return
    try:
        stored = index.stored(tables, row.key)
        if stored is not None:
            if row.key in index.damaged:
                stored.through = _through(index, row, tables)
            index.settle(row, stored)
    except LostRunError as error:
        index.lost[row.key] = error
        index.drop(row)


def _through(index: RunIndex, row: RunRow, tables: Tables) -> int:
    """Up to which commit record the histories go, by what they and the log both have."""
    try:
        count = repeats(tables, index.codec, row.key, tables.read(row.located()))
    except JournalCorruptError as error:
        check_pages(tables, error)
        raise LostRunError(str(error)) from error
    return row.sequence(count - 1) if count else 0


def stays(key: int, error: JournalCorruptError) -> None:
    """Name a run that cannot go on."""
    text = "run %d stays as it is, the journal is damaged (`everact journal verify` names all of it): %s"
    log.error(text, key, error)


def open_runs(store: JournalStore) -> Iterator[tuple[int, OpenRun]]:
    """Yield each run that the tables hold as open, with its key; the overlay may know better.

    One whose row is damaged may have something to do: its history will tell.
    """
    for key, row in store.rows(Table.OPEN):
        if len(key) != NUMBER.size:
            continue
        try:
            run = decode_open(row)
        except JournalCorruptError:
            run = OpenRun(HAS_ACTIVITIES, 0, "")
        yield NUMBER.unpack(key)[0], run


def due_runs(store: JournalStore, after: int, until: int) -> Iterator[int]:
    """Yield the keys of the runs that the tables hold as due in this time, microseconds, the last moment left out."""
    for key, _ in store.rows(Table.DUE, NUMBER.pack(after), NUMBER.pack(until)):
        if len(key) == PAIR.size:
            yield PAIR.unpack(key)[1]


def next_due(store: JournalStore, after: int) -> int | None:
    """When the first run is due that the tables hold as due at this time or later, microseconds; None for none."""
    row = next(store.rows(Table.DUE, NUMBER.pack(after)), None)
    return None if row is None else int(NUMBER.unpack_from(row[0])[0])
