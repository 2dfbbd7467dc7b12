"""Group commit: turns collect while one commit is on its way, then go to disk together.

The loop's side adds entries and says what is to happen once they are durable. One writer thread commits. Nothing
that a batch carries becomes visible before its commit has returned (R5).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from .errors import CommitUnknownError, JournalError
from .events import WorkflowStarted
from .fault_points import fault_point
from .store import Entry, JournalStore, Position


class Raise:
    """A waiter's value that is raised instead of returned."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


def settle(future: asyncio.Future[Any], value: Any) -> None:
    """Give a waiter its value, or raise it there; one that has gone away is left alone."""
    if future.done():
        return
    if type(value) is Raise:
        future.set_exception(value.error)
        future.exception()  # its caller may have gone away by the time it would be retrieved
    else:
        future.set_result(value)


class Batch:
    """What one commit will hold, and what waits for it.

    Attributes:
        number: Counts from 1 in each incarnation of the writer.
        entries: For the journal.
        started: First event of each run that the batch starts, by run key.
        effects: Called in order once the batch is durable; dropped when it fails.
        waiters: Futures that get their value then, or ``CommitUnknownError``.
    """

    __slots__ = ("effects", "entries", "number", "started", "waiters")

    def __init__(self, number: int) -> None:
        self.number = number
        self.entries: list[Entry] = []
        self.started: dict[int, WorkflowStarted] = {}
        self.effects: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.waiters: list[tuple[asyncio.Future[Any], Any]] = []


class GroupCommit:
    """The loop's side of the writer; all methods belong to the loop's thread.

    Attributes:
        open: The batch that turns add to.
        durable: Number of the newest batch known to be on disk.
    """

    def __init__(
        self,
        store: JournalStore,
        loop: asyncio.AbstractEventLoop,
        committed: Callable[[int, Batch], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Begin.

        Args:
            store: The open journal.
            loop: Loop on which everything but the commit itself happens.
            committed: Called with sequence and batch before the batch's effects.
            failed: Called once when a commit has failed; every waiter already has its error.
        """
        self._store = store
        self._loop = loop
        self._committed = committed
        self._failed = failed
        self._queue: SimpleQueue[Batch | None] = SimpleQueue()
        self._in_flight: Batch | None = None
        self._idle: asyncio.Future[None] | None = None
        self.error: BaseException | None = None
        self.open = Batch(1)
        self.durable = 0
        self._thread = threading.Thread(
            target=self._run, args=(store.position,), name="everact-writer", daemon=True
        )
        self._thread.start()

    def flush(self) -> None:
        """Send the open batch to the writer if it is free; a busy writer takes it when it returns."""
        if self._in_flight is None and self.open.entries and self.error is None:
            batch = self._in_flight = self.open
            self.open = Batch(batch.number + 1)
            self._queue.put(batch)

    def answer(self, number: int, future: asyncio.Future[Any], value: Any) -> None:
        """Settle a future with a value once batch ``number`` is durable; at once if it is.

        Args:
            number: The newest batch that the answer could have read; 0 is durable.
            future: Who waits.
            value: The answer, or a ``Raise``.
        """
        if number <= self.durable:
            settle(future, value)
        elif self.error is not None:
            settle(future, Raise(self.unknown()))
        else:
            batch = self.open if number == self.open.number else self._in_flight
            assert batch is not None
            batch.waiters.append((future, value))

    def undurable(self, run_key: int) -> list[Entry]:
        """Entries of a run that are on their way to the disk."""
        flying = self._in_flight.entries if self._in_flight is not None else []
        return [entry for entry in (*flying, *self.open.entries) if entry.run_key == run_key]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way to the disk, or nothing will go there any more."""
        return self.error is not None or (self._in_flight is None and not self.open.entries)

    async def drain(self) -> None:
        """Wait until everything added so far is durable or has failed."""
        while not self.is_idle:
            self.flush()
            if self._idle is None:
                self._idle = self._loop.create_future()
            await self._idle

    def close(self) -> None:
        """Stop the writer thread after what it has begun; call ``drain`` first to lose nothing."""
        self._queue.put(None)
        self._thread.join()

    def _run(self, position: Position) -> None:
        """Commit batches until told to stop (writer thread)."""
        while (batch := self._queue.get()) is not None:
            error: BaseException | None = None
            sequence = position.sequence
            try:
                position = self._store.append(position, batch.entries)
            except BaseException as caught:  # noqa: BLE001  (whatever it was, the outcome is unknown)
                error = caught
            try:
                self._loop.call_soon_threadsafe(self._returned, batch, sequence, error)
            except RuntimeError:  # the loop is closed: nobody is left to be told
                return
            if error is not None:
                return

    def _returned(self, batch: Batch, sequence: int, error: BaseException | None) -> None:
        self._in_flight = None
        if error is not None:
            self._fail(batch, error)
            return
        self.durable = batch.number
        self.flush()
        fault_point("runtime.effects.before")
        self._committed(sequence, batch)
        for effect, args in batch.effects:
            try:
                effect(*args)
            except Exception as broken:  # noqa: BLE001  (one run's trouble never stops the others)
                self._loop.call_exception_handler(
                    {
                        "message": f"everact: an effect of a durable turn raised ({effect!r})",
                        "exception": broken,
                    }
                )
        fault_point("message.ack.before")
        for future, value in batch.waiters:
            settle(future, value)
        fault_point("runtime.effects.after")
        if self._idle is not None and self._in_flight is None and not self.open.entries:
            self._idle.set_result(None)
            self._idle = None

    def _fail(self, batch: Batch, error: BaseException) -> None:
        """Refuse everything from the first failure on; only a new incarnation writes again."""
        self.error = error
        for waiting in (batch, self.open):
            for future, _value in waiting.waiters:
                settle(future, Raise(self.unknown()))
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None
        self._failed(error)

    def unknown(self) -> JournalError:
        """What callers get when a commit has failed."""
        error = CommitUnknownError(
            f"the journal could not confirm a commit ({type(self.error).__name__}: {self.error}); whether it is "
            f"on disk is unknown. Repeat the call with the same request_id: it is applied once."
        )
        error.__cause__ = self.error
        return error
