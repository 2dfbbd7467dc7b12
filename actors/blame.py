"""After a hard death of the process: what ran then is noted in the histories, and what has killed it too often stops.

All of it is one commit, durable before any code runs again (R12, R4).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from ..journal import events as ev
from ..journal.blob_table import write_blobs
from ..journal.blobs import Spiller
from ..journal.errors import JournalCorruptError
from ..journal.failures import Failure, class_names
from ..journal.fault_points import fault_point
from ..journal.fold import TURN as TURN_OF_RUN
from ..journal.fold import RunState
from ..journal.loading import Loaded
from ..journal.run_status import status_flags
from ..journal.store import Entry
from ..supervision.blame import DEATHS, suspects_of
from ..supervision.flight_recorder import Flight, Slot, read_flight
from .errors import ProcessDiedError
from .marks import ATTEMPT, QUERY, REPLAY, START, VALIDATOR

if TYPE_CHECKING:
    from .shard import Shard

log = logging.getLogger("everact.runtime")


def what_ran(kind: int, label: bytes) -> str:
    """What of a run a slot means, as its history calls it."""
    words = {QUERY: "query", VALIDATOR: "validator"}
    return f"{words[kind]} {label.decode('utf-8', 'replace')}" if kind in words else TURN_OF_RUN


def deaths_of(state: RunState, kind: int, label: bytes) -> int:
    """How often the process died while a handler ran alone, since the run has last progressed."""
    blame = state.blame.get(what_ran(kind, label))
    return 0 if blame is None else blame.deaths


def judge(shard: Shard, loaded: Loaded) -> bool:
    """Read what the last process left, and journal what follows; then begin a recorder of this process.

    Returns:
        Whether the journal was written, so that it must be read again.
    """
    directory = shard.store.directory
    if directory is None:
        return False
    journal_id = shard.store.journal_id
    flight = read_flight(directory, journal_id)
    entries: list[Entry] = []
    if flight is not None:
        entries = _Judgement(shard, loaded, flight).entries()
        if entries:
            stored, blobs = Spiller(journal_id).spill_entries(entries)
            shard.store.append(
                shard.store.position, stored, partial(write_blobs, blobs=blobs) if blobs else None
            )
            fault_point("recovery.blamed")
    try:
        shard.marks.recorder.keep(directory, journal_id)
    except OSError as error:
        log.warning(
            "the flight recorder cannot be written (%s): what kills this process is not found out", error
        )
    return bool(entries)


class _Judgement:
    """What one death says of the runs of a journal."""

    def __init__(self, shard: Shard, loaded: Loaded, flight: Flight) -> None:
        self._shard = shard
        self._loaded = loaded
        self._flight = flight
        self._suspects = suspects_of(flight)
        self._alone = len(self._suspects) == 1
        self._now = shard.now()
        self._states: dict[int, RunState | None] = {}
        self._entries: list[Entry] = []

    def entries(self) -> list[Entry]:
        """What is to be journalled."""
        if self._suspects:
            log.warning("the last process died while code ran: %s", self._names())
            text = (
                "if it was ended on purpose, by SIGTERM perhaps: leave the Runtime then (docs/supervision.md)"
            )
            log.warning(text)
        for slot in self._flight.slots:
            if slot.kind == ATTEMPT:
                self._attempt(slot)
        for slot in self._suspects:
            if slot.kind != ATTEMPT:
                self._code(slot)
        return self._entries

    def _state(self, key: int) -> RunState | None:
        """The fold of an open run; of one that is not there, has ended or cannot be read there is none."""
        if key not in self._states:
            self._states[key] = self._read(key)
        return self._states[key]

    def _read(self, key: int) -> RunState | None:
        loaded = self._loaded
        try:
            row = loaded.runs.row(key)
            if row is None or row.is_closed:
                return None
            return loaded.states.get(key) or loaded.runs.state(row)
        except JournalCorruptError as error:
            log.error("what a dead process says of run %d is left, the run is damaged: %s", key, error)  # noqa: TRY400
            return None

    def _write(self, key: int, state: RunState, events: Iterable[ev.AnyEvent]) -> None:
        record = ev.Turn(tuple(events))
        first = state.last_event + 1
        before = state.status
        state.apply(record, self._now)
        flags = status_flags(state.status) if state.status != before else 0
        self._entries.append(Entry(key, first, flags, self._now, ev.encode_record(record)))

    def _attempt(self, slot: Slot) -> None:
        state = self._state(slot.key)
        pending = None if state is None else state.activities.get(slot.position)
        if state is None or pending is None or pending.attempt != slot.number or pending.deadline:
            return  # it is over; or its code had returned, and somebody else completes it
        flight = self._flight
        is_suspect = slot in self._suspects
        if not flight.same_boot:
            reason = "the machine was started anew while the attempt was in hand; it is not counted"
        elif flight.excused:
            reason = "the process was ended on purpose while the attempt was in hand; it is not counted"
        elif is_suspect:
            alone = "and nothing else" if self._alone else f"and {len(self._suspects) - 1} others"
            reason = f"the process died while the attempt's code ran, {alone}"
        else:
            reason = "the process died while the attempt was in hand"
        counted = flight.same_boot and not flight.excused
        event = ev.AttemptLost(
            slot.position, slot.number, reason, counted, is_suspect, is_suspect and self._alone
        )
        self._write(slot.key, state, [event])

    def _code(self, slot: Slot) -> None:
        state = self._state(slot.key)
        if state is None:
            if slot.kind == START:  # its run is not in the journal
                self._shard.marks.wary |= {slot.label}
            return
        life = self._flight.life.hex()
        what = what_ran(slot.kind, slot.label)
        known = state.blame.get(what)
        if known is not None and known.life == life:  # a start that died after it had journalled this
            return
        events: list[ev.AnyEvent] = [ev.RunBlamed(life, what, self._alone)]
        deaths = (known.deaths if known is not None else 0) + self._alone
        if what == TURN_OF_RUN and deaths >= DEATHS and state.stall is None:
            failure = Failure(
                type=ProcessDiedError.__name__,
                bases=class_names(ProcessDiedError),
                message=str(ProcessDiedError(what, deaths)),
                kind="crash",
            )
            events.append(ev.RunStalled("quarantined", failure))
            log.error(
                "workflow %r (run %s) is quarantined: %s",
                state.started.workflow_id,
                state.started.run_id,
                failure.message,
            )
        self._write(slot.key, state, events)

    def _names(self) -> str:
        return "; ".join(map(self._name, self._suspects))

    def _name(self, slot: Slot) -> str:
        state = self._state(slot.key)
        if state is None:
            who = (
                f"workflow {slot.label.decode('utf-8', 'replace')!r}"
                if slot.kind == START
                else f"run {slot.key}"
            )
        else:
            who = f"workflow {state.started.workflow_id!r} (run {state.started.run_id})"
        if slot.kind == ATTEMPT:
            pending = None if state is None else state.activities.get(slot.position)
            name = f"command {slot.position}" if pending is None else repr(pending.scheduled.activity_type)
            return f"attempt {slot.number} of activity {name} of {who}"
        kind = "the replay" if slot.kind == REPLAY else f"a {what_ran(slot.kind, slot.label)}"
        return f"{kind} of {who}"
