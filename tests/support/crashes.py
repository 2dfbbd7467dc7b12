"""Lives of one program on one journal: it is killed, opened again, and every promise is checked after each life.

``Story`` runs ``workload.py`` of the crash tests in processes of its own. Between two lives the journal is read
without opening it for writing; the reader's errors name the life and the fault.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec

from everact.journal import events as ev
from everact.journal.errors import NotAJournalError
from everact.journal.fold import RunState
from everact.journal.lmdb_store import LmdbStore
from everact.journal.loading import load, open_runs
from everact.journal.verify import verify
from everact.testing import Replayer


def load_program(path):
    """Import a program beside a test without making its folder a package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def one_life(program, *arguments, fault="", limit):
    """Run a program until it ends, or is killed at a fault point, within ``limit`` seconds.

    Returns:
        Whether it came to its end; the lines that it has written, each a JSON text, decoded; and what it has said of
        errors.
    """
    process = subprocess.run(
        [sys.executable, "-W", "error", os.fspath(program), *map(os.fspath, arguments)],
        capture_output=True,
        timeout=limit,
        check=False,
        env={**os.environ, "EVERACT_FAULT": fault},
    )
    assert process.returncode in (0, -signal.SIGKILL), process.stderr.decode()
    lines = [json.loads(line) for line in process.stdout.splitlines()]
    return process.returncode == 0, lines, process.stderr


class Run:
    """One run as a closed journal holds it.

    Attributes:
        entries: Its entries, byte by byte.
        events: Its events in order.
    """

    def __init__(self, entries):
        self.entries = entries
        self.state = RunState()
        self.records = [(entry.at, ev.decode_record(entry.body)) for entry in entries]
        self.events = []
        for at, record in self.records:
            self.state.apply(record, at)
            self.events += record.inputs
            self.events += getattr(record, "outputs", ())

    @property
    def workflow_id(self):
        return self.events[0].workflow_id

    def requests(self):
        """How often each request id was taken in."""
        return Counter(event.request_id for event in self.events if getattr(event, "request_id", ""))

    def key(self, command):
        return f"{self.events[0].run_id}/{command}"

    def scheduled(self):
        """Idempotency keys of all activities."""
        return {self.key(event.command) for event in self.events if isinstance(event, ev.ActivityScheduled)}

    def settled(self):
        """Idempotency keys of activities that must never run again."""
        ends = (ev.ActivityCompleted, ev.ActivityFailed, ev.ActivityCancelRequested)
        return {self.key(event.command) for event in self.events if isinstance(event, ends)}

    def next_attempts(self):
        """The attempt that may run now, for each pending activity."""
        return {self.key(command): pending.attempt for command, pending in self.state.activities.items()}

    @property
    def losses(self):
        """How many attempts were in hand when a life ended."""
        return sum(isinstance(event, ev.AttemptLost) for event in self.events)

    def shape(self, *, attempts=True):
        """What does not depend on which of several independent things came first.

        Args:
            attempts: Count attempts too; lost ones change their numbers, and how many of the others there are.
        """
        # A condition that is true already when it is awaited is not noted.
        events = [event for event in self.events if "Condition" not in type(event).__name__]
        if attempts:
            return Counter(map(_essence, events))
        events = [event for event in events if type(event) not in _OF_DEATHS]
        return Counter(type(e).__name__ if type(e) in _NUMBERED else _essence(e) for e in events)

    def received(self):
        """Messages in the order in which they were taken in."""
        return [
            (type(event).__name__, event.name, event.args) for event in self.events if type(event) in _TOLD
        ]


#: What deaths of the process leave, and what is there more or less often because of them.
_OF_DEATHS = (ev.AttemptLost, ev.RunBlamed, ev.AttemptFailed)
_NUMBERED = (ev.ActivityCompleted, ev.ActivityFailed)
_TOLD = (ev.SignalReceived, ev.UpdateReceived)


def _essence(event):
    kind = type(event)
    if kind is ev.WorkflowStarted:
        return kind.__name__, event.workflow_type, event.args
    if kind is ev.ActivityScheduled:
        return kind.__name__, event.activity_type, event.retry
    if kind is ev.TimerStarted:
        return kind.__name__, event.duration
    if kind in _TOLD:
        return kind.__name__, event.name, event.args
    if kind in (ev.AttemptFailed, ev.ActivityFailed):
        return kind.__name__, event.attempt, event.failure.type
    if kind is ev.ActivityCompleted:
        return kind.__name__, event.attempt
    return (kind.__name__,)


