"""The runs of a journal: found by key, by workflow id, by run id; each with its entries.

What the log holds and the tables do not yet is the *overlay*, kept in memory in step with each commit; everything older
is read from the tables. Both together agree with the journal at every moment (R16). The overlay shows durable runs
only; ids that are reserved by a turn on its way to the disk are the runtime's business, but request ids are known from
the turn on.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from heapq import merge
from typing import NamedTuple

import msgspec

from . import fold
from .blobs import whole_entry
from .errors import JournalCorruptError
from .events import Record, WorkflowStarted, decode_record
from .history_values import HistoryCodec, entries_of, load_dictionary
from .row_checksum import sealed, unsealed
from .snapshots import OpenRun, decode_open, decode_state
from .store import STARTS_RUN, Entry, JournalStore, Location, Tables
from .tables import DEDUPE, NUMBER, Table, run_range, text_hash

#: Bits of an entry's flags that carry a status; 0 leaves it as it was.
_STATUS_SHIFT = 2
_STATUS_MASK = 7
_STATUSES = (
    "",
    fold.RUNNING,
    fold.COMPLETED,
    fold.FAILED,
    fold.CANCELLED,
    fold.TERMINATED,
    "quarantined",
    "held",
)
#: What a run's status can be.
STATUSES = _STATUSES[1:]
_CODES = {name: code for code, name in enumerate(_STATUSES)}
CLOSED = frozenset([fold.COMPLETED, fold.FAILED, fold.CANCELLED, fold.TERMINATED])
#: A run with so many entries in the log is crowded: to read them one by one is slow.
CROWD = 400
#: A location is packed into one number: commit sequence, then index of the entry.
_INDEX_BITS = 24
_INDEX_MASK = (1 << _INDEX_BITS) - 1


def status_flags(status: str) -> int:
    """Entry flags that say the run has this status from here on."""
    return _CODES[status] << _STATUS_SHIFT


def flagged_status(flags: int) -> str:
    """The status that an entry's flags state; empty when they leave it as it was."""
    return _STATUSES[(flags >> _STATUS_SHIFT) & _STATUS_MASK]


