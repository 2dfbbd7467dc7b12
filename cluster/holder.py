"""What holds the event loop of a running program, as far as its files tell; read from another process."""

from __future__ import annotations

from ..actors.journal_reader import JournalReader
from ..actors.marks import ATTEMPT, QUERY, REPLAY, START, VALIDATOR
from ..journal.errors import EveractError
from ..journal.lmdb_lock import owner_of, read_notes
from ..supervision.flight_recorder import Slot, read_flight

#: Most activities that are named.
NAMED = 3


def holder_of(journal: str) -> str:
    """What a program that does not answer is busy with, in words.

    Args:
        journal: Directory of the journal.
    """
    try:
        pid = owner_of(journal)
        flight = read_flight(journal, read_notes(journal).journal_id)
    except OSError:
        return "its event loop is busy"
    who = "its event loop" if pid is None else f"the event loop of process {pid}"
    running = () if flight is None else [slot for slot in flight.slots if slot.is_running]
    for slot in running:
        if slot.kind != ATTEMPT:
            return f"{who} is held by {_what(slot)} of {_run(journal, slot)}"
    if running:
        names = [_activity(journal, slot) for slot in running[:NAMED]]
        more = f" and {len(running) - NAMED} more" if len(running) > NAMED else ""
        return f"{who} is busy, no workflow code runs; activities that run: {', '.join(names)}{more}"
    return f"{who} is busy, not with workflow code: the rest of the program has it, or the process is stopped"


def _what(slot: Slot) -> str:
    """What of a run runs."""
    label = slot.label.decode("utf-8", "replace")
    words = {
        QUERY: f"query {label!r}",
        VALIDATOR: f"the validator of update {label!r}",
        REPLAY: "the replay",
        START: "the first turn",
    }
    return words.get(slot.kind, "a turn")


def _run(journal: str, slot: Slot) -> str:
    """The run that a slot is about."""
    if slot.kind == START:
        return f"workflow {slot.label.decode('utf-8', 'replace')!r}"
    try:
        with JournalReader(journal) as reader:
            seen = reader.by_key(slot.key)
    except EveractError:
        seen = None
    if seen is None:
        return f"run number {slot.key}"
    return f"workflow {seen.workflow_id!r} ({seen.workflow_type}, run {seen.run_id}, event {slot.position})"


def _activity(journal: str, slot: Slot) -> str:
    """The activity that a slot is about."""
    name = f"command {slot.position}"
    try:
        with JournalReader(journal) as reader:
            seen = reader.by_key(slot.key)
            if seen is None:
                return f"{name} of run number {slot.key}"
            about = reader.describe(seen.workflow_id, seen.run_id)
    except EveractError:
        return f"{name} of run number {slot.key}"
    for pending in about.pending_activities:
        if pending.command == slot.position:
            name = repr(pending.activity_type)
    return f"{name} of workflow {seen.workflow_id!r}"
