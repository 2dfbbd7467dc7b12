"""Whether a journal is whole: every record readable, every run's events in order and in agreement."""

from __future__ import annotations

from dataclasses import dataclass, field

from .run_check import RunCheck
from .salvage import Damage, Progress, readable_records
from .store import JournalStore

#: Problems that a report names; of the others it gives the number.
NAMED = 1000


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        sequence: The commit record.
        message: What is wrong with it, or with the run's record in it.
        run_key: Internal number of the run; 0 when the commit record itself cannot be read.
        workflow_id: The run's workflow id; empty when it is not known.
        run_id: Its run id; empty when it is not known.
        event: Number of the event; 0 when the commit record itself cannot be read.
        last: The last commit record with this problem, when it is several in a row.
    """

    sequence: int
    message: str
    run_key: int = 0
    workflow_id: str = ""
    run_id: str = ""
    event: int = 0
    last: int = 0

    def __str__(self) -> str:
        if self.last > self.sequence:
            return f"commit records {self.sequence} to {self.last}: {self.message}"
        place = f"commit record {self.sequence}"
        if self.run_key:
            known = f" ({self.workflow_id!r}, {self.run_id})" if self.run_id else ""
            place += f", run {self.run_key}{known}, event {self.event}"
        return f"{place}: {self.message}"


@dataclass
class Report:
    """What ``verify`` found.

    Attributes:
        journal_id: Of the journal.
        last_sequence: Sequence number of the newest commit record; 0 in an empty journal.
        records: Commit records that can be read.
        entries: Entries in them.
        events: Events in them that decode.
        runs: Runs seen.
        open_runs: Of these, the ones without a closing record.
        damaged_runs: Of these, the ones with a problem.
        problems: The first ``NAMED`` problems.
        problem_count: All problems.
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

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problem_count

    def add(self, problem: Problem) -> None:
        """Take in one more problem."""
        self.problem_count += 1
        if len(self.problems) < NAMED:
            self.problems.append(problem)


def verify(store: JournalStore, progress: Progress | None = None) -> Report:
    """Read the whole journal and check it; nothing is changed, and others may write meanwhile.

    Checked are the checksum of each commit record and their numbers without a gap; that each entry decodes; that each
    run begins with ``WorkflowStarted`` as event 1, counts its events without a gap and has nothing behind its closing
    record; that the status in the flags is that of the events; and that what is answered was started. Records cut off
    the end of the log leave no trace there, so they are not noticed.

    Args:
        store: The journal.
        progress: Called with the commit records done and all of them.
    """
    report = Report(store.journal_id, store.position.sequence - 1)
    runs: dict[int, RunCheck] = {}
    run_ids: dict[str, int] = {}

    def damaged(damage: Damage) -> None:
        report.add(Problem(damage.first, damage.reason, last=damage.last))

    for sequence, entries in readable_records(store, damaged, progress):
        report.records += 1
        report.entries += len(entries)
        for entry in entries:
            run = runs.get(entry.run_key)
            if run is None:
                run = runs[entry.run_key] = RunCheck(entry.run_key)
            was_known = run.started is not None
            wrong = run.take(entry)
            if not was_known and run.started is not None:
                other = run_ids.setdefault(run.started.run_id, run.key)
                if other != run.key:
                    run.is_whole = False
                    wrong.append((1, f"run {other} has the same run id"))
            for event, message in wrong:
                ids = (run.started.workflow_id, run.started.run_id) if run.started else ("", "")
                report.add(Problem(sequence, message, run.key, *ids, event=event))
    report.runs = len(runs)
    report.open_runs = sum(not run.is_closed for run in runs.values())
    report.damaged_runs = sum(not run.is_whole for run in runs.values())
    report.events = sum(run.events for run in runs.values())
    return report
