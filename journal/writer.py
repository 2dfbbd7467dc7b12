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

from .blob_table import Blob, write_blobs
from .blobs import Spiller
from .compaction_step import Step
from .errors import CommitUnknownError, EveractError, JournalDiskError
from .events import WorkflowStarted
from .fault_points import fault_point
from .outbox import Post
from .store import Changes, Entry, JournalStore, Position, Work


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
        entries: For the journal.
        started: First event of each run that the batch starts, by run key.
        effects: Called in order once the batch is durable; dropped when it fails.
        waiters: Futures that get their value then, or ``CommitUnknownError``.
        step: What it moves from the log into the tables.
        post: What it sends to other runs, and takes in from them; None when that is nothing.
        durable: It is on disk.
        error: Why it will never be known to be; None while it may.
    """

    __slots__ = ("durable", "effects", "entries", "error", "post", "started", "step", "waiters")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.started: dict[int, WorkflowStarted] = {}
        self.effects: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.waiters: list[tuple[asyncio.Future[Any], Any]] = []
        self.step: Step | None = None
        self.post: Post | None = None
        self.durable = False
        self.error: EveractError | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing for the disk."""
        return not self.entries and self.post is None

    def answer(self, future: asyncio.Future[Any], value: Any) -> None:
        """Settle a future once the batch is durable; at once if it is, or if it has failed.

        This is the one way by which answers leave (R5): the batch is the newest that the answer could have read.

        Args:
            future: Who waits.
            value: The answer, or a ``Raise``.
        """
        if self.durable:
            settle(future, value)
        elif self.error is not None:
            settle(future, Raise(self.error))
        else:
            self.waiters.append((future, value))

    def after(self, effect: Callable[..., object], *args: Any) -> None:
        """Call ``effect(*args)`` once the batch is durable; at once if it is, never if it has failed."""
        if self.durable:
            effect(*args)
        elif self.error is None:
            self.effects.append((effect, args))

    def fail(self, error: EveractError) -> None:
        """Nobody will know whether it is on disk."""
        self.error = error
        for future, _value in self.waiters:
            settle(future, Raise(error))
        self._forget()

    def _forget(self) -> None:
        # Runs keep their newest batch; it must not keep what it carried.
        self.entries, self.started, self.effects, self.waiters = [], {}, [], []
        self.step = self.post = None


def durable_batch() -> Batch:
    """What a run's newest batch is when all its records came from the journal."""
    batch = Batch()
    batch.durable = True
    return batch


DURABLE = durable_batch()


def _work(blobs: list[tuple[int, Blob]], post: Post | None, step: Step | None) -> Work | None:
    """What a commit changes in the tables."""
    if not blobs and post is None:
        return step

    def work(changes: Changes) -> None:
        if blobs:
            write_blobs(changes, blobs)
        if post is not None:
            post(changes)
        if step is not None:
            step(changes)

    return work


