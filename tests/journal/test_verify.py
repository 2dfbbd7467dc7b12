"""A whole journal is found whole; each kind of damage is named, and what is behind it is still read."""

import pytest
from support.journals import cut, entries_of, fill, flip, make_journal, opened, remove, runs_of_histories
from support.stores import DelegatingStore

from everact.journal import events as ev
from everact.journal.errors import JournalCorruptError
from everact.journal.failures import Failure
from everact.journal.memory_store import MemoryStore
from everact.journal.payloads import NULL
from everact.journal.run_status import status_flags
from everact.journal.stats import gather
from everact.journal.store import CLOSES_RUN, STARTS_RUN, Entry
from everact.journal.verify import NAMED, verify

WHY = Failure(type="E")
START = ev.Turn((ev.WorkflowStarted("w", "r", "T"),))


def checked(*records, **changed):
    """Verify a journal with one run of these records; ``changed`` replaces fields of the last entry."""
    entries = entries_of([(n, record) for n, record in enumerate(records, 1)], 1)
    entries[-1] = entries[-1]._replace(**changed)
    store = MemoryStore()
    for entry in entries:
        store.append(store.position, [entry])
    return [(problem.sequence, problem.event, problem.message) for problem in verify(store).problems]


def test_committed_histories_are_whole():
    store = MemoryStore()
    fill(store)
    report = verify(store)
    assert report.is_sound
    runs = runs_of_histories()
    assert (report.runs, report.entries) == (len(runs), sum(map(len, runs)))
    assert report.records == report.last_sequence == store.position.sequence - 1
    assert report.damaged_runs == 0
    assert 0 < report.open_runs < report.runs


def test_an_empty_journal_is_whole():
    report = verify(MemoryStore())
    assert report.is_sound
    assert (report.records, report.last_sequence) == (0, 0)


def test_progress_reaches_the_end():
    store = MemoryStore()
    fill(store)
    seen = []
    verify(store, lambda done, of: seen.append((done, of)))
    done, of = zip(*seen, strict=True)
    assert list(done) == sorted(done)
    assert done[-1] == of[-1]


@pytest.mark.parametrize("harm", [flip, cut, remove])
def test_reading_goes_on_behind_a_damaged_record(tmp_journal, harm):
    make_journal(tmp_journal)
    with opened(tmp_journal) as store:
        whole = verify(store)
    harm(tmp_journal, 5)
    with opened(tmp_journal) as store:
        report = verify(store)
    first, *others = report.problems
    assert (first.sequence, first.run_key) == (5, 0)
    assert str(first).startswith("commit record 5: ")
    assert (first.message == "it is missing") == (harm is remove)
    assert report.records == whole.records - 1
    assert report.last_sequence == whole.last_sequence
    assert 1 <= report.damaged_runs <= 2
    # One loss is one complaint for each run that it has hit.
    assert len({problem.run_key for problem in others}) == len(others) == report.damaged_runs
    assert all("is missing" in other.message or "should follow" in other.message for other in others)


@pytest.mark.parametrize("harm", [flip, remove])
def test_damage_at_both_ends_and_in_a_row(tmp_journal, harm):
    make_journal(tmp_journal, [entries_of([(1, START)], key, run_id=f"r{key}") for key in range(1, 21)])
    # Taken off the end, a record leaves no trace: the log ends before it.
    last = 10 if harm is flip else 9
    harm(tmp_journal, 1, 4, 5, 6, last)
    with opened(tmp_journal) as store:
        report = verify(store)
        stats = gather(store)
    damaged = [number for problem in report.problems for number in range(problem.sequence, problem.last + 1)]
    assert damaged == [1, 4, 5, 6, last]
    assert report.records == stats.records == 5
    assert sum(damage.last - damage.first + 1 for damage in stats.damage) == 5
    if harm is remove:
        assert str(report.problems[1]) == "commit records 4 to 6: it is missing"


def test_a_missing_record_before_a_damaged_one(tmp_journal):
    make_journal(tmp_journal)
    remove(tmp_journal, 3)
    flip(tmp_journal, 4)
    with opened(tmp_journal) as store:
        problems = [problem for problem in verify(store).problems if not problem.run_key]
    assert [problem.sequence for problem in problems] == [3, 4]
    assert problems[0].message == "it is missing"


def test_whole_records_beside_a_failed_page_are_read_one_by_one():
    class TroubledPages(DelegatingStore):
        """Fails where LMDB does when one of many pages is damaged: at the first record of the chunk."""

        def scan(self, start=0):
            if start <= 6:
                raise JournalCorruptError(f"commit record {start} cannot be read: bad page")
            return self.inner.scan(start)

    store = MemoryStore()
    fill(store)
    assert verify(TroubledPages(store)) == verify(store)


def test_what_is_committed_meanwhile_is_not_part_of_it():
    class Busy(DelegatingStore):
        def scan(self, start=0):
            self.inner.append(self.inner.position, [Entry(99, 5, 0, 1, b"later")])
            return self.inner.scan(start)

    store = MemoryStore()
    fill(store)
    assert verify(Busy(store)).is_sound


def test_many_problems_are_counted_and_the_first_are_named():
    store = MemoryStore()
    store.append(store.position, [Entry(key, 1, STARTS_RUN, 1, b"?") for key in range(1, NAMED + 6)])
    report = verify(store)
    assert (len(report.problems), report.problem_count) == (NAMED, NAMED + 5)
    assert report.damaged_runs == NAMED + 5


