"""LMDB's table of readers. No page that a reader may need is used again, so an old reader makes the file grow."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import lmdb

log = logging.getLogger("everact.runtime")

#: The writer looks after the table this often, in seconds, while it commits.
CHECK_EVERY = 5.0
#: A reader that has held one state for so many seconds and commits is named in a warning.
LONG = 60.0
COMMITS = 1000


class _Reader(NamedTuple):
    pid: str
    thread: str
    txnid: str


class ReaderWatch:
    """Frees the slots of readers that were killed, and names those that read for too long.

    Args:
        path: The journal's directory, for messages.
        steady: Seconds of a clock that never goes back.
    """

    def __init__(self, path: str, steady: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._steady = steady
        self._due = steady() + CHECK_EVERY
        self._since: dict[_Reader, float] = {}
        self._named: set[_Reader] = set()

    def look(self, env: lmdb.Environment) -> None:
        """Look after the table if it is time to; called after each commit, so it costs nothing in between."""
        now = self._steady()
        if now < self._due:
            return
        self._due = now + CHECK_EVERY
        with suppress(lmdb.Error):  # the commit before is durable, whatever the table says
            env.reader_check()
            self._name_long_readers(env, now)

    def _name_long_readers(self, env: lmdb.Environment, now: float) -> None:
        # A heading, then pid, thread and transaction of each slot in use; "-" between two reads.
        rows = (line.split() for line in env.readers().splitlines()[1:])
        readers = [_Reader(*row) for row in rows if len(row) == 3 and row[2] != "-"]
        self._since = {reader: self._since.get(reader, now) for reader in readers}
        self._named.intersection_update(readers)
        newest = env.info()["last_txnid"]
        for reader, since in self._since.items():
            is_long = now - since >= LONG and newest - int(reader.txnid) >= COMMITS
            if is_long and reader not in self._named:
                self._named.add(reader)
                log.warning(
                    "process %s has been reading the journal %r in one go for %d s, and its data file grows meanwhile: "
                    "wait for that process (a backup?), or stop it",
                    reader.pid,
                    self._path,
                    now - since,
                )
