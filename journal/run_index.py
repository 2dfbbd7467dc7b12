"""The runs of a journal: found by key, by workflow id, by run id; each with where its entries are.

Built by scanning the log at start, then kept in step with each commit, so it shows durable runs only. Ids that
are reserved by a turn on its way to the disk are the runtime's business.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from . import fold
from .events import Record, WorkflowStarted, decode_record
from .store import STARTS_RUN, Entry, JournalStore, Location

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
_CLOSED = frozenset([fold.COMPLETED, fold.FAILED, fold.CANCELLED, fold.TERMINATED])
#: A location is packed into one number: commit sequence, then index of the entry.
_INDEX_BITS = 24
_INDEX_MASK = (1 << _INDEX_BITS) - 1


def status_flags(status: str) -> int:
    """Entry flags that say the run has this status from here on."""
    return _CODES[status] << _STATUS_SHIFT


def flagged_status(flags: int) -> str:
    """The status that an entry's flags state; empty when they leave it as it was."""
    return _STATUSES[(flags >> _STATUS_SHIFT) & _STATUS_MASK]


class RunRow:
    """One run as lists show it.

    Attributes:
        key: Internal number, never used again.
        status: As ``RunState.status``.
        started_at: Microseconds since the epoch.
        closed_at: Microseconds since the epoch; 0 while open.
    """

    __slots__ = (
        "_locations",
        "closed_at",
        "key",
        "run_id",
        "started_at",
        "status",
        "workflow_id",
        "workflow_type",
    )

    def __init__(self, key: int, started: WorkflowStarted, started_at: int) -> None:
        self.key = key
        self.workflow_id = started.workflow_id
        self.run_id = started.run_id
        self.workflow_type = started.workflow_type
        self.status = fold.RUNNING
        self.started_at = started_at
        self.closed_at = 0
        self._locations = array("Q")

    @property
    def is_closed(self) -> bool:
        """Whether the run has ended for good."""
        return self.status in _CLOSED

    def locations(self) -> Iterator[Location]:
        """Where the run's durable entries are, in order."""
        return (Location(n >> _INDEX_BITS, n & _INDEX_MASK) for n in self._locations)


class RunIndex:
    """All durable runs.

    Attributes:
        rows: By run key, in order of start.
        by_workflow_id: The newest run of each workflow id.
        by_run_id: Each run.
        by_request: The run that a start with a request id has made, by workflow id and request id.
    """

    def __init__(self) -> None:
        self.rows: dict[int, RunRow] = {}
        self.by_workflow_id: dict[str, RunRow] = {}
        self.by_run_id: dict[str, RunRow] = {}
        self.by_request: dict[tuple[str, str], RunRow] = {}

    def add(self, sequence: int, entries: list[Entry], started: dict[int, WorkflowStarted]) -> None:
        """Take in one durable commit record.

        Args:
            sequence: Its sequence number.
            entries: What it holds.
            started: First event of each run that it starts, by run key.
        """
        base = sequence << _INDEX_BITS
        rows = self.rows
        for number, (key, _first, flags, at, _body) in enumerate(entries, base):
            if flags:
                if flags & STARTS_RUN:
                    self._start(RunRow(key, started[key], at), started[key].request_id)
                status = flagged_status(flags)
                if status:
                    row = rows[key]
                    row.status = status
                    if status in _CLOSED:
                        row.closed_at = at
            rows[key]._locations.append(number)

    def _start(self, row: RunRow, request_id: str) -> None:
        self.rows[row.key] = row
        if request_id:
            self.by_request[row.workflow_id, request_id] = row
        self.by_workflow_id[row.workflow_id] = row
        self.by_run_id[row.run_id] = row

    def records(self, store: JournalStore, row: RunRow) -> list[tuple[int, Record]]:
        """Read a run's durable records as ``(time in microseconds, record)``."""
        return [(entry.at, decode_record(entry.body)) for entry in store.read(row.locations())]


def load(store: JournalStore) -> tuple[RunIndex, dict[int, fold.RunState], int]:
    """Scan the log.

    Returns:
        The index, the folded state of each open run by key, and the next free run key.
    """
    index = RunIndex()
    open_runs: dict[int, list[tuple[int, bytes]]] = {}
    highest = 0
    for sequence, entries in store.scan():
        started: dict[int, WorkflowStarted] = {}
        for key, _first, flags, at, body in entries:
            if flags & STARTS_RUN:
                first = decode_record(body).inputs[0]
                assert isinstance(first, WorkflowStarted)
                started[key] = first
                open_runs[key] = []
                highest = max(highest, key)
            if flagged_status(flags) in _CLOSED:
                open_runs.pop(key, None)
            else:
                open_runs[key].append((at, body))
        index.add(sequence, entries, started)
    states: dict[int, fold.RunState] = {}
    for key, bodies in open_runs.items():
        state = states[key] = fold.RunState()
        for at, body in bodies:
            state.apply(decode_record(body), at)
    return index, states, highest + 1