class StoredRun(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A row of the table of runs.

    Attributes:
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


class RunRow:
    """One run as lists show it.

    Attributes:
        key: Internal number, never used again.
        status: As ``RunState.status``.
        started_at: Microseconds since the epoch.
        closed_at: Microseconds since the epoch; 0 while open.
        through: The commit record up to which the histories have its entries; 0 when they have none.
        stored_status: Status in the table of runs; empty while it is not there.
        wake: Time of its row in the table of what falls due; 0 when there is none.
    """

    __slots__ = (
        "_locations",
        "closed_at",
        "key",
        "run_id",
        "started_at",
        "status",
        "stored_status",
        "through",
        "wake",
        "workflow_id",
        "workflow_type",
    )

    def __init__(self, key: int, workflow_id: str, run_id: str, workflow_type: str, started_at: int) -> None:
        self.key = key
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.workflow_type = workflow_type
        self.status = fold.RUNNING
        self.started_at = started_at
        self.closed_at = 0
        self.through = 0
        self.stored_status = ""
        self.wake = 0
        self._locations = array("Q")

    @classmethod
    def stored(cls, key: int, run: StoredRun) -> RunRow:
        """The row of a run that is in the tables."""
        row = cls(key, run.workflow_id, run.run_id, run.workflow_type, run.started_at)
        row.status = row.stored_status = run.status
        row.closed_at = run.closed_at
        row.through = run.through
        return row

    @property
    def is_closed(self) -> bool:
        """Whether the run has ended for good."""
        return self.status in CLOSED

    def located(self, before: int = 1 << 40) -> list[Location]:
        """The locations in commit records below ``before``; all by default."""
        limit = before << _INDEX_BITS
        return [Location(n >> _INDEX_BITS, n & _INDEX_MASK) for n in self._locations if n < limit]

    def reaches_below(self, sequence: int) -> bool:
        """Whether the log has entries of the run in commit records below ``sequence``."""
        return bool(self._locations) and self._locations[0] >> _INDEX_BITS < sequence

    def moved(self, count: int) -> None:
        """The first ``count`` locations are in the histories now."""
        del self._locations[:count]

    def __len__(self) -> int:
        return len(self._locations)

    def __bool__(self) -> bool:
        return True


class Request(NamedTuple):
    """What a message with a request id has become.

    Attributes:
        run_key: The run that received it.
        event: Number of the event.
        digest: Of its kind, name and arguments.
    """

    run_key: int
    event: int
    digest: bytes


_REQUEST = struct.Struct(">QI")


class RunIndex:
    """All durable runs.

    Attributes:
        rows: The overlay: runs that the log knows more of than the tables, and those in use; by key.
        by_workflow_id: The newest run in the overlay of each workflow id.
        by_run_id: Each run of the overlay.
        requests: Request ids that are not in their table yet, by workflow id and request id.
        request_ids: The same by run.
        counts: How many runs the table of runs has, by type and status.
        returned: How many runs that were moved before have entries in the log again.
        crowded: Keys of open runs whose entries in the log have become many.
        codec: For the values of the histories.
        closed_since: When the first run of each type has closed that the log may still hold, microseconds.
    """

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self.rows: dict[int, RunRow] = {}
        self.by_workflow_id: dict[str, RunRow] = {}
        self.by_run_id: dict[str, RunRow] = {}
        self.requests: dict[tuple[str, str], Request] = {}
        self.request_ids: dict[int, list[tuple[str, str]]] = {}
        self.counts: dict[tuple[str, str], int] = {}
        self.returned = 0
        self.crowded: list[int] = []
        self.codec = HistoryCodec()
        self.closed_since: dict[str, int] = {}
        self._late: set[int] = set()  # those of ``rows`` that are not in the order of their keys
        self._newest = 0

    # --- the overlay

    def add(
        self, sequence: int, entries: list[Entry], started: dict[int, WorkflowStarted], moved_to: int = 0
    ) -> None:
        """Take in one durable commit record.

        Args:
            sequence: Its sequence number.
            entries: What it holds.
            started: First event of each run that it starts, by run key.
            moved_to: Entries of runs with keys up to this one are in the tables, and passed over.
        """
        base = sequence << _INDEX_BITS
        rows = self.rows
        for number, (key, _first, flags, at, _body) in enumerate(entries, base):
            if key <= moved_to:
                continue
            row = rows.get(key)
            if flags:
                if flags & STARTS_RUN and row is None:
                    event = started[key]
                    row = RunRow(key, event.workflow_id, event.run_id, event.workflow_type, at)
                    self._insert(row)
                status = flagged_status(flags)
                if status:
                    if row is None:
                        row = self.adopt(key)
                    row.status = status
                    if status in CLOSED:
                        row.closed_at = at
                        self.closed_since.setdefault(row.workflow_type, at)
            if row is None:
                row = self.adopt(key)
            if sequence <= row.through:
                continue  # what the histories have already
            locations = row._locations
            locations.append(number)
            if len(locations) == 1:
                self.returned += bool(row.stored_status)
            elif len(locations) == CROWD:
                self.crowded.append(key)

    def settle(self, row: RunRow, stored: RunRow) -> None:
        """The tables know a run that the log begins with: some of its entries there are in the histories too."""
        row.through, row.stored_status, row.wake = stored.through, stored.stored_status, stored.wake
        row.moved(len(row.located(row.through + 1)))

    def _insert(self, row: RunRow) -> None:
        self.rows[row.key] = row
        if row.key < self._newest:
            self._late.add(row.key)
        else:
            self._newest = row.key
        before = self.by_workflow_id.get(row.workflow_id)
        if before is None or before.key < row.key:
            self.by_workflow_id[row.workflow_id] = row
        self.by_run_id[row.run_id] = row

    def adopt(self, key: int) -> RunRow:
        """Take a run of the tables into the overlay.

        Raises:
            JournalCorruptError: It is not in the tables, or its row is damaged.
        """
        row = self.row(key)
        if row is None:
            raise JournalCorruptError(f"run {key} has entries in the log, but its start is missing")
        if key not in self.rows:
            self._insert(row)
        return row

    def drop(self, row: RunRow) -> None:
        """Take a run out of the overlay: the tables have all of it."""
        if self.rows.pop(row.key, None) is not None:
            self._late.discard(row.key)
            if self.by_workflow_id.get(row.workflow_id) is row:
                del self.by_workflow_id[row.workflow_id]
            if self.by_run_id.get(row.run_id) is row:
                del self.by_run_id[row.run_id]

    # --- finding runs

    def row(self, key: int) -> RunRow | None:
        """A run by its key, from the overlay or the tables.

        Raises:
            JournalCorruptError: Its row is damaged.
        """
        row = self.rows.get(key)
        if row is None:
            with self._store.view() as tables:
                row = stored_row(tables, key)
        return row

    def find(self, workflow_id: str, run_id: str | None = None) -> RunRow | None:
        """The newest run of a workflow id, or the one with this run id.

        Raises:
            JournalCorruptError: A row of its id is damaged.
        """
        row = self.by_workflow_id.get(workflow_id) if run_id is None else self.by_run_id.get(run_id)
        if row is not None:
            return row if row.workflow_id == workflow_id else None
        start = text_hash(self._store.journal_id, workflow_id)
        stop = start + b"\xff" * 9
        with self._store.view() as tables:
            if tables.last(Table.IDS, start, stop) is None:
                return None
            for key, value in tables.scan(Table.IDS, start, stop, reverse=True):
                if run_id is not None and value != run_id.encode():
                    continue
                row = stored_row(tables, NUMBER.unpack_from(key, len(start))[0])
                # Rows of ids are hints: the run may be gone, and another id may have the same hash.
                if row is not None and row.workflow_id == workflow_id:
                    return self.rows.get(row.key, row)
        return None

    def newest_first(self) -> Iterator[RunRow]:
        """Every run, the one that started last first."""
        late = sorted(self._late, reverse=True)
        recent = (
            [key for key in reversed(self.rows) if key not in self._late] if late else reversed(self.rows)
        )
        overlay = merge(recent, late, reverse=True)
        stored = self._store.rows(Table.RUNS, reverse=True)
        following = next(stored, None)
        for key in list(overlay):
            while following is not None and (number := NUMBER.unpack(following[0])[0]) > key:
                if number not in self.rows:
                    yield _stored_run(number, following[1])
                following = next(stored, None)
            row = self.rows.get(key)
            if row is not None:
                yield row
        while following is not None:
            number = NUMBER.unpack(following[0])[0]
            if number not in self.rows:
                yield _stored_run(number, following[1])
            following = next(stored, None)

    def count(self, workflow_type: str | None, status: str | None) -> int:
        """How many runs are of a type and a status; None is any."""
        total = 0
        for (kind, state), number in self.counts.items():
            if workflow_type in (None, kind) and status in (None, state):
                total += number
        for row in self.rows.values():
            if workflow_type in (None, row.workflow_type):
                total += status in (None, row.status)
                if row.stored_status:
                    total -= status in (None, row.stored_status)
        return total

    # --- what a run has done

    def entries(self, row: RunRow) -> list[Entry]:
        """A run's durable entries, in order: from the histories, then from the log.

        Raises:
            JournalCorruptError: Part of it is missing or cannot be read.
        """
        # The locations first: what is moved from there meanwhile is then found in the histories.
        locations = row.located()
        with self._store.view() as tables:
            found = read_history(tables, self.codec, row.key) + _left(tables, row.key, locations)
            return [whole_entry(entry, tables) for entry in found]

    def records(self, row: RunRow) -> list[tuple[int, Record]]:
        """A run's durable records as ``(time in microseconds, record)``."""
        return [(entry.at, decode_record(entry.body)) for entry in self.entries(row)]

    def state(self, row: RunRow) -> fold.RunState:
        """The fold of a run's durable records, from its snapshot where there is one."""
        locations = row.located()
        with self._store.view() as tables:
            state = stored_state(tables, row.key)
            entries = [] if state is not None else read_history(tables, self.codec, row.key)
            entries += _left(tables, row.key, locations)
            state = state or fold.RunState()
            for entry in entries:
                if entry.first_event > state.last_event:
                    state.apply(decode_record(whole_entry(entry, tables).body), entry.at)
        return state

    # --- request ids

    def reserve(self, workflow_id: str, request_id: str, request: Request) -> None:
        """Remember what a request id has become."""
        name = (workflow_id, request_id)
        self.requests[name] = request
        self.request_ids.setdefault(request.run_key, []).append(name)

    def requests_stored(self, run_key: int, count: int) -> None:
        """The first ``count`` request ids of a run are in their table now."""
        names = self.request_ids.get(run_key)
        if names:
            for name in names[:count]:
                self.requests.pop(name, None)
            del names[:count]
            if not names:
                del self.request_ids[run_key]

    def request(self, workflow_id: str, request_id: str) -> Request | None:
        """What a request id has become, if it was seen within the window.

        Raises:
            JournalCorruptError: Its row is damaged.
        """
        found = self.requests.get((workflow_id, request_id))
        if found is None:
            key = text_hash(self._store.journal_id, workflow_id, request_id)
            with self._store.view() as tables:
                value = next((v for t in DEDUPE if (v := tables.get(t, key)) is not None), None)
            if value is not None:
                try:
                    found = decode_request(value)
                except JournalCorruptError as error:
                    raise JournalCorruptError(
                        f"what the request id {request_id!r} of workflow {workflow_id!r} has become "
                        f"cannot be read: {error}"
                    ) from error
        return found


def encode_request(request: Request) -> bytes:
    """Encode a row of the tables of request ids."""
    return sealed(_REQUEST.pack(request.run_key, request.event) + request.digest)


def decode_request(row: bytes) -> Request:
    """Decode a row of the tables of request ids.

    Raises:
        JournalCorruptError: It is damaged.
    """
    data = unsealed(row)
    run_key, event = _REQUEST.unpack_from(data)
    return Request(run_key, event, data[_REQUEST.size :])


def read_history(tables: Tables, codec: HistoryCodec, run_key: int) -> list[Entry]:
    """The entries of a run that the histories hold.

    Raises:
        JournalCorruptError: One of them cannot be read; names the run and the event.
    """
    found: list[Entry] = []
    for key, value in tables.scan(Table.HISTORIES, *run_range(run_key)):
        found += history_entries(tables, codec, key, value)
    return found


def _left(tables: Tables, run_key: int, locations: list[Location]) -> list[Entry]:
    """What the log has of a run at these locations and the histories do not."""
    if not locations:
        return []
    stored = tables.get(Table.RUNS, NUMBER.pack(run_key))
    through = _stored_run(run_key, stored).through if stored is not None else 0
    return tables.read(location for location in locations if location.sequence > through)


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


def stored_row(tables: Tables, key: int) -> RunRow | None:
    """A run as the tables have it, or None.

    Raises:
        JournalCorruptError: Its row is damaged.
    """
    value = tables.get(Table.RUNS, NUMBER.pack(key))
    if value is None:
        return None
    row = _stored_run(key, value)
    if not row.is_closed:
        opened = tables.get(Table.OPEN, NUMBER.pack(key))
        if opened is not None:
            row.wake = open_run(key, opened).wake
    return row


def _stored_run(key: int, value: bytes) -> RunRow:
    try:
        return RunRow.stored(key, decode_run(value))
    except JournalCorruptError as error:
        raise JournalCorruptError(f"run {key} in the table of runs cannot be read: {error}") from error


def open_run(key: int, value: bytes) -> OpenRun:
    """What the table of open runs says of one.

    Raises:
        JournalCorruptError: Its row is damaged; names the run.
    """
    try:
        return decode_open(value)
    except JournalCorruptError as error:
        raise JournalCorruptError(f"run {key} in the table of open runs cannot be read: {error}") from error


def stored_state(tables: Tables, key: int) -> fold.RunState | None:
    """The snapshot of an open run, or None.

    Raises:
        JournalCorruptError: Its row is damaged; names the run.
    """
    value = tables.get(Table.OPEN, NUMBER.pack(key))
    if value is None:
        return None
    try:
        return decode_state(value, tables)
    except JournalCorruptError as error:
        raise JournalCorruptError(f"run {key} in the table of open runs cannot be read: {error}") from error
