"""What a journal must hold, as a plain model; and a host that writes runs without a runtime.

``Model`` keeps the entries of every run in lists. ``Host`` does what the runtime's shard and writer do with a
store, an index and a ``Compactor``, turn by turn and commit by commit, so that a test chooses every moment.
"""

import random
from collections import Counter
from types import SimpleNamespace

from everact.journal import compaction, new_history, run_index, run_status
from everact.journal import events as ev
from everact.journal.compaction import Compactor
from everact.journal.errors import CommitUnknownError, JournalCorruptError
from everact.journal.facts import read_facts
from everact.journal.failures import Failure
from everact.journal.fold import RunState
from everact.journal.lmdb_store import LmdbStore
from everact.journal.loading import due_runs, load, open_runs
from everact.journal.payloads import NULL
from everact.journal.request_ids import Request
from everact.journal.run_status import CLOSED, status_flags
from everact.journal.snapshots import decode_open, decode_state
from everact.journal.store import CLOSES_RUN, HAS_REQUEST, STARTS_RUN, Entry
from everact.journal.stored_runs import decode_run
from everact.journal.tables import DEDUPE, NUMBER, PAIR, Table, text_hash

from .clock import START
from .crashes import folded

#: Segments, values and samples so small that every life passes all of compaction many times.
TINY = {
    "WINDOW": 14,
    "WINDOW_PER_RUN": 1,
    "SAMPLES": 12,
    "VALUE_ENTRIES": 4,
    "MERGE_BELOW": 150,
    "CROWD": 5,
}


class AtOnce:
    """A thread whose work is done when ``start`` returns: dictionaries come at the same moment each time."""

    def __init__(self, target, name, daemon):
        self.start = target


def make_tiny(monkeypatch, **settings):
    """Let compaction work on tiny segments."""
    for name, value in {**TINY, **settings}.items():
        monkeypatch.setattr(compaction if hasattr(compaction, name) else new_history, name, value)
    monkeypatch.setattr(run_index, "CROWD", compaction.CROWD)
    monkeypatch.setattr(compaction, "threading", SimpleNamespace(Thread=AtOnce))


