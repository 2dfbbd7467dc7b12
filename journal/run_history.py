"""A run's entries as the histories and the log have them."""

from __future__ import annotations

from collections.abc import Iterable

from .blobs import whole_entry
from .errors import JournalCorruptError
from .events import decode_record
from .fold import RunState
from .history_values import HistoryCodec, entries_of, load_dictionary
from .store import Entry, Location, Tables
from .stored_runs import read_row, stored_state
from .tables import NUMBER, Table, run_range


def read_history(tables: Tables, codec: HistoryCodec, run_key: int) -> list[Entry]:
    """The entries of a run that the histories hold.

    Raises:
        JournalCorruptError: One of them cannot be read; names the run and the event.
    """
    found: list[Entry] = []
    for key, value in tables.scan(Table.HISTORIES, *run_range(run_key)):
        found += history_entries(tables, codec, key, value)
    return found


def history_entries(tables: Tables, codec: HistoryCodec, key: bytes, value: bytes) -> list[Entry]:
    """The entries of one value of the histories.

    Raises:
        JournalCorruptError: It cannot be read; names the run and the event.
    """
    run_key = NUMBER.unpack_from(key)[0]
    try:
        return entries_of(run_key, codec.decode(value, lambda number: load_dictionary(tables, number)))
    except JournalCorruptError as error:
        event = int.from_bytes(key[8:], "big")
        raise JournalCorruptError(
            f"the history of run {run_key} from event {event} on cannot be read: {error}"
        ) from error


def moved_state(tables: Tables, codec: HistoryCodec, run_key: int) -> RunState:
    """The fold of a run as far as the tables know it: its snapshot, or else its history."""
    state = stored_state(tables, run_key)
    if state is None:
        state = RunState()
        apply_newer(state, read_history(tables, codec, run_key), tables)
    return state


def apply_newer(state: RunState, entries: Iterable[Entry], tables: Tables) -> None:
    """Fold those entries in that a state does not know yet."""
    for entry in entries:
        if entry.first_event > state.last_event:
            state.apply(decode_record(whole_entry(entry, tables).body), entry.at)


def log_entries(tables: Tables, codec: HistoryCodec, run_key: int, locations: list[Location]) -> list[Entry]:
    """What the log has of a run at these locations and the histories do not."""
    if not locations:
        return []
    stored = tables.get(Table.RUNS, NUMBER.pack(run_key))
    try:
        through = read_row(run_key, stored).through if stored is not None else 0
    except JournalCorruptError:
        logged = tables.read(locations)
        return logged[repeats(tables, codec, run_key, logged) :]
    return tables.read(location for location in locations if location.sequence > through)


def repeats(tables: Tables, codec: HistoryCodec, run_key: int, logged: list[Entry]) -> int:
    """How many of a run's entries in the log, from the first one on, its history has too.

    For who cannot ask the table of runs.

    Raises:
        JournalCorruptError: The history is damaged.
    """
    known = set(read_history(tables, codec, run_key))
    return next((n for n, entry in enumerate(logged) if entry not in known), len(logged))
