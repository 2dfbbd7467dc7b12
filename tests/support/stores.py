"""Stores around a real one: an append that waits, an append that fails before or after it has written."""

import asyncio
import threading

from everact.journal.errors import CommitUnknownError
from everact.journal.store import JournalStore


class DelegatingStore(JournalStore):
    """Passes everything on; subclasses change one thing."""

    def __init__(self, inner):
        self.inner = inner
        self.path = inner.path

    @property
    def journal_id(self):
        return self.inner.journal_id

    @property
    def position(self):
        return self.inner.position

    def append(self, expected, entries, work=None):
        return self.inner.append(expected, entries, work)

    def reopen(self):
        return self.inner.reopen()

    def view(self):
        return self.inner.view()

    def rows(self, table, start=b"", stop=None, *, reverse=False):
        return self.inner.rows(table, start, stop, reverse=reverse)

    def scan(self, start=0):
        return self.inner.scan(start)

    def read(self, locations):
        return self.inner.read(locations)

    def space(self):
        return self.inner.space()

    def close(self):
        self.inner.close()


class TroubledStore(DelegatingStore):
    """A store whose next appends wait, or fail.

    Attributes:
        failures: What the next appends do: ``before`` raises with nothing written, ``after`` raises although all
            is written.
        reopen_errors: What the next calls of ``reopen`` raise.
        scan_errors: What the next calls of ``scan`` raise.
    """

    def __init__(self, inner):
        super().__init__(inner)
        self.failures = []
        self.reopen_errors = []
        self.scan_errors = []
        self._failed = False
        self._gate = threading.Event()
        self._gate.set()
        self._waiting = threading.Event()

    def hold(self):
        """Let appends wait from now on."""
        self._waiting.clear()
        self._gate.clear()

    async def held(self):
        """Wait until an append waits."""
        assert await asyncio.to_thread(self._waiting.wait, 20), "no append came"

    def release(self):
        self._gate.set()

    def append(self, expected, entries, work=None):
        if not self._gate.is_set():
            self._waiting.set()
            assert self._gate.wait(20), "the test has not released the store"
        if self._failed:
            raise CommitUnknownError("an earlier commit failed")
        failure = self.failures.pop(0) if self.failures else None
        if failure == "before":
            self._failed = True
            raise OSError("the disk is on fire")
        position = self.inner.append(expected, entries, work)
        if failure == "after":
            self._failed = True
            raise OSError("the disk is on fire, and the record on it")
        return position

    def reopen(self):
        if self.reopen_errors:
            raise self.reopen_errors.pop(0)
        self._failed = False
        return self.inner.reopen()

    def scan(self, start=0):
        if self.scan_errors:
            raise self.scan_errors.pop(0)
        return self.inner.scan(start)

    def close(self):
        self.release()
        self.inner.close()


async def turns():
    """Let the loop do everything that it can do now."""
    for _ in range(60):
        await asyncio.sleep(0)