def read_journal(path):
    """Every run of a closed journal by its key; nothing when the journal was never made."""
    try:
        store = LmdbStore(path, read_only=True)
    except NotAJournalError:
        return {}
    try:
        problems = [str(problem) for problem in verify(store).problems]
        assert problems == [], problems
        index, _facts, states, _next_key = load(store)
        runs = {}
        statuses = Counter()
        for row in index.newest_first():
            run = runs[row.key] = Run(index.entries(row))
            statuses[row.workflow_type, row.status] += 1
            _check_tables(index, row, run, states)
        assert list(runs) == sorted(runs, reverse=True)
        for (kind, status), count in statuses.items():
            assert index.count(kind, status) == count, f"{count} {kind} are {status}, not {index.counts}"
        assert index.count(None, None) == len(runs)
        still_open = {key for key, run in runs.items() if run.state.outcome is None}
        assert {
            key for key, _ in open_runs(store) if not index.row(key).is_closed
        } | states.keys() == still_open
    finally:
        store.close()
    return runs


def _check_tables(index, row, run, states):
    """What the tables say of a run is what its events say."""
    state = run.state
    about = f"{row.workflow_id}: {row.status}, {state.status}"
    assert (row.workflow_id, row.run_id) == (run.workflow_id, run.events[0].run_id), about
    assert (row.status, row.closed_at, row.started_at) == (state.status, state.closed_at, state.started_at), (
        about
    )
    assert index.find(row.workflow_id, row.run_id).key == row.key
    for number, event in enumerate(run.events, 1):
        if type(event) in ev.WITH_DIGEST and event.request_id:
            assert index.requests.find(row.workflow_id, event.request_id) == (
                row.key,
                number,
                event.digest,
            ), about
    if not row.is_closed:
        assert folded(states.get(row.key) or index.state(row)) == folded(state), about
        assert folded(index.state(row)) == folded(state), about


def folded(state):
    """What a state holds, comparable; without what a snapshot leaves out."""
    held = {name: getattr(state, name) for name in RunState.__slots__ if name != "answers"}
    held["started"] = msgspec.structs.replace(state.started, args=())
    held["activities"] = {
        key: tuple(getattr(pending, name) for name in pending.__slots__)
        for key, pending in state.activities.items()
    }
    return held


#: Seconds in which a life that does not end is taken to hang; one without faults takes half a second.
LIMIT = 30


