"""Threads for plain ``def`` activities and codecs.

Unlike ``concurrent.futures`` it can give up on a thread that does not end: the slot gets a new one, and the lost
thread neither takes work again nor keeps the process from ending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

#: Does one thing, and returns what tells of it once the thread is free again.
Work = Callable[["Worker"], Callable[[], None] | None]


class Worker:
    """One thread of the pool.

    Attributes:
        doing: What it works on, as whoever gave the work names it; None while it is idle.
        lost: It was given up; it ends after what it is doing.
    """

    __slots__ = ("doing", "lost", "thread")

    def __init__(self) -> None:
        self.doing: object = None
        self.lost = False
        self.thread: threading.Thread | None = None


class ThreadPool:
    """Daemon threads that take functions from a queue; ``submit`` is called from the loop's thread only.

    Args:
        name: What the names of the threads begin with.
    """

    def __init__(self, name: str = "everact-activity") -> None:
        self._name = name
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._workers: set[Worker] = set()
        self._idle = 0
        self._lock = threading.Lock()
        self._names = 0

    def submit(self, work: Work) -> None:
        """Run ``work(worker)`` in a thread; makes one when none is free (the caller limits how many).

        Raises:
            RuntimeError: The system gives no more threads; the work was not taken.
        """
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._add_worker()
        self._queue.put(work)

    def give_up(self, worker: Worker, doing: object) -> str:
        """Replace a thread that does not end with ``doing``; returns its name, or nothing when it has ended."""
        with self._lock:
            if worker.doing is not doing:
                return ""
            worker.lost = True
            self._workers.discard(worker)
        assert worker.thread is not None
        return worker.thread.name

    def close(self) -> None:
        """Let idle threads end; busy ones end with what they are doing."""
        with self._lock:
            for _ in self._workers:
                self._queue.put(None)

    def _add_worker(self) -> None:
        worker = Worker()
        self._names += 1
        worker.thread = threading.Thread(
            target=self._run, args=(worker,), name=f"{self._name}-{self._names}", daemon=True
        )
        worker.thread.start()  # may raise
        self._workers.add(worker)

    def _run(self, worker: Worker) -> None:
        while (work := self._queue.get()) is not None:
            tell = work(worker)
            with self._lock:
                lost = worker.lost
                if not lost:
                    worker.doing = None
                    self._idle += 1
            # Only now: whoever hears of it may submit more at once, and that is for this thread.
            if tell is not None:
                tell()
            if lost:
                return
            del work, tell  # an idle thread keeps nothing alive