class GroupCommit:
    """The loop's side of the writer; all methods belong to the loop's thread.

    Attributes:
        open: The batch that turns add to.
        error: Why it writes no more, or None.
    """

    def __init__(
        self,
        store: JournalStore,
        loop: asyncio.AbstractEventLoop,
        committed: Callable[[int, Batch], None],
        failed: Callable[[BaseException], None],
        plan: Callable[[int], Step | None],
    ) -> None:
        """Begin.

        Args:
            store: The open journal.
            loop: Loop on which everything but the commit itself happens.
            committed: Called with sequence and batch before the batch's effects.
            failed: Called once when a commit has failed; every waiter already has its error.
            plan: Called with the number of entries just before a batch is sent; what it gives goes with the batch.
        """
        self._store = store
        self._loop = loop
        self._committed = committed
        self._failed = failed
        self._plan = plan
        self._spiller = Spiller(store.journal_id)
        self._queue: SimpleQueue[Batch | None] = SimpleQueue()
        self._in_flight: Batch | None = None
        self._idle: asyncio.Future[None] | None = None
        self.error: BaseException | None = None
        self.open = Batch()
        self._thread = threading.Thread(
            target=self._run, args=(store.position,), name="everact-writer", daemon=True
        )
        self._thread.start()

    def flush(self) -> None:
        """Send the open batch to the writer if it is free; a busy writer takes it when it returns."""
        if self._in_flight is None and not self.open.is_empty and self.error is None:
            batch = self._in_flight = self.open
            self.open = Batch()
            batch.step = self._plan(len(batch.entries))
            self._queue.put(batch)

    def work(self, step: Step) -> None:
        """Commit changes of the tables alone; only while nothing is on its way to the disk."""
        batch = self._in_flight = Batch()
        batch.step = step
        self._queue.put(batch)

    def undurable(self, run_key: int) -> list[Entry]:
        """Entries of a run that are on their way to the disk."""
        flying = self._in_flight.entries if self._in_flight is not None else []
        return [entry for entry in (*flying, *self.open.entries) if entry.run_key == run_key]

    def is_starting(self, run_key: int) -> bool:
        """Whether a run's start is on its way to the disk."""
        flying = self._in_flight
        return run_key in self.open.started or (flying is not None and run_key in flying.started)

    @property
    def undurable_bytes(self) -> int:
        """Size of everything that is on its way to the disk, before compression."""
        flying = self._in_flight.entries if self._in_flight is not None else []
        return sum(len(entry.body) for entries in (flying, self.open.entries) for entry in entries)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way to the disk, or nothing will go there any more."""
        return self.error is not None or (self._in_flight is None and self.open.is_empty)

    async def drain(self) -> None:
        """Wait until everything added so far is durable or has failed."""
        while not self.is_idle:
            self.flush()
            if self._idle is None:
                self._idle = self._loop.create_future()
            await asyncio.shield(self._idle)  # others wait for it too

    def abandon(self, error: EveractError) -> None:
        """Throw the open batch away: nobody was told of it."""
        batch, self.open = self.open, Batch()
        batch.fail(error)

    def forsake(self, error: EveractError) -> None:
        """In a forked child, where there is no writer thread: write nothing, and let nothing leave."""
        self.error = error
        self._in_flight = None

    def close(self) -> None:
        """Stop the writer thread after what it has begun; call ``drain`` first to lose nothing."""
        self._queue.put(None)
        self._thread.join()
        if self.error is None:
            self.error = CommitUnknownError("the journal was closed before this could be written")
        for batch in (self._in_flight, self.open):
            if batch is not None:
                batch.fail(self.unknown())
        self._in_flight = None

    def _run(self, position: Position) -> None:
        """Commit batches until told to stop (writer thread)."""
        while (batch := self._queue.get()) is not None:
            error: BaseException | None = None
            sequence = position.sequence
            try:
                # Here, not on the loop: to take large payloads out takes time.
                entries, blobs = self._spiller.spill_entries(batch.entries)
                position = self._store.append(position, entries, _work(blobs, batch.post, batch.step))
            except BaseException as caught:  # noqa: BLE001  (whatever it was, the outcome is unknown)
                error = caught
            try:
                self._loop.call_soon_threadsafe(self._returned, batch, sequence, error)
            except RuntimeError:  # the loop is closed: nobody is left to be told
                return
            if error is not None:
                return

    def _returned(self, batch: Batch, sequence: int, error: BaseException | None) -> None:
        if self._in_flight is not batch:
            return  # closed meanwhile
        self._in_flight = None
        if error is not None:
            self._fail(batch, error)
            return
        self._committed(sequence, batch)
        self.flush()  # after what was committed is known: the next step of compaction builds on this one
        fault_point("runtime.effects.before", self)
        batch.durable = True
        try:
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
            fault_point("message.ack.before", self)
        finally:  # whatever interrupts: what is durable is acknowledged
            for future, value in batch.waiters:
                settle(future, value)
            batch._forget()
        fault_point("runtime.effects.after", self)
        if self._idle is not None and self._in_flight is None and self.open.is_empty:
            self._idle.set_result(None)
            self._idle = None

    def _fail(self, batch: Batch, error: BaseException) -> None:
        """Refuse everything from the first failure on; only a new incarnation writes again."""
        self.error = error
        for waiting in (batch, self.open):
            waiting.fail(self.unknown())
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None
        self._failed(error)

    def unknown(self) -> EveractError:
        """What callers get when a commit has failed."""
        if isinstance(self.error, JournalDiskError):
            return self.error
        error = CommitUnknownError(
            f"the journal could not confirm a commit ({type(self.error).__name__}: {self.error}); whether it is "
            f"on disk is unknown. Repeat the call with the same request_id: it is applied once."
        )
        error.__cause__ = self.error
        return error
