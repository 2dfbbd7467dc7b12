"""Reading what compaction moves next, on a thread of its own: each record of the log once for many runs.

Runs are moved in the order of their keys, and a record of the log has turns of many runs: run by run, each record would
be decompressed again for each of them.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from time import sleep

from .run_row import unpacked
from .store import Entry, JournalStore

#: Bytes of entries held at a time; beyond that the runs at the end are left for the next time.
MOST_BYTES = 32 << 20
#: Entries in one read transaction.
AT_ONCE = 64
#: Between two of them, in seconds: a thread that only gives the interpreter's lock back takes it again before another
#: one has woken up.
PAUSE = 0.0001


class ReadAhead:
    """Entries of some runs, on their way into memory.

    Attributes:
        is_done: Everything is there, or ``error`` says why not.
        found: Key and entries of each run, in the order given; perhaps not of the last ones.
        error: What went wrong.
    """

    def __init__(self, store: JournalStore, wanted: Sequence[tuple[int, array[int]]], *, here: bool) -> None:
        """Begin.

        Args:
            store: The journal.
            wanted: Key of each run with the packed locations of its entries.
            here: Read now, on the thread of the caller.
        """
        self._store = store
        self._wanted = wanted
        self.is_done = False
        self.found: list[tuple[int, list[Entry]]] = []
        self.error: Exception | None = None
        if here:
            self._work()
        else:
            threading.Thread(target=self._work, name="everact-read-ahead", daemon=True).start()

    def left_out(self) -> list[int]:
        """Keys of the runs that were too much at a time, in order."""
        return [key for key, _ in self._wanted[len(self.found) :]]

    def _work(self) -> None:
        try:
            self.found = self._read()
        except Exception as error:  # noqa: BLE001  (whoever takes the entries gets it)
            self.error = error
        self.is_done = True

    def _read(self) -> list[tuple[int, list[Entry]]]:
        entries: dict[int, list[Entry]] = {key: [] for key, _ in self._wanted}
        places = sorted(place for _, places in self._wanted for place in places)
        size = 0
        for at in range(0, len(places), AT_ONCE):
            sleep(PAUSE)
            for entry in self._store.read(unpacked(places[at : at + AT_ONCE])):
                kept = entries.get(entry.run_key)
                if kept is not None:
                    kept.append(entry)
                    size += len(entry.body)
            if size > MOST_BYTES and len(entries) > 1:
                entries = dict(list(entries.items())[: len(entries) // 2])
                size = sum(len(entry.body) for kept in entries.values() for entry in kept)
        return list(entries.items())
