"""Whether a journal is whole: its log, its tables, every run's events in order and in agreement."""

from __future__ import annotations

from dataclasses import dataclass, field

from .lmdb_salvage import past_damage
from .messages_under_way import UnderWay, messages_under_way
from .run_examination import Examined, examine
from .run_walk import Fault, FoundRun, RunWalk
from .salvage import Damage, Progress
from .store import JournalStore
from .table_check import CHECKED, TableCheck
from .tables import Table

#: Problems that a report names; of the others it gives the number.
NAMED = 1000
#: A run with a problem is looked at again, so often at most, when a writer was active meanwhile.
LOOKS = 5


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        sequence: The commit record; 0 when it is in none.
        message: What is wrong.
        run_key: Internal number of the run; 0 when it is not about one.
        workflow_id: The run's workflow id; empty when it is not known.
        run_id: Its run id; empty when it is not known.
        event: Number of the event; 0 when it is not about one.
        last: The last commit record, or the last run, with this problem, when it is several in a row.
        table: The table; empty for the log.
    """

    sequence: int
    message: str
    run_key: int = 0
    workflow_id: str = ""
    run_id: str = ""
    event: int = 0
    last: int = 0
    table: str = ""

    def __str__(self) -> str:
        place = []
        if self.table:
            place.append(f"table {self.table!r}")
        if self.sequence and self.last > self.sequence:
            place.append(f"commit records {self.sequence} to {self.last}")
        elif self.sequence:
            place.append(f"commit record {self.sequence}")
        if self.run_key and self.last > self.run_key:
            place.append(f"runs {self.run_key} to {self.last}")
        elif self.run_key:
            known = f" ({self.workflow_id!r}, {self.run_id})" if self.run_id else ""
            place.append(f"run {self.run_key}{known}")
        if self.event:
            place.append(f"event {self.event}")
        return f"{', '.join(place)}: {self.message}"


@dataclass
class Report:
    """What ``verify`` found.

    Attributes:
        journal_id: Of the journal.
        last_sequence: Sequence number of the newest commit record; 0 in an empty journal.
        records: Commit records that the log still holds and that can be read.
        entries: Entries in them.
        events: Events of all runs that decode.
        runs: Runs seen.
        open_runs: Of these, the ones without a closing record.
        damaged_runs: Of these, the ones whose events are not all whole.
        problems: The first ``NAMED`` problems.
        problem_count: All problems.
        waiting: Messages between runs that are on their way.
        put_aside: Messages that were put aside: their runs are damaged, or nobody can read them.
        messages: The first ``NAMED`` of both, those put aside first.
    """

    journal_id: str
    last_sequence: int
    records: int = 0
    entries: int = 0
    events: int = 0
    runs: int = 0
    open_runs: int = 0
    damaged_runs: int = 0
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0
    waiting: int = 0
    put_aside: int = 0
    messages: list[UnderWay] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problem_count

    def add(self, problem: Problem) -> None:
        """Take in one more problem."""
        self.problem_count += 1
        if len(self.problems) < NAMED:
            self.problems.append(problem)

    def note(self, message: UnderWay) -> None:
        """Take in one more message that no run has received."""
        if message.is_aside:
            self.put_aside += 1
        else:
            self.waiting += 1
        if len(self.messages) < NAMED:
            self.messages.append(message)


def verify(store: JournalStore, progress: Progress | None = None) -> Report:
    """Read the whole journal and check it; nothing is changed, and others may write meanwhile.

    Checked are each page of the file; the checksum of each commit record that the log still holds, and their numbers
    without a gap; the checksum of each value of the histories; that each entry decodes; that each run begins with
    ``WorkflowStarted`` as event 1, counts its events without a gap and has nothing behind its closing record; that the
    status in the flags is that of the events; that what is answered was started; and that the other tables say of
    every run what its events say, and lead to it. Messages between runs that none has received yet are listed; one
    that cannot be read is a problem, wherever it is. Records cut off the end of the log leave no trace there, so they
    are not noticed.

    Memory holds where the entries in the log are, a number for each run, and one run at a time.

    Args:
        store: The journal.
        progress: Called with what is done and all there is to do.
    """
    with past_damage(store) as (readable, pages):
        return _Verification(readable, pages, progress).report


class _Verification:
    def __init__(self, store: JournalStore, pages: list[Damage], progress: Progress | None) -> None:
        self._store = store
        self._done = 0
        self._progress = progress
        self._run_ids: dict[int, int] = {}
        self.report = Report(store.journal_id, 0)
        for damage in pages:
            self._damaged(damage)
        with store.view() as tables:
            self._rows = sum(map(tables.count, CHECKED))
        self._walk = walk = RunWalk(store, self._damaged, self._walked)
        self._check = TableCheck(walk, {damage.table for damage in pages})
        self.report.records, self.report.entries = walk.records, walk.log_entries
        self.report.last_sequence = store.position.sequence - 1
        for found in walk:
            self._run(found)
        self._check.rows(self._wrong, self._step)
        self._check.facts(self._wrong)
        for message in messages_under_way(store):
            self.report.note(message)
            if message.is_aside and message.error:  # one in the outbox has been told with its row
                text = f"{message}: `everact journal messages --discard` takes it out"
                self._wrong(0, Fault(0, text, table=Table.FACTS.value))

    def _damaged(self, damage: Damage) -> None:
        sequence, key = (0, damage.first) if damage.table else (damage.first, 0)
        more = " (it and later ones)" if damage.first and not damage.last else ""
        self.report.add(Problem(sequence, damage.reason + more, key, last=damage.last, table=damage.table))

    def _walked(self, done: int, of: int) -> None:
        self._done = done
        if self._progress is not None:
            self._progress(done, of + self._rows)

    def _step(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, max(self._done, self._walk.records + self._walk.highest + self._rows))

    def _run(self, found: FoundRun) -> None:
        examined, faults = self._look(found)
        for _ in range(LOOKS):
            # What a writer moves between two looks may seem to be missing.
            if not faults or not self._walk.has_moved_on():
                break
            found = self._walk.look(found.key)
            if found.is_gone:
                return
            examined, faults = self._look(found)
        check = examined.check
        if check.started is not None:
            other = self._run_ids.setdefault(hash(check.started.run_id), found.key)
            if other != found.key:
                check.is_whole = False
                faults.append(Fault(1, f"run {other} has the same run id"))
        report = self.report
        report.runs += 1
        report.open_runs += not check.is_closed
        report.damaged_runs += not check.is_whole
        report.events += check.events
        named = check.started or found.row
        ids = (named.workflow_id, named.run_id) if named is not None else ("", "")
        for fault in faults:
            report.add(
                Problem(fault.sequence, fault.message, found.key, *ids, event=fault.event, table=fault.table)
            )

    def _look(self, found: FoundRun) -> tuple[Examined, list[Fault]]:
        examined = examine(found, self._walk.spiller)
        return examined, examined.faults + self._check.of_run(found, examined)

    def _wrong(self, run_key: int, fault: Fault) -> None:
        self.report.add(Problem(0, fault.message, run_key, table=fault.table))
