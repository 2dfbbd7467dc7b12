"""What is exported, imported and exported again is the same, whatever the events hold."""

import base64
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.journals import entries_of, fill, flip, make_journal, opened, runs_of_histories

from everact.journal import events as ev
from everact.journal import importing
from everact.journal.errors import ImportRefusedError, JournalCorruptError
from everact.journal.event_base import ParentRecord
from everact.journal.export import export_runs
from everact.journal.failures import Failure
from everact.journal.importing import import_runs
from everact.journal.loading import load
from everact.journal.memory_store import MemoryStore
from everact.journal.payloads import NULL, Payload
from everact.journal.run_chain import ChainRecord, NextRun, StartRecord
from everact.journal.run_document import VERSION, document_of
from everact.journal.run_document import entries_of as read_document
from everact.journal.step_events import Checkpoint
from everact.journal.store import HAS_REQUEST, STARTS_RUN, Entry
from everact.journal.verify import verify

START = ev.WorkflowStarted("w", "r", "T")


def exported(store, *ids, left_out=None):
    """The documents of runs; all must be whole unless there is a list for those that are not."""
    damaged = [] if left_out is None else left_out
    documents = list(
        export_runs(store, ids, left_out=damaged.append, damaged=lambda _: None, moved=pytest.fail)
    )
    assert left_out is not None or not damaged
    return documents


def bodies(store):
    return {entry.body for _, entries in store.scan() for entry in entries}


def one_run(*records, run_id="r", workflow_id="w", at=1):
    """A document of one run."""
    first = ev.Turn((ev.WorkflowStarted(workflow_id, run_id, "T"),))
    entries = entries_of([(at + n, record) for n, record in enumerate((first, *records))], 1)
    return document_of(first.inputs[0], entries)


def filled(*documents):
    store = MemoryStore()
    import_runs(store, documents)
    return store


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(2**63), 2**63 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
payloads = st.builds(
    Payload,
    st.sampled_from(["null", "raw", "json", "tagged", "pickle", "of the future"]),
    st.binary(max_size=8)
    | json_values.map(lambda value: json.dumps(value).encode())
    | json_values.map(lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()),
)
args = st.lists(payloads, max_size=2).map(tuple)
plain_failures = st.builds(
    Failure,
    type=texts,
    bases=st.lists(texts, max_size=2).map(tuple),
    message=texts,
    details=args,
    non_retryable=st.booleans(),
    next_delay=numbers,
    source=st.none() | st.tuples(texts, numbers, numbers),
    run=st.none() | st.tuples(texts, texts, texts, texts),
)
failures = plain_failures | st.builds(
    Failure, type=texts, cause=plain_failures, group=st.lists(plain_failures, max_size=2).map(tuple)
)
retries = st.builds(
    ev.RetryRecord,
    backoff_coefficient=st.floats(allow_nan=False),
    retry_on=st.none() | st.lists(texts, max_size=2).map(tuple),
)
parents = st.builds(ParentRecord, texts, texts, numbers)
options = st.builds(StartRecord, numbers, numbers, st.none() | retries, texts, texts)
chains = st.builds(ChainRecord, texts, texts, texts, numbers, numbers, texts)
starts = st.builds(ev.WorkflowStarted, texts, texts, texts, args=args, memo=args, parent=st.none() | parents)
FIELDS = {
    "draws": st.lists(st.tuples(texts, numbers, numbers), max_size=2).map(tuple),
    "start": starts,
    "parent": st.none() | parents,
    "texts": st.lists(texts, max_size=2).map(tuple),
    "options": st.none() | options,
    "chain": st.none() | chains,
    "next": st.none() | st.builds(NextRun, texts, texts, numbers),
    "last_result": st.none() | payloads,
    "last_failure": st.none() | failures,
    "args": args,
    "result": payloads,
    "failure": failures,
    "digest": st.binary(max_size=4),
    "retry": st.none() | retries,
    "keywords": st.lists(texts, max_size=2).map(tuple),
    "limits": st.none() | st.builds(ev.LimitsRecord, numbers, numbers, numbers),
    "details": args,
    "memo": args,
    "value": payloads,
    "headers": st.lists(st.builds(ev.Header, texts, payloads), max_size=2).map(tuple),
    "memo_names": st.lists(texts, max_size=2).map(tuple),
    "names": st.lists(texts, max_size=2).map(tuple),
    "checkpoint": st.none()
    | st.builds(
        Checkpoint,
        numbers,
        numbers,
        numbers,
        numbers,
        st.lists(texts, max_size=2).map(tuple),
        st.lists(
            st.tuples(texts, numbers, st.none() | st.floats(allow_nan=False, allow_infinity=False)),
            max_size=2,
        ).map(tuple),
    ),
    "field_names": st.lists(texts, max_size=2).map(tuple),
    "fields": args,
    "suppressed": st.lists(numbers, max_size=2).map(tuple),
}
EVENTS = sorted(ev.AnyEvent.__args__, key=lambda cls: cls.__name__)


