"""A load on the journal alone: turns of many runs, in batches as a runtime commits them, without workflow code."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

from ..journal import events as ev
from ..journal.compaction import Compactor
from ..journal.fold import RunState
from ..journal.lmdb_format import DATA_FILE
from ..journal.lmdb_store import LmdbStore
from ..journal.loading import load
from ..journal.payloads import Payload
from ..journal.run_status import status_flags
from ..journal.store import CLOSES_RUN, STARTS_RUN, Entry

#: Events of a turn: what came in, and what was decided.
EVENTS_PER_TURN = 2
#: A turn's events as they are encoded have about so many bytes each.
EVENT_BYTES = 192
#: Turns in one commit, when so many runs are active.
BATCH = 200
#: Different bodies; more would measure the random numbers.
_BODIES = 4096


def bodies() -> list[bytes]:
    """Encoded turns: a result came in, the next activity was scheduled; half of their bytes are random."""
    rng = random.Random(1)  # noqa: S311
    made: list[bytes] = []
    for number in range(_BODIES):
        order = (
            b'{"order": "%s", "amount": %d, "currency": "EUR", "shop": "tea and cups", "tried": false}'
            % (
                rng.randbytes(40).hex().encode(),
                rng.randrange(10**6),
            )
        )
        result = ev.ActivityCompleted(number, 1, Payload("json", order))
        scheduled = ev.ActivityScheduled(number + 1, "charge_the_card", (Payload("json", order),))
        made.append(ev.encode_record(ev.Turn((result,), (scheduled,))))
    return made


class JournalLoad:
    """A journal with active runs, driven by hand.

    Attributes:
        events: Events written, those that begin and end runs included.
        seconds: Spent in commits and in what belongs to them.
        latencies: Seconds of each commit, with whether it moved something out of the log.
    """

    def __init__(self, path: Path, active: int, *, seed: int = 2) -> None:
        self.path = path
        self.store = LmdbStore(path)
        loaded = load(self.store)
        self.index = loaded.runs
        self.events = 0
        self.event_bytes = 0
        self.seconds = 0.0
        self.latencies: list[tuple[float, bool]] = []
        self._last: dict[int, int] = {}
        self._next = loaded.next_key
        self._bodies = bodies()
        self._rng = random.Random(seed)  # noqa: S311
        self._states = self._template()
        self._ended = self._template()
        self._ended.apply(ev.Turn((), (ev.WorkflowCompleted(Payload("json", b'"done"')),)), 2)
        self.compactor = Compactor(self.store, self.index, loaded.facts, self._state_of, lambda: self._at)
        self._at = 1_700_000_000_000_000
        self._position = self.store.position
        self.keys: list[int] = []
        for first in range(0, active, 1000):
            self.commit([self.start() for _ in range(min(1000, active - first))])

    def _template(self) -> RunState:
        state = RunState()
        state.started = ev.WorkflowStarted("order-1", "r" * 32, "Order")
        state.apply(ev.decode_record(self._bodies[0]), 1)
        return state

    def _state_of(self, key: int) -> RunState:
        # One object for all: what is measured is the journal, not the fold.
        if key not in self._last:
            return self._ended  # in the very batch that is to be committed
        self._states.last_event = self._last[key]
        return self._states

    def start(self) -> tuple[Entry, ev.WorkflowStarted]:
        """The first turn of a new run."""
        key = self._next
        self._next += 1
        self.keys.append(key)
        started = ev.WorkflowStarted(f"order-{key}", f"{key:032x}", "Order")
        self._last[key] = 1
        return Entry(key, 1, STARTS_RUN, self._at, ev.encode_record(ev.Turn((started,)))), started

    def turn(self, key: int) -> tuple[Entry, None]:
        """A turn of a run."""
        first = self._last[key] + 1
        self._last[key] += EVENTS_PER_TURN
        return Entry(key, first, 0, self._at, self._rng.choice(self._bodies)), None

    def end(self, position: int) -> tuple[Entry, None]:
        """The last turn of the run at this place among the active ones; another one takes the place."""
        key = self.keys[position]
        self.keys[position] = self.keys[-1]
        self.keys.pop()
        first = self._last.pop(key) + 1
        body = ev.encode_record(ev.Turn((), (ev.WorkflowCompleted(Payload("json", b'"done"')),)))
        return Entry(key, first, CLOSES_RUN | status_flags("completed"), self._at, body), None

    def batch(self, size: int) -> list[tuple[Entry, None]]:
        """Turns of that many different runs."""
        return [self.turn(key) for key in self._rng.sample(self.keys, size)]

    def commit(self, turns: Sequence[tuple[Entry, ev.WorkflowStarted | None]]) -> None:
        """Commit turns as the runtime does."""
        entries = [entry for entry, _ in turns]
        started = {entry.run_key: event for entry, event in turns if event is not None}
        self._at += 1000
        began = perf_counter()
        step = self.compactor.plan(len(entries))
        committing = perf_counter()
        sequence = self._position.sequence
        self._position = self.store.append(self._position, entries, step)
        committed = perf_counter()
        self.index.add(sequence, entries, started)
        if step is not None:
            self.compactor.committed(step, sequence + 1)
        self.seconds += perf_counter() - began
        self.latencies.append((committed - committing, step is not None and bool(step.moves)))
        if self.compactor.error is not None:
            raise self.compactor.error
        self.events += sum(1 if entry.flags else EVENTS_PER_TURN for entry in entries)
        self.event_bytes += sum(len(entry.body) for entry in entries)

    def run(self, events: int, batch: int = BATCH) -> Iterator[int]:
        """Write so many events more, in commits of ``batch`` turns; yields after each commit."""
        end = self.events + events
        size = min(batch, len(self.keys))
        while self.events < end:
            self.commit(self.batch(size))
            yield self.events

    def close(self) -> None:
        """Close the journal."""
        self.store.close()


def written_bytes() -> int | None:
    """Bytes that this process has caused to be sent to a disk; None where the system does not say."""
    try:
        for line in Path("/proc/self/io").read_text("ascii").splitlines():
            if line.startswith("write_bytes:"):
                return int(line.split()[1])
    except OSError:
        pass
    return None


def file_bytes(path: Path) -> int:
    """Bytes that a journal's data file takes on the disk."""
    return (path / DATA_FILE).stat().st_blocks * 512