class Model:
    """The runs of a journal.

    Attributes:
        runs: Entries by run key.
        requests: What request ids have become, and when, by workflow id and request id.
    """

    def __init__(self):
        self.runs = {}
        self.requests = {}
        self._states = {}

    def add(self, entries):
        """Take in a durable commit."""
        for entry in entries:
            self.runs.setdefault(entry.run_key, []).append(entry)
            state = self._states.setdefault(entry.run_key, RunState())
            record = ev.decode_record(entry.body)
            for number, event in enumerate(record.inputs, entry.first_event):
                if entry.first_event == number == 1:
                    state.started = event
                if isinstance(event, ev.WITH_DIGEST) and event.request_id:
                    name = (state.started.workflow_id, event.request_id)
                    self.requests[name] = (Request(entry.run_key, number, event.digest), entry.at)
            state.apply(record, entry.at)

    def state(self, key):
        """The fold of a run; not to be changed."""
        return self._states[key]

    def newest(self):
        """The newest run of each workflow id."""
        return {self._states[key].started.workflow_id: key for key in sorted(self.runs)}

    def open(self):
        """Keys of the open runs."""
        return {key for key, state in self._states.items() if state.outcome is None}

    # --- agreement

    def check_index(self, index, *, states=None, since=0):
        """Everything that the index answers is what the runs say.

        Args:
            index: A ``RunIndex``.
            states: Folds that a load gave, by key.
            since: Request ids that were received from this time on must be known.
        """
        rows = list(index.newest_first())
        assert [row.key for row in rows] == sorted(self.runs, reverse=True)
        counts = Counter()
        for row in rows:
            state = self.state(row.key)
            started = state.started
            assert (row.workflow_id, row.run_id, row.workflow_type) == (
                started.workflow_id,
                started.run_id,
                started.workflow_type,
            )
            assert (row.status, row.started_at, row.closed_at) == (
                state.status,
                state.started_at,
                state.closed_at,
            ), (row.key, row.status, state.status)
            assert index.entries(row) == self.runs[row.key], row.key
            found = index.find(row.workflow_id, row.run_id)
            assert found.key == row.key
            assert index.entries(found) == self.runs[row.key]
            assert index.row(row.key).status == row.status
            if not row.is_closed:
                assert folded(index.state(row)) == folded(state), row.key
            counts[row.workflow_type, row.status] += 1
        for workflow_id, key in self.newest().items():
            assert index.find(workflow_id).key == key
            assert index.find(workflow_id, "another") is None
        assert index.find("another") is None
        assert index.row(10**9) is None
        kinds = {None, *(kind for kind, _ in counts)}
        for kind in kinds:
            for status in (None, *run_status.STATUSES):
                right = sum(n for (k, s), n in counts.items() if kind in (None, k) and status in (None, s))
                assert index.count(kind, status) == right, (kind, status, counts, index.counts)
        for name, (request, at) in self.requests.items():
            found = index.requests.find(*name)
            assert found == request or (found is None and at < since), (name, found, request)
        assert index.requests.find("another", "r1") is None
        if states is not None:
            for key, state in states.items():
                assert folded(state) == folded(self.state(key)), key

    def check_tables(self, store):
        """What the tables say fits together, and is a moment in the life of each run."""
        with store.view() as tables:
            facts = read_facts(tables)
            runs = {NUMBER.unpack(k)[0]: decode_run(v) for k, v in tables.scan(Table.RUNS)}
            opened = dict(tables.scan(Table.OPEN))
            ids = [k for k, _ in tables.scan(Table.IDS)]
            due = {PAIR.unpack(k) for k, _ in tables.scan(Table.DUE)}
            histories = [k for k, _ in tables.scan(Table.HISTORIES)]
            segments = tables.segments
            generations = [list(tables.scan(table)) for table in DEDUPE]
        assert runs.keys() <= self.runs.keys()
        assert sorted(ids) == sorted(
            text_hash(store.journal_id, run.workflow_id) + NUMBER.pack(key) for key, run in runs.items()
        )
        still = {key for key, run in runs.items() if run.status not in CLOSED}
        assert {NUMBER.unpack(k)[0] for k in opened} == still
        wakes = {NUMBER.unpack(k)[0]: decode_open(v).wake for k, v in opened.items()}
        assert due == {(wake, key) for key, wake in wakes.items() if wake}
        counts = Counter((run.workflow_type, run.status) for run in runs.values())
        assert sorted(count for count in facts.counts if count[2]) == sorted(
            (*name, n) for name, n in counts.items()
        )
        assert facts.highest_key == max(runs, default=0)
        assert {NUMBER.unpack_from(k)[0] for k in histories} <= runs.keys()
        assert len(generations[facts.generation]) <= facts.generation_size
        log = [(sequence, entry) for sequence, record in store.scan(segments.first) for entry in record]
        for key, run in runs.items():
            entries = self.runs[key]
            # What the histories lack, the log has.
            left = [entry for sequence, entry in log if sequence > run.through and entry.run_key == key]
            assert left == entries[len(entries) - len(left) :]
        for raw, row in opened.items():
            # A snapshot is the run after one of its entries, never between two.
            key = NUMBER.unpack(raw)[0]
            snapshot = folded(decode_state(row))
            assert any(folded(state) == snapshot for state in self._moments(key, snapshot["last_event"])), key

    def _moments(self, key, last_event):
        """The run at this event: there are several when turns follow that have none."""
        state = RunState()
        for entry in self.runs[key]:
            state.apply(ev.decode_record(entry.body), entry.at)
            if state.last_event == last_event:
                yield state


