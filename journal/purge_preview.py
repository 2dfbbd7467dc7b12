"""What a purge would delete, counted without the right to write, so also while a program has the journal open."""

from __future__ import annotations

from typing import NamedTuple

from .errors import JournalCorruptError
from .events import WorkflowStarted, decode_record
from .facts import read_facts
from .purging import Selection
from .run_row import RunRow
from .run_status import CLOSED, flagged_status
from .run_walk import RunWalk
from .salvage import Damage
from .store import STARTS_RUN, JournalStore, Tables
from .stored_runs import read_row, stored_row
from .tables import NUMBER, Table


class Preview(NamedTuple):
    """What is known of a purge before it.

    Attributes:
        runs: How many runs are selected.
        types: The workflow types of which the journal has runs, or has had some.
    """

    runs: int
    types: frozenset[str]


def preview(store: JournalStore, selection: Selection) -> Preview:
    """Count the closed runs that are selected; nothing is changed, and others may write meanwhile.

    Raises:
        JournalCorruptError: The journal is damaged.
    """
    walk = RunWalk(store, _refuse)
    with store.view() as tables:
        types = {kind for kind, _status, _number in read_facts(tables).counts}
    selected: set[int] = set()
    for key in walk._locations:  # the log first: what is moved meanwhile is found in the tables then
        with store.view() as tables:
            row = _newest(walk, tables, key)
        if row is not None:
            types.add(row.workflow_type)
            if selection.holds(row):
                selected.add(key)
    runs = len(selected)
    for name, value in store.rows(Table.RUNS):
        row = read_row(NUMBER.unpack(name)[0], value)
        types.add(row.workflow_type)
        runs += selection.holds(row) and row.key not in selected
    return Preview(runs, frozenset(types))


def _newest(walk: RunWalk, tables: Tables, key: int) -> RunRow | None:
    """A run by what tables and log have of it; None when it was purged meanwhile."""
    row = stored_row(tables, key)
    for _, entry in walk._logged(tables, key):
        if row is None and entry.flags & STARTS_RUN:
            event = decode_record(entry.body).inputs[0]
            assert isinstance(event, WorkflowStarted)
            row = RunRow(key, event.workflow_id, event.run_id, event.workflow_type, entry.at)
        if row is not None and not row.is_closed:
            row.status = flagged_status(entry.flags) or row.status
            row.closed_at = entry.at if row.status in CLOSED else 0
    return row


def _refuse(damage: Damage) -> None:
    raise JournalCorruptError(str(damage))
