"""Reading what compaction moves next, on a thread of its own: each record of the log once for many runs.

Runs are moved in the order of their keys, and a record of the log has turns of many runs: run by run, each record would
be decompressed again for each of them. The new values of the histories are made here too, so that the writer's thread
only has to write them.

The thread gives the interpreter's lock back all the time. Only by sleeping: one that gives it back and goes on takes it
again before another thread has woken up, and a commit that has come back from the disk would wait for it.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import perf_counter, sleep
from typing import NamedTuple

from .history_values import SAMPLES, HistoryCodec
from .new_history import NewHistory, new_history
from .run_row import INDEX_BITS, unpacked
from .store import Entry, JournalStore

#: Bytes of entries held at a time; beyond that the runs at the end are left for the next time.
MOST_BYTES = 16 << 20
#: Bytes that an entry takes in memory beside its body.
ENTRY_BYTES = 200
#: Entries in one read transaction.
AT_ONCE = 16
#: So many neighbouring records of the log are gone through together.
BLOCK = 256
#: After so long a stretch of work a pause of so much, in seconds; longer ones when it would not be done in time.
STRETCH = 0.0002
LATE_STRETCH = 0.001
PAUSE = 0.0002


class Wanted(NamedTuple):
    """A run whose entries are to be moved.

    Attributes:
        key: The run.
        places: Packed locations of the entries, in order; at least one.
        is_new: The histories have nothing of it yet.
    """

    key: int
    places: array[int]
    is_new: bool


class ReadAhead:
    """What the histories get of some runs, on its way into memory.

    Attributes:
        done: Everything is there, or ``error`` says why not.
        is_late: It should go faster.
        found: Of each run, in the order given; perhaps not of the last ones.
        error: What went wrong.
    """

    def __init__(
        self, store: JournalStore, codec: HistoryCodec, wanted: Sequence[Wanted], *, here: bool
    ) -> None:
        """Begin.

        Args:
            store: The journal.
            codec: Encodes the values of the histories.
            wanted: The runs.
            here: Read now, on the thread of the caller.
        """
        self._store = store
        self._codec = codec
        self._wanted = wanted
        self._rests = not here
        self._began = perf_counter()
        self.done = threading.Event()
        self.is_late = False
        self.found: list[NewHistory] = []
        self.error: Exception | None = None
        if not here:
            thread = threading.Thread(target=self._work, name="everact-read-ahead", daemon=True)
            with suppress(RuntimeError):  # the system gives no more threads just now
                thread.start()
                return
        self._rests = False
        self._work()

    def left_out(self) -> list[int]:
        """Keys of the runs that were too much at a time, in order."""
        return [run.key for run in self._wanted]

    def _work(self) -> None:
        try:
            self.found = self._histories(self._read())
            self._wanted = self._wanted[len(self.found) :]
        except Exception as error:  # noqa: BLE001  (whoever takes the values gets it)
            self.error = error
        self.done.set()

    def _rest(self) -> None:
        """Let others have the interpreter for a while, if this has gone on for long enough."""
        if self._rests and perf_counter() - self._began > (LATE_STRETCH if self.is_late else STRETCH):
            sleep(PAUSE)
            self._began = perf_counter()

    def _read(self) -> dict[int, list[Entry]]:
        """The entries of the runs, each record of the log read once."""
        entries: dict[int, list[Entry]] = {run.key: [] for run in self._wanted}
        size = 0
        for places in self._in_order():
            for at in range(0, len(places), AT_ONCE):
                self._rest()
                for entry in self._store.read(unpacked(places[at : at + AT_ONCE])):
                    kept = entries.get(entry.run_key)
                    if kept is not None:
                        kept.append(entry)
                        size += len(entry.body) + ENTRY_BYTES
                while size > MOST_BYTES and len(entries) > 1:
                    entries = dict(list(entries.items())[: len(entries) // 2])
                    size = sum(len(entry.body) + ENTRY_BYTES for kept in entries.values() for entry in kept)
        return entries

    def _in_order(self) -> Iterator[list[int]]:
        """The places in the order of the log, block by block: to sort all of them at once would take long."""
        blocks: dict[int, list[int]] = {}
        for run in self._wanted:
            self._rest()
            for place in run.places:
                number = (place >> INDEX_BITS) // BLOCK
                if number in blocks:
                    blocks[number].append(place)
                else:
                    blocks[number] = [place]
        for number in sorted(blocks):
            yield sorted(blocks.pop(number))

    def _histories(self, entries: dict[int, list[Entry]]) -> list[NewHistory]:
        found: list[NewHistory] = []
        for run in self._wanted[: len(entries)]:
            self._rest()
            with self._store.view() as tables:
                new = new_history(tables, self._codec, run.key, entries.pop(run.key), is_new=run.is_new)
            found.append(new if len(found) < SAMPLES else new._replace(samples=()))
        return found