def events_of(cls):
    """Any event of this kind."""
    by_type = {int: numbers, str: texts, bool: st.booleans()}
    return st.builds(cls, **{
        field.name: (st.none() if field.default is None else st.nothing())
        | (FIELDS[field.name] if field.name in FIELDS else by_type[field.type])
        for field in msgspec.structs.fields(cls)
    })  # fmt: skip


events = st.one_of([events_of(cls) for cls in EVENTS])
several = st.lists(events, max_size=4).map(tuple)
records = st.builds(ev.Received, several) | st.builds(
    ev.Turn, several, several, st.lists(st.integers(0, 9), max_size=2).map(tuple)
)


def through_json(document):
    """The way through a file, by two writers and two readers."""
    text = msgspec.json.encode(document)
    assert json.loads(json.dumps(document)) == json.loads(text)
    return msgspec.json.decode(text)


@given(st.lists(records, max_size=3), st.lists(numbers, min_size=3, max_size=3))
def test_any_records_come_back_to_the_byte(written, times):
    entries = [
        Entry(7, 1 + n, n, at, ev.encode_record(record))
        for n, (record, at) in enumerate(zip(written, times, strict=False))
    ]
    document = document_of(START, entries)
    again = read_document(through_json(document), 7)
    assert [entry.body for entry in again] == [entry.body for entry in entries]
    assert [(entry.at, entry.flags) for entry in again] == [(entry.at, entry.flags) for entry in entries]
    assert through_json(document_of(START, again)) == through_json(document)


@pytest.mark.parametrize("cls", EVENTS, ids=lambda cls: cls.__name__)
@settings(max_examples=settings.default.max_examples // 3)  # for each of some sixty kinds
@given(data=st.data())
def test_each_kind_of_event_comes_back(cls, data):
    record = ev.Received((data.draw(events_of(cls)),))
    document = document_of(START, [Entry(1, 1, 0, 1, ev.encode_record(record))])
    (event,) = document["records"][0]["inputs"]
    assert event["event"] == cls.__name__
    assert event["tag"] == cls.__struct_config__.tag
    assert read_document(through_json(document), 1)[0].body == ev.encode_record(record)


def test_committed_histories_come_back_exactly():
    first, second = MemoryStore(), MemoryStore()
    fill(first)
    documents = exported(first)
    assert len(documents) == len(runs_of_histories())
    done = import_runs(second, [through_json(document) for document in documents])
    assert exported(second) == documents
    # Old records may be shorter than what is written for them now; what they say is the same.
    assert bodies(second) == {ev.encode_record(ev.decode_record(body)) for body in bodies(first)}
    assert verify(second).is_sound
    assert (done.runs, done.events) == (len(documents), verify(first).events)
    assert second.position.sequence == len(documents) + 1


@pytest.mark.parametrize(
    ("payload", "stands_as"),
    [
        (Payload("json", b'{"a":[1,2.5,null]}'), {"encoding": "json", "json": {"a": [1, 2.5, None]}}),
        (Payload("tagged", b'{"$set":[1]}'), {"encoding": "tagged", "json": {"$set": [1]}}),
        (Payload("json", b"{ }"), {"encoding": "json", "base64": base64.b64encode(b"{ }").decode()}),
        (Payload("json", b'{"a":1,"a":1}'), {"encoding": "json", "base64": "eyJhIjoxLCJhIjoxfQ=="}),
        (Payload("json", b"[" * 5000), {"encoding": "json", "base64": base64.b64encode(b"[" * 5000).decode()}),
        (Payload("raw", b"1"), {"encoding": "raw", "base64": "MQ=="}),
        (NULL, {"encoding": "null"}),
    ],
)  # fmt: skip
def test_a_payload_stands_as_json_where_that_is_exact(payload, stands_as):
    document = one_run(ev.Turn((), (ev.WorkflowCompleted(payload),)))
    assert document["records"][-1]["outputs"][0]["result"] == stands_as


def test_a_deep_payload_leaves_room_for_its_document():
    depth = 900
    document = one_run(ev.Turn((), (ev.WorkflowCompleted(Payload("json", b"[" * depth + b"]" * depth)),)))
    assert through_json(document) == document


def test_a_run_that_is_there_is_refused_and_nothing_is_written():
    store = filled(one_run())
    before = store.position
    with pytest.raises(ImportRefusedError, match="run 'r' is in this journal already: nothing was imported"):
        import_runs(store, [one_run(run_id="other", workflow_id="v"), one_run()])
    assert store.position == before


def test_a_run_cannot_take_the_place_of_an_open_or_newer_one():
    done = ev.Turn((), (ev.WorkflowCompleted(NULL),))
    with pytest.raises(ImportRefusedError, match="another run in this journal that is open"):
        import_runs(filled(one_run(run_id="a")), [one_run(run_id="b", at=9)])
    with pytest.raises(ImportRefusedError, match="another run in this journal that started later"):
        import_runs(filled(one_run(done, run_id="a", at=9)), [one_run(done, run_id="b", at=1)])
    assert import_runs(filled(one_run(done, run_id="a", at=1)), [one_run(run_id="b", at=9)]).runs == 1


def test_a_request_id_starts_one_run():
    def requested(run_id, at):
        first = ev.Turn((ev.WorkflowStarted("w", run_id, "T", request_id="q"),))
        entries = entries_of([(at, first), (at, ev.Turn((), (ev.WorkflowCancelled(),)))], 1)
        return document_of(first.inputs[0], entries)

    with pytest.raises(ImportRefusedError, match="started with request id 'q'"):
        import_runs(filled(requested("a", 1)), [requested("b", 2)])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.clear(), "this is no exported run"),
        (lambda d: d.update(version=VERSION + 1), "has version 2, this Everact reads 1"),
        (lambda d: d.update(records=[]), "has no records"),
        (lambda d: d.update(records=5), "is damaged: record 1"),
        (lambda d: d.update(run_id="x"), "its first event names another run"),
        (lambda d: d["records"].pop(0), "begins with|not WorkflowStarted"),
        (lambda d: d["records"][0].update(kind="dance"), "KeyError"),
        (lambda d: d["records"][0].update(flags=STARTS_RUN | 8), "the flags say"),
        (lambda d: d["records"][0].update(at="noon"), "Expected `int`"),
        (lambda d: d["records"][0]["inputs"][0].update(tag="zz"), "KeyError"),
        (lambda d: d["records"][0]["inputs"][0].update(digest="?"), "is damaged: record 1"),
        (lambda d: d["records"][0]["inputs"][0].update(workflow_id=None), "Expected `str`"),
        (lambda d: d["records"][1]["outputs"][0].pop("result"), "Missing required argument 'result'"),
    ],
)
def test_a_damaged_document_is_refused(change, says):
    document = through_json(one_run(ev.Turn((), (ev.WorkflowCompleted(NULL),))))
    change(document)
    store = MemoryStore()
    with pytest.raises(ImportRefusedError, match=says):
        import_runs(store, [document])
    assert store.position.sequence == 1


