"""Whether the tables that lead to runs lead to the right ones: ids, what falls due, request ids, messages, counts."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator

import msgspec

from . import events as ev
from .blob_table import CHUNK_NUMBER, has_chunk
from .blobs import check_blob
from .encryption import remembered
from .errors import JournalCorruptError
from .facts import Facts, read_facts
from .history_values import HistoryCodec, dictionary_faults, is_copy_key
from .outbox import acknowledged_to, message_of
from .request_ids import Request, decode_request
from .run_examination import Examined, examine
from .run_history import history_entries
from .run_status import CLOSED
from .run_walk import Fault, FoundRun, RunWalk
from .snapshots import decode_open
from .store import Entry, Tables
from .stored_runs import decode_run
from .tables import DEDUPE, EVENT, HASH_SIZE, NUMBER, PAIR, Table, closed_key, text_hash

#: Called with the run key, or 0, and what is wrong.
Wrong = Callable[[int, Fault], None]


class TableCheck:
    """Checks the tables of a journal; damage to pages is told elsewhere, and what is on them is passed over.

    Args:
        walk: The journal's runs.
        damaged: Names of the tables that lack pages.
    """

    def __init__(self, walk: RunWalk, damaged: Collection[str] = ()) -> None:
        self._damaged = damaged
        self._walk = walk
        self._store = walk.store
        self._journal_id = walk.store.journal_id
        self._codec = HistoryCodec()
        self._blob_runs: Counter[bytes] | None = None
        try:
            with walk.store.view() as tables:
                self._facts = read_facts(tables)
        except JournalCorruptError:
            self._facts = Facts()

    # --- from the runs to the tables

    def of_run(self, found: FoundRun, examined: Examined) -> list[Fault]:
        """What the tables lack that should lead to a run, or to its messages."""
        faults: list[Fault] = []
        key = found.key
        row = found.row
        with self._store.view() as tables:
            if row is not None:
                name = text_hash(self._journal_id, row.workflow_id) + NUMBER.pack(key)
                is_known, value = _get(tables, Table.IDS, name)
                if is_known and value is None:
                    faults.append(Fault(0, "the run has no row here", table=Table.IDS.value))
                if row.status in CLOSED:
                    kind = text_hash(self._journal_id, row.workflow_type)
                    is_known, value = _get(tables, Table.CLOSED, closed_key(kind, row.closed_at, key))
                    if is_known and value is None:
                        faults.append(
                            Fault(0, "the run has ended, and has no row here", table=Table.CLOSED.value)
                        )
            if examined.wake:
                is_known, value = _get(tables, Table.DUE, PAIR.pack(examined.wake, key))
                if is_known and value is None:
                    faults.append(
                        Fault(0, "the run waits for a time, and has no row here", table=Table.DUE.value)
                    )
            if examined.check.started is not None:
                faults += self._request_faults(tables, key, examined)
        return faults

    def _request_faults(self, tables: Tables, key: int, examined: Examined) -> Iterator[Fault]:
        started = examined.check.started
        since = self._facts.generation_since
        assert started is not None
        for request in examined.requests:
            # Those that were received before the present generation began may be forgotten by now.
            if not request.is_moved or not since or request.at < since:
                continue
            name = text_hash(self._journal_id, started.workflow_id, request.request_id)
            try:
                rows = [tables.get(table, name) for table in DEDUPE]
                found = [decode_request(row) for row in rows if row is not None]
            except JournalCorruptError:
                continue  # which is told with that row
            mine = Request(key, request.event, request.digest)
            # A later run of the same id may have been sent the same request id, once this one was forgotten.
            if not any(one == mine or key < one.run_key <= self._walk.highest for one in found):
                what = f"the request id {request.request_id!r} does not lead to its event"
                yield Fault(request.event, what, table=DEDUPE[self._facts.generation].value)

    # --- from the tables to the runs

    def rows(self, wrong: Wrong, step: Callable[[], None]) -> None:
        """Check every row of the tables that lead to runs.

        Args:
            wrong: Called for each thing that is wrong.
            step: Called for each row.
        """
        for table, check in CHECKED.items():
            for key, value in self._store.rows(table):
                step()
                message = self._checked(check, key, value)
                if message and self._is_still_there(table, key, value):
                    message = self._checked(check, key, value)  # a writer may have been between the two
                    if message:
                        wrong(0, Fault(0, f"the row {key.hex()} {message}", table=table.value))

    def _checked(self, check: Callable[[TableCheck, bytes, bytes], str], key: bytes, value: bytes) -> str:
        try:
            return check(self, key, value)
        except JournalCorruptError as error:
            if check is TableCheck._blob_fault:
                return str(error)
            return ""  # what it leads to is damaged, which is told with that

    def _is_still_there(self, table: Table, key: bytes, value: bytes) -> bool:
        self._walk.has_moved_on()
        with self._store.view() as tables:
            return _get(tables, table, key) == (True, value)

    def _id_fault(self, key: bytes, value: bytes) -> str:
        if len(key) != HASH_SIZE + NUMBER.size:
            return "is not one of this table"
        (run_key,) = NUMBER.unpack_from(key, HASH_SIZE)
        with self._store.view() as tables:
            row = tables.get(Table.RUNS, NUMBER.pack(run_key))
        if row is None:
            return f"leads to run {run_key}, which is not there"
        run = decode_run(row)
        if text_hash(self._journal_id, run.workflow_id) != key[:HASH_SIZE] or run.run_id.encode() != value:
            return f"leads to run {run_key}, which has other ids"
        return ""

    def _due_fault(self, key: bytes, _value: bytes) -> str:
        if len(key) != PAIR.size:
            return "is not one of this table"
        at, run_key = PAIR.unpack(key)
        with self._store.view() as tables:
            row = tables.get(Table.OPEN, NUMBER.pack(run_key))
        if row is None:
            return f"leads to run {run_key}, which is not open"
        return "" if decode_open(row).wake == at else f"has another time than run {run_key}"

    def _closed_fault(self, key: bytes, _value: bytes) -> str:
        if len(key) != HASH_SIZE + PAIR.size:
            return "is not one of this table"
        _at, run_key = PAIR.unpack_from(key, HASH_SIZE)
        with self._store.view() as tables:
            row = tables.get(Table.RUNS, NUMBER.pack(run_key))
        if row is None:
            return f"leads to run {run_key}, which is not there"
        run = decode_run(row)
        if run.status not in CLOSED:
            return f"leads to run {run_key}, which is open"
        right = closed_key(text_hash(self._store.journal_id, run.workflow_type), run.closed_at, run_key)
        return "" if key == right else f"has another type or another time than run {run_key}"

    def _blob_fault(self, key: bytes, _value: bytes) -> str:
        address = key[:HASH_SIZE]
        if len(key) == HASH_SIZE:
            if self._blob_runs is None:
                self._blob_runs = self._counted()
            with self._store.view() as tables:
                runs = check_blob(tables, address, self._walk.spiller)
            if runs == self._blob_runs[address]:
                return ""
            there = self._counted()[address]  # a writer may have been there since
            return "" if runs == there else f"is said to be of {runs} runs, {there} refer to it"
        if len(key) != HASH_SIZE + CHUNK_NUMBER:
            return "" if is_copy_key(key) else "is not one of this table"  # those are checked with the facts
        with self._store.view() as tables:
            is_part = has_chunk(tables, key)
        return "" if is_part else "belongs to no large payload"

    def _counted(self) -> Counter[bytes]:
        """How many runs refer to each blob."""
        return Counter(key[NUMBER.size :] for key, _ in self._store.rows(Table.BLOB_RUNS))

    def _blob_run_fault(self, key: bytes, _value: bytes) -> str:
        if len(key) != NUMBER.size + HASH_SIZE:
            return "is not one of this table"
        (run_key,) = NUMBER.unpack_from(key)
        with self._store.view() as tables:
            if tables.get(Table.BLOBS, key[NUMBER.size :]) is None:
                return "refers to a large payload that is not there"
            if run_key in read_facts(tables).purging:
                return ""
        return f"leads to run {run_key}, which is not there" if self._walk.look(run_key).is_gone else ""

    def _request_fault(self, key: bytes, value: bytes) -> str:
        try:
            request = decode_request(value)
        except JournalCorruptError as error:
            return f"cannot be read: {error}"
        row = self._walk.peek(request.run_key)
        if row is None and request.run_key > max(self._walk.highest, self._facts.highest_key):
            return f"leads to run {request.run_key}, which never was"
        if row is None:
            return ""  # the run is gone: its request ids go with their generation
        event = self._event(request)
        request_id = event.request_id if isinstance(event, ev.WITH_DIGEST) else ""
        if not request_id or text_hash(self._journal_id, row.workflow_id, request_id) != key:
            return f"leads to event {request.event} of run {request.run_key}, which has another request id"
        assert isinstance(event, ev.WITH_DIGEST)
        return "" if event.digest == request.digest else "has another digest than its event"

    def _message_fault(self, key: bytes, value: bytes) -> str:
        if len(key) != PAIR.size:
            return "is not one of this table"
        try:
            message = message_of(key, value)
        except JournalCorruptError as error:
            return f"cannot be read: {error}"
        before = message.sequence - 1
        with self._store.view() as tables:
            follows = tables.get(Table.OUTBOX, PAIR.pack(message.destination, before)) is not None
            if not follows and acknowledged_to(tables, message.destination) < before:
                return f"is message {before + 1} to shard {message.destination}, the one before it is missing"
        return ""

    def _event(self, request: Request) -> ev.Event | None:
        """The input that a request id leads to.

        Raises:
            JournalCorruptError: It cannot be read.
        """
        start, stop = EVENT.pack(request.run_key, 0), EVENT.pack(request.run_key, request.event + 1)
        with self._store.view() as tables:
            stored = next(tables.scan(Table.HISTORIES, start, stop, reverse=True), None)
            entries = [] if stored is None else history_entries(tables, self._codec, *stored)
        found = _input(entries, request.event)
        if found is None:  # it is not moved yet, or hit by damage
            whole = self._walk.look(request.run_key)
            if not examine(whole, self._walk.spiller).check.is_whole:
                raise JournalCorruptError("part of the run cannot be read")
            found = _input([entry for _, entry in whole.entries], request.event)
        return found

    # --- the facts

    def facts(self, wrong: Wrong) -> None:
        """Check what the tables say about themselves."""
        name = Table.FACTS.value
        counts: Counter[tuple[str, str]] = Counter()
        highest = 0
        is_complete = Table.RUNS.value not in self._damaged
        # In one transaction, or a writer would be between the rows.
        with self._store.view() as tables:
            try:
                remembered(tables)
                facts = read_facts(tables)
            except JournalCorruptError as error:
                wrong(0, Fault(0, str(error), table=name))
                return
            for number in range(1, facts.dictionary + 1):
                for table, message in dictionary_faults(tables, number):
                    wrong(0, Fault(0, message, table=table.value))
            for key, row in tables.scan(Table.RUNS):
                try:
                    run = decode_run(row)
                except JournalCorruptError:
                    is_complete = False
                    continue
                highest = NUMBER.unpack(key)[0]
                counts[run.workflow_type, run.status] += 1
        if highest > facts.highest_key:
            wrong(0, Fault(0, f"the highest run key is {highest}, not {facts.highest_key}", table=name))
        said = {(kind, status): number for kind, status, number in facts.counts if number}
        if is_complete and said != counts:
            for kind, status in sorted(said.keys() | counts.keys()):
                says, there = said.get((kind, status), 0), counts[kind, status]
                if says != there:
                    what = f"{says} runs of type {kind!r} are said to be {status}, {there} are"
                    wrong(0, Fault(0, what, table=name))


#: The tables whose rows are checked one by one, and how.
CHECKED: dict[Table, Callable[[TableCheck, bytes, bytes], str]] = {
    Table.IDS: TableCheck._id_fault,
    Table.DUE: TableCheck._due_fault,
    Table.CLOSED: TableCheck._closed_fault,
    Table.DEDUPE_0: TableCheck._request_fault,
    Table.DEDUPE_1: TableCheck._request_fault,
    Table.BLOBS: TableCheck._blob_fault,
    Table.BLOB_RUNS: TableCheck._blob_run_fault,
    Table.OUTBOX: TableCheck._message_fault,
}


def _get(tables: Tables, table: Table, key: bytes) -> tuple[bool, bytes | None]:
    """Whether a row can be read, and its value."""
    try:
        return True, tables.get(table, key)
    except JournalCorruptError:
        return False, None


def _input(entries: list[Entry], number: int) -> ev.Event | None:
    place = bisect_right(entries, number, key=lambda entry: entry.first_event) - 1
    if place < 0:
        return None
    try:
        inputs = ev.decode_record(entries[place].body).inputs
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise JournalCorruptError(str(error)) from error
    index = number - entries[place].first_event
    return inputs[index] if index < len(inputs) else None
