"""A program that does not answer: found out within two seconds, and said with what holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from .holder import holder_of

#: When a call without an answer is suspicious, in seconds; and one that waits for a run, which may well take its time.
SUSPICIOUS = 1.0
SUSPICIOUS_WAIT = 5.0
#: How long a program may take for a sign of life before it counts as silent, in seconds.
PATIENCE = 1.0


class SilenceWatch:
    """Asks for a sign of life when a call has no answer, and says it once when there is none.

    Attributes:
        holder: What keeps the program from answering, as far as that is known; empty while it answers.
    """

    def __init__(
        self,
        journal: str,
        timeout: float,
        probe: Callable[[], Awaitable[None]],
        reason: Callable[[BaseException], str],
        say: Callable[[str], None],
    ) -> None:
        """Begin; nothing is asked yet.

        Args:
            journal: Directory of the journal.
            timeout: How long calls wait, in seconds, for the text.
            probe: Returns when the program has given a sign of life.
            reason: Says why nobody could be reached.
            say: Called with a text.
        """
        self.holder = ""
        self._journal = journal
        self._timeout = timeout
        self._probe = probe
        self._reason = reason
        self._say = say
        self._pending = 0
        self._asking: asyncio.Task[None] | None = None
        self._alive = 0.0
        self._gone_since: float | None = None

    @contextmanager
    def waiting(self, *, waits: bool) -> Generator[None]:
        """Around a call, from its sending to its answer.

        Args:
            waits: Whether it waits for a run.
        """
        loop = asyncio.get_running_loop()
        first = SUSPICIOUS_WAIT if waits else SUSPICIOUS
        timer: list[asyncio.TimerHandle] = []
        timer.append(loop.call_later(first, self._suspect, timer, first))
        self._pending += 1
        try:
            yield
            self._alive, self.holder, self._gone_since = loop.time(), "", None
        finally:
            timer[0].cancel()
            self._pending -= 1
            if not self._pending and self._asking is not None:
                self._asking.cancel()
                self._asking = None

    def is_gone(self, trouble: BaseException) -> None:
        """No program answers, and it is waited for; said when that takes as long as a silence."""
        now = asyncio.get_running_loop().time()
        if self._gone_since is None:
            self._gone_since = now
        elif 0 < self._gone_since <= now - SUSPICIOUS - PATIENCE:
            self._gone_since = 0.0
            self._say(
                f"no program answers any more for the journal {self._journal!r}: {self._reason(trouble)}; waiting up "
                f"to {self._timeout:g} s for it to come back"
            )

    def _suspect(self, timer: list[asyncio.TimerHandle], after: float) -> None:
        """A call has no answer yet; look again after twice the time."""
        loop = asyncio.get_running_loop()
        timer[0] = loop.call_later(2 * after, self._suspect, timer, 2 * after)
        if self._asking is None and loop.time() - self._alive >= SUSPICIOUS:
            self._asking = loop.create_task(self._ask(), name="everact sign of life")

    async def _ask(self) -> None:
        probe = asyncio.ensure_future(self._probe())
        try:
            done, _ = await asyncio.wait([probe], timeout=PATIENCE)
            if not done:
                # The journal is looked at in a thread: that may take a while, and its answer may come meanwhile.
                holder = await asyncio.to_thread(holder_of, self._journal)
                if not probe.done():
                    self.holder = holder
                    self._say(
                        f"the program that has the journal {self._journal!r} open does not answer: {holder}; waiting "
                        f"up to {self._timeout:g} s for it"
                    )
                await asyncio.wait([probe])
            if probe.exception() is None:
                self._alive, self.holder = asyncio.get_running_loop().time(), ""
        finally:
            probe.cancel()
            if self._asking is asyncio.current_task():
                self._asking = None
