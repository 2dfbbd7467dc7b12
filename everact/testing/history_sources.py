"""Stored histories: files that were exported, documents, what ``fetch_history`` gave."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard, cast

import msgspec

from ..actors.descriptions import History
from ..journal import events as ev
from ..journal.errors import ImportRefusedError
from ..journal.run_check import RunCheck
from ..journal.run_document import entries_of, record_of

__all__ = [
    "HistoryLike",
    "Records",
    "StoredHistory",
    "each_of_many",
    "histories_of",
    "history_of",
    "of_records",
]

#: One history: what ``fetch_history`` gave, an exported document, or the path of a file that holds it.
HistoryLike = History | Mapping[str, Any] | str | os.PathLike[str]
#: Each with its time in microseconds.
Records = list[tuple[int, ev.Record]]
#: What a directory is searched for.
SUFFIXES = (".json", ".jsonl")
_ADVICE = "`everact journal export` writes them"
#: What a damaged document makes ``record_of`` raise.
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError)


@dataclass(frozen=True)
class StoredHistory:
    """One history as it was read, or why it could not be.

    Attributes:
        source: Where it is from; empty for a value.
        workflow_type: Of the run.
        workflow_id: Of the run.
        run_id: The run.
        records: Each with its time in microseconds.
        error: What is wrong with it; there are no records then.
    """

    source: str
    workflow_type: str = ""
    workflow_id: str = ""
    run_id: str = ""
    records: tuple[tuple[int, ev.Record], ...] = ()
    error: Exception | None = None

    @property
    def events(self) -> int:
        """How many events it has."""
        return sum(len(ev.events_of(record)) for _at, record in self.records)


def of_records(records: Iterable[tuple[int, ev.Record]], source: str = "") -> StoredHistory:
    """A history of these records.

    Raises:
        ImportRefusedError: They do not begin with the start of a run.
    """
    records = tuple(records)
    events = ev.events_of(records[0][1]) if records else ()
    started = events[0] if events else None
    if not isinstance(started, ev.WorkflowStarted):
        raise ImportRefusedError("the history does not begin with the start of a run: give all of its events")
    return StoredHistory(source, started.workflow_type, started.workflow_id, started.run_id, records)


def histories_of(history: object) -> Iterator[StoredHistory]:
    """The histories that a value means: several for a file with a document a line.

    What cannot be read is one with an error.

    Raises:
        TypeError: It means none.
        OSError: The file cannot be read.
    """
    if isinstance(history, History):
        yield _read("", lambda: of_records(history.records))
    elif isinstance(history, Mapping):
        yield _read("", lambda: _of_document(history))
    elif isinstance(history, str) and _is_text(history):
        yield from _of_text(history.encode(), "")
    elif isinstance(history, str | os.PathLike):
        path = Path(history)
        yield from _of_text(path.read_bytes(), str(path))
    else:
        advice = ": await its fetch_history() first" if hasattr(history, "fetch_history") else ""
        raise TypeError(
            f"a history is what fetch_history() gave, an exported document, or the path of its file, not "
            f"{type(history).__name__}{advice}"
        )


def history_of(history: object) -> StoredHistory:
    """The one history that a value means; errors as of ``histories_of``.

    Raises:
        ValueError: It holds none, or several.
    """
    found = list(histories_of(history))
    if len(found) != 1:
        raise ValueError(f"{history} holds {len(found)} histories: replay_many() takes it")
    return found[0]


def each_of_many(histories: Iterable[HistoryLike] | str | os.PathLike[str]) -> list[HistoryLike]:
    """What is to be read of a directory, a file, or several of all these.

    Raises:
        ValueError: There is nothing in it.
    """
    found: list[HistoryLike] = []
    is_one = isinstance(histories, str | os.PathLike | History | Mapping)
    for one in cast("list[HistoryLike]", [histories] if is_one else histories):
        found += _files_below(Path(one)) if _is_directory(one) else [one]
    if not found:
        raise ValueError(
            f"there is no history in {histories!s}: {_ADVICE} to files ending in .json or .jsonl"
        )
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.lstrip().startswith("{")


def _is_directory(value: object) -> TypeGuard[str | os.PathLike[str]]:
    return isinstance(value, str | os.PathLike) and not _is_text(value) and Path(value).is_dir()


def _files_below(directory: Path) -> list[Path]:
    return sorted(file for file in directory.rglob("*") if file.suffix in SUFFIXES and file.is_file())


def _of_text(text: bytes, source: str) -> Iterator[StoredHistory]:
    """A document, or one a line."""
    try:
        document = _from_json(text)
    except ImportRefusedError as error:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) < 2 or not _is_json(lines[0][1]):
            yield StoredHistory(source, error=error)
            return
        for number, line in lines:
            yield _read(f"{source}, line {number}", partial(_of_line, line))
        return
    yield _read(source, lambda: _of_document(document))


def _of_line(line: bytes) -> StoredHistory:
    return _of_document(_from_json(line))


def _is_json(line: bytes) -> bool:
    """Whether a line is a document of its own, and not the beginning of one."""
    try:
        _from_json(line)
    except ImportRefusedError:
        return False
    return True


def _from_json(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ImportRefusedError(f"this is no exported run: it is no JSON ({error}); {_ADVICE}") from error


def _read(source: str, read: Callable[[], StoredHistory]) -> StoredHistory:
    """A history, or one that says why there is none."""
    try:
        return replace(read(), source=source)
    except ImportRefusedError as error:
        return StoredHistory(source, error=error)


def _of_document(document: Any) -> StoredHistory:
    """What ``everact journal export`` or ``everact history --json`` has written.

    Raises:
        ImportRefusedError: It is something else, or damaged.
    """
    if isinstance(document, Mapping) and "format" not in document and "records" in document:
        return of_records(_records_of(document))
    check = RunCheck(1)
    records: Records = []
    for entry in entries_of(document, 1):
        for number, message in check.take(entry):
            run_id = document.get("run_id")
            raise ImportRefusedError(f"the exported run {run_id!r} is damaged: event {number}: {message}")
        assert check.record is not None
        records.append((entry.at, check.record))
    return of_records(records)


def _records_of(document: Mapping[str, Any]) -> Records:
    """The records as ``everact history --json`` shows them, without what a journal has beside them."""
    records: Records = []
    try:
        for stored in document["records"]:
            records.append((msgspec.convert(stored["at"], int), record_of(stored)))
    except _DAMAGE as error:
        raise ImportRefusedError(
            f"the history of run {document.get('run_id')!r} is damaged: record {len(records) + 1}: {error!r}"
        ) from error
    return records
