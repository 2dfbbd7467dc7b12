"""Doing without a damaged row of the table of runs: the snapshot or the history of the run says the same.

A damaged page is another matter: it ends the transaction, and nobody knows what was on it.
"""

from __future__ import annotations

from .errors import JournalCorruptError
from .facts import read_facts
from .fold import RunState
from .history_values import HistoryCodec
from .run_ends import links_of
from .run_history import decoded, read_history
from .run_row import RunRow
from .snapshots import decode_open, decode_state
from .store import Tables
from .tables import NUMBER, Table


class LostRunError(JournalCorruptError):
    """Nothing that the tables have of a run is whole; others are."""


def check_pages(tables: Tables, error: JournalCorruptError) -> None:
    """Raise an error again that comes from a damaged page, after which the transaction reads nothing more."""
    try:
        read_facts(tables)
    except JournalCorruptError:
        raise error from None


def remade_row(tables: Tables, codec: HistoryCodec, key: int, damage: JournalCorruptError) -> RunRow:
    """A run as the tables would have it; up to which commit record the histories go is not known then.

    Args:
        tables: The tables.
        codec: For the histories.
        key: The run.
        damage: What is wrong with its row.

    Raises:
        LostRunError: The history is damaged too, or there is none.
        JournalCorruptError: A page is damaged.
    """
    check_pages(tables, damage)
    state, wake = _snapshot(tables, key)
    if state is None:
        state = RunState()
        try:
            for entry in read_history(tables, codec, key):
                state.apply(decoded(entry), entry.at)
        except JournalCorruptError as error:
            check_pages(tables, error)
            raise LostRunError(f"{damage}; {error}") from error
    started = state.started
    if not started:
        raise LostRunError(str(damage)) from damage
    row = RunRow(key, started.workflow_id, started.run_id, started.workflow_type, state.started_at)
    row.status = row.stored_status = state.status
    row.closed_at = state.closed_at
    row.wake = wake
    row.parent_id = started.parent_id
    row.links = links_of(state)
    return row


def _snapshot(tables: Tables, key: int) -> tuple[RunState | None, int]:
    opened = tables.get(Table.OPEN, NUMBER.pack(key))
    if opened is None:
        return None, 0
    try:
        return decode_state(opened), decode_open(opened).wake
    except JournalCorruptError:
        return None, 0