def test_a_body_that_does_not_decode_is_named():
    ((sequence, event, message),) = checked(START, ev.Received((ev.SignalReceived("a"),)), body=b"\xc1")
    assert (sequence, event) == (2, 2)
    assert message.startswith("the record does not decode: ")


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (ev.ActivityCompleted(3, 1, NULL), "activity 3"),
        (ev.ActivityFailed(3, 1, WHY), "activity 3"),
        (ev.AttemptFailed(3, 1, WHY, 5), "activity 3"),
        (ev.ActivityCancelRequested(3), "activity 3"),
        (ev.TimerFired(3), "timer 3"),
        (ev.TimerCancelled(3), "timer 3"),
        (ev.UpdateCompleted(1, NULL), "update 1"),
        (ev.UpdateFailed(1, WHY), "update 1"),
        (ev.HandlerFailed(1, WHY), "message 1"),
        (ev.ConditionMet(3), "wait 3"),
        (ev.SignalKept(1, "s"), "message 1"),
        (ev.SignalTaken(1), "message 1"),
    ],
)
def test_an_answer_to_nothing_is_named(answer, what):
    name = type(answer).__name__
    assert checked(START, ev.Turn((), (answer,))) == [
        (2, 2, f"{name} is for {what}, which was never started")
    ]


@pytest.mark.parametrize(
    ("records", "changed", "wrong"),
    [
        ([START, ev.Turn((), (ev.WorkflowCompleted(NULL),))], {"flags": 0}, "say 'running', the events 'com"),
        ([START, ev.Turn((), (ev.WorkflowCompleted(NULL),))], {"flags": status_flags("completed")}, "close is missing"),
        ([START, ev.Turn(())], {"flags": status_flags("failed")}, "say 'failed', the events 'running'"),
        ([START, ev.Turn(())], {"flags": CLOSES_RUN}, "a close is set"),
        ([START, ev.Turn(())], {"flags": STARTS_RUN}, "a start is set"),
        ([START], {"flags": 0}, "a start is missing"),
        ([START, ev.Turn(())], {"first_event": 4}, "event 2 should follow, the record begins with event 4"),
        ([START], {"first_event": 2, "flags": 0}, "begins with event 2: its start is missing"),
        ([START, ev.Turn((), (), (7,))], {}, "delivers event 7"),
        ([START, START], {}, "WorkflowStarted is not event 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(records, changed, wrong):
    problems = checked(*records, **changed)
    assert any(wrong in message for _, _, message in problems)


def test_event_1_is_the_start():
    store = MemoryStore()
    body = ev.encode_record(ev.Turn((ev.TimerFired(1),)))
    store.append(store.position, [Entry(1, 1, STARTS_RUN, 1, body)])
    assert [problem.message for problem in verify(store).problems] == [
        "event 1 is TimerFired, not WorkflowStarted"
    ]


def test_nothing_may_stand_behind_the_closing_record():
    store = MemoryStore()
    run = entries_of([(1, START), (2, ev.Turn((), (ev.WorkflowCompleted(NULL),)))], 1)
    late = Entry(1, 3, 0, 3, ev.encode_record(ev.Received((ev.SignalReceived("late"),))))
    store.append(store.position, [*run, late])
    (problem,) = verify(store).problems
    assert (
        str(problem)
        == "commit record 1, run 1 ('w', r), event 3: the record stands behind the run's closing record"
    )


def test_a_run_id_is_one_runs():
    store = MemoryStore()
    store.append(store.position, entries_of([(1, START)], 1) + entries_of([(1, START)], 2))
    (problem,) = verify(store).problems
    assert (problem.run_key, problem.message) == (2, "run 1 has the same run id")


def test_stats_count_what_is_there(tmp_journal):
    make_journal(tmp_journal)
    runs = runs_of_histories()
    with opened(tmp_journal) as store:
        stats, report = gather(store), verify(store)
    assert (stats.records, stats.entries, stats.events) == (report.records, report.entries, report.events)
    assert (stats.first_sequence, stats.last_sequence) == (1, report.last_sequence)
    assert sum(sum(each.values()) for each in stats.runs.values()) == len(runs)
    assert stats.event_bytes == sum(len(entry.body) for run in runs for entry in run)
    assert stats.file_bytes == (tmp_journal / "data.mdb").stat().st_size
    assert 0 < stats.stored_bytes == stats.tables["log0"].bytes < stats.file_bytes
    assert stats.tables["log0"].rows == stats.records
    assert stats.bytes_per_event == round(stats.stored_bytes / stats.events, 1)
    assert stats.plain_bytes_per_event == round(stats.event_bytes / stats.events, 1)
    assert [run.events for run in stats.largest] == sorted(
        (run.events for run in stats.largest), reverse=True
    )
    assert stats.largest[0].run_id == "run-steps-failed"
    assert stats.oldest_open.run_id.startswith("run-")
    assert stats.oldest_open.status in {"running", "held", "quarantined"}


def test_stats_of_an_empty_journal():
    stats = gather(MemoryStore())
    assert (stats.records, stats.runs, stats.largest, stats.oldest_open) == (0, {}, [], None)
    assert (stats.file_bytes, stats.bytes_per_event) == (None, None)
