"""Put exported runs, and the messages between them, into a journal.

The documents are read twice: first all of them are checked, then they are written one by one. So memory holds one run
at a time, and of the others a few numbers and digests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from . import events as ev
from .blob_table import write_blobs
from .blobs import Spiller
from .errors import ImportRefusedError, JournalCorruptError
from .loading import load
from .message_document import FORMAT as MESSAGE
from .message_document import message_of_document
from .outbox import Message, Outbox, write_messages
from .run_check import RunCheck, has_request
from .run_document import entries_of
from .run_index import RunIndex
from .run_messages import encode_message
from .salvage import Progress
from .store import HAS_REQUEST, Entry, JournalStore
from .tables import text_hash

#: Bytes of the events of one commit record; a run with more is imported in several.
RECORD_BYTES = 64 << 20
#: Messages that are written in one commit.
MESSAGES_AT_ONCE = 1000
#: Number of the shard that all runs of a journal belong to.
SHARD = 0


class Imported(NamedTuple):
    """What an import has written.

    Attributes:
        runs: Runs, each in a commit record of its own, or in several when it is very large.
        events: Their events.
        messages: Messages between runs, on their way.
    """

    runs: int
    events: int
    messages: int


def import_runs(
    store: JournalStore, documents: Iterable[Mapping[str, Any]], progress: Progress | None = None
) -> Imported:
    """Append exported runs to a journal, each as one commit record, in the order given, and then the messages.

    All documents are checked before the first is written. When an append fails, the runs before it are there, and of
    a run of more than ``RECORD_BYTES`` perhaps its beginning; the messages come last.

    Args:
        store: The journal, opened for writing.
        documents: What ``export_runs`` made: a collection, or something else that gives the same each time it is
            iterated.
        progress: Called with the runs written and all of them.

    Raises:
        ImportRefusedError: A document is damaged or its run is there already; nothing was written, unless it says so.
        JournalCorruptError: The journal has damage of its own; nothing was written.
        AppendRefusedError: Another writer has taken over.
        CommitUnknownError: A commit failed.
        TypeError: The documents can be iterated once only; nothing was written.
    """
    if isinstance(documents, Iterator):
        raise TypeError("import_runs() reads the documents twice: give a list of them, not an iterator")
    try:
        loaded = load(store)
        checked = _Checked(store.journal_id, loaded.runs, loaded.next_key)
        for document in documents:
            checked.add(document)
    except JournalCorruptError as error:
        raise JournalCorruptError(
            f"the journal is damaged and takes no import (`everact journal verify` names all of it): {error}"
        ) from error
    writer = _Writer(store, checked)
    try:
        for document in documents:
            writer.add(document)
            if progress is not None and not writer.messages:
                progress(writer.runs, checked.runs)
        writer.finish()
    except ImportRefusedError as error:
        raise ImportRefusedError(
            f"what is imported has changed while it was read, after {writer.runs} of {checked.runs} runs were written: "
            f"import it into a new directory ({error})"
        ) from error
    return Imported(writer.runs, writer.events, writer.messages)


class _Checked:
    """What was read the first time: whether the journal can take it.

    Attributes:
        runs: How many runs there are.
    """

    def __init__(self, journal_id: str, index: RunIndex, next_key: int) -> None:
        self._journal_id = journal_id
        self._index = index
        self.runs = 0
        self._next_key = self.first_key = next_key
        self._keys: dict[bytes, int] = {}
        self._newest: dict[bytes, tuple[int, bool, bytes]] = {}
        self._requests: set[bytes] = set()

    def add(self, document: Mapping[str, Any]) -> None:
        """Check one more document.

        Raises:
            ImportRefusedError: It is damaged, or does not fit into the journal.
        """
        if is_message(document):
            message_of_document(document)
            return
        entries, run = read_run(document, self._next_key)
        started = run.started
        assert started is not None
        index, workflow_id = self._index, started.workflow_id
        run_name = self._hash(started.run_id)
        if run_name in self._keys or index.find(workflow_id, started.run_id) is not None:
            raise ImportRefusedError(
                f"run {started.run_id!r} is in this journal already: nothing was imported"
            )
        name = self._hash(workflow_id)
        before = self._newest.get(name)
        if before is None and (row := index.find(workflow_id)) is not None:
            before = row.started_at, row.is_closed, self._hash(row.run_id)
        # A run goes on as the next of its chain whatever the wall clock, which may have been set back, says of that.
        follows = (
            before is not None
            and started.chain is not None
            and self._hash(started.chain.continued_run_id) == before[2]
        )
        if before is not None and (not before[1] or (before[0] > entries[0].at and not follows)):
            what = "is open" if not before[1] else "started later"
            raise ImportRefusedError(
                f"workflow {workflow_id!r} has another run in this journal that {what}, "
                f"run {started.run_id!r} would take its place: nothing was imported"
            )
        if started.request_id:
            request = self._hash(workflow_id, started.request_id)
            if request in self._requests or index.requests.find(workflow_id, started.request_id) is not None:
                raise ImportRefusedError(
                    f"workflow {workflow_id!r} was started with request id {started.request_id!r} in this "
                    f"journal already: nothing was imported"
                )
            self._requests.add(request)
        self._newest[name] = (entries[0].at, run.is_closed, run_name)
        self._keys[run_name] = self._next_key
        self._next_key += 1
        self.runs += 1

    def key_of(self, names: tuple[str, str] | None) -> int:
        """The key of a run by its workflow id and run id; 0 when there is none."""
        if names is None:
            return 0
        key = self._keys.get(self._hash(names[1]))
        if key is not None:
            return key
        row = self._index.find(*names)
        return 0 if row is None else row.key

    def _hash(self, *texts: str) -> bytes:
        return text_hash(self._journal_id, *texts)


class _Writer:
    """What is read the second time goes into the journal.

    Attributes:
        runs: Runs that were written.
        events: Their events.
        messages: Messages that were written, or are about to be.
    """

    def __init__(self, store: JournalStore, checked: _Checked) -> None:
        self._store = store
        self._checked = checked
        self._position = store.position
        self._spiller = Spiller(store.journal_id)
        self._outbox = Outbox(store)
        self._waiting: list[Message] = []
        self.runs = self.events = self.messages = 0

    def add(self, document: Mapping[str, Any]) -> None:
        """Write one more document."""
        if is_message(document):
            sender, body = message_of_document(document)
            key = self._checked.key_of(sender)
            self._waiting.append(self._outbox.new(SHARD, key, encode_message(body)))
            self.messages += 1
            if len(self._waiting) >= MESSAGES_AT_ONCE:
                self.finish()
            return
        key = self._checked.first_key + self.runs
        entries, run = read_run(document, key)
        started = run.started
        if started is None or self._checked.key_of((started.workflow_id, started.run_id)) != key:
            raise ImportRefusedError(f"run {document.get('run_id')!r} was not there before")
        for part in _parts(entries):
            stored, blobs = self._spiller.spill_entries(part)
            work = partial(write_blobs, blobs=blobs) if blobs else None
            self._position = self._store.append(self._position, stored, work)
        self.runs += 1
        self.events += run.events

    def finish(self) -> None:
        """Write the messages that are left."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._position = self._store.append(self._position, [], partial(write_messages, messages=waiting))


def is_message(document: object) -> bool:
    """Whether a document is that of a message."""
    return isinstance(document, Mapping) and document.get("format") == MESSAGE


def read_run(document: Mapping[str, Any], run_key: int) -> tuple[list[Entry], RunCheck]:
    """The entries of a document's run, and what they are.

    Raises:
        ImportRefusedError: It is damaged.
    """
    entries = [_flagged(entry) for entry in entries_of(document, run_key)]
    return entries, _checked(entries, document)


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