class Story:
    """The lives of a workload on one journal, and what is known after each of them.

    Args:
        program: Path of ``workload.py``.
        journal: Directory of the journal.
    """

    def __init__(self, program, journal):
        self.program = program
        self.workload = load_program(program)
        self.journal = journal
        self.lives = 0
        self.kills = 0
        self.is_done = False
        self.answers = {}
        self.logs = Counter()
        self.runs = {}

    @property
    def acknowledged(self):
        """How many steps of each workflow have been acknowledged; the driver makes them in order."""
        return dict(Counter(workflow_id for workflow_id, _step in self.answers))

    def live(self, fault="", *, kill_after=None):
        """Run the program until it ends or dies, then check everything.

        Args:
            fault: ``EVERACT_FAULT`` of this life.
            kill_after: Kill it from outside once it has written so many lines.

        Returns:
            Whether it was killed.
        """
        self.lives += 1
        told = f"a kill after {kill_after} lines" if kill_after else fault or "no fault"
        life = f"life {self.lives} ({told})"
        with self.start(fault) as process:
            try:
                process.stdin.write(json.dumps(self.acknowledged).encode() + b"\n")
                process.stdin.flush()
                seen = b""
                if kill_after:
                    seen = b"".join(process.stdout.readline() for _ in range(kill_after))
                    process.kill()
                out, err = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                raise AssertionError(f"{life}: hangs, after\n{(seen + out[-2000:] + err).decode()}") from None
            finally:
                process.kill()
        lines = [json.loads(line) for line in (seen + out).splitlines()]
        assert err == b"", f"{life}: wrote to stderr:\n{err.decode()}"
        assert process.returncode in (0, -signal.SIGKILL), f"{life}: exit code {process.returncode}"
        was_killed = process.returncode != 0
        self.kills += was_killed
        self.is_done = ["done"] in lines
        assert self.is_done != was_killed or kill_after, f"{life}: ended without being done"
        self._take(life, lines)
        return was_killed

    def start(self, fault):
        """A process that runs the program, with pipes."""
        return subprocess.Popen(
            [sys.executable, "-W", "error", os.fspath(self.program), os.fspath(self.journal)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "EVERACT_FAULT": fault},
        )

    def _take(self, life, lines):
        acknowledged = []
        ran = Counter()
        for kind, *rest in lines:
            if kind == "ack":
                workflow_id, step, answer = rest
                acknowledged.append((workflow_id, step, answer))
            elif kind == "ran":
                key, attempt = rest
                ran[key, attempt] += 1
            elif kind == "log":
                self.logs[tuple(rest)] += 1
        self._check_attempts(life, ran)
        self._check_answers(life, acknowledged)
        with self.workload.small():
            runs = read_journal(self.journal)
        scheduled = set().union(*(run.scheduled() for run in runs.values()))
        early = {key for key, _attempt in ran} - scheduled
        assert not early, f"{life}: activities ran whose schedule is not in the journal: {early}"
        self._check_histories(life, runs)
        self._check_messages(life, runs)
        again = {line: count for line, count in self.logs.items() if count > 1}
        assert not again, f"{life}: log records left more than once: {again}"

    def _check_attempts(self, life, ran):
        """Against the journal as it was before this life."""
        settled = set().union(*(run.settled() for run in self.runs.values()))
        attempts = {}
        for run in self.runs.values():
            attempts.update(run.next_attempts())
        for (key, attempt), times in ran.items():
            assert key not in settled, f"{life}: activity {key} ran again; its end was in the journal"
            assert times == 1, f"{life}: attempt {attempt} of activity {key} ran {times} times in one life"
            least = attempts.get(key, 1)
            assert attempt >= least, f"{life}: attempt {attempt} of {key} ran; the journal was at {least}"

    def _check_answers(self, life, acknowledged):
        for workflow_id, step, answer in acknowledged:
            first = self.answers.setdefault((workflow_id, step), answer)
            assert first == answer, f"{life}: step {step} of {workflow_id} was {first}, and now {answer}"

    def _check_histories(self, life, runs):
        for key, before in self.runs.items():
            assert key in runs, f"{life}: {before.workflow_id} is gone"
            kept = runs[key].entries[: len(before.entries)]
            assert kept == before.entries, f"{life}: the history of {before.workflow_id} was changed"
        ids = Counter(run.workflow_id for run in runs.values())
        twice = {workflow_id for workflow_id, count in ids.items() if count > 1}
        assert not twice, f"{life}: started twice: {twice}"
        for key, run in runs.items():
            numbers = [entry.first_event for entry in run.entries]
            right = [1]
            for _at, record in run.records:
                right.append(right[-1] + len(record.inputs) + len(getattr(record, "outputs", ())))
            assert numbers == right[:-1], f"{life}: events of run {key} are numbered {numbers}"
        self.runs = runs

    def _check_messages(self, life, runs):
        by_id = {run.workflow_id: run for run in runs.values()}
        for workflow_id, step in self.answers:
            assert workflow_id in by_id, f"{life}: {workflow_id} was acknowledged and does not exist"
        for number in range(self.workload.WORKFLOWS):
            workflow_id = f"wf-{number}"
            run = by_id.get(workflow_id)
            requests = run.requests() if run else Counter()
            for step, (verb, *_) in enumerate(self.workload.plan(number)):
                count = requests[f"{workflow_id}/{step}"]
                if verb not in ("start", "signal", "update", "pause", "resume"):
                    assert count == 0, f"{life}: step {step} ({verb}) of {workflow_id} is in the journal"
                elif (workflow_id, step) in self.answers:
                    assert count == 1, (
                        f"{life}: acknowledged step {step} of {workflow_id} is there {count} times"
                    )
                else:
                    assert count <= 1, f"{life}: step {step} of {workflow_id} is there {count} times"

    def finish(self, most=10):
        """Live without faults until all is done."""
        for _ in range(most):
            if self.is_done:
                return
            self.live()
        raise AssertionError(f"not done after {self.lives} lives")

    def check_end(self):
        """Nothing is left, and the code still fits every history."""
        store = LmdbStore(self.journal, read_only=True)
        _index, _facts, states, next_key = load(store)
        store.close()
        assert states == {}, f"open at the end: {[state.started.workflow_id for state in states.values()]}"
        assert next_key == self.workload.WORKFLOWS + 1
        for run in self.runs.values():
            state = run.state
            left = [
                state.activities,
                state.timers,
                state.unread,
                state.updates,
                state.dead_letters,
                state.stall,
            ]
            assert not any(left), f"left at the end of {run.workflow_id}: {left}"
        replayer = Replayer(workflows=self.workload.TYPES, activities=self.workload.ACTIVITIES, guard="off")
        assert len(replayer.replay_journal(self.journal).results) == len(self.runs)

    def compare(self, other):
        """The same end as an uninterrupted story, run by run."""
        assert self.answers == other.answers
        assert self.logs.keys() <= other.logs.keys()
        mine = {run.workflow_id: run for run in self.runs.values()}
        theirs = {run.workflow_id: run for run in other.runs.values()}
        assert mine.keys() == theirs.keys()
        for workflow_id, run in mine.items():
            assert run.received() == theirs[workflow_id].received(), f"messages of {workflow_id} differ"
            attempts = not run.losses
            shape = run.shape(attempts=attempts)
            expected = theirs[workflow_id].shape(attempts=attempts)
            blames = sum(isinstance(event, ev.RunBlamed) for event in run.events)
            if attempts and blames:
                shape -= Counter({("RunBlamed",): blames})
            assert shape == expected, f"{workflow_id}: {shape - expected} more, {expected - shape} less"
