"""Moving the log into the tables, a little with each commit.

When the current segment of the log is full it is sealed; then each commit moves some runs' entries from the sealed
one into the histories, in order of run keys, and brings the other tables up to what those runs are by that very commit.
Once all are moved, the segment is dropped whole. How much a commit moves follows from how much it appends, so that the
sealed segment is done before the current one is full, and no commit has to do much at once.

The loop's side (``plan``, ``committed``) decides what is moved and takes the snapshots: the fold of an open run then
holds turns up to the ones in this commit, which become durable with it or not at all. The writer's side
(``Step.__call__``) writes it inside the transaction of the append. What is written has been read and compressed ahead,
on a thread of its own.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from .compaction_step import Move, Step
from .errors import JournalAccessError, JournalCorruptError
from .facts import Facts
from .fold import RunState
from .history_values import SAMPLE_BYTES, SAMPLES, train
from .new_history import NewHistory
from .purging import PURGE_LEAST, PURGE_PER_ENTRY, Purger
from .read_ahead import ReadAhead, Wanted
from .run_index import CROWD, RunIndex
from .run_row import RunRow
from .run_status import CLOSED
from .snapshots import draft_open
from .store import JournalStore
from .stored_runs import StoredRun

log = logging.getLogger("everact.runtime")

#: Entries in a segment before it is sealed; more for each run that is moved again and again, or each of its turns would
#: be moved alone, up to the longest one.
WINDOW = 100_000
WINDOW_PER_RUN = 5
LONGEST_WINDOW = 1_000_000
#: The sealed segment is moved by the time the current one is filled to this share.
PACE = 0.7
#: A commit moves at most this for each entry that it appends, and so much beside, in entries.
MOST_PER_ENTRY = 6
MOST = 64
#: What moving a run costs beside its entries, in entries.
RUN_COST = 3
#: So many entries are read ahead at a time; no more than a few are read at once.
READ_AHEAD = 20_000
READ_AT_ONCE = 50
#: And so many crowded runs.
READ_EARLY = 25
#: Request ids are kept at least this long after their receipt, microseconds, or until so many newer ones have come.
DEDUPE_WINDOW = 7 * 24 * 3600 * 1_000_000
DEDUPE_COUNT = 10_000_000
#: After so many failures in a row that are its own it stops, since each may cost a commit.
MOST_FAILURES = 3


class Compactor:
    """The loop's side: what each commit moves.

    Attributes:
        error: Why it has stopped, or None.
        failures: How often in a row it has failed, in this incarnation of the writer and the ones before.
        suspended: It moves nothing for now.
        reads_here: It reads ahead on the thread that calls ``plan``.
        purger: Takes closed runs out of the tables.
    """

    def __init__(
        self,
        store: JournalStore,
        index: RunIndex,
        facts: Facts,
        state_of: Callable[[int], RunState | None],
        now: Callable[[], int],
    ) -> None:
        """Begin where the tables say that the last one stopped.

        Args:
            store: The journal.
            index: Its runs.
            facts: Of the tables.
            state_of: The fold of a run in memory with all its turns, those in the open batch included.
            now: The wall clock, microseconds.
        """
        self._store = store
        self._journal_id = store.journal_id
        self._index = index
        self._facts = facts
        self._step: Step | None = None
        self._state_of = state_of
        self._now = now
        with store.view() as tables:
            segments = tables.segments
        self._sealed_before = segments.current if segments.sealed else 0
        sealed = sum(row.below(self._sealed_before) for row in index.rows.values())
        self._filled = sum(map(len, index.rows.values())) - sealed
        self._todo: list[int] = []
        self._left = self._total = 0
        self._reading: ReadAhead | None = None
        self._read: deque[NewHistory] = deque()
        self._entries_read = 0
        self._reading_early: ReadAhead | None = None
        self._read_early: deque[NewHistory] = deque()
        if segments.sealed:
            self._begin(sealed)
        self._samples: list[bytes] = []
        self._sample_bytes = 0
        self._trained: tuple[int, bytes] | None = None
        self._training: threading.Thread | None = None
        self._closed_before: dict[str, int] = {}
        self._seals_early = False
        self._hurries = False
        self.error: BaseException | None = None
        self.failures = 0
        self.suspended = False
        self.reads_here = False
        self.purger = Purger(store, index)
        for damage in index.lost.values():
            self.stop(damage)
            break

    # --- the pace

    @property
    def is_pressed(self) -> bool:
        """Whether there is work that should not wait for something to be appended."""
        if self.suspended or self.error is not None:
            return False
        return bool(
            self._seals_early
            or (self._hurries and self._sealed_before)
            or self.purger.is_asked
            or self._facts.purging
        )

    def hurry(self) -> None:
        """Move all that the log holds now into the tables, full or not."""
        self._seals_early = bool(self._filled or self._facts.early)
        self._hurries = self._seals_early or bool(self._sealed_before)
        self.purger.log_repeats = False

    def is_in_log(self, keys: Iterable[int]) -> bool:
        """Whether the log may hold entries of any of these runs."""
        early = {*self._facts.early, *self._facts.early_before}
        rows = self._index.rows
        return any(key in rows or key in early for key in keys)

    def first_closed(self) -> dict[str, int]:
        """When the first run of each type has closed that the log may still hold, microseconds."""
        return {**self._index.closed_since, **self._closed_before}

    def _begin(self, entries: int) -> None:
        """Begin with a sealed segment of so many entries."""
        self._todo = self._index.logged()
        self._total = self._left = entries + RUN_COST * len(self._todo)

    @property
    def is_moving(self) -> bool:
        """Whether there is a sealed segment."""
        return bool(self._sealed_before)

    @property
    def is_reading(self) -> bool:
        """Whether what is to be moved next is on its way into memory."""
        return self._reading is not None or self._reading_early is not None

    def plan(self, appended: int, spare: int = 0) -> Step | None:
        """What the commit of a batch moves and purges.

        Args:
            appended: Entries in the batch.
            spare: What it may cost beyond the pace, in entries.
        """
        self._filled += appended
        if self.suspended or self.error is not None or self._is_quiet():
            return None
        step = Step(self._journal_id, self._facts)
        if self._sealed_before:
            goal = self._size() * PACE
            room = max(1.0, goal - self._filled)
            if self._reading is not None:
                self._reading.is_late = self._hurries or self._left * goal > self._total * room
                if appended and self._filled > self._size():
                    step.waits_for = self._reading
            share = self._left if room <= appended else int(self._left * appended / room) + 1
            # What could not be moved in time, since it was suspended, must not hold up one commit.
            share = max(min(share, MOST_PER_ENTRY * appended + MOST), spare)
            self._left = max(self._left - self._take_sealed(step, share), RUN_COST * len(self._todo))
            step.drops = not (self._todo or self._reading or self._read)
        elif self._filled >= self._size() or self._seals_early:
            step.seals = True
            self._seals_early = False
        if not self._sealed_before:
            self._take_early(step, MOST_PER_ENTRY * appended + CROWD)
        # A sealed segment may still hold what the tables are to lose.
        if not (self._sealed_before or self._hurries) and (self.purger.is_asked or self._facts.purging):
            budget = max(PURGE_LEAST, PURGE_PER_ENTRY * appended, spare)
            step.purge = self.purger.plan(self._facts, budget)
        changes = step.moves or step.seals or step.drops or step.purge
        if self.error is not None or not (changes or step.waits_for):
            return None
        self._finish(step)
        self._step = step
        return step

    def _is_quiet(self) -> bool:
        """Whether there is nothing to move, seal or purge: so it is with most commits."""
        return not (
            self._sealed_before
            or self._seals_early
            or self._reading_early is not None
            or self._read_early
            or self._index.crowded
            or self._filled >= self._size()
            or self._facts.purging
            or self.purger.is_asked
        )

    def _size(self) -> int:
        return max(WINDOW, min(LONGEST_WINDOW, WINDOW_PER_RUN * self._index.returned))

    # --- what a step moves

    def _take_sealed(self, step: Step, share: int) -> int:
        """Let a step move runs of the sealed segment; returns what that costs, 0 while they are being read."""
        if self._reading is None and self._todo and self._entries_read <= READ_AHEAD // 2:
            self._reading = self._ahead()
        if self._reading is not None and self._reading.done.is_set():
            self._arrived(self._reading, self._read, self._todo)
            self._entries_read += sum(new.size for new in self._reading.found)
            self._reading = None
        cost = self._take_read(step, self._read, share)
        self._entries_read -= sum(move.history.size for move in step.moves)
        if step.moves:
            step.facts = msgspec.structs.replace(step.facts, compacted_to=step.moves[-1].history.key)
        return cost

    def _ahead(self) -> ReadAhead:
        """Begin to read the next runs of the sealed segment."""
        wanted = []
        count = 0
        while self._todo and count < READ_AHEAD:
            row = self._index.rows.get(self._todo.pop())
            places = row.packed(row.below(self._sealed_before)) if row is not None else ()
            if row is not None and places:
                wanted.append(Wanted(row.key, places, not row.stored_status))
                count += len(places)
        return self._read_all(wanted, count)

    def _read_all(self, wanted: list[Wanted], entries: int) -> ReadAhead:
        here = self.reads_here or entries <= READ_AT_ONCE
        return ReadAhead(self._store, self._index.codec, wanted, here=here)

    def _arrived(self, reading: ReadAhead, read: deque[NewHistory], todo: list[int]) -> None:
        """Take what was read ahead; runs that were too much at a time are still to be done."""
        if isinstance(reading.error, JournalCorruptError):
            self.stop(reading.error)
            return
        if reading.error is not None:
            raise reading.error
        read.extend(reading.found)
        todo.extend(reversed(reading.left_out()))

    def _take_read(self, step: Step, read: deque[NewHistory], share: int) -> int:
        cost = 0
        while read and cost < share:
            new = read.popleft()
            row = self._index.rows.get(new.key)
            if row is not None:
                self._take(step, row, new)
            cost += new.size + RUN_COST
        return cost

    def _take_early(self, step: Step, share: int) -> None:
        """Let a step move crowded runs: to read their entries in the log is slow. Many of them are read at once."""
        index = self._index
        if self._reading_early is None and not self._read_early and index.crowded:
            keys, index.crowded = dict.fromkeys(index.crowded), []
            rows = [row for key in keys if (row := index.rows.get(key)) is not None and len(row) >= CROWD]
            index.crowded = [row.key for row in rows[READ_EARLY:]]
            wanted = [Wanted(row.key, row.packed(), not row.stored_status) for row in rows[:READ_EARLY]]
            if wanted:
                self._reading_early = self._read_all(wanted, sum(map(len, rows[:READ_EARLY])))
        if self._reading_early is not None and self._reading_early.done.is_set():
            self._arrived(self._reading_early, self._read_early, index.crowded)
            self._reading_early = None
        self._take_read(step, self._read_early, share)
        step.facts = msgspec.structs.replace(
            step.facts, early=[*step.facts.early, *(move.history.key for move in step.moves)]
        )

    def _take(self, step: Step, row: RunRow, new: NewHistory) -> None:
        """Let a step move entries of a run, from its first one in the log on, and bring its rows up to date."""
        index = self._index
        status, closed_at = row.status, row.closed_at
        snapshot: bytes | None = None
        wake = 0
        if not row.is_closed:
            state = self._state_of(row.key) or index.state(row)
            status, closed_at = state.status, state.closed_at
            if status not in CLOSED:
                snapshot, wake = draft_open(state)
        run = StoredRun(
            row.workflow_id,
            row.run_id,
            row.workflow_type,
            status,
            row.started_at,
            closed_at,
            row.sequence(new.size - 1),
            row.parent_id,
            row.links,
        )
        was_open = bool(row.stored_status) and row.stored_status not in CLOSED
        step.moves.append(
            Move(
                new,
                run,
                snapshot,
                wake,
                row.wake,
                not row.stored_status,
                was_open,
                index.requests.rows(row.key),
            )
        )

    def _finish(self, step: Step) -> None:
        """Bring the facts up to what the step makes of the tables."""
        counts = dict(self._index.counts)
        highest = step.facts.highest_key
        requests = 0
        for move in step.moves:
            key = move.history.key
            before = self._index.rows[key].stored_status
            kind = move.run.workflow_type
            if before != move.run.status:
                if before:
                    counts[kind, before] -= 1
                counts[kind, move.run.status] = counts.get((kind, move.run.status), 0) + 1
            highest = max(highest, key)
            requests += len(move.requests)
        for row in step.purge.runs if step.purge is not None else ():
            counts[row.workflow_type, row.status] -= 1
        facts = msgspec.structs.replace(
            step.facts,
            highest_key=highest,
            # Also what is 0 by now: it says which types there were.
            counts=[(kind, status, n) for (kind, status), n in counts.items()],
        )
        if step.drops:
            facts = msgspec.structs.replace(facts, compacted_to=0, early_before=[])
        if step.seals:
            facts = msgspec.structs.replace(facts, early=[], early_before=facts.early)
        if requests:
            facts = self._generation(step, facts, requests)
        if self._trained is not None:
            number, step.dictionary = self._trained
            total = sum(counts.values())
            facts = msgspec.structs.replace(facts, dictionary=number, trained_at=total)
        step.facts = facts

    def _generation(self, step: Step, facts: Facts, requests: int) -> Facts:
        """Begin a new generation of request ids when all of the other one are older than the window."""
        now = self._now()
        if (
            not 0 < facts.generation_since <= now
        ):  # a clock that was ahead must not keep the generation for ever
            facts = msgspec.structs.replace(facts, generation_since=now)
        elif now - facts.generation_since > DEDUPE_WINDOW or facts.generation_size > DEDUPE_COUNT:
            step.clears_requests = True
            facts = msgspec.structs.replace(
                facts, generation=1 - facts.generation, generation_since=now, generation_size=0
            )
        return msgspec.structs.replace(facts, generation_size=facts.generation_size + requests)

    def failed(self, error: BaseException) -> None:
        """A plan has failed: begin anew with what is durable, or stop."""
        self.failures += 1
        if self._is_lasting(error):
            self.stop(error)
            return
        if self.failures == 1:
            log.warning("moving the log into the tables has failed, it is tried again: %r", error)
        index = self._index
        self._reading = self._reading_early = None
        self._read.clear()
        self._read_early.clear()
        self._entries_read = 0
        index.crowded = [row.key for row in index.rows.values() if len(row) >= CROWD and not row.is_closed]
        if self._sealed_before:
            self._begin(sum(row.below(self._sealed_before) for row in index.rows.values()))
        else:
            self._seals_early = self._hurries

    def follow(self, before: Compactor) -> None:
        """Take over from the one before a failed commit: what it failed for may come again."""
        step = before._step
        raised = None if step is None else step.error
        self.failures = before.failures + (raised is not None)
        if before.error is not None:
            self.stop(before.error)
        elif raised is not None and self._is_lasting(raised):
            self.stop(raised)

    def _is_lasting(self, error: BaseException) -> bool:
        # A journal that cannot be read just now is the same as one that is slow.
        return isinstance(error, JournalCorruptError) or (
            self.failures >= MOST_FAILURES and not isinstance(error, JournalAccessError)
        )

    def stop(self, error: BaseException) -> None:
        """Move nothing any more: it would fail for ever, and let commits fail."""
        self.error = error
        if isinstance(error, JournalCorruptError):
            text = "the journal is damaged, its log is no longer moved into the tables: %s"
            log.error(text, error)
        else:
            text = "the log is no longer moved into the tables until the next start, turns go on; last error:"
            log.critical(text, exc_info=error)

    def committed(self, step: Step, following: int) -> None:
        """Bring the overlay up to a step that is durable.

        Args:
            step: What the commit has moved.
            following: Sequence of the next commit record.
        """
        self.failures = 0
        index = self._index
        self._facts = step.facts
        index.counts = step.facts.by_type_and_status()
        for move in step.moves:
            new = move.history
            row = index.rows[new.key]
            row.moved(new.size)
            index.returned += bool(len(row))  # what is left of it stands in the segment that fills now
            row.through = move.run.through
            row.stored_status = move.run.status
            row.wake = move.wake
            index.requests.stored(new.key, len(move.requests))
            if not len(row) and (row.is_closed or self._state_of(new.key) is None):
                index.drop(row)
        if step.drops:
            self._sealed_before = 0
            self._closed_before = {}
            self._hurries = self._seals_early
        if step.purge is not None:
            self.purger.committed(step.purge)
        if step.seals:
            # What was read early is now a part of what is to be moved anyway.
            self._reading_early = None
            self._read_early.clear()
            self._closed_before, index.closed_since = index.closed_since, {}
            self._sealed_before = following
            self._begin(self._filled)
            self._filled = 0
            index.returned = 0
        if step.dictionary is not None:
            index.codec.add(step.facts.dictionary, step.dictionary)
            index.codec.active = step.facts.dictionary
            self._trained = None
        self._train(step)

    def _train(self, step: Step) -> None:
        """Collect samples for a dictionary while the newest one is old."""
        stored = sum(self._index.counts.values())
        if self._trained is not None or self._training is not None:
            return
        if self._facts.dictionary and stored < 8 * self._facts.trained_at:
            return
        for move in step.moves:
            self._samples += move.history.samples
            self._sample_bytes += sum(map(len, move.history.samples))
        if len(self._samples) < SAMPLES and self._sample_bytes < SAMPLE_BYTES:
            return
        samples, self._samples, self._sample_bytes = self._samples, [], 0
        number = self._facts.dictionary + 1

        def work() -> None:
            data = train(samples, number)
            self._trained = None if data is None else (number, data)
            self._training = None

        # Off the loop: some 20 ms. Its result goes with a later step.
        thread = threading.Thread(target=work, name="everact-dictionary", daemon=True)
        with suppress(RuntimeError):  # the system gives no more threads just now: later samples will do
            self._training = thread
            thread.start()
            return
        self._training = None