class Host:
    """Writes runs as the runtime does.

    Args:
        store: An open store.
        model: What the journal held before.
        now: Wall clock, microseconds.

    Attributes:
        states: Folds of the open runs in memory, with the turns of the open batch.
        batch: The entries of the open batch.
    """

    def __init__(self, store, model, now):
        self.store = store
        self.model = model
        self.now = now
        self.begin()

    def begin(self):
        """Load, as at start-up."""
        loaded = load(self.store)
        self.index, self.next_key = loaded.runs, loaded.next_key
        self.loaded = loaded.states
        self.compactor = Compactor(self.store, loaded.runs, loaded.facts, self.states_get, lambda: self.now)
        self.states = dict(loaded.states)
        self.batch, self.started = [], {}

    def states_get(self, key):
        return self.states.get(key)

    def check_loaded(self, since=0):
        """Right after ``begin``: what start-up found is what the journal held."""
        assert self.next_key == max(self.model.runs, default=0) + 1
        known = {key for key, _ in open_runs(self.store) if not self.index.row(key).is_closed}
        assert known | self.loaded.keys() == self.model.open()
        due = set(due_runs(self.store, 0, 1 << 62))
        for key in known - self.loaded.keys():
            state = self.model.state(key)
            waits = [timer.deadline for timer in state.timers.values()]
            waits += [pending.next_at for pending in state.activities.values() if pending.next_at]
            assert (key in due) == bool(waits), key
        self.model.check_index(self.index, states=self.loaded, since=since)
        self.model.check_tables(self.store)

    # --- turns

    def state(self, key):
        """The fold of an open run; brought into memory if it is not there."""
        state = self.states.get(key)
        if state is None:
            row = self.index.row(key)
            state = self.states[key] = self.index.state(row)
            self.index.adopt(key)
        return state

    def forget(self, key):
        """Drop an open run from memory, if the open batch has nothing of it."""
        if key in self.states and all(entry.run_key != key for entry in self.batch):
            del self.states[key]

    def start(self, workflow_id, kind="T", request_id=""):
        key = self.next_key
        self.next_key += 1
        self.states[key] = RunState()
        started = ev.WorkflowStarted(
            workflow_id, f"run-{key}", kind, (), request_id, b"d" if request_id else b""
        )
        self.started[key] = started
        self.turn(key, ev.Turn((started,)))
        return key

    def turn(self, key, record):
        """Put a record of a run into the open batch."""
        state = self.state(key)
        first, before = state.last_event + 1, state.status
        flags = STARTS_RUN if first == 1 else 0
        workflow_id = (self.started.get(key) or state.started).workflow_id
        for number, event in enumerate(record.inputs, first):
            if isinstance(event, ev.WITH_DIGEST) and event.request_id:
                flags |= HAS_REQUEST
                self.index.requests.reserve(workflow_id, event.request_id, Request(key, number, event.digest))
        state.apply(record, self.now)
        if state.outcome is not None:
            flags |= CLOSES_RUN
        if state.status != before:
            flags |= status_flags(state.status)
        self.batch.append(Entry(key, first, flags, self.now, ev.encode_record(record)))

    def commit(self):
        """Send the open batch; returns the error if it failed, and begins again then."""
        if not self.batch:
            return None
        batch, started, self.batch, self.started = self.batch, self.started, [], {}
        sequence = self.store.position.sequence
        step = self.compactor.plan(len(batch))
        try:
            self.store.append(self.store.position, batch, step)
        except CommitUnknownError as error:
            if self.store.reopen().sequence > sequence:
                self.model.add(batch)
            before = self.compactor
            self.begin()
            self.compactor.follow(before)
            return error
        self.model.add(batch)
        self.index.add(sequence, batch, started)
        if step is not None:
            self.compactor.committed(step, sequence + 1)
        for key in {entry.run_key for entry in batch}:
            if self.states[key].outcome is not None:
                del self.states[key]
        return None


WHY = Failure(type="Trouble", message="no luck")


