"""The model of a workflow: the same code on a plain event loop whose time only passes when it is told to."""

import asyncio
import heapq
import threading
from asyncio import events

from .workflow_programs import Outside, Program, act, outsides


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop, with a clock in the test's hand."""

    def __init__(self):
        self._at = 0.0
        super().__init__()

    def time(self):
        return self._at

    def until_idle(self):
        """Run what is ready, and what that makes ready, and let no time pass."""
        outer = events._get_running_loop()  # the test's own: run_forever would not begin inside of it
        events._set_running_loop(None)
        events._set_running_loop(self)
        self._thread_id = threading.get_ident()
        try:
            while self._ready:
                self._run_once()
        finally:
            self._thread_id = None
            events._set_running_loop(outer)

    def next_deadline(self):
        """When the next timer falls due, or None."""
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)._scheduled = False
        return self._scheduled[0]._when if self._scheduled else None

    def advance(self, to):
        """Let time pass; timers fire one by one, in order."""
        while (deadline := self.next_deadline()) is not None and deadline <= to:
            self._at = max(self._at, deadline)
            self.call_soon(lambda: None)  # what is due is found behind what is ready
            self.until_idle()
        self._at = max(self._at, to)


class PlainProgram(Program):
    async def act(self, here, works_at):
        """The activity with its retries, which take no time here."""
        for attempt in range(1, 5):
            try:
                return await act(here, works_at, attempt)
            except Exception:
                if works_at == 0 or attempt == 4:
                    raise
        raise AssertionError


class Model:
    """One run.

    Attributes:
        loop: Its event loop.
        outside: What its activities act on.
        answers: Tasks of its updates, by their number.
    """

    def __init__(self, steps):
        self.loop = VirtualLoop()
        self.outside = outsides[self.loop] = Outside()
        self.answers = {}
        self._handlers = []
        self.loop.call_soon(self._begin, steps)
        self.loop.until_idle()

    def _begin(self, steps):
        self.program = PlainProgram()
        self.main = self.loop.create_task(self._main(steps))

    async def _main(self, steps):
        await self.program.branch("main", steps)
        while pending := [task for task in self._handlers if not task.done()]:
            await asyncio.wait(pending)
        return self.program.found()

    @property
    def is_over(self):
        return self.main.done()

    @property
    def outcome(self):
        """What the run has come to: its result, or the word for its end."""
        if not self.main.done():
            return "running"
        if self.main.cancelled():
            return "cancelled"
        return self.main.result()

    def tell(self, n):
        self._handlers.append(self.loop.create_task(self.program.signalled(n)))
        self.loop.until_idle()

    def ask(self, n):
        task = self.answers[n] = self.loop.create_task(self.program.updated(n))
        self._handlers.append(task)
        self.loop.until_idle()

    def answer(self, n):
        """The answer to an update, "failed", or None while there is none."""
        task = self.answers[n]
        if not task.done():
            return None
        return "failed" if task.cancelled() or task.exception() else task.result()

    def open(self, gate):
        self.outside.open(gate)
        self.loop.until_idle()

    def cancel(self):
        self.main.cancel()
        self.loop.until_idle()

    def close(self):
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.until_idle()
        del outsides[self.loop]
        self.loop.close()
