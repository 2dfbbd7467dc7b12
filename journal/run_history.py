"""A run's entries as the histories and the log have them."""

from __future__ import annotations

from .errors import JournalCorruptError
from .history_values import HistoryCodec, entries_of, load_dictionary
from .store import Entry, Location, Tables
from .stored_runs import read_row
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


def log_entries(tables: Tables, run_key: int, locations: list[Location]) -> list[Entry]:
    """What the log has of a run at these locations and the histories do not."""
    if not locations:
        return []
    stored = tables.get(Table.RUNS, NUMBER.pack(run_key))
    through = read_row(run_key, stored).through if stored is not None else 0
    return tables.read(location for location in locations if location.sequence > through)