def some_turn(host, key, choice, number):
    """One of the things that can happen to an open run, chosen by a number; returns whether it was possible."""
    state = host.state(key)
    activity = next(iter(state.activities), None)
    timer = next(iter(state.timers), None)
    unread = tuple(state.unread)
    update = next(iter(state.updates), None)
    turn = ev.Turn
    match choice % 20:
        case 0:
            record = turn((ev.SignalReceived("s", (), f"r{number}", b"d%d" % number),))
        case 1:
            record = ev.Received((ev.SignalReceived("s", (), f"r{number}", b"d"), ev.UpdateReceived("u")))
        case 2 if unread:  # no events: the next entry begins with the same number
            record = turn((), (), unread[:1])
        case 3:
            record = turn((ev.UpdateReceived("u", (), f"r{number}", b"u"),))
        case 4 if update is not None:
            record = turn((ev.SignalReceived("s"),), (ev.UpdateCompleted(update, NULL),))
        case 5 | 6:
            command = 1000 + number
            record = turn(
                (ev.SignalReceived("t"),), (ev.TimerStarted(command, 5, host.now + 5 + number % 7),)
            )
        case 7 if timer is not None:
            record = turn((ev.TimerFired(timer),), (ev.ConditionAwaited("here", number),))
        case 8:
            record = turn((ev.SignalReceived("a"),), (ev.ActivityScheduled(1000 + number, "act"),))
        case 9 if activity is not None:
            attempt = state.activities[activity].attempt
            record = turn((ev.AttemptFailed(activity, attempt, WHY, host.now + 100),))
        case 10 if activity is not None:
            record = turn((ev.ActivityCompleted(activity, 1, NULL),), (ev.ConditionMet(1),))
        case 11:
            stalled = state.stall is not None
            record = turn((ev.RunReleased() if stalled else ev.RunStalled("held", WHY),))
        case 12:
            record = turn((ev.CancelRequested("why"),), (ev.HandlerFailed(1, WHY),))
        case 13:
            # Text that hardly compresses: values of many lengths.
            text = "".join(chr(33 + (number * n * n) % 90) for n in range(40 * (number % 9)))
            record = turn((ev.SignalReceived(text),))
        case 14:
            record = turn((ev.SignalReceived("end"),), (ev.WorkflowCompleted(NULL),))
        case 15:
            record = turn((), ((ev.WorkflowTerminated(), ev.WorkflowFailed(WHY))[number % 2],))
        case 16:
            control = ev.RunPaused if state.pause is None else ev.RunResumed
            record = turn((control("why", f"p{number}", b"p"),))
        case 17:
            record = turn((ev.SignalReceived("s"),), (ev.SignalKept(state.last_event + 1, "s"),))
        case 18 if state.kept:
            record = turn((ev.SignalReceived("s"),), (ev.SignalTaken(next(iter(state.kept))),))
        case 19 if state.dead_letters:
            letter = state.dead_letters[0].message
            record = turn((ev.SignalReceived("s", (), f"l{number}", b"l", letter),))
        case _:
            return False
    host.turn(key, record)
    return True


def fill_with_runs(host, turns, seed):
    """Write runs of all kinds, several turns a commit."""
    rng = random.Random(seed)
    number = host.next_key * 1000
    for _ in range(turns // 3):
        for _ in range(rng.randrange(1, 6)):
            number += 1
            still = [key for key, state in host.states.items() if state.outcome is None]
            if len(still) < 12:
                host.start(f"wf-{number}", "AB"[number % 2], f"s{number}")
            else:
                some_turn(host, rng.choice(still), rng.choice([*range(14), 13, 14, *range(16, 20)]), number)
        host.now += 1000
        assert host.commit() is None


def segments_of(store):
    with store.view() as tables:
        return tables.segments


def make_full_journal(path):
    """A closed journal with something in both segments and in every table; returns its model."""
    host = Host(LmdbStore(path, durability="os"), Model(), START)
    fill_with_runs(host, 300, seed=1)
    for seed in range(2, 100):
        if segments_of(host.store).sealed:
            break
        fill_with_runs(host, 3, seed)
    assert segments_of(host.store).sealed
    host.store.close()
    return host.model


def use_everything(store, model):
    """Read all there is; returns what was refused. What is answered must be right."""
    refused = []

    def asked(question, *args, right):
        try:
            assert question(*args) == right, args
        except JournalCorruptError as error:
            refused.append(str(error))

    index = load(store).runs
    listed = [row.key for row in index.newest_first()]
    assert sorted({*listed, *index.damaged}) == sorted(model.runs)
    assert len(listed) == len(set(listed))
    asked(
        lambda: {key for key, _ in open_runs(store) if not index.row(key).is_closed} | model.open(),
        right=model.open(),
    )
    for key, entries in model.runs.items():
        state = model.state(key)
        asked(lambda key=key: index.entries(index.row(key)), right=entries)
        asked(lambda key=key: index.row(key).status, right=state.status)
        asked(lambda s=state: index.find(s.started.workflow_id, s.started.run_id).key, right=key)
        if state.outcome is None:
            asked(lambda key=key: index.state(index.row(key)).last_event, right=state.last_event)
    for name, (request, _at) in model.requests.items():
        asked(index.requests.find, *name, right=request)
    # What is read without a damaged row is right; the log names the row.
    return refused + [f"run {key} in the table of runs cannot be read" for key in index.damaged]
