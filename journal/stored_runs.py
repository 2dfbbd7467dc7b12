"""What the tables say of one run: its row, whether it is open, its snapshot.

Errors name the run.
"""

from __future__ import annotations

import logging
from contextlib import suppress

import msgspec

from .errors import JournalCorruptError
from .fold import RunState
from .row_checksum import sealed, unsealed
from .run_chain import RunLinks
from .run_row import RunRow
from .snapshots import decode_open, decode_state
from .store import Tables
from .tables import NUMBER, Table

log = logging.getLogger("everact.runtime")


class StoredRun(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A row of the table of runs.

    Attributes:
        parent_id: As of ``RunRow``.
        links: As of ``RunRow``.
        through: The commit record up to which the histories have its entries; what the log has up to there is a
            repeat. (Not an event: turns that only deliver have none, and their numbers are the next one's too.)
    """

    workflow_id: str
    run_id: str
    workflow_type: str
    status: str
    started_at: int
    closed_at: int
    through: int
    parent_id: str = ""
    links: RunLinks | None = None


_encode_run = msgspec.msgpack.Encoder().encode
_decode_run = msgspec.msgpack.Decoder(StoredRun).decode


def encode_run(run: StoredRun) -> bytes:
    """Encode a row of the table of runs."""
    return sealed(_encode_run(run))


def decode_run(row: bytes) -> StoredRun:
    """Decode a row of the table of runs.

    Raises:
        JournalCorruptError: It is damaged.
    """
    try:
        return _decode_run(unsealed(row))
    except msgspec.MsgspecError as error:
        raise JournalCorruptError(f"a row of the table of runs does not decode: {error}") from error


def stored_row(tables: Tables, key: int) -> RunRow | None:
    """A run as the tables have it, or None.

    Raises:
        JournalCorruptError: Its row is damaged.
    """
    value = tables.get(Table.RUNS, NUMBER.pack(key))
    if value is None:
        return None
    row = read_row(key, value)
    if not row.is_closed:
        opened = tables.get(Table.OPEN, NUMBER.pack(key))
        if opened is not None:
            with suppress(JournalCorruptError):  # then its row in the table of what falls due stays a hint
                row.wake = decode_open(opened).wake
    return row


def read_row(key: int, value: bytes) -> RunRow:
    """A run from its row of the table of runs.

    Raises:
        JournalCorruptError: The row is damaged; names the run.
    """
    try:
        run = decode_run(value)
    except JournalCorruptError as error:
        raise JournalCorruptError(f"run {key} in the table of runs cannot be read: {error}") from error
    row = RunRow(key, run.workflow_id, run.run_id, run.workflow_type, run.started_at)
    row.status = row.stored_status = run.status
    row.closed_at = run.closed_at
    row.through = run.through
    row.parent_id = run.parent_id
    row.links = run.links
    return row


def stored_state(tables: Tables, key: int) -> RunState | None:
    """The snapshot of an open run, or None; also when it is damaged: its history says the same."""
    value = tables.get(Table.OPEN, NUMBER.pack(key))
    if value is None:
        return None
    try:
        return decode_state(value, tables)
    except JournalCorruptError as error:
        text = "run %d in the table of open runs cannot be read, its history is read instead: %s"
        log.warning(text, key, error)
        return None