def test_what_is_no_object_is_refused():
    with pytest.raises(ImportRefusedError, match="no exported run"):
        import_runs(MemoryStore(), [["everact run"]])


def test_whole_runs_leave_a_damaged_journal(tmp_journal):
    make_journal(tmp_journal)
    with opened(tmp_journal) as store:
        before = {document["run_id"]: document for document in exported(store)}
    flip(tmp_journal, 5)
    with opened(tmp_journal) as store:
        left_out = []
        after = {document["run_id"]: document for document in exported(store, left_out=left_out)}
        assert len(left_out) == verify(store).damaged_runs
        with pytest.raises(JournalCorruptError, match="takes no import"):
            import_runs(store, [])
    assert len(after) == len(before) - len(left_out)
    assert after.items() <= before.items()


def test_request_ids_of_messages_are_known_after_an_import():
    """Also those of an export that was made before entries had a flag for them."""
    document = one_run(ev.Received((ev.SignalReceived("s", (), "q", b"digest"),)))
    document["records"][1]["flags"] &= ~HAS_REQUEST
    store = filled(document)
    assert load(store).runs.requests.find("w", "q") == (1, 2, b"digest")
    assert verify(store).is_sound


def test_a_very_large_run_is_several_records(monkeypatch):
    monkeypatch.setattr(importing, "RECORD_BYTES", 1000)
    document = one_run(*[ev.Received((ev.SignalReceived("s" * 300),)) for _ in range(10)])
    store = filled(document)
    sizes = [sum(len(entry.body) for entry in entries) for _, entries in store.scan()]
    assert len(sizes) > 3
    assert max(sizes) <= 1000
    assert exported(store) == [document]


def test_chosen_runs_by_workflow_id_and_by_run_id():
    store = filled(*[one_run(run_id=f"r{n}", workflow_id=f"w{n}") for n in range(4)])
    assert [document["run_id"] for document in exported(store, "w1", "r3")] == ["r1", "r3"]
    assert exported(store, "nobody") == []


def test_progress_counts_runs():
    seen = []
    documents = [one_run(run_id=f"r{n}", workflow_id=f"w{n}") for n in range(3)]
    import_runs(MemoryStore(), documents, lambda done, of: seen.append((done, of)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
